"""Merge the stores of domains: lines in order or shuffled, tokens in the order of their lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from prep_assets.array_types import Ints
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.lines.write import UNTEMPLATED, form_of, strings_as_messages
from prep_assets.pipeline.asset import Asset, FromParts, FromRows, Target
from prep_assets.pipeline.tokens import add, by_domain, writers_of
from prep_assets.stores.arrays import argsort, compress, equals, fill_column, numbers, stretches, take, zeros
from prep_assets.stores.published import Draft
from prep_assets.stores.table import LINES, Table, open_stream
from prep_assets.stores.version_folders import Published
from prep_assets.stores.writer import TableWriter

Merge = Callable[[Target, Mapping[str, Published]], None]
"""Writes the stores of all domains as one."""


def merge_parts(target: Target, quarantine: Quarantine, *, merge: Merge | None = None) -> Draft:
    """Write the stores of all domains as one: by `merge`, or as lines or tokens. Every record was kept, so that as many are read."""
    asset, workspace = target.asset, target.workspace
    assert isinstance(asset.source, FromParts)
    parts = {name: workspace.built(asset.parts, name) for name in asset.domains(target.family)}
    merged_stores = [workspace.built(name) for name in asset.source.assets[1:]]
    counts: dict[str, Any] = {}
    for part in (*parts.values(), *merged_stores):
        add(counts, {key: value for key, value in part.manifest.counts.items() if isinstance(value, int)})
    counts = {**counts, "read": counts.get("kept", 0)}
    if asset.holds(LINES):
        counts = {"read": counts["read"], **_merge_lines(target, parts)}
    elif merge is not None:
        merge(target, parts)
    else:
        _merge_tokens(target, parts, merged_stores)
    return Draft(counts, {})


def _merge_lines(target: Target, parts: Mapping[str, Published]) -> dict[str, int]:
    """Write the files of all domains as one each, of one form: messages where a domain has messages. A file that none of the domains has is left out. Those to
    train on are shuffled where the family says so.

    Returns:
        How many lines there are, and in each file.

    Raises:
        ConfigError: some domains have messages, others strings that no message can say.
    """
    mixed, counts = _mixed_forms(parts), {"kept": 0}
    shuffled = target.family.of_some("shuffle")
    source = target.asset.source
    assert isinstance(source, FromParts)
    for name, stream in target.asset.streams.items():
        with_file = [(number, part) for number, part in enumerate(parts.values()) if (part.directory / f"{name}.jsonl").is_file()]
        if parts and not with_file:
            continue
        seed = target.family.seed if shuffled and not stream.held_out else None
        with TableWriter(target.payload, name, LINES, domains=tuple(parts), shuffle_seed=seed) as writer:
            for number, part in with_file:
                _append(writer, open_stream(part.directory, name), number, as_messages=mixed)
        counts[stream.counted] = len(writer)
    for part in parts.values():
        add(counts, {key: count for key, count in part.manifest.counts.items() if key in ("kept", *source.counts)})
    return counts


def _append(writer: TableWriter, lines: Table, number: int, *, as_messages: bool) -> None:
    origins = zip(numbers(lines.origins.file), numbers(lines.origins.row), strict=True)
    for line, (file, row) in zip(lines.written(), origins, strict=True):
        if as_messages and isinstance((content := json.loads(line))["prompt"], str):
            writer.append_object(strings_as_messages(content), file, row, number)
        else:
            writer.append_line(line, file, row, number)


def _mixed_forms(parts: Mapping[str, Published]) -> bool:
    """Whether some domains hold strings and others messages."""
    forms = {name: form_of(part.directory) for name, part in parts.items() if part.manifest.counts["kept"]}
    if len(set(forms.values())) < 2:
        return False
    stuck = [name for name, form in forms.items() if form == "text" and parts[name].manifest.counts.get(UNTEMPLATED)]
    if stuck:
        rich = ", ".join(name for name, form in forms.items() if form == "messages")
        raise ConfigError(
            f"messages are in {rich}, and prompts and completions that no message can say in {', '.join(stuck)}: no one file can hold both. "
            f"Set form: text, which refuses rows of {rich}, or let the schema of {', '.join(stuck)} give user and assistant turns"
        )
    return True


def _merge_tokens(target: Target, parts: Mapping[str, Published], merged_stores: Sequence[Published]) -> None:
    """Write the tokens of all domains, in the order of the merged lines; streams that no lines are named for are those of other stores, as they are."""
    source, workspace = target.asset.source, target.workspace
    assert isinstance(source, FromParts)
    masked = {"loss_mask": "uint8"} if any(stream.masked for stream in target.asset.streams.values()) else {}
    for stem in target.stems:
        if stem not in source.lines:
            [store] = merged_stores
            with writers_of(target, [stem], masked, target.family.output.storage_format) as writers:
                writers[stem][1].append_stored(store.directory, stem)
            continue
        asset, file = source.lines[stem]
        merged = open_stream(workspace.built(asset).directory, file)
        if "/" in stem and not len(merged):
            continue
        files = {name: open_stream(workspace.built(by_domain(asset), name).directory, file) for name in parts}
        with_stream = {name: part for name, part in parts.items() if (part.directory / f"{stem}.index").is_dir()}
        streams = {name: open_stream(part.directory, stem) for name, part in with_stream.items()}
        with writers_of(target, [stem], masked, target.family.output.storage_format) as writers:
            [(_, writer)] = writers.values()
            writer.append_records(list(streams.values()), *_records(merged, files, streams))


def _records(merged: Table, lines: Mapping[str, Table], tokens: Mapping[str, Table]) -> tuple[Ints, Ints, Ints]:
    """Of each record, in the order of the merged lines: the number of its stream, its number there, and its line. Not every line was tokenized."""
    # of each merged line: 1 + the number of its record, and its stream
    numbered, stream_of = zeros(len(merged)), zeros(len(merged), np.int32)
    for number, (name, stream) in enumerate(tokens.items()):
        own_lines = compress(equals(merged.origins.domain, merged.origins.domains.index(name)))
        places, record = lines[name].origins.places, zeros(len(lines[name]))
        for part in stretches(len(stream)):
            record[stream.origins.row[part]] = np.arange(part.start, part.stop) + 1
        # both files hold the same lines, in two orders
        merged_places = merged.origins.places
        by_place, line = argsort(take(merged_places, own_lines)), argsort(places)
        for part in stretches(max(len(own_lines), len(line))):
            row = own_lines[by_place[part]]
            if not np.array_equal(merged_places[row], places[line[part]]):
                raise StoreError(f"{merged.path}: it does not hold the {len(line):,} lines of {lines[name].path}. Build it again")
            numbered[row], stream_of[row] = record[line[part]], number
    row = compress(fill_column(len(merged), lambda part: numbered[part] > 0, bool))
    return fill_column(len(row), lambda part: stream_of[row[part]]), fill_column(len(row), lambda part: numbered[row[part]] - 1), row


def merged_asset(part: Asset, description: str, *, promises: tuple[str, ...] = (), **attributes: Any) -> Asset:
    """The asset that merges the stores of all domains of ``<name>_by_domain`` into one store of the same streams and columns.

    Args:
        promises: what holds of what `merge_parts` writes.
        attributes: what else is not as in `part`.
    """
    counts = (*part.source.counts, *part.source.uncounted) if isinstance(part.source, FromRows) else ()
    merged = {
        "name": part.name.removesuffix("_by_domain"),
        "description": description,
        "write": merge_parts,
        "promises": promises,
        "inputs": (("domains", part),),
        "partitioned": False,
        "source": FromParts((part.name,), counts=counts),
    }
    return replace(part, **{**merged, **attributes})
