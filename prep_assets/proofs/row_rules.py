"""Rules about rows that JSON Schema cannot say: the order of roles, calls and their results, what must agree, and how many of what. Each looks at the raw row.

`rejected_rows.py` says which rule derives which reason of which schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from fractions import Fraction
from itertools import groupby, pairwise, zip_longest
from typing import Any

from msgspec import Struct

from prep_assets.proofs.formats import Format, parsed

Row = Mapping[str, Any]
Rule = Callable[[Row, Format], bool | None]
"""A row that its definition accepts, and the definition → whether it must be rejected; `None` where the rule cannot tell."""
Message = Mapping[str, Any]

_WITH_FILES = ("messages_key", "prompt_key", "completion_key")
_CHATS = (*_WITH_FILES, "chosen_key", "rejected_key", "responses_key")
"""Options that name fields with messages; those whose texts have marks of files come first."""
_LETTERS = {"system": "s", "user": "u", "assistant": "a", "tool": "t"}
REASONING = ("reasoning_content", "reasoning", "thinking", "thought", "tool_plan", "Complex_CoT")
CALLS = ("tool_calls", "function_call", "function_calls")
WEIGHTS = ("loss_weight", "weight", "loss_mask", "loss_scale", "train", "training", "loss")


def _under(row: Row, format: Format, option: str) -> Any:
    """Return the value of the field that an option names."""
    key: object = format.options.get(option)
    return row.get(key) if isinstance(key, str) else None


def chats(row: Row, format: Format, options: Sequence[str] = _CHATS) -> Iterator[Sequence[Message]]:
    """Yield the lists of messages of a row; one message alone is a list as well."""
    for option in options if "role_key" in format.options else ():
        value = _under(row, format, option)
        if isinstance(value, list):
            yield from [value] if {*map(type, value)} <= {dict} else (each for each in value if type(each) is list)
        elif isinstance(value, Mapping):
            yield [value]


def letters(chat: Sequence[Message], format: Format) -> str:
    """Return the roles of messages, a letter each; ``?`` for roles of the configuration."""
    tag = format.options["role_key"]
    return "".join(_LETTERS.get(format.roles.get(str(message.get(tag)), ""), "?") for message in chat)


class _Turn(Struct):
    """A turn: the letter of its role, its calls, the call that it is a result of, and its text."""

    letter: str
    calls: list[Any]
    result_of: str | None
    text: str


def turns(chat: Sequence[Message], format: Format) -> list[_Turn]:
    """Return the turns of messages; one that is nothing but calls joins the answer before it."""
    joined: list[_Turn] = []
    for message, letter in zip(chat, letters(chat, format), strict=True):
        is_call = message[format.options["role_key"]] in format.calls
        calls = _called(message, format)
        if is_call and joined and joined[-1].letter == "a":
            joined[-1].calls += calls
        else:
            joined.append(_Turn(letter, calls, message.get("tool_call_id"), "" if is_call else _shown(message, format)))
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
    prompt = _under(row, format, "prompt_key")
    closed = isinstance(prompt, list) and letters(prompt, format)[-1:] in ("a", "s")
    return closed or result_without_call(row, format)


def labelled_order(row: Row, format: Format) -> bool:
    """A labelled chat does not end with its answer."""
    chat = _under(row, format, "messages_key")
    if isinstance(chat, list):
        return letters(chat, format)[-1:] != "a" or result_without_call(row, format)
    return open_prompt(row, format)


def pairwise_order(row: Row, format: Format) -> bool:
    """The prompt of a pair is other than system?, (user or results), (assistant, (user or results))*."""
    prompt = _under(row, format, "messages_key")
    return not re.fullmatch("s?[ut](?:a[ut])*", roles(prompt, format)) or result_without_call(row, format)


# Calls and results.


def _called(message: Message, format: Format) -> list[Any]:
    """Return the calls of a message, as values."""
    calls: list[Any] = []
    listed = [message.get(key) for key in CALLS]
    content = message.get("refusal") or message.get(format.options["content_key"])
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


def _written(turn: _Turn, format: Format) -> list[Any]:
    """Return the calls that are the text of an answer, in JSON."""
    try:
        value = parsed(turn.text) if turn.text.lstrip()[:1] in ("{", "[") else []
    except ValueError:
        return []
    calls = [value] if isinstance(value, Mapping) else value
    return (
        calls
        if calls and all(isinstance(call, Mapping) and isinstance((call.get("function") or call).get("name"), str) for call in calls)
        else []
    )


TYPED = re.compile(r"[<\[][^<>\[\]\n]{0,24}(?:tool|function|python|call|invoke)|```|^ *Action:", re.IGNORECASE | re.MULTILINE)
"""What a call looks like that is typed in the text of an answer."""


def tool_faults(chat: Sequence[Message], format: Format) -> set[str]:
    """Return what is wrong with the results of a chat and its calls."""
    faults, made, waiting, before = set[str](), set[str](), set[str](), _Turn("", [], None, "")
    for is_result, run in groupby(turns(chat, format), lambda turn: turn.letter == "t"):
        if not is_result:
            for turn in run:
                ids = [call.get("id") for call in turn.calls]
                if not turn.calls and (
                    waiting or (before.letter == turn.letter == "a" and any(call.get("id") is None for call in before.calls))
                ):
                    faults.add("unanswered_tool_call")
                made.update(filter(None, ids))
                waiting.update(filter(None, ids))
                before = turn
            continue
        answered = [turn.result_of for turn in run]
        calls = before.calls or _written(before, format)
        if before.letter != "a" or not (calls or TYPED.search(before.text)):
            faults.add("role_order")
        asked = [call.get("id") for call in calls]
        if made and {*answered} - made - {None}:
            faults.add("unknown_tool_call")
        if None in answered and calls and len(answered) not in (1, len(calls)):
            faults.add("unknown_tool_call" if len(answered) > len(calls) else "unanswered_tool_call")
        if None not in (*asked, *answered) and {*asked} & {*answered} and {*asked} - {*answered}:
            faults.add("unanswered_tool_call")
        waiting = set() if None in answered else waiting - {*answered}
        before = _Turn("t", [], None, "")
    return faults


def _of_tools(reason: str) -> Callable[[Row, Format], bool]:
    def rule(row: Row, format: Format) -> bool:
        return any(reason in tool_faults(chat, format) for chat in chats(row, format) if _has_tools(chat, format))

    return rule


def _has_tools(chat: Sequence[Message], format: Format) -> bool:
    """Whether a chat has calls or results."""
    return "t" in letters(chat, format) or any(_called(message, format) for message in chat)


result_without_call, unknown_result, missing_result = map(_of_tools, ("role_order", "unknown_tool_call", "unanswered_tool_call"))


def not_offered(row: Row, format: Format) -> bool:
    """A tool is called that is not on offer."""
    listed = [row, *(message for chat in chats(row, format) for message in chat)]
    options = row.get("chat_template_kwargs")
    options = parsed(options) if isinstance(options, str) and options.strip() else options
    tools: list[Any] = []
    for each in listed:
        given = next((each[key] for key in (str(format.options.get("tools_key")), *_TOOLS) if each.get(key)), None)
        given = parsed(given) if isinstance(given, str) and given.strip() else given
        tools = tools or ([given] if isinstance(given, Mapping) else given or [])
    functions = [tool["function"] if isinstance(tool.get("function"), Mapping) else tool for tool in tools]
    names = {function.get("name") for function in functions} | {*((options or {}).get("builtin_tools") or ())}
    if not functions or None in names:
        return False
    asked = [call for chat in chats(row, format) for message in chat for call in _called(message, format)]
    for chat in chats(row, format):
        for turn, behind in pairwise(turns(chat, format)):
            asked += _written(turn, format) if turn.letter == "a" and behind.letter == "t" and not turn.calls else []
    return any((call.get("function") or call)["name"] not in names for call in asked)


_TOOLS = ("tools", "functions", "available_tools")


# What neutral fields say.

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
    """Numbers of objects, or times of messages, descend in a list."""
    for objects in _lists(row):
        for key in ("index", "idx", *(_TIMES if any(name in objects[0] for name in ("role", "from")) else ())):
            values = [each[key] for each in objects if each.get(key) not in (None, "", [], {})]
            with suppress(TypeError, ValueError):
                numbers = [value if type(value) in (int, float) else datetime.fromisoformat(value) for value in values]
                if any(later < earlier for earlier, later in pairwise(numbers)):
                    return True
    return False


def mixed(row: Row, format: Format) -> bool:
    """A row names two conversations, prompts or questions."""
    found: dict[str, set[str]] = {}
    stack: list[Any] = [row]
    while stack:
        value = stack.pop()
        stack += value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        for key in ("conversation_id", "prompt_id", "question_id") if isinstance(value, Mapping) else ():
            if value.get(key) not in (None, "", [], {}):
                found.setdefault(key, set()).add(str(value[key]))
    return any(len(values) > 1 for values in found.values())


# What must agree.


def _objects(row: Row, format: Format) -> Iterator[Row]:
    """Yield a row, its messages and their parts."""
    yield row
    for chat in chats(row, format):
        for message in chat:
            yield message
            content = message.get(format.options.get("content_key", "content"))
            yield from (part for part in (content if isinstance(content, list) else ()) if isinstance(part, Mapping))


def several_weights(row: Row, format: Format) -> bool:
    """Two weights of one object differ."""
    return any(
        len({float(each[key]) for key in WEIGHTS if isinstance(each.get(key), bool | int | float)}) > 1 for each in _objects(row, format)
    )


def several_thoughts(row: Row, format: Format) -> bool:
    """Two spellings of an object's reasoning differ."""
    for each in _objects(row, format):
        texts = {each[key] for key in REASONING if isinstance(each.get(key), str) and each[key]}
        if isinstance(each.get("reasoning_details"), list) and each["reasoning_details"]:
            texts.add(
                "".join(
                    part.get("text") if part.get("type") == "reasoning.text" else part.get("summary") for part in each["reasoning_details"]
                )
            )
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
    for each in _objects(row, format):
        held = [each[key] for key in _HELD_UNDER.get(str(each.get("type")), ()) if each.get(key) is not None]
        if any(value != held[0] for value in held[1:]):
            return True
    return False


def several_systems(row: Row, format: Format) -> bool:
    """A chat begins with another system prompt than that of its column."""
    key = format.options.get("system_key", "system")
    column = row.get(key) if isinstance(key, str) else None
    if not isinstance(column, str) or not column.strip():
        return False
    first = next((chat for chat in chats(row, format) if chat), ())
    return letters(first[:1], format) == "s" and _shown(first[0], format) != column


def _texts(message: Message, format: Format) -> list[str]:
    """Return the texts of a message: its refusal or content, or those of its parts."""
    content = message.get("refusal") or message.get(format.options["content_key"])
    if isinstance(content, list):
        return [
            next(part[key] for key in ("text", "value") if part.get(key) is not None) for part in content if part["type"] in _TEXT_PARTS
        ]
    return [content] if isinstance(content, str) else []


def _shown(message: Message, format: Format) -> str:
    return "".join(_texts(message, format))


# Files.


def miscounted(kind: str) -> Rule:
    """Return a rule: a place in the messages has no file in the column, or a file no place."""

    def rule(row: Row, format: Format) -> bool:
        key, column = format.options.get(f"{kind}s_key"), _under(row, format, f"{kind}s_key")
        if column is None and key == f"{kind}s" and row.get(kind) is not None:
            column = row[kind] or []
        mark = "" if column is None else format.options.get("image_token", "<image>") if kind == "image" else f"<{kind}>"
        files = len(column) if isinstance(column, list) else int(column is not None)
        taken: list[int] = []
        for chat in chats(row, format, _WITH_FILES):
            for place in (place for message in chat for place in _placed(message, kind, mark, format)):
                taken.append(len(taken) if place is None else place)
        beside = (
            place
            for chat in chats(row, format, _CHATS[len(_WITH_FILES) :])
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


def llava_places(row: Row, format: Format) -> bool:
    """Marks of images stand elsewhere than in questions, are several of one image, or as many as the images are not."""
    image, mark = _under(row, format, "image_key"), format.options["image_token"]
    counts = [
        (role, message[format.options["content_key"]].count(mark))
        for chat in chats(row, format)
        for message, role in zip(chat, letters(chat, format), strict=True)
    ]
    if any(count and role != "u" for role, count in counts):
        return True
    placed = sum(count for _, count in counts)
    if isinstance(image, list):
        return bool(placed != len(image))
    return any(count > 1 for _, count in counts) or bool(placed) != (image is not None)


# Sides of a pair.


def _sides(row: Row, format: Format) -> tuple[Any, Any]:
    better, worse = (_under(row, format, option) for option in ("chosen_key", "rejected_key"))
    if better is None and format.name == "alpaca_pairwise":
        better, worse = row["output"]
    if format.options.get("response"):
        worse = worse[0] if isinstance(worse[0], str) and isinstance(worse, list) else worse
        end = max(letters(better, format).rfind(letter) for letter in "su?t") + 1
        worse = [*better[:-1], {"role": "assistant", "content": worse}] if isinstance(worse, str) else [*better[:end], *worse]
    if isinstance(better, list) and isinstance(worse, list):
        return better, worse
    return tuple([side] if isinstance(side, Mapping) else side for side in (better, worse))  # type: ignore[return-value]


def _says(message: Message, format: Format) -> tuple[Any, ...]:
    """Return what a message says for certain, in any spelling: its role, name, text, and the number of its calls."""
    return (
        letters([message], format),
        message.get("name"),
        message.get("tool_call_id"),
        _shown(message, format),
        len(_called(message, format)),
    )


def equal_sides(row: Row, format: Format) -> bool | None:
    """Both answers are the same; of messages, whose spelling may differ, only what they say for certain is compared."""
    better, worse = _sides(row, format)
    if isinstance(better, str):
        strip = format.options.get("strip") or format.name in ("hh", "dpo_read_hook")
        return bool(better.strip() == worse.strip() if strip else better == worse)
    if better == worse:
        return True
    return None if _same(better, worse, format) else False


def _same(better: Sequence[Message], worse: Sequence[Message], format: Format) -> bool:
    return len(better) == len(worse) and all(_alike(first, second, format) for first, second in zip(better, worse, strict=True))


def _alike(first: Message, second: Message, format: Format) -> bool:
    """Whether two messages say the same for certain."""
    if first == second:
        return True
    content = format.options["content_key"]
    one, other = first.get(content), second.get(content)
    if (
        one != other
        and isinstance(one, str)
        and isinstance(other, str)
        and first.keys() == second.keys() == {format.options["role_key"], content}
    ):
        return False
    return _says(first, format) == _says(second, format)


def other_prompts(row: Row, format: Format) -> bool | None:
    """Two chats first differ in a turn that is no answer."""
    better, worse = _sides(row, format)
    if not isinstance(better, list):
        return None
    for first, second in zip_longest(better, worse):
        if first != second:
            if first and second and _alike(first, second, format):
                return None
            return any(each is not None and letters([each], format) != "a" for each in (first, second))
    return False


def nothing_before(row: Row, format: Format) -> bool | None:
    """Two chats have no common beginning, or none with words."""
    better, worse = _sides(row, format)
    if _under(row, format, "prompt_key") is not None:
        prompt = _under(row, format, "prompt_key")
        return None if not isinstance(prompt, str) else not prompt.strip()
    return None if not better or not worse or _same(better[:1], worse[:1], format) else True


def no_side(row: Row, format: Format) -> bool | None:
    """A side has nothing behind the prompt."""
    better, worse = _sides(row, format)
    if isinstance(better, str):
        return None
    shorter = min(better, worse, key=len)
    return not shorter or _same(better[: len(shorter)], worse[: len(shorter)], format) or None


def _dialogues(row: Row, format: Format) -> list[list[str]]:
    """Return prompt and answer of both sides of an HH row, stripped."""
    return [
        [part.strip() for part in re.split("\n\nAssistant:(?!.*\n\nAssistant:)", side, flags=re.DOTALL)] for side in _sides(row, format)
    ]


def hh_prompts(row: Row, format: Format) -> bool:
    """The dialogues before the last answers differ."""
    (better, _), (worse, _) = _dialogues(row, format)
    return better != worse and format.options["prompt_check"] == "strict"


def hh_no_prompt(row: Row, format: Format) -> bool:
    """Nothing stands before the last answer."""
    (better, _), (worse, _) = _dialogues(row, format)
    return not better or not worse


def hh_no_answer(row: Row, format: Format) -> bool:
    """A last answer is empty, or one of the prompt where that is split into turns."""
    dialogues = _dialogues(row, format)
    return not all(answer for _, answer in dialogues) or (format.options["split_turns"] and hh_turns(row, format))


def hh_turns(row: Row, format: Format) -> bool:
    """Turns of a prompt that is split are empty, or text stands before the first."""
    if not format.options["split_turns"]:
        return False
    before, *turns = re.split(
        "\n\n(?:Human|Assistant):", re.split("\n\nAssistant:(?!.*\n\nAssistant:)", _sides(row, format)[0], flags=re.DOTALL)[0]
    )
    return bool(before.strip()) or not all(turn.strip() for turn in turns)


def hh_open(row: Row, format: Format) -> bool:
    """A dialogue ends with a person's turn."""
    return any("\n\nHuman:" in side[side.rindex("\n\nAssistant:") :] for side in _sides(row, format))


def hh_equal(row: Row, format: Format) -> bool:
    """Both last answers are the same."""
    (_, better), (_, worse) = _dialogues(row, format)
    return better == worse


def ultra_last(row: Row, format: Format) -> bool | None:
    """A side ends with an empty message, or with another's than the assistant."""
    sides = _sides(row, format)
    return None if sides[0] is None else any(side[-1]["role"] != "assistant" or not side[-1]["content"].strip() for side in sides)


def ultra_prompts(row: Row, format: Format) -> bool | None:
    """A side has other messages before its answer than the prompt."""
    sides, prompt = _sides(row, format), _under(row, format, "prompt_key")
    if sides[0] is None or format.options["prompt_check"] != "strict":
        return None
    return any([(each["role"], each["content"].strip()) for each in side[:-1]] != [("user", prompt.strip())] for side in sides)


def ultra_equal(row: Row, format: Format) -> bool | None:
    """Both sides end with the same text."""
    sides = _sides(row, format)
    return None if sides[0] is None else sides[0][-1]["content"].strip() == sides[1][-1]["content"].strip()


def ultra_margin(row: Row, format: Format) -> bool | None:
    """The scores of both sides are nearer to each other than the least margin."""
    least = format.options["min_margin"]
    if _sides(row, format)[0] is None:
        scores = sorted(each["overall_score"] for each in _under(row, format, "completions_key"))
        return bool(scores[-1] == scores[0] or scores[-1] - scores[0] < (least or 0))
    return least is not None and row["score_chosen"] - row["score_rejected"] < least


# Texts with marks.


def belle_turns(row: Row, format: Format) -> bool:
    """The turns are other than (person, assistant)+ with a text each but the last, whose text is the output."""
    marks = [format.options[key] for key in ("human_mark", "assistant_mark")]
    before, *parts = re.split(f"({'|'.join(map(re.escape, marks))})", _under(row, format, "instruction_key"))
    texts = [text.strip() for text in parts[1::2]]
    if f"\n{marks[0]}" in _under(row, format, "output_key"):
        return True
    return bool(before.strip()) or not texts or texts[-1] != "" or not all(texts[:-1]) or parts[::2] != marks * (len(texts) // 2)


def no_problem(row: Row, format: Format) -> bool:
    """Nothing stands before the first fence."""
    return not _under(row, format, "problem_key").split("```")[0].strip()


def more_problem(row: Row, format: Format) -> bool:
    """Text stands behind the code of a problem."""
    return bool("".join(_under(row, format, "problem_key").split("```")[2:]).strip())


def other_question(row: Row, format: Format) -> bool:
    """The first message is another text than the prompt."""
    return bool(_under(row, format, "completion_key")[0]["content"].strip() != _under(row, format, "prompt_key").strip())


# Numbers.


def no_json(row: Row, format: Format) -> bool | None:
    """A value has no place in JSON: a number that is not finite, a date, bytes. JSON Schema takes 2.0 for an integer."""
    try:
        return None if re.search("[0-9]\\.0(?![0-9])", json.dumps(row, allow_nan=False)) else False
    except (TypeError, ValueError, RecursionError):
        return True


def number(text: str) -> Fraction | None:
    """Return the number that a text is, as people write it; `None` for anything else."""
    plain = re.sub("^([+−-]?)\\$|^\\$([+−-])", r"\1\2", text).replace("−", "-").removesuffix(".")
    grouped = re.fullmatch("[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\\.[0-9]+)?", plain)
    plain = plain.replace(",", "") if grouped else plain
    return Fraction(plain) if re.fullmatch("[+-]?(?:[0-9]+(?:\\.[0-9]+)?|\\.[0-9]+)", plain) else None


def _solution(row: Row, format: Format) -> list[str]:
    """Return what stands before and behind each ``####`` of a worked answer; notes of a calculator are left out of an answer to train."""
    answer = _under(row, format, "answer_key")
    return (re.sub("<<[^>]*>>", "", answer) if format.name == "gsm8k" else answer).split("####")


def no_mark(row: Row, format: Format) -> bool:
    """A worked answer has no ``####``."""
    return len(_solution(row, format)) < 2


def no_number(row: Row, format: Format) -> bool:
    """What stands behind ``####`` is not one number."""
    parts = _solution(row, format)
    return len(parts) > 2 or (len(parts) > 1 and (len(parts[1].strip().splitlines()) > 1 or number(parts[1].strip()) is None))


def no_solution(row: Row, format: Format) -> bool:
    """Nothing stands before ``####``."""
    return not _solution(row, format)[0].strip()


def no_gold(row: Row, format: Format) -> bool:
    """A gold that must be a number is none."""
    gold, verifier = _under(row, format, "gold_key"), _under(row, format, "verifier_key") or format.options.get("verifier", "number")
    return isinstance(gold, str) and verifier == "number" and number(gold.strip()) is None


def no_gold_answer(row: Row, format: Format) -> bool:
    """A reference answer that must be a number is none."""
    if format.options["verifier"] != "number":
        return False
    answer = _under(row, format, "response_key")
    if answer is None:
        answer = _shown(next(chats(row, format))[-1], format)
    return number(answer.strip()) is None


_SUM = re.compile("What is (?:\\(([0-9]{1,18}) ([+*-]) ([0-9]{1,18})\\)|([0-9]{1,18})) ([+*-]) ([0-9]{1,18})\\?")
_DOES: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {"+": Fraction.__add__, "-": Fraction.__sub__, "*": Fraction.__mul__}


def no_sum(row: Row, format: Format) -> bool:
    """The question is no sum."""
    return not _SUM.fullmatch(_under(row, format, "prompt_key").strip())


def wrong_sum(row: Row, format: Format) -> bool:
    """The gold is not what the question comes to."""
    asked, gold = _SUM.fullmatch(_under(row, format, "prompt_key").strip()), _under(row, format, "gold_key")
    if asked is None:
        return False
    first = Fraction(asked[4]) if asked[4] else _DOES[asked[2]](Fraction(asked[1]), Fraction(asked[3]))
    said = number(gold.strip()) if isinstance(gold, str) else Fraction(gold)
    return said is not None and said != _DOES[asked[5]](first, Fraction(asked[6]))


# Lists.


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 1


def uneven(*options: str) -> Rule:
    """Return a rule: the arrays that these options name have different lengths."""

    def rule(row: Row, format: Format) -> bool:
        return len({_length(value) for option in options if (value := _under(row, format, option)) is not None}) > 1

    return rule


def group_lengths(row: Row, format: Format) -> bool:
    """A response has no reward, or a reward no response; what is said of each token is said of more or fewer tokens than there are."""
    if uneven("responses_key", "rewards_key", "ranks_key", "token_ids_key")(row, format):
        return True
    ids = [*map(len, _under(row, format, "token_ids_key") or ())]
    if any(
        (values := _under(row, format, option)) is not None and [*map(len, values)] != ids
        for option in ("logprobs_key", "sampled_mask_key")
    ):
        return True
    answers = [1 if isinstance(each, str) else letters(each, format).count("a") for each in _under(row, format, "responses_key")]
    turns = _under(row, format, "turn_rewards_key")
    return turns is not None and [*map(len, turns)] != answers


def no_chance(row: Row, format: Format) -> bool:
    """All log-probabilities of a response of eight tokens or more are 0."""
    return any(len(values) > 7 and not any(values) for values in _under(row, format, "logprobs_key") or ())


def _rewards(row: Row, format: Format) -> list[float]:
    ranks = _under(row, format, "ranks_key")
    return [-rank for rank in ranks] if ranks is not None else _under(row, format, "rewards_key")


def one_reward(row: Row, format: Format) -> bool | None:
    """All rewards are equal."""
    needed = format.name == "group_pair" or format.options.get("desirable_from") is None
    return needed and len(set(map(float, _rewards(row, format)))) == 1


def one_response(row: Row, format: Format) -> bool:
    """There is one response, where an order is needed."""
    return len(_under(row, format, "responses_key")) < 2 and format.options.get("desirable_from") is None


def near_rewards(row: Row, format: Format) -> bool:
    """The best and the worst reward differ by less than the least margin."""
    rewards, least = _rewards(row, format), format.options["min_margin"]
    return least is not None and float(max(rewards)) - float(min(rewards)) < least


def tied_rewards(row: Row, format: Format) -> bool:
    """Rewards that decide are equal, and rows with ties are refused."""
    rewards = [*map(float, _rewards(row, format))]
    if format.options["ties"] != "refuse":
        return False
    if format.name == "group_list":
        return len({*rewards}) < len(rewards)
    return any(rewards.count(extreme) > 1 for extreme in (max(rewards), min(rewards)))


def low_rewards(row: Row, format: Format) -> bool:
    """No reward is as large as the least one."""
    least = format.options["at_least"]
    return least is not None and max(_rewards(row, format)) < least


def several_turns(row: Row, format: Format) -> bool:
    """A response has several turns."""
    return any(isinstance(each, list) and len(each) > 1 for each in _under(row, format, "responses_key"))


def image_or_text(row: Row, format: Format) -> bool:
    """At some position both of image and text stand, or neither."""
    images, texts = (_under(row, format, option) for option in ("images_key", "texts_key"))
    return len(images) == len(texts) and any((image is None) == (text is None) for image, text in zip(images, texts, strict=True))


def nothing_interleaved(row: Row, format: Format) -> bool:
    """There is neither an image nor a text with words."""
    return not any(_under(row, format, "images_key")) and not any(text and text.strip() for text in _under(row, format, "texts_key"))


def several_fields(row: Row, format: Format) -> bool:
    """Two spellings of one field are there."""
    spellings = (("query_key", QUERIES), ("positive_key", POSITIVES))
    return any(format.options[option] is None and sum(row.get(key) is not None for key in keys) > 1 for option, keys in spellings)


QUERIES = ("query", "anchor", "question", "ques")
POSITIVES = ("positive", "positives", "pos", "context_positive", "positive_passages", "positive_ctxs")
