"""RL: gold answers, ``rl_prompt``, ``arithmetic`` and ``group``."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from msgspec import Struct

from prep_assets.errors import ConfigError, Refused, require_known
from prep_assets.extensions.rl.verifiers import BAD, CODE, FORMS, OTHER_LANGUAGES, json_of
from prep_assets.samples import ASSISTANT, SYSTEM, USER, Group, Prompt, Row, Sampled, Turn, changed, turn
from prep_assets.schemas.fields import as_integer, as_list, as_number, as_text, needed, text_of, value_at, whole, wrong_type
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import ChatFormat, offered, require_answer, require_json, require_open_end, with_system_of
from prep_assets.stores.files import loads

T = TypeVar("T")


# Gold answers: numbers as exact decimal strings.
#
# A reward is only as good as its gold, so nothing is guessed: a record without an unambiguous number is rejected.

MARK = "####"
# sign and dollar sign in either order; digits plain or in well-formed groups of three; decimals
_NUMBER = re.compile(r"(?:([+\-−])?\$?|\$([+\-−]))([0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)?(\.[0-9]+)?\.?")


def gold_number(answer: str) -> str:
    """The number after ``####`` of a GSM8K answer, as an exact decimal string such as ``"1234"`` or ``"-0.50"``.

    What follows the mark must be the number and nothing else. Thousands separators and ``$`` are taken away.

    Raises:
        Refused: ``no_gold`` without the mark, ``bad_gold`` without a number after it.
    """
    return plain_number(final_text(answer))


def final_text(answer: str) -> str:
    """The text after ``####``, stripped.

    Raises:
        Refused: ``no_gold`` without the mark; ``bad_gold`` with two, or with more than a line behind it, which would be lost.
    """
    _, mark, after_mark = answer.partition(MARK)
    if not mark:
        raise Refused("no_gold", f"the answer has no {MARK!r}; it ends {answer[-60:]!r}")
    text = after_mark.strip()
    if MARK in text or len(text.splitlines()) > 1:
        raise Refused("bad_gold", f"more than one line stands behind {MARK!r}: {text[:60]!r}")
    return text


def plain_number(text: str) -> str:
    """`text`, one number as people write it, as an exact decimal string.

    Raises:
        Refused: ``bad_gold`` for anything else: ``1/2``, ``50%``, ``1e5``, ``5-3``, ``1,2,3``.
    """
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[3] or match[4]):
        raise Refused("bad_gold", f"{text[:60]!r} is not one plain number")
    digits = (match[3] or "0").replace(",", "") + (match[4] or "")
    negative = (match[1] or match[2] or "+") != "+" and any(digit in "123456789" for digit in digits)
    return format(Decimal(f"-{digits}" if negative else digits), "f")


def gold_of_number(value: int | float) -> str:
    """A JSON number as an exact decimal string: ``18.0`` is ``"18"``, ``0.1`` is ``"0.1"`` (the shortest decimal that is this float).

    Raises:
        Refused: ``bad_gold`` for infinities and NaN.
    """
    if isinstance(value, int):
        return format(Decimal(value), "f")
    if not math.isfinite(value):
        raise Refused("bad_gold", f"{value} is not a number")
    text = format(Decimal(repr(value)), "f").removesuffix(".0")
    return "0" if text == "-0" else text


def gold_as_json_number(gold: str) -> float:
    """`gold` as the float that train-llm-from-scratch writes into its ``rl_prompts*.jsonl``.

    Raises:
        Refused: ``bad_gold`` where `gold` is not a number, or not exactly a float.
    """
    number = float(plain_number(gold))
    if not math.isfinite(number) or Decimal(repr(number)) != Decimal(gold):
        raise Refused("bad_gold", f"{gold} is not kept by a JSON float, which would say {number!r}")
    return number


def number_text(number: float) -> str:
    """The shortest digits of a number, as Python writes it, a whole one without ``.0``."""
    return str(int(number)) if float(number).is_integer() else repr(number)


# ``rl_prompt``: a prompt, its ground truth and its verifier.

NUMBER = "number"
JUDGED = "model"
"""The verifier of prompts that a reward model judges, by its name in verl."""


@schema("rl_prompt", gives=Prompt, example={"prompt": "What is 12 * 12?", "gold": "144"})
def rl_prompt(
    *,
    prompt_key: str = "prompt",
    gold_key: str | None = "gold",
    verifier: str = NUMBER,
    verifier_key: str | None = None,
    arguments_key: str | list[str] | None = None,
    system: str | None = None,
    tools_key: str = "tools",
) -> Callable[[Row], Prompt]:
    """A prompt without its answer, and what a right answer is.

    Options:
        prompt_key: the prompt, a string or an array of messages.
        gold_key: the ground truth, dots for nested ones: `reward_model.ground_truth` reads verl's rows. null: none; a reward model judges,
            or the arguments say all.
        verifier: name of the verifier; with `number` the gold must be one plain number.
        verifier_key: the verifier's name, for rows that differ in it; null to use `verifier` for all.
        arguments_key: what the verifier is told, such as tests: JSON, or text with JSON; dots for nested ones. Several fields are kept as
            one object.
        system: a system prompt put before prompts that have none.
        tools_key: the tools on offer.
    """
    if verifier_key is not None and verifier != NUMBER:
        raise ConfigError(f"verifier is {verifier!r}, and each row names its own under {verifier_key!r}. Leave one of the two out")

    if gold_key is None and verifier == NUMBER:
        raise ConfigError(f"gold_key is null, and the verifier {NUMBER!r} compares with a gold. Name another verifier, such as {JUDGED!r}")

    def convert(row: Row) -> Prompt:
        turns = with_system_of(row, prompt_turns(value_at(row, prompt_key), prompt_key))
        if system is not None and turns[0].role != SYSTEM:
            turns = (turn(SYSTEM, system), *turns)
        verifier_name = verifier
        if verifier_key is not None:
            verifier_name = needed(as_text(value_at(row, verifier_key), verifier_key), "no_verifier", verifier_key)
        gold = "" if gold_key is None else _gold(nested(row, gold_key), gold_key, verifier_name)
        arguments = "" if arguments_key is None else _arguments(row, arguments_key, verifier_name)
        return Prompt(turns, gold, verifier_name, **offered(row, tools_key), arguments=arguments)

    return convert


def prompt_turns(prompt: object, key: str) -> tuple[Turn, ...]:
    """The turns of a prompt: a string as a user turn, or messages that do not end with an assistant turn."""
    if isinstance(prompt, str):
        return (turn(USER, needed(prompt, "empty_prompt", key)),)
    turns = ChatFormat().turns(prompt, key)
    require_open_end(turns, key)
    return turns


def nested(row: Row, path: str) -> Any:
    """The value at a dotted path. A field whose name is the whole path takes precedence."""
    if row.get(path) is not None:
        return row[path]
    value: Any = row
    for key in path.split("."):
        if not isinstance(value, Mapping):
            wrong_type(value, path, "an object on its way")
        value = value_at(value, key)
    return value


def _gold(value: object, key: str, verifier: str) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return gold_of_number(value)
    text = as_text(value, key)
    if not text.strip():
        raise Refused("no_gold", f"{key!r} is empty")
    return plain_number(text.strip()) if verifier == NUMBER else text


def _arguments(row: Row, keys: str | list[str], verifier: str) -> str:
    """What a verifier is told, as JSON. That of `FORMS` must have a form that they read."""
    if isinstance(keys, str):
        value = nested(row, keys)
        value = json_of(value, keys) if isinstance(value, str) else whole(value)
    else:
        value = {key: whole(nested(row, key)) for key in keys}
    if verifier == CODE and (language := str(row.get("language") or row.get("lang") or "").lower()) in OTHER_LANGUAGES:
        raise Refused(BAD, f"the row is of language {language!r}; only tests of Python are run")
    text = require_json(value, BAD, "the verifier's arguments")
    if verifier in FORMS:
        FORMS[verifier](loads(text))
    return text


# ``arithmetic``: a generated curriculum on which a weak policy earns its first rewards.

SEED = "seed"


class Level(Struct, frozen=True):
    """The questions of a level: the operators that it draws from, and how many of them one question has (1 or 2)."""

    operators: str
    steps: int = 1

    def questions(self, largest: int) -> int:
        """The number of different questions with operands 0 … `largest`."""
        return math.prod([largest + 1] * (self.steps + 1) + [len(self.operators)] * self.steps)

    def question(self, index: int, largest: int) -> tuple[str, int]:
        """The question with number `index` and its answer."""
        operands, operators = [], []
        for _ in range(self.steps + 1):
            index, operand = divmod(index, largest + 1)
            operands.append(operand)
        for _ in range(self.steps):
            index, operator = divmod(index, len(self.operators))
            operators.append(self.operators[operator])
        value = _compute(operands[0], operators[0], operands[1])
        text = f"{operands[0]} {operators[0]} {operands[1]}"
        if self.steps == 2:
            value, text = _compute(value, operators[1], operands[2]), f"({text}) {operators[1]} {operands[2]}"
        return f"What is {text}?", value


LEVELS = {"add": Level("+"), "add_sub": Level("+-"), SEED: Level("+-*"), "mul": Level("*"), "two_step": Level("+-*", steps=2)}


def arithmetic_rows(
    n: int = 5000, largest: int = 20, seed: int = 0, levels: Sequence[str] = (SEED,), unique: bool = False
) -> Iterator[dict[str, str]]:
    """Generate `n` questions, level after level, in equal shares (the first levels take the remainder).

    Args:
        n: number of rows.
        largest: largest operand; the smallest is 0.
        seed: together with its name, seeds the generator of each level.
        levels: names out of ``add``, ``add_sub``, ``seed``, ``mul``, ``two_step``. Only the level ``seed`` (one of ``+ - *``), with the
            defaults, gives the rows of train-llm-from-scratch's ``arithmetic_prompts.jsonl`` in its order.
        unique: never ask the same question twice, in any level.

    Yields:
        ``{"prompt": "What is 12 + 13?", "gold": "25", "level": "seed"}``; `gold` is an exact decimal string.

    Raises:
        ConfigError: an unknown level, a negative number, or with `unique` more rows than different questions.
    """
    for level in levels:
        require_known("no arithmetic level", level, LEVELS, "Known")
    if n < 0 or largest < 0 or not levels or len(set(levels)) != len(levels):
        raise ConfigError(
            f"n = {n} and largest = {largest} must not be negative; levels = {list(levels)} must be one or more different names"
        )
    asked: set[str] = set()
    for position, name in enumerate(levels):
        share = n // len(levels) + (position < n % len(levels))
        draw = _unique_questions(name, share, largest, seed, asked) if unique else _questions(name, share, largest, seed)
        for question, value in draw:
            asked.add(question)
            yield {"prompt": question, "gold": str(value), "level": name}


def _questions(name: str, n: int, largest: int, seed: int) -> Iterator[tuple[str, int]]:
    level = LEVELS[name]
    if name != SEED:
        draw = random.Random(f"{seed}:{name}")
        yield from (level.question(draw.randrange(level.questions(largest)), largest) for _ in range(n))
        return
    # these calls in this order reproduce the published file
    draw = random.Random(seed)
    for _ in range(n):
        a, b, operator = draw.randint(0, largest), draw.randint(0, largest), draw.choice(level.operators)
        yield f"What is {a} {operator} {b}?", _compute(a, operator, b)


def _unique_questions(name: str, n: int, largest: int, seed: int, asked: set[str]) -> list[tuple[str, int]]:
    level, total = LEVELS[name], LEVELS[name].questions(largest)
    # one spare draw for each question of earlier levels, which may come up again
    sample = random.Random(f"{seed}:{name}").sample(range(total), min(total, n + len(asked)))
    unasked = [drawn for index in sample if (drawn := level.question(index, largest))[0] not in asked]
    if len(unasked) < n:
        raise ConfigError(
            f"{n} unique questions of level {name!r} asked for, {len(unasked)} exist with operands 0 to {largest} "
            f"that no earlier level asks ({total} in all). Ask for fewer, raise largest, or set unique to false"
        )
    return unasked[:n]


def _compute(a: int, operator: str, b: int) -> int:
    return a + b if operator == "+" else a - b if operator == "-" else a * b


_QUESTION = re.compile(r"What is (?:(\d{1,18}) ([+*-]) (\d{1,18})|\((\d{1,18}) ([+*-]) (\d{1,18})\) ([+*-]) (\d{1,18}))\?", re.ASCII)


@schema("arithmetic", gives=Prompt, example={"prompt": "What is 12 + 13?", "gold": "25", "level": "seed"})
def arithmetic(*, prompt_key: str = "prompt", gold_key: str = "gold") -> Convert:
    """A generated question as an RL prompt. The gold is worked out again: a row that says otherwise is refused (``wrong_gold``).

    Options:
        prompt_key: the question.
        gold_key: the answer, a decimal string or a JSON number.
    """
    read = rl_prompt(prompt_key=prompt_key, gold_key=gold_key)

    def convert(row: Row) -> Prompt:
        question = text_of(row, prompt_key)
        match = _QUESTION.fullmatch(question.strip())
        if match is None:
            raise Refused("not_arithmetic", f"{question[:60]!r} is not 'What is a + b?' or 'What is (a + b) * c?'")
        prompt = read(row)
        if Decimal(prompt.gold) != (answer := _compute_answer(match)):
            raise Refused("wrong_gold", f"{question!r} is {answer}, {gold_key!r} says {prompt.gold}")
        return Prompt((turn(USER, question.strip()),), prompt.gold)

    return convert


def _compute_answer(match: re.Match[str]) -> int:
    if match[1]:
        return _compute(int(match[1]), match[2], int(match[3]))
    return _compute(_compute(int(match[4]), match[5], int(match[6])), match[7], int(match[8]))


# ``group``: a prompt with several responses and a reward for each (offline GRPO).


@schema("group", gives=Group, example={"prompt": "What is 2 + 2?", "responses": ["4", "5"], "rewards": [1.0, -0.25]})
def group(
    *,
    prompt_key: str = "prompt",
    responses_key: str = "responses",
    rewards_key: str = "rewards",
    token_ids_key: str | None = None,
    logprobs_key: str | None = None,
    prompt_ids_key: str | None = None,
    sampled_mask_key: str | None = None,
    turn_rewards_key: str | None = None,
) -> Convert:
    """One prompt, its responses, and one finite reward a response; none is dropped.

    Options:
        prompt_key: the prompt, a string or an array of messages.
        responses_key: responses, each a string or an array of messages.
        rewards_key: a reward for each; a single number for a single response.
        token_ids_key: the sampled token ids of each response.
        logprobs_key: their log-probabilities.
        prompt_ids_key: the prompt's token ids; null: rendered.
        sampled_mask_key: 1 for each sampled token, 0 for those that tools, users or the template wrote. Required for responses of several
            turns.
        turn_rewards_key: a reward for each answer of each response; needs `sampled_mask_key`.
    """
    if token_ids_key is None and (logprobs_key or prompt_ids_key or sampled_mask_key):
        raise ConfigError(
            "logprobs_key, prompt_ids_key and sampled_mask_key go with token_ids_key: they are about tokens as they were sampled"
        )

    if turn_rewards_key and not sampled_mask_key:
        raise ConfigError("turn_rewards_key goes with sampled_mask_key, which says where an answer ends")

    def convert(row: Row) -> Group:
        prompt = with_system_of(row, prompt_turns(value_at(row, prompt_key), prompt_key))
        values = as_list(value_at(row, responses_key), responses_key)
        responses = tuple(response_turns(value, f"{responses_key}[{i}]") for i, value in enumerate(values))
        rewards = rewards_for(value_at(row, rewards_key), rewards_key, len(responses))
        sampled = _sampled(row, token_ids_key, logprobs_key, prompt_ids_key, len(responses)) if token_ids_key else None
        if sampled is not None and sampled_mask_key:
            sampled = changed(sampled, masks=_lists(row, sampled_mask_key, mask_of, sampled.responses))
        steps = _turn_rewards(row, turn_rewards_key, responses) if turn_rewards_key else ()
        return Group(prompt, responses, rewards, sampled=sampled, steps=steps, **offered(row))

    return convert


def rewards_for(value: object, where: str, responses: int) -> tuple[float, ...]:
    """One finite float a response. Rejects (``length_mismatch``) another number of rewards, and a group without responses."""
    values: Sequence[Any] = as_list(value, where) if isinstance(value, list | tuple) else [value]
    rewards = tuple(as_number(reward, f"{where}[{i}]") for i, reward in enumerate(values))
    if len(rewards) != responses or not rewards:
        raise Refused("length_mismatch", f"{where!r} has {len(rewards)} rewards for {responses} responses")
    return rewards


def _sampled(row: Row, ids_key: str, logprobs_key: str | None, prompt_key: str | None, responses: int) -> Sampled:
    ids = tuple(_ids(value, f"{ids_key}[{i}]") for i, value in enumerate(as_list(value_at(row, ids_key), ids_key)))
    if len(ids) != responses:
        raise Refused("length_mismatch", f"{ids_key!r} has {len(ids)} lists of ids for {responses} responses")
    prompt = _ids(value_at(row, prompt_key), prompt_key) if prompt_key else None
    return Sampled(ids, prompt, checked_logprobs(_lists(row, logprobs_key, numbers_of, ids), logprobs_key) if logprobs_key else None)


def ids_of(value: object, where: str) -> list[int]:
    """A list of token ids."""
    ids = as_list(value, where)
    return [*ids] if {*map(type, ids)} == {int} else [as_integer(element, f"{where}[{i}]") for i, element in enumerate(ids)]


def numbers_of(value: object, where: str) -> list[float]:
    """A list of finite numbers."""
    numbers = as_list(value, where)
    plain = {*map(type, numbers)} == {float} and all(map(math.isfinite, numbers))
    return [*numbers] if plain else [as_number(number, where) for number in numbers]


def mask_of(value: object, where: str) -> list[int]:
    """A list of 0 and 1, or of false and true."""
    mask = as_list(value, where)
    if any(each not in (0, 1) for each in mask):
        raise Refused("bad_mask", f"{where!r} holds other values than 0 and 1")
    return [*map(int, mask)]


def _ids(value: object, where: str) -> tuple[int, ...]:
    if not (ids := ids_of(value, where)):
        raise Refused("empty_answer", f"{where!r} has no token ids")
    return tuple(ids)


def _lists(row: Row, key: str, read: Callable[[object, str], list[T]], ids: Sequence[Sequence[int]]) -> tuple[tuple[T, ...], ...]:
    """A value for each id of each response."""
    lists = tuple(tuple(read(values, f"{key}[{i}]")) for i, values in enumerate(as_list(value_at(row, key), key)))
    if [*map(len, lists)] != [*map(len, ids)]:
        raise Refused("length_mismatch", f"{key!r} has lists of {[*map(len, lists)]} for ids of {[*map(len, ids)]}")
    return lists


def checked_logprobs(logprobs: tuple[tuple[float, ...], ...], key: str) -> tuple[tuple[float, ...], ...]:
    """Log-probabilities of responses. Rejects what cannot be one (``positive_logprob``), and those that are missing (``logprobs_all_zero``)."""
    if any(logprob > 0 for values in logprobs for logprob in values):
        raise Refused("positive_logprob", f"{key!r} holds a number above 0, which cannot be a log-probability")
    if any(len(values) >= FEWEST_ZEROS and not any(values) for values in logprobs):
        detail = f"{key!r} is 0 for each token of a response, which says that none of them could be another: they are missing"
        raise Refused("logprobs_all_zero", detail)
    return logprobs


FEWEST_ZEROS = 8
"""Tokens of a response whose log-probabilities are all 0 that nobody samples."""


def _turn_rewards(row: Row, key: str, responses: Sequence[Sequence[Turn]]) -> tuple[tuple[tuple[str, float], ...], ...]:
    lists = as_list(value_at(row, key), key)
    rewards = [[as_number(reward, f"{key}[{i}]") for reward in as_list(values, f"{key}[{i}]")] for i, values in enumerate(lists)]
    answers = [[turn.text for turn in turns if turn.role == ASSISTANT] for turns in responses]
    if [*map(len, rewards)] != [*map(len, answers)]:
        raise Refused("length_mismatch", f"{key!r} has {[*map(len, rewards)]} rewards for responses of {[*map(len, answers)]} answers")
    return tuple(tuple(zip(*each, strict=True)) for each in zip(answers, rewards, strict=True))


def response_turns(value: object, where: str) -> tuple[Turn, ...]:
    """The turns of a response: a string, or messages that an assistant begins and ends."""
    if isinstance(value, str):
        return (turn(ASSISTANT, needed(value, "empty_answer", where)),)
    turns = ChatFormat().turns(value, where)
    require_answer(turns)
    if turns[0].role != ASSISTANT:
        raise Refused("role_order", f"{where!r} begins with a {turns[0].role} turn")
    return turns
