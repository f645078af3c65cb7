"""The data of a page: JSON, compressed, in pieces that a browser unpacks when it needs them.

Everything that comes from a data set gets into a page here or through the template, and nowhere else. What is packed here is base64: no character of
it means anything to HTML. Texts of tokens and names are made visible first (see `visible`).
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prep_assets.assets.previews import token_texts
from prep_assets.reports.proof import Proof
from prep_assets.reports.rows import Origin, Row, Stream, weight_runs
from prep_assets.reports.visible import one_line, visible
from prep_assets.tokenization.vocabulary import Vocabulary

ROWS_A_CHUNK = 500
TOKENS_A_CHUNK = 200_000
BLOCK = 512


@dataclass(frozen=True, slots=True)
class NamedRow:
    """A row, ready for a page: the number of its stream, the row, and the names of its pieces."""

    stream: int
    row: Row
    names: tuple[str, ...]


def packed(value: Any) -> str:
    """A JSON value, compressed. The same value gives the same text."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), 6, mtime=0)).decode()


def row_chunks(rows: Iterable[NamedRow], proofs: Mapping[Origin, Proof]) -> Iterator[list[Any]]:
    """Rows in lists of at most `ROWS_A_CHUNK`, with about `TOKENS_A_CHUNK` tokens."""
    chunk: list[Any] = []
    tokens = 0
    for shown in rows:
        chunk.append(_row(shown, proofs))
        tokens += len(shown.row.ids)
        if len(chunk) == ROWS_A_CHUNK or tokens >= TOKENS_A_CHUNK:
            yield chunk
            chunk, tokens = [], 0
    if chunk:
        yield chunk


def _row(shown: NamedRow, proofs: Mapping[Origin, Proof]) -> dict[str, Any]:
    row = shown.row
    found: dict[str, Any] = {"i": list(row.ids)}
    if row.weights is not None:
        found["w"] = [[end - start, weight] for start, end, weight in weight_runs(row.weights)]
    if row.text:
        found["t"] = visible(row.text)
    found["p"] = [
        [
            piece.start,
            one_line(name),
            piece.offset,
            one_line(piece.note),
            *([_proof(proofs[piece.origin])] if piece.origin in proofs else []),
        ]
        for piece, name in zip(row.pieces, shown.names, strict=True)
    ]
    return found


def _proof(proof: Proof) -> list[Any]:
    stretches = [[each.start, each.end, _side(each.first), _side(each.second)] for each in proof.stretches]
    return [one_line(proof.fault), stretches]


def _side(side: tuple[str, float] | None) -> list[Any] | None:
    return None if side is None else [visible(side[0]), side[1]]


def index(rows: Sequence[NamedRow], trained: Sequence[int | None], lengths: Sequence[int]) -> dict[str, Any]:
    """What the list of rows shows, by column."""
    domains = sorted({piece.origin.domain for shown in rows for piece in shown.row.pieces})
    numbers = {domain: number for number, domain in enumerate(domains)}
    return {
        "domains": [one_line(domain) for domain in domains],
        "stream": [shown.stream for shown in rows],
        "number": [shown.row.number for shown in rows],
        "length": list(lengths),
        "trained": list(trained),
        "domain": [sorted({numbers[piece.origin.domain] for piece in shown.row.pieces}) for shown in rows],
        "name": [one_line(shown.names[0]) if shown.names else "" for shown in rows],
        "pieces": [len(shown.row.pieces) for shown in rows],
    }


def vocabulary_of(rows: Iterable[NamedRow], vocabulary: Vocabulary | None) -> dict[str, str]:
    """The text of every id in the rows; of one outside the vocabulary, as in a damaged store, its number."""
    used = sorted({token for shown in rows for token in shown.row.ids})
    if vocabulary is None:
        return {str(token): f"⟨{token}⟩" for token in used}
    inside = [token for token in used if 0 <= token < vocabulary.size]
    texts = dict(zip(inside, token_texts(vocabulary, inside), strict=True))
    return {str(token): visible(texts[token]) if token in texts else f"⟨no token {token}⟩" for token in used}


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows with a document of `domain`, whose text or record ids hold `find`; what is empty asks for nothing. Case does not matter."""

    find: str = ""
    where: str = "text"
    domain: str = ""

    def __bool__(self) -> bool:
        return bool(self.find or self.domain)


def matching(
    streams: Sequence[Stream],
    wanted: Filter,
    most: int,
    named: Callable[[int, Iterable[Row]], Iterator[NamedRow]],
    text: Callable[[Sequence[int]], str],
) -> Iterator[NamedRow]:
    """The first `most` rows of all streams that fit.

    Args:
        named: rows of the stream with this number, with the names of their records.
        text: ids as text.
    """
    needle, found = wanted.find.casefold(), 0
    for number, stream in enumerate(streams):
        for low in range(0, len(stream.lengths), BLOCK):
            for shown in named(number, stream.rows(range(low, min(low + BLOCK, len(stream.lengths))))):
                row = shown.row
                if wanted.domain and all(piece.origin.domain != wanted.domain for piece in row.pieces):
                    continue
                if needle:
                    held = "\n".join(shown.names) if wanted.where == "id" else row.text or text(row.ids)
                    if needle not in held.casefold():
                        continue
                yield shown
                found += 1
                if found == most:
                    return
