"""Prompt types of ModelLink, MindSpeed-LLM and LLaMA-Factory as chat templates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from prep_assets.errors import TemplateError, nearest

# Prompt types: chat formats in slots, as in ModelLink, MindSpeed-LLM and LLaMA-Factory (``templates.json``), converted to Jinja.
#
# A prompt type gives the text around a system prompt, a question and an answer. Slots of tools are not supported: a model that calls tools has its own
# chat template, which writes calls as that model does.

CONTENT, EOS = "{{content}}", "{{eos_token}}"


def _slot_texts(slots: Any) -> Any:
    """Slots as texts: a slot is text, ``{"token": text}``, or a list with the name of a special token, which becomes ``{{name}}``."""
    if not isinstance(slots, list):
        return slots
    named = [f"{{{{{slot[0]}}}}}" if slot in (["bos_token"], ["eos_token"]) else slot for slot in slots]
    return [slot["token"] if isinstance(slot, dict) and [*slot] == ["token"] else slot for slot in named]


class Slots(BaseModel):
    """The slots of one kind of turn."""

    model_config = ConfigDict(extra="forbid", strict=True)

    slots: Annotated[list[str], BeforeValidator(_slot_texts)] = []
    tool_format: str | None = None

    def around(self, label: str) -> tuple[str, str]:
        """The text before the content, and after it."""
        text = "".join(self.slots)
        if text.count(CONTENT) != 1:
            raise TemplateError(f"{label} needs {CONTENT} once, has {text!r}")
        before, _, after = text.partition(CONTENT)
        return before, after


class PromptType(BaseModel):
    """A chat format in slots, with the names and defaults of ``templates.json``.

    Fields of tools and `force_system` are read and ignored: tools are rejected, and a prefix is always written.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    format_prefix: Slots = Slots()
    format_system: Slots = Slots(slots=[CONTENT])
    format_user: Slots = Slots(slots=[CONTENT])
    format_assistant: Slots | None = None
    format_separator: Slots = Slots()
    format_observation: Slots = Slots()
    format_function: Slots = Slots()
    format_tools: Slots = Slots()
    default_system: str = ""
    stop_words: list[str] = []
    thought_words: list[str] = ["<think>\n", "\n</think>\n\n"]
    efficient_eos: bool = False
    replace_eos: bool = False
    force_system: bool = False
    template_class: Literal["Template", "Llama2Template", "ReasoningTemplate"] = "Template"

    @property
    def assistant(self) -> Slots:
        """The slots of an answer; by default the content, and the end-of-text token unless `efficient_eos`."""
        return self.format_assistant or Slots(slots=[CONTENT] if self.efficient_eos else [CONTENT, EOS])

    @property
    def open_ended(self) -> bool:
        """Whether no slot ends an answer, so that the option ``end_with_eos`` decides about its stop token."""
        strings = self._strings()
        return bool(strings["stop"]) and not strings["shared"]

    def jinja(self) -> str:
        """The source of its chat template.

        Raises:
            TemplateError: slots that do not hold the content exactly once.
        """
        body = (resources.files(__package__) / "slots.jinja").read_text("utf-8")
        return f"{{%- set slots = {json.dumps(self._strings(), ensure_ascii=False)} -%}}\n{body}"

    def _strings(self) -> Mapping[str, Any]:
        label = f"prompt type {self.name!r}: format_"
        user = self.format_user.around(label + "user")
        answer = self.assistant.around(label + "assistant")
        stop = self.stop_words[0] if self.stop_words else EOS
        if self.replace_eos:
            answer = (answer[0], answer[1].replace(EOS, stop))
        following = "".join(self.format_separator.slots) + user[0]
        # if the next question begins with the stop, write it with the answer, so that a model learns to stop there
        shared = not answer[1] and following.startswith(stop)
        return {
            "name": self.name,
            "prefix": "".join(self.format_prefix.slots),
            "system": self.format_system.around(label + "system"),
            "system_inside": self.template_class == "Llama2Template",
            "default_system": self.default_system,
            "user": user,
            "next": following.removeprefix(stop) if shared else following,
            "answer": answer,
            "stop": "" if answer[1] else stop,
            "shared": shared,
            "thought": self.thought_words if self.template_class == "ReasoningTemplate" else None,
        }


def load_prompt_type(name: str, path: Path | None = None) -> PromptType:
    """Load the prompt type `name`, shipped or from a file in the format of ``templates.json``.

    Raises:
        TemplateError: no such file or name, with the nearest name; or an invalid file, with the first fault.
    """
    if path and not path.is_file():
        raise TemplateError(f"no file of prompt types at {path}")
    known = _parse_prompt_types(path.read_text("utf-8"), str(path)) if path else shipped()
    if name not in known:
        raise TemplateError(
            f"no prompt type {name!r} {f'in {path}' if path else 'ships'}{nearest(name, known) or '.'} Known: {', '.join(known)}"
        )
    return known[name]


@cache
def shipped() -> Mapping[str, PromptType]:
    """The shipped prompt types by name."""
    return _parse_prompt_types((resources.files(__package__) / "prompt_types.json").read_text("utf-8"), "prompt_types.json")


def _parse_prompt_types(text: str, label: str) -> Mapping[str, PromptType]:
    try:
        types = TypeAdapter(list[PromptType]).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise TemplateError(f"{label}: {field + ': ' if field else ''}{first['msg']} ({len(error.errors())} in all)") from error
    by_name: dict[str, PromptType] = {}
    for prompt_type in types:
        if prompt_type.name in by_name:
            raise TemplateError(f"{label}: prompt type {prompt_type.name!r} stands there twice")
        by_name[prompt_type.name] = prompt_type
    return by_name


def source_of(name: str, base: Path | None) -> str | None:
    """The template of ``prompt_type:NAME``, or of ``FILE.json#NAME`` with a file relative to `base`; `None` for other names.

    Raises:
        TemplateError: no such file or name.
    """
    if name.startswith("prompt_type:"):
        return load_prompt_type(name.removeprefix("prompt_type:")).jinja()
    file, is_file, prompt_type = name.rpartition("#")
    if not (is_file and file.endswith(".json")):
        return None
    return load_prompt_type(prompt_type, (base or Path.cwd()) / file).jinja()
