"""Near-duplicates: examples whose word n-grams overlap, found by MinHash and banding, one of each cluster kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, starmap
from struct import Struct
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import xxhash
from pydantic import Field

from prep_assets.extensions.quality.characters import Characters
from prep_assets.extensions.quality.steps import ANSWER, CLUSTER, CONTEXT, DOCUMENTS, REJECTED, Examples, Judged, Step, quality_step
from prep_assets.extensions.quality.units import composed
from prep_assets.extensions.quality.words import Words, mixed
from prep_assets.samples import SYSTEM, TOOL, Contrast, document
from prep_assets.stores.arrays import Spool, sorted_groups

REASON = "near_duplicate"
_SHARED, _BESIDE_QUERIES = (*CONTEXT, SYSTEM, "developer", TOOL), (*CONTEXT, ANSWER, REJECTED)
"""Roles of what examples may share without being alike: of chats, and of queries with passages."""
_NONE, _BATCH = np.uint32(0xFFFFFFFF), 1 << 14
_TWIN = (
    "The old mill by the river was built of grey stone, and for three hundred years its wheel turned without a stop until the flood came."
)


class NearDuplicates(Step):
    """Notes 8 bytes for each bucket of an example, on disk; clusters them at the end.

    Of system prompts, tools and their results, documents and other context, or of the passages of a query, it notes signatures too, four bytes a hash: turns
    must be alike, and turns together with what one example alone has; what several have is left out. Examples with different documents are never alike,
    though others have the same documents.
    """

    def __init__(self, words: int, buckets: int, hashes: int, keep: Literal["first", "longest"]) -> None:
        self._words, self._buckets, self._hashes, self._keep = words, buckets, hashes, keep
        self._bands, self._sizes = Spool(np.uint64), Spool(np.int64)
        self._counts, self._parts, self._known = Spool(np.int64), Spool(np.uint64), Spool(np.uint64)
        self._own, self._signatures = Spool(np.uint32), Spool(np.uint32)
        self.noted = self._bands, self._sizes, self._counts, self._parts, self._known, self._own, self._signatures
        self._particular = self._bands
        self._earlier: dict[str, npt.NDArray[np.uint64]] = {}

    def after(self, domain: str, left: npt.NDArray[np.uint64]) -> None:
        """See `Step`."""
        self._earlier[domain] = left.reshape(-1, self._buckets)

    def leaves(self, kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
        """The digests of the buckets of the kept examples."""
        return self._particular.array().reshape(-1, self._buckets)[kept].reshape(-1)

    def judge(self, examples: Examples) -> Judged:
        """Note the examples."""
        shared = _BESIDE_QUERIES if isinstance(examples.examples[0], Contrast) else _SHARED
        context = [[(role, text) for role, text in parts if role in shared] for parts in examples.parts]
        turns = ["\n\n".join(text for role, text in parts if role not in shared) for parts in examples.parts]
        signatures, counts = self._signed(turns), np.array([len(parts) for parts in context], np.int64)
        self._bands.append(band_digests(signatures, self._buckets).reshape(-1))
        self._sizes.append(np.array([len(text) for text in examples.texts], np.int64))
        self._counts.append(counts)
        self._own.append(signatures[counts > 0].reshape(-1))
        every = [
            (xxhash.xxh3_64_intdigest(text.encode("utf-8", "replace")) & ~1 | (role == DOCUMENTS), text) for role, text in chain(*context)
        ]
        self._parts.append(np.array([digest for digest, _ in every], np.uint64))
        if new := dict(every):
            self._known.append(np.array([*new], np.uint64))
            self._signatures.append(self._signed([*new.values()]).reshape(-1))
        return Judged()

    def _signed(self, texts: Sequence[str]) -> npt.NDArray[np.uint32]:
        characters = Characters.of([composed(text).casefold() for text in texts])
        return signatures_of(Words.alphanumeric(characters), self._words, self._buckets * self._hashes)

    def _compare_what_is_particular(self) -> None:
        """Add what an example alone has beside its turns to the digests of its buckets: documents apart, as both they and the turns must be alike."""
        counts, parts, known = (np.asarray(spool.array()) for spool in (self._counts, self._parts, self._known))
        size = self._buckets * self._hashes
        own, signatures = self._own.array().reshape(-1, size), self._signatures.array().reshape(-1, size)
        order = np.argsort(known, kind="stable")
        rows = np.repeat(np.arange(len(counts)), counts)
        several = np.unique(np.stack([parts, rows.astype(np.uint64)], axis=1), axis=0)[:, 0]
        several = several[1:][several[1:] == several[:-1]]
        shared, is_document, in_own = np.isin(parts, several), parts & np.uint64(1) > 0, np.cumsum(counts > 0) - 1
        keys = np.zeros(len(counts), np.uint64)
        together = shared & is_document
        np.add.at(keys, rows[together], mixed(parts[together]))
        at = order[np.searchsorted(known, parts, sorter=order) % max(1, len(order))]
        bands, self._particular = self._bands.array().reshape(-1, self._buckets), Spool(np.uint64)
        for begin in range(0, len(counts), _BATCH):
            turns = np.array(bands[begin : begin + _BATCH])
            there = slice(*np.searchsorted(rows, [begin, begin + _BATCH]))

            def digests(wanted: npt.NDArray[np.bool_], before: Any, there: slice = there) -> tuple[npt.NDArray[np.int64], Any]:
                mine = there.start + np.flatnonzero(wanted[there])
                changed, places = np.unique(rows[mine], return_inverse=True)
                least = np.array(before[in_own[changed]]) if before is not None else np.full((len(changed), size), _NONE)
                np.minimum.at(least, places, signatures[at[mine]])
                return changed, band_digests(least, self._buckets)

            changed, of_context = digests(~shared & ~is_document, own)
            beside = turns.copy()
            beside[changed - begin] = of_context
            some = np.where(turns > 0, mixed(turns ^ mixed(beside)) | np.uint64(1), beside)
            key = np.repeat(keys[begin : begin + _BATCH, None], self._buckets, axis=1)
            changed, of_documents = digests(~shared & is_document, None)
            key[changed - begin] ^= mixed(of_documents)
            self._particular.append(np.where((key > 0) & (some > 0), mixed(some ^ key) | np.uint64(1), some).reshape(-1))

    def finish(self, kept: npt.NDArray[np.bool_]) -> Judged:
        """Find the kept examples that are like one of an earlier domain; cluster the others, and find all but one of each cluster."""
        self._compare_what_is_particular()
        bands, sizes = self._particular.array().reshape(-1, self._buckets), np.asarray(self._sizes.array())
        foreign: dict[int, str] = {}
        for domain, earlier in self._earlier.items():
            like = np.zeros(len(bands), bool)
            for bucket in range(self._buckets):
                like |= np.isin(bands[:, bucket], earlier[:, bucket]) & (bands[:, bucket] != 0)
            foreign = dict.fromkeys(np.flatnonzero(like & kept).tolist(), domain) | foreign
        kept = kept.copy()
        kept[list(foreign)] = False
        cluster = clusters(bands, kept)
        # of each cluster the longest, of equal ones the first; or the first
        order = np.lexsort((-sizes, cluster)) if self._keep == "longest" else np.arange(len(cluster))
        of_clusters, firsts = np.unique(cluster[order], return_index=True)
        chosen = order[firsts][np.searchsorted(of_clusters, cluster)]
        members = np.bincount(cluster, minlength=len(cluster))
        wrong = np.flatnonzero(kept & (chosen != np.arange(len(cluster))))
        found = {
            number: (REASON, f"is like example {chosen[number]} of the domain, one of a cluster of {members[cluster[number]]:,}")
            for number in wrong.tolist()
        }
        found |= {number: (REASON, f"is like an example of the domain {domain}, which comes before") for number, domain in foreign.items()}
        return Judged(found, {CLUSTER: np.where(kept & (members[cluster] > 1), cluster, -1).tolist()})


def signatures_of(words: Words, size: int, hashes: int) -> npt.NDArray[np.uint32]:
    """The MinHash signature of each text's n-grams of words: uint32[n, hashes]. A shorter text is one n-gram; one without words has the largest numbers."""
    from rensa import RMinHash

    n_grams, until = words.n_grams(size, short=True)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(n_grams, np.append(0, until).astype(np.uint64), hashes, 1)
    rows = b"".join(starmap(Struct(f"={hashes}I").pack, matrix.to_rows()))
    signatures = np.frombuffer(bytearray(rows), np.uint32).reshape(-1, hashes)
    signatures[words.parts.counts == 0] = _NONE
    return signatures


def band_digests(signatures: npt.NDArray[np.uint32], buckets: int) -> npt.NDArray[np.uint64]:
    """The digest of each bucket of signatures: uint64[n, buckets]. Texts without words get 0, which equals nothing."""
    digests = np.zeros((len(signatures), buckets), np.uint64)
    in_buckets = signatures.astype(np.uint64).reshape(len(signatures), buckets, signatures.shape[1] // buckets)
    for at in range(in_buckets.shape[2]):
        digests = mixed(digests ^ in_buckets[:, :, at])
    silent = signatures[:, 0] == _NONE
    silent[silent] = (signatures[silent] == _NONE).all(axis=1)
    return np.where(~silent[:, None], digests | np.uint64(1), np.uint64(0))


def clusters(bands: npt.NDArray[np.uint64], kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The first member of the cluster of each example: int64[n]. Two examples are in one cluster if they, or others between them, share a bucket's digest.

    Args:
        bands: uint64[n, buckets].
        kept: bool[n], the examples that take part; any other is alone.
    """
    parent = np.arange(len(bands))
    for bucket in range(bands.shape[1]):
        column = np.ascontiguousarray(bands[:, bucket])
        for places in sorted_groups(column):
            ordered = places[kept[places] & (column[places] != 0)]
            same = np.flatnonzero(column[ordered[1:]] == column[ordered[:-1]])
            for left, right in zip(ordered[same].tolist(), ordered[same + 1].tolist(), strict=True):
                low, high = sorted((_root(parent, left), _root(parent, right)))
                parent[high] = low
    while not np.array_equal(parent, above := parent[parent]):
        parent = above
    return parent


def _root(parent: npt.NDArray[np.int64], number: int) -> int:
    """The first member of the cluster of an example so far."""
    while parent[number] != number:
        parent[number] = number = int(parent[parent[number]])
    return number


@quality_step(
    "near_duplicates",
    source="MinHash banding with datatrove's parameters (FineWeb): 5-grams of words, 14 buckets of 8 hashes",
    corrupted=((document(_TWIN), document(_TWIN.replace(" came", " finally came"))), REASON),
    libraries=("rensa",),
    clusters=True,
    version=6,
)
def near_duplicates(
    *,
    words: Annotated[int, Field(ge=1, le=100)] = 5,
    buckets: Annotated[int, Field(ge=1, le=1000)] = 14,
    hashes: Annotated[int, Field(ge=1, le=1000)] = 8,
    keep: Literal["first", "longest"] = "first",
    across: bool = False,
) -> Step:
    """Examples whose word n-grams overlap with those of another example; one of each cluster is kept.

    Args:
        words: words of an n-gram.
        buckets, hashes: two texts meet if all `hashes` of one of the `buckets` are equal: at an overlap (Jaccard) of s with a probability of
            1 - (1 - s**hashes)**buckets, 0.92 at 0.8, 0.06 at 0.5 with the defaults.
        keep: which example of a cluster stays: the first one, or the longest.
        across: whether examples that are like one of an earlier domain of the configuration are found as well.
    """
    return NearDuplicates(words, buckets, hashes, keep)
