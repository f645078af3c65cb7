"""``llama3_chat``: text to which Llama 3's chat template was already applied, read back into turns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import TOOL, Sample, Turn, turn
from prep_assets.schemas.fields import needed, text_of
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.roles import OPENAI_ROLES, require_answer, role_at

ROLES = {**OPENAI_ROLES, "ipython": TOOL}
_TURN = re.compile(r"\s*<\|start_header_id\|>(.*?)<\|end_header_id\|>\n\n(.*?)<\|(?:eot|eom)_id\|>", re.DOTALL)
_AROUND = re.compile(r"\s*(?:<\|(?:begin_of_text|end_of_text)\|>\s*)*")

EXAMPLE = {
    "text": "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
}


@schema("llama3_chat", gives=Sample, example=EXAMPLE)
def llama3_chat(*, text_key: str = "text", strip: bool = True) -> Convert:
    """Each header with its text up to ``<|eot_id|>`` or ``<|eom_id|>`` as one turn.

    Options:
        text_key: field with the rendered chat.
        strip: remove whitespace at both ends of every turn, as the template itself does when it renders.
    """

    def convert(row: Mapping[str, Any]) -> Sample:
        text = needed(text_of(row, text_key), "empty_text", text_key)
        turns: list[Turn] = []
        position = _end_of(_AROUND, text, 0)
        while match := _TURN.match(text, position):
            where = f"{text_key}, turn {len(turns)}"
            role = role_at({"header": match[1].strip()}, "header", ROLES, where)
            content = match[2].strip() if strip else match[2]
            turns.append(turn(role, needed(content, "empty_answer", where) if role == "assistant" else content))
            position = match.end()
        rest = text[_end_of(_AROUND, text, position) :]
        if rest:
            raise Refused("leftover_text", f"{text_key!r} has text outside of any turn: {rest[:60]!r}")
        require_answer(turns)
        return Sample(tuple(turns))

    return convert


def _end_of(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


@schema("llama3_1_chat_formatted_data_hook", gives=Sample, example=EXAMPLE)
def llama3_1_chat_formatted_data_hook(*, chat_key: str = "text") -> Convert:
    """Cerebras' hook for such text.

    Options:
        chat_key: field with the rendered chat.
    """
    return llama3_chat(text_key=chat_key)
