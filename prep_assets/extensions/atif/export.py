"""Chats as trajectories in ATIF, a JSON file each.

A chat of messages becomes steps: an answer one of the agent, with the results of its calls as what it observed. An answer that is not trained is marked as
context (``is_copied_context``), which readers leave out of training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.blocks import row_blocks
from prep_assets.extensions.exports.readable import Options, Readable, Tokens
from prep_assets.extensions.exports.registry import FileName, Progress, exporter, reads
from prep_assets.samples import ASSISTANT, TOOL
from prep_assets.stores.table import TOKENS, Table

VERSION = "ATIF-v1.7"
_SOURCES = {"system": "system", "user": "user", ASSISTANT: "agent"}


@exporter(
    "atif",
    TOKENS,
    read_by="Harbor",
    opens={
        "": (
            "from harbor.models.trajectories import Trajectory",
            'Trajectory.model_validate_json(open("{folder}/{split}/00000000.json").read())',
        )
    },
    kind="json",
    chats="whole",
)
def atif(
    source: Table, out: Path, progress: Progress, *, agent: str = "unknown", version: str = "unknown", split: FileName = "train"
) -> None:
    """``<split>/<number>.json``: the trajectory of each record, in ATIF 1.7. `agent` and `version` name the agent whose chats they are."""
    if source.chats is None:
        raise ConfigError("export 'atif': chats are read from the sources again. Use prep-assets export, or exports of sft.yaml")
    (folder := out / split).mkdir(parents=True)
    chats, number = source.chats(), 0
    for block in row_blocks(source, progress):
        for trained in np.split(block.trained, np.cumsum(block.row_lengths)[:-1]):
            chat = next(chats)
            tools = {"tool_definitions": json.loads(chat["tools"])} if "tools" in chat else {}
            try:
                steps = [{"step_id": at, **step} for at, step in enumerate(steps_of(chat["messages"]), 1)]
            except ConfigError as error:
                raise ConfigError(f"export 'atif', row {number:,}: {error}. Leave it out of the domain") from error
            answers = sum(step["source"] == "agent" and "is_copied_context" not in step for step in steps)
            if (stretches := int(np.count_nonzero(np.diff(trained, prepend=False) & trained))) != answers:
                detail = f"it has {answers} answers to train and {stretches} trained stretches, and readers train each answer"
                raise ConfigError(f"export 'atif', row {number:,}: {detail}. Train the assistant's turns")
            whole = {"schema_version": VERSION, "agent": {"name": agent, "version": version, **tools}, "steps": steps}
            (folder / f"{number:08}.json").write_text(json.dumps(whole, ensure_ascii=False, indent=1), "utf-8")
            number += 1


def steps_of(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The steps of messages as TRL has them, without numbers.

    Raises:
        ConfigError: a step cannot say what a message says.
    """
    steps, open_calls = list[dict[str, Any]](), list[str]()
    for at, message in enumerate(messages):
        role, content = message["role"], message.get("content") or ""
        if role not in (*_SOURCES, TOOL) or not isinstance(content, str) or message.get("loss_weight", 0) not in (0, 1):
            raise ConfigError(f"message {at}, of role {role!r}, has parts, a weight or a role that steps have no place for")
        if role == TOOL and steps and steps[-1]["source"] == "agent" and (open_calls or message.get("tool_call_id")):
            call = message.get("tool_call_id") or open_calls.pop(0)
            steps[-1].setdefault("observation", {"results": []})["results"].append({"source_call_id": call, "content": content})
            continue
        if role == TOOL or (message.get("name") is not None):
            raise ConfigError(f"message {at} answers no call, or has a speaker's name, which steps have no place for")
        step: dict[str, Any] = {"source": _SOURCES[role], "message": content}
        calls = [
            (call.get("id") or f"call_{len(steps) + 1}_{number}", call["function"])
            for number, call in enumerate(message.get("tool_calls") or (), 1)
        ]
        open_calls = [name for name, _ in calls]
        named = [{"tool_call_id": id, "function_name": call["name"], "arguments": call["arguments"]} for id, call in calls]
        step |= {"reasoning_content": message["reasoning_content"]} if message.get("reasoning_content") else {}
        step |= {"tool_calls": named} if named else {}
        step |= {"is_copied_context": True} if role == ASSISTANT and message.get("loss_weight") == 0 else {}
        steps.append(step)
    return steps


@reads("atif")
def read_atif(folder: Path, source: Table, options: Options) -> Readable:
    """Open an `atif` export with code independent of its writer. A chat that is that of the source has the ids of the store.

    Raises:
        StoreError: files are not numbered from 0, or one holds another chat or agent.
    """
    assert source.chats is not None
    files, chats = sorted((folder / options["split"]).glob("*.json")), enumerate(source.chats())
    if [file.stem for file in files] != [str(number).zfill(8) for number in range(len(files))]:
        raise StoreError(f"{folder}: its files are not numbered from 0, such as {files[0].name}")

    def row(number: int) -> tuple[Tokens]:
        found = json.loads(files[number].read_text("utf-8"))
        chat = next((chat for at, chat in chats if at == number), None) or {"messages": []}  # rows ascend
        about = {"name": options["agent"], "version": options["version"]}
        about |= {"tool_definitions": json.loads(chat["tools"])} if "tools" in chat else {}
        if [*_told(found)] != [*_said(chat["messages"])] or found["agent"] != about:
            raise StoreError(f"{files[number].name}: its chat or its agent is another than that of its source")
        return (Tokens(next(source.sequences(number))[1]),)

    return Readable(len(files), row)


def _told(found: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for place, step in enumerate(found["steps"]):
        if step["step_id"] != place + 1:
            raise StoreError(f"step {place + 1} has step_id {step['step_id']}")
        calls = step.get("tool_calls", [])
        weight = 0 if step.get("is_copied_context") else 1
        made = [(call["function_name"], call["arguments"]) for call in calls]
        yield step["source"].replace("agent", "assistant"), step["message"], step.get("reasoning_content", ""), made, weight
        ids = [call["tool_call_id"] for call in calls]
        for result in step.get("observation", {}).get("results", []):
            yield "tool", result["content"], ids.index(result["source_call_id"])


def _said(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, ...]]:
    ids, answered = list[Any](), 0
    for message in messages:
        if message["role"] == "tool":
            id = message.get("tool_call_id")
            yield "tool", message.get("content") or "", ids.index(id) if id in ids else answered
            answered += 1
            continue
        calls = message.get("tool_calls") or []
        ids, answered = [call.get("id") for call in calls], 0
        made = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
        weight = 0 if message["role"] == "assistant" and message.get("loss_weight") == 0 else 1
        yield message["role"], message.get("content") or "", message.get("reasoning_content") or "", made, weight
