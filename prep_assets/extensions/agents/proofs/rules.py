"""Rules about rows that JSON Schema cannot say, and about columns, by the names that definitions in `formats` give them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any

from prep_assets.extensions.rl.proofs.groups import (
    RunRow,
    Spoken,
    faults_of_calls,
    is_number,
    named_by,
    rows_of_calls,
    trained_traces,
    within,
)
from prep_assets.extensions.rl.proofs.groups import calls_of_steps as calls_of_steps
from prep_assets.extensions.rl.proofs.groups import calls_of_trace as calls_of_trace
from prep_assets.proofs.formats import Format, definition_of, rule_named, without
from prep_assets.proofs.rejected_rows import chat_fault
from prep_assets.proofs.row_rules import UNSURE, by_reasons, once, rewards_of, under
from prep_assets.proofs.source_rows import Walk
from prep_assets.proofs.source_rules import text, tools
from prep_assets.proofs.source_texts import ANSWERS, EXACT, Said
from prep_assets.samples import Row

# Rows that must be rejected.


def one_reward(row: Row, format: Format) -> bool | None:
    """All rewards are equal."""
    needed = format.name == "group_pair" or format.options.get("desirable_from") is None
    return needed and len(set(map(float, rewards_of(row, format)))) == 1


def one_response(row: Row, format: Format) -> bool:
    """There is one response, where an order is needed."""
    return len(under(row, format, "responses_key")) < 2 and format.options.get("desirable_from") is None


def near_rewards(row: Row, format: Format) -> bool:
    """The best and the worst reward differ by less than the least margin."""
    rewards, least = rewards_of(row, format), format.options["min_margin"]
    return least is not None and float(max(rewards)) - float(min(rewards)) < least


def tied_rewards(row: Row, format: Format) -> bool:
    """Rewards that decide are equal, and rows with ties are refused."""
    rewards = [*map(float, rewards_of(row, format))]
    if format.options["ties"] != "refuse":
        return False
    if format.name == "group_list":
        return len({*rewards}) < len(rewards)
    return any(rewards.count(extreme) > 1 for extreme in (max(rewards), min(rewards)))


def low_rewards(row: Row, format: Format) -> bool:
    """No reward is as large as the least one."""
    least = format.options["at_least"]
    return least is not None and max(rewards_of(row, format)) < least


def twice_said(row: Row, format: Format) -> bool | None:
    """The best response and the worst, or two with different rewards, say the same. Nobody can tell of messages, and of the labels of equal texts."""
    responses, rewards = under(row, format, "responses_key"), [*map(float, rewards_of(row, format))]
    if not all(isinstance(each, str) for each in responses):
        return None
    if format.name == "group_pair":
        return bool(responses[rewards.index(max(rewards))] == responses[rewards.index(min(rewards))])
    twice = len({*zip(responses, rewards, strict=True)}) > len({*responses})
    return None if twice and format.name == "group_kto" else twice


def several_turns(row: Row, format: Format) -> bool:
    """A response has several turns."""
    return any(isinstance(each, list) and len(each) > 1 for each in under(row, format, "responses_key"))


# Runs of agents.


@once
def unlike_runs(row: Row, format: Format) -> bool | None:
    """Calls give no reason, and still the messages of a row of them are no chat; `None` where they give one."""
    if _reasons(row, format):
        return None
    holder = next((trace for trace, _ in trained_traces(row, format.options)), row) if "branches" in format.options else row
    beside = {key: holder[key] for key in ("functions", "available_tools", "documents", "chat_template_kwargs") if key in holder}
    chats = [_messages_of(each, _calls(row, format)) for each in rows_of_calls(_calls(row, format))]
    if any(all(message.get("role") != "assistant" for message in chat) for chat in chats):
        return None
    return any(chat_fault(chat, holder.get("tools"), **beside) for chat in chats)


@once
def _calls(row: Row, format: Format) -> list[Spoken]:
    read: Callable[..., list[Spoken]] = rule_named(definition_of(format.name)["x-runs"])
    return read(row, format.options)


def _messages_of(row: RunRow, calls: Sequence[Spoken]) -> list[Row]:
    said = list[Row]()
    for number in row.calls:
        said += [*calls[number].asked[len(said) :], *calls[number].said]
    return said


@once
def _reasons(row: Row, format: Format) -> set[str]:
    options, is_trace = format.options, "branches" in format.options
    found = {*(_of_nodes(row, options) if is_trace else _of_steps(row, options))}
    if {"bad_parent", "bad_mask", "length_mismatch"} & found:
        return found
    calls = _calls(row, format)
    if any(True not in [*map(bool, call.trained)] for call in calls) or any(map(_is_strange, calls)):  # whose messages nobody sees
        found.add(UNSURE)
    if not is_trace and any(not call.given or not call.wrote or not call.said for call in calls):
        return {*found, "empty_answer"}
    found |= {*faults_of_calls(calls, scored=is_trace or bool(options["logprobs_key"]))}
    if not {"length_mismatch", "no_assistant_turn"} & found:
        rows = rows_of_calls(calls)
        for each in rows:
            known = 0
            for call in (calls[number] for number in each.calls):
                found |= {"messages_differ"} if len(call.asked) < known else set()
                known = max(known, len(call.asked)) + len(call.said)
        asked = calls[rows[0].calls[0]].asked
        if not asked or asked[-1].get("role") in ("assistant", "system", "developer", "tool_call", "function_call"):
            found.add("role_order" if asked else "empty_prompt")
    return found


def _is_strange(call: Spoken) -> bool:
    """Whether a call has values of types that this reading does not know."""
    lists = (call.given, call.wrote, call.trained, call.logprobs, call.asked, call.said)
    numbers = (*call.given, *call.wrote, *call.trained)
    return (
        not all(isinstance(each, list) for each in lists)
        or not all(isinstance(each, Mapping) for each in (*call.asked, *call.said))
        or not all(isinstance(each, int) for each in numbers)
        or not {*call.trained} <= {0, 1}
    )


def _of_steps(row: Row, options: Mapping[str, Any]) -> Iterator[str]:
    key, agents = options["agent_key"], options["agents"]
    runs = row[options["runs_key"]] if options["runs_key"] else [row]
    names = [named_by(run, key) for run in runs]
    if len({*names} if agents is None else {*names} & {*agents}) > 1:
        yield "several_agents"
    rewards = [within(run, options["reward_key"]) for run in runs]
    if options["turn_rewards_key"] or not all(map(is_number, rewards)):
        yield UNSURE


def _of_nodes(row: Row, options: Mapping[str, Any]) -> Iterator[str]:
    traces = [*trained_traces(row, options)]
    if len({name for _, name in traces}) != 1:
        yield "several_agents" if traces else "no_trained_trace"
    for trace, _ in traces:
        for at, node in enumerate(trace["nodes"]):
            if len(node["mask"]) != len(node["token_ids"]) or len(node["logprobs"]) != sum(node["mask"]):
                yield "length_mismatch"
            if bool(node.get("sampled")) != any(node["mask"]):
                yield "bad_mask"
            if node.get("parent") is not None and not (type(node["parent"]) is int and 0 <= node["parent"] < at):
                yield "bad_parent"
            links = node.get("semantic_parents") or ()
            if any(type(link["node"]) is not int or not isinstance(link["type"], str) for link in links) or _is_strange(
                Spoken(0, "", node["token_ids"], [], node["mask"], node["logprobs"], [], [node["message"]])
            ):
                yield UNSURE
            if not all(map(is_number, node["logprobs"])):
                yield UNSURE
        if not trace["rewards"]:
            yield "no_reward"
        if not all(is_number(part["score"]) and is_number(part.get("weight", 1.0)) for part in trace["rewards"].values()):
            yield UNSURE


runs_are = by_reasons(_reasons, unlike_runs)
"""Rules: runs are rejected for a reason that their calls give."""


# What becomes of a column.


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


def best(walk: Walk, value: Any, role: str, path: str) -> None:
    """The response with the largest reward, of equal ones the first, is the answer."""
    rewards = _ranked(walk)
    _responses(walk, value, [rewards.index(max(rewards))], ["assistant"], path)


def best_and_worst(walk: Walk, value: Any, role: str, path: str) -> None:
    """The response with the largest reward is chosen, the one with the smallest rejected; of equal ones the first. With ``margin`` by how much."""
    rewards = _ranked(walk)
    if walk.options.get("margin"):
        walk.said.append(Said(path, "margin", walk.turn, EXACT, json.dumps(float(max(rewards)) - float(min(rewards)))))
    _responses(walk, value, [rewards.index(choose(rewards)) for choose in (max, min)], ANSWERS[:2], path)


def ordered(walk: Walk, value: Any, role: str, path: str) -> None:
    """All responses and their rewards, the best first; equal ones in the order of the row."""
    rewards = _ranked(walk)
    order = sorted(range(len(rewards)), key=lambda number: -rewards[number])
    _responses(walk, value, order, [f"responses[{number}]" for number in range(len(order))], path)
    walk.said.append(Said(path, "rewards", walk.turn, EXACT, json.dumps([float(rewards[number]) for number in order])))


def labelled(walk: Walk, value: Any, role: str, path: str) -> None:
    """Each response with its label, apart from those that are neither good nor bad."""
    rewards, least = _ranked(walk), walk.options.get("desirable_from")
    border = sum(rewards) / len(rewards) if least is None else Fraction(str(least))
    kept = [number for number, reward in enumerate(rewards) if least is not None or reward != border]
    _responses(walk, value, kept, [f"responses[{number}]" for number in range(len(kept))], path)
    for number, response in enumerate(kept):
        walk.said.append(Said(path, f"label[{number}]", walk.turn, EXACT, json.dumps(rewards[response] >= border)))


# Logs as chats of the form `messages`, whose definition judges them.


def request(walk: Walk, row: Row, role: str, path: str) -> None:
    """A request to an interface and its response: system prompt, messages or items, and tools; of these the schema of the input stands as ``parameters``."""
    found = {key: walk._found(key) for name in _SIDES if (key := walk.options[name]) is not None}
    if (key := walk.options["request_key"]) is None:
        walk.seen.update(_OF_REQUEST)
    chat: Row = rule_named(definition_of(walk.reading.schema)["x-chat"])({**row, **found}, walk.options)
    walk.say(chat["system"], "system", path)
    walk.chat(chat["messages"], "chat", path)
    tools(walk, (row if key is None else found[key]).get("tools") or [], role, "tools")


_SIDES = ("request_key", "response_key")
_OF_REQUEST = ("messages", "input", "system", "instructions", "tools")


def _chat(row: Row, options: Mapping[str, Any], messages: Callable[[Row, Row], Iterator[Row]]) -> Row:
    request_key, response_key = (options[name] for name in _SIDES)
    request, response = (row if request_key is None else row[request_key]), {} if response_key is None else row[response_key]
    system = request.get("system") or request.get("instructions") or ""
    given = (request_key, response_key, *_OF_REQUEST)
    return {
        **{key: value for key, value in row.items() if key not in given and value not in (None, "", [], {})},
        "system": system if isinstance(system, str) else "".join(block["text"] for block in system),
        "messages": [*messages(request, response)],
        "tools": [{"type": "function", "function": {"name": tool["name"]}} for tool in request.get("tools") or ()],
    }


def chat_of_messages(row: Row, options: Mapping[str, Any]) -> Row:
    """The chat of a request to Anthropic's interface and of its response: a result of a tool is a message of its own."""

    def messages(request: Row, response: Row) -> Iterator[Row]:
        for message in [*request["messages"], *([response] if response else ())]:
            if not isinstance(message["content"], list) or not message["content"]:
                yield message
                continue
            for is_result, run in groupby(message["content"], lambda block: block.get("type") == "tool_result"):
                if is_result:
                    yield from ({"role": "tool", "tool_call_id": each["tool_use_id"], "content": each.get("content") or ""} for each in run)
                else:
                    yield {"role": message["role"], "content": [without(block, ["signature"]) for block in run]}

    return _chat(row, options, messages)


def chat_of_items(row: Row, options: Mapping[str, Any]) -> Row:
    """The chat of a request to OpenAI's interface and of its response: items of a model in a row are one answer."""

    def messages(request: Row, response: Row) -> Iterator[Row]:
        asked = request["input"]
        items = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
        for is_answer, run in groupby([*items, *response.get("output", ())], _is_of_model):
            if is_answer:
                yield {"role": "assistant", "content": [part for item in run for part in _parts(item)]}
                continue
            for item in run:
                is_result = item.get("type") == "function_call_output"
                result = {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
                yield result if is_result else without(item, ["type", "status"])

    return _chat(row, options, messages)


def _is_of_model(item: Row) -> bool:
    return item.get("role") == "assistant" or item.get("type") in ("reasoning", "function_call")


def _parts(item: Row) -> list[Row]:
    if item.get("type") == "function_call":
        return [{"type": "tool_use", "id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}]
    if item.get("type") == "reasoning":
        return [{"type": "thinking", "text": part["text"]} for key in ("summary", "content") for part in item.get(key) or ()]
    return [{"type": "text", "text": item["content"]}] if isinstance(item["content"], str) else item["content"]
