"""Rules about rows that JSON Schema cannot say, and about columns, by the names that definitions in `formats` give them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from prep_assets.extensions.rl.proofs.groups import calls_of_steps as calls_of_steps
from prep_assets.extensions.rl.proofs.groups import calls_of_trace as calls_of_trace
from prep_assets.proofs.formats import Format
from prep_assets.proofs.row_rules import rewards_of, under
from prep_assets.proofs.source_rows import Walk
from prep_assets.proofs.source_rules import text, tools
from prep_assets.proofs.source_texts import ANSWERS, EXACT, REASONING, Said
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


def several_turns(row: Row, format: Format) -> bool:
    """A response has several turns."""
    return any(isinstance(each, list) and len(each) > 1 for each in under(row, format, "responses_key"))


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


def request(walk: Walk, value: Row, role: str, path: str) -> None:
    """A request to an interface: its system prompt, messages or items, and tools; of these the schema of the input stands as ``parameters``."""
    key = walk.options.get("request_key")
    for name in str(key or "").split("."):
        value = value[name] if name else value
    walk.seen.update(["messages", "input", "tools", "system", "instructions"] if key is None else [str(key).partition(".")[0]])
    for name in ("system", "instructions"):
        system = value.get(name) or []
        for part in [system] if isinstance(system, str) else [block["text"] for block in system]:
            walk.say(part, "system", name)
    if isinstance(value.get("input"), str):
        walk.say(value["input"], "user", "input")
        walk.turn += 1
    for name in ("messages", "input"):
        if isinstance(value.get(name), list):
            _items(walk, value[name], name)
    tools(walk, value.get("tools") or [], role, "tools")


def _items(walk: Walk, items: Sequence[Row], path: str) -> None:
    for item in items:
        kind = item.get("type")
        if kind == "reasoning":
            for part in [*(item.get("summary") or []), *(item.get("content") or [])]:
                walk.say(part["text"], "assistant", path, kind=REASONING)
        elif kind == "function_call":
            walk.calls([item], "assistant", path, None)
        elif kind == "function_call_output":
            walk.turn += 1
            text(walk, item["output"], "user", path)
        else:
            walk.message(item, "chat", path)
        walk.turn += kind in (None, "message") and walk._role(item) != "assistant"


def blocks(walk: Walk, value: Row, role: str, path: str) -> None:
    """The response of Anthropic's interface: its content is the last answer."""
    walk.message({"role": "assistant", "content": value["content"]}, "chat", path)


def output(walk: Walk, value: Row, role: str, path: str) -> None:
    """The response of OpenAI's interface: its output holds the last items."""
    _items(walk, value["output"], path)
