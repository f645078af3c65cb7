"""Proofs of the mixture of packed tables: which pieces are where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.proofs.orders import Order, Trained, expected_documents, expected_order, multiple_of, with_padding
from prep_assets.proofs.verdict import Verdict, fails, wrong_claim
from prep_assets.stores.arrays import stretches

# The places of a packed table: every record that the options ask for is where they put it, or left out for a reason that they give.

FIELDS = ("row", "row_offset", "source", "record", "start", "length")


def check_mixture(
    documents: Mapping[str, npt.NDArray[Any]],
    sources: Sequence[str],
    lengths: Mapping[str, Ints],
    packing: Mapping[str, Any],
    trained: Trained,
    claimed: Mapping[str, float],
    align: int = 1,
) -> Verdict:
    """Compare the pieces of a table with those that the options ask for, place by place.

    Args:
        documents: fields of its pieces, in order.
        sources: names of the domains, sorted; pieces hold their indices.
        lengths: tokens of each record, by domain.
        packing: the options.
        claimed: what the manifest says of ``rows``, ``records``, ``tokens``, ``tokens_left_out``, ``tokens_in_untrained_rows``, ``fill_rate`` and
            ``share_<domain>``, and with the options that have them, ``places_for_alignment`` and ``work_evenness``.
        align: what the table says of its alignment.
    """
    numbers: dict[str, float] = {"records_expected": 0, "tokens_packed": int(np.sum(documents["length"])), "tokens_untrained": 0}
    if list(sources) != sorted(lengths):
        return fails("domains", f"the table is of {list(sources)}, the configuration of {sorted(lengths)}", numbers)
    if align != (multiple := multiple_of(packing)):
        return fails("alignment", f"the table says that documents take multiples of {align} places, the topology needs {multiple}", numbers)
    order = expected_order(lengths, packing)
    expected, numbers["tokens_untrained"] = expected_documents(order, packing, trained)
    numbers["records_expected"] = len(order.record)
    if (at := _first_difference(expected, documents)) is not None:
        places = [_place(columns, at, sources) for columns in (documents, expected)]
        return fails(f"piece {at:,}", f"is {places[0]}; the options put {places[1]} there", numbers)
    fault = wrong_claim(_amounts(expected, order, sources, packing, numbers["tokens_untrained"]), claimed)
    if fault:
        return fails("manifest", fault, numbers)
    return Verdict(
        True, f"the {len(order.record):,} records that the options ask for stand where they put them, or are counted as left out", numbers
    )


def _first_difference(expected: Mapping[str, Ints], documents: Mapping[str, npt.NDArray[Any]]) -> int | None:
    """Return the number of the first piece that differs, or that one of the two has not."""
    counts = len(expected["row"]), len(documents["row"])
    for part in stretches(min(counts)):
        differs: npt.NDArray[np.bool_] = np.any([np.asarray(documents[field][part]) != expected[field][part] for field in FIELDS], axis=0)
        if differs.any():
            return int(part.start + differs.argmax())
    return min(counts) if counts[0] != counts[1] else None


def _place(columns: Mapping[str, npt.NDArray[Any]], at: int, sources: Sequence[str]) -> str:
    """Return what piece `at` is, in words."""
    if at >= len(columns["row"]):
        return "none"
    row, offset, source, record, start, length = (int(columns[field][at]) for field in FIELDS)
    domain = sources[source] if 0 <= source < len(sources) else f"domain {source}"
    return f"tokens {start:,} to {start + length:,} of {domain} record {record:,} at place {offset:,} of row {row:,}"


def _amounts(
    expected: Mapping[str, Ints], order: Order, sources: Sequence[str], packing: Mapping[str, Any], untrained: float
) -> dict[str, float]:
    """Return what a manifest must say of these pieces."""
    rows, used = int(expected["row"][-1]) + 1 if len(expected["row"]) else 0, int(expected["length"].sum())
    tokens = np.zeros(len(sources))
    for part in stretches(len(expected["source"])):
        tokens += np.bincount(expected["source"][part], expected["length"][part], len(sources))
    return {
        "rows": rows,
        "records": len(order.record),
        "tokens": used,
        "tokens_left_out": int(order.length.sum()) - used,
        "tokens_in_untrained_rows": untrained,
        "fill_rate": used / max(1, rows * int(packing["row_len"])),
        **(
            {"places_for_alignment": int(with_padding(expected["length"], multiple_of(packing)).sum()) - used}
            if packing.get("align") is not None
            else {}
        ),
        **({"work_evenness": _evenness(expected, rows, packing["balance"])} if packing.get("balance") is not None else {}),
        **{f"share_{name}": float(count) / max(1, used) for name, count in zip(sources, tokens, strict=True)},
    }


def _evenness(expected: Mapping[str, Ints], rows: int, ranks: int) -> float:
    """Return the work of whole steps of rows over that of a rank that always has the heaviest."""
    done, most = 0, 0
    work = [0] * rows
    for row, length in zip(expected["row"].tolist(), expected["length"].tolist(), strict=True):
        work[row] += length**2
    for first in range(0, rows - rows % ranks, ranks):
        done, most = done + sum(work[first : first + ranks]), most + max(work[first : first + ranks])
    return done / (ranks * most) if most else 1.0
