"""The checks that derive a store anew from its sources: these are read a second time, once for all of them, whole or in parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar, TypeVar

from prep_assets.assets.checks.every_store import together
from prep_assets.assets.checks.parts import Unsound
from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.checks.selection import Selection, rows_of
from prep_assets.assets.checks.stored_rows import Rows, readable
from prep_assets.assets.stage import Check, Store
from prep_assets.disk.ahead import ahead
from prep_assets.proofs.selection import Rules, select
from prep_assets.proofs.verdict import Verdict

T = TypeVar("T")
Reader = Callable[[Iterator[Rows]], Any]
"""Is given the rows of a store's sources in order, once, and tells what it found. It may stop before the last."""
Outcome = Verdict | Exception
SELECTION_NAME = "selection"


class Derivation:
    """What a kind of store says of its second derivation; a check that is carried out in parts says as well what travels, and how it is joined.

    Attributes:
        names: of its checks.
    """

    names: ClassVar[tuple[str, ...]]

    def __init__(self, store: Store) -> None:
        self.store = store

    def source_rows(self) -> Iterator[Rows]:
        """The rows of the store's sources, for who wants some of them and no verdict."""
        return map(readable, _blocks(self.store))

    def readers(self) -> Sequence[Reader]:
        """What looks at the rows, each in a thread of its own."""
        raise NotImplementedError

    def verdicts(self, found: Sequence[Any]) -> Mapping[str, Verdict]:
        """What its checks say, given what its readers found of the whole store: where each gives a verdict, all of them as one."""
        return {self.names[0]: together(found)}

    def part(self, found: Sequence[Any]) -> Any:
        """What travels of what was found of a part; or `Unsound`."""
        raise NotImplementedError

    def joined(self, parts: Sequence[Any]) -> Sequence[Any]:
        """What the readers found of the whole store, of that."""
        raise NotImplementedError


def derived(name: str, description: str) -> Check:
    """A check that is carried out with the others of the store that read its sources."""
    return Check(name, description, partial(_said, name=name), derived=True)


def _said(store: Store, *, name: str) -> Verdict:
    """The verdict of one check; those of all that are asked for in one run come of one reading."""
    known: dict[str, Outcome | None] = {} if store.published.evidence is None else store.published.evidence
    if known.get(name) is None:
        known |= outcomes(store, {check.name for check in store.asset.checks if check.derived and check.name in {name, *known}})
    if isinstance(outcome := known[name], Verdict):
        return outcome
    assert outcome is not None
    raise outcome


SELECTION = derived(
    SELECTION_NAME,
    "Every row of the sources, read again by other code, is stored once on its side of the split, or refused once for a reason that holds.",
)


def outcomes(store: Store, names: Collection[str]) -> dict[str, Outcome]:
    """What each of some checks says of a whole store, or raises."""
    found, derivations = dict[str, Outcome](), list[Derivation]()
    selection = _made(found, (SELECTION_NAME,), partial(Selection, store)) if SELECTION_NAME in names else None
    for kind in store.asset.derivations:
        if {*kind.names} & {*names}:
            made = _made(found, kind.names, partial(kind, store))
            derivations += [made] if made is not None else []
    looked, fault = _looked(store, selection, derivations)
    if fault is not None and selection is not None and derivations:
        # what stops the rows from being judged is no fault of what is made from them
        return outcomes(store, {*names} - {SELECTION_NAME}) | {SELECTION_NAME: fault}
    if selection is not None and fault is not None:
        found[SELECTION_NAME] = fault
    elif selection is not None:
        found |= _made(found, (SELECTION_NAME,), lambda: {SELECTION_NAME: selection.verdict(selection.judged())}) or {}
    for each, results in zip(derivations, looked, strict=True):
        if (error := next((result for result in results if isinstance(result, Exception)), None)) is not None:
            found |= dict.fromkeys(each.names, error)
        else:
            found |= _made(found, each.names, partial(each.verdicts, results)) or {}
    return found


def _made(found: dict[str, Outcome], names: Iterable[str], make: Callable[[], T]) -> T | None:
    """What is made for some checks; `None` where that fails, which is then what these raise."""
    try:
        return make()
    except Exception as error:  # whatever a damaged store makes a reader raise
        found |= dict.fromkeys(names, error)
        return None


def _looked(store: Store, selection: Selection | None, derivations: Sequence[Derivation]) -> tuple[list[list[Any]], Exception | None]:
    """What the readers of each derivation found, and what stopped the reading."""
    readers = [each.readers() for each in derivations]
    every = [reader for some in readers for reader in some]
    if selection is None and not every:
        return [[] for _ in readers], None
    results, fault = told(map(readable, selection.blocks() if selection is not None else _blocks(store)), every)
    each = iter(results)
    return [[next(each) for _ in some] for some in readers], fault


def _blocks(store: Store) -> Iterator[Any]:
    """The rows of a store, which nobody judges."""
    second = Second.of(store, store.partition)
    return select(second.rows(store.part, second.messages(rows_of(store).gives)), Rules(deduplicate=False))


def told(items: Iterator[T], readers: Sequence[Callable[[Iterator[T]], Any]]) -> tuple[list[Any], Exception | None]:
    """All items to several readers: what each returns or raises, and what `items` raised. All items are read, whether or not a reader wants them; the next
    is made while the readers look at the last one, one of them after the other."""
    fault: Exception | None = None
    with ThreadPoolExecutor(max(1, len(readers)), "derives") as pool, closing(ahead(items)) as made:
        listeners = [_Listener(pool, reader) for reader in readers]
        try:
            for item in made:
                for listener in listeners:
                    listener.tell((item,))
        except Exception as error:
            fault = error
        finally:
            for listener in listeners:
                listener.end(fault)
        return [listener.future.exception() or listener.future.result() for listener in listeners], fault


class _Listener:
    """A reader in a thread of its own, which waits for the next item unless it is told one."""

    def __init__(self, pool: ThreadPoolExecutor, reader: Callable[[Iterator[Any]], Any]) -> None:
        self._asked, self._given = SimpleQueue[None](), SimpleQueue[Any]()
        self.future = pool.submit(reader, self._items())
        self.future.add_done_callback(lambda _: self._asked.put(None))
        self._asked.get()

    def _items(self) -> Iterator[Any]:
        while True:
            self._asked.put(None)
            if not isinstance(item := self._given.get(), tuple):
                break
            yield item[0]
        if item is not None:
            raise item

    def tell(self, item: tuple[Any]) -> None:
        """Return once the reader wants another item, or none any more."""
        if not self.future.done():
            self._given.put(item)
            self._asked.get()

    def end(self, fault: Exception | None) -> None:
        """There are no more, for this reason."""
        self._given.put(fault)
        wait([self.future])


# -- parts ------------------------------------------------------------------------------------------------------------------------------


def part_of(store: Store) -> list[Any]:
    """What is found of a part of a store, which travels to the process that joins.

    Raises:
        Exception: `Unsound`, or whatever a damaged store makes a reader raise.
    """
    selection, derivations = Selection(store), [kind(store) for kind in store.asset.derivations]
    looked, fault = _looked(store, selection, derivations)
    for error in (fault, *(result for results in looked for result in results)):
        if isinstance(error, Exception):
            raise error
    return [selection.judged(), *(each.part(results) for each, results in zip(derivations, looked, strict=True))]


def joined(store: Store, parts: Iterable[list[Any]]) -> dict[str, Verdict]:
    """The verdicts on a whole store, of what was found of all its parts, in order.

    Raises:
        Unsound: a part is not as it must be, or they contradict each other.
    """
    derivations, listed = [kind(store) for kind in store.asset.derivations], list[list[Any]]()

    def rows() -> Iterator[Any]:
        for of_rows, *found in parts:
            listed.append(found)
            yield of_rows

    said = {SELECTION_NAME: Selection(store).of_parts(rows())}
    for number, each in enumerate(derivations):
        said |= each.verdicts(each.joined([found[number] for found in listed]))
    if not all(verdict.passed for verdict in said.values()):
        raise Unsound
    return said
