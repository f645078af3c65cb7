"""Load the chat template that a configuration names: shipped, from a file, or a prompt type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from prep_assets.caches import bounded_cache
from prep_assets.errors import TemplateError, nearest
from prep_assets.text.template import ChatTemplate, marks, marks_generated
from prep_assets.text.template_options import without_effect
from prep_assets.text.tokenizer_files import read_text
from prep_assets.text.vocabulary import Vocabulary

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
        body = (resources.files("prep_assets.text") / "slots.jinja").read_text("utf-8")
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
    return _parse_prompt_types((resources.files("prep_assets.text") / "prompt_types.json").read_text("utf-8"), "prompt_types.json")


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


# Chat templates by the name in a configuration.


@cache
def named_templates() -> Mapping[str, str]:
    """The shipped templates: name → Jinja source, sorted by name."""
    folder = resources.files("prep_assets.text") / "named"
    sources = {entry.name.removesuffix(".jinja"): entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".jinja")}
    return MappingProxyType(dict(sorted(sources.items())))


def load_template(
    name: str,
    vocabulary: Vocabulary,
    *,
    base: Path | None = None,
    options: Mapping[str, Any] | None = None,
    image: str = "",
    audio: str = "",
    video: str = "",
    training: str | None = None,
) -> ChatTemplate:
    """Load a template by name: ``tokenizer`` (``tokenizer:NAME`` if it has several), a shipped one, ``prompt_type:NAME``, a path to a ``.jinja``
    file (relative to `base`), or ``FILE.json#NAME`` for a prompt type in a file.

    Raises:
        TemplateError: no such template, a tokenizer without one, or an option that the template does not read; with the known names.
    """
    if name.partition(":")[0] == "tokenizer":
        source = _tokenizer_source(name.partition(":")[2], vocabulary)
    elif name.endswith(".jinja"):
        source = _read_source(name, base)
    elif name.startswith("prompt_type:"):
        source = load_prompt_type(name.removeprefix("prompt_type:")).jinja()
    elif ".json#" in name:
        file, _, prompt_type = name.rpartition("#")
        source = load_prompt_type(prompt_type, (base or Path.cwd()) / file).jinja()
    else:
        shipped = named_templates()
        if name not in shipped:
            raise TemplateError(
                f"no chat template {name!r}{nearest(name, shipped) or '.'} Known: tokenizer, {', '.join(shipped)}, prompt_type:NAME, "
                "or a path to a .jinja file"
            )
        source = shipped[name]
    template = _reuse_loaded(ChatTemplate(name, source, vocabulary.special, options or {}, image=image, audio=audio, video=video))
    template_options = {key: value for key, value in template.options.items() if not (image and key == "image_token")}
    if fault := without_effect(template, template_options):
        raise TemplateError(f"template_options: {fault}")
    if training is not None:
        template = _with_training(template, training, _read_source(training, base))
    control = tuple(sorted({*vocabulary.control, *template.writes(marks(vocabulary))}))
    return _reuse_loaded(replace(template, control=control))


@bounded_cache("chat templates", 16, key=lambda template: (template.name, template.hash, template.control))
def _reuse_loaded(template: ChatTemplate) -> ChatTemplate:
    """The equal template that was loaded before, with its cached properties."""
    return template


def _read_source(name: str, base: Path | None) -> str:
    path = (base or Path.cwd()) / name
    if not path.is_file():
        raise TemplateError(f"no chat template at {path}")
    return read_text(path)


def _with_training(template: ChatTemplate, name: str, source: str) -> ChatTemplate:
    """The template with a training variant, which marks generated text.

    Raises:
        TemplateError: the variant cannot prove anything: one of the two has the wrong tags, or they render differently.
    """
    if marks_generated(template.source):
        raise TemplateError(f"training_template: template {template.name} marks what is generated itself. Leave training_template out")
    if not marks_generated(source):
        raise TemplateError(f"training_template: {name} has no {{% generation %}} tags. Name the variant that has them")
    variant = replace(template, name=name, source=source)
    if variant.short_chat != template.short_chat:
        raise TemplateError(
            f"training_template: of a question and an answer {name} makes {variant.short_chat!r}, template {template.name} "
            f"{template.short_chat!r}. Name a variant of this template"
        )
    return replace(template, training=source)


def _tokenizer_source(name: str, vocabulary: Vocabulary) -> str:
    """The source of the tokenizer's template; of several the named one, because the right one depends on the use of the model."""
    templates = {**vocabulary.templates, **({"default": vocabulary.chat_template} if vocabulary.chat_template else {})}
    if not templates:
        raise TemplateError(
            f"tokenizer {vocabulary.name} has no chat template; name one of: {', '.join(named_templates())}, or a .jinja file"
        )
    if not name and vocabulary.chat_template is not None:
        return vocabulary.chat_template
    if name not in templates:
        problem = f"no chat template {name!r}{nearest(name, templates)}; it has" if name else "several chat templates:"
        raise TemplateError(
            f"tokenizer {vocabulary.name} has {problem} {', '.join(sorted(templates))}. Name one, e.g. template: tokenizer:{min(templates)}"
        )
    return templates[name]
