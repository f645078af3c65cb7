"""The chat template that a configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prep_assets.caches import bounded_cache
from prep_assets.errors import TemplateError, nearest
from prep_assets.templates.chat_template import ChatTemplate, marks_generated
from prep_assets.templates.prompt_types import load_prompt_type
from prep_assets.templates.written import marks
from prep_assets.tokenization.beside import read_text
from prep_assets.tokenization.vocabulary import Vocabulary


@cache
def named_templates() -> Mapping[str, str]:
    """The shipped templates: name → Jinja source, sorted by name."""
    folder = resources.files("prep_assets.templates") / "named"
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
