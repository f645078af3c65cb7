"""Rules of columns for formats of their own: interfaces, arrays of regions, sections, tools and documents."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from prep_assets.proofs.source_fields import rule
from prep_assets.proofs.source_rows import Reading, Walk
from prep_assets.proofs.source_rules import text
from prep_assets.proofs.source_texts import ANYWHERE, CALL, REASONING, TEXT, TOOL, Said
from prep_assets.samples import Row

__all__ = ["Reading"]
"""Imported from here, so that all rules are registered."""


@rule
def moss(walk: Walk, value: Row, role: str, path: str) -> None:
    """Exchanges of MOSS without its marks; what it thinks and what its tools say only with ``plugins``."""
    fields = {"Human": ("<|Human|>: ", "<eoh>"), "Inner Thoughts": ("<|Inner Thoughts|>:", "<eot>"), "Commands": ("<|Commands|>:", "<eoc>")}
    fields |= {"Tool Responses": ("<|Results|>:", "<eor>"), "MOSS": ("<|MOSS|>:", "<eom>")}
    for exchange in value.values():
        said = {name: exchange[name].replace(a, "").replace(b, "").strip() for name, (a, b) in fields.items() if exchange.get(name)}
        called = re.findall(r'(Search|Calculate|Solve|Text2Image)\("((?:[^"\\]|\\.)*)"\)', said.get("Commands", ""), re.DOTALL)
        if not said:
            continue
        for name, (whose, kind) in _OF_MOSS.items():
            if name not in ("Human", "MOSS") and not walk.options.get("plugins"):
                continue
            if name == "Commands":
                for call in called:
                    for leaf in call:
                        walk.say(leaf, whose, f"{path}.{name}", kind=kind)
            elif (name != "Tool Responses" or called) and (name in ("Human", "MOSS", "Tool Responses") or said.get(name) != "None"):
                walk.say(said.get(name, ""), whose, f"{path}.{name}", kind=kind)
            walk.turn += name in ("Human", "Tool Responses", "MOSS") or (name == "Commands" and bool(called))


_OF_MOSS = {
    "Human": ("user", TEXT),
    "Inner Thoughts": ("assistant", REASONING),
    "Commands": ("assistant", CALL),
    "Tool Responses": ("tool", TEXT),
    "MOSS": ("assistant", TEXT),
}


@rule
def beside_files(walk: Walk, value: Sequence[Row], role: str, path: str) -> None:
    """Messages; with ``phase: 1`` the text beside an image is left out."""
    mark = walk.options.get("image_token", "<image>")
    for message in value:
        content = next((message[key] for key in walk.reading.content_keys if message.get(key) is not None), "")
        if walk.options.get("phase") != 1 or mark not in content:
            walk.message(message, role, path)
        walk.turn += 1


@rule
def headers(walk: Walk, value: str, role: str, path: str) -> None:
    """A chat that Llama 3's template wrote: its control tokens and roles are left out."""
    for whose, content in re.findall(r"<\|start_header_id\|>(.*?)<\|end_header_id\|>\n\n(.*?)<\|(?:eot|eom)_id\|>", value, re.DOTALL):
        walk.say(content, walk._role({"role": whose.strip()}), path)
        walk.turn += 1


@rule
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


@rule
def blocks(walk: Walk, value: Row, role: str, path: str) -> None:
    """The response of Anthropic's interface: its content is the last answer."""
    walk.message({"role": "assistant", "content": value["content"]}, "chat", path)


@rule
def output(walk: Walk, value: Row, role: str, path: str) -> None:
    """The response of OpenAI's interface: its output holds the last items."""
    _items(walk, value["output"], path)


@rule
def regions(walk: Walk, value: Sequence[Row], role: str, path: str) -> None:
    """Cerebras' arrays: regions by name, with weights by region, of which those that are dropped are left out."""
    sides = {"chosen": "chosen", "rejected": "rejected"} if any(turn.get("type") == "chosen" for turn in value) else {}
    for turn in value:
        kind, content = turn.get("type", "document"), turn["content"]
        weights, drops = turn.get("semantic_loss_weight"), turn.get("semantic_drop_mask")
        for number, region in enumerate(content):
            [name] = [key for key in region if key != "include_tags"]
            default = (walk.options.get("semantic_drop_mask") or {}).get(name, False)
            weight = (walk.options.get("semantic_loss_weight") or {}).get(name) if weights is None else weights[number]
            if region[name] and name != "image" and not (default if drops is None else drops[number]):
                whose = sides.get(kind) or {"assistant": "assistant", "completion": "assistant", "system": "system"}.get(kind, "user")
                spoken = "assistant" if kind in sides else kind if kind in ("prompt", "completion", "document") else whose
                where, its_kind = sides.get(kind, walk.prompt), ANYWHERE if whose == "system" else TEXT
                own = None if weight is None else float(weight)
                walk.said.append(Said(path, where, walk.turn, its_kind, region[name], own, spoken))
        walk.turn += 1


@rule
def sections(walk: Walk, value: Row, role: str, path: str) -> None:
    """AstrAI's sections: fields one after another, each trained or not."""
    sources = walk.options.get("sources") or {
        "": {"sections": walk.options.get("sections") or [{"field": "messages", "action": "$role", "template": True}]}
    }
    sides = {"": "chat", "chosen": "chosen", "rejected": "rejected", "prompts": "user", "responses": "responses"}
    for name, source in sources.items():
        for section in source["sections"] if name in sides else ():
            held = walk.row.get(section["field"])
            before = len(walk.said)
            if held is not None:
                side = sides[name] if section.get("template") or name == "responses" else _plain_side(name, section)
                text(walk, held, side, section["field"])
            weight = {"train": 1.0, "mask": 0.0}.get(section["action"]) if name == "" else None
            walk.said[before:] = [each._replace(weight=weight) if each.weight is None else each for each in walk.said[before:]]


def _plain_side(name: str, section: Row) -> str:
    return name if name in ("chosen", "rejected") else "completion" if section["action"] == "train" else "user"


@rule
def tools(walk: Walk, value: Any, role: str, path: str) -> None:
    """Tools on offer: names, descriptions and the names of parameters stand in the prompt."""
    parsed = (json.loads(value) if value.strip() else []) if isinstance(value, str) else value
    for tool in [parsed] if isinstance(parsed, Mapping) else parsed or ():
        function = tool["function"] if isinstance(tool.get("function"), Mapping) else tool
        name = function.get("name")
        walk.said += [Said(f"{path}.name", "", 0, TOOL, name)] if name else []
        if isinstance(function.get("description"), str):
            walk.said += [Said(f"{path}.description", "", 0, ANYWHERE, line) for line in function["description"].splitlines()]
        parameters = function.get("parameters") or function.get("input_schema") or {}
        properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
        walk.said += [Said(f"{path}.parameters", "", 0, ANYWHERE, key) for key in properties or {}]


@rule
def documents(walk: Walk, value: Any, role: str, path: str) -> None:
    """Documents on offer: their titles and texts stand in the prompt."""
    for document in value if isinstance(value, list | tuple) else ():
        for key in ("title", "text", "contents"):
            if isinstance(document, Mapping) and isinstance(document.get(key), str):
                walk.anywhere(document[key], f"{path}.{key}")
