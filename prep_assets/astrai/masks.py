"""AstrAI's own tokenization and masks (``--masking astrai``).

A chat is one beginning-of-text token, never trained, and then each message **rendered alone** and encoded alone; the whole rendered message,
its header included, has the mask of its role. An instruction is two fields encoded one after the other, a text one:

    chat          <bos> [system span] [user span] [assistant span] …       mask 0 | by role
    instruction   encode(prompt, with special tokens) encode(response)     mask of prompt | mask of response
    text          encode(text, with special tokens)                        no mask

Source of the algorithm: AstrAI's preprocessing documentation, "Mask Algorithm".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.astrai.columns import Row, Tokens, row_of
from prep_assets.astrai.config import Section, Source
from prep_assets.astrai.fields import (
    as_plain_text,
    messages_at,
    nothing_there,
    require_equal_groups,
    require_length,
    text_at,
    values_at,
)
from prep_assets.astrai.task import Task
from prep_assets.astrai.template import MessageTemplate
from prep_assets.errors import Refused
from prep_assets.schemas.fields import as_list, as_text, needed, value_at
from prep_assets.tokenization.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text that is encoded on its own: with special tokens or without, trained or not."""

    text: str
    special: bool
    train: bool


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Pieces that are encoded one by one and joined; `bos` puts the beginning-of-text token in front. `shortest` is the least length kept."""

    pieces: tuple[_Piece, ...]
    bos: bool
    shortest: int


_Plan = dict[str, _Sequence | list[_Sequence] | npt.NDArray[np.float32]]


class AstraiBuilder:
    """Records → tokens and masks as AstrAI's documentation describes them."""

    def __init__(self, task: Task, vocabulary: Vocabulary) -> None:
        self._task, self._backend = task, vocabulary.backend
        self._template = MessageTemplate(vocabulary) if any(source.is_templated for source in task.sources.values()) else None
        bos = vocabulary.special.get("bos_token")
        self._bos = [] if bos is None else [vocabulary.backend.token_to_id(bos)]

    def build(self, payloads: Sequence[Mapping[str, Any]]) -> list[Row | Refused]:
        """Tokenize a batch; see `Builder.build`."""
        plans = [self._try(self._plan, payload) for payload in payloads]
        encoded = self._encode([piece for plan in plans if isinstance(plan, dict) for piece in _pieces(plan)])
        return [self._try(self._assemble, plan, encoded) if isinstance(plan, dict) else plan for plan in plans]

    @staticmethod
    def _try(function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Refused as refusal:
            refusal.stage = refusal.stage or "schema"
            return refusal

    # -- what is encoded ----------------------------------------------------------------------------------------------------------------

    def _plan(self, row: Mapping[str, Any]) -> _Plan:
        require_equal_groups(self._task, row)
        plan: _Plan = {}
        for key, source in self._task.sources.items():
            field = source.sections[0].field
            if source.is_value:
                plan[key] = values_at(row, field)
            elif source.list_field:
                elements = as_list(value_at(row, field), field)
                plan[key] = [self._element(source.sections[0], element, f"{field}[{i}]") for i, element in enumerate(elements)]
            else:
                plan[key] = self._flat(source, row)
        return plan

    def _flat(self, source: Source, row: Mapping[str, Any]) -> _Sequence:
        pieces: list[_Piece] = []
        for section in source.sections:
            if section.template:
                pieces += self._messages(row.get(section.field), section, section.field)
            else:
                pieces += self._text(row, section, first=not pieces)
        if not any(piece.text.strip() for piece in pieces):
            raise nothing_there(source, row)
        if self._task.is_text:
            require_length(self._task, [piece.text for piece in pieces])
        return _Sequence(tuple(pieces), source.is_templated, 2 if source.is_templated else 1)

    def _element(self, section: Section, value: object, where: str) -> _Sequence:
        """An element of a list: a sequence of its own, without special tokens."""
        if section.template:
            pieces = self._messages(value, section, where)
        else:
            pieces = [_Piece(needed(as_plain_text(value, where), "empty_answer", where), False, section.action == "train")]
        return _Sequence(tuple(pieces), False, 1)

    def _messages(self, value: object, section: Section, where: str) -> list[_Piece]:
        assert self._template is not None
        render, trains = self._template.render, self._task.trains
        return [_Piece(render(message), False, trains(section.action, message["role"])) for message in messages_at(value, where)]

    def _text(self, row: Mapping[str, Any], section: Section, *, first: bool) -> list[_Piece]:
        must_be_string = self._task.typed and self._task.is_text
        text = as_text(value_at(row, section.field), section.field) if must_be_string else text_at(row, section.field)
        if not text.strip() and not self._task.typed:
            return []
        special = first if section.add_special_tokens is None else section.add_special_tokens
        return [_Piece(text, special, section.action == "train")]

    # -- tokens -------------------------------------------------------------------------------------------------------------------------

    def _encode(self, pieces: Sequence[_Piece]) -> dict[tuple[str, bool], list[int]]:
        encoded: dict[tuple[str, bool], list[int]] = {}
        for special in (False, True):
            texts = list(dict.fromkeys(piece.text for piece in pieces if piece.special is special))
            found = self._backend.encode_batch_fast(texts, add_special_tokens=special)
            encoded.update({(text, special): encoding.ids for text, encoding in zip(texts, found, strict=True)})
        return encoded

    def _assemble(self, plan: _Plan, encoded: Mapping[tuple[str, bool], list[int]]) -> Row:
        outputs: dict[str, Tokens | list[Tokens] | npt.NDArray[np.float32]] = {}
        for key, planned in plan.items():
            if isinstance(planned, np.ndarray):
                outputs[key] = planned
            elif isinstance(planned, list):
                outputs[key] = [self._tokens(sequence, encoded, key) for sequence in planned]
            else:
                outputs[key] = self._tokens(planned, encoded, key)
        return row_of(self._task, outputs)

    def _tokens(self, sequence: _Sequence, encoded: Mapping[tuple[str, bool], list[int]], key: str) -> Tokens:
        ids = list(self._bos) if sequence.bos else []
        mask = [0] * len(ids)
        for piece in sequence.pieces:
            found = encoded[piece.text, piece.special]
            ids += found
            mask += [int(piece.train)] * len(found)
        if len(ids) < sequence.shortest:
            raise Refused("empty", f"{key!r} comes to {len(ids)} tokens, at least {sequence.shortest} are needed", stage="tokenize")
        return Tokens(np.array(ids, np.uint32), np.array(mask, np.uint8))


def _pieces(plan: _Plan) -> list[_Piece]:
    flat = [planned if isinstance(planned, list) else [planned] for planned in plan.values() if not isinstance(planned, np.ndarray)]
    return [piece for sequences in flat for sequence in sequences for piece in sequence.pieces]
