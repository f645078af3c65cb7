"""Runs of agents as a graph of messages: ``verifiers_trace``, the rows that verifiers and prime-rl write.

Each node holds a message with the tokens that it adds to those before it. Where the prompt of a turn begins with all tokens of the turn before it, the turn
goes on with the same path; where it does not, as after retries, or where a template writes an answer otherwise when it reads it, the graph branches. So a
path from the root to a leaf is what a model saw and wrote, token by token, and no other is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal

from msgspec import Struct

from prep_assets.errors import Refused
from prep_assets.samples import Group, Sampled
from prep_assets.schemas.fields import Row, as_integer, as_list, as_mapping, as_number, objects, value_at, whole
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.rewards import checked_logprobs, prompt_turns
from prep_assets.schemas.turns import ChatFormat, tools_at

TRACE = "verifiers_trace"


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


@schema(TRACE, gives=Group, example=_EXAMPLE)
def verifiers_trace(*, branches: Literal["all", "last"] = "all") -> Convert:
    """A trace of verifiers, or an episode with one: each branch is a response, with the ids that were sampled, their log-probabilities and the run's reward.

    Options:
        branches: `all`: the branches of a run must share one prompt, up to the first sampled token; `last`: the branch that was written last,
            with what went before as its prompt.
    """

    def convert(row: Row) -> Group:
        trace = row if row.get("nodes") is not None else _only_trace(row)
        nodes = [_node_of(place, fields) for place, fields in objects(value_at(trace, "nodes"), "nodes")]
        if not nodes:
            raise Refused("no_assistant_turn", "'nodes' is empty")
        paths = _paths(nodes)[-1 if branches == "last" else 0 :]
        for left_out in {*range(len(nodes))}.difference(*paths):
            whole(nodes[left_out].message)
        runs = [_run_of([nodes[at] for at in path], f"the branch that ends with nodes[{path[-1]}]") for path in paths]
        if any(run.prompt != runs[0].prompt for run in runs):
            raise Refused(
                "several_prompts",
                f"{len(runs)} branches do not begin with the same tokens: a turn did not go on with those of the turn before it. "
                "The option branches: last takes the branch that was written last",
            )
        prompt = prompt_turns([node.message for node in runs[0].asked], "nodes")
        responses = tuple(ChatFormat().turns([node.message for node in run.answered], "nodes") for run in runs)
        logprobs = checked_logprobs(tuple(run.logprobs for run in runs), "logprobs")
        sampled = Sampled(tuple(run.ids for run in runs), runs[0].prompt, logprobs, tuple(run.mask for run in runs))
        return Group(prompt, responses, (_reward(trace),) * len(runs), tools_at(trace, "tools"), sampled=sampled)

    return convert


def _only_trace(row: Row) -> Row:
    traces = [trace for _, trace in objects(value_at(row, "traces"), "traces")]
    if len(traces) != 1:
        raise Refused("several_traces", f"the episode has {len(traces)} traces; write those of one agent as rows of their own")
    return traces[0]


class _Node(Struct, frozen=True):
    """A message, the tokens that it adds, 1 for each of them that was sampled, and its log-probability or 0."""

    parent: int | None
    message: Row
    ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]


def _node_of(where: str, fields: Row) -> _Node:
    lists = {name: as_list(value_at(fields, name, where), f"{where}.{name}") for name in ("token_ids", "mask", "logprobs")}
    if any(each not in (True, False) for each in lists["mask"]):
        raise Refused("bad_mask", f"{where}.mask holds other values than true and false")
    ids, mask = tuple(as_integer(each, where) for each in lists["token_ids"]), tuple(map(int, lists["mask"]))
    scores = [as_number(each, f"{where}.logprobs") for each in lists["logprobs"]]
    if len(mask) != len(ids) or len(scores) != sum(mask):
        detail = f"{where} has {len(ids)} token_ids, {len(mask)} values of its mask, {sum(mask)} of them true, and {len(scores)} logprobs"
        raise Refused("length_mismatch", detail)
    if bool(fields.get("sampled")) != any(mask):
        raise Refused("bad_mask", f"{where} says sampled: {fields.get('sampled')}, and {sum(mask)} of its tokens were sampled")
    fields.get("is_content")  # which tokens are of the message and not of its template: `mask` says what is trained
    left = iter(scores)
    parent = None if fields.get("parent") is None else as_integer(fields["parent"], f"{where}.parent")
    message = as_mapping(value_at(fields, "message", where), f"{where}.message")
    return _Node(parent, message, ids, mask, tuple(next(left) if each else 0.0 for each in mask))


def _paths(nodes: Sequence[_Node]) -> list[list[int]]:
    """The numbers of the nodes from the root to each leaf, in the order of the leaves. A node stands behind its parent, so no path is a circle."""
    if wrong := [at for at, node in enumerate(nodes) if node.parent is not None and not 0 <= node.parent < at]:
        raise Refused("bad_parent", f"nodes[{wrong[0]}] has the parent {nodes[wrong[0]].parent}, which does not stand before it")
    parents = {node.parent for node in nodes}
    paths = list[list[int]]()
    for leaf in (at for at in range(len(nodes)) if at not in parents):
        path = [leaf]
        while (parent := nodes[path[-1]].parent) is not None:
            path.append(parent)
        paths.append(path[::-1])
    return paths


class _Run(Struct, frozen=True):
    """A branch, cut before its first sampled token: ids of the prompt; ids, mask and log-probabilities behind it; the messages of both."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    asked: tuple[_Node, ...]
    answered: tuple[_Node, ...]


def _run_of(path: Sequence[_Node], what: str) -> _Run:
    first = next((number for number, node in enumerate(path) if any(node.mask)), None)
    if first is None:
        raise Refused("no_assistant_turn", f"{what} has no token that was sampled")
    ids, mask, logprobs = (tuple(chain.from_iterable(getattr(node, name) for node in path)) for name in ("ids", "mask", "logprobs"))
    cut = mask.index(1)
    return _Run(ids[:cut], ids[cut:], mask[cut:], logprobs[cut:], tuple(path[:first]), tuple(path[first:]))


def _reward(trace: Row) -> float:
    """The sum of the weighted rewards of a run."""
    rewards = as_mapping(value_at(trace, "rewards"), "rewards")
    parts = [as_mapping(value_at(rewards, name, "rewards"), f"rewards.{name}") for name in rewards]
    if not parts:
        raise Refused("no_reward", "'rewards' is empty: the run was not scored")
    return sum(as_number(value_at(part, "score"), "score") * as_number(part.get("weight", 1.0), "weight") for part in parts)
