"""Added tokens that a chat template writes: structure, whether or not the tokenizer calls them special.

Qwen3's ``<think>`` and ``<tool_call>`` and R1-distill's ``<｜User｜>`` are added tokens without the flag ``special``. Where somebody types one
in a question, a tokenizer would give the structural id. So the tokens that a template writes are found by rendering the probes of its form,
and by looking for their texts in its source, which covers the branches that no probe takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from prep_assets.errors import Refused
from prep_assets.templates.form import Message, Render, find_form
from prep_assets.tokenization.flags import refuse_flags
from prep_assets.tokenization.vocabulary import Vocabulary

if TYPE_CHECKING:
    from prep_assets.templates.chat_template import ChatTemplate


def bind(vocabulary: Vocabulary, template: ChatTemplate) -> Vocabulary:
    """`vocabulary`, as a family with this template uses it: the added tokens that the template writes are control tokens.

    Raises:
        ConfigError: the template writes a token whose flags (``rstrip`` …) change the ids around it.
    """
    bound = vocabulary.with_control(template.control)
    refuse_flags(bound, template.writes(bound.control))
    return bound


def marks(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Added tokens that look like structure: a word between signs, such as ``<think>``, ``[INST]`` or ``<｜User｜>``. White space and words
    that were added to a vocabulary are text, whoever writes them."""
    return tuple(token["content"] for token in vocabulary.spec["added_tokens"] if _is_mark(token["content"]))


def _is_mark(text: str) -> bool:
    ends = text[:1] + text[-1:]
    return any(char.isalnum() for char in text) and not any(char.isalnum() or char.isspace() for char in ends)


def probe_renders(render: Render) -> tuple[str, ...]:
    """What a template makes of the probes of its form, with the generation prompt and without."""
    found: dict[str, None] = {}

    def recorded(messages: Sequence[Message], **more: Any) -> str:
        text = render(messages, **more)
        found[text] = None
        with suppress(Refused):
            found[render(messages, **{**more, "generation_prompt": True})] = None
        return text

    find_form(recorded)
    return tuple(found)
