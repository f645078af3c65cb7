"""A chat template: Jinja source and the special tokens it is rendered with.

Templates are compiled by transformers' own sandboxed environment, so that one from a hub renders here as its model expects. The clock that
some templates read (``strftime_now``) is frozen: the same input always renders the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from prep_assets.errors import Refused, TemplateError, nearest
from prep_assets.templates.clock import FROZEN_CLOCK
from prep_assets.templates.form import MessageForm, find_form
from prep_assets.templates.written import marks, probe_renders
from prep_assets.tokenization.vocabulary import Vocabulary

Message = Mapping[str, Any]
_QUESTION = ({"role": "user", "content": "What is 2 + 2?"},)
_PROBED: dict[str, tuple[str, ...]] = {}
"""Renders of the probes, by the hash of the template: one process opens a template many times."""
_ANSWERED = (*_QUESTION, {"role": "assistant", "content": "2 + 2 = 4"})


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template bound to a tokenizer's special tokens.

    Attributes:
        name: how the configuration calls it; for messages only.
        source: the Jinja text.
        special: ``bos_token``, ``eos_token`` … as the template sees them.
        options: further variables that the template reads, e.g. ``enable_thinking``.
        control: special tokens and those added tokens that the template writes (see `written`), to tell where a turn stops.
        image: what stands for an image: the image token, once for each of its patches; ``""`` where images are refused.
    """

    name: str
    source: str
    special: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    control: tuple[str, ...] = ()
    image: str = ""

    @cached_property
    def hash(self) -> str:
        """sha256 of everything that decides what is rendered."""
        parts = [self.source, dict(self.special), dict(self.options), FROZEN_CLOCK.isoformat(), *([self.image] if self.image else [])]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def writes(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Those of `texts` that the template itself writes: they stand in its source, or in its renders of the probes of its form."""
        wanted = tuple(texts)
        places = (self.source, *self._probed) if wanted else ()
        return tuple(text for text in wanted if any(text in place for place in places))

    @cached_property
    def _probed(self) -> tuple[str, ...]:
        if self.hash not in _PROBED:
            _PROBED[self.hash] = probe_renders(self.render)
        return _PROBED[self.hash]

    @cached_property
    def form(self) -> MessageForm:
        """What its messages must look like, found by probing."""
        return find_form(self.render)

    @cached_property
    def generation_prompt(self) -> str:
        """What the template writes before an answer that is to be generated; ``""`` where it has none or cannot render a lone question."""
        try:
            asked = self.render(_QUESTION)
            prompted = self.render(_QUESTION, generation_prompt=True)
        except Refused:
            return ""
        return prompted.removeprefix(asked) if prompted.startswith(asked) else ""

    @cached_property
    def answer_lead(self) -> str:
        """What the template writes between the generation prompt and the words of an answer: often nothing, a space or a line break, or an empty
        block for reasoning. The model has to generate it, so it is trained with the answer."""
        try:
            prompted, answered = self.render(_QUESTION, generation_prompt=True), self.render(_ANSWERED)
        except Refused:
            return ""
        return answered[len(prompted) :].partition(_ANSWERED[1]["content"])[0] if answered.startswith(prompted) else ""

    @cached_property
    def stop_token(self) -> str:
        """The control token with which the template ends an assistant's turn; ``""`` where there is none, so that a model never learns to stop."""
        try:
            _, found, after = self.render(_ANSWERED).rpartition(_ANSWERED[1]["content"])
        except Refused:
            return ""
        rest = after.lstrip()
        return max((token for token in self.control if found and rest.startswith(token)), key=len, default="")

    @cached_property
    def every_answer_stops(self) -> bool:
        """Whether each answer of a chat of two rounds is followed by the stop token, not only the last."""
        again = ({"role": "user", "content": "And 3 + 3?"}, {"role": "assistant", "content": "3 + 3 = 6"})
        try:
            text = self.render((*_ANSWERED, *again))
        except Refused:
            return False
        ends = [text.rpartition(message["content"])[2].lstrip() for message in (_ANSWERED[1], again[1])]
        return bool(self.stop_token) and all(end.startswith(self.stop_token) for end in ends)

    @cached_property
    def shows_thinking(self) -> bool:
        """Whether it writes an answer's reasoning at all."""
        thought = "Both are small numbers."
        try:
            return thought in self.render((*_QUESTION, {**_ANSWERED[1], "reasoning_content": thought}))
        except Refused:
            return False

    @cached_property
    def _compiled(self) -> Any:
        from jinja2 import TemplateSyntaxError
        from transformers.utils.chat_template_utils import _compile_jinja_template

        try:
            return _compile_jinja_template(self.source)
        except TemplateSyntaxError as error:
            raise TemplateError(f"chat template {self.name}: line {error.lineno}: {error.message}") from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        documents: Sequence[Mapping[str, Any]] = (),
        generation_prompt: bool = False,
    ) -> str:
        """The text of a whole conversation.

        Raises:
            Refused: the template itself refuses this conversation (a role it does not know, turns that do not alternate).
        """
        from jinja2 import TemplateError as JinjaError

        variables = {**self.special, **self.options, "strftime_now": FROZEN_CLOCK.strftime}
        try:
            rendered = self._compiled.render(
                messages=messages,
                tools=list(tools) or None,
                documents=list(documents) or None,
                add_generation_prompt=generation_prompt,
                **variables,
            )
        except (JinjaError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
            raise Refused("template_refuses", f"template {self.name}: {error}", stage="render") from error
        return str(rendered)


def named_templates() -> dict[str, str]:
    """The shipped templates: name → Jinja source, sorted by name."""
    folder = resources.files("prep_assets.templates") / "named"
    found = {entry.name.removesuffix(".jinja"): entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".jinja")}
    return dict(sorted(found.items()))


def load_template(
    name: str, vocabulary: Vocabulary, *, base: Path | None = None, options: Mapping[str, Any] | None = None, image: str = ""
) -> ChatTemplate:
    """The template that a configuration names: ``tokenizer`` (``tokenizer:NAME`` where it has several), a shipped one, or a path to a ``.jinja``
    file (relative to `base`).

    Raises:
        TemplateError: no such template, or a tokenizer without one; the message lists what there is.
    """
    if name.partition(":")[0] == "tokenizer":
        source = _own(name.partition(":")[2], vocabulary)
    elif name.endswith(".jinja"):
        path = (base or Path.cwd()) / name
        if not path.is_file():
            raise TemplateError(f"no chat template at {path}")
        source = path.read_text("utf-8")
    else:
        shipped = named_templates()
        if name not in shipped:
            raise TemplateError(
                f"no chat template {name!r}{nearest(name, shipped)}. Known: tokenizer, {', '.join(shipped)}, or a path to a .jinja file"
            )
        source = shipped[name]
    template = ChatTemplate(name, source, vocabulary.special, options or {}, image=image)
    return replace(template, control=tuple(sorted({*vocabulary.control, *template.writes(marks(vocabulary))})))


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
