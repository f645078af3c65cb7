"""The mixture of a packed table: every record that the options ask for is in it whole, as often as they ask, or left out for a reason that holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.arrays import numbers
from prep_assets.disk.columns import joined, made, stretches, sums, together, zeros
from prep_assets.proofs.mixture import Ints, Order, expected_order
from prep_assets.proofs.verdict import Verdict, Worst

Trained = Callable[[int, int, int, int], int]
"""Domain, record, start, end → how many of these tokens are trained."""


def check_mixture(
    documents: Mapping[str, npt.NDArray[Any]],
    sources: Sequence[str],
    lengths: Mapping[str, Ints],
    packing: Mapping[str, Any],
    trained: Trained,
    claimed: Mapping[str, float],
) -> Verdict:
    """Compare a table's pieces with what must be in it.

    Args:
        documents: fields of its pieces, in order.
        sources: names of the domains that they number, sorted.
        lengths: tokens of each record, by domain.
        packing: the options.
        claimed: ``tokens_left_out`` and ``tokens_in_untrained_rows`` as the manifest counts them, and ``share_<domain>``.
    """
    found = {field: np.asarray(documents[field]) for field in ("source", "record", "start", "length")}
    numbers: dict[str, float] = {"records_expected": 0, "tokens_packed": int(found["length"].sum()), "tokens_untrained": 0}
    if list(sources) != sorted(lengths):
        return _failed(numbers, "domains", f"the table is of {list(sources)}, the configuration of {sorted(lengths)}")
    known = [len(lengths[name]) for name in sources]
    if (stranger := _stranger(found, known)) is not None:
        return _failed(numbers, "documents", stranger)
    order = expected_order(lengths, packing)
    numbers["records_expected"] = len(order.record)
    pieces = _usable(order, packing)
    for source, record, start, end, surplus in _differences(pieces, found):
        name = f"{sources[source]} record {record:,}"
        if surplus > 0:
            return _failed(numbers, name, f"tokens {start:,} to {end:,} are {surplus} times more in the table than the options ask for")
        if (lost := trained(source, record, start, end)) > 0:
            return _failed(numbers, name, f"{lost:,} trained tokens between {start:,} and {end:,} are in no row")
        numbers["tokens_untrained"] += -surplus * (end - start)
    fault = _claims(order, found, sources, claimed, numbers)
    if fault is None and packing["strategy"] in ("concat", "simple") and not _in_order(pieces, found):
        fault = f"{packing['strategy']} keeps the order of the mixture, the table does not"
    if fault is not None:
        return _failed(numbers, "documents", fault)
    return Verdict(True, f"the rows hold the {len(order.record):,} records that the options ask for, whole or counted as left out", numbers)


def _failed(numbers: Mapping[str, float], where: str, what: str) -> Verdict:
    return Verdict(False, f"{where}: {what}", numbers, Worst(where, what))


def _usable(order: Order, packing: Mapping[str, Any]) -> dict[str, Ints]:
    """The part of each record that the strategy packs: from 0, so many tokens."""
    row_len, whole = int(packing["row_len"]), order.length
    length: Callable[[slice], Ints]
    if packing["strategy"] == "concat":
        ends = sums(whole)
        total = int(whole.sum())
        limit = total // row_len * row_len if packing["tail"] == "drop" else total

        def length(part: slice) -> Ints:
            left: Ints = limit - (ends[part] - whole[part])
            return np.minimum(np.maximum(left, 0), whole[part])
    elif packing["strategy"] != "bfd_split" and packing["overlong"] in ("truncate", "drop"):
        instead = row_len if packing["overlong"] == "truncate" else 0

        def length(part: slice) -> Ints:
            return np.where(whole[part] > row_len, instead, whole[part])
    else:
        return {"source": order.source, "record": order.record, "start": zeros(len(whole)), "length": whole}
    return {"source": order.source, "record": order.record, "start": zeros(len(whole)), "length": made(len(whole), length)}


def _stranger(found: Mapping[str, Ints], known: Sequence[int]) -> str | None:
    """A piece of a record that no domain has."""
    counts = np.array(known)
    for part in stretches(len(found["record"])):
        source, record = found["source"][part], found["record"][part]
        sound = (source >= 0) & (source < len(counts))
        wrong = ~sound | (record < 0) | (record >= counts[np.where(sound, source, 0)])
        if wrong.any():
            at = int(wrong.argmax())
            return f"piece {part.start + at:,} is of record {record[at]:,} of domain {source[at]}, where there is none"
    return None


def _differences(wanted: Mapping[str, Ints], found: Mapping[str, Ints]) -> Iterator[tuple[int, int, int, int, int]]:
    """Domain, record, start and end of every stretch that is in the table more or less often than wanted, and by how much, some records at a time."""
    begin = len(found["record"])
    for here in together(joined([found["record"], wanted["record"]])):
        mine, others = here[here < begin], here[here >= begin] - begin
        yield from _surplus({key: column[others] for key, column in wanted.items()}, {key: column[mine] for key, column in found.items()})


def _surplus(wanted: Mapping[str, Ints], found: Mapping[str, Ints]) -> list[tuple[int, int, int, int, int]]:
    parts = [(found, 1), (wanted, -1)]
    edges = [
        (part["source"], part["record"], place, step)
        for part, sign in parts
        for place, step in ((part["start"], sign), (part["start"] + part["length"], -sign))
    ]
    source, record, place = (np.concatenate([edge[column] for edge in edges]) for column in range(3))
    change = np.concatenate([np.full(len(edge[0]), edge[3]) for edge in edges])
    order = np.lexsort((place, record, source))
    source, record, place, change = source[order], record[order], place[order], change[order]
    # the edges of a record add up to nothing at its end, so that those of the next one may be there as well
    last = np.append(np.diff(place) != 0, np.ones(min(1, len(source)), bool))
    count = np.cumsum(change)[last]
    source, record, place = source[last], record[last], place[last]
    return [(int(source[at]), int(record[at]), int(place[at]), int(place[at + 1]), int(count[at])) for at in np.flatnonzero(count).tolist()]


def _claims(
    order: Order,
    found: Mapping[str, Ints],
    sources: Sequence[str],
    claimed: Mapping[str, float],
    numbers: Mapping[str, float],
) -> str | None:
    used = int(found["length"].sum())
    left_out = int(order.length.sum()) - used
    if claimed["tokens_left_out"] != left_out:
        return f"{left_out:,} tokens are left out, the manifest says {claimed['tokens_left_out']:,}"
    if claimed["tokens_in_untrained_rows"] != numbers["tokens_untrained"]:
        said = claimed["tokens_in_untrained_rows"]
        return f"{numbers['tokens_untrained']:,.0f} untrained tokens are left out, the manifest says {said:,} are in rows without loss"
    tokens = sum(
        (np.bincount(found["source"][part], found["length"][part], len(sources)) for part in stretches(len(found["source"]))),
        np.zeros(len(sources)),
    )
    for name, count in zip(sources, tokens, strict=True):
        if abs(claimed[f"share_{name}"] - count / max(1, used)) > 1e-9:
            return f"{name} is {count / max(1, used):.4f} of the tokens, the manifest says {claimed[f'share_{name}']:.4f}"
    return None


def _in_order(pieces: Mapping[str, Ints], found: Mapping[str, Ints]) -> bool:
    """Whether records stand in the table as in the mixture, but for those that are left out."""
    wanted = zip(numbers(pieces["source"]), numbers(pieces["record"]), strict=True)
    last: tuple[int, ...] = ()
    for piece in zip(*(numbers(found[field]) for field in ("source", "record", "start")), strict=True):
        # all that is wanted before a record is gone once it is found
        if (piece[:2] != last[:2] or piece <= last) and piece[:2] not in wanted:
            return False
        last = piece
    return True
