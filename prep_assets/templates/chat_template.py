"""A chat template: Jinja source and the special tokens it is rendered with.

Templates are compiled by transformers' own sandboxed environment, so that one from a hub renders here as its model expects. The clock that
some templates read (``strftime_now``) is frozen: the same input always renders the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from traceback import walk_tb
from types import TracebackType
from typing import Any

from prep_assets.caches import bounded_cache
from prep_assets.errors import Refused, TemplateError, nearest
from prep_assets.limits import limited
from prep_assets.templates.borders import Borders
from prep_assets.templates.environment import FROZEN_CLOCK
from prep_assets.templates.form import MessageForm, find_form
from prep_assets.templates.sizes import compiled, environment
from prep_assets.templates.stops import Ends
from prep_assets.templates.written import probe_renders

Message = Mapping[str, Any]
_TAGS = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
OF_CHATS = ("messages", "tools", "documents", "add_generation_prompt", "strftime_now")
"""Variables that a conversation gives, or the frozen clock."""
_WORDS = (("user", "What is 2 + 2?"), ("assistant", "2 + 2 = 4"), ("user", "And 3 + 3?"), ("assistant", "3 + 3 = 6"))


def marks_generated(source: str) -> bool:
    """Whether a template marks what a model generates: ``{% generation %}``."""
    return _TAGS.search(source) is not None


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
        training: source of a variant that marks what is generated (`marks_generated`): a further derivation of masks wherever it renders the same; ``""``
            where there is none.
    """

    name: str
    source: str
    special: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    control: tuple[str, ...] = ()
    image: str = ""
    training: str = ""

    @cached_property
    def hash(self) -> str:
        """sha256 of everything that decides what is rendered, and what proves its masks."""
        parts = [self.source, dict(self.special), dict(self.options), FROZEN_CLOCK.isoformat(), *([self.image] if self.image else [])]
        parts += [{"training": self.training}] if self.training else []
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def writes(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Those of `texts` that the template itself writes: they stand in its source, or in its renders of the probes of its form."""
        wanted = tuple(texts)
        places = (self.source, *_probed(self)) if wanted else ()
        return tuple(text for text in wanted if any(text in place for place in places))

    @cached_property
    def form(self) -> MessageForm:
        """What its messages must look like, found by probing."""
        return find_form(self.render, self.image_token)

    @cached_property
    def image_token(self) -> str:
        """The token that stands for an image, written once for each of its patches."""
        repeated = (token for token in self.control if self.image and token * (len(self.image) // len(token)) == self.image)
        return next(repeated, self.image)

    @cached_property
    def ends(self) -> Ends:
        """How plain answers end."""
        bare = Ends(self.control or tuple(sorted({*self.special.values()} - {""})))
        last, earlier = self._after_answer(2), self._after_answer(4)
        where = bare.find(last, last, is_text=True)
        answers = [last[slice(*where)] if where else ""]
        if (where := replace(bare, answers=tuple(answers)).find(earlier, last, is_text=True)) and earlier[slice(*where)] not in answers:
            answers.append(earlier[slice(*where)])
        return replace(bare, answers=tuple(answers))

    @cached_property
    def borders(self) -> Borders:
        """Where turns begin and end in its renders, as far as it is known."""
        return Borders(self)

    def with_options(self, options: Mapping[str, Any]) -> ChatTemplate:
        """The template with further options, such as those of one row."""
        return _variant(self, json.dumps(options, sort_keys=True, default=str), options) if options else self

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names that it reads from outside, as far as its source tells: a name that is set in one branch only counts as read."""
        from jinja2.meta import find_undeclared_variables

        return frozenset(find_undeclared_variables(self.parsed) - {*self._compiled.environment.globals, *OF_CHATS})

    @cached_property
    def parsed(self) -> Any:
        """Its source as Jinja parses it."""
        return self._compiled.environment.parse(self.source)

    def unread(self, options: Mapping[str, Any]) -> str:
        """What is wrong with `options`: the first name that it does not read, and the names that it does; ``""`` where nothing is."""
        for name, value in options.items():
            if value is not None and name not in self.variables:
                reads = sorted(self.variables - {*self.special})
                return (
                    f"template {self.name} does not read {name!r}{nearest(name, reads) or '.'} It reads: {', '.join(reads) or 'no options'}"
                )
        return ""

    def plain_chat(self, count: int) -> list[Message]:
        """A plain chat of `count` messages."""
        parts = self.form.content == "parts"
        return [{"role": role, "content": [{"type": "text", "text": text}] if parts else text} for role, text in _WORDS[:count]]

    @cached_property
    def short_chat(self) -> str:
        """A question and its answer; ``""`` where it refuses them."""
        try:
            return self.render(self.plain_chat(2))
        except Refused:
            return ""

    def _after_answer(self, count: int) -> str:
        """What stands between the first answer of a chat and the next question, or the end."""
        try:
            text = self.render(self.plain_chat(count)).partition(_WORDS[1][1])[2]
        except Refused:
            return ""
        return text.partition(_WORDS[2][1])[0]

    @cached_property
    def generation_prompt(self) -> str:
        """What the template writes before an answer that is to be generated; ``""`` where it has none or cannot render a lone question."""
        try:
            asked = self.render(self.plain_chat(1))
            prompted = self.render(self.plain_chat(1), generation_prompt=True)
        except Refused:
            return ""
        return prompted.removeprefix(asked) if prompted.startswith(asked) else ""

    @cached_property
    def stop_token(self) -> str:
        """The control token with which the template ends an assistant's turn; ``""`` where there is none, so that a model never learns to stop."""
        after = self._after_answer(2).lstrip()
        return max((token for token in self.control if after.startswith(token)), key=len, default="")

    @property
    def shows_thinking(self) -> bool:
        """Whether it writes an answer's reasoning at all."""
        return self.form.shows_reasoning

    @cached_property
    def _compiled(self) -> Any:
        from jinja2 import TemplateSyntaxError

        environment()
        try:
            with limited(self._over()):
                return compiled(self.source)
        except TemplateSyntaxError as error:
            raise TemplateError(f"chat template {self.name}: line {error.lineno}: {error.message}") from error
        except (RecursionError, SyntaxError, ValueError) as error:  # nested too deeply, for Jinja or for Python
            raise TemplateError(f"chat template {self.name} cannot be compiled ({type(error).__name__}: {str(error)[:200]})") from error

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

        try:
            with limited(self._over(self._compiled)):
                rendered = self._compiled.render(**self.given(messages, tools, documents, generation_prompt))
        except (JinjaError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
            why = f"template {self.name}: {_line(error.__traceback__)}{error}; take a template that writes such a chat, or leave it out"
            raise Refused("template_refuses", why, stage="render") from error
        except MemoryError as error:
            raise TemplateError(
                f"chat template {self.name}: {_line(error.__traceback__)}one render needs more memory than there is"
            ) from error
        return str(rendered)

    def _over(self, running: Any = None) -> Callable[[str, TracebackType | None], TemplateError]:
        return lambda what, trace: TemplateError(
            f"chat template {self.name}: {_line(trace, running)}one render {what}. Look for a loop in it that goes on too long, or for the record "
            "that makes it so"
        )

    def given(
        self, messages: Sequence[Message], tools: Sequence[Any] = (), documents: Sequence[Any] = (), generation_prompt: bool = False
    ) -> dict[str, Any]:
        """Every variable that a render has."""
        return {
            **self.special,
            **self.options,
            "strftime_now": FROZEN_CLOCK.strftime,
            "messages": messages,
            "tools": list(tools) or None,
            "documents": list(documents) or None,
            "add_generation_prompt": generation_prompt,
        }


@bounded_cache("renders of probes", 64, key=lambda template: template.hash)
def _probed(template: ChatTemplate) -> tuple[str, ...]:
    return probe_renders(template.render)


@bounded_cache(
    "chat templates with options of rows", 4096, key=lambda template, shown, _: (template.name, template.hash, template.control, shown)
)
def _variant(template: ChatTemplate, shown: str, options: Mapping[str, Any]) -> ChatTemplate:
    return replace(template, options={**template.options, **options})


def _line(trace: TracebackType | None, running: Any = None) -> str:
    """Where in a template something arose. Jinja puts a template's own lines into the traceback of an error; `running` knows those of anything else."""
    lines = [line for frame, line in walk_tb(trace) if frame.f_code.co_filename in ("<unknown>", "<template>")]
    if not lines:
        return ""
    return f"line {lines[-1] if running is None else running.get_corresponding_lineno(lines[-1])}: "
