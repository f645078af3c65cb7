"""Checks of records and `selection` in parts of a store: the rows of each part are read once for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from prep_assets.assets.checks.parts import InParts, Unsound, sound
from prep_assets.assets.checks.selection import SELECTION, Judged, judged, whole_verdict
from prep_assets.assets.stage import Store
from prep_assets.disk.arrays import Spool
from prep_assets.proofs.ledger import Ledger, Refusals, balanced
from prep_assets.proofs.selection import beliefs_hold
from prep_assets.proofs.verdict import Verdict

Found = TypeVar("Found")


def beside_rows(
    checks: Iterable[str], prove: Callable[[Store], Found], join: Callable[[Store, Sequence[Found]], Mapping[str, Verdict]]
) -> InParts:
    """Checks in parts, and `selection`; `prove` and `join` as `InParts` has them."""

    def part(store: Store) -> tuple[Found, Judged]:
        return prove(store), judged(store)

    def joined(store: Store, parts: Iterable[tuple[Found, Judged]]) -> Mapping[str, Verdict]:
        listed = list[Found]()

        def rows() -> Iterator[Judged]:
            for found, of_rows in parts:
                listed.append(found)
                yield of_rows

        selected = of_parts(store, rows())
        return {**join(store, listed), SELECTION.name: selected}

    return InParts(frozenset((*checks, SELECTION.name)), part, joined)


def of_parts(store: Store, parts: Iterable[Judged]) -> Verdict:
    """The verdict on a store of one domain, of what was found of its parts, in order.

    Raises:
        Unsound: a part is not as it must be, or they contradict each other.
    """
    numbers, rows, unnamed = Counter[str](), Counter[str](), set[str]()
    digests, came, quarantine = Spool(np.uint64), Spool(bool), set[int]()
    for part in parts:
        sound({SELECTION.name: part.verdict})
        [(found, without_name)] = part.fields
        numbers.update(part.verdict.numbers)
        rows += found
        unnamed |= without_name
        digests.append(np.frombuffer(part.digests, np.uint64))
        came.append(np.frombuffer(part.came, bool))
        quarantine.add(part.quarantine)
    if quarantine != {numbers["rows_refused"]} or not beliefs_hold(digests.array().reshape(-1, 2), came.array()):
        raise Unsound
    counted = {name: numbers[name] for name in Ledger(Refusals(()), 0.0).numbers}
    return whole_verdict(store, Judged(balanced(counted), ((rows, unnamed),), numbers["rows_refused"]))
