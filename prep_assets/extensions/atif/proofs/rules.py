"""What trajectories say, by the names that definitions in `formats` give these rules. They share no code with the schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.extensions.rl.proofs.groups import Spoken
from prep_assets.proofs.source_rows import Walk
from prep_assets.proofs.source_rules import tools
from prep_assets.samples import Row

Message = dict[str, Any]


def trajectory(walk: Walk, row: Row, role: str, path: str) -> None:
    """All that the steps of a trajectory say, or of that of the sub-agent that an option names."""
    wanted = walk.options.get("agent")
    one = row if wanted is None else next(each for each in inside(row) if wanted in (each.get("trajectory_id"), each["agent"]["name"]))
    tools(walk, one["agent"].get("tool_definitions") or [], role, "tools")
    walk.chat([message for step in one["steps"] for message in of_step(step)], "chat", path)


def inside(row: Row) -> list[Row]:
    """The trajectories of sub-agents, of theirs as well."""
    return [found for each in row.get("subagent_trajectories") or () for found in (each, *inside(each))]


def of_step(step: Row) -> list[Message]:
    """What a step says: a message, then what was observed."""
    agent = step["source"] == "agent"
    said: Message = {"role": "assistant" if agent else step["source"], "content": step.get("message") or ""}
    if agent:
        said["tool_calls"] = [
            {"id": call["tool_call_id"], "name": call["function_name"], "arguments": call["arguments"]}
            for call in step.get("tool_calls") or ()
        ]
        said |= {"reasoning": step["reasoning_content"]} if step.get("reasoning_content") else {}
        said |= {"weight": 0} if step.get("is_copied_context") or step.get("llm_call_count") == 0 else {}
    results = (step.get("observation") or {}).get("results") or ()
    named = [{"role": "tool", "tool_call_id": each.get("source_call_id"), "content": each.get("content") or ""} for each in results]
    seen = [each if each["tool_call_id"] else {"role": "user", "content": each["content"]} for each in named]
    return [*([said] if agent or said["content"] else []), *(each for each in seen if each["role"] == "tool" or each["content"])]


def calls_of_trajectory(row: Row, options: Mapping[str, Any]) -> list[Spoken]:
    """The calls of a model in a row of trajectories."""
    scores = options.get("logprobs_key", "logprobs")
    calls = list[Spoken]()
    for run, outer in enumerate(row[options["runs_key"]] if options.get("runs_key") else [row]):
        for each in (outer, *(inside(outer) if options.get("subagents") == "train" else ())):
            for step in each["steps"]:
                if step["source"] == "agent" and not step.get("is_copied_context") and step.get("llm_call_count") != 0:
                    metrics, name = step["metrics"], "" if each is outer else each["trajectory_id"]
                    ids = metrics["completion_token_ids"]
                    calls.append(Spoken(run, name, metrics["prompt_token_ids"], ids, [1] * len(ids), metrics[scores] if scores else []))
    return calls
