"""Checks of merged stores: they hold the records of the stores of their domains, each of which has its own proofs, in the order of the options."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.errors import StoreError
from prep_assets.extensions.lines.proofs import Copies, check_copies
from prep_assets.pipeline.asset import Check, FromParts, Store
from prep_assets.pipeline.tokens import by_domain
from prep_assets.pipeline.workspace import build_command
from prep_assets.proofs.verdict import Verdict, combined
from prep_assets.stores.arrays import Spool, argsort, compress, concatenate, cumulative_sums, equals, fill_column, take
from prep_assets.stores.groups import PROMPTS, STREAMS, splits
from prep_assets.stores.table import GROUPS, LINES, Ragged, Table, open_stream, open_table
from prep_assets.stores.version_folders import Published

_ROLES = {"prompt": "user", "chosen": "assistant", "rejected": "assistant", "completion": "assistant"}


class Merged(Struct, frozen=True):
    """A stream or file of a merged store, the same of its parts, and which records of these it must hold."""

    name: str
    table: Table
    parts: Sequence[Table]
    copies: Copies

    def verdict(self, table: Table | None = None) -> Verdict:
        """The verdict on it, or on another table in its place."""
        return check_copies(self.name, self.table if table is None else table, self.parts, self.copies)  # an empty table is false


def merged_check(description: str) -> Check:
    """The check of a merged store."""
    return Check("merged", description, lambda store: combined(stream.verdict() for stream in merged_streams(store)))


MERGED_LINES = merged_check(
    "Every line of every domain is here once, byte by byte, on its side of the split, in the order that is asked for."
)
MERGED_RECORDS = merged_check(
    "Every record of every domain is here once, value by value, in order; each is proven in the store of its domain."
)


def merged_streams(store: Store) -> Iterator[Merged]:
    """Yield the streams or files of a merged store."""
    source = store.asset.source
    assert isinstance(source, FromParts)
    if store.holds(LINES) or store.holds(GROUPS):
        yield from _files(store) if store.holds(LINES) else _groups(store)
        return
    streams = store.streams()
    if absent := [stem for stem in store.asset.stems(store.partition).values() if "/" not in stem and stem not in streams]:
        raise StoreError(f"{store.directory}: there is no stream {absent[0]}. Merge it again: {build_command(store.asset.name)}")
    for name, stream in streams.items():
        if name not in source.lines:
            whole = open_stream(store.above(source.assets[1]).directory, name)
            yield Merged(name, stream, [whole], _end_to_end([whole]))
            continue
        parts = zip(store.domains, _parts_above(store, source.assets[0]), strict=True)
        tables = {domain: open_stream(part.directory, name) for domain, part in parts if (part.directory / f"{name}.index").is_dir()}
        yield Merged(name, stream, list(tables.values()), _in_order_of(store, *source.lines[name], tables))


def _parts_above(store: Store, asset: str) -> list[Published]:
    """The stores of the domains that a store was merged from.

    Raises:
        StoreError: one of them was rebuilt since.
    """
    return [store.above(asset, name, store.recipe["domains"][name]) for name in store.domains]


def _end_to_end(parts: Sequence[Table], domains: Sequence[int] | None = None, seed: int | None = None) -> Copies:
    """All records of several tables, end to end, or shuffled.

    Args:
        domains: the number of the domain of each table, where the index says it.
    """
    part = concatenate([np.broadcast_to(number, len(table)) for number, table in enumerate(parts)])
    record = concatenate([_counted(len(table)) for table in parts])
    file, row = (concatenate([getattr(table.origins, column) for table in parts]) for column in ("file", "row"))
    domain = None if domains is None else take(np.array(domains, np.int64), part)
    if seed is None:
        return Copies(part, record, file, row, domain)
    order = _counted(len(part))
    random.Random(seed).shuffle(memoryview(order))  # type: ignore[arg-type]
    part, record, file, row = (take(column, order) for column in (part, record, file, row))
    return Copies(part, record, file, row, None if domain is None else take(domain, order))


def _counted(count: int) -> npt.NDArray[np.int64]:
    return fill_column(count, lambda part: np.arange(part.start, part.stop))


def _require_domains(store: Store, table: Table) -> None:
    if list(table.origins.domains) != list(store.domains):
        raise StoreError(f"its index has the domains {', '.join(table.origins.domains)}, and it is merged from {', '.join(store.domains)}")


def _files(store: Store) -> Iterator[Merged]:
    """Yield the JSONL files."""
    parts = _parts_above(store, store.asset.parts)
    files = [(part.directory, file) for part in parts for file in store.asset.streams if (part.directory / f"{file}.jsonl").is_file()]
    speaks = any(not isinstance(row["prompt"], str) for folder, file in files for row in open_stream(folder, file))
    for file, stream in store.asset.streams.items():
        numbers = [number for number, part in enumerate(parts) if (part.directory / f"{file}.jsonl").is_file()]
        if not numbers and not (store.directory / f"{file}.jsonl").is_file():
            continue
        if parts and not numbers:
            raise StoreError(f"{store.directory}: {file} is in the store of no domain. Merge it again: {build_command(store.asset.name)}")
        merged = open_stream(store.directory, file)
        _require_domains(store, merged)
        seed = store.recipe["seed"] if store.recipe.get("shuffle") and not stream.held_out else None
        offered = [open_stream(parts[number].directory, file) for number in numbers]
        copies = _end_to_end(offered, numbers, seed)
        if speaks:
            offered = list(map(_as_messages, offered))
        yield Merged(file, merged, offered, copies)


def _as_messages(lines: Table) -> Table:
    """Lines in the form of a file of messages, in which a string becomes a single message."""
    text, ends, changed = Spool(np.uint8), Spool(np.int64), False
    for line, row in zip(lines.written(), lines, strict=True):
        if isinstance(row.get("prompt"), str):
            row |= {key: [{"role": role, "content": row[key]}] for key, role in _ROLES.items() if key in row}
            if "responses" in row:
                row["responses"] = [[{"role": "assistant", "content": answer}] for answer in row["responses"]]
            line, changed = json.dumps(row).encode() + b"\n", True
        text.append(np.frombuffer(line, np.uint8))
        ends.append([len(line)])
    return replace(lines, columns={"line": Ragged(text.array(), cumulative_sums(ends.array()))}) if changed else lines


def _groups(store: Store) -> Iterator[Merged]:
    """Yield the three group streams of each split, domain by domain."""
    parts = [splits(part.directory) for part in _parts_above(store, store.asset.parts)]
    for split, folder in splits(store.directory).items():
        groups = open_table(folder)
        _require_domains(store, groups)
        numbers = [number for number, folders in enumerate(parts) if split in folders]
        for name in STREAMS:
            table, offered = open_stream(folder, name), [open_stream(parts[number][split], name) for number in numbers]
            if name == PROMPTS:
                table = replace(table, origins=groups.origins)
            yield Merged(f"{split}/{name}", table, offered, _end_to_end(offered, numbers if name == PROMPTS else None))


def _in_order_of(store: Store, asset: str, file: str, tables: Mapping[str, Table]) -> Copies:
    """The records of all domains in the order of their merged lines."""
    merged, parts, records, lines = open_stream(store.above(asset).directory, file), list[Ints](), list[Ints](), list[Ints]()
    places = _places(merged)
    for number, (name, table) in enumerate(tables.items()):
        if not len(table):
            continue
        merged_lines = compress(equals(merged.origins.domain, store.domains.index(name)))
        of_record = take(_places(open_stream(store.above(by_domain(asset), name).directory, file)), table.origins.row)
        record, is_stored = _places_in(of_record, take(places, merged_lines))
        records.append(compress(is_stored, record))
        lines.append(compress(is_stored, merged_lines))
        parts.append(np.broadcast_to(number, len(lines[-1])))
    line = concatenate(lines)
    ordered = argsort(line)
    return Copies(
        take(concatenate(parts), ordered), take(concatenate(records), ordered), np.broadcast_to(0, len(line)), take(line, ordered)
    )


def _places(lines: Table) -> Ints:
    """File and row of each line in one number."""
    file, row = lines.origins.file, lines.origins.row
    return fill_column(len(lines), lambda part: (file[part].astype(np.int64) << 40) | row[part])


def _places_in(column: Ints, wanted: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the index of each wanted value in a column, and whether it is there."""
    ordered = argsort(column)
    ascending = take(column, ordered)
    indices = fill_column(len(wanted), lambda part: ordered[np.minimum(np.searchsorted(ascending, wanted[part]), len(column) - 1)])
    return indices, fill_column(len(wanted), lambda part: column[indices[part]] == wanted[part], bool)
