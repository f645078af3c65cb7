"""Runs of agents: ``verifiers_trace``, graphs of messages that verifiers and prime-rl write, and ``agent_steps``, lists of calls of a model.

Each call has the ids that the model was given and those that it sampled. Where it was given all tokens of a row and more, it goes on with that row; where it
was not, as after retries, compaction, rewritten history or in a sub-agent, it begins another. So a row is what a model saw and wrote, token by token, and
what it sampled is trained in one row only: that with which its call went on, or which it began.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, starmap
from typing import Any, Literal

from msgspec import Struct, field

from prep_assets.errors import ConfigError, Refused
from prep_assets.extensions.rl.schemas import checked_logprobs, ids_of, mask_of, nested, numbers_of, prompt_turns
from prep_assets.samples import ASSISTANT, Group, Row, Sampled, Turn
from prep_assets.schemas.fields import as_integer, as_mapping, as_number, as_text, objects, value_at, weighted, whole
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import ChatFormat, offered


class Call(Struct, frozen=True):
    """One call of a model.

    Attributes:
        run, agent: the number of its run in the row, and whose call it is.
        prompt, ids: the ids that it was given, and those that it wrote.
        mask, logprobs: of each that it wrote, 1 if it is trained, and its log-probability or 0; no log-probabilities if the source has none.
        asked, said: the messages of both.
        reward: its own, beside that of the run.
    """

    run: int
    agent: str
    prompt: list[int]
    ids: list[int]
    mask: list[int]
    logprobs: list[float] | None
    asked: Sequence[Row]
    said: Sequence[Row]
    reward: float = 0.0


class _Joined(Struct):
    """Calls that went on with each other: `turn` is the number of the first one in its run, `last` that of the last one in the group."""

    run: int
    agent: str
    turn: int
    last: int = 0
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    messages: list[Row] = field(default_factory=list)
    trained: list[bool] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    def is_before(self, call: Call) -> bool:
        """Whether the prompt of a call begins with all of these tokens."""
        size = len(self.ids)
        same = (self.run, self.agent) == (call.run, call.agent) and size <= len(call.prompt)
        return same and self.ids[-1] == call.prompt[size - 1] and self.ids == call.prompt[:size]

    def add(self, call: Call, number: int) -> None:
        """Add what a call was given beyond these tokens, untrained, and what it wrote."""
        given, known = call.prompt[len(self.ids) :], len(self.messages)
        if len(call.asked) < known:
            detail = f"call {number} was given the tokens of {known} messages, and names {len(call.asked)}"
            raise Refused("messages_differ", detail)
        whole([again for again, first in zip(call.asked, self.messages, strict=False) if again is not first])
        self.ids += given + call.ids
        self.mask += [0] * len(given) + call.mask
        self.logprobs += [0.0] * len(given) + (call.logprobs or [])
        self.messages += [*call.asked[known:], *call.said]
        self.trained += [False] * (len(call.asked) - known) + [any(call.mask)] * len(call.said)
        self.rewards += [call.reward] if any(call.mask) else []
        self.last = number

    def turns(self, asked: Sequence[Row]) -> tuple[Turn, ...]:
        """The turns behind those that are in `asked` too, the prompt of the group. Answers that are trained elsewhere, or not at all, weigh 0."""
        turns = ChatFormat().turns(self.messages, "messages")
        marked = list(zip(turns, self.trained, strict=True))[_shared(self.messages, asked) :]
        return tuple(turn if trained or turn.role != ASSISTANT else weighted(turn, 0.0) for turn, trained in marked)


def group_of(calls: Iterable[Call], rewards: Sequence[float], row: Row, *, judged: bool = False) -> Group:
    """Runs as a group: a response for each row of calls, with the reward of its run. The ids with which all rows begin, up to the first trained one, are the
    prompt; what else a row was given stands in its response, untrained.

    Args:
        rewards: of each run.
        row: where the tools stand.
        judged: the calls have rewards of their own.
    """
    joined, made, has_logprobs = list[_Joined](), dict[int, int](), False
    for number, call in enumerate(calls):
        fitting = [each for each in joined if each.is_before(call)]
        # the longest; of equal ones that which was written last
        chosen = max(fitting, key=lambda each: (len(each.ids), each.last), default=None)
        if chosen is None:
            chosen = _Joined(call.run, call.agent, made.get(call.run, 0))
            joined.append(chosen)
        chosen.add(call, number)
        made[call.run] = made.get(call.run, 0) + 1
        has_logprobs = call.logprobs is not None
    whole([message for each in joined if not any(each.mask) for message in each.messages])
    rows = [each for each in joined if any(each.mask)]
    if not rows:
        raise Refused("no_assistant_turn", "no token was sampled, or none is trained")
    most = min(each.mask.index(1) for each in rows)
    cut = min(_shared(each.ids[:most], rows[0].ids[:most]) for each in rows)
    if not cut:
        raise Refused("several_prompts", f"its {len(rows)} rows begin with different tokens, so the group has no prompt")
    asked = rows[0].messages[: rows[0].trained.index(True)]
    responses = tuple(each.turns(asked) for each in rows)
    logprobs = checked_logprobs(tuple(tuple(each.logprobs[cut:]) for each in rows), "logprobs") if has_logprobs else None
    ids, masks = (tuple(tuple(getattr(each, name)[cut:]) for each in rows) for name in ("ids", "mask"))
    sampled = Sampled(ids, tuple(rows[0].ids[:cut]), logprobs, masks, tuple((each.run, each.turn) for each in rows))
    steps = tuple(_judged(each, turns) for each, turns in zip(rows, responses, strict=True)) if judged else ()
    given = tuple(rewards[each.run] for each in rows)
    return Group(prompt_turns(asked, "the prompt"), responses, given, sampled=sampled, steps=steps, **offered(row))


def _shared(first: Sequence[Any], second: Sequence[Any]) -> int:
    """How many elements two sequences begin with in common."""
    shortest = min(len(first), len(second))
    if first[:shortest] == second[:shortest]:
        return shortest
    return next(at for at, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)


def _judged(row: _Joined, turns: Sequence[Turn]) -> tuple[tuple[str, float], ...]:
    answers = [turn.text for turn in turns if turn.role == ASSISTANT and any(region.loss_weight != 0 for region in turn.regions)]
    if len(answers) != len(row.rewards):
        raise Refused("length_mismatch", f"{len(row.rewards)} calls have a reward, which wrote {len(answers)} answers")
    return tuple(zip(answers, row.rewards, strict=True))


# ``verifiers_trace``


def _node(parent: int | None, role: str, content: str, ids: list[int], mask: list[bool], logprobs: list[float]) -> dict[str, Any]:
    message = {"role": role, "content": content}
    return {"parent": parent, "message": message, "sampled": bool(logprobs), "token_ids": ids, "mask": mask, "logprobs": logprobs}


_EXAMPLE: dict[str, Any] = {
    "nodes": [
        _node(None, "user", "What is 2 + 2?", [1, 9, 4], [False, False, False], []),
        _node(0, "assistant", "5", [3, 17, 2], [False, True, True], [-1.5, -0.1]),
        _node(1, "user", "Sure?", [1, 8], [False, False], []),
        _node(2, "assistant", "4", [3, 16, 2], [False, True, True], [-0.5, -0.25]),
    ],
    "rewards": {"right": {"score": 1.0, "weight": 0.5}},
}


@schema("verifiers_trace", gives=Group, example=_EXAMPLE, further="runs")
def verifiers_trace(*, branches: Literal["all", "last"] = "all", agent: str | None = None) -> Convert:
    """A trace of verifiers, or an episode of several: the rows of its branches, with the ids that were sampled, their log-probabilities and the run's reward.

    Options:
        branches: `all`: what branches share is trained in the first of them; `last`: the branch that was written last.
        agent: whose traces of an episode are read; null: all, which must be of one agent. Those with errors, or marked as not trainable, are left out.
    """

    def convert(row: Row) -> Group:
        found = [row] if row.get("nodes") is not None else [trace for _, trace in objects(value_at(row, "traces"), "traces")]
        traces, names = list[Row](), set[str]()
        for trace in found:
            about = as_mapping(trace.get("agent") or {}, "agent")
            name, trained = about.get("name") or "agent", about.get("trainable") is not False and not trace.get("errors")
            if trained and agent in (None, name):
                traces.append(trace)
                names.add(name)
            else:
                whole(trace)
        if len(names) != 1:
            reason = "several_agents" if names else "no_trained_trace"
            raise Refused(
                reason, f"{len(traces)} of its {len(found)} traces are trained: of {', '.join(sorted(names)) or 'no agent'}, needs one"
            )
        calls = chain.from_iterable(_calls_of_trace(run, trace, branches) for run, trace in enumerate(traces))
        whole([trace.get("tools") for trace in traces[1:]])
        return group_of(calls, [*map(_reward, traces)], traces[0])

    return convert


def _calls_of_trace(run: int, trace: Row, branches: str) -> Iterator[Call]:
    nodes = [_node_of(place, fields) for place, fields in objects(value_at(trace, "nodes"), "nodes")]
    if wrong := [at for at, node in enumerate(nodes) if node.parent is not None and not 0 <= node.parent < at]:
        raise Refused("bad_parent", f"nodes[{wrong[0]}] has the parent {nodes[wrong[0]].parent}, which does not stand before it")
    lost = _lost(nodes)
    paths = [_path(nodes, at) for at, node in enumerate(nodes) if any(node.mask) and at not in lost]
    if branches == "last" and nodes:
        last = _path(nodes, len(nodes) - 1)
        paths = [path for path in paths if path[-1] in last]
    for unused in {*range(len(nodes))}.difference(*paths):
        whole(nodes[unused].message)
    for path in paths:
        *before, own = (nodes[at] for at in path)
        begin = own.mask.index(1)
        prompt = [*chain.from_iterable(node.ids for node in before), *own.ids[:begin]]
        asked = [node.message for node in before]
        yield Call(run, "", prompt, own.ids[begin:], own.mask[begin:], own.logprobs[begin:], asked, [own.message])


def _path(nodes: Sequence[_Node], leaf: int) -> list[int]:
    """The numbers of the nodes from the root to one of them."""
    path = [leaf]
    while (parent := nodes[path[-1]].parent) is not None:
        path.append(parent)
    return path[::-1]


def _lost(nodes: Sequence[_Node]) -> set[int]:
    """Nodes whose branches all end with an attempt to compact the history from which the harness did not go on: verifiers trains none of them."""
    resumed = {node for each in nodes for node, kind in each.links if kind == "compaction"}
    leaves = {*range(len(nodes))} - {node.parent for node in nodes}
    kept = [at for at in leaves if at in resumed or not any(kind == "compaction_attempt" for _, kind in nodes[at].links)]
    return {*range(len(nodes))}.difference(*(_path(nodes, at) for at in kept))


class _Node(Struct, frozen=True):
    """A message, the tokens that it adds, 1 for each of them that was sampled, and its log-probability or 0. `links` are the nodes that it follows from in
    another way, and how."""

    parent: int | None
    message: Row
    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    links: list[tuple[int, str]]


def _node_of(where: str, fields: Row) -> _Node:
    given = [(value_at(fields, name, where), f"{where}.{name}") for name in ("token_ids", "mask", "logprobs")]
    ids, mask, scores = ids_of(*given[0]), mask_of(*given[1]), numbers_of(*given[2])
    if len(mask) != len(ids) or len(scores) != sum(mask):
        detail = f"{where} has {len(ids)} token_ids, {len(mask)} values of its mask, {sum(mask)} of them true, and {len(scores)} logprobs"
        raise Refused("length_mismatch", detail)
    if bool(fields.get("sampled")) != any(mask):
        raise Refused("bad_mask", f"{where} says sampled: {fields.get('sampled')}, and {sum(mask)} of its tokens were sampled")
    fields.get("is_content")  # which tokens are of the message and not of its template: `mask` says what is trained
    left = iter(scores)
    parent = None if fields.get("parent") is None else as_integer(fields["parent"], f"{where}.parent")
    message = as_mapping(value_at(fields, "message", where), f"{where}.message")
    links = objects(fields.get("semantic_parents") or [], f"{where}.semantic_parents")
    named = [(as_integer(value_at(link, "node", at), at), as_text(value_at(link, "type", at), at)) for at, link in links]
    return _Node(parent, message, ids, mask, [next(left) if each else 0.0 for each in mask], named)


def _reward(trace: Row) -> float:
    """The sum of the weighted rewards of a run."""
    rewards = as_mapping(value_at(trace, "rewards"), "rewards")
    parts = [as_mapping(value_at(rewards, name, "rewards"), f"rewards.{name}") for name in rewards]
    if not parts:
        raise Refused("no_reward", "'rewards' is empty: the run was not scored")
    return sum(as_number(value_at(part, "score"), "score") * as_number(part.get("weight", 1.0), "weight") for part in parts)


# ``agent_steps``


_CALL: dict[str, Any] = {
    "prompt": [{"role": "user", "content": "What is 2 + 2?"}],
    "completion": [{"role": "assistant", "content": "4"}],
    "tokens": {"prompt_ids": [1, 9, 4], "completion_ids": [16, 2], "completion_mask": [1, 1], "completion_logprobs": [-0.5, -0.25]},
}


@schema("agent_steps", gives=Group, example={"trajectory": [_CALL], "reward": 0.5}, further="runs")
def agent_steps(
    *,
    runs_key: str | None = None,
    steps_key: str = "trajectory",
    reward_key: str = "reward",
    prompt_key: str = "prompt",
    completion_key: str | None = "completion",
    prompt_ids_key: str = "tokens.prompt_ids",
    token_ids_key: str = "tokens.completion_ids",
    logprobs_key: str | None = "tokens.completion_logprobs",
    sampled_mask_key: str | None = "tokens.completion_mask",
    turn_rewards_key: str | None = None,
    agent_key: str | None = None,
    agents: list[str] | None = None,
) -> Convert:
    """Runs as lists of calls of a model: a call that was given all tokens of a row goes on with it, any other begins one.

    Options:
        runs_key: the runs of a row, which share a prompt; null: the row is one run.
        steps_key: the calls of a run, in order. Their keys may have dots, for nested values.
        reward_key: the reward of a run.
        prompt_key: the messages that a call was given.
        completion_key: the messages that it wrote; null: the last one of `prompt_key`.
        prompt_ids_key: the ids that it was given.
        token_ids_key: the ids that it sampled.
        logprobs_key: their log-probabilities; null: none.
        sampled_mask_key: 1 for each of them to train; null: all.
        turn_rewards_key: a reward for each call, beside that of its run.
        agent_key: whose call it is, in the call or in its run. A call goes on only with its own agent's rows; runs must be of one agent.
        agents: whose calls are read, `""` for those without a name; null: all.
    """
    if agents is not None and agent_key is None:
        raise ConfigError("agents goes with agent_key, which says whose call it is")

    def calls(number: int, run: Row) -> Iterator[Call]:
        for where, step in objects(value_at(run, steps_key), steps_key):
            agent = _agent_of(step, agent_key) or _agent_of(run, agent_key)
            if agents is not None and agent not in agents:
                whole(step)
                continue
            given, ids = (ids_of(nested(step, key), f"{where}.{key}") for key in (prompt_ids_key, token_ids_key))
            mask = mask_of(nested(step, sampled_mask_key), f"{where}.{sampled_mask_key}") if sampled_mask_key else [1] * len(ids)
            logprobs = numbers_of(nested(step, logprobs_key), f"{where}.{logprobs_key}") if logprobs_key else None
            asked, said = ([*objects(nested(step, key), f"{where}.{key}")] if key else [] for key in (prompt_key, completion_key))
            if completion_key is None:
                asked, said = asked[:-1], asked[-1:]
            if not (given and ids and said):
                detail = f"{where} has {len(given)} ids of its prompt, {len(ids)} sampled ones and {len(said)} messages of them"
                raise Refused("empty_answer", detail)
            if len(mask) != len(ids) or (logprobs is not None and len(logprobs) != len(ids)):
                detail = f"{where} has {len(ids)} sampled ids, {len(mask)} values of their mask, {len(logprobs or ids)} log-probabilities"
                raise Refused("length_mismatch", detail)
            reward = as_number(nested(step, turn_rewards_key), turn_rewards_key) if turn_rewards_key else 0.0
            before, after = ([message for _, message in listed] for listed in (asked, said))
            yield Call(number, agent, given, ids, mask, logprobs, before, after, reward)

    def convert(row: Row) -> Group:
        runs = [row] if runs_key is None else [run for _, run in objects(value_at(row, runs_key), runs_key)]
        names = [_agent_of(run, agent_key) for run in runs]
        for run in (run for run, name in zip(runs, names, strict=True) if name and agents is not None and name not in agents):
            whole(run)
        runs = [run for run, name in zip(runs, names, strict=True) if not name or agents is None or name in agents]
        if len(several := {*names} if agents is None else {*names}.intersection(agents)) > 1:
            detail = f"its runs are of {', '.join(map(repr, sorted(several)))}; one agent's are compared with each other"
            raise Refused("several_agents", detail)
        rewards = [as_number(value_at(run, reward_key), reward_key) for run in runs]
        return group_of(chain.from_iterable(starmap(calls, enumerate(runs))), rewards, row, judged=turn_rewards_key is not None)

    return convert


def _agent_of(step: Row, key: str | None) -> str:
    """Whose call a step is: a text, or what else stands there as JSON; ``""`` where nothing does."""
    value: Any = step
    for part in key.split(".") if key else ():
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if key is None or value is None else value if isinstance(value, str) else json.dumps(whole(value))
