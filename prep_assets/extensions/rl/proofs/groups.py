"""Proofs of scored groups: their rewards, ids that a model sampled, and rows of agents' runs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.row_rules import UNSURE
from prep_assets.proofs.verdict import AS_FLOAT32, Rule
from prep_assets.samples import Sampled

# Rewards of scored groups: finite, one per response, and equal to those of the source.


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One group.

    Attributes:
        id: its record id.
        rewards: stored rewards, 1-D.
        responses: number of stored responses.
        source: the rewards of its source, read again.
    """

    id: str
    rewards: npt.NDArray[Any]
    responses: int
    source: Sequence[float]


def _score_fault(group: Scores, numbers: Counter[str]) -> str | None:
    numbers["groups_checked"] += 1
    numbers["rewards_checked"] += len(group.rewards)
    numbers["groups_of_equal_rewards"] += len(group.rewards) > 1 and len(set(group.rewards.tolist())) == 1
    if len(group.rewards) != group.responses or not group.responses:
        return f"{len(group.rewards)} rewards for {group.responses} responses"
    wrong = np.flatnonzero(~np.isfinite(group.rewards))
    if len(wrong):
        return f"reward {wrong[0]} is {group.rewards[wrong[0]]}"
    if len(group.source) != len(group.rewards):
        return f"{len(group.rewards)} rewards, the source has {len(group.source)}"
    wrong = np.flatnonzero(~np.isclose(group.rewards, group.source, **AS_FLOAT32))
    return f"reward {wrong[0]} is {group.rewards[wrong[0]]:g}, the source says {group.source[wrong[0]]:g}" if len(wrong) else None


check_rewards = Rule(
    _score_fault,
    ("groups_checked", "groups_failed", "rewards_checked", "groups_of_equal_rewards"),
    (
        "{rewards_checked:,} rewards of {groups_checked:,} groups are those of their sources; in {groups_of_equal_rewards:,} all are equal"
    ).format_map,
    ("groups_failed", "groups fail"),
)


# Groups whose responses are judged step by step: each reward stands where the text of its step ends.


@dataclass(frozen=True, slots=True)
class Stepwise:
    """One response.

    Attributes:
        id: of its record, with its number.
        texts: what its tokens up to each marked one decode to, the marked one included.
        rewards: stored rewards of the marked tokens; `elsewhere`: how many other tokens have one.
        source: text and reward of each step in the source, read again.
        places: for answers with a reward each, the numbers of their last tokens, as stored and by the source's mask; `None` for steps of one text.
        follows: the token behind each marked one, ``""`` behind the last.
    """

    id: str
    texts: Sequence[str]
    rewards: Sequence[float]
    elsewhere: int
    source: Sequence[tuple[str, float]]
    places: tuple[Sequence[int], Sequence[int]] | None = None
    follows: Sequence[str] = ()


def _step_fault(response: Stepwise, numbers: Counter[str]) -> str | None:
    numbers["responses_checked"] += 1
    numbers["steps_checked"] += len(response.source)
    if len(response.texts) != len(response.source):
        return f"{len(response.texts)} ends of steps are stored, the source has {len(response.source)}"
    if response.elsewhere:
        return f"{response.elsewhere} tokens that end no step have a reward"
    if response.places is not None and [*response.places[0]] != [*response.places[1]]:
        return f"answers end at the tokens {[*response.places[0]]}, by the source's mask at {[*response.places[1]]}"
    said, head = "", None
    for number, (stored, reward, (text, wanted)) in enumerate(zip(response.texts, response.rewards, response.source, strict=True)):
        said += text
        # what the template writes before an answer is the same before each of its steps; it may take white space at its ends away
        written, expected = stored.rstrip(), said.strip()
        if response.places is None and (not written.endswith(expected) or (head is not None and written != head + expected)):
            return f"the tokens up to the end of step {number} end {written[-40:]!r}, its text {expected[-40:]!r}"
        space, own = len(stored) - len(written), len(said) - len(said.rstrip())
        follows = response.follows[number] if response.follows else ""
        if response.places is None and (space > own or (space < own and follows and not follows.strip())):
            return f"step {number} ends {'behind' if space > own else 'before'} the white space of its text"
        head = written.removesuffix(expected)
        if not np.isclose(reward, wanted, **AS_FLOAT32):
            return f"the reward of step {number} is {reward:g}, the source says {wanted:g}"
    return None


check_steps = Rule(
    _step_fault,
    ("responses_checked", "steps_checked"),
    "{steps_checked:,} rewards of {responses_checked:,} responses stand where their steps end".format_map,
    nothing="no response is judged step by step",
)


# Groups with sampled ids: stored as sampled, all that the model sampled trained and nothing else, each with its log-probability.


@dataclass(frozen=True, slots=True)
class Rollout:
    """One group.

    Attributes:
        id: its record id.
        prompt: stored ids of its prompt.
        responses: stored arrays of each response: ``tokens``, ``loss_mask``, and ``logprobs`` where the store has them.
        source: the sampled ids of the source, read again.
    """

    id: str
    prompt: Sequence[int]
    responses: Sequence[Mapping[str, Sequence[Any]]]
    source: Sampled


def _sampled_fault(group: Rollout, numbers: Counter[str]) -> str | None:
    numbers["groups_checked"] += 1
    numbers["responses_checked"] += len(group.responses)
    numbers["tokens_checked"] += sum(len(response["tokens"]) for response in group.responses)
    source = group.source
    if source.prompt is not None and list(group.prompt) != list(source.prompt):
        return f"{len(group.prompt)} ids of the prompt differ from the {len(source.prompt)} of the source"
    if len(group.responses) != len(source.responses):
        return f"{len(group.responses)} responses are stored, the source has {len(source.responses)}"
    for number, (stored, ids) in enumerate(zip(group.responses, source.responses, strict=True)):
        if list(stored["tokens"]) != list(ids):
            return f"response {number}: {len(stored['tokens'])} ids differ from the {len(ids)} that were sampled"
        mask = [1] * len(ids) if source.masks is None else source.masks[number]
        if list(stored["loss_mask"]) != list(mask):
            untrained = sum(wanted == 1 and not value for value, wanted in zip(stored["loss_mask"], mask, strict=True))
            foreign = sum(wanted == 0 and value != 0 for value, wanted in zip(stored["loss_mask"], mask, strict=True))
            also = f", {foreign} that were not sampled are" if foreign else ""
            return f"response {number}: {untrained} sampled tokens are not trained{also}"
        if ("logprobs" in stored) != (source.logprobs is not None):
            return f"response {number}: log-probabilities are {'stored and not in' if 'logprobs' in stored else 'in and not stored of'} the source"
        if source.logprobs is not None and not np.allclose(stored["logprobs"], source.logprobs[number], **AS_FLOAT32):
            return f"response {number}: log-probabilities differ from those of the source"
    return None


check_sampled = Rule(
    _sampled_fault,
    ("groups_checked", "responses_checked", "tokens_checked"),
    "{tokens_checked:,} ids of {responses_checked:,} responses are stored as they were sampled".format_map,
    nothing="no group has sampled ids: texts were tokenized",
)


# Rows of agents' runs, derived again from the calls of the source: a call goes on with the last call before it, of its run and agent, whose tokens its prompt
# begins with, if no other call went on with that one; otherwise it begins a row.


@dataclass(frozen=True, slots=True)
class Spoken:
    """A call of a model in the source: its run, whose it is, the ids that it was given, those that it wrote, which of these are trained, and their
    log-probabilities, empty where it has none; the messages that it was given and wrote, where the source names them call by call; the reward of its
    run."""

    run: int
    agent: str
    given: Sequence[int]
    wrote: Sequence[int]
    trained: Sequence[int]
    logprobs: Sequence[float]
    asked: Sequence[Mapping[str, Any]] = field(default=(), compare=False)
    said: Sequence[Mapping[str, Any]] = field(default=(), compare=False)
    reward: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RunRow:
    """A row of a run: the numbers of the run and of its first call in it; ids, which of them are trained, and their log-probabilities; its calls; the
    reward of the run."""

    run: int
    turn: int
    ids: Sequence[int]
    mask: Sequence[int]
    logprobs: Sequence[float]
    calls: Sequence[int] = field(default=(), compare=False)
    reward: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Runs:
    """A group: its rows as stored, prompt and response end to end, and the calls of its source."""

    id: str
    rows: Sequence[RunRow]
    calls: Sequence[Spoken]


CALL_KEYS: Mapping[str, Any] = {
    "runs_key": None,
    "steps_key": "trajectory",
    "reward_key": "reward",
    "prompt_key": "prompt",
    "completion_key": "completion",
    "prompt_ids_key": "tokens.prompt_ids",
    "token_ids_key": "tokens.completion_ids",
    "logprobs_key": "tokens.completion_logprobs",
    "sampled_mask_key": "tokens.completion_mask",
    "agent_key": None,
    "agents": None,
}
"""Where ``agent_steps`` finds calls, unless its options say otherwise."""


def calls_of_steps(row: Mapping[str, Any], options: Mapping[str, Any]) -> list[Spoken]:
    """The calls of a row of ``agent_steps``."""
    keys, calls, run = {**CALL_KEYS, **options}, list[Spoken](), -1
    for each in row[keys["runs_key"]] if keys["runs_key"] else [row]:
        of_run = named_by(each, keys["agent_key"])
        if of_run and keys["agents"] is not None and of_run not in keys["agents"]:
            continue
        run += 1
        for step in each[keys["steps_key"]]:
            agent = named_by(step, keys["agent_key"]) or of_run
            places = (keys[f"{name}_key"] for name in ("prompt_ids", "token_ids", "sampled_mask", "logprobs"))
            given, wrote, trained, logprobs = (within(step, place) if place else [] for place in places)
            if keys["agents"] is None or agent in keys["agents"]:
                asked, said = (place and within(step, place) for place in (keys["prompt_key"], keys["completion_key"]))
                asked, said = (asked[:-1], asked[-1:]) if asked and keys["completion_key"] is None else (asked, said)
                calls.append(
                    Spoken(
                        run,
                        agent,
                        given,
                        wrote,
                        trained if keys["sampled_mask_key"] else [1] * len(wrote),
                        logprobs,
                        asked,
                        said,
                        within(each, keys["reward_key"]),
                    )
                )
    return calls


def named_by(value: Any, path: str | None) -> str:
    name = within(value, path) if path else None
    return name if isinstance(name, str) else "" if name is None else json.dumps(name)


def within(value: Any, path: str) -> Any:
    for key in (path,) if path in value else path.split("."):
        value = None if value is None else value.get(key)
    return value


def trained_traces(row: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the traces of a row that are trained, and whose they are."""
    for trace in [row] if row.get("nodes") is not None else row["traces"]:
        agent = trace.get("agent") or {}
        name = agent.get("name") or "agent"
        if agent.get("trainable") is not False and not trace.get("errors") and options.get("agent") in (None, name):
            yield trace, name


def calls_of_trace(row: Mapping[str, Any], options: Mapping[str, Any]) -> list[Spoken]:
    """The calls of a row of ``verifiers_trace``: each node with a sampled token."""
    calls, run = list[Spoken](), -1
    for trace, _ in trained_traces(row, options):
        run, nodes, before, said = run + 1, trace["nodes"], dict[int | None, list[int]]({None: []}), dict[int | None, list[Any]]({None: []})
        read, at = _on_trained_branches(nodes), len(nodes) - 1
        parts = (trace.get("rewards") or {}).values()
        reward = sum(part["score"] * part.get("weight", 1) for part in parts) if parts else None
        if options.get("branches") == "last":
            read &= _and_above(nodes, at)
        for number, node in enumerate(nodes):
            given, mask, scores = before[node.get("parent")], [*map(bool, node["mask"])], iter(node["logprobs"])
            before[number], said[number] = given + node["token_ids"], [*said[node.get("parent")], node.get("message")]
            if True in mask and number in read:
                head, logprobs = mask.index(True), [next(scores) if sampled else 0.0 for sampled in mask]
                ids = given + node["token_ids"][:head], node["token_ids"][head:]
                calls.append(Spoken(run, "", *ids, mask[head:], logprobs[head:], said[number][:-1], said[number][-1:], reward))
    return calls


def _and_above(nodes: Sequence[Mapping[str, Any]], at: int) -> set[int]:
    above, parent = {at}, nodes[at].get("parent")
    while parent is not None:
        above.add(parent)
        parent = nodes[parent].get("parent")
    return above


def _on_trained_branches(nodes: Sequence[Mapping[str, Any]]) -> set[int]:
    """The nodes of branches, but for those that end with a compaction that no node went on from."""
    types = [[link["type"] for link in node.get("semantic_parents") or ()] for node in nodes]
    followed = [link["node"] for node in nodes for link in node.get("semantic_parents") or () if link["type"] == "compaction"]
    inner = [node.get("parent") for node in nodes]
    ends = [at for at, said in enumerate(types) if at not in inner and ("compaction_attempt" not in said or at in followed)]
    return set[int]().union(*(_and_above(nodes, at) for at in ends))


def rows_of_calls(calls: Sequence[Spoken]) -> list[RunRow]:
    """The rows that calls must be, apart from those of which nothing is trained."""
    whole, after = [[*call.given, *call.wrote] for call in calls], dict[int, int]()
    for at, call in enumerate(calls):
        kin = (one for one in range(at) if one not in after and (calls[one].run, calls[one].agent) == (call.run, call.agent))
        if fitting := [one for one in kin if whole[one] == call.given[: len(whole[one])]]:
            after[max(fitting, key=lambda one: (len(whole[one]), one))] = at
    rows = list[RunRow]()
    for at in sorted({*range(len(calls))} - {*after.values()}):
        chain, turn = [at], sum(call.run == calls[at].run for call in calls[:at])
        while chain[-1] in after:
            chain.append(after[chain[-1]])
        mask, logprobs = [0] * len(whole[chain[-1]]), [0.0] * len(whole[chain[-1]])
        for call in (calls[number] for number in chain):
            span = slice(len(call.given), len(call.given) + len(call.wrote))
            mask[span], logprobs[span] = map(int, call.trained), call.logprobs or [0.0] * len(call.wrote)
        if any(mask):
            rows.append(RunRow(calls[at].run, turn, whole[chain[-1]], mask, logprobs, chain, calls[at].reward))
    return rows


def faults_of_calls(calls: Sequence[Spoken], *, scored: bool) -> Iterator[str]:
    """Yield why calls are no group of rows. `scored`: each sampled id has a log-probability."""
    ids, scores = (id for call in calls for id in (*call.given, *call.wrote)), (score for call in calls for score in call.logprobs)
    if any(type(id) is not int for id in ids) or not all(map(is_number, scores)):
        yield UNSURE
    if any(len(call.trained) != len(call.wrote) or (scored and len(call.logprobs) != len(call.wrote)) for call in calls):
        yield "length_mismatch"
        return
    rows = rows_of_calls(calls)
    if not rows:
        yield "no_assistant_turn"
        return
    most = min(each.mask.index(1) for each in rows)
    shared = next((at for at in range(most) if len({each.ids[at] for each in rows}) > 1), most)
    if not shared:
        yield "several_prompts"
    if any(score > 0 for each in rows for score in each.logprobs):
        yield "positive_logprob"
    if scored and any(len(each.ids) - shared >= 8 and not any(each.logprobs) for each in rows):
        yield "logprobs_all_zero"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _runs_fault(group: Runs, numbers: Counter[str]) -> str | None:
    stored, rows = group.rows, rows_of_calls(group.calls)
    of_run = [row.run for row in rows]
    counted = (1, len(group.calls), len(rows), len({*of_run}), sum(of_run.count(run) > 1 for run in {*of_run}))
    for name, more in zip(numbers, counted, strict=True):
        numbers[name] += more
    if len(stored) != len(rows):
        return f"{len(stored)} rows are stored, its calls are {len(rows)}"
    for number, (found, row) in enumerate(zip(stored, rows, strict=True)):
        what = f"row {number}"
        if (found.run, found.turn) != (row.run, row.turn):
            return f"{what} is of run {found.run} from call {found.turn} on, by its calls of run {row.run} from call {row.turn} on"
        if [*found.ids] != [*row.ids]:
            return f"{what}: {len(found.ids)} ids differ from the {len(row.ids)} that its calls were given and wrote"
        if [*found.mask] != [*row.mask]:
            where = next(at for at, pair in enumerate(zip(found.mask, row.mask, strict=True)) if pair[0] != pair[1])
            return f"{what}: token {where} is {'' if found.mask[where] else 'not '}trained, by its calls it is {'' if row.mask[where] else 'not '}to be"
        if found.reward is not None and row.reward is not None and not np.isclose(found.reward, row.reward, **AS_FLOAT32):
            return f"{what}: its reward is {found.reward:g}, that of its run is {row.reward:g}"
        if found.logprobs and not np.allclose(found.logprobs, row.logprobs, **AS_FLOAT32):
            return f"{what}: log-probabilities differ from those of its calls"
    return None


check_runs = Rule(
    _runs_fault,
    ("groups_checked", "calls_checked", "rows_checked", "runs_checked", "runs_split"),
    "{calls_checked:,} calls of {runs_checked:,} runs are {rows_checked:,} rows, {runs_split:,} runs are split".format_map,
    nothing="no group is of runs of agents",
)
