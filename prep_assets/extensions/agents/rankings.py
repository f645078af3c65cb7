"""Several answers in an order: ``group_list``, ``group_kto``, ``group_pair`` and ``group_best`` of scored or ranked responses; ``compared`` of two with a
verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

from prep_assets.errors import ConfigError, Refused
from prep_assets.extensions.preference.schemas import MARKS, preference, split_marked
from prep_assets.extensions.rl.schemas import prompt_turns, response_turns, rewards_for
from prep_assets.samples import ASSISTANT, Group, Pair, Row, Sample, Turn, changed
from prep_assets.schemas.fields import as_list, as_number, as_text, objects, text_of, value_at
from prep_assets.schemas.registry import Convert, options_of, schema
from prep_assets.schemas.turns import chat_sample, content_of, offered, pair_of, turns_of, with_system_of

SCORED = {"prompt": "What is 2 + 2?", "responses": ["5?", "It is 4.", "It is 3."], "rewards": [-0.25, 1.0, 0.5]}
BEST_FIRST = {"prompt": "What is 2 + 2?", "responses": ["It is 4.", "5?", "It is 3."], "rewards": [1.0, -0.25, 0.5]}
Read = Callable[..., Group]
"""A row, and the fewest responses that it must have, 1 if left out → its group."""
_FEWEST = 2


def ranked(
    *,
    prompt_key: str = "prompt",
    responses_key: str = "responses",
    rewards_key: str = "rewards",
    ranks_key: str | None = None,
    marked_prompt: bool = False,
) -> Read:
    """Return a function from a row to its group. A row with fewer responses is rejected; where an order is needed, also one with equal rewards alone.

    Options:
        prompt_key: the prompt, a string or an array of messages.
        responses_key: responses, each a string or an array of messages; `answers.answer`: that field of each object of ``answers``.
        rewards_key: a reward for each, or a field of objects as well.
        ranks_key: ranks instead, 1 for the best; a reward is a rank, negated.
        marked_prompt: the prompt is text with `Human:` and `Assistant:` before its turns.
    """
    if ranks_key is not None and rewards_key != "rewards":
        raise ConfigError(
            f"rewards_key is {rewards_key!r} and ranks_key {ranks_key!r}: responses have rewards or ranks. Leave one of the two out"
        )

    def read(row: Row, fewest: int = 1) -> Group:
        values = _listed(row, responses_key)
        responses = tuple(response_turns(value, f"{responses_key}[{i}]") for i, value in enumerate(values))
        key = rewards_key if ranks_key is None else ranks_key
        rewards = rewards_for(_listed(row, key), key, len(responses))
        if ranks_key is not None:
            rewards = tuple(-rank for rank in rewards)
        if len(responses) < fewest:
            raise Refused("single_response", f"{responses_key!r} has {len(responses)} responses, and an order needs {fewest}")
        if fewest > 1 and len(set(rewards)) == 1:
            raise Refused("equal_rewards", f"all {len(rewards)} responses have the reward {rewards[0]:g}, so that none is the better one")
        value = value_at(row, prompt_key)
        prompt = _marked(text_of(row, prompt_key), prompt_key) if marked_prompt else prompt_turns(value, prompt_key)
        return Group(with_system_of(row, prompt), responses, rewards, **offered(row))

    return read


@schema("group_list", gives=Group, example=SCORED, labels=True)
@options_of(ranked)
def group_list(read: Read, *, ties: Literal["keep", "refuse"] = "keep") -> Convert:
    """All responses with their rewards, the best first; equal ones stay in the order of the row.

    Options:
        ties: `keep` equal rewards, or `refuse` the row; rows of equal rewards alone are rejected.
    """

    def convert(row: Row) -> Group:
        group = read(row, _FEWEST)
        if ties == "refuse" and len(set(group.rewards)) < len(group.rewards):
            raise Refused("tied_rewards", f"{_shared(group.rewards)}, and ties is refuse")
        return _without_contradictions(group)

    return convert


@schema("group_kto", gives=Group, example=SCORED, labels=True)
@options_of(ranked)
def group_kto(read: Read, *, desirable_from: float | None = None) -> Convert:
    """Each response as an answer with a label. Without a threshold those above the mean of their row are desirable, those below are not, and one that is
    exactly the mean is left out.

    Options:
        desirable_from: the least reward of a desirable response; null: above the mean of the row.
    """

    def convert(row: Row) -> Group:
        group = read(row, _FEWEST if desirable_from is None else 1)
        if any(len(response) != 1 for response in group.responses):
            raise Refused("several_turns", "a response has several turns, and an answer with a label has one")
        if desirable_from is not None:
            labels: Sequence[bool | None] = [reward >= desirable_from for reward in group.rewards]
        else:  # decimals, as rows write them: 0.2 is the mean of 0.1, 0.2 and 0.3, and not of the floats nearest to them
            rewards = [Fraction(repr(reward)) for reward in group.rewards]
            total = sum(rewards, Fraction())
            labels = [None if reward * len(rewards) == total else reward * len(rewards) > total for reward in rewards]
        return _without_contradictions(changed(group, labels=tuple(labels)))

    return convert


@schema("group_pair", gives=Pair, example=BEST_FIRST, variant_of="group")
@options_of(ranked)
def group_pair(read: Read, *, min_margin: float | None = None, margin: bool = False, ties: Literal["first", "refuse"] = "first") -> Convert:
    """The response with the largest reward as the chosen answer, the one with the smallest as the rejected one; of equal ones the first.

    Options:
        min_margin: reject pairs whose rewards differ by less; null: only equal ones.
        margin: keep the difference as the pair's margin, for reward models.
        ties: of responses that share the best or the worst reward, take the `first`, or `refuse` the row.
    """

    def convert(row: Row) -> Pair:
        group = read(row)
        rewards = group.rewards
        best, worst = rewards.index(max(rewards)), rewards.index(min(rewards))
        difference = rewards[best] - rewards[worst]
        if not difference:
            detail = f"all {len(rewards)} responses have the reward {rewards[best]:g}, so that none is the better one"
            raise Refused("equal_rewards", detail)
        if min_margin is not None and difference < min_margin:
            raise Refused("small_margin", f"the rewards are {rewards[best]:g} and {rewards[worst]:g}; min_margin is {min_margin:g}")
        if ties == "refuse" and (shared := [rewards[at] for at in (best, worst) if rewards.count(rewards[at]) > 1]):
            raise Refused("tied_rewards", f"{rewards.count(shared[0])} responses have the reward {shared[0]:g}, and ties is refuse")
        made = pair_of(row, group.prompt, group.responses[best], group.responses[worst])
        return changed(made, margin=difference) if margin else made

    return convert


@schema("group_best", gives=Sample, example=BEST_FIRST, variant_of="group")
@options_of(ranked)
def group_best(read: Read, *, at_least: float | None = None) -> Convert:
    """The prompt with the response that has the largest reward, as a chat: rejection sampling. Of equal ones the first.

    Options:
        at_least: reject rows whose largest reward is smaller; null: none.
    """

    def convert(row: Row) -> Sample:
        group = read(row)
        rewards = group.rewards
        best = rewards.index(max(rewards))
        if at_least is not None and rewards[best] < at_least:
            raise Refused("low_reward", f"the largest of {len(rewards)} rewards is {rewards[best]:g}; at_least is {at_least:g}")
        return chat_sample(row, (*group.prompt, *group.responses[best]))

    return convert


def _listed(row: Row, path: str) -> Sequence[Any]:
    """The array at a path; where it is `answers.answer`, that field of each object of an array. A field whose name is the whole path takes precedence."""
    head, _, field = path.partition(".")
    if not field or row.get(path) is not None:
        return as_list(value_at(row, path), path)
    return [value_at(each, field, where) for where, each in objects(value_at(row, head), head)]


def _marked(text: str, key: str) -> tuple[Turn, ...]:
    """The turns of a marked prompt, without the empty one of an assistant that ends it."""
    texts = split_marked(text, MARKS, key)
    return turns_of(texts[:-1] if texts and texts[-1] == (ASSISTANT, "") else texts)


def _without_contradictions(group: Group) -> Group:
    """Refuse a group in which one text is both better and worse."""
    said: dict[str, Any] = {}
    what = "labels" if group.labels else "rewards"
    for response, value in zip(group.responses, group.labels or group.rewards, strict=True):
        content = repr(content_of(response))
        if value is not None and said.setdefault(content, value) != value:
            detail = f"two responses say {response[-1].text[:60]!r}, and their {what} are {said[content]} and {value}"
            raise Refused("contradicting_rewards", detail)
    return group


def _shared(rewards: Sequence[float]) -> str:
    reward, count = Counter(rewards).most_common(1)[0]
    return f"{count} responses have the reward {reward:g}"


# Two answers and which of them is better, as HelpSteer3 and the arenas say it.

FIRST, SECOND, TIE = "first", "second", "tie"
VERDICTS: Mapping[str, str] = {
    **dict.fromkeys(("model_a", "a", "A", "response_a", "response_1", "1", FIRST), FIRST),
    **dict.fromkeys(("model_b", "b", "B", "response_b", "response_2", "2", SECOND), SECOND),
    **dict.fromkeys((TIE, "tie (bothbad)", "both_bad", "bothbad"), TIE),
}
COMPARED = {"context": "Name a prime.", "response1": "7", "response2": "9", "overall_preference": -2}


@schema("compared", gives=Pair, example=COMPARED)
def compared(
    *,
    prompt_key: str | None = "context",
    first_key: str = "response1",
    second_key: str = "response2",
    verdict_key: str = "overall_preference",
    margin: bool = False,
) -> Convert:
    """Two answers and a verdict: a number, below 0 where the first is better, or a word such as `model_a`. A tie is refused, so that it is counted.

    Options:
        prompt_key: the prompt, a string or an array of messages; null: both sides are whole chats.
        first_key: the first answer.
        second_key: the second one.
        verdict_key: a number, below 0 where the first is better, or a word such as `model_a`.
        margin: keep the size of the number as the pair's margin.
    """
    sides = {FIRST: (first_key, second_key), SECOND: (second_key, first_key)}
    readers = {
        side: preference(prompt_key=prompt_key, chosen_key=chosen, rejected_key=rejected) for side, (chosen, rejected) in sides.items()
    }

    def convert(row: Row) -> Pair:
        value = value_at(row, verdict_key)
        if isinstance(value, str):
            if (better := VERDICTS.get(value)) is None:
                raise Refused("unknown_verdict", f"{verdict_key!r} is {value[:60]!r}; known: {', '.join(VERDICTS)}")
            if margin:
                raise Refused("wrong_type", f"{verdict_key!r} is {as_text(value, verdict_key)[:60]!r}, and margin needs a number")
        else:
            number = as_number(value, verdict_key)
            better = FIRST if number < 0 else SECOND if number > 0 else TIE
        if better == TIE:
            raise Refused("tie", f"{verdict_key!r} is {value!r}: neither answer is the better one")
        pair = readers[better](row)
        return changed(pair, margin=abs(as_number(value, verdict_key))) if margin else pair

    return convert
