"""``common_words_mask``: answers whose commonest words are read but not trained."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.samples import COMPLETION, PROMPT, TEXT, Region, Sample, Turn, turn
from prep_assets.schemas.fields import as_list, as_mapping, needed, text_of, texts_of, value_at
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.view import whole

COMMON_WORDS = ("the", "be", "to", "of", "and", "a", "in", "that", "have", "I", "am")
_WORD = re.compile(r"\s*\S+(?:\s+\Z)?")


@schema("common_words_mask", gives=Sample, example={"prompt": "Who are you?", "completion": "I am the keeper of keys."})
def common_words_mask(*, prompt_key: str = "prompt", completion_key: str = "completion", words: Sequence[str] = COMMON_WORDS) -> Convert:
    """A prompt and a completion whose runs of common words weigh 0 and whose other runs weigh 1.

    Options:
        prompt_key: field with the prompt.
        completion_key: field with the completion.
        words: the common words, as they are written.
    """

    def convert(row: Mapping[str, Any]) -> Sample:
        return weighted(text_of(row, prompt_key), text_of(row, completion_key), words)

    return convert


def weighted(prompt: str, completion: str, words: Sequence[str]) -> Sample:
    """The two turns. Space before a word belongs to the word; no character is lost or changed."""
    needed(prompt, "empty_prompt", "the prompt")
    needed(completion, "empty_answer", "the completion")
    common = frozenset(words)
    runs = groupby(_WORD.findall(completion), key=lambda word: word.strip() in common)
    regions = tuple(Region(TEXT, "".join(run), 0.0 if is_common else 1.0) for is_common, run in runs)
    return Sample((turn(PROMPT, prompt), Turn(COMPLETION, regions)))


@schema(
    "ultra_chat_common_words_mask_hook",
    gives=Sample,
    example={
        "prompt": "Who are you?",
        "messages": [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "I am Max."}],
    },
)
def ultra_chat_common_words_mask_hook(
    *, prompt_key: str = "prompt", completion_key: str = "messages", later_messages: Literal["refuse", "leave_out"] = "refuse"
) -> Convert:
    """Cerebras' hook for UltraChat: the completion is the second message of a chat, whose first one is the prompt.

    Options:
        prompt_key: field with the prompt.
        completion_key: field with the array of messages.
        later_messages: whether a chat of more than two messages is refused, or what comes after the second is left out.
    """

    def convert(row: Mapping[str, Any]) -> Sample:
        messages = [as_mapping(each, completion_key) for each in as_list(value_at(row, completion_key), completion_key)]
        prompt = text_of(row, prompt_key)
        if len(messages) < 2:
            raise Refused("no_assistant_turn", f"{completion_key!r} has {len(messages)} messages, the answer is the second")
        asked, answered = (texts_of(message, "role", "content") for message in messages[:2])
        if (asked[0], answered[0]) != ("user", "assistant"):
            raise Refused("role_order", f"{completion_key!r} begins with messages of {asked[0]!r} and {answered[0]!r}")
        if asked[1].strip() != prompt.strip():
            raise Refused("prompts_differ", f"the first message is {asked[1][:60]!r}, {prompt_key!r} is {prompt[:60]!r}")
        if messages[2:] and later_messages == "refuse":
            raise Refused("later_messages", f"{completion_key!r} has {len(messages)} messages; the answer is the second")
        whole(messages[2:])
        return weighted(prompt, answered[1], COMMON_WORDS)

    return convert
