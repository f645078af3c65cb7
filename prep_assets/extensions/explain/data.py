"""The data of a page: compressed JSON, in chunks that a browser unpacks on demand.

Data-set content enters a page only here or through the template. Here it is base64, which is inert in HTML. Texts of tokens and names are made visible
first (see `explain/visible.py`).
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from prep_assets.extensions.explain.rows import Origin, Proof, Row, Texts, line_texts
from prep_assets.stores.table import Table
from prep_assets.text.visible import one_line, token_texts, visible
from prep_assets.text.vocabulary import Vocabulary

MOST_LINE_CHARACTERS = 20_000
"""Most characters of a line on a page."""
ROWS_A_CHUNK = 500
TOKENS_A_CHUNK = 200_000


def packed(value: Any) -> str:
    """Compress a JSON value to base64 text, deterministically."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), 6, mtime=0)).decode()


def row_chunks(rows: Iterable[Row], proofs: Mapping[Origin, Proof]) -> Iterator[list[Any]]:
    """Group rows into chunks of at most `ROWS_A_CHUNK` rows and about `TOKENS_A_CHUNK` tokens."""
    chunk: list[Any] = []
    tokens = 0
    for row in rows:
        chunk.append(_row_as_json(row, proofs))
        tokens += len(row.ids)
        if len(chunk) == ROWS_A_CHUNK or tokens >= TOKENS_A_CHUNK:
            yield chunk
            chunk, tokens = [], 0
    if chunk:
        yield chunk


def _row_as_json(row: Row, proofs: Mapping[Origin, Proof]) -> dict[str, Any]:
    data: dict[str, Any] = {"i": list(row.ids)}
    if row.weights is not None:
        data["w"] = [[end - start, weight] for start, end, weight in weight_runs(row.weights)]
    if row.line is not None:
        data["f"] = _fields(line_texts(row.line))
    if row.beside is not None:
        data["b"] = _row_as_json(row.beside, proofs)
    data["p"] = [[part.start, one_line(part.name), part.offset, one_line(part.note)] for part in row.pieces]
    for piece, shown in zip(row.pieces, data["p"], strict=True):
        if piece.origin in proofs:
            shown.append(proofs[piece.origin])
    return data


def _fields(texts: Mapping[str, Texts]) -> list[Any]:
    """Fields of a line as JSON: name, characters, and texts by speaker; the first `MOST_LINE_CHARACTERS` of the line."""
    fields, room = [], MOST_LINE_CHARACTERS
    for name, parts in texts.items():
        shown = []
        for speaker, text in parts:
            shown.append([one_line(speaker), visible(text[:room]) + ("…" if len(text) > room else "")])
            room = max(0, room - len(text))
        fields.append([one_line(name), sum(len(text) for _, text in parts), shown])
    return fields


def index(rows: Sequence[Row], streams: Sequence[Table]) -> dict[str, Any]:
    """The columns of the list of rows; `pair`: characters, or trained tokens, of the chosen and the rejected answer."""
    domains = sorted({piece.origin.domain for row in rows for piece in row.pieces})
    numbers = {domain: number for number, domain in enumerate(domains)}
    trained = [streams[row.stream].trained for row in rows]
    return {
        "domains": [one_line(domain) for domain in domains],
        "stream": [row.stream for row in rows],
        "number": [row.number for row in rows],
        "length": [int(streams[row.stream].lengths[row.number]) for row in rows],
        "trained": [None if counts is None else int(counts[row.number]) for row, counts in zip(rows, trained, strict=True)],
        "domain": [sorted({numbers[piece.origin.domain] for piece in row.pieces}) for row in rows],
        "name": [one_line(row.pieces[0].name) if row.pieces else "" for row in rows],
        "pieces": [len(row.pieces) for row in rows],
        "beside": [None if row.beside is None else row.beside.stream for row in rows],
        "pair": [_lengths_of_answers(row, streams) for row in rows],
    }


def _lengths_of_answers(row: Row, streams: Sequence[Table]) -> tuple[int, int] | None:
    if row.beside is not None:
        chosen, rejected = (streams[side.stream].trained for side in row.sides)
        return None if chosen is None or rejected is None else (int(chosen[row.number]), int(rejected[row.number]))
    if row.line is None or not {"chosen", "rejected"} <= set(row.line):
        return None
    texts = line_texts(row.line)
    chosen_length, rejected_length = (sum(len(text) for _, text in texts[side]) for side in ("chosen", "rejected"))
    return chosen_length, rejected_length


def vocabulary_of(rows: Iterable[Row], vocabulary: Vocabulary | None) -> dict[str, str]:
    """Id → text, for every id in the rows."""
    used = sorted({token for row in rows for side in row.sides for token in side.ids})
    if vocabulary is None:
        return {str(token): f"⟨{token}⟩" for token in used}
    return {str(token): visible(text) for token, text in zip(used, token_texts(vocabulary, used), strict=True)}


def weight_runs(weights: Sequence[float]) -> list[tuple[int, int, float]]:
    """Start, end and weight of the runs of tokens with equal weight."""
    values = np.asarray(weights, np.float64)
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)] if len(values) else []
    return [(start, end, float(values[start])) for start, end in pairwise(edges)]


def sampled(counts: Mapping[int, int], want: int, seed: int = 0) -> dict[int, list[int]]:
    """Stream → numbers of the rows on a page: all where they fit, else the first, the last and a random sample, about `want` in total."""
    total = sum(counts.values())
    if total <= want:
        return {stream: list(range(count)) for stream, count in counts.items()}
    generator, chosen = np.random.Generator(np.random.PCG64(seed)), {}
    for stream, count in counts.items():
        quota = min(count, max(2, want * count // total))
        ends = min(10, quota // 2)
        drawn = generator.choice(count - 2 * ends, quota - 2 * ends, replace=False) + ends
        chosen[stream] = [*range(ends), *sorted(drawn.tolist()), *range(count - ends, count)]
    return chosen
