"""A chat template: its source, its limits, its control tokens, and where what a model generates begins."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, wraps
from traceback import walk_tb
from types import TracebackType
from typing import Any

from prep_assets.caches import bounded_cache
from prep_assets.errors import Refused, TemplateError, nearest
from prep_assets.limits import limited
from prep_assets.samples import ASSISTANT, IMAGE, THINKING, TOOL_CALL, Sample
from prep_assets.text.conversation import Marking, Piece, Places, messages, unmark
from prep_assets.text.engines import refuse_flags
from prep_assets.text.environment import FROZEN_CLOCK, MessageForm, Render, chat_template_utils, find_form
from prep_assets.text.spans import control_pattern
from prep_assets.text.vocabulary import Vocabulary

# What a template may make at one stroke: single operations that take any amount of time or memory are held to a size.
#
# A loop is ended by `prep_assets.limits`; ``'x' * 10 ** 10`` is one call of the interpreter, which nothing can end. The same operations always
# exceed it, so a record for which one does is refused.

LARGEST = 1 << 26
"""Characters or elements that one operation makes."""
_WIDTH = re.compile(r"\d{8}")
_STARRED = re.compile(r"%[-+ #0]*\*|%[^%a-zA-Z]*\.\*|\{[^{}]*\{")
_SIZED_FILTERS = ("batch", "center", "indent", "slice", "tojson")
_SIZED_METHODS = ("center", "ljust", "rjust", "zfill", "expandtabs")
"""They are told how much to write."""


@bounded_cache("compiled templates", 64)
def compiled(source: str) -> Any:
    """A template as transformers compiles it, with its operations held to `LARGEST`, those too that the compiler does ahead."""
    from jinja2 import Template

    bounded = environment()
    return Template.from_code(bounded, bounded.compile(source), bounded.make_globals(None))


@cache
def environment() -> Any:
    """That of transformers, bounded."""
    plain = chat_template_utils()._compile_jinja_template("").environment
    bounded = plain.overlay()
    bounded.intercepted_binops = frozenset(("*", "**", "%"))
    bounded.call_binop = _operate(plain)
    bounded.filters = {**plain.filters, **{name: _filter(name, plain.filters[name]) for name in (*_SIZED_FILTERS, "format")}}
    bounded.call = _called(plain.call)
    bounded.finalize = _written
    return bounded


def _operate(plain: Any) -> Callable[..., Any]:
    def operate(context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for what, times in ((left, right), (right, left)):
                if isinstance(what, str | list | tuple) and isinstance(times, int) and len(what) * times > LARGEST:
                    raise _too_large(f"{len(what):,} characters or elements are repeated {times:,} times")
        elif operator == "**" and isinstance(left, int) and isinstance(right, int) and right * left.bit_length() > LARGEST:
            raise _too_large(f"a number of {left.bit_length():,} bits to the power of {right:,}")
        elif operator == "%" and isinstance(left, str):
            _check_format(left, right if isinstance(right, tuple) else (right,))
        return plain.binop_table[operator](left, right)

    return operate


def _filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    first = int(getattr(function, "jinja_pass_arg", None) is not None)  # the value comes after the environment where a filter wants that

    @wraps(function)
    def bounded(*arguments: Any, **named: Any) -> Any:
        given = (*arguments[first + 1 :], *named.values())
        if name == "format":
            _check_format(str(arguments[first]), given)
        else:
            _check_sizes(given)
        return function(*arguments, **named)

    return bounded


def _called(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(context: Any, function: Any, *arguments: Any, **named: Any) -> Any:
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps those that format
        if isinstance(owner := getattr(method, "__self__", None), str):
            if method.__name__ in _SIZED_METHODS:
                _check_sizes(arguments)
            elif method.__name__ in ("format", "format_map"):
                _check_format(owner, (*arguments, *named.values()))
        return call(context, function, *arguments, **named)

    return called


def _check_format(form: str, values: Iterable[Any]) -> None:
    if found := _WIDTH.search(form):
        raise _too_large(f"the width {found[0]}… in {form[:40]!r}")
    if _STARRED.search(form):
        _check_sizes(values)


def _check_sizes(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, int) and value > LARGEST:
            raise _too_large(f"the size {value:,}")


def _written(value: Any) -> Any:
    """What is about to be written. Where a function stands in memory differs from run to run."""
    from jinja2.exceptions import SecurityError
    from jinja2.runtime import Undefined

    if isinstance(value, str | Undefined) or not (callable(value) or hasattr(value, "__next__")) or hasattr(value, "__html__"):
        return value
    raise SecurityError(
        f"it writes a {type(value).__name__}, which is another text in each run. Does a call lack its brackets, or a list its filter?"
    )


def _too_large(what: str) -> Exception:
    from jinja2.exceptions import SecurityError

    return SecurityError(f"{what}: one operation of a template makes at most {LARGEST:,} characters or elements")


# Added tokens that a chat template writes: structure, whether or not the tokenizer calls them special.
#
# Qwen3's ``<think>`` and ``<tool_call>`` and R1-distill's ``<｜User｜>`` are added tokens without the flag ``special``. Where somebody types one in a question,
# a tokenizer would give the structural id. So the tokens that a template writes are found by rendering the probes of its form, and by looking for their texts
# in its source, which covers the branches that no probe takes.


def bind(vocabulary: Vocabulary, template: ChatTemplate) -> Vocabulary:
    """`vocabulary`, as a family with this template uses it: the added tokens that the template writes are control tokens.

    Raises:
        ConfigError: the template writes a token whose flags (``rstrip`` …) change the ids around it.
    """
    bound = vocabulary.with_control(template.control)
    refuse_flags(bound, template.writes(bound.control))
    return bound


def marks(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Added tokens that look like structure: a word between signs, such as ``<think>``, ``[INST]`` or ``<｜User｜>``. White space and words
    that were added to a vocabulary are text, whoever writes them."""
    return tuple(token["content"] for token in vocabulary.spec["added_tokens"] if _is_mark(token["content"]))


def _is_mark(text: str) -> bool:
    return any(map(str.isalnum, text)) and not any(char.isalnum() or char.isspace() for char in text[:1] + text[-1:])


def probe_renders(render: Render) -> tuple[str, ...]:
    """What a template makes of the probes of its form, with the generation prompt and without."""
    found: dict[str, None] = {}

    def recorded(messages: Sequence[Message], **more: Any) -> str:
        text = render(messages, **more)
        found[text] = None
        with suppress(Refused):
            found[render(messages, **{**more, "generation_prompt": True})] = None
        return text

    find_form(recorded)
    return tuple(found)


# Which control tokens end a turn, in the text that a template writes after its last words.
#
# That text holds the brackets that close a tool call, the stop, white space, and the header of the next turn, all of them control tokens as often as not.
# What of it belongs to the turn is told by a second text: what stands there when the conversation ends with that turn.

Where = tuple[int, int]


def common_length(left: str, right: str) -> int:
    """How many characters two texts begin with alike."""
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


@dataclass(frozen=True)
class Ends:
    """How the answers of one template end.

    Attributes:
        control: the tokenizer's control tokens.
        answers: texts of the stops that follow plain answers; the first one ends a conversation, ``""`` where nothing does.
    """

    control: tuple[str, ...]
    answers: tuple[str, ...] = ()

    @cached_property
    def pattern(self) -> re.Pattern[str] | None:
        """Matches any control token, the longest first."""
        return control_pattern(self.control)

    @property
    def borrows(self) -> bool:
        """Whether an answer is ended by nothing but the header of the next turn, as in GLM-4-MoE: ``<|user|>`` or ``<|observation|>``."""
        return not self.answers or not self.answers[0]

    def find(self, gap: str, alone: str, *, is_text: bool) -> Where | None:
        """Where in `gap` the stop of a turn stands; `None` where it has none.

        Args:
            gap: what stands between the last words of the turn and the next ones.
            alone: what stands there where the conversation ends with the turn.
            is_text: whether the turn ends with text, which its stop follows at once; a tool call has brackets before.
        """
        shared = common_length(gap, alone)
        for text in (gap, alone):  # up to no place inside a control token
            shared = next((low for low, high in self.tokens(text) if low < shared < high), shared)
        own = gap[:shared]
        if is_text:
            run = self.leading(own)
        else:  # the control tokens that end a turn, not what they follow: the stop of a plain answer, else the last one
            bare, tokens = own.rstrip(), self.tokens(own.rstrip())
            stop = next((stop for stop in self.answers if stop and bare.endswith(stop)), "")
            ends = not self.borrows and tokens and tokens[-1][1] == len(bare)
            run = None if not ends else (len(bare) - len(stop), len(bare)) if stop else tokens[-1]
        if run is not None or (is_text and own.strip()):
            return run
        here, there = self.leading(gap[shared:]), self.leading(alone[shared:])
        if here is None or not (there or (self.borrows and not alone[shared:].strip())):
            return None
        # it ends otherwise where more follows (<|end|> for <|return|>), with as many tokens; or the next header's first token ends it
        count = len(self.tokens(alone[shared:][slice(*there)])) if there else 1
        return shared + here[0], shared + self.tokens(gap[shared:])[:count][-1][1]

    def leading(self, text: str) -> Where | None:
        """The control tokens that `text` begins with, white space before them aside, without anything between."""
        start = end = len(text) - len(text.lstrip())
        for low, high in self.tokens(text):
            if low != end:
                break
            end = high
        return (start, end) if end > start else None

    def tokens(self, text: str) -> Sequence[Where]:
        """Where control tokens stand in a text."""
        return [found.span() for found in self.pattern.finditer(text)] if self.pattern else []


# Where what a model generates for a turn begins, and which control tokens end it: found by rendering the conversation up to there.
#
# What a model sees before turn *i* is the render of the turns before it with the generation prompt. So turn *i* begins where that render and the whole one
# part, after the last text of the turn before. How a turn ends is what the render up to and with it has in common with the whole one:
#
#     whole           … Hi<|end|><|assistant|>Hello<|end|><|user|>Bye …
#     before turn 1   … Hi<|end|><|assistant|>                          turn 1 begins where it ends
#     up to turn 1    … Hi<|end|><|assistant|>Hello<|end|>              the control tokens after the last text that both have: the stop
#
# Between two texts stands what the template writes, and that is the same in every conversation of a kind. So each answer is remembered by the texts between,
# and a conversation like one before needs no further render.

MOST_REMEMBERED = 4096
_OPENING = re.compile(r"\n(<[^<>\s]+>)\s*\Z")


@dataclass(frozen=True, slots=True)
class Block:
    """The texts of one turn in a render.

    Attributes:
        turn, role: the turn.
        kinds: of its regions, in the order of the render.
        start, end: characters from its first text to its last.
        leaf, occurrence: the last marked text in it, and which of its occurrences; -1 where none is marked.
        tail: characters from the end of that text to `end`.
    """

    turn: int
    role: str
    kinds: tuple[str, ...]
    start: int
    end: int
    leaf: int
    occurrence: int
    tail: int


@dataclass
class Chat:
    """A conversation, its render, and renders of its beginnings, each made once and only where it is needed.

    Attributes:
        found: its pieces.
        prompted: whether the whole render ends with the generation prompt.
    """

    sample: Sample
    found: Sequence[Piece]
    template: ChatTemplate
    prompted: bool = False
    _beginnings: dict[tuple[int, bool], tuple[str, Places] | None] = field(default_factory=dict)

    def render(self, marking: Marking, tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """The whole render, with marks or without."""
        listed = messages(self.sample, self.found, marking, self.template.form)
        tools = self.sample.tools if tools is None else tools
        return self.template.render(listed, tools=tools, documents=self.sample.documents, generation_prompt=self.prompted)

    @cached_property
    def text(self) -> str:
        """The render."""
        return self.render("none")

    def until(self, turns: int, *, prompted: bool) -> tuple[str, Places] | None:
        """The render of the first `turns` turns and the places of its marks; `None` where the template refuses them."""
        key = turns, prompted
        if key not in self._beginnings:
            listed = messages(self.sample, self.found, "words", self.template.form)[:turns]
            try:
                marked = self.template.render(listed, tools=self.sample.tools, documents=self.sample.documents, generation_prompt=prompted)
                self._beginnings[key] = unmark(marked)
            except Refused:
                self._beginnings[key] = None
        return self._beginnings[key]

    def after(self, block: Block, turns: int, *, prompted: bool) -> str | None:
        """What follows a block in the render of the first `turns` turns; `None` where it is not there as in the whole."""
        render = self.until(turns, prompted=prompted)
        if render is None or block.leaf < 0:
            return None
        text, places = render
        marks = places.get(block.leaf, [])
        if len(marks) <= block.occurrence:
            return None
        end = marks[block.occurrence][1]
        return text[end + block.tail :] if text[end : end + block.tail] == self.text[block.end - block.tail : block.end] else None


@dataclass
class Borders:
    """What is known of where turns begin and end in the renders of one template."""

    template: ChatTemplate
    _prompts: dict[Any, str | None] = field(default_factory=dict)
    _ends: dict[Any, dict[str, int]] = field(default_factory=dict)

    # -- where a turn begins ------------------------------------------------------------------------------------------------------------

    def start(self, chat: Chat, before: Block | None, block: Block) -> int:
        """Where what a model generates for `block` begins; `before` is the block before it in the render.

        Raises:
            Refused: ``generation_prompt_not_found``.
        """
        low, header = before.end if before else 0, self.template.generation_prompt
        start = self._parting(chat, before, block, low)
        if header and (at := chat.text.rfind(header, start, block.start)) >= 0:
            # the turn's own header, which the template forgets to write as a prompt here, as Gemma 4 after a tool's result
            start = at + len(header)
        # a template that writes no generation prompt may begin an answer with a header, which is not the model's
        is_generated = bool(header) or block.kinds[0] in (THINKING, TOOL_CALL) or not chat.text[start : block.start].strip()
        return start if is_generated else block.start

    def _parting(self, chat: Chat, before: Block | None, block: Block, low: int) -> int:
        """Where the whole render and the one before the turn part."""
        gap = chat.text[low : block.start]
        prompt = self._prompt(chat, before, block, gap)
        if prompt is not None:
            if chat.text.startswith(prompt, low):
                return low + len(prompt)
            shared = self._boundary(gap, common_length(gap, prompt))
            if shared or not gap:
                return low + shared
        # the conversation before the turn cannot be rendered: after the generation prompt of a lone question, if that stands here
        header = self.template.generation_prompt
        at = chat.text.rfind(header, low, block.start) if header else -1
        if at >= 0:
            return at + len(header)
        if THINKING in block.kinds or TOOL_CALL in block.kinds:
            detail = (
                f"template {self.template.name}: what it writes before turn {block.turn} has nothing in common with what it writes before an "
                "answer is generated; take another template"
            )
            raise Refused("generation_prompt_not_found", detail, stage="render")
        return block.start

    def _prompt(self, chat: Chat, before: Block | None, block: Block, gap: str) -> str | None:
        """What stands before an answer to the same: from the end of the block before to where the model takes over."""
        key = (before.role, before.kinds) if before else None, block.kinds, bool(chat.sample.tools), gap
        if key not in self._prompts:
            if len(self._prompts) > MOST_REMEMBERED:
                self._prompts.clear()
            if before is None:
                render = chat.until(block.turn, prompted=True) if block.turn else None
                self._prompts[key] = render[0] if render else None
            else:
                self._prompts[key] = chat.after(before, block.turn, prompted=True)
        return self._prompts[key]

    def _boundary(self, gap: str, most: int) -> int:
        """The last place up to `most` where a header may end: after a control token or white space, and not amid the opening of what differs, such
        as the ``<think>`` of an empty block where the prompt opens a full one."""
        ends = self.template.ends
        token = max((end for _, end in ends.tokens(gap) if end <= most), default=0)
        blank = next((at for at in range(most, 0, -1) if gap[at - 1].isspace()), 0)
        header = gap if most == len(gap) else gap[: max(token, blank)]
        stop = ends.leading(header)
        low = stop[1] if stop else 0
        opening = _OPENING.search(header, low)
        return opening.start(1) if opening and header[low : opening.start()].strip() else len(header)

    # -- what ends a turn ---------------------------------------------------------------------------------------------------------------

    def stop(self, chat: Chat, block: Block, after: Block | None) -> tuple[int, int] | None:
        """Where the control tokens that end `block` stand; `None` where the template writes none. `after` is the next block in the render.

        Of another turn than an assistant's only what ends answers too is a stop; else it is the header of what follows.
        """
        gap = chat.text[block.end : after.start if after else len(chat.text)]
        if block.role == ASSISTANT:
            found = self._stop_of_answer(chat, block, after, gap)
        else:
            start = len(gap) - len(gap.lstrip())
            stop = next((stop for stop in self.template.ends.answers if stop and gap.startswith(stop, start)), "")
            found = (start, start + len(stop)) if stop else None
        return (block.end + found[0], block.end + found[1]) if found else None

    def _stop_of_answer(self, chat: Chat, block: Block, after: Block | None, gap: str) -> tuple[int, int] | None:
        is_text = block.kinds[-1] not in (THINKING, TOOL_CALL, IMAGE)
        following = len(chat.sample.turns) - block.turn if after is None else (after.role, after.kinds[0], after.turn - block.turn)
        known = self._ends.setdefault((block.kinds[-1], following, chat.prompted), {})
        for end, length in known.items():
            start = len(gap) - len(end)
            if length and gap.endswith(end) and (not is_text or not gap[:start].strip()):
                return start, start + length
        if known.get(gap) == 0:
            return None
        alone = chat.after(block, block.turn + 1, prompted=False)
        found = self.template.ends.find(gap, gap if alone is None else alone, is_text=is_text)
        if len(known) < MOST_REMEMBERED:
            known[gap[found[0] :] if found else gap] = found[1] - found[0] if found else 0
        return found


# A chat template: Jinja source and the special tokens it is rendered with.
#
# Templates are compiled by transformers' own sandboxed environment, so that one from a hub renders here as its model expects. The clock that some templates
# read (``strftime_now``) is frozen: the same input always renders the same.

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
        control: special tokens and those added tokens that the template writes, to tell where a turn stops.
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

    def _plain(self, count: int, *, prompted: bool = False) -> str | None:
        """The render of `plain_chat`; `None` where it refuses that."""
        try:
            return self.render(self.plain_chat(count), generation_prompt=prompted)
        except Refused:
            return None

    @cached_property
    def short_chat(self) -> str:
        """A question and its answer; ``""`` where it refuses them."""
        return self._plain(2) or ""

    def _after_answer(self, count: int) -> str:
        """What stands between the first answer of a chat and the next question, or the end."""
        return (self._plain(count) or "").partition(_WORDS[1][1])[2].partition(_WORDS[2][1])[0]

    @cached_property
    def generation_prompt(self) -> str:
        """What the template writes before an answer that is to be generated; ``""`` where it has none or cannot render a lone question."""
        asked, prompted = self._plain(1), self._plain(1, prompted=True)
        return "" if asked is None or prompted is None or not prompted.startswith(asked) else prompted.removeprefix(asked)

    @cached_property
    def stop_token(self) -> str:
        """The control token with which the template ends an assistant's turn; ``""`` where there is none, so that a model never learns to stop."""
        return self.first_control(self._after_answer(2).lstrip())

    def first_control(self, text: str) -> str:
        """The control token that a text begins with; ``""`` where it begins with none."""
        return max((token for token in self.control if text.startswith(token)), key=len, default="")

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
