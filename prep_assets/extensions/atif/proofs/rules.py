"""What trajectories say, and why one is not whole, by the names that definitions in `formats` give these rules. They share no code with the schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from prep_assets.extensions.rl.proofs.groups import Spoken, faults_of_calls, is_number, within
from prep_assets.proofs.formats import Format
from prep_assets.proofs.rejected_rows import chat_fault
from prep_assets.proofs.row_rules import UNSURE, by_reasons, once
from prep_assets.proofs.source_rows import Walk
from prep_assets.proofs.source_rules import tools
from prep_assets.samples import Row

Message = dict[str, Any]


def trajectory(walk: Walk, row: Row, role: str, path: str) -> None:
    """All that the steps of a trajectory say, or of that of the sub-agent that an option names."""
    [one] = _read(row, walk.options)
    tools(walk, one["agent"].get("tool_definitions") or [], role, "tools")
    walk.chat([message for step in one["steps"] for message in of_step(step)], "chat", path)


def inside(row: Row) -> list[Row]:
    """The trajectories of sub-agents, of theirs as well."""
    return [found for each in row.get("subagent_trajectories") or () for found in (each, *inside(each))]


def _read(row: Row, options: Mapping[str, Any]) -> list[Row]:
    """The trajectories that the option `agent` names, of which there must be one."""
    wanted = options.get("agent")
    return [row] if wanted is None else [each for each in inside(row) if wanted in (each.get("trajectory_id"), each["agent"].get("name"))]


def of_step(step: Row) -> list[Message]:
    """What a step says: a message, then what was observed."""
    agent, content = step["source"] == "agent", step.get("message") or ""
    said: Message = {"role": "assistant" if agent else step["source"], "content": content}
    if agent:
        said["tool_calls"] = [
            {"id": call["tool_call_id"], "name": call["function_name"], "arguments": call["arguments"]}
            for call in step.get("tool_calls") or ()
        ]
        said |= {"reasoning": step["reasoning_content"]} if step.get("reasoning_content") else {}
        said |= {} if _is_call(step) else {"weight": 0}
    results = (step.get("observation") or {}).get("results") or ()
    named = [{"role": "tool", "tool_call_id": each.get("source_call_id"), "content": each.get("content") or ""} for each in results]
    seen = [each if each["tool_call_id"] else {"role": "user", "content": each["content"]} for each in named]
    shown = content and not (isinstance(content, str) and content.isspace())
    return [*([said] if agent or shown else []), *(each for each in seen if each["role"] == "tool" or each["content"])]


def _is_call(step: Row) -> bool:
    """Whether a model said what a step says."""
    count = step.get("llm_call_count")
    return not step.get("is_copied_context") and (count is None or count > 0)


def calls_of_trajectory(row: Row, options: Mapping[str, Any]) -> list[Spoken]:
    """The calls of a model in a row of trajectories."""
    scores = options.get("logprobs_key", "logprobs")
    calls, runs = list[Spoken](), row[options["runs_key"]] if options.get("runs_key") else [row]
    for run, each, name in _trained(row, options):
        for step in each["steps"]:
            if step["source"] == "agent" and _is_call(step):
                metrics = step["metrics"]
                ids = metrics["completion_token_ids"]
                logprobs = metrics[scores] if scores else []
                reward = within(runs[run], options.get("reward_key", "extra.reward"))
                calls.append(Spoken(run, name, metrics["prompt_token_ids"], ids, [1] * len(ids), logprobs, reward=reward))
    return calls


def _trained(row: Row, options: Mapping[str, Any]) -> Iterator[tuple[int, Row, str]]:
    """Yield the number of a run, each of its trajectories whose calls are trained, and whose these are."""
    for run, outer in enumerate(row[options["runs_key"]] if options.get("runs_key") else [row]):
        yield run, outer, ""
        yield from ((run, each, each["trajectory_id"]) for each in (inside(outer) if options.get("subagents") == "train" else ()))


def messages_of_trajectories(row: Row, options: Mapping[str, Any]) -> list[Message]:
    """What the steps of a row of trajectories say, those of sub-agents whose calls are trained too."""
    return [message for _, each, _ in _trained(row, options) for step in each["steps"] for message in of_step(step)]


# Whether a trajectory is whole.

_HEADER = 8
"""Most tokens of a template between two answers in a row."""
_NAMED = ("schema_version", "session_id", "trajectory_id", "notes", "final_metrics", "continued_trajectory_ref", "extra")
_STEP = ("step_id", "source", "message", "timestamp", "model_name", "reasoning_effort", "metrics", "extra", "observation")
_FIELDS: Mapping[str, frozenset[str]] = {
    "trajectory": frozenset(("agent", "steps", "subagent_trajectories", *_NAMED)),
    "agent": frozenset(("name", "version", "model_name", "extra", "tool_definitions")),
    "step": frozenset((*_STEP, "is_copied_context", "llm_call_count")),
    "call": frozenset(("tool_call_id", "function_name", "arguments", "extra")),
    "result": frozenset(("source_call_id", "content", "subagent_trajectory_ref", "extra")),
    "part": frozenset(("type", "text")),
}
"""Fields of objects that are read."""


@once
def unlike_a_trace(row: Row, format: Format) -> bool | None:
    """The steps give no reason, and still the messages are no chat, or tools no tools; `None` where the steps give one."""
    if _reasons(row, format):
        return None
    if "agent" in format.options:
        listed = _read(row, format.options)
        chats = [[message for step in listed[0]["steps"] for message in of_step(step)]]
    else:
        listed = [each for _, each, _ in _trained(row, format.options)]
        chats = [chat for each in listed if (chat := _to_last_call(each))]
    return any(chat_fault(chat, listed[0]["agent"].get("tool_definitions")) for chat in chats)


def _to_last_call(one: Row) -> list[Message]:
    """The messages up to the last answer that is trained, which is without its results."""
    last = max((at for at, step in enumerate(one["steps"]) if step["source"] == "agent" and _is_call(step)), default=-1)
    return [message for at, step in enumerate(one["steps"][: last + 1]) for message in of_step(step)[: 1 if at == last else None]]


@once
def _reasons(row: Row, format: Format) -> set[str]:
    if "agent" not in format.options:
        return {*_of_group(row, format.options)}
    found = _read(row, format.options)
    return {*_of_steps(found[0])} if len(found) == 1 else {"several_agents" if found else "no_trained_trace"}


trajectory_is = by_reasons(_reasons, unlike_a_trace)
"""Rules: a trajectory is rejected for a reason that its steps or its ids give."""


def _of_steps(one: Row, *more: str) -> Iterator[str]:
    """Yield why a trajectory is not whole, which may have more fields."""
    version, asked, before = re.fullmatch("ATIF-v1[.]([0-9]+)", one["schema_version"]), False, list[Any]()
    if version is None or int(version[1]) > 8:
        yield "unknown_version"
    known = not _strange(one, "trajectory", *more) and not _strange(one["agent"], "agent") and isinstance(one["steps"], list)
    if not known or not all(isinstance(each, Mapping) for each in inside(one)):
        yield UNSURE
    for number, step in enumerate(one["steps"], 1):
        source, said = step["source"], of_step(step)
        given, wrote = ((step.get("metrics") or {}).get(f"{name}_token_ids") or [] for name in ("prompt", "completion"))
        asked |= source == "user"
        if source not in ("system", "user", "agent"):
            yield "unknown_role"
        if (step.get("extra") or {}).get("is_sidechain") is True:
            yield "sidechains"
        if not isinstance(step.get("is_copied_context"), bool | None):
            yield "wrong_type"
        if type(step["step_id"]) is not int or _is_strange(step) or not all(type(ids) is list for ids in (given, wrote)):
            yield UNSURE
        follows = source == "agent" and before and len(given) > len(before) + _HEADER and given[: len(before)] == before
        if step["step_id"] != number or (source == "user" and not said) or (source == "agent" and not asked) or follows:
            yield "lost_turn"
        before = [*given, *wrote] if source == "agent" and len(said) == 1 else []


def _strange(fields: Any, what: str, *more: str) -> bool:
    return not (isinstance(fields, Mapping) and {*fields} <= _FIELDS[what] | {*more})


def _is_strange(step: Row) -> bool:
    """Whether a step has fields, or fields values, that this reading does not know."""
    agent, count = step["source"] == "agent", step.get("llm_call_count")
    results, calls = (step.get("observation") or {}).get("results") or [], step.get("tool_calls") or []
    named = [
        *((call["tool_call_id"], call["function_name"]) for call in calls),
        *((each.get("source_call_id") or "-", "") for each in results),
    ]
    contents = [step.get("message"), *(each.get("content") for each in results)]
    return (
        _strange(step, "step", *(("tool_calls", "reasoning_content") if agent else ()))
        or not (count is None or type(count) is int)
        or any(_strange(call, "call") or call["arguments"] is None for call in calls)
        or any(_strange(each, "result") or each.get("source_call_id") == "" for each in results)
        or not all(isinstance(each, str) for pair in named for each in pair)
        or not isinstance(step.get("reasoning_content"), str | None)
        or any(_strange(part, "part") for content in contents if not isinstance(content, str | None) for part in content)
        or not all(isinstance(step.get(name), Mapping | None) for name in ("extra", "metrics", "observation"))
        or not (isinstance(calls, list) and isinstance(results, list))
    )


def _of_group(row: Row, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield why trajectories are no runs with the ids that were sampled."""
    runs = row[options["runs_key"]] if options["runs_key"] else [row]
    rewards = [_at(run, options["reward_key"]) for run in runs]
    named = [(run, name) for run, _, name in _trained(row, options)]
    if not all(map(is_number, rewards)) or len({*named}) < len(named) or not all(isinstance(name, str) for _, name in named):
        yield UNSURE
    for _, each, _ in _trained(row, options):
        yield from _of_steps(each, options["reward_key"])  # of a single run, its definition puts it there
    calls, scored = calls_of_trajectory(row, options), bool(options["logprobs_key"])
    if any(not call.given or not call.wrote for call in calls):
        yield "length_mismatch"
        return
    faults = [*faults_of_calls(calls, scored=scored)]
    yield from faults
    if {"length_mismatch", "no_assistant_turn"} & {*faults}:
        return
    first = next(each for _, each, _ in _trained(row, options) if _to_last_call(each))
    at = next(number for number, step in enumerate(first["steps"]) if step["source"] == "agent" and _is_call(step))
    asked = [message for step in first["steps"][:at] for message in of_step(step)]
    if asked[-1:] and asked[-1]["role"] in ("assistant", "system"):
        yield "role_order"


def _at(row: Row, path: str) -> Any:
    """The value at a dotted path, unless a field has the whole name."""
    if row.get(path) is not None:
        return row[path]
    value: Any = row
    for key in path.split("."):
        value = value[key]
    return value
