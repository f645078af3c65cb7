"""Checks that hold a store to the rows it was made from: each record must be what its row gives, in the order of the sources.

    rows of the sources ──join──> a stretch of records with their rows ──> every judge of that stream ──> results ──> a verdict for each check

The sources are read once for all checks of a store, whole or in parts. What is expected of a row comes from `proofs`; a check is the pairs of a stored
record and what it must be (`Pairs`), and the proof that compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from prep_assets.checks.sources_again import Join, StoredRows, Unsound, source_of, stored_rows, streams_of
from prep_assets.pipeline.asset import Check, Store
from prep_assets.proofs.documents import TextProof
from prep_assets.proofs.mask import IdentityProof, MaskProof
from prep_assets.proofs.selection import Rules, Selected, select
from prep_assets.proofs.verdict import Tally, Verdict, Worst, combined, merged
from prep_assets.stores.arrays import prefetch
from prep_assets.stores.table import Table

T = TypeVar("T")
Outcome = Verdict | Exception

SMALL = 2000
"""Of a store of fewer records every one is derived the slow way; of others a sample is, and the first of each kind."""
FEW_TOKENS = 1 << 18
"""The reference tokenizes all texts of a small store whole if they have no more tokens: it takes half a second for so many."""


def is_small(store: Store) -> bool:
    """Whether a store has fewer than `SMALL` records."""
    return int(store.manifest.counts["kept"]) < SMALL


def has_few_tokens(store: Store) -> bool:
    """Whether a store is small and has no more than `FEW_TOKENS`."""
    return is_small(store) and int(store.manifest.counts["tokens"]) <= FEW_TOKENS


Proof = Tally[Any] | MaskProof | IdentityProof | TextProof
"""Judges pairs of what is stored and what must be, as they come."""


class Judge(Protocol):
    """Judges the records of a stream, or the rows of the sources."""

    def add(self, rows: Any) -> None:
        """Judge the next `StoredRows` of a stream, or the next `Selected` of the sources."""

    def result(self) -> Any:
        """The result on all of them."""


class Compares:
    """Judges pairs of a stored record and what it must be, by a proof."""

    def __init__(self, pairs: Callable[[StoredRows], Iterable[Any]], proof: Proof) -> None:
        self._pairs, self._proof = pairs, proof

    def add(self, rows: StoredRows) -> None:
        """See `Judge`."""
        self._proof.add(self._pairs(rows))

    def result(self) -> Verdict:
        """See `Judge`."""
        return self._proof.verdict()


class Derivation:
    """A second derivation of a store, which gives the verdicts of one or several checks."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._parts: list[Sequence[Any]] = []

    def judges(self) -> Sequence[tuple[Table | None, Judge]]:
        """The judges, each with its stream; `None`: of the rows of the sources."""
        raise NotImplementedError

    def verdicts(self, results: Sequence[Any]) -> Mapping[str, Verdict]:
        """Return the verdict of each check, by name, from the results of the judges on the whole store."""
        raise NotImplementedError

    def blocks(self) -> Iterator[Selected] | None:
        """The rows of the sources with their fates, from the one derivation that knows these; `None`: it is not this."""
        return None

    def add_part(self, results: Sequence[Any]) -> None:
        """Add the results of the judges on the next part of a store.

        Raises:
            Unsound: the part fails.
        """
        require(self.sound(results))
        self._parts.append(results)

    def sound(self, results: Sequence[Any]) -> bool:
        """Whether a part holds."""
        return all(verdict.passed for verdict in results)

    def merged(self) -> Sequence[Any]:
        """The results on the whole store, merged from those on its parts."""
        return [merged(verdicts) for verdicts in zip(*self._parts, strict=True)]


Kind = Callable[[Store], Derivation]
Pairs = Callable[[Store, Table], Callable[[StoredRows], Iterable[Any]] | None]
"""A store and one of its streams → records with their rows → pairs for a proof; `None`: the check does not look at this stream."""


class Relation(Derivation):
    """A check that compares every record of every stream with what its row gives."""

    def __init__(self, store: Store, name: str, relations: Sequence[tuple[Pairs, Callable[[Store], Proof]]]) -> None:
        super().__init__(store)
        self._name, self.relations = name, relations

    def judges(self) -> Sequence[tuple[Table | None, Judge]]:
        """One for each stream that a check looks at."""
        found = [(held, pairs(self.store, held), proof) for held in streams_of(self.store) for pairs, proof in self.relations]
        return [(held, Compares(pairs, proof(self.store))) for held, pairs, proof in found if pairs is not None]

    def verdicts(self, results: Sequence[Verdict]) -> Mapping[str, Verdict]:
        """The combined verdict."""
        return {self._name: combined(results)}


def relation(name: str, description: str, *relations: tuple[Pairs, Callable[[Store], Proof]]) -> Check:
    """Return a check by what it compares, and the proofs that do."""
    return derived(name, description, partial(Relation, name=name, relations=relations))


def pairs_of(store: Store, name: str, at: int = 0) -> Pairs:
    """Return what a check of a store compares, of its relations that with this number."""
    kind = next(check.derived for check in store.asset.checks if check.name == name)
    relation = kind and kind(store)
    assert isinstance(relation, Relation)
    return relation.relations[at][0]


def first_compared(store: Store, name: str, most: int = 8) -> Iterator[Iterator[Any]]:
    """Yield the first that a check compares, of each stream."""
    for stream in streams_of(store):
        if (pairs := pairs_of(store, name)(store, stream)) is not None:
            yield islice((pair for rows in stored_rows(store, stream) for pair in pairs(rows)), most)


def require(sound: bool) -> None:
    """Raises:
    Unsound: `sound` is false, for a part of a store.
    """
    if not sound:
        raise Unsound


def derived(name: str, description: str, kind: Kind) -> Check:
    """Return a check by second derivation. All such checks of a run share one reading of the source."""
    return Check(name, description, partial(_verdict_of, name=name), kind)


def _verdict_of(store: Store, *, name: str) -> Verdict:
    known: dict[str, Outcome | None] = {} if store.published.evidence is None else store.published.evidence
    if known.get(name) is None:
        known |= outcomes(store, {name, *known})
    if isinstance(outcome := known[name], Verdict):
        return outcome
    assert outcome is not None
    raise outcome


def _kinds(store: Store, names: Collection[str] | None = None) -> dict[Kind, list[str]]:
    """Return the second derivations of a store with the names of their checks; only for `names`, where given."""
    kinds: dict[Kind, list[str]] = {}
    for check in store.asset.checks:
        if check.derived is not None and (names is None or check.name in names):
            kinds.setdefault(check.derived, []).append(check.name)
    return kinds


def outcomes(store: Store, names: Collection[str]) -> dict[str, Outcome]:
    """Return the verdict of each check on a whole store, or the exception that a damaged store made a judge raise."""
    verdicts: dict[str, Outcome] = {}
    ready: list[tuple[list[str], Derivation, list[_Guarded]]] = []
    for kind, check_names in _kinds(store, names).items():
        try:
            derivation = kind(store)
            ready.append((check_names, derivation, _guarded(derivation)))
        except Exception as error:
            verdicts |= dict.fromkeys(check_names, error)
    _read(store, [(derivation, judges) for _, derivation, judges in ready])
    for check_names, derivation, judges in ready:
        try:
            verdicts |= derivation.verdicts([judge.result() for judge in judges])
        except Exception as error:
            verdicts |= dict.fromkeys(check_names, error)
    fault, others = verdicts.get("selection"), {*verdicts} - {"selection"}
    if isinstance(fault, Exception) and any(verdicts[name] is fault for name in others):
        # an error that keeps rows from being judged is the fault of `selection` alone
        return outcomes(store, others) | {"selection": fault}
    return verdicts


class _Guarded:
    """A judge, and the first exception that it raised or that kept rows from it."""

    def __init__(self, held: Table | None, judge: Judge) -> None:
        self.held, self._judge = held, judge
        self.error: Exception | None = None

    def add(self, rows: Any) -> None:
        if self.error is None:
            try:
                self._judge.add(rows)
            except Exception as error:
                self.error = error

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self._judge.result()


def _guarded(derivation: Derivation) -> list[_Guarded]:
    return [_Guarded(held, judge) for held, judge in derivation.judges()]


def results_of_rows(derivation: Derivation, blocks: Iterable[Selected]) -> list[Any]:
    """Return what the judges of a derivation find in the records of some rows; records without such a row are left out."""
    judges = _guarded(derivation)
    _read(derivation.store, [(derivation, judges)], blocks)
    return [judge.result() for judge in judges]


def _read(store: Store, derivations: Sequence[tuple[Derivation, Sequence[_Guarded]]], some: Iterable[Selected] | None = None) -> None:
    """Give the judges all rows of a store's source, or of its part, or only `some`; each stream is joined once."""
    judges = [judge for _, own in derivations for judge in own]
    if not judges:
        return
    by_stream: dict[str, tuple[Join, list[_Guarded]]] = {}
    for judge in judges:
        if judge.held is not None:
            by_stream.setdefault(judge.held.name, (Join(store, judge.held, every=some is None), []))[1].append(judge)
    try:
        given = (
            next((blocks for derivation, _ in derivations if (blocks := derivation.blocks()) is not None), None) if some is None else some
        )
        with closing(prefetch(blocks_of(store) if given is None else given)) as blocks:
            for block in blocks:
                for judge in judges:
                    if judge.held is None:
                        judge.add(block)
                for join, own in by_stream.values():
                    _feed(join.add(block), own)
        for join, own in by_stream.values():
            _feed(join.end(), own)
    except Exception as error:
        for judge in judges:
            judge.error = judge.error or error


def _feed(joined: Iterator[StoredRows], judges: Sequence[_Guarded]) -> None:
    """Give judges the next records of their stream with their rows; what keeps these from being joined stops them all."""
    if all(judge.error for judge in judges):
        return
    try:
        for rows in joined:
            for judge in judges:
                judge.add(rows)
    except Exception as error:
        for judge in judges:
            judge.error = judge.error or error


def blocks_of(store: Store) -> Iterator[Selected]:
    """Yield the rows of a store's source, unjudged."""
    return select(source_of(store).rows(store.part), Rules(deduplicate=False))


def part_of(store: Store) -> list[Sequence[Any]]:
    """Return the results on a part of a store, which travel to the merging process.

    Raises:
        Exception: whatever a damaged store makes a judge raise.
    """
    derivations = [(derivation := kind(store), _guarded(derivation)) for kind in _kinds(store)]
    _read(store, derivations)
    return [[judge.result() for judge in judges] for _, judges in derivations]


def verdicts_of_parts(store: Store, parts: Iterable[Sequence[Sequence[Any]]]) -> dict[str, Verdict]:
    """Return the verdicts on a whole store from the results on its parts, in order.

    Raises:
        Unsound: a part fails, or parts contradict each other.
    """
    derivations = [kind(store) for kind in _kinds(store)]
    for part in parts:
        for derivation, results in zip(derivations, part, strict=True):
            derivation.add_part(results)
    verdicts: dict[str, Verdict] = {}
    for derivation in derivations:
        verdicts |= derivation.verdicts(derivation.merged())
    require(all(verdict.passed for verdict in verdicts.values()))
    return verdicts


def same_rows(table: Any, again: Any) -> Verdict:
    """Compare what is stored with what came out again, row by row."""
    numbers = {"rows_compared": table.num_rows}
    if table.schema != again.schema or table.num_rows != again.num_rows:
        detail = f"it has {table.num_rows:,} rows of {table.column_names}; again there are {again.num_rows:,} of {again.column_names}"
        return Verdict(False, detail, numbers, Worst("rows", detail))
    for name in table.column_names:
        if not table[name].equals(again[name]):
            stored, expected = table[name].to_pylist(), again[name].to_pylist()
            at = next(at for at, pair in enumerate(zip(stored, expected, strict=True)) if pair[0] != pair[1])
            where = (
                f"row {table['row'][at].as_py() + 1} of file {table['file'][at].as_py() + 1}"
                if "row" in table.column_names
                else f"row {at:,}"
            )
            return Verdict(False, detail := f"{where}: {name} is {stored[at]!r}, again {expected[at]!r}", numbers, Worst(where, detail))
    return Verdict(True, f"{table.num_rows:,} rows came out the same again", numbers)
