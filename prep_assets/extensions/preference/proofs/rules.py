"""Rules about rows of pairs and labelled answers: what must differ, what must agree, and what becomes of columns with answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile, zip_longest
from typing import Any

from prep_assets.proofs.formats import Format
from prep_assets.proofs.row_rules import Message, Rule, called, letters, open_prompt, result_without_call, roles, shown, under
from prep_assets.proofs.source_fields import by_message
from prep_assets.proofs.source_rows import Walk
from prep_assets.proofs.source_rules import key_of, marked, text
from prep_assets.proofs.source_texts import ANSWERS, EXACT, Said
from prep_assets.samples import Row

# Sides of a pair.


def _sides(row: Row, format: Format) -> tuple[Any, Any]:
    better, worse = (under(row, format, option) for option in ("chosen_key", "rejected_key"))
    if better is None and format.name == "alpaca_pairwise":
        better, worse = row["output"]
    if format.options.get("response"):
        worse = worse[0] if isinstance(worse[0], str) and isinstance(worse, list) else worse
        end = max(letters(better, format).rfind(letter) for letter in "su?t") + 1
        worse = [*better[:-1], {"role": "assistant", "content": worse}] if isinstance(worse, str) else [*better[:end], *worse]
    if _is_marked(row, format):
        return tuple([dict(zip(("role", "content"), each, strict=True)) for each in _marked(side, format)[1]] for side in (better, worse))  # type: ignore[return-value]
    if isinstance(better, list) and isinstance(worse, list):
        return better, worse
    return tuple([side] if isinstance(side, Mapping) else side for side in (better, worse))  # type: ignore[return-value]


def _is_marked(row: Row, format: Format) -> bool:
    """Whether the sides are texts in which marks begin turns, those of the prompt as well."""
    sides = (under(row, format, option) for option in ("prompt_key", "chosen_key", "rejected_key"))
    return format.name in ("preference", "compared") and [*map(type, sides)] == [type(None), str, str]


def _marked(text: str, format: Format) -> tuple[str, list[tuple[str, str]]]:
    """What stands before the first mark of a text, and roles and texts of the turns behind marks."""
    marks = [format.options.get(f"{role}_mark", f"\n\n{name}:") for role, name in (("user", "Human"), ("assistant", "Assistant"))]
    before, *rest = re.split(f"({'|'.join(map(re.escape, marks))})", text)
    roles = ["user" if mark == marks[0] else "assistant" for mark in rest[::2]]
    return before, [*zip(roles, map(str.strip, rest[1::2]), strict=True)]


def marked_is(reason: str) -> Rule:
    """Return a rule: in a text with marks, words stand before the first one, or nothing behind one of a user, or of an assistant; the last one of a prompt may
    open an answer."""

    def rule(row: Row, format: Format) -> bool:
        key = under(row, format, "prompt_key") if format.options.get("marked_prompt") else None
        texts = [key] if key is not None else [under(row, format, f"{side}_key") for side in ANSWERS[:2]] if _is_marked(row, format) else []
        found = set[str]()
        for text in texts:
            before, turns = _marked(text, format)
            turns = turns[:-1] if key is not None and turns[-1:] == [("assistant", "")] else turns
            found |= {"empty_turn" if role == "user" else "empty_answer" for role, said in turns if not said}
            found |= {"leading_text"} if before.strip() else set()
        return reason in found

    return rule


def _says(message: Message, format: Format) -> tuple[Any, ...]:
    """Return what a message says for certain, in any spelling: its role, name, text, and the number of its calls."""
    named = message.get("name"), message.get("tool_call_id")
    return letters([message], format), *named, shown(message, format), len(called(message, format))


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
    one, other, plain = first.get(content), second.get(content), {format.options["role_key"], content}
    if one != other and isinstance(one, str) and isinstance(other, str) and first.keys() == second.keys() == plain:
        return False
    return _says(first, format) == _says(second, format)


def other_prompts(row: Row, format: Format) -> bool | None:
    """Two chats first differ in a turn that is no answer. Beside a prompt, either may leave it out."""
    better, worse = _sides(row, format)
    if not isinstance(better, list):
        return None
    if under(row, format, "prompt_key") is not None and len({letters(side[:1], format) == "a" for side in (better, worse)}) > 1:
        return None
    for first, second in zip_longest(better, worse):
        if first != second:
            if first and second and _alike(first, second, format):
                return None
            return any(each is not None and letters([each], format) != "a" for each in (first, second))
    return False


def pair_order(row: Row, format: Format) -> bool | None:
    """The order of a pair: none of texts is wrong, nor is one of chats that alternate, end with an answer, and first differ in one."""
    sides, prompt = _sides(row, format), under(row, format, "prompt_key")
    prompt = [prompt] if isinstance(prompt, Mapping) else prompt
    if not all(isinstance(side, list) for side in sides):
        return None if any(isinstance(side, list) for side in sides) or isinstance(prompt, list) else False
    if isinstance(prompt, str):
        repeated = [letters(side[:1], format) == "u" and shown(side[0], format) == prompt for side in sides]
        before: Sequence[Message] = [{format.options["role_key"]: "user"}]
    else:
        begin = len(prompt) if prompt else sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(*sides, strict=False)))
        before, repeated = sides[0][:begin] if prompt is None else prompt, [side[:begin] == prompt for side in sides]
    begin = len(before)
    answers = [side[begin:] if prompt is None or repeats else side for side, repeats in zip(sides, repeated, strict=True)]
    right = re.fullmatch("s?(?:ua)*u", letters(before, format)) and all(re.fullmatch("a(?:ua)*", letters(each, format)) for each in answers)
    return False if right else None


def no_sides(row: Row, format: Format) -> bool | None:
    """A side is not there, or has no message."""
    sides = _sides(row, format)
    return None if None in sides else [] in sides


def nothing_before(row: Row, format: Format) -> bool | None:
    """Two chats have no common beginning, or none with words."""
    better, worse = _sides(row, format)
    if under(row, format, "prompt_key") is not None:
        prompt = under(row, format, "prompt_key")
        return None if not isinstance(prompt, str) else not prompt.strip()
    if not better or not worse or _same(better[:1], worse[:1], format):
        return False if _is_marked(row, format) else None
    return True


def no_side(row: Row, format: Format) -> bool | None:
    """A side has nothing behind the prompt."""
    better, worse = _sides(row, format)
    if isinstance(better, str):
        return None
    shorter = min(better, worse, key=len)
    if not shorter or (len(better) != len(worse) and _same(better[: len(shorter)], worse[: len(shorter)], format)):
        return True
    return marked_is("empty_answer")(row, format) if _is_marked(row, format) else None


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


# The order of roles.


def labelled_order(row: Row, format: Format) -> bool:
    """A labelled chat does not end with its answer."""
    chat = under(row, format, "messages_key")
    if isinstance(chat, list):
        return letters(chat, format)[-1:] != "a" or result_without_call(row, format)
    return open_prompt(row, format)


def pairwise_order(row: Row, format: Format) -> bool:
    """The prompt of a pair is other than system?, (user or results), (assistant, (user or results))*."""
    prompt = under(row, format, "messages_key")
    return not re.fullmatch("s?[ut](?:a[ut])*", roles(prompt, format)) or result_without_call(row, format)


# What becomes of a column.


def better_and_worse(walk: Walk, value: Any, role: str, path: str) -> None:
    """Two answers in an array, the better one first, where no other columns have them."""
    if walk.row.get(key_of(walk, "chosen")) is None and isinstance(value, list):
        for whose, each in zip(ANSWERS, value, strict=False):
            walk.say(each, whose, path)
            walk.turn += 1


def with_better(walk: Walk, value: Any, role: str, path: str) -> None:
    """Messages that end with the better answer, where another column has the worse one."""
    if not walk.row.get("chosen") and (walk.row.get("rejected_messages") or walk.row.get("rejected_response")):
        text(walk, value, role, path)


def other_answer(walk: Walk, value: Any, role: str, path: str) -> None:
    """The worse answer to the prompt of ``messages``: a text, an array of one text, or messages."""
    messages = by_message(walk.row["messages"])
    texts = [value] if isinstance(value, str) else value if value and isinstance(value[0], str) else None
    last = max((at + 1 for at, message in enumerate(messages) if walk._role(message) != "assistant"), default=0)
    text(walk, messages[:-1] if texts else messages[:last], role, "messages")
    text(walk, texts or value, role, path)


def side(walk: Walk, value: Any, role: str, path: str) -> None:
    """An answer; without a prompt the whole dialogue, whose beginning is the prompt. Which of two answers is better, a verdict may say."""
    if role in ("first", "second"):
        verdict = walk.row.get(str(walk.options.get("verdict_key", "overall_preference")))
        first = verdict < 0 if isinstance(verdict, int | float) else verdict in _FIRST
        if walk.options.get("margin") and role == "first" and isinstance(verdict, int | float):
            walk.said.append(Said(path, "margin", walk.turn, EXACT, json.dumps(abs(verdict))))
        role = "chosen" if first == (role == "first") else "rejected"
    if isinstance(value, str) and walk.row.get(str(walk.options["prompt_key"])) is None:
        marked(walk, value, role, path)
    else:
        text(walk, value, role, path)


_FIRST = ("model_a", "a", "A", "response_a", "response_1", "1", "first")
