"""``prompt_completion``: TRL's prompt-completion form, and Cerebras' hooks of that kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from prep_assets.errors import ConfigError
from prep_assets.samples import ASSISTANT, COMPLETION, PROMPT, USER, Example, Region, Sample, Turn, turn
from prep_assets.schemas.chat import ChatFormat
from prep_assets.schemas.columns import chat_sample, plain_sample, with_system_of
from prep_assets.schemas.fields import needed, texts_of, value_at, wrong_type
from prep_assets.schemas.images import Images
from prep_assets.schemas.registry import Convert, convert_with, schema
from prep_assets.schemas.roles import require_answer, require_open_end
from prep_assets.schemas.weights import weighted

SEPARATOR = "separator"
EXAMPLE = {"prompt": "The sky is", "completion": " blue."}


@schema("prompt_completion", gives=Sample, example=EXAMPLE)
def prompt_completion(
    *,
    prompt_key: str = "prompt",
    completion_key: str = "completion",
    template: bool = False,
    strip: bool = False,
    separator: str = "",
    tools_key: str = "tools",
) -> Callable[[Mapping[str, Any]], Sample]:
    """A prompt and its completion, both strings or both arrays of messages.

    Strings become `PROMPT` and `COMPLETION`. Messages become the turns of one chat, whose assistant turns inside the prompt weigh 0.

    Options:
        prompt_key: field with the prompt.
        completion_key: field with the completion.
        template: render string prompts as a user turn and string completions as an assistant turn.
        strip: remove whitespace at both ends of strings.
        separator: text between a string prompt and its completion, never trained: what Cerebras calls its sep token.
        tools_key: column with the tools on offer.
    """
    if separator and template:
        raise ConfigError("separator stands between texts without a chat template, and template is true. Leave one of the two out")

    def convert(row: Mapping[str, Any]) -> Sample:
        prompt, completion = value_at(row, prompt_key), value_at(row, completion_key)
        if isinstance(prompt, str) and isinstance(completion, str):
            needed(prompt, "empty_prompt", prompt_key)
            needed(completion, "empty_answer", completion_key)
            if strip:
                prompt, completion = prompt.strip(), completion.strip()
            turns = (turn(USER if template else PROMPT, prompt), turn(ASSISTANT if template else COMPLETION, completion))
            if separator:
                turns = (replace(turns[0], regions=(*turns[0].regions, Region(SEPARATOR, separator, 0.0))), turns[1])
            return chat_sample(row, with_system_of(row, turns), tools_key) if template else plain_sample(row, turns)
        if isinstance(prompt, str) != isinstance(completion, str):
            other = completion if isinstance(prompt, str) else prompt
            wrong_type(other, completion_key if isinstance(prompt, str) else prompt_key, "a string, as the other side is one")
        if separator:
            wrong_type(prompt, prompt_key, "a string, because the option separator stands between texts")
        return chat_sample(row, with_system_of(row, _chat(row, prompt_key, completion_key)), tools_key)

    return convert


def _chat(row: Mapping[str, Any], prompt_key: str, completion_key: str) -> tuple[Turn, ...]:
    images = Images(row, "images", "<image>")
    form = ChatFormat()
    prompt, completion = (form.turns(row[key], key, images) for key in (prompt_key, completion_key))
    images.require_all_taken()
    require_open_end(prompt, prompt_key)
    require_answer(completion)
    return (*(weighted(turn, 0.0) if turn.role == ASSISTANT else turn for turn in prompt), *completion)


@schema("prompt_completion_text_read_hook", gives=Sample, example=EXAMPLE)
def prompt_completion_text_read_hook(*, prompt_key: str = "prompt", completion_key: str = "completion") -> Convert:
    """Cerebras' hook for prompt and completion without a chat template.

    Options:
        prompt_key: field with the prompt.
        completion_key: field with the completion.
    """
    return prompt_completion(prompt_key=prompt_key, completion_key=completion_key)


@schema("prompt_completion_chat_read_hook", gives=Sample, example=EXAMPLE)
def prompt_completion_chat_read_hook(*, prompt_key: str = "prompt", completion_key: str = "completion") -> Convert:
    """Cerebras' hook for prompt and completion as a chat of one user and one assistant turn, both stripped.

    Options:
        prompt_key: field with the prompt.
        completion_key: field with the completion.
    """
    return prompt_completion(prompt_key=prompt_key, completion_key=completion_key, template=True, strip=True)


@schema("nlg_read_hook", gives=Sample, example={"context": "name : The Eagle |", "completion": " The Eagle is a pub."})
def nlg_read_hook(*, context_key: str = "context", completion_key: str = "completion") -> Convert:
    """Cerebras' hook for language generation from a context: token ids, as its own columns hold them, or text.

    Ids are read as by `tokenized`, so the domain names the tokenizer that made them (``tokenized_by``).

    Options:
        context_key: field with the context.
        completion_key: field with the completion.
    """
    read = prompt_completion(prompt_key=context_key, completion_key=completion_key)
    ids = convert_with("tokenized", {"prompt_ids_key": context_key, "completion_ids_key": completion_key})

    def convert(row: Mapping[str, Any]) -> Example | None:
        if all(isinstance(row.get(key), list | tuple) for key in (context_key, completion_key)):
            return ids(row)
        for key in (context_key, completion_key):
            if not isinstance(row.get(key), str | None):
                wrong_type(row.get(key), key, "a string, or token ids as the other side")
        return read(row)

    return convert


@schema("instruction", gives=Sample, example={"prompt": "Question: 2 + 2?\nAnswer: ", "response": "4"})
def instruction(*, prompt_key: str = "prompt", response_key: str = "response") -> Convert:
    """A prompt and its response, tokenized as they stand: a `PROMPT` and a `COMPLETION` turn.

    Options:
        prompt_key: field with the prompt.
        response_key: field with the response.
    """

    def convert(row: Mapping[str, Any]) -> Sample:
        prompt, response = texts_of(row, prompt_key, response_key)
        needed(prompt, "empty_prompt", prompt_key)
        needed(response, "empty_answer", response_key)
        return plain_sample(row, (turn(PROMPT, prompt), turn(COMPLETION, response)))

    return convert
