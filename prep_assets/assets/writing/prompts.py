"""RL prompts: as lines with their gold answer, and as tokens up to where a model continues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import xxhash

from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.images import refuse_images
from prep_assets.assets.writing.message_rows import RowForm, extra_columns, sample_of, says_something, turns_of, written
from prep_assets.config.models import Rl
from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, COMPLETION, PROMPT, USER, Prompt, Turn
from prep_assets.schemas.gold import gold_as_json_number
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.reasoning import InlineReasoning
from prep_assets.templates.rendering import Rendered, render
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.policy import MaskPolicy


def prompt_of(example: object) -> Prompt:
    """A prompt without images; anything else is refused."""
    if not isinstance(example, Prompt):
        raise Refused("not_a_prompt", f"the schema gives {type(example).__name__}, RL needs a Prompt", stage="prompt")
    refuse_images(example.prompt, "prompt")
    return example


def prompt_row(example: Prompt, form: RowForm) -> dict[str, Any]:
    """``{prompt, gold}``: the gold of a number verifier as a JSON number, as train-llm-from-scratch writes it; of another one as text, with
    the verifier's name.

    Raises:
        Refused: an empty prompt, or one that the form cannot hold.
    """
    columns = extra_columns(example)
    prompt = written(example.prompt, form, columns, "prompt")
    if not says_something(prompt):
        raise Refused("empty_prompt", "the prompt is empty", stage="prompt")
    if example.verifier == "number":
        return {"prompt": prompt, "gold": gold_as_json_number(example.gold), **columns}
    return {"prompt": prompt, "gold": example.gold, "verifier": example.verifier, **columns}


def prompt_digest(turns: tuple[Turn, ...]) -> bytes:
    """What decides whether a prompt is held out, whatever the form of the file: of pairs, of RL, and of groups."""
    return chat_digest([turn.role for turn in turns], [turn.text for turn in turns])


def chat_digest(roles: Sequence[str], texts: Sequence[str]) -> bytes:
    """The same of a prompt in columns."""
    alone = len(roles) == 1 and roles[0] in (USER, ASSISTANT, PROMPT, COMPLETION)  # which a string may be
    plain = texts[0] if alone else [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    return xxhash.xxh3_128_digest(msgspec.json.encode(plain))


def prompt_encoder(workspace: Workspace) -> Encoder:
    """What tokenizes prompts: nothing of them is trained."""
    family, nothing = workspace.family(Rl), MaskPolicy({}, "mask", "none")
    return Encoder(workspace.vocabulary(family), workspace.engines(family), nothing, family.preprocessing.max_seq_len, trains=False)


def generation_prompt(template: ChatTemplate, reasoning: InlineReasoning, content: dict[str, Any]) -> Rendered:
    """A line of a prompt file, rendered up to where a model continues."""
    sample = sample_of(content, turns_of(content["prompt"], USER))
    return render(reasoning.read(sample), template, generation_prompt=True)
