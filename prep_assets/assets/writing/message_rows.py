"""Turns as the two forms that trainers read: a string, or a list of messages with whatever reasoning, tool calls and tools they have.

Messages are TRL's and transformers': ``{role, content}`` with ``reasoning_content``, ``tool_calls``, ``name`` and ``tool_call_id`` where a turn has
them. A file holds one form only.

An answer, or a part of one, that is not trained has ``loss_weight`` 0: on the message where all of it weighs the same, else on the text parts that
its content then is. Strings cannot say so, and such a row needs messages.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from prep_assets.config.models import Form
from prep_assets.errors import Refused
from prep_assets.samples import (
    ASSISTANT,
    COMPLETION,
    PROMPT,
    TEXT,
    THINKING,
    TOOL_CALL,
    USER,
    Example,
    Pair,
    PlainChat,
    PlainPair,
    Prompt,
    Region,
    Sample,
    Turn,
)
from prep_assets.stores.lines import open_lines

RowForm = Literal["text", "messages"]
Columns = dict[str, Any]
_Written = TypeVar("_Written")


class NeedsMessages(Exception):
    """A row that does not fit in strings, met while a file of strings was written."""


def in_one_form(form: Form, payload: Path, write: Callable[[RowForm, bool], _Written]) -> _Written:
    """Write a store in the form that the configuration asks for. ``auto`` starts with strings, and starts again with messages where a row needs
    them.

    Args:
        write: takes the form, and whether to raise `NeedsMessages` where strings do not do.
    """
    if form != "auto":
        return write(form, False)
    try:
        return write("text", True)
    except NeedsMessages:
        for left in payload.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        return write("messages", False)


def row_in_form(write: Callable[[RowForm], Columns], form: RowForm, auto: bool) -> Columns:
    """A row in the form of its file.

    Raises:
        NeedsMessages: it fits in messages alone, and they may still be chosen.
        Refused: it does not fit in the form that was chosen, or in none.
    """
    try:
        return write(form)
    except Refused as refusal:
        if not auto or refusal.reason != "not_plain_text":
            raise
        write("messages")
        raise NeedsMessages from refusal


def form_of(directory: Path) -> RowForm:
    """Whether the rows of a store are strings or messages, which its first row says."""
    lines = (line for path in sorted(directory.glob("*.jsonl")) for line in open_lines(directory, path.stem))
    first = next(lines, None)
    return "text" if first is None or isinstance(first["prompt"], str) else "messages"


UNTEMPLATED = "untemplated"
"""Count of the rows of strings that no messages can say."""


def is_untemplated(example: Example | PlainChat | PlainPair) -> bool:
    """Whether an example has turns that no chat template renders, which messages always are."""
    match example:
        case Pair():
            turns = (*example.prompt, *example.chosen, *example.rejected)
        case Prompt():
            turns = example.prompt
        case Sample():
            turns = example.turns
        case _:
            turns = ()
    return any(turn.role in (PROMPT, COMPLETION) for turn in turns)


def strings_as_messages(row: Mapping[str, Any]) -> Columns:
    """A row of strings as messages: the prompt of a user, answers of an assistant."""
    roles = {"prompt": USER, "chosen": ASSISTANT, "rejected": ASSISTANT, "completion": ASSISTANT}
    return {key: [{"role": roles[key], "content": value}] if key in roles else value for key, value in row.items()}


def extra_columns(example: Sample | Pair | Prompt) -> Columns:
    """What stands beside the turns in a row, under the names that TRL reads. Tools are JSON text: in a column of objects every tool would get the
    parameters of all others."""
    options = {**example.template_options, **({"documents": list(example.documents)} if example.documents else {})}
    tools = {"tools": json.dumps(list(example.tools), ensure_ascii=False)} if example.tools else {}
    return {**tools, **({"chat_template_kwargs": options} if options else {})}


def written(turns: Sequence[Turn], form: RowForm, columns: Mapping[str, Any], stage: str) -> Any:
    """Turns in one form.

    Raises:
        Refused: ``not_plain_text``, where a string would lose something.
    """
    if form == "messages":
        if (plain := [turn.role for turn in turns if turn.role in (PROMPT, COMPLETION)]) != []:
            detail = f"turns {plain} are rendered by no chat template, and messages always are; set form: text"
            raise Refused("not_messages", detail, stage=stage)
        return [_message(turn) for turn in turns]
    if (why := _more_than_text(turns, columns)) is not None:
        raise Refused("not_plain_text", f"{why}, which does not fit in one string; set form: messages or auto", stage=stage)
    return turns[0].text


def _more_than_text(turns: Sequence[Turn], columns: Mapping[str, Any]) -> str | None:
    if columns:
        return f"the row has {' and '.join(columns)}"
    if len(turns) != 1 or turns[0].role not in (USER, ASSISTANT, PROMPT, COMPLETION):
        return f"turns {[each.role for each in turns]}"
    if turns[0].role in ANSWERS and set(_weights(turns[0])) != {1.0}:
        return f"a turn of role {turns[0].role} with loss weights {_weights(turns[0])}"
    structure = [region.kind for region in turns[0].regions if region.kind in (THINKING, TOOL_CALL) and not region.drop]
    if structure:
        return f"a {structure[0]} region in a turn of role {turns[0].role}"
    return f"a turn of role {turns[0].role} with the name {turns[0].name!r}" if turns[0].name is not None else None


ANSWERS = (ASSISTANT, COMPLETION)


def refuse_fractions(turns: Sequence[Turn], stage: str) -> None:
    """Refuse (``fractional_weight``) answers with a weight that is neither 0 nor 1, which the mask of an answer cannot hold."""
    weights = [weight for turn in turns if turn.role in ANSWERS for weight in _weights(turn)]
    if not set(weights) <= {0.0, 1.0}:
        raise Refused("fractional_weight", f"loss weights {weights}; the mask of an answer has 0 and 1 only", stage=stage)


def _weights(turn: Turn) -> list[float]:
    return [1.0 if region.loss_weight is None else float(region.loss_weight) for region in turn.regions if not region.drop]


def _weight_columns(turn: Turn, shown: Sequence[Region], kinds: Sequence[str]) -> Columns:
    """What a message says of its weights: nothing where all of it is trained, as answers are."""
    weights = _weights(turn)
    if turn.role not in ANSWERS or set(weights) <= {1.0}:
        return {}
    if len(set(weights)) == 1:
        return {"loss_weight": weights[0]}
    if set(kinds) != {TEXT}:
        detail = f"weights {weights} inside a message with reasoning or calls; only parts of text can have weights of their own"
        raise Refused("weights_differ", detail, stage="pair")
    parts = zip(shown, weights, strict=True)
    return {"content": [{"type": "text", "text": region.text, "loss_weight": weight} for region, weight in parts]}


def _message(turn: Turn) -> Columns:
    shown = [region for region in turn.regions if not region.drop]
    kinds = [region.kind if region.kind in (THINKING, TOOL_CALL) else TEXT for region in shown]
    order = [THINKING, TEXT, TOOL_CALL]
    if kinds != sorted(kinds, key=order.index):
        raise Refused("parts_out_of_order", f"a message holds reasoning, text and calls in this order; the turn has {kinds}", stage="pair")
    texts = {kind: "".join(region.text for region, each in zip(shown, kinds, strict=True) if each == kind) for kind in (THINKING, TEXT)}
    calls = [_call(region) for region in shown if region.kind == TOOL_CALL]
    message: Columns = {"role": turn.role, "content": texts[TEXT]}
    if texts[THINKING]:
        message["reasoning_content"] = texts[THINKING]
    if calls:
        message["tool_calls"] = calls
    message |= _weight_columns(turn, shown, kinds)
    named = {"name": turn.name, "tool_call_id": turn.tool_call_id}
    return message | {key: value for key, value in named.items() if value is not None}


def _call(region: Region) -> Columns:
    call = json.loads(region.text)
    identity = {"id": call["id"]} if "id" in call else {}
    return {"type": "function", **identity, "function": {"name": call["name"], "arguments": call["arguments"]}}


def says_something(value: str | Sequence[Mapping[str, Any]]) -> bool:
    """Whether a string, or the last of some messages, has any text or a tool call."""
    if isinstance(value, str):
        return bool(value.strip())
    return bool(value) and bool(_content(value[-1]).strip() or value[-1].get("tool_calls"))


def _content(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def turns_of(value: str | Sequence[Mapping[str, Any]], role: str) -> tuple[Turn, ...]:
    """The turns that a column was written from; `role` is that of a string."""
    if isinstance(value, str):
        return (Turn(role, (Region(TEXT, value),)),)
    return tuple(_turn(message) for message in value)


def _turn(message: Mapping[str, Any]) -> Turn:
    thought = [Region(THINKING, message["reasoning_content"])] if "reasoning_content" in message else []
    calls = [_region(call) for call in message.get("tool_calls", ())]
    if isinstance(message["content"], str):
        text = [Region(TEXT, message["content"])] if message["content"] or not calls else []
    else:
        text = [Region(TEXT, part["text"], part["loss_weight"]) for part in message["content"]]
    regions = (*thought, *text, *calls)
    if "loss_weight" in message:
        regions = tuple(replace(region, loss_weight=message["loss_weight"]) for region in regions)
    return Turn(message["role"], regions, message.get("name"), message.get("tool_call_id"))


def _region(call: Mapping[str, Any]) -> Region:
    identity = {"id": call["id"]} if "id" in call else {}
    return Region(TOOL_CALL, json.dumps({**identity, **call["function"]}, ensure_ascii=False, separators=(",", ":")))


def sample_of(row: Mapping[str, Any], turns: Sequence[Turn]) -> Sample:
    """A conversation with the columns that stand beside it in a row."""
    options = dict(row.get("chat_template_kwargs", {}))
    documents = tuple(options.pop("documents", ()))
    return Sample(tuple(turns), tuple(json.loads(row.get("tools", "[]"))), documents=documents, template_options=options)
