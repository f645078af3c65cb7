"""Rules about rows that JSON Schema cannot say: the order of roles, calls and their results, what must agree, and files. Each looks at the raw row.

Definitions name them in ``x-beyond``; those of one format are in `proofs/rules.py` of its extension.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from fractions import Fraction
from itertools import groupby, pairwise, starmap
from typing import Any, TypeVar

from msgspec import Struct

from prep_assets.proofs.formats import DECISIVE, Format, parsed
from prep_assets.proofs.source_fields import CALLS, NOTHING, REASONINGS, STRETCHES, WEIGHTS
from prep_assets.samples import Row

Rule = Callable[[Row, Format], bool | None]
"""A row that its definition accepts, and the definition → whether it must be rejected; `None` where the rule cannot tell."""
Message = Mapping[str, Any]

_WITH_FILES = ("messages_key", "prompt_key", "completion_key")
_CHATS = (*_WITH_FILES, "chosen_key", "rejected_key", "responses_key")
"""Options that name fields with messages; those whose texts have marks of files come first."""
_LETTERS: Mapping[str | None, str] = {"system": "s", "user": "u", "assistant": "a", "tool": "t"}


def under(row: Row, format: Format, option: str) -> Any:
    """Return the value of the field that an option names."""
    return row.get(str(format.options.get(option)))


class JudgedRow(dict[str, Any]):
    """A row that several rules judge, of one definition: what several of them need is found once."""

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self.found: dict[str, Any] = {}


Found = TypeVar("Found")


def once(find: Callable[[Row, Format], Found]) -> Callable[[Row, Format], Found]:
    def found(row: Row, format: Format) -> Found:
        if not isinstance(row, JudgedRow):
            return find(row, format)
        if find.__name__ not in row.found:
            row.found[find.__name__] = find(row, format)
        value: Found = row.found[find.__name__]
        return value

    return found


UNSURE = "unsure"
"""Stands among the reasons of a row that has what a second reading does not know: then it says neither that the row is right nor that it is wrong."""


def by_reasons(reasons: Callable[[Row, Format], set[str]], unlike: Rule) -> Callable[[str], Rule]:
    """Return what makes the rule of a reason.

    Args:
        reasons: all that a second reading finds in a row.
        unlike: whether something is wrong with a row in which it finds none; `None` where it finds one.
    """

    def rule_of(reason: str) -> Rule:
        return lambda row, format: True if reason in reasons(row, format) else unlike(row, format) and None

    return rule_of


@once
def chats(row: Row, format: Format) -> list[Sequence[Message]]:
    """Return the lists of messages of a row; one message alone is a list as well."""
    return [*_under_options(row, format, _CHATS)]


def _under_options(row: Row, format: Format, options: Sequence[str]) -> Iterator[Sequence[Message]]:
    for option in options if "role_key" in format.options else ():
        value = under(row, format, option)
        if isinstance(value, list):
            yield from [value] if {*map(type, value)} <= {dict} else (each for each in value if type(each) is list)
        elif isinstance(value, Mapping):
            yield [value]


def letters(chat: Sequence[Message], format: Format) -> str:
    """Return the roles of messages, a letter each; ``?`` for roles of the configuration."""
    tag = format.options["role_key"]
    return "".join(_LETTERS.get(format.roles.get(str(message.get(tag))), "?") for message in chat)


class _Turn(Struct):
    """A turn: the letter of its role, its calls, the call that it is a result of, its text, and the name that it bears."""

    letter: str
    calls: list[Any]
    result_of: str | None
    text: str
    name: str | None = None


def turns(chat: Sequence[Message], format: Format) -> list[_Turn]:
    """Return the turns of messages; one that is nothing but calls joins the answer before it."""
    joined: list[_Turn] = []
    for message, letter in zip(chat, letters(chat, format), strict=True):
        is_call = message[format.options["role_key"]] in format.calls
        calls = called(message, format)
        if is_call and joined and joined[-1].letter == "a":
            joined[-1].calls += calls
        else:
            joined.append(_Turn(letter, calls, message.get("tool_call_id"), "" if is_call else shown(message, format), message.get("name")))
    return joined


def roles(chat: Sequence[Message], format: Format) -> str:
    """Return the letters of the turns of messages, results in a row as one."""
    return re.sub("t+", "t", "".join(turn.letter for turn in turns(chat, format)))


# The order of roles.


def alternation(row: Row, format: Format) -> bool:
    """Roles are other than system?, ((user or results), assistant)+."""
    return any(not re.fullmatch("s?(?:[^as]a)*", roles(chat, format)) for chat in chats(row, format))


def alternating_order(row: Row, format: Format) -> bool:
    """Roles do not alternate, or a result answers no call."""
    return alternation(row, format) or result_without_call(row, format)


def any_order(row: Row, format: Format) -> bool:
    """The order of `messages`: as the option `order` says."""
    return result_without_call(row, format) or (format.options.get("order") == "alternate" and alternation(row, format))


def open_prompt(row: Row, format: Format) -> bool:
    """A prompt ends with an answer or a system prompt, or a result answers no call."""
    prompt = under(row, format, "prompt_key")
    prompt = [prompt] if isinstance(prompt, Mapping) else prompt
    closed = isinstance(prompt, list) and letters(prompt, format)[-1:] in ("a", "s")
    return closed or result_without_call(row, format)


# Calls and results.


def called(message: Message, format: Format) -> list[Any]:
    """Return the calls of a message, as values."""
    calls: list[Any] = []
    listed = [message.get(key) for key in CALLS]
    content = message.get(format.options["content_key"])
    if message[format.options["role_key"]] in format.calls:
        listed.append(content)
    else:
        for part in content if isinstance(content, list) else ():
            if part.get("type") in ("tool_call", "tool_use"):
                listed.append(next((part[key] for key in ("value", "tool_call") if part.get(key) is not None), part))
    for value in listed:
        if value:
            value = parsed(value) if isinstance(value, str) else value
            calls += [value] if isinstance(value, Mapping) else value
    return calls


def _written(turn: _Turn) -> list[Any]:
    """Return the calls that are the text of an answer, in JSON."""
    try:
        value = parsed(turn.text) if turn.text.lstrip()[:1] in ("{", "[") else []
    except ValueError:
        return []
    calls = [value] if isinstance(value, Mapping) else value
    named = all(isinstance(call, Mapping) and isinstance((call.get("function") or call).get("name"), str) for call in calls)
    return calls if named else []


TYPED = re.compile(r"[<\[][^<>\[\]\n]{0,24}(?:tool|function|python|call|invoke)|```|^ *Action:", re.IGNORECASE | re.MULTILINE)
"""What a call looks like that is typed in the text of an answer."""


def tool_faults(chat: Sequence[Message], format: Format) -> set[str]:
    """Return what is wrong with the results of a chat and its calls."""
    faults, made, waiting, before = set[str](), set[str](), set[str](), _Turn("", [], None, "")
    for is_result, run in groupby(turns(chat, format), lambda turn: turn.letter == "t"):
        if not is_result:
            for turn in run:
                ids = [call.get("id") for call in turn.calls]
                if not turn.calls and (waiting or (before.letter == turn.letter == "a" and before.calls)):
                    faults.add("unanswered_tool_call")
                made.update(id for id in ids if id is not None)
                waiting.update(id for id in ids if id is not None)
                before = turn
            continue
        results = [*run]
        answered = [turn.result_of for turn in results]
        calls = before.calls or _written(before)
        if before.letter != "a" or not (calls or TYPED.search(before.text)):
            faults.add("role_order")
        asked = [call.get("id") for call in calls]
        if made and {*answered} - made - {None}:
            faults.add("unknown_tool_call")
        if None in answered and calls and len(answered) not in (1, len(calls)):
            faults.add("unknown_tool_call" if len(answered) > len(calls) else "unanswered_tool_call")
        by_ids = None not in (*asked, *answered) and {*asked} & {*answered}
        if by_ids and {*asked} - {*answered}:
            faults.add("unanswered_tool_call")
        names = [(call.get("function") or call).get("name") for call in calls]
        others = [turn.name for turn in results]
        swapped = not by_ids and others != names and Counter(others) == Counter(names)
        if swapped or (None not in answered and any(count > asked.count(each) > 0 for each, count in Counter(answered).items())):
            faults.add("unknown_tool_call")
        waiting = set() if None in answered else waiting - {*answered}
        before = results[-1]
    return faults


@once
def _faults_of_tools(row: Row, format: Format) -> set[str]:
    return set[str]().union(*(tool_faults(chat, format) for chat in chats(row, format) if _has_tools(chat, format)))


def _of_tools(reason: str) -> Callable[[Row, Format], bool]:
    return lambda row, format: reason in _faults_of_tools(row, format)


def _has_tools(chat: Sequence[Message], format: Format) -> bool:
    """Whether a chat has calls or results: most have none, and are not looked at any further."""
    return "t" in letters(chat, format) or any(called(message, format) for message in chat)


result_without_call, unknown_result, missing_result = map(_of_tools, ("role_order", "unknown_tool_call", "unanswered_tool_call"))


def not_offered(row: Row, format: Format) -> bool:
    """A tool is called that is not on offer."""
    options = row.get("chat_template_kwargs")
    options = parsed(options.strip() or "{}") if isinstance(options, str) else options
    tools = next(_offers(row, format), [])
    builtin = (options or {}).get("builtin_tools")
    names = [*(tool.get("function", tool).get("name") for tool in tools), *(builtin if isinstance(builtin, list) else ())]
    if not tools or None in names:
        return False
    asked = [call for chat in chats(row, format) for message in chat for call in called(message, format)]
    for chat in chats(row, format):
        for turn, behind in pairwise(turns(chat, format)):
            asked += _written(turn) if turn.letter == "a" and behind.letter == "t" and not turn.calls else []
    return any((call.get("function") or call)["name"] not in names for call in asked)


_TOOLS = ("tools", "functions", "available_tools")


def _offers(row: Row, format: Format) -> Iterator[list[Row]]:
    """Yield the tools that a row and its messages offer under each name, if any: each with its wrapper."""
    for each in (row, *(message for chat in chats(row, format) for message in chat)):
        for given in (each[key] for key in (str(format.options.get("tools_key")), *_TOOLS) if each.get(key)):
            tools = parsed(given.strip() or "[]") if isinstance(given, str) else given
            if tools:
                yield [*map(_wrapped, [tools] if isinstance(tools, Mapping) else tools)]


def _wrapped(tool: Row) -> Row:
    return {"type": "function", "function": tool} if "name" in tool and "function" not in tool else tool


# What neutral fields say.

_NUMBERS = ("index", "idx")
_TIMES = ("timestamp", "date", "created", "created_at")


def _lists(value: Any) -> Iterator[list[Row]]:
    """Yield the lists of objects anywhere in a value."""
    if isinstance(value, list):
        if len(value) > 1 and isinstance(value[0], Mapping):
            yield [each for each in value if isinstance(each, Mapping)]
        for each in value:
            yield from _lists(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _lists(each)


def out_of_order(row: Row, format: Format) -> bool:
    """Numbers of objects from 0 or 1 on, or times of messages, descend in a list."""
    for objects in _lists(row):
        for key in (*_NUMBERS, *(_TIMES if any(name in objects[0] for name in ("role", "from")) else ())):
            values = [each[key] for each in objects if each.get(key) not in NOTHING]
            if key in _NUMBERS and not any(sorted(map(repr, values)) == sorted(map(str, range(at, at + len(values)))) for at in (0, 1)):
                continue  # they number the objects of a data set
            with suppress(TypeError, ValueError):
                places = [value if type(value) in (int, float) else datetime.fromisoformat(value) for value in values]
                if places != sorted(places):
                    return True
    return False


def _objects(value: Any) -> Iterator[Row]:
    """Yield the objects anywhere in a value, and itself."""
    if isinstance(value, Mapping):
        yield value
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _objects(each)


def mixed(row: Row, format: Format) -> bool:
    """A row names two conversations, prompts or questions."""
    named = ("conversation_id", "prompt_id", "question_id")
    found = {(key, str(each[key])) for each in _objects(row) for key in named if each.get(key) not in NOTHING}
    return len(found) > len({key for key, _ in found})


def has_decisive(row: Row, format: Format) -> bool:
    """A field stands anywhere in the row whose name decides what is trained."""
    return any(each[key] not in NOTHING for each in _objects(row) for key in DECISIVE & each.keys())


# What must agree.


@once
def parts_of_row(row: Row, format: Format) -> list[Row]:
    """Return a row, its messages and their parts."""
    listed, content = [row], format.options.get("content_key", "content")
    for chat in chats(row, format):
        for message in chat:
            parts = message.get(content)
            listed += [message, *(part for part in (parts if isinstance(parts, list) else ()) if isinstance(part, Mapping))]
    return listed


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def unstorable_weight(row: Row, format: Format) -> bool | None:
    """A weight is neither 0 nor from 1e-30 to 1e30, or stretches of a text lie outside of it or over each other. Nobody can tell of the product of a
    message's weight and a part's."""
    masks = [row.get(key) for key in format.options.get("mask_keys", ())]
    weights = [float(each[key]) for each in parts_of_row(row, format) for key in WEIGHTS if key in each and _is_number(each[key])]
    weights += [float(value) for mask in masks if isinstance(mask, list) for value in mask if _is_number(value)]
    stretched = ((each[key], shown(each, format)) for each in parts_of_row(row, format) for key in STRETCHES if each.get(key))
    if any(weight and not 1e-30 <= weight <= 1e30 for weight in weights) or any(starmap(_misplaced, stretched)):
        return True
    return False if all(weight == 0 or 1e-15 <= weight <= 1e15 for weight in weights) else None


def _misplaced(stretches: Sequence[Row], text: str) -> bool:
    """Whether one of the stretches begins before the end of the one before it, or has no character of the text."""
    places = sorted((each["begin_offset"], each["end_offset"] + 1) for each in stretches)
    after = [0, *(min(end, len(text)) for _, end in places)]
    return any(not at <= begin < min(end, len(text)) for at, (begin, end) in zip(after, places, strict=False))


def several_weights(row: Row, format: Format) -> bool:
    """Two weights of one object differ."""
    return any(
        len({float(each[key]) for key in WEIGHTS if key in each and _is_number(each[key])}) > 1 for each in parts_of_row(row, format)
    )


def several_thoughts(row: Row, format: Format) -> bool:
    """Two spellings of an object's reasoning differ."""
    for each in parts_of_row(row, format):
        texts = {each[key] for key in REASONINGS if isinstance(each.get(key), str) and each[key]}
        if isinstance(each.get("reasoning_details"), list) and each["reasoning_details"]:
            named = {"reasoning.text": "text"}
            texts.add("".join(part.get(named.get(part.get("type"), "summary")) for part in each["reasoning_details"]))
        if len(texts) > 1:
            return True
    return False


_TEXT_PARTS = ("text", "input_text", "output_text")
_HELD_UNDER = {
    **dict.fromkeys(_TEXT_PARTS, ("text", "value")),
    "reasoning": ("reasoning", "text", "value"),
    "thinking": ("thinking", "text", "value"),
    "tool_call": ("value", "tool_call"),
    "tool_use": ("value", "tool_call"),
    **{
        name: (f"{kind}_url", kind, "path", "url", "value", "source", "uri")
        for kind in ("image", "audio", "video")
        for name in (kind, f"{kind}_url")
    },
}


def several_contents(row: Row, format: Format) -> bool:
    """A part holds different values under two names."""
    for each in parts_of_row(row, format):
        held = [each[key] for key in _HELD_UNDER.get(str(each.get("type")), ()) if each.get(key) is not None]
        if any(value != held[0] for value in held[1:]):
            return True
    return False


def several_tools(row: Row, format: Format) -> bool:
    """Tools stand under two names, or in two messages, and differ."""
    first, *others = [*_offers(row, format)] or [[]]
    return any(tools != first for tools in others)


def own_space(row: Row, format: Format) -> bool | None:
    """White space of its own stands beside reasoning or a call: in no row without a text of white space. Nobody can tell of weights, and of pieces of texts."""
    files = [str(format.options.get(f"{kind}s_key")) for kind in ("image", "audio", "video")]
    in_pieces = any(each.get(key) for each in _objects(row) for key in (*STRETCHES, *files, "image"))
    return None if in_pieces or any(map(str.isspace, _strings(row))) else False


def _strings(value: Any) -> Iterator[str]:
    """Yield the texts anywhere in a value."""
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _strings(each)


def several_systems(row: Row, format: Format) -> bool:
    """A chat begins with another system prompt than that of its column."""
    key = format.options.get("system_key", "system")
    column = row.get(key) if isinstance(key, str) else None
    if not isinstance(column, str) or not column.strip():
        return False
    first = next((chat for chat in chats(row, format) if chat), ())
    return letters(first[:1], format) == "s" and shown(first[0], format) != column


def _texts(message: Message, format: Format) -> list[str]:
    """Return the texts of a message: its refusal or content, or those of its parts."""
    content = message.get("refusal") or message.get(format.options["content_key"])
    if isinstance(content, list):
        return [
            next(part[key] for key in ("text", "value") if part.get(key) is not None) for part in content if part["type"] in _TEXT_PARTS
        ]
    return [content] if isinstance(content, str) else []


def shown(message: Message, format: Format) -> str:
    return "".join(_texts(message, format))


# Files.


def miscounted(kind: str) -> Rule:
    """Return a rule: a place in the messages has no file in the column, or a file no place."""

    def rule(row: Row, format: Format) -> bool:
        key, column = format.options.get(f"{kind}s_key"), under(row, format, f"{kind}s_key")
        if column is None and key == f"{kind}s" and row.get(kind) is not None:
            column = row[kind] or []
        mark = "" if column is None else format.options.get("image_token", "<image>") if kind == "image" else f"<{kind}>"
        files = len(column) if isinstance(column, list) else int(bool(column))
        taken: list[int] = []
        for chat in _under_options(row, format, _WITH_FILES):
            for place in (place for message in chat for place in _placed(message, kind, mark, format)):
                taken.append(len(taken) if place is None else place)
        beside = (
            place
            for chat in _under_options(row, format, _CHATS[len(_WITH_FILES) :])
            for message in chat
            for place in _placed(message, kind, "", format)
        )
        return {*taken} != {*range(files)} or any(True for _ in beside)

    return rule


def _placed(message: Message, kind: str, mark: str, format: Format) -> Iterator[int | None]:
    """Yield for each place of a file in a message which one stands there; `None` for the next one."""
    content = message.get("refusal") or message.get(format.options["content_key"])
    if message[format.options["role_key"]] in format.calls:
        return
    parts: list[Any] = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    for part in parts:
        if part["type"] in _TEXT_PARTS and mark:
            yield from [None] * next(part[key] for key in ("text", "value") if part.get(key) is not None).count(mark)
        elif part["type"] in (kind, f"{kind}_url") and all(part.get(key) is None for key in _HELD_UNDER[kind]):
            yield part.get("index")


# Values.


def no_json(row: Row, format: Format) -> bool | None:
    """A value has no place in JSON: a number that is not finite, a date, bytes. JSON Schema takes 2.0 for an integer, which a field of ids or counts is not."""
    try:
        json.dumps(row, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return True
    return None if _counts_in_floats(row) else False


_MEASURES = re.compile("weight|scale|score|reward|margin|logprob")
"""Names of fields whose numbers need not be whole."""


def _counts_in_floats(value: Any, key: str = "") -> bool:
    if isinstance(value, dict):
        return any(_counts_in_floats(inner, name) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return any(_counts_in_floats(inner, key) for inner in value)
    return isinstance(value, float) and value.is_integer() and not _MEASURES.search(key)


def number(text: str) -> Fraction | None:
    """Return the number that a text is, as people write it; `None` for anything else."""
    plain = re.sub("^([+−-]?)\\$|^\\$([+−-])", r"\1\2", text).replace("−", "-").removesuffix(".")
    grouped = re.fullmatch("[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\\.[0-9]+)?", plain)
    plain = plain.replace(",", "") if grouped else plain
    return Fraction(plain) if re.fullmatch("[+-]?(?:[0-9]+(?:\\.[0-9]+)?|\\.[0-9]+)", plain) else None


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 1


def uneven(*options: str) -> Rule:
    """Return a rule: the arrays that these options name have different lengths."""

    def rule(row: Row, format: Format) -> bool:
        return len({_length(value) for option in options if (value := under(row, format, option)) is not None}) > 1

    return rule


def rewards_of(row: Row, format: Format) -> list[float]:
    ranks = under(row, format, "ranks_key")
    return [-rank for rank in ranks] if ranks is not None else under(row, format, "rewards_key")
