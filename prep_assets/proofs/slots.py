"""A sample as the messages that a chat template reads, with a numbered slot for each text of the source.

Slots can be filled with the texts themselves or with words that stand for them. What a template makes of a conversation is then told apart from
what the conversation says: see `rebuilt`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prep_assets.disk.strict_json import dumps
from prep_assets.errors import CheckFailed
from prep_assets.samples import IMAGE, TEXT, THINKING, TOOL_CALL, Region, Sample, Turn
from prep_assets.templates.form import MessageForm


@dataclass(frozen=True, slots=True)
class Slot:
    """One text in the messages.

    Attributes:
        turn: its turn.
        kind: `THINKING`, `TOOL_CALL` or `TEXT`.
        text: what the source has there.
        parts: of which regions it is made: number of the region in its turn, and where it begins and ends in `text`.
    """

    turn: int
    kind: str
    text: str
    parts: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Hole:
    slot: int


@dataclass(frozen=True, slots=True)
class Slotted:
    """Messages with slots.

    Attributes:
        slots: their slots.
        messages: the messages, with holes where slots are.
    """

    slots: tuple[Slot, ...]
    messages: tuple[dict[str, Any], ...]

    def filled(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """The messages with a text for each slot."""
        return [{key: _filled(value, texts) for key, value in message.items()} for message in self.messages]


def _filled(value: Any, texts: Sequence[str]) -> Any:
    if isinstance(value, _Hole):
        return texts[value.slot]
    if isinstance(value, _Json):
        return dumps(_filled(value.value, texts))
    if isinstance(value, dict):
        return {key: _filled(inner, texts) for key, inner in value.items()}
    return [_filled(inner, texts) for inner in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class _Json:
    """A value that is given to the template as JSON text."""

    value: Any


def slotted(sample: Sample, form: MessageForm, image: str) -> Slotted:
    """The messages of a sample in the form that a template reads; `image` stands for each image in a text."""
    made = _Maker(form, image, [])
    messages = tuple(made.message(number, turn) for number, turn in enumerate(sample.turns))
    return Slotted(tuple(made.slots), messages)


Numbered = Sequence[tuple[int, Region]]


@dataclass(frozen=True, slots=True)
class _Maker:
    form: MessageForm
    image: str
    slots: list[Slot]

    def message(self, number: int, turn: Turn) -> dict[str, Any]:
        shown = [(at, region) for at, region in enumerate(turn.regions) if not region.drop]
        thoughts, calls = ([each for each in shown if each[1].kind == kind] for kind in (THINKING, TOOL_CALL))
        content = [each for each in shown if each[1].kind not in (THINKING, TOOL_CALL)]
        message: dict[str, Any] = {"role": turn.role}
        # slots are numbered in the order in which templates write them
        reasoning = self._slot(number, THINKING, thoughts) if thoughts else None
        if content or not calls or self.form.no_content == "text":
            message["content"] = self._content(number, content)
        elif self.form.no_content == "null":
            message["content"] = None
        if turn.name is not None:
            message["name"] = turn.name
        if turn.tool_call_id is not None:
            message["tool_call_id"] = turn.tool_call_id
        if reasoning is not None:
            message[self.form.reasoning] = reasoning
        if calls:
            message["tool_calls"] = [self._call(number, at, region) for at, region in calls]
        return message

    def _content(self, number: int, content: Numbered) -> Any:
        has_images = any(region.kind == IMAGE for _, region in content)
        if self.form.content != "parts" and not (self.form.image_parts and has_images):
            return self._slot(number, TEXT, content)
        return list(self._parts(number, content)) or [{"type": "text", "text": ""}]

    def _parts(self, number: int, content: Numbered) -> Iterator[dict[str, Any]]:
        run: list[tuple[int, Region]] = []
        for at, region in content:
            if region.kind == IMAGE and self.form.image_parts:
                if run:
                    yield {"type": "text", "text": self._slot(number, TEXT, run)}
                yield {"type": "image"}
                run = []
            else:
                run.append((at, region))
        if run:
            yield {"type": "text", "text": self._slot(number, TEXT, run)}

    def _slot(self, number: int, kind: str, regions: Numbered) -> _Hole:
        parts: list[tuple[int, int, int]] = []
        text = ""
        for at, region in regions:
            own = self.image if region.kind == IMAGE else region.text
            parts.append((at, len(text), len(text) + len(own)))
            text += own
        self.slots.append(Slot(number, kind, text, tuple(parts)))
        return _Hole(len(self.slots) - 1)

    def _call(self, number: int, at: int, region: Region) -> dict[str, Any]:
        def holes(value: Any) -> Any:
            if isinstance(value, str):
                self.slots.append(Slot(number, TOOL_CALL, value, ((at, 0, len(value)),)))
                return _Hole(len(self.slots) - 1)
            if isinstance(value, dict):
                return {key: holes(inner) for key, inner in value.items()}
            return [holes(inner) for inner in value] if isinstance(value, list) else value

        try:
            call = json.loads(region.text)
            name, arguments = call["name"], call["arguments"]
        except (ValueError, TypeError, KeyError) as error:
            raise CheckFailed(f"turn {number}: {region.text[:80]!r} is not a tool call") from error
        name, given = holes(name), holes(arguments)
        if self.form.arguments == "text" and not isinstance(arguments, str):
            given = _Json(given)
        identity = {"id": call["id"]} if call.get("id") else {}
        return {"type": "function", **identity, "function": {"name": name, "arguments": given}}
