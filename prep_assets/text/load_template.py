"""Load the chat template that a configuration names: shipped, from a file, or known to an extension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prep_assets import plugins
from prep_assets.caches import bounded_cache
from prep_assets.errors import TemplateError, nearest
from prep_assets.text.template import ChatTemplate, Renderer, marks, marks_generated
from prep_assets.text.template_options import without_effect
from prep_assets.text.tokenizer_files import read_text
from prep_assets.text.vocabulary import Vocabulary

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
    file (relative to `base`), ``FILE.json#NAME`` for a prompt type in a file, or ``encoder:NAME`` for a format that code writes.

    Raises:
        TemplateError: no such template, a tokenizer without one or without its tokens, or an option that the template does not read; with the known
            names.
    """
    renderer = None
    if name.partition(":")[0] == "tokenizer":
        source = _tokenizer_source(name.partition(":")[2], vocabulary)
    elif name.endswith(".jinja"):
        source = _read_source(name, base)
    else:
        found = named_templates().get(name) or _found_by_others(name, base)
        source, renderer = (found, None) if isinstance(found, str) else (found.source, found)
    template = _reuse_loaded(
        ChatTemplate(name, source, vocabulary.special, options or {}, image=image, audio=audio, video=video, renderer=renderer)
    )
    if renderer is not None:
        _check_tokens(name, renderer, vocabulary)
    template_options = {key: value for key, value in template.options.items() if not (image and key == "image_token")}
    if fault := without_effect(template, template_options):
        raise TemplateError(f"template_options: {fault}")
    if training is not None:
        template = _with_training(template, training, _read_source(training, base))
    control = tuple(sorted({*vocabulary.control, *template.writes(marks(vocabulary))}))
    return _reuse_loaded(replace(template, control=control))


def _found_by_others(name: str, base: Path | None) -> str | Renderer:
    """The source of a template that another package or an extension knows, or the code that writes its chats."""
    for find in plugins.load_all("templates"):
        if (found := find(name, base)) is not None:
            template: str | Renderer = found
            return template
    shipped = named_templates()
    raise TemplateError(
        f"no chat template {name!r}{nearest(name, shipped) or '.'} Known: tokenizer, {', '.join(shipped)}, prompt_type:NAME, encoder:NAME, or a path "
        "to a .jinja file"
    )


def _check_tokens(name: str, renderer: Renderer, vocabulary: Vocabulary) -> None:
    """Raise where a tokenizer lacks a control token of a format: it would write it as text, and nobody would notice."""
    added = {token["content"] for token in vocabulary.spec["added_tokens"]}
    if missing := [token for token in renderer.tokens if token not in added]:
        raise TemplateError(
            f"template {name} writes {', '.join(map(repr, renderer.tokens))}, and tokenizer {vocabulary.name} lacks {len(missing)} of these "
            f"{len(renderer.tokens)} tokens: {', '.join(map(repr, missing[:4]))}{' …' if len(missing) > 4 else ''}. Take the tokenizer of the model"
        )


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
    if template.renderer is not None:
        raise TemplateError(
            f"training_template: code writes the chats of template {template.name}, and no variant of it. Leave training_template out"
        )
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
