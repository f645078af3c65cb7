"""Tokenization identity of conversations: the tokens of every row are the reference tokenizer's for a fresh render of its source.

The render is cut at the control tokens that the template wrote, and only there; the reference library tokenizes what lies between as ordinary text.
Ids that decode to the same text and are not the tokenizer's own for it are found as well as wrong ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.reference_ids import ReferenceIds, reference_ids
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.tokenization.vocabulary import Vocabulary

BATCH_CHARACTERS = 1 << 21


@dataclass(frozen=True, slots=True)
class Conversation:
    """One record.

    Attributes:
        id: its record id.
        ids: its token ids.
        text: a fresh render of it.
        controls: characters (start, end) of the control tokens that the template wrote, ascending.
        typed: control tokens that the content holds as text.
        left: the ids that truncation must have left; `None` where it is whole.
        taken: how many tokens it took.
    """

    id: str
    ids: npt.NDArray[np.integer[Any]]
    text: str
    controls: tuple[tuple[int, int], ...]
    typed: int
    left: npt.NDArray[np.integer[Any]] | None = None
    taken: int = 0


class Rendered(Protocol):
    """A render, and the characters (start, end) of the control tokens that the template wrote, ascending."""

    @property
    def text(self) -> str: ...

    @property
    def controls(self) -> tuple[tuple[int, int], ...]: ...


def prove_identity(rows: Iterable[Conversation], vocabulary: Vocabulary) -> Verdict:
    """Tokenize every row again and compare; the verdict shows the first that differs."""
    proof = IdentityProof(vocabulary)
    for batch in _batches(rows):
        proof.add(batch)
        if proof.worst is not None:
            break
    return proof.verdict()


@dataclass
class IdentityProof:
    """The check, for rows that come in batches.

    Attributes:
        tokenized, typed: rows, and control tokens in their content, so far.
        taken: tokens that truncation took so far.
        worst: the first row that differs; after it no row is looked at.
    """

    vocabulary: Vocabulary
    tokenized: int = 0
    typed: int = 0
    taken: int = 0
    worst: Worst | None = None

    @cached_property
    def reference(self) -> ReferenceIds:
        """The reference tokenizer."""
        return reference_ids(self.vocabulary)

    def proven(self, rows: int, typed: int = 0, taken: int = 0) -> None:
        """Count rows that somebody else has proven."""
        if self.worst is None:
            self.tokenized, self.typed, self.taken = self.tokenized + rows, self.typed + typed, self.taken + taken

    def add(self, batch: Sequence[Conversation]) -> None:
        """Tokenize some rows again and compare."""
        if self.worst is not None:
            return
        self.typed += sum(row.typed for row in batch)
        self.taken += sum(row.taken for row in batch)
        again = expected_ids([row for row in batch if row.left is None], self.vocabulary, self.reference)
        for row in batch:
            expected = next(again) if row.left is None else row.left
            self.tokenized += 1
            if not np.array_equal(row.ids, expected):
                self.worst = _worst(row, expected, self.vocabulary)
                return

    def verdict(self) -> Verdict:
        """What came of all rows."""
        numbers = {"rows_tokenized_again": self.tokenized, "control_tokens_in_content": self.typed}
        numbers |= {"tokens_cut_away": self.taken} if self.taken else {}
        if self.worst is not None:
            return Verdict(False, f"{self.worst.where}: {self.worst.note}", numbers, self.worst)
        return Verdict(True, f"{self.tokenized:,} rows have the reference tokenizer's ids of their render", numbers)


def _batches(rows: Iterable[Conversation]) -> Iterator[list[Conversation]]:
    batch: list[Conversation] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += len(row.text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def expected_ids(rows: Sequence[Rendered], vocabulary: Vocabulary, reference: ReferenceIds) -> Iterator[npt.NDArray[np.uint32]]:
    """The reference's ids of each whole row: its control tokens, and what lies between them as ordinary text."""
    texts: list[bytes] = []
    begins: list[bool] = []
    items: list[list[int | None]] = []  # of each row: ids of control tokens, and nothing for the next of `texts`
    for row in rows:
        own: list[int | None] = []
        last = 0
        for start, end in (*row.controls, (len(row.text),) * 2):
            if start > last:
                texts.append(row.text[last:start].encode())
                begins.append(last == 0)
                own.append(None)
            if end > start:
                own.append(vocabulary.control[row.text[start:end]])
            last = end
        items.append(own)
    flat = reference.encode_utf8(texts, np.fromiter(begins, bool))
    del texts
    segments = (flat.ids[start:end] for start, end in pairwise(flat.offsets.tolist()))
    for own in items:
        parts = [next(segments) if item is None else np.array([item], np.uint32) for item in own]
        yield np.concatenate(parts) if parts else np.zeros(0, np.uint32)


def _worst(row: Conversation, expected: npt.NDArray[Any], vocabulary: Vocabulary) -> Worst:
    shorter = min(len(row.ids), len(expected))
    differing = np.flatnonzero(row.ids[:shorter] != expected[:shorter])
    at = int(differing[0]) if len(differing) else shorter
    stored, render = (vocabulary.decode(ids[max(0, at - 5) : at + 5]) for ids in (row.ids, expected))
    lengths = f"{len(row.ids):,} ids, the reference tokenizer gives {len(expected):,}"
    note = f"{lengths}; from token {at:,} on they differ: …{stored!r}…, the render has …{render!r}…"
    return Worst(row.id, note, tuple(row.ids.tolist()), at=min(at, len(row.ids) - 1), derivations=((stored, render),))
