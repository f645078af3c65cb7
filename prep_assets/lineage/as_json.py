"""Traces as JSON values, for pages and scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from prep_assets.lineage.token import Token
from prep_assets.lineage.trace import Trace, Traced


def trace_as_json(trace: Trace) -> dict[str, Any]:
    """A traced row: what it is made of, in order, with the whole way to the source."""
    row = trace.row
    return {
        **asdict(row.place),
        "rows": row.count,
        "tokens": len(row.ids),
        "differs": list(trace.differs),
        "pieces": [piece_as_json(each) for each in trace.pieces],
        "stores": {label: dict(hashes) for label, hashes in trace.hashes.items()},
    }


def piece_as_json(traced: Traced) -> dict[str, Any]:
    """A piece of a row."""
    piece = traced.piece
    return {
        "start": piece.start,
        "end": piece.end,
        "first": piece.first,
        "part": piece.part,
        "path": [asdict(place) for place in piece.path],
        "source": None if traced.source is None else asdict(traced.source),
        "line": None if traced.line is None else dict(traced.line),
        "text": None if traced.sequence is None else traced.sequence.text,
    }


def token_as_json(token: Token, traced: Traced | None) -> dict[str, Any]:
    """One token, with the piece that it is in."""
    return {**asdict(token), "piece": None if traced is None else piece_as_json(traced)}
