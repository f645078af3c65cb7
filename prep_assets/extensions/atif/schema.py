"""``atif`` and ``atif_group``: trajectories in Harbor's Agent Trajectory Interchange Format, as a chat or with the ids that a model sampled.

The format: https://github.com/harbor-framework/harbor/blob/main/rfcs/0001-trajectory-format.md. 1.3 added ids that were sampled, 1.4 those that a model was
given, 1.5 tools on offer, 1.6 parts of a content, 1.7 the trajectories of sub-agents inside that of their agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.extensions.agents.logs import Message, result_of
from prep_assets.extensions.agents.runs import Call, group_of
from prep_assets.extensions.rl.schemas import ids_of, nested, numbers_of
from prep_assets.samples import ASSISTANT, SYSTEM, USER, Group, Row, Sample, changed
from prep_assets.schemas.fields import as_integer, as_list, as_mapping, as_number, objects, text_of, value_at, whole, wrong_type
from prep_assets.schemas.registry import Convert, schema
from prep_assets.schemas.turns import ChatFormat, chat_sample, require_answer, tools_at

NEWEST = 8
"""The latest minor version; later ones may say what this module does not know."""
HEADER = 8
"""Most tokens that a template writes between two answers in a row."""
_ROLES = {"system": SYSTEM, "user": USER, "agent": ASSISTANT}
_OF_TRAJECTORY = ("schema_version", "session_id", "trajectory_id", "notes", "final_metrics", "continued_trajectory_ref", "extra")
_OF_STEP = ("timestamp", "model_name", "reasoning_effort", "metrics", "extra")


def _step(number: int, source: str, message: str, **fields: Any) -> dict[str, Any]:
    return {"step_id": number, "source": source, "message": message, **fields}


def _sampled(prompt: list[int], ids: list[int], logprobs: list[float]) -> dict[str, Any]:
    return {"prompt_token_ids": prompt, "completion_token_ids": ids, "logprobs": logprobs}


_CALLED: dict[str, Any] = {
    "tool_calls": [{"tool_call_id": "call_1", "function_name": "weather", "arguments": {"city": "Oslo"}}],
    "observation": {"results": [{"source_call_id": "call_1", "content": "4"}]},
}
_EXAMPLE: dict[str, Any] = {
    "schema_version": "ATIF-v1.7",
    "agent": {"name": "terminus-2", "version": "2.0.0"},
    "steps": [
        _step(1, "user", "How warm is it in Oslo?"),
        _step(2, "agent", "", reasoning_content="I must look it up.", **_CALLED),
        _step(3, "agent", "It is 4 degrees."),
    ],
}
_SAMPLED: dict[str, Any] = {
    **_EXAMPLE,
    "steps": [_step(1, "user", "What is 2 + 2?"), _step(2, "agent", "4", metrics=_sampled([1, 9, 4], [16, 2], [-0.5, -0.25]))],
    "extra": {"reward": 0.5},
}


@schema("atif", gives=Sample, example=_EXAMPLE)
def atif(*, agent: str | None = None) -> Convert:
    """A trajectory in ATIF as a chat. Results of tools answer their calls; what else an agent observed is a turn of the user.

    Options:
        agent: the `trajectory_id` or the agent's name of the sub-agent whose trajectory is read, of those inside; null: the outermost one.
    """

    def convert(row: Row) -> Sample:
        inside = [*_embedded(row)]
        found = [row] if agent is None else [each for each in inside if agent in (each.get("trajectory_id"), _agent(each).get("name"))]
        if len(found) != 1:
            raise Refused(
                "several_agents" if found else "no_trained_trace", f"{len(found)} of its trajectories are of {agent!r}, needs one"
            )
        messages = [message for said in _steps(found[0]) for message in said]
        require_answer(turns := ChatFormat().turns(messages, "steps"))
        sample = changed(chat_sample({}, turns), tools=tools_at({"tools": _tools(found[0])}, "tools"))
        whole(inside if agent is None else row)  # what other agents said
        return sample

    return convert


@schema("atif_group", gives=Group, example=_SAMPLED, variant_of="atif", further="runs")
def atif_group(
    *,
    runs_key: str | None = None,
    reward_key: str = "extra.reward",
    logprobs_key: str | None = "logprobs",
    subagents: Literal["leave_out", "train"] = "leave_out",
) -> Convert:
    """Trajectories in ATIF with the ids that a model was given and sampled: runs of a group. What the ids say, the messages must say as well.

    Options:
        runs_key: the trajectories of a row, which share a prompt; null: the row is one.
        reward_key: the reward of a trajectory, dots for nested fields.
        logprobs_key: log-probabilities in ``metrics``; null: none.
        subagents: `leave_out` the calls of sub-agents, or `train` them as further rows of their run.
    """

    def convert(row: Row) -> Group:
        runs = [row] if runs_key is None else [run for _, run in objects(value_at(row, runs_key), runs_key)]
        rewards = [as_number(nested(run, reward_key), reward_key) for run in runs]
        calls = chain.from_iterable(_calls(number, run, logprobs_key, subagents == "train") for number, run in enumerate(runs))
        group = group_of(calls, rewards, {"tools": next(whole(_tools(run)) for run in runs)})
        assert group.sampled is not None
        return changed(group, sampled=changed(group.sampled, whole=True))

    return convert


def _agent(trajectory: Row) -> Row:
    return as_mapping(value_at(trajectory, "agent"), "agent")


def _tools(trajectory: Row) -> Any:
    return _agent(trajectory).get("tool_definitions")


def _embedded(trajectory: Row) -> Iterator[Row]:
    for _, each in objects(trajectory.get("subagent_trajectories") or [], "subagent_trajectories"):
        yield each
        yield from _embedded(each)


def _steps(trajectory: Row) -> Iterator[list[Message]]:
    """The messages of each step, of a trajectory that begins with what its agent was asked."""
    named = text_of(trajectory, "schema_version")
    version = re.fullmatch(r"ATIF-v1\.(\d+)", named)
    if version is None or int(version[1]) > NEWEST:
        raise Refused("unknown_version", f"'schema_version' is {named!r}; known: ATIF-v1.0 to ATIF-v1.{NEWEST}")
    for name in _OF_TRAJECTORY:
        whole(trajectory.get(name))
    for name in ("name", "version", "model_name", "extra"):
        whole(_agent(trajectory).get(name))
    asked, before = False, list[Any]()
    for number, (place, step) in enumerate(objects(value_at(trajectory, "steps"), "steps"), 1):
        if as_integer(value_at(step, "step_id", place), f"{place}.step_id") != number:
            raise Refused("lost_turn", f"{place} has step_id {step['step_id']}, and is step {number}: a step is missing, or out of order")
        source, said = step.get("source"), [*_messages(place, step)]
        metrics = as_mapping(step.get("metrics") or {}, f"{place}.metrics")
        given, wrote = (
            as_list(metrics.get(name) or [], f"{place}.metrics.{name}") for name in ("prompt_token_ids", "completion_token_ids")
        )
        asked |= source == "user"
        if source == "user" and not said:
            raise Refused("lost_turn", f"{place} is of the user, and empty: the prompt may stand in prompt_token_ids alone")
        if source == "agent" and not asked:
            raise Refused(
                "lost_turn", f"{place} is the agent's, and nothing was asked before{'; its prompt_token_ids may say it' if given else ''}"
            )
        if source == "agent" and before and len(given) > len(before) + HEADER and given[: len(before)] == before:
            detail = f"{place} follows an answer, and was given {len(given) - len(before)} tokens more: what came between is lost"
            raise Refused("lost_turn", detail)
        before = [*given, *wrote] if source == "agent" and len(said) == 1 else []
        yield said


def _messages(place: str, step: Row) -> Iterator[Message]:
    """The message of a step, then what was observed."""
    source, extra = text_of(step, "source", place), as_mapping(step.get("extra") or {}, f"{place}.extra")
    if source not in _ROLES:
        raise Refused("unknown_role", f"{place} has source {source!r}; known: {', '.join(_ROLES)}")
    if extra.get("is_sidechain") is True:
        raise Refused("sidechains", f"{place} is of a sub-agent, in the list of another agent's steps")
    for name in _OF_STEP:
        whole(step.get(name))
    message = {"role": _ROLES[source], "content": _content(step.get("message"), f"{place}.message")}
    if source == "agent":
        calls = [_call(*placed) for placed in objects(step.get("tool_calls") or [], f"{place}.tool_calls")]
        message |= {"reasoning_content": step.get("reasoning_content"), "tool_calls": calls}
    if not _is_call(place, step):
        message |= {"loss_weight": 0} if source == "agent" else {}
    observed = as_mapping(step.get("observation") or {}, f"{place}.observation").get("results") or []
    results = [*objects(observed, f"{place}.observation.results")]
    if source == "agent" or not _is_blank(message["content"]):
        yield message
    for within, result in results:
        for name in ("subagent_trajectory_ref", "extra"):
            whole(result.get(name))
        content, call = _content(result.get("content"), f"{within}.content"), result.get("source_call_id")
        if call is not None:
            yield result_of(text_of(result, "source_call_id", within), content)
        elif content:
            yield {"role": USER, "content": content}


def _is_call(place: str, step: Row) -> bool:
    """Whether a model said what a step says, and not another trajectory before."""
    copied, calls = step.get("is_copied_context"), step.get("llm_call_count")
    if not isinstance(copied, bool | None):
        wrong_type(copied, f"{place}.is_copied_context", "true or false")
    return copied is not True and (calls is None or as_integer(calls, f"{place}.llm_call_count") > 0)


def _is_blank(content: Any) -> bool:
    return not content or (isinstance(content, str) and content.isspace())


def _call(place: str, call: Row) -> Message:
    whole(call.get("extra"))
    name, id = (text_of(call, key, place) for key in ("function_name", "tool_call_id"))
    return {"id": id, "function": {"name": name, "arguments": value_at(call, "arguments", place)}}


def _content(value: object, place: str) -> Any:
    """A text, or its parts, of which an image has its path in ``source``."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return value or ""
    for within, part in objects(value, place):
        if part.get("source") is not None:
            whole(as_mapping(part["source"], within).get("media_type"))
    return value


def _calls(run: int, trajectory: Row, logprobs_key: str | None, subagents: bool, agent: str = "") -> Iterator[Call]:
    """The calls of a model in a trajectory, then those of its sub-agents."""
    before = list[Message]()
    for (place, step), said in zip(objects(value_at(trajectory, "steps"), "steps"), _steps(trajectory), strict=True):
        if step.get("source") == "agent" and _is_call(place, step):
            metrics = as_mapping(step.get("metrics") or {}, f"{place}.metrics")
            keys = ("prompt_token_ids", "completion_token_ids", *([logprobs_key] if logprobs_key else []))
            given, ids, *scores = (value_at(metrics, key, f"{place}.metrics") for key in keys)
            prompt, wrote = ids_of(given, f"{place}.metrics.{keys[0]}"), ids_of(ids, f"{place}.metrics.{keys[1]}")
            logprobs = numbers_of(scores[0], f"{place}.metrics.{logprobs_key}") if logprobs_key else None
            if not (prompt and wrote) or len(wrote if logprobs is None else logprobs) != len(wrote):
                detail = (
                    f"{place} has {len(prompt)} ids of its prompt, {len(wrote)} sampled ones and {len(logprobs or ())} log-probabilities"
                )
                raise Refused("length_mismatch", detail)
            yield Call(run, agent, prompt, wrote, [1] * len(wrote), logprobs, [*before], said[:1])
        before += said
    inside = objects(trajectory.get("subagent_trajectories") or [], "subagent_trajectories")
    for place, each in inside:
        if subagents:
            yield from _calls(run, each, logprobs_key, True, text_of(each, "trajectory_id", place))
        else:
            whole(each)
