"""``belle``: BELLE's multi-turn chats, whose earlier turns stand as text inside the instruction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, USER, Sample
from prep_assets.schemas.fields import texts_of
from prep_assets.schemas.marked_text import split_marked
from prep_assets.schemas.pairs import turns_of
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.roles import require_alternation

EXAMPLE = {"instruction": "Human:你好\nAssistant:你好！有什么可以帮你？\nHuman:讲个笑话\nAssistant:", "input": "", "output": "从前有座山……"}


@schema("belle", gives=Sample, example=EXAMPLE, aliases=("BelleMultiTurnInstructionHandler",))
def belle(
    *, instruction_key: str = "instruction", output_key: str = "output", human_mark: str = "Human:", assistant_mark: str = "Assistant:"
) -> Convert:
    """The turns inside the instruction, whose last ``Assistant:`` is answered by the output; all stripped.

    Options:
        instruction_key: field with ``Human:…Assistant:…Human:…Assistant:``.
        output_key: field with the last answer.
        human_mark: what stands before a user's turn.
        assistant_mark: what stands before an assistant's turn.
    """

    def convert(row: Mapping[str, Any]) -> Sample:
        past, answer = texts_of(row, instruction_key, output_key)
        turns = split_marked(past, {human_mark: USER, assistant_mark: ASSISTANT}, instruction_key)
        if not turns or turns[-1] != (ASSISTANT, ""):
            raise Refused("role_order", f"{instruction_key!r} must end with {assistant_mark!r}; it ends {past[-60:]!r}")
        turns[-1] = (ASSISTANT, answer.strip())
        sample = Sample(turns_of(turns))
        require_alternation(sample.turns, ends_with_answer=True)
        return sample

    return convert
