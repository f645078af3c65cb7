"""A store in parts: stretches of its sources, each with the records that come from them. The plan depends on the store and its sources alone.

Every record belongs to one part, whatever its store says of where it comes from, and is proven against the rows of that part.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from prep_assets.assets.reading.pinned import domain_of, pinned
from prep_assets.assets.reading.stretches import Stretch, shards_of
from prep_assets.proofs.ledger import places
from prep_assets.stores.shards import Window
from prep_assets.stores.tokens import TokenStore
from prep_assets.workers.shards import Shard

if TYPE_CHECKING:
    from prep_assets.assets.stage import Store

END = 1 << 62
"""After the place of every row."""


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive rows of a domain.

    Attributes:
        stretches: of its files.
        begin, end: the place of the first of them, see `places`, and of the first one after them; 0 and `END` at the ends of the domain.
    """

    stretches: tuple[Stretch, ...]
    begin: int
    end: int

    def rows_end(self, stretch: Stretch) -> int | None:
        """The number of the row after a stretch that does not go on to the end of its file."""
        return None if stretch.part.stop is None else self.end & ((1 << 40) - 1)

    def records_of(self, stream: TokenStore) -> TokenStore:
        """The records of a stream that come from it, with the images of all. Where they are not in the order of their rows, each is still a record of one
        part."""

        def first(place: int) -> int:
            return bisect_left(range(len(stream)), place, key=lambda at: int(places(stream.file[at], stream.row[at])))

        records = slice(first(self.begin) if self.begin else 0, len(stream) if self.end == END else first(self.end))
        begin, end = (int(stream.ends[record - 1]) if record else 0 for record in (records.start, records.stop))
        arrays = {key: Window(array, begin, end) for key, array in stream.arrays.items()}
        return TokenStore(arrays, stream.ends[records] - begin, stream.file[records], stream.row[records], stream.images, begin)


def parts_of(store: Store) -> list[Shard]:
    """A store of one domain in parts, the tasks of shards; none where how many rows count towards a limit takes a look at all before them."""
    if domain_of(store.family, store.partition).max_items is not None or getattr(store.family, "max_per_source", None) is not None:
        return []
    sources = pinned(store.workspace, type(store.family), store.raw, store.partition)
    shards = shards_of(sources, store.family.cluster.shards)
    first = [int(places(shard.task[0].file, shard.task[0].part.row)) for shard in shards]
    return [replace(shard, task=Part(shard.task, *ends)) for shard, ends in zip(shards, pairwise([0, *first[1:], END]), strict=True)]


class Unsound(Exception):
    """Of a store that is proven in parts one is not as it must be, or they contradict each other. The checks of the whole store say what is wrong."""
