"""The chat template that a configuration names: shipped, of a file, or a prompt type."""

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
from prep_assets.text.tokenizer_files import read_text
from prep_assets.text.vocabulary import Vocabulary

# Prompt types: chat formats written as slots, as ModelLink, MindSpeed-LLM and LLaMA-Factory have them (``templates.json``), turned into Jinja.
#
# A prompt type says what stands around a system prompt, a question and an answer. Tools have no slots here: a model that calls them has a
# template of its own, which writes the calls as that model does.

CONTENT, EOS = "{{content}}", "{{eos_token}}"


def _text(slots: Any) -> Any:
    """A slot is text, ``{"token": text}``, or a list of the name of a special token, which becomes ``{{name}}``."""
    if not isinstance(slots, list):
        return slots
    written = [f"{{{{{slot[0]}}}}}" if slot in (["bos_token"], ["eos_token"]) else slot for slot in slots]
    return [slot["token"] if isinstance(slot, dict) and [*slot] == ["token"] else slot for slot in written]


class Slots(BaseModel):
    """What is written for one kind of turn, piece by piece."""

    model_config = ConfigDict(extra="forbid", strict=True)

    slots: Annotated[list[str], BeforeValidator(_text)] = []
    tool_format: str | None = None

    def around(self, where: str) -> tuple[str, str]:
        """What stands before the content, and after it."""
        text = "".join(self.slots)
        if text.count(CONTENT) != 1:
            raise TemplateError(f"{where} needs {CONTENT} once, has {text!r}")
        before, _, after = text.partition(CONTENT)
        return before, after


class PromptType(BaseModel):
    """A chat format in slots, with the names and defaults of ``templates.json``.

    What concerns tools, and `force_system`, is read and means nothing here: tools are refused, and a prefix is always written.
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
        """What is written of an answer; where the type does not say, the content, and the end-of-text token unless `efficient_eos`."""
        return self.format_assistant or Slots(slots=[CONTENT] if self.efficient_eos else [CONTENT, EOS])

    @property
    def open_ended(self) -> bool:
        """Whether nothing that the type writes ends an answer, so that the option ``end_with_eos`` decides about its stop token."""
        strings = self._strings()
        return bool(strings["stop"]) and not strings["shared"]

    def jinja(self) -> str:
        """The chat template that writes it.

        Raises:
            TemplateError: slots that hold the content twice or not at all.
        """
        body = (resources.files("prep_assets.text") / "slots.jinja").read_text("utf-8")
        return f"{{%- set slots = {json.dumps(self._strings(), ensure_ascii=False)} -%}}\n{body}"

    def _strings(self) -> Mapping[str, Any]:
        where = f"prompt type {self.name!r}: format_"
        user = self.format_user.around(where + "user")
        answer = self.assistant.around(where + "assistant")
        stop = self.stop_words[0] if self.stop_words else EOS
        if self.replace_eos:
            answer = (answer[0], answer[1].replace(EOS, stop))
        following = "".join(self.format_separator.slots) + user[0]
        # the first token of the next question ends the answer before it: it is written with the answer, so that a model learns to stop there
        shared = not answer[1] and following.startswith(stop)
        return {
            "name": self.name,
            "prefix": "".join(self.format_prefix.slots),
            "system": self.format_system.around(where + "system"),
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
    """The prompt type called `name`, of the shipped ones or of a file in the format of ``templates.json``.

    Raises:
        TemplateError: no such file or name, or a file that does not fit; the message names the nearest, or what does not fit.
    """
    if path and not path.is_file():
        raise TemplateError(f"no file of prompt types at {path}")
    known = _parsed(path.read_text("utf-8"), str(path)) if path else shipped()
    if name not in known:
        raise TemplateError(
            f"no prompt type {name!r} {f'in {path}' if path else 'ships'}{nearest(name, known) or '.'} Known: {', '.join(known)}"
        )
    return known[name]


@cache
def shipped() -> Mapping[str, PromptType]:
    """The prompt types that ship with prep-assets, by name."""
    return _parsed((resources.files("prep_assets.text") / "prompt_types.json").read_text("utf-8"), "prompt_types.json")


def _parsed(text: str, where: str) -> Mapping[str, PromptType]:
    try:
        types = TypeAdapter(list[PromptType]).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise TemplateError(f"{where}: {place + ': ' if place else ''}{first['msg']} ({len(error.errors())} in all)") from error
    found: dict[str, PromptType] = {}
    for each in types:
        if each.name in found:
            raise TemplateError(f"{where}: prompt type {each.name!r} stands there twice")
        found[each.name] = each
    return found


# The chat template that a configuration names.


@cache
def named_templates() -> Mapping[str, str]:
    """The shipped templates: name → Jinja source, sorted by name."""
    folder = resources.files("prep_assets.text") / "named"
    found = {entry.name.removesuffix(".jinja"): entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".jinja")}
    return MappingProxyType(dict(sorted(found.items())))


def load_template(
    name: str,
    vocabulary: Vocabulary,
    *,
    base: Path | None = None,
    options: Mapping[str, Any] | None = None,
    image: str = "",
    training: str | None = None,
) -> ChatTemplate:
    """The template that a configuration names: ``tokenizer`` (``tokenizer:NAME`` where it has several), a shipped one, ``prompt_type:NAME``, a path to
    a ``.jinja`` file (relative to `base`), or ``FILE.json#NAME`` for a prompt type of one's own.

    Raises:
        TemplateError: no such template, a tokenizer without one, or an option that the template does not read; the message lists what there is.
    """
    if name.partition(":")[0] == "tokenizer":
        source = _own(name.partition(":")[2], vocabulary)
    elif name.endswith(".jinja"):
        source = _file(name, base)
    elif name.startswith("prompt_type:"):
        source = load_prompt_type(name.removeprefix("prompt_type:")).jinja()
    elif ".json#" in name:
        file, _, chosen = name.rpartition("#")
        source = load_prompt_type(chosen, (base or Path.cwd()) / file).jinja()
    else:
        shipped = named_templates()
        if name not in shipped:
            raise TemplateError(
                f"no chat template {name!r}{nearest(name, shipped) or '.'} Known: tokenizer, {', '.join(shipped)}, prompt_type:NAME, "
                "or a path to a .jinja file"
            )
        source = shipped[name]
    template = ChatTemplate(name, source, vocabulary.special, options or {}, image=image)
    asked = {key: value for key, value in template.options.items() if not (image and key == "image_token")}
    if unread := template.unread(asked):
        raise TemplateError(f"template_options: {unread}")
    if training is not None:
        template = _with_training(template, training, _file(training, base))
    control = tuple(sorted({*vocabulary.control, *template.writes(marks(vocabulary))}))
    return _known(replace(template, control=control))


@bounded_cache("chat templates", 16, key=lambda template: (template.name, template.hash, template.control))
def _known(template: ChatTemplate) -> ChatTemplate:
    """The one of its kind that was loaded before, with what was found out about it."""
    return template


def _file(name: str, base: Path | None) -> str:
    path = (base or Path.cwd()) / name
    if not path.is_file():
        raise TemplateError(f"no chat template at {path}")
    return read_text(path)


def _with_training(template: ChatTemplate, name: str, source: str) -> ChatTemplate:
    """The template with a variant that marks what is generated.

    Raises:
        TemplateError: there is nothing that this variant can prove.
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


def _own(name: str, vocabulary: Vocabulary) -> str:
    """The tokenizer's own template; of several the one that is named, because which of them is right depends on what is served."""
    own = {**vocabulary.templates, **({"default": vocabulary.chat_template} if vocabulary.chat_template else {})}
    if not own:
        raise TemplateError(
            f"tokenizer {vocabulary.name} has no chat template; name one of: {', '.join(named_templates())}, or a .jinja file"
        )
    if not name and vocabulary.chat_template is not None:
        return vocabulary.chat_template
    if name not in own:
        asked = f"no chat template {name!r}{nearest(name, own)}; it has" if name else "several chat templates:"
        raise TemplateError(
            f"tokenizer {vocabulary.name} has {asked} {', '.join(sorted(own))}. Name one, e.g. template: tokenizer:{min(own)}"
        )
    return own[name]
