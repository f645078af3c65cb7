"""A chat template: its source, size limits and control tokens, and where the generated part of a turn begins."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, wraps
from importlib.metadata import version
from traceback import walk_tb
from types import TracebackType
from typing import Any, NoReturn, Protocol

from msgspec import Struct

from prep_assets.caches import bounded_cache
from prep_assets.errors import PrepAssetsError, Refused, TemplateError
from prep_assets.limits import limited
from prep_assets.samples import ASSISTANT, AUDIO, IMAGE, MEDIA, THINKING, TOOL_CALL, VIDEO, Sample
from prep_assets.stores.files import Kept, key_of
from prep_assets.text.conversation import Marking, Piece, Places, messages, unmark
from prep_assets.text.engines import check_flags
from prep_assets.text.environment import FROZEN_CLOCK, MessageForm, chat_template_utils, find_form
from prep_assets.text.ids import remembered
from prep_assets.text.spans import control_pattern
from prep_assets.text.vocabulary import Vocabulary

# Size limits for single operations of a template.
#
# `prep_assets.limits` ends a loop that runs too long; ``'x' * 10 ** 10`` is one call of the interpreter, which nothing can interrupt. Whether an operation
# exceeds the limit does not depend on the machine, so the record is rejected.

LARGEST = 1 << 26
"""The most characters or elements that one operation may produce."""
_WIDTH = re.compile(r"\d{8}")
_STARRED = re.compile(r"%[-+ #0]*\*|%[^%a-zA-Z]*\.\*|\{[^{}]*\{")
_SIZED_FILTERS = ("batch", "center", "indent", "slice", "tojson")
_GROWING_FILTERS = ("format", "join", "replace")
_SIZED_METHODS = ("center", "ljust", "rjust", "zfill", "expandtabs")
"""Filters and methods with a size among their arguments."""


@bounded_cache("compiled templates", 64)
def compiled(source: str) -> Any:
    """Compile a template as transformers does, with operations limited to `LARGEST`, including those that the compiler folds."""
    from jinja2 import Template

    bounded = environment()
    return Template.from_code(bounded, bounded.compile(source), bounded.make_globals(None))


@cache
def environment() -> Any:
    """The environment of transformers, with size limits on its operations."""
    unbounded = chat_template_utils()._compile_jinja_template("").environment
    bounded = unbounded.overlay()
    bounded.intercepted_binops = frozenset(("*", "**", "%", "+"))
    bounded.call_binop = _bounded_operator(unbounded)
    bounded.filters = {
        **unbounded.filters,
        **{name: _bounded_filter(name, unbounded.filters[name]) for name in (*_SIZED_FILTERS, *_GROWING_FILTERS)},
    }
    bounded.call = _bounded_call(unbounded.call)
    bounded.code_generator_class = _code_generator(unbounded.code_generator_class)
    bounded.concat = _joined
    bounded.finalize = _finalize
    bounded.handle_exception = _as_raised
    return bounded


def _as_raised(source: str | None = None) -> NoReturn:
    """Raise what a template raises as it is. Jinja would write its traceback anew, which then refers to itself and to all callers, with what they have open."""
    error = sys.exception()
    assert error is not None
    raise error


def _bounded_operator(unbounded: Any) -> Callable[..., Any]:
    def bounded_operator(context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for operand, times in ((left, right), (right, left)):
                if isinstance(operand, str | list | tuple) and isinstance(times, int) and len(operand) * times > LARGEST:
                    raise _too_large(f"{len(operand):,} characters or elements are repeated {times:,} times")
        elif operator == "+":
            if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple) and len(left) + len(right) > LARGEST:
                raise _too_large(f"{len(left):,} and {len(right):,} characters or elements are joined")
        elif operator == "**" and isinstance(left, int) and isinstance(right, int) and right * left.bit_length() > LARGEST:
            raise _too_large(f"a number of {left.bit_length():,} bits to the power of {right:,}")
        elif operator == "%" and isinstance(left, str):
            _check_format(left, right if isinstance(right, tuple) else (right,))
        return unbounded.binop_table[operator](left, right)

    return bounded_operator


def _joined(parts: Iterable[Any]) -> str:
    """The text of what a render, a block or a macro has written."""
    texts = list(parts)
    if (count := sum(map(len, texts))) > LARGEST:
        raise _too_large(f"{count:,} characters are joined")
    return "".join(texts)


def _code_generator(unbounded: Any) -> Any:
    """A code generator that lets the environment join the texts of ``~``."""

    class Bounded(unbounded):  # type: ignore[misc]
        def visit_Concat(self, node: Any, frame: Any) -> None:
            self.write("environment.concat([str(text) for text in (")
            for part in node.nodes:
                self.visit(part, frame)
                self.write(", ")
            self.write(")])")

    return Bounded


def _bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    value_index = int(getattr(function, "jinja_pass_arg", None) is not None)  # a filter may take the environment before the value

    @wraps(function)
    def bounded(*arguments: Any, **named: Any) -> Any:
        values = (*arguments[value_index + 1 :], *named.values())
        if name == "format":
            _check_format(str(arguments[value_index]), values)
        elif name == "join":
            arguments = (*arguments[:value_index], list(arguments[value_index]), *arguments[value_index + 1 :])
            _check_joined(map(str, arguments[value_index]), values)
        elif name == "replace":
            _check_replaced(str(arguments[value_index]), *values)
        else:
            _check_sizes(values)
        return function(*arguments, **named)

    return bounded


def _bounded_call(call: Callable[..., Any]) -> Callable[..., Any]:
    def bounded_call(context: Any, function: Any, *arguments: Any, **named: Any) -> Any:
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps the formatting methods
        if isinstance(owner := getattr(method, "__self__", None), str):
            if method.__name__ in _SIZED_METHODS:
                _check_sizes(arguments)
            elif method.__name__ in ("format", "format_map"):
                _check_format(owner, (*arguments, *named.values()))
            elif method.__name__ == "join" and len(arguments) == 1:
                arguments = (list(arguments[0]),)
                _check_joined(arguments[0], (owner,))
            elif method.__name__ == "replace":
                _check_replaced(owner, *arguments)
        return call(context, function, *arguments, **named)

    return bounded_call


def _check_format(format_string: str, values: Iterable[Any]) -> None:
    if width := _WIDTH.search(format_string):
        raise _too_large(f"the width {width[0]}… in {format_string[:40]!r}")
    listed = list(values)
    if _STARRED.search(format_string):
        _check_sizes(listed)
    longest = max((len(value) for value in listed if isinstance(value, str)), default=0)
    if (count := longest * max(format_string.count("%"), format_string.count("{"))) > LARGEST:
        raise _too_large(f"up to {count:,} characters are formatted")


def _check_joined(parts: Iterable[Any], values: Sequence[Any]) -> None:
    lengths = [len(part) if isinstance(part, str) else 0 for part in parts]
    separator = len(values[0]) if values and isinstance(values[0], str) else 0
    if (count := sum(lengths) + separator * len(lengths)) > LARGEST:
        raise _too_large(f"{count:,} characters are joined")


def _check_replaced(text: str, *values: Any) -> None:
    if len(values) >= 2 and isinstance(values[0], str) and isinstance(values[1], str) and len(values[1]) > len(values[0]):
        count = len(text) + text.count(values[0]) * (len(values[1]) - len(values[0]))
        if count > LARGEST:
            raise _too_large(f"{count:,} characters come of replacing {values[0][:40]!r}")


def _check_sizes(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, int) and value > LARGEST:
            raise _too_large(f"the size {value:,}")


def _finalize(value: Any) -> Any:
    """`value`, unless its text holds an address in memory, which differs from run to run."""
    from jinja2.exceptions import SecurityError
    from jinja2.runtime import Undefined

    if isinstance(value, str | Undefined) or not (callable(value) or isinstance(value, Iterator)) or hasattr(value, "__html__"):
        return value
    raise SecurityError(
        f"it writes a {type(value).__name__}, which is another text in each run. Does a call lack its brackets, or a list its filter?"
    )


def _too_large(what: str) -> Exception:
    from jinja2.exceptions import SecurityError

    return SecurityError(f"{what}: one operation of a template makes at most {LARGEST:,} characters or elements")


# Added tokens that a chat template writes: structure, whether or not the tokenizer flags them as special.
#
# Qwen3's ``<think>`` and ``<tool_call>`` and R1-distill's ``<｜User｜>`` are added tokens without the flag ``special``. If a user types one in a question,
# a tokenizer gives the structural id. So the tokens that a template writes are found by rendering the probes of its form, and by searching its source,
# which covers the branches that no probe takes.


def bind(vocabulary: Vocabulary, template: ChatTemplate) -> Vocabulary:
    """`vocabulary` with the added tokens that `template` writes as control tokens.

    Raises:
        ConfigError: the template writes a token whose flags (``rstrip`` …) change neighbouring ids.
    """
    bound = vocabulary.with_control(template.control)
    check_flags(bound, template.writes(bound.control))
    return bound


def marks(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Added tokens that look like structure: a word between punctuation, such as ``<think>``, ``[INST]`` or ``<｜User｜>``. Added white space
    and plain words are always text."""
    return tuple(
        text
        for token in vocabulary.frame["added_tokens"]
        if any(map(str.isalnum, text := token["content"])) and not any(char.isalnum() or char.isspace() for char in text[:1] + text[-1:])
    )


@bounded_cache("renders of probes", 64, key=lambda template: template.hash)
def probe_renders(template: ChatTemplate) -> tuple[str, ...]:
    """The renders of the probes of a template's form, with the generation prompt and without."""
    renders: dict[str, None] = {}

    def record_render(messages: Sequence[Message], **options: Any) -> str:
        text = template.render(messages, **options)
        renders[text] = None
        with suppress(Refused):
            renders[template.render(messages, **{**options, "generation_prompt": True})] = None
        return text

    find_form(record_render)
    return tuple(renders)


# Which control tokens end a turn, in the text that a template writes after the turn's last content.
#
# That text holds the brackets that close a tool call, the stop, white space, and the header of the next turn; any of these may be control tokens.
# Comparing it with the text that follows when the conversation ends with that turn tells which part belongs to the turn.

Interval = tuple[int, int]


def common_length(left: str, right: str) -> int:
    """The length of the common prefix of two texts."""
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


@dataclass(frozen=True)
class Ends:
    """How a template ends an answer.

    Attributes:
        control: the tokenizer's control tokens.
        answers: texts of the stops after plain answers; the first ends a conversation, ``""`` if nothing does.
        behind: what a conversation that ends with a plain answer has behind its stop, without white space around it.
        closes: whether the stop of a text may hold other text, as in ``<|close|>message<|sep|><|end_of_msg|>``.
    """

    control: tuple[str, ...]
    answers: tuple[str, ...] = ()
    behind: str = ""
    closes: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str] | None:
        """Matches any control token, the longest first."""
        return control_pattern(self.control)

    @property
    def borrows(self) -> bool:
        """Whether only the header of the next turn ends an answer, as in GLM-4-MoE: ``<|user|>`` or ``<|observation|>``."""
        return not self.answers or not self.answers[0]

    def find(self, gap: str, final_gap: str, *, is_text: bool) -> Interval | None:
        """The interval of a turn's stop in `gap`; `None` if there is none.

        Args:
            gap: text between the content of the turn and that of the next one.
            final_gap: the text after the content when the conversation ends with the turn.
            is_text: whether the turn ends with text, directly followed by the stop; after a tool call come closing brackets.
        """
        shared = common_length(gap, final_gap)
        for text in (gap, final_gap):  # never cut inside a control token
            shared = next((low for low, high in self.tokens(text) if low < shared < high), shared)
        turn_end, final_run = gap[:shared], self.leading(final_gap[shared:])
        if is_text:
            run = self.leading(turn_end)
            if run is not None and self.closes:
                run = run[0], self.tokens(turn_end)[-1][1]
        else:  # without the brackets before: the stop of a plain answer, else the last control token
            bare = turn_end.rstrip()
            rest = bare.removesuffix(self.behind).rstrip()
            if self.behind and self.answers[0] and rest.endswith(self.answers[0]):
                bare = rest
            tokens = self.tokens(bare)
            stop = next((stop for stop in self.answers if stop and bare.endswith(stop)), "")
            ends = not self.borrows and tokens and tokens[-1][1] == len(bare)
            run = None if not ends else (len(bare) - len(stop), len(bare)) if stop else tokens[-1]
            if run is not None and not stop and final_run is not None:
                run = None  # at the end of a chat a control token follows that is missing here, so this one closes a bracket
        if run is not None or (is_text and turn_end.strip()):
            return run
        gap_run = self.leading(gap[shared:])
        if gap_run is None or not (final_run or (self.borrows and not final_gap[shared:].strip())):
            return None
        # mid-conversation it ends otherwise (<|end|> for <|return|>), with as many tokens; or the next header's first token ends it
        count = len(self.tokens(final_gap[shared:][slice(*final_run)])) if final_run else 1
        return shared + gap_run[0], shared + self.tokens(gap[shared:])[:count][-1][1]

    def leading(self, text: str) -> Interval | None:
        """The interval of the unbroken run of control tokens that `text` begins with, after white space."""
        start = end = len(text) - len(text.lstrip())
        for low, high in self.tokens(text):
            if low != end:
                break
            end = high
        return (start, end) if end > start else None

    def tokens(self, text: str) -> Sequence[Interval]:
        """The intervals of the control tokens in `text`."""
        return [match.span() for match in self.pattern.finditer(text)] if self.pattern else []


# Where the generated part of a turn begins, and which control tokens end it: found by rendering prefixes of the conversation.
#
# Before turn *i* a model sees the render of the earlier turns with the generation prompt. So turn *i* begins where that render and the whole one
# diverge, after the last text of the previous turn. A turn ends with what the render up to and including it has in common with the whole one:
#
#     whole           … Hi<|end|><|assistant|>Hello<|end|><|user|>Bye …
#     before turn 1   … Hi<|end|><|assistant|>                          turn 1 begins at the end of this
#     up to turn 1    … Hi<|end|><|assistant|>Hello<|end|>              the common control tokens after the last text: the stop
#
# What the template writes between two texts is the same in every conversation of a shape. So borders are cached by the text between, and further
# conversations of the same shape need no extra render.

MOST_REMEMBERED = 4096
_REASONING_BLOCK = re.compile(r"\s*<[^<>\s]+>\s*(?:</[^<>\s]+>\s*)?")
_OPENING = re.compile(r"\n(<[^<>\s]+>)\s*\Z")


class Block(Struct, frozen=True):
    """The texts of one turn in a render.

    Attributes:
        turn, role: the turn.
        kinds: kinds of its regions, in the order of the render.
        start, end: start of its first text and end of its last, in characters.
        leaf, occurrence: number of its last marked text, and which of its occurrences; -1 if none is marked.
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
    """A conversation with its render and the renders of its prefixes, each made once and on demand.

    Attributes:
        pieces: its pieces.
        prompted: whether the whole render ends with the generation prompt.
    """

    sample: Sample
    pieces: Sequence[Piece]
    template: ChatTemplate
    prompted: bool = False
    _beginnings: dict[tuple[int, bool], tuple[str, Places] | None] = field(default_factory=dict)

    def render(self, marking: Marking, tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """The render of the whole conversation, with or without marks."""
        chat_messages = messages(self.sample, self.pieces, marking, self.template.form)
        tools = self.sample.tools if tools is None else tools
        return self.template.render(chat_messages, tools=tools, documents=self.sample.documents, generation_prompt=self.prompted)

    @cached_property
    def text(self) -> str:
        """The render without marks."""
        return self.render("none")

    def until(self, turns: int, *, prompted: bool) -> tuple[str, Places] | None:
        """The render of the first `turns` turns and the places of its marks; `None` if the template raises."""
        key = turns, prompted
        if key not in self._beginnings:
            chat_messages = messages(self.sample, self.pieces, "words", self.template.form)[:turns]
            try:
                marked = self.template.render(
                    chat_messages, tools=self.sample.tools, documents=self.sample.documents, generation_prompt=prompted
                )
                self._beginnings[key] = unmark(marked)
            except Refused:
                self._beginnings[key] = None
        return self._beginnings[key]

    def after(self, block: Block, turns: int, *, prompted: bool) -> str | None:
        """The text after a block in the render of the first `turns` turns; `None` if that renders the block otherwise."""
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
    """Cache of where turns begin and end in the renders of one template."""

    template: ChatTemplate
    _prompts: dict[Any, str | None] = field(default_factory=dict)
    _ends: dict[Any, dict[str, int]] = field(default_factory=dict)
    _closings: dict[Any, int] = field(default_factory=dict)

    # -- where a turn begins ------------------------------------------------------------------------------------------------------------

    def start(self, chat: Chat, before: Block | None, block: Block) -> int:
        """The character where the generated part of `block` begins; `before` is the previous block of the render.

        Raises:
            Refused: ``generation_prompt_not_found``.
        """
        low, header = before.end if before else 0, self.template.generation_prompt
        start = self._divergence(chat, before, block, low)
        if header and (at := chat.text.rfind(header, start, block.start)) >= 0:
            # the turn's header, which the template leaves out of the prompt, as Gemma 4 does after a tool's result
            start = at + len(header)
        # without a generation prompt, the header in front of an answer is not generated
        is_generated = bool(header) or block.kinds[0] in (THINKING, TOOL_CALL) or not chat.text[start : block.start].strip()
        return start if is_generated else block.start

    def _divergence(self, chat: Chat, before: Block | None, block: Block, low: int) -> int:
        """Where the whole render and the prompt of the turn diverge."""
        gap = chat.text[low : block.start]
        prompt = self._prompt(chat, before, block, gap)
        if prompt is not None:
            if chat.text.startswith(prompt, low):
                return low + len(prompt)
            shared = common_length(gap, prompt)
            if (name := chat.sample.turns[block.turn].name) and (named := gap.find(name, shared)) >= 0:
                # the header names the speaker, which the prompt does not
                end = gap.find(prompt[shared:], named + len(name))
                if end >= 0:
                    return low + end + len(prompt) - shared
            shared = self._header_length(gap, shared)
            if shared or not gap:
                return low + shared
        # no prompt for this turn: begin after the generation prompt of a single question, if the gap holds it
        header = self.template.generation_prompt
        at = chat.text.rfind(header, low, block.start) if header else -1
        if at >= 0:
            return at + len(header)
        if (start := self._after_header(gap, header)) is not None:
            return low + start
        if THINKING in block.kinds or TOOL_CALL in block.kinds:
            detail = (
                f"template {self.template.name}: what it writes before turn {block.turn} has nothing in common with what it writes before an "
                "answer is generated; take another template"
            )
            raise Refused("generation_prompt_not_found", detail, stage="render")
        return block.start

    def _after_header(self, gap: str, prompt: str) -> int | None:
        """The offset in `gap` behind the header that begins `prompt`, of which only a block of reasoning differs; `None` if there is none."""
        for length in range(len(prompt) - 1, 0, -1):
            at = gap.rfind(prompt[:length])
            if at >= 0:
                header = self._header_length(gap[at:], length)
                return at + header if header and _REASONING_BLOCK.fullmatch(prompt, header) else None
        return None

    def _prompt(self, chat: Chat, before: Block | None, block: Block, gap: str) -> str | None:
        """The prompt from the end of the previous block; `None` if it cannot be rendered."""
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

    def _header_length(self, gap: str, most: int) -> int:
        """The last offset up to `most` where a header may end: after a control token or white space, and not inside an opening tag that differs,
        such as the ``<think>`` of an empty block where the prompt opens a full one."""
        ends = self.template.ends
        token = max((end for _, end in ends.tokens(gap) if end <= most), default=0)
        blank = next((at for at in range(most, 0, -1) if gap[at - 1].isspace()), 0)
        header = gap if most == len(gap) else gap[: max(token, blank)]
        stop = ends.leading(header)
        low = stop[1] if stop else 0
        opening = _OPENING.search(header, low)
        return opening.start(1) if opening and header[low : opening.start()].strip() else len(header)

    # -- where a turn ends --------------------------------------------------------------------------------------------------------------

    def stop(self, chat: Chat, block: Block, after: Block | None) -> tuple[int, int] | None:
        """The characters (start, end) of the control tokens that end `block`; `None` if there are none. `after` is the next block of the render.

        For other roles than the assistant's, only a token that also ends answers is a stop; any other belongs to the next header.
        """
        gap = chat.text[block.end : after.start if after else len(chat.text)]
        if block.role == ASSISTANT:
            interval = self._stop_of_answer(chat, block, after, gap)
        else:
            start, answers = len(gap) - len(gap.lstrip()), self.template.ends.answers
            stop = next((stop for stop in answers if stop and gap.startswith(stop, start)), "")
            interval = (start, start + len(stop)) if stop else None
            if interval is None and any(stop and stop in gap for stop in answers):  # brackets stand before it
                end = self.closed(chat, block, after) - block.end
                stop = next((stop for stop in answers if stop and gap[:end].endswith(stop)), "")
                interval = (end - len(stop), end) if stop else None
        return (block.end + interval[0], block.end + interval[1]) if interval else None

    def closed(self, chat: Chat, block: Block, after: Block | None) -> int:
        """The character where the template closes a turn that is no answer: the end of what stands behind it whatever follows, without white space."""
        gap = chat.text[block.end : after.start if after else len(chat.text)]
        if block.role == ASSISTANT or not gap.strip():
            return block.end
        key = block.role, block.kinds[-1], gap
        if key not in self._closings:
            if len(self._closings) > MOST_REMEMBERED:
                self._closings.clear()
            final_gap = chat.after(block, block.turn + 1, prompted=False) or ""
            shared = common_length(gap, final_gap)
            for text in (gap, final_gap):  # never cut inside a control token
                shared = next((low for low, high in self.template.ends.tokens(text) if low < shared < high), shared)
            self._closings[key] = len(gap[:shared].rstrip())
        return block.end + self._closings[key]

    def _stop_of_answer(self, chat: Chat, block: Block, after: Block | None, gap: str) -> tuple[int, int] | None:
        is_text = block.kinds[-1] not in (THINKING, TOOL_CALL, *MEDIA)
        following = len(chat.sample.turns) - block.turn if after is None else (after.role, after.kinds[0], after.turn - block.turn)
        known = self._ends.setdefault((block.kinds[-1], following, chat.prompted), {})
        for ending, length in known.items():
            start = len(gap) - len(ending)
            if length and gap.endswith(ending) and (not is_text or not gap[:start].strip()):
                return start, start + length
        if known.get(gap) == 0:
            return None
        final_gap = chat.after(block, block.turn + 1, prompted=False)
        interval = self.template.ends.find(gap, gap if final_gap is None else final_gap, is_text=is_text)
        if len(known) < MOST_REMEMBERED:
            known[gap[interval[0] :] if interval else gap] = interval[1] - interval[0] if interval else 0
        return interval


# A chat template: Jinja source and the special tokens it is rendered with.
#
# Templates are compiled by the sandboxed environment of transformers, so that one from a hub renders as its model expects. The clock that some templates
# read (``strftime_now``) is frozen: equal input gives equal renders.

Message = Mapping[str, Any]
_GENERATION_TAG = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
CHAT_VARIABLES = ("messages", "tools", "documents", "add_generation_prompt", "strftime_now")
"""Variables that come from the conversation, and the frozen clock."""
_PLAIN_MESSAGES = (("user", "What is 2 + 2?"), ("assistant", "2 + 2 = 4"), ("user", "And 3 + 3?"), ("assistant", "3 + 3 = 6"))


def marks_generated(source: str) -> bool:
    """Whether a template marks generated text with ``{% generation %}``."""
    return _GENERATION_TAG.search(source) is not None


class Renderer(Protocol):
    """Code that writes chats in place of a Jinja template, for formats that have none.

    Its two ways to render share no code where there are two implementations of a format: a build takes `render`, proofs `render_again`.
    """

    @property
    def source(self) -> str:
        """What decides its renders, for hashes: its packages with versions and hashes. It holds all control tokens that it writes."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """The control tokens that it writes, all of which a tokenizer must have."""

    @property
    def options(self) -> Mapping[str, tuple[Any, ...]]:
        """Name → values of each option; no values: any."""

    @property
    def proofs(self) -> tuple[str, ...]:
        """What a certificate says of its proofs."""

    @property
    def marks(self) -> bool:
        """Whether it marks what is generated, at least in a chat of one answer."""

    def render(self, messages: Sequence[Message], tools: Sequence[Any], options: Mapping[str, Any], prompted: bool) -> str:
        """The text of a chat; `prompted`: with the generation prompt. May raise anything."""

    def render_again(self, messages: Sequence[Message], tools: Sequence[Any], options: Mapping[str, Any], prompted: bool) -> str:
        """The same by the second implementation."""

    def generated(
        self, messages: Sequence[Message], tools: Sequence[Any], options: Mapping[str, Any], prompted: bool
    ) -> tuple[Interval, ...] | None:
        """The characters that it marks as generated by the model; `None` if it cannot tell."""

    def corrupted(self) -> Iterator[tuple[str, Renderer, bool]]:
        """Wrong copies, each of which the second derivation of masks must notice: what is wrong, the copy, and whether only its marks are wrong."""


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template bound to a tokenizer's special tokens.

    Attributes:
        name: its name in the configuration; for messages only.
        source: the Jinja text, or that of its renderer.
        special: ``bos_token``, ``eos_token`` … as the template sees them.
        options: further variables that the template reads, e.g. ``enable_thinking``.
        control: special tokens and the added tokens that the template writes; they tell where a turn stops.
        image: the placeholder of an image: the image token, once per patch; ``""`` where images are rejected.
        audio, video: the token of each; ``""`` where it is rejected.
        training: source of a variant that marks generated text (`marks_generated`), a second derivation of masks wherever it renders the same; ``""``
            if there is none.
        renderer: the code that writes chats; `None` where Jinja does.
    """

    name: str
    source: str
    special: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    control: tuple[str, ...] = ()
    image: str = ""
    audio: str = ""
    video: str = ""
    training: str = ""
    renderer: Renderer | None = None

    @cached_property
    def hash(self) -> str:
        """sha256 of everything that decides the render, and of the variant that proves its masks."""
        parts = [self.source, dict(self.special), dict(self.options), FROZEN_CLOCK.isoformat(), *([self.image] if self.image else [])]
        parts += [{kind: token} for kind, token in ((AUDIO, self.audio), (VIDEO, self.video)) if token]
        parts += [{"training": self.training}] if self.training else []
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def writes(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Those of `texts` that the template writes itself: in its source, or in its renders of the probes."""
        return _written_by(self, tuple(texts))

    @cached_property
    def form(self) -> MessageForm:
        """The message form that it reads, found by probing."""
        return find_form(self.render, self.marks)

    @cached_property
    def image_token(self) -> str:
        """The token of an image, written once per patch."""
        tokens = (token for token in self.control if self.image and token * (len(self.image) // len(token)) == self.image)
        return next(tokens, self.image)

    @cached_property
    def marks(self) -> Mapping[str, str]:
        """Kind of files → the token that it writes for one, of the kinds that are not rejected."""
        return {kind: token for kind, token in ((IMAGE, self.image_token), (AUDIO, self.audio), (VIDEO, self.video)) if token}

    @cached_property
    def ends(self) -> Ends:
        """How it ends plain answers."""
        bare = Ends(self.control or tuple(sorted({*self.special.values()} - {""})), closes=self.renderer is not None)
        last, earlier = self._after_answer(2), self._after_answer(4)
        interval = bare.find(last, last, is_text=True)
        answers = [last[slice(*interval)] if interval else ""]
        if (interval := replace(bare, answers=tuple(answers)).find(earlier, last, is_text=True)) and earlier[
            slice(*interval)
        ] not in answers:
            answers.append(earlier[slice(*interval)])
        behind = last.partition(answers[0])[2].strip() if answers[0] else ""
        return replace(bare, answers=tuple(answers), behind=behind)

    @cached_property
    def borders(self) -> Borders:
        """Cache of where turns begin and end in its renders."""
        return Borders(self)

    def with_options(self, options: Mapping[str, Any]) -> ChatTemplate:
        """The template with further options, such as those of one record."""
        return _variant(self, json.dumps(options, sort_keys=True, default=str), options) if options else self

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names that its source reads and does not set; one that is set in a single branch only counts as read."""
        from jinja2.meta import find_undeclared_variables

        if self.renderer is not None:
            return frozenset(self.renderer.options)
        return frozenset(find_undeclared_variables(self.parsed) - {*self._compiled.environment.globals, *CHAT_VARIABLES})

    @cached_property
    def parsed(self) -> Any:
        """The Jinja syntax tree of its source."""
        return self._compiled.environment.parse(self.source)

    def plain_chat(self, count: int) -> list[Message]:
        """A plain chat of `count` messages."""
        parts = self.form.content == "parts"
        return [{"role": role, "content": [{"type": "text", "text": text}] if parts else text} for role, text in _PLAIN_MESSAGES[:count]]

    def _plain(self, count: int, *, prompted: bool = False) -> str | None:
        """The render of `plain_chat`; `None` if the template rejects it."""
        try:
            return self.render(self.plain_chat(count), generation_prompt=prompted)
        except Refused:
            return None

    @cached_property
    def short_chat(self) -> str:
        """The render of a question and its answer; ``""`` if the template rejects them."""
        return self._plain(2) or ""

    def _after_answer(self, count: int) -> str:
        """The text between the first answer of a plain chat and the next question, or the end."""
        return (self._plain(count) or "").partition(_PLAIN_MESSAGES[1][1])[2].partition(_PLAIN_MESSAGES[2][1])[0]

    @cached_property
    def generation_prompt(self) -> str:
        """What it writes before an answer to generate; ``""`` if nothing, or if it cannot render a single question."""
        question, prompted = self._plain(1), self._plain(1, prompted=True)
        return "" if question is None or prompted is None or not prompted.startswith(question) else prompted.removeprefix(question)

    @cached_property
    def stop_token(self) -> str:
        """The control token that ends an assistant's turn; ``""`` if there is none, so that a model never learns to stop."""
        return self.ending(self._after_answer(2) if self.renderer is None else self.ends.answers[0])

    def ending(self, stop: str) -> str:
        """The control token at which generation stops, of the text that ends an answer: the first, of a format that code writes the last; ``""`` for
        none."""
        tokens = () if self.renderer is None else self.ends.tokens(stop)
        return stop[slice(*tokens[-1])] if tokens else self.first_control(stop.lstrip())

    def first_control(self, text: str) -> str:
        """The control token that `text` begins with, or ``""``."""
        return max((token for token in self.control if text.startswith(token)), key=len, default="")

    @cached_property
    def _compiled(self) -> Any:
        from jinja2 import TemplateSyntaxError

        environment()
        try:
            return limited(self._limit_error(), compiled, self.source)
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
        """Render a whole conversation.

        Raises:
            Refused: the template raises for this conversation (an unknown role, turns that do not alternate).
        """
        from jinja2 import TemplateError as JinjaError

        if self.renderer is not None:
            return self._written(self.renderer, messages, tools, documents, generation_prompt)
        try:
            variables = self.render_variables(messages, tools, documents, generation_prompt)
            rendered = limited(self._limit_error(self._compiled), self._compiled.render, variables)
        except (JinjaError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
            why = f"template {self.name}: {_line_prefix(error.__traceback__, self._compiled)}{error}; take a template that writes such a chat, or leave it out"
            raise Refused("template_refuses", why, stage="render") from error.with_traceback(None)  # it holds the tokenizer
        except RecursionError as error:
            if sum(frame.f_code.co_filename in _TEMPLATE_FILES for frame, _ in walk_tb(error.__traceback__)) < _ENDLESS:
                raise  # the record is nested too deeply
            what = "a macro or a loop calls itself without end, or the record is nested too deeply for it"
            where = _line_prefix(error.__traceback__, self._compiled)
            raise Refused("template_refuses", f"template {self.name}: {where}{what}", stage="render") from None
        except MemoryError as error:
            raise TemplateError(
                f"chat template {self.name}: {_line_prefix(error.__traceback__, self._compiled)}one render needs more memory than there is"
            ) from error
        return str(rendered)

    def _written(
        self, renderer: Renderer, messages: Sequence[Message], tools: Sequence[Any], documents: Sequence[Any], generation_prompt: bool
    ) -> str:
        """The render of a renderer, which shows no documents."""
        try:
            return limited(self._limit_error(), renderer.render, messages, list(tools), self.options, generation_prompt)
        except (PrepAssetsError, RecursionError, MemoryError):
            raise
        except Exception as error:  # the code of others may raise anything
            why = f"template {self.name}: {type(error).__name__}: {str(error)[:300]}; take a template that writes such a chat, or leave it out"
            raise Refused("template_refuses", why, stage="render") from None

    def _limit_error(self, running: Any = None) -> Callable[[str, TracebackType | None], TemplateError]:
        return lambda what, trace: TemplateError(
            f"chat template {self.name}: {_line_prefix(trace, running)}one render {what}. Look for a loop in it that goes on too long, or for the record "
            "that makes it so"
        )

    def render_variables(
        self, messages: Sequence[Message], tools: Sequence[Any] = (), documents: Sequence[Any] = (), generation_prompt: bool = False
    ) -> dict[str, Any]:
        """All variables of a render."""
        return {
            **self.special,
            **self.options,
            "strftime_now": FROZEN_CLOCK.strftime,
            "messages": messages,
            "tools": list(tools) or None,
            "documents": list(documents) or None,
            "add_generation_prompt": generation_prompt,
        }


KEPT = Kept("templates", 256)
"""Cache of what templates write, so that looking at a store renders nothing."""
_RULES = 1
"""Version of the probes."""


@bounded_cache("tokens of templates", 64, key=lambda template, texts: (template.hash, texts))
def _written_by(template: ChatTemplate, texts: tuple[str, ...]) -> tuple[str, ...]:
    def find() -> tuple[str, ...]:
        sources = (template.source, *probe_renders(template)) if texts else ()
        return tuple(text for text in texts if any(text in source for source in sources))

    return remembered(KEPT, key_of(template.hash, texts, _RULES, version("jinja2"), version("transformers")), tuple[str, ...], find)


@bounded_cache(
    "chat templates with options of rows",
    4096,
    key=lambda template, options_json, _: (template.name, template.hash, template.control, options_json),
)
def _variant(template: ChatTemplate, options_json: str, options: Mapping[str, Any]) -> ChatTemplate:
    return replace(template, options={**template.options, **options})


_TEMPLATE_FILES = ("<unknown>", "<template>")
_ENDLESS = 50
"""Calls within a template from which a macro is taken to call itself without end."""


def _line_prefix(trace: TracebackType | None, running: Any = None) -> str:
    """``line …: `` of the innermost frame of the template `running`."""
    lines = [line for frame, line in walk_tb(trace) if frame.f_code.co_filename in _TEMPLATE_FILES]
    if not lines:
        return ""
    return f"line {lines[-1] if running is None else running.get_corresponding_lineno(lines[-1])}: "
