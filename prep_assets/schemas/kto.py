"""``kto``: one answer a row, with a label that says whether it is desirable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, Sample
from prep_assets.schemas.fields import value_at, wrong_type
from prep_assets.schemas.messages import messages
from prep_assets.schemas.prompt_completion import prompt_completion
from prep_assets.schemas.registry import Convert, schema

EXAMPLE = {
    "messages": [{"role": "user", "content": "Name a prime number."}, {"role": "assistant", "content": "7"}],
    "label": True,
}


@schema("kto", gives=Sample, example=EXAMPLE, labels=True)
def kto(
    *,
    messages_key: str = "messages",
    prompt_key: str = "prompt",
    completion_key: str = "completion",
    label_key: str = "label",
    role_key: str = "role",
    content_key: str = "content",
    roles: Mapping[str, str] | None = None,
    template: bool = True,
) -> Convert:
    """A chat that ends with the labelled answer (LLaMA-Factory), or a prompt and a completion (TRL).

    Options:
        messages_key: field with the array of messages; where it is absent, prompt and completion are read.
        prompt_key: field with the prompt, a string or messages.
        completion_key: field with the completion, a string or messages.
        label_key: field with true (desirable) or false.
        role_key: field of a message with its role.
        content_key: field of a message with its content.
        roles: further role tags, such as ``{"human": "user", "gpt": "assistant"}``.
        template: string prompts and completions become user and assistant turns.
    """
    chat = messages(messages_key=messages_key, role_key=role_key, content_key=content_key, roles=roles)
    plain = prompt_completion(prompt_key=prompt_key, completion_key=completion_key, template=template)

    def convert(row: Mapping[str, Any]) -> Sample:
        label = value_at(row, label_key)
        if not isinstance(label, bool):
            wrong_type(label, label_key, "true or false")
        is_chat = row.get(messages_key) is not None
        sample = chat(row) if is_chat else plain(row)
        if is_chat and sample.turns[-1].role != ASSISTANT:
            raise Refused("role_order", f"the label is about the last turn, which is of role {sample.turns[-1].role}")
        return replace(sample, label=label)

    return convert
