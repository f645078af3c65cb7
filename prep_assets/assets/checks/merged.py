"""Merged stores against the stores of the domains, each of which is proven by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.every_store import together
from prep_assets.assets.commands import build_command
from prep_assets.assets.stage import Check, FromParts, Store
from prep_assets.assets.writing.groups import splits
from prep_assets.assets.writing.merging import by_domain
from prep_assets.disk.arrays import Spool
from prep_assets.disk.columns import at, joined, made, order, where
from prep_assets.errors import StoreError
from prep_assets.proofs.merged import Asked, Shelf, check_merged_lines, check_merged_records
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.groups import PROMPTS, STREAMS, GroupStore, open_groups
from prep_assets.stores.lines import INDEX_FIELDS, Lines, open_lines
from prep_assets.stores.published import Published
from prep_assets.stores.tokens import TokenStore, open_tokens

Column = npt.NDArray[np.int64]
_AT_ONCE = 4096
_ROLES = {"prompt": "user", "chosen": "assistant", "rejected": "assistant", "completion": "assistant"}


@dataclass(frozen=True, slots=True)
class MergedStream:
    """A stream of a merged store, with what it must hold; `source` is the domain of each record, where the stream says it."""

    name: str
    store: TokenStore
    parts: Sequence[TokenStore]
    asked: Asked
    source: npt.NDArray[np.int32] | None = None

    def verdict(self) -> Verdict:
        """What the proof says of it."""
        return check_merged_records(self.name, self.store, self.parts, self.asked, self.source)


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A file of a merged store, with the lines of its domains; the seed of its order, `None` where it is that of the domains."""

    name: str
    merged: Shelf
    parts: Shelf
    seed: int | None


def merged_lines(store: Store) -> Verdict:
    """Every file of a merged store."""
    return together(check_merged_lines(each.name, each.merged, each.parts, each.seed) for each in merged_files(store))


def merged_records(store: Store) -> Verdict:
    """Every stream of a merged store."""
    return together(each.verdict() for each in merged_streams(store))


MERGED_LINES = Check(
    "merged",
    "Every line of every domain is here once, byte by byte, on its side of the split, in the order that is asked for.",
    merged_lines,
)
MERGED_RECORDS = Check(
    "merged",
    "Every record of every domain is here once, value by value, in order; each is proven in the store of its domain.",
    merged_records,
)


def parts_above(store: Store, asset: str) -> list[Published]:
    """The stores of the domains that a store was merged from.

    Raises:
        StoreError: one of them was built again since.
    """
    found = []
    for name in store.domains:
        part = store.above(asset, name)
        if part.manifest.content_hash != store.recipe["domains"][name]:
            raise StoreError(f"{asset}[{name}] was built again since. Merge it again: {build_command(store.asset.name)}")
        found.append(part)
    return found


def merged_files(store: Store) -> Iterator[MergedFile]:
    """The JSONL files of a merged store."""
    parts = parts_above(store, store.asset.parts)
    for file in store.asset.streams:
        having = [(number, open_lines(part.directory, file)) for number, part in enumerate(parts) if _has(part, file)]
        if not having and not (store.directory / f"{file}.jsonl").exists():
            continue
        merged = open_lines(store.directory, file)
        _check_sources(store, merged.sources)
        origin = _origins(having)
        seed = store.recipe["seed"] if store.recipe.get("shuffle") and not file.endswith("_test") else None
        of_messages = any(not isinstance(row["prompt"], str) for row in merged)
        offered = (line for _, lines in having for line in _lines(lines, of_messages))
        yield MergedFile(file, Shelf(_origins([(None, merged)]), merged.written()), Shelf(origin, offered), seed)


def _has(part: Published, file: str) -> bool:
    return (part.directory / f"{file}.jsonl").is_file()


def _origins(having: Sequence[tuple[int | None, Lines]]) -> npt.NDArray[np.int64]:
    """int64[n, 3], domain, file and row of each line of some files, end to end; of the number of a domain, or as the index says."""
    spool = Spool(np.int64)
    for number, lines in having:
        for first in range(0, len(lines), _AT_ONCE):
            source, file, row = (lines.index[column][first : first + _AT_ONCE] for column in INDEX_FIELDS)
            spool.append(np.stack([source if number is None else np.full(len(row), number), file, row], axis=1))
    return spool.array().reshape(-1, 3)


def _lines(lines: Lines, of_messages: bool) -> Iterator[bytes]:
    """Lines as the merged file must have them: where it is of messages, strings are the only message of a user or an assistant."""
    for line in lines.written():
        row = json.loads(line) if of_messages else {}
        if isinstance(row.get("prompt"), str):
            row |= {key: [{"role": role, "content": row[key]}] for key, role in _ROLES.items() if key in row}
            yield json.dumps(row).encode() + b"\n"
        else:
            yield line


def merged_streams(store: Store) -> Iterator[MergedStream]:
    """The token streams of a merged store."""
    source = store.asset.source
    assert isinstance(source, FromParts)
    if store.holds(GroupStore):
        yield from _merged_groups(store)
        return
    for name, stream in store.streams().items():
        if name not in source.lines:
            whole = open_tokens(store.above(source.assets[1]).directory, name)
            yield MergedStream(name, stream, [whole], _end_to_end([whole]))
            continue
        parts = zip(store.domains, parts_above(store, source.assets[0]), strict=True)
        tokens = {domain: open_tokens(part.directory, name) for domain, part in parts if (part.directory / f"{name}.index").is_dir()}
        yield MergedStream(name, stream, list(tokens.values()), _in_order_of(store, *source.lines[name], tokens))


def _merged_groups(store: Store) -> Iterator[MergedStream]:
    """The three streams of the groups of each split, domain by domain."""
    parts = [splits(part.directory) for part in parts_above(store, store.asset.parts)]
    for split, folder in splits(store.directory).items():
        merged = open_groups(folder)
        _check_sources(store, merged.sources)
        having = [(number, open_groups(found[split])) for number, found in enumerate(parts) if split in found]
        for name in STREAMS:
            streams: list[TokenStore] = [getattr(groups, name) for _, groups in having]
            asked, numbers = _end_to_end(streams), np.array([number for number, _ in having], np.int64)
            source = np.searchsorted(numbers, merged.source).astype(np.int32) if name == PROMPTS else None
            yield MergedStream(f"{split}/{name}", getattr(merged, name), streams, asked, source)


def _end_to_end(streams: Sequence[TokenStore]) -> Asked:
    """All records of several streams, one after another."""
    part = joined([np.broadcast_to(number, len(each)) for number, each in enumerate(streams)])
    record = joined([_counted(len(each)) for each in streams])
    return Asked(part, record, joined([each.file for each in streams]), joined([each.row for each in streams]))


def _counted(count: int) -> npt.NDArray[np.int64]:
    return made(count, lambda part: np.arange(part.start, part.stop))


def _check_sources(store: Store, sources: Sequence[str]) -> None:
    if list(sources) != list(store.domains):
        raise StoreError(f"its index has the domains {', '.join(sources)}, and it is merged from {', '.join(store.domains)}")


def _in_order_of(store: Store, asset: str, file: str, tokens: Mapping[str, TokenStore]) -> Asked:
    """The records of the tokens of all domains, in the order of the merged lines that they are of."""
    merged, parts, records, lines = open_lines(store.above(asset).directory, file), list[Column](), list[Column](), list[Column]()
    for number, (name, stream) in enumerate(tokens.items()):
        if not len(stream):
            continue
        places = merged.of(store.domains.index(name))
        of_record = at(open_lines(store.above(by_domain(asset), name).directory, file).places, stream.row)
        record, there = _places_in(of_record, at(merged.places, places))
        records.append(where(there, record))
        lines.append(where(there, places))
        parts.append(np.broadcast_to(number, len(lines[-1])))
    line = joined(lines)
    ordered = order(line)
    return Asked(at(joined(parts), ordered), at(joined(records), ordered), np.broadcast_to(0, len(line)), at(line, ordered))


def _places_in(column: Column, wanted: Column) -> tuple[Column, npt.NDArray[np.bool_]]:
    """Of each that is wanted, where it stands in a column, and whether it does."""
    ordered = order(column)
    ascending = at(column, ordered)
    found = made(len(wanted), lambda part: ordered[np.minimum(np.searchsorted(ascending, wanted[part]), len(column) - 1)])
    return found, made(len(wanted), lambda part: column[found[part]] == wanted[part], bool)
