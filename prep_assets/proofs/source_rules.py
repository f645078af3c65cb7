"""Rules of columns: what becomes of the value of a column of texts, of a pair, or of several answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any

from prep_assets.proofs.formats import definition_of
from prep_assets.proofs.source_fields import as_text, by_message, json_leaves, rule, worked_pieces
from prep_assets.proofs.source_rows import Walk
from prep_assets.proofs.source_texts import ANSWERS, CALL, EXACT, Said
from prep_assets.samples import Row


@rule
def text(walk: Walk, value: Any, role: str, path: str) -> None:
    """Strings stand verbatim, several end to end; messages are read as messages; of numbers the decimals stand."""
    value = as_text(by_message(value))
    if isinstance(value, Mapping):
        value = [value] if _is_message(walk, value) else [*value.values()]
    if isinstance(value, list | tuple):
        if value and all(_is_message(walk, each) for each in value):
            walk.chat(value, role, path)
            return
        for number, each in enumerate(value):
            if isinstance(each, list | tuple | Mapping) or role == "responses":
                text(walk, each, f"{role}[{number}]" if role == "responses" else role, path)
                walk.turn += 1
            elif isinstance(each, str):
                walk.say(each, role, path)
        return
    if isinstance(value, bool):
        return
    walk.say(value if isinstance(value, str) else str(value), role, path)
    walk.turn += 1


@rule
def unless_sampled(walk: Walk, value: Any, role: str, path: str) -> None:
    """Texts, unless the row has the ids that a model was given or wrote, which `sampled_ids` compares."""
    if walk.options.get("token_ids_key" if role == "responses" else "prompt_ids_key") is None:
        text(walk, value, role, path)


def _is_message(walk: Walk, value: Any) -> bool:
    return isinstance(value, Mapping) and any(key in value for key in (*walk.reading.role_keys, *walk.reading.content_keys))


@rule
def value(walk: Walk, value: Any, role: str, path: str) -> None:
    """The value is that of a field of the line."""
    walk.said.append(Said(path, role, walk.turn, EXACT, json.dumps(value)))


@rule
def gold(walk: Walk, value: Any, role: str, path: str) -> None:
    """The value is the gold: the same text, or the same number."""
    walk.said.append(Said(path, role, walk.turn, EXACT, json.dumps(value)))


@rule
def final(walk: Walk, value: Any, role: str, path: str) -> None:
    """All that stands behind ``####`` is the gold; what stands before it is no part of a prompt."""
    walk.said.append(Said(path, role, walk.turn, EXACT, json.dumps(re.sub(r"<<[^>]*>>", "", value).partition("####")[2].strip())))


@rule
def worked(walk: Walk, value: Any, role: str, path: str) -> None:
    """Calculator notes ``<<…>>`` and marks ``####`` are left out; all other text stands."""
    for piece in worked_pieces(value):
        walk.say(piece, role, path)


@rule
def told(walk: Walk, value: Any, role: str, path: str) -> None:
    """What a verifier is told: all strings and numbers stand in its arguments."""
    for leaf in json_leaves(json.loads(value) if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"') else value):
        walk.said.append(Said(path, role, walk.turn, CALL, leaf))


@rule
def exchanges(walk: Walk, value: Any, role: str, path: str) -> None:
    """Earlier questions and answers in pairs."""
    for asked, answered in value:
        for whose, each in (("user", asked), ("assistant", answered)):
            walk.say(each, whose, path)
            walk.turn += 1


@rule
def better_and_worse(walk: Walk, value: Any, role: str, path: str) -> None:
    """Two answers in an array, the better one first, where no other columns have them."""
    if walk.row.get(_key(walk, "chosen")) is None and isinstance(value, list):
        for whose, each in zip(ANSWERS, value, strict=False):
            walk.say(each, whose, path)
            walk.turn += 1


@rule
def with_better(walk: Walk, value: Any, role: str, path: str) -> None:
    """Messages that end with the better answer, where another column has the worse one."""
    if not walk.row.get("chosen") and (walk.row.get("rejected_messages") or walk.row.get("rejected_response")):
        text(walk, value, role, path)


@rule
def other_answer(walk: Walk, value: Any, role: str, path: str) -> None:
    """The worse answer to the prompt of ``messages``: a text, an array of one text, or messages."""
    messages = by_message(walk.row["messages"])
    texts = [value] if isinstance(value, str) else value if value and isinstance(value[0], str) else None
    last = max((at + 1 for at, message in enumerate(messages) if walk._role(message) != "assistant"), default=0)
    text(walk, messages[:-1] if texts else messages[:last], role, "messages")
    text(walk, texts or value, role, path)


@rule
def before_code(walk: Walk, value: Any, role: str, path: str) -> None:
    """The text before a block of code, which stands in another column."""
    walk.say(value.partition("```")[0], role, path)
    walk.turn += 1


@rule
def common(walk: Walk, value: str, role: str, path: str) -> None:
    """Words, each with the white space before it: common ones are not trained, all others are."""
    words = walk.options.get("words", definition_of("common_words_mask")["x-options"]["words"])
    for is_common, run in groupby(re.split(r"(?<=\S)(?=\s)", value), key=lambda word: word.strip() in words):
        walk.say("".join(run), role, path, weight=float(not is_common))


@rule
def second(walk: Walk, value: Any, role: str, path: str) -> None:
    """The second message is the answer, the first repeats the prompt; later ones are refused or left out."""
    common(walk, value[1]["content"], role, path)


@rule
def answered(walk: Walk, value: Any, role: str, path: str) -> None:
    """The last message is the gold, those before it are the prompt."""
    last = value[-1]
    walk.chat(value, role, path, earlier=True)
    key = next(key for key in walk.reading.content_keys if last.get(key) is not None)
    walk.said.append(Said(f"{path}.{key}", "gold", walk.turn, EXACT, json.dumps(last[key])))


_TURN_MARKS = ("\n\nHuman:", "\n\nAssistant:")


def _split(walk: Walk, value: str, defaults: Sequence[str] = _TURN_MARKS) -> list[tuple[str, str]]:
    """Split a text at the marks of its turns into role and text of each."""
    human, assistant = (walk.options.get(key) for key in ("human_mark", "assistant_mark"))
    marks = [walk.options.get("user_mark") or human or defaults[0], assistant or defaults[1]]
    parts = re.split("(" + "|".join(map(re.escape, marks)) + ")", value)
    return [("assistant" if mark == marks[1] else "user", each) for mark, each in zip(parts[1::2], parts[2::2], strict=True)]


@rule
def marked(walk: Walk, value: str, role: str, path: str) -> None:
    """Turns in one text, each behind a mark. Of a side the last one is the answer."""
    turns = _split(walk, value, _TURN_MARKS if role in ANSWERS else ("Human:", "Assistant:"))
    if role in ANSWERS and walk.options.get("prompt_check") == "chosen" and role == "rejected":
        turns = turns[-1:]
    for whose, each in turns:
        walk.say(each, role if role in ANSWERS else whose, path)
        walk.turn += 1


@rule
def marked_prompt(walk: Walk, value: Any, role: str, path: str) -> None:
    """A prompt, with marks before its turns where the options say so."""
    if walk.options.get("marked_prompt"):
        for whose, each in _split(walk, value):
            walk.say(each, whose, path)
            walk.turn += 1
    else:
        text(walk, value, role, path)


@rule
def side(walk: Walk, value: Any, role: str, path: str) -> None:
    """An answer; without a prompt the whole dialogue, whose beginning is the prompt. Which of two answers is better, a verdict may say."""
    if role in ("first", "second"):
        verdict = walk.row.get(str(walk.options.get("verdict_key", "overall_preference")))
        first = verdict < 0 if isinstance(verdict, int | float) else verdict in _FIRST
        walk.answers = {"first": "chosen", "second": "rejected"} if first else {"first": "rejected", "second": "chosen"}
        role = walk.answers[role]
    if isinstance(value, str) and walk.row.get(str(walk.options["prompt_key"])) is None:
        marked(walk, value, role, path)
    else:
        text(walk, value, role, path)


_FIRST = ("model_a", "a", "A", "response_a", "response_1", "1", "first")


@rule
def cut(walk: Walk, value: Any, role: str, path: str) -> None:
    """An answer; without a prompt a text that is cut behind its last mark of an assistant."""
    if not isinstance(value, str) or walk.options.get("prompt_key") is not None:
        text(walk, value, role, path)
        return
    marks = list(
        re.finditer(re.escape(walk.options.get("assistant_role", "assistant:")), str(walk.row[_key(walk, "chosen")]), re.IGNORECASE)
    )
    for piece in (value[: marks[-1].end()], value[marks[-1].end() :]):
        walk.say(piece, role, path)
        walk.turn += 1


def _key(walk: Walk, name: str) -> str:
    return str(walk.options.get(f"{name}_key", name))


@rule
def answer(walk: Walk, value: Any, role: str, path: str) -> None:
    """Messages that end with the answer; where the prompt's column counts alone, the answer alone."""
    walk.chat(value[-1:] if walk.options.get("prompt_check") == "column" else value, role, path)


@rule
def rated(walk: Walk, value: Any, role: str, path: str) -> None:
    """Completions with scores: where no answer is named, the one that scores most is chosen, the one that scores least is rejected."""
    if walk.row.get(_key(walk, "chosen")) is not None or not value:
        return
    for whose, each in (("chosen", max(value, key=_score)), ("rejected", min(value, key=_score))):
        walk.say(each["response"], whose, path)
        walk.turn += 1


def _score(completion: Row) -> float:
    return float(completion["overall_score"])


def _ranked(walk: Walk) -> list[Fraction]:
    """The rewards of responses, exactly; of ranks the negative."""
    ranks = walk.options.get("ranks_key")
    listed = walk._found(str(ranks or walk.options.get("rewards_key", "rewards")))
    rewards = [Fraction(str(reward)) for reward in listed]
    return [-reward for reward in rewards] if ranks else rewards


def _responses(walk: Walk, value: Sequence[Any], order: Sequence[int], roles: Sequence[str], path: str) -> None:
    for number, role in zip(order, roles, strict=True):
        text(walk, value[number], role, path)
        walk.turn += 1


@rule
def best(walk: Walk, value: Any, role: str, path: str) -> None:
    """The response with the largest reward, of equal ones the first, is the answer."""
    rewards = _ranked(walk)
    _responses(walk, value, [rewards.index(max(rewards))], ["assistant"], path)


@rule
def best_and_worst(walk: Walk, value: Any, role: str, path: str) -> None:
    """The response with the largest reward is chosen, the one with the smallest rejected; of equal ones the first."""
    rewards = _ranked(walk)
    _responses(walk, value, [rewards.index(choose(rewards)) for choose in (max, min)], ANSWERS[:2], path)


@rule
def ordered(walk: Walk, value: Any, role: str, path: str) -> None:
    """All responses and their rewards, the best first; equal ones in the order of the row."""
    rewards = _ranked(walk)
    order = sorted(range(len(rewards)), key=lambda number: -rewards[number])
    _responses(walk, value, order, [f"responses[{number}]" for number in range(len(order))], path)
    walk.said.append(Said(path, "rewards", walk.turn, EXACT, json.dumps([float(rewards[number]) for number in order])))


@rule
def labelled(walk: Walk, value: Any, role: str, path: str) -> None:
    """Each response with its label, apart from those that are neither good nor bad."""
    rewards, least = _ranked(walk), walk.options.get("desirable_from")
    border = sum(rewards) / len(rewards) if least is None else Fraction(str(least))
    kept = [number for number, reward in enumerate(rewards) if least is not None or reward != border]
    _responses(walk, value, kept, [f"responses[{number}]" for number in range(len(kept))], path)
    for number, response in enumerate(kept):
        walk.said.append(Said(path, f"label[{number}]", walk.turn, EXACT, json.dumps(rewards[response] >= border)))


@rule
def joined(walk: Walk, value: Any, role: str, path: str) -> None:
    """Steps of one response."""
    for step in value:
        walk.say(step, "responses[0]", path)


@rule
def shepherd(walk: Walk, value: str, role: str, path: str) -> None:
    """A question, and steps behind ``Step 1:``, each with a tag at its end."""
    question, first, steps = value.partition("Step 1:")
    walk.say(question, role, path)
    walk.turn += 1
    joined(walk, (first + steps).split(str(walk.options.get("tag", "ки"))), role, path)


@rule
def rated_steps(walk: Walk, value: Row, role: str, path: str) -> None:
    """Of each step the completion that was chosen; the first one of a step in which none was, which is the last."""
    steps = list[str]()
    for step in value["steps"]:
        chosen = step.get("chosen_completion")
        steps.append(step["completions"][chosen or 0]["text"])
        if chosen is None:
            break
    joined(walk, steps, role, f"{path}.steps")
