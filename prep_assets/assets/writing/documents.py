"""Source files → documents, in blocks: texts with the records they came from, and what was refused between them.

A row goes the way of all examples: schema → `Sample` → `Rendered` → text. A row of plain text, of which the schema `text` would certainly make
a document, has its text taken as it is, which is the same text without the forms around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prep_assets.assets.reading.domain import Reading
from prep_assets.disk.columns import stretches
from prep_assets.errors import CheckFailed, Refused
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.quarantine import Quarantine, Refusal, refusal, unreadable
from prep_assets.samples import Example, Record, Sample
from prep_assets.schemas.reader import apply
from prep_assets.schemas.text import TextField
from prep_assets.templates.conversation import NONCHARACTER
from prep_assets.templates.rendering import render
from prep_assets.tokenization.encode import CANNOT_REPRESENT
from prep_assets.tokenization.flat import Flat
from prep_assets.tokenization.vocabulary import Vocabulary

BLOCK_BYTES = 1 << 20
"""Bytes of source in a block. It changes nothing in a store."""
_NONCHARACTER = b"\xef\xb7"
"""How each of `NONCHARACTER` begins in UTF-8: few texts hold it, and it is found sooner than they are."""


@dataclass(frozen=True, slots=True)
class Documents:
    """Consecutive documents of one file.

    Attributes:
        file: their file.
        records, texts: one of each for every document. Texts are valid Unicode.
        refused: row and refusal of each record between them that is no document.
        held_out: whether their file is held out.
        size: bytes of source that the block took.
    """

    file: SourceFile
    records: Sequence[Record]
    texts: Sequence[str]
    refused: Sequence[tuple[int, Refusal]]
    held_out: bool
    size: int

    @property
    def ids(self) -> list[str]:
        """Ids of the documents' records."""
        return [self.id_of(i) for i in range(len(self.records))]

    def id_of(self, i: int) -> str:
        """Id of one document's record."""
        return record_id(self.file, self.records[i].row)

    def write_refused(self, quarantine: Quarantine, later: Sequence[tuple[int, Refused]]) -> None:
        """Write what was refused in the order of the rows, whichever stage refused it. `later` are documents, by index, refused since."""
        more = [(self.records[i].row, _refusal(self.file, self.records[i], fault)) for i, fault in later]
        for _, each in sorted([*self.refused, *more], key=lambda entry: entry[0]):
            quarantine.write(each)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many characters a document may have."""

    low: int
    high: int | None

    def check(self, text: str) -> None:
        """Refuse a text that has no word, or too few or too many characters."""
        if not text.strip() or len(text) < self.low:
            detail = f"{len(text):,} characters, min_chars is {self.low:,} and a document needs a word"
            raise Refused("too_short", detail, stage="pretrain")
        if self.high is not None and len(text) > self.high:
            raise Refused("too_many_chars", f"{len(text):,} characters, max_chars is {self.high:,}", stage="pretrain")


def read_documents(
    reading: Reading, text_of: Callable[[Example], str], check: Callable[[str], None], *, block_bytes: int = BLOCK_BYTES
) -> Iterator[Documents]:
    """The documents of a domain.

    Args:
        text_of: the text of an example, or `Refused`.
        check: raises `Refused` for a text that is no document.
    """
    schema, account = reading.reader.convert, reading.reader.account
    plain = schema if isinstance(schema, TextField) and schema.key not in account.ignore else None
    for block in reading.rows(block_bytes):
        file = block.file
        records: list[Record] = []
        texts: list[str] = []
        refused: list[tuple[int, Refusal]] = []
        gone = reading.refused(file, [row for row in block.rows if isinstance(row, Record)])
        for row in block.rows:
            if not isinstance(row, Record):
                refused.append((row.row, unreadable(file, row)))
                continue
            try:
                if row.row in gone:
                    raise gone[row.row]
                text = None if plain is None else plain.plain(row.payload)
                if plain is None or text is None or not _is_clean(text):
                    text = text_of(apply(reading.reader, row.payload))
                else:
                    account.skim(row.payload, {plain.key})
                check(text)
            except Refused as fault:
                refused.append((row.row, _refusal(file, row, fault)))
                continue
            records.append(row)
            texts.append(text)
        reading.check_fields()
        yield Documents(file, records, texts, refused, block.held_out, block.size)


def _is_clean(text: str) -> bool:
    """Whether rendering has certainly nothing against a text."""
    if text.isascii():
        return True
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return False
    return _NONCHARACTER not in data or NONCHARACTER.search(text) is None


def _refusal(file: SourceFile, record: Record, fault: Refused) -> Refusal:
    return refusal(record_id(file, record.row), fault.stage or "pipeline", fault.reason, fault.detail, record.payload)


def document_text(example: Example) -> str:
    """The text of a document.

    Raises:
        Refused: the example is something else, or cannot be rendered.
    """
    if not isinstance(example, Sample):
        raise Refused("not_a_document", f"the schema gives {type(example).__name__}, pretraining needs a Sample", stage="pretrain")
    return render(example, None).text


def too_long(flat: Flat, max_seq_len: int | None) -> Iterator[tuple[int, Refused]]:
    """The documents, by index, that have too many tokens."""
    lengths = np.diff(flat.offsets)
    for i in np.flatnonzero(lengths > max_seq_len) if max_seq_len is not None else ():
        yield int(i), Refused("too_long", f"{lengths[i]:,} tokens, max_seq_len is {max_seq_len:,}", stage="tokenize")


def lossy(
    flat: Flat,
    documents: Documents,
    vocabulary: Vocabulary,
    byte_lengths: npt.NDArray[np.int64] | None,
    tokenized: Callable[[str, str], str],
) -> dict[int, Refused]:
    """The documents, by index, whose tokens do not stand for exactly their bytes.

    Args:
        byte_lengths: bytes that each id stands for; `None` where ids stand for no fixed ones, and only an unknown token tells.
        tokenized: what of a document, of which it gets text and id, is tokenized. It is asked for documents whose bytes do not add up.
    """
    if byte_lengths is None:
        return {} if vocabulary.unknown_id is None else _unknown(flat, vocabulary.unknown_id)
    sizes = np.array([len(text) if text.isascii() else len(text.encode()) for text in documents.texts], np.int64)
    found = _totals(byte_lengths, flat)
    # a SentencePiece tokenizer puts one space in front of the first word
    allowed = (0, 1) if vocabulary.prefix_space != "never" else (0,)
    suspects = np.flatnonzero(~np.isin(found - sizes, allowed)).tolist()
    return {
        i: Refused("lossy_tokenizer", CANNOT_REPRESENT, stage="tokenize")
        for i in suspects
        if found[i] - len(tokenized(documents.texts[i], documents.id_of(i)).encode()) not in allowed
    }


def _unknown(flat: Flat, unknown: int) -> dict[int, Refused]:
    """The documents, by index, of which the tokenizer does not know some character."""
    places = np.flatnonzero(flat.ids == unknown)
    documents = np.unique(np.searchsorted(flat.offsets, places, "right") - 1)
    return {int(document): Refused("lossy_tokenizer", CANNOT_REPRESENT, stage="tokenize") for document in documents}


def _totals(table: npt.NDArray[np.int64], flat: Flat) -> npt.NDArray[np.int64]:
    """The sum of each text's entries of a table by id."""
    totals = np.zeros(len(flat.offsets) - 1, np.int64)
    full = np.flatnonzero(np.diff(flat.offsets))  # a text without ids has no place of its own among the others' starts
    starts = flat.offsets[full]
    narrow = table.astype(np.min_scalar_type(int(table.max(initial=0))))  # stays in the processor's cache
    # what "clip" would hide; looking at each id by itself takes twice as long
    if (largest := int(flat.ids.max(initial=0))) >= len(table):
        raise CheckFailed(f"the tokenizer's engine gave the id {largest:,}, and the vocabulary has {len(table):,}. Set engine: reference")
    for part in stretches(len(flat.ids), 1 << 16):
        first, stop = int(np.searchsorted(starts, part.start, "right")) - 1, int(np.searchsorted(starts, part.stop))
        here = np.maximum(starts[first:stop] - part.start, 0)
        totals[full[first:stop]] += np.add.reduceat(narrow.take(flat.ids[part], mode="clip"), here, dtype=np.uint32)
    return totals
