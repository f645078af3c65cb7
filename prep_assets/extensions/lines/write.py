"""Write and read the lines of JSONL stores, such as preferences and prompts, as strings or messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from prep_assets.config.models import RowFormOption
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import Refused
from prep_assets.pipeline.asset import Contradiction, FromRows, Line, NeedsMore, RowForm, Target
from prep_assets.pipeline.examples import Source, asked_digest, held_out, passed_over
from prep_assets.samples import (
    ASSISTANT,
    COMPLETION,
    PROMPT,
    TEXT,
    THINKING,
    TOOL_CALL,
    USER,
    Example,
    Group,
    Pair,
    PlainChat,
    PlainPair,
    Prompt,
    Region,
    Sample,
    Turn,
    changed,
    parts_of,
)
from prep_assets.stores.files import Digests
from prep_assets.stores.published import Draft
from prep_assets.stores.table import LINES, open_stream
from prep_assets.stores.writer import TableWriter

# Turns in the two forms that trainers read: a string, or a list of messages with reasoning, tool calls and tools.
#
# Messages are TRL's and transformers': ``{role, content}`` with ``reasoning_content``, ``tool_calls``, ``name`` and ``tool_call_id`` if a turn has
# them. A file holds one form only.
#
# An untrained answer has ``loss_weight`` 0 on its message; if only parts of it are untrained, its content is a list of text parts with weights. Strings
# cannot hold weights, so such a row needs messages.


def form_of(directory: Path) -> RowForm:
    """The form of the rows of a store, from its first row."""
    lines = (line for path in sorted(directory.glob("*.jsonl")) for line in open_stream(directory, path.stem))
    first = next(lines, None)
    return "text" if first is None or isinstance(first.get("prompt", ""), str) else "messages"


UNTEMPLATED = "untemplated"
"""Count of the rows of strings that cannot be messages."""


def is_untemplated(example: Example | PlainChat | PlainPair) -> bool:
    """Whether an example has turns outside any chat template, which messages cannot hold."""
    return any(turn.role in (PROMPT, COMPLETION) for turns in parts_of(example) for turn in turns)


def strings_as_messages(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of strings as messages: the prompt of a user, answers of an assistant."""
    roles = {"prompt": USER, "chosen": ASSISTANT, "rejected": ASSISTANT, "completion": ASSISTANT}
    changed_row = {key: [{"role": roles[key], "content": value}] if key in roles else value for key, value in row.items()}
    answers = {"responses": [[{"role": ASSISTANT, "content": answer}] for answer in row["responses"]]} if "responses" in row else {}
    return changed_row | answers


def extra_columns(example: Sample | Pair | Prompt | Group) -> dict[str, Any]:
    """The columns of a row apart from its turns, under TRL's names. Tools are JSON text: in a column of structs every tool would get the parameters of all
    others."""
    options = {**example.template_options, **({"documents": list(example.documents)} if example.documents else {})}
    tools = {"tools": json.dumps(list(example.tools), ensure_ascii=False)} if example.tools else {}
    return {**tools, **({"chat_template_kwargs": options} if options else {})}


def written(turns: Sequence[Turn], form: RowForm, columns: Mapping[str, Any], stage: str) -> Any:
    """Turns in one form.

    Raises:
        Refused: ``not_plain_text`` if a string would lose something; ``not_messages``.
    """
    if form == "messages":
        if (plain := [turn.role for turn in turns if turn.role in (PROMPT, COMPLETION)]) != []:
            detail = f"turns {plain} are rendered by no chat template, and messages always are; set form: text"
            raise Refused("not_messages", detail, stage=stage)
        return [_message(turn) for turn in turns]
    if (why := _structure_beyond_text(turns, columns)) is not None:
        raise Refused("not_plain_text", f"{why}, which does not fit in one string; set form: messages or auto", stage=stage)
    return turns[0].text


def _structure_beyond_text(turns: Sequence[Turn], columns: Mapping[str, Any]) -> str | None:
    if columns:
        return f"the row has {' and '.join(columns)}"
    if len(turns) != 1 or turns[0].role not in (USER, ASSISTANT, PROMPT, COMPLETION):
        return f"turns {[turn.role for turn in turns]}"
    if turns[0].role in ANSWERS and set(_weights(turns[0])) != {1.0}:
        return f"a turn of role {turns[0].role} with loss weights {_weights(turns[0])}"
    structure = [region.kind for region in turns[0].regions if region.kind in (THINKING, TOOL_CALL) and not region.drop]
    if structure:
        return f"a {structure[0]} region in a turn of role {turns[0].role}"
    return f"a turn of role {turns[0].role} with the name {turns[0].name!r}" if turns[0].name is not None else None


ANSWERS = (ASSISTANT, COMPLETION)


def reject_fractions(turns: Sequence[Turn], stage: str) -> None:
    """Reject (``fractional_weight``) answers with a weight other than 0 and 1, which the mask of an answer cannot hold."""
    weights = [weight for turn in turns if turn.role in ANSWERS for weight in _weights(turn)]
    if not set(weights) <= {0.0, 1.0}:
        raise Refused("fractional_weight", f"loss weights {weights}; the mask of an answer has 0 and 1 only", stage=stage)


def _weights(turn: Turn) -> list[float]:
    return [1.0 if region.loss_weight is None else float(region.loss_weight) for region in turn.regions if not region.drop]


def _weight_columns(turn: Turn, shown: Sequence[Region], kinds: Sequence[str]) -> dict[str, Any]:
    """The weights of a message; none if all of it is trained, the default of answers."""
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


def _message(turn: Turn) -> dict[str, Any]:
    shown = [region for region in turn.regions if not region.drop]
    kinds = [region.kind if region.kind in (THINKING, TOOL_CALL) else TEXT for region in shown]
    order = [THINKING, TEXT, TOOL_CALL]
    if kinds != sorted(kinds, key=order.index):
        raise Refused("parts_out_of_order", f"a message holds reasoning, text and calls in this order; the turn has {kinds}", stage="pair")
    texts = {
        kind: "".join(region.text for region, its_kind in zip(shown, kinds, strict=True) if its_kind == kind) for kind in (THINKING, TEXT)
    }
    calls = [_call(region) for region in shown if region.kind == TOOL_CALL]
    message: dict[str, Any] = {"role": turn.role, "content": texts[TEXT]}
    if texts[THINKING]:
        message["reasoning_content"] = texts[THINKING]
    if calls:
        message["tool_calls"] = calls
    message |= _weight_columns(turn, shown, kinds)
    named = {"name": turn.name, "tool_call_id": turn.tool_call_id}
    return message | {key: value for key, value in named.items() if value is not None}


def _call(region: Region) -> dict[str, Any]:
    call = json.loads(region.text)
    identity = {"id": call["id"]} if "id" in call else {}
    return {"type": "function", **identity, "function": {"name": call["name"], "arguments": call["arguments"]}}


def says_something(value: str | Sequence[Mapping[str, Any]]) -> bool:
    """Whether a string, or the last message of a list, has text or a tool call."""
    if isinstance(value, str):
        return bool(value.strip())
    return bool(value) and bool(_content(value[-1]).strip() or value[-1].get("tool_calls"))


def _content(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def turns_of(value: str | Sequence[Mapping[str, Any]], role: str) -> tuple[Turn, ...]:
    """The turns of a column; `role` is the role of a string."""
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
        regions = tuple(changed(region, loss_weight=message["loss_weight"]) for region in regions)
    return Turn(message["role"], regions, message.get("name"), message.get("tool_call_id"))


def _region(call: Mapping[str, Any]) -> Region:
    identity = {"id": call["id"]} if "id" in call else {}
    return Region(TOOL_CALL, json.dumps({**identity, **call["function"]}, ensure_ascii=False, separators=(",", ":")))


def sample_of(row: Mapping[str, Any], turns: Sequence[Turn]) -> Sample:
    """A conversation with the other columns of its row."""
    options = dict(row.get("chat_template_kwargs", {}))
    documents = tuple(options.pop("documents", ()))
    return Sample(tuple(turns), tuple(json.loads(row.get("tools", "[]"))), documents=documents, template_options=options)


def weighted(turn: Turn, weight: float | None) -> Turn:
    """A turn with the same loss weight on all regions."""
    if all(region.loss_weight == weight for region in turn.regions):
        return turn
    return changed(turn, regions=tuple(changed(region, loss_weight=weight) for region in turn.regions))


# Writing the lines of one domain.

BLOCK_BYTES, AUTO_BYTES = 4 << 20, 256 << 10
"""Bytes of source read at a time: fewer if a row may show that the file needs the other form."""


def write_lines(target: Target, quarantine: Quarantine, *, doing: str) -> Draft:
    """Write the rows of a domain as lines, in the order of the sources.

    With form ``auto``, lines are strings until a row needs messages. A row that gives several lines counts as one record. Where lines turn out to contradict
    each other (`Claims`), all are written again without these. A file of lines told by a column exists only if the domain gives any.

    Args:
        doing: label of the progress.
    """
    family, source = target.family, target.asset.source
    assert isinstance(source, FromRows)
    configured: RowFormOption = family.of_some("form")
    auto = configured == "auto" and "form" not in target.needed
    form: RowForm = "messages" if "form" in target.needed or configured == "messages" else "text"
    claims = Claims(source.contradiction, target.needed.get("contradicting", frozenset()))
    reading = Source.of(target.workspace, type(family), target.partition, gives=source.gives).reading()
    assert source.line is not None
    line, untemplated, lists, records = source.line(target.workspace), 0, dict.fromkeys(source.lists, 0), 0
    counted = dict.fromkeys((*source.counts, *source.uncounted), 0)
    with ExitStack() as stack:

        def open_writers(column: str) -> dict[bool, tuple[str, TableWriter]]:
            """Whether lines are held out → their count and their writer."""
            streams = [stream for stream in target.asset.streams.values() if stream.column == column]
            writers = (TableWriter(target.payload, str(stream.stem), LINES, domains=(target.partition,)) for stream in streams)
            return {stream.held_out: (stream.counted, stack.enter_context(writer)) for stream, writer in zip(streams, writers, strict=True)}

        columns = dict.fromkeys(stream.column for stream in target.asset.streams.values() if stream.column)
        files = {"": open_writers("")}
        for items, in_test in reading.examples(doing, quarantine, block_bytes=AUTO_BYTES if auto else BLOCK_BYTES, plain=True):
            for item in items:
                try:
                    example, write = line(item.content)
                    made = _row_in_form(write, form, auto)
                    rows = made if isinstance(made, list) else [made]
                    claims.check(rows)
                except Refused as refusal:
                    item.reject(quarantine, refusal)
                    continue
                to_test = in_test or (family.test_fraction > 0 and held_out(asked_digest(family, example), family.test_fraction))
                untemplated += is_untemplated(example)
                records += 1
                for row in rows:
                    if (column := next((column for column in columns if column in row), "")) not in files:
                        files[column] = open_writers(column)
                    files[column][to_test][1].append_object(row, item.record.file, item.record.row)
                    for column in lists:
                        lists[column] += len(row.get(column, ()))
                    for name, count in source.counts.items():
                        counted[name] += count(row)
                for name, count_of in source.uncounted.items():
                    counted[name] += count_of(example)
        kept = {name: len(writer) for writers in files.values() for name, writer in writers.values()}
    if claims.found:
        raise NeedsMore({"contradicting": claims.rejected | claims.found})
    extra = {key: count for key, count in {UNTEMPLATED: untemplated, **counted}.items() if count}
    counts = {"read": reading.read, "kept": records, **kept, **lists, **extra}
    return Draft({**counts, **passed_over(reading)}, {})


@dataclass(slots=True)
class Claims:
    """Finds lines that contradict each other. Digests are on disk if there are many, see `Digests`.

    Attributes:
        contradiction: what they may say of one thing; `None`: nothing.
        rejected: digests of what the lines to reject are about.
        found: digests of further ones so far.
    """

    contradiction: Contradiction | None
    rejected: Set[bytes]
    found: set[bytes] = field(default_factory=set)
    seen: Digests = field(default_factory=Digests)

    def check(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Note what a record's lines say.

        Raises:
            Refused: other lines of the domain say otherwise.
        """
        if (of := self.contradiction) is None:
            return
        for row in rows:
            if (claim := of.said(row)) is None:
                return
            about = msgspec.json.encode({key: row[key] for key in row if key not in of.columns})
            about, said = xxhash.xxh3_128_digest(about), xxhash.xxh3_128_digest(about + claim.encode())
            if about in self.rejected:
                raise of.rejection(row)
            if about in self.seen and said not in self.seen:
                self.found.add(about)
            self.seen.add(about)
            self.seen.add(said)


def _row_in_form(write: Line, form: RowForm, auto: bool) -> Mapping[str, Any] | list[dict[str, Any]]:
    """A row in the form of its file.

    Raises:
        NeedsMore: only messages can hold it, and the form is still open.
        Refused: it does not fit the chosen form, or fits neither.
    """
    try:
        return write(form)
    except Refused as refusal:
        if not auto or refusal.reason != "not_plain_text":
            raise
        write("messages")
        raise NeedsMore({"form": "messages"}) from refusal
