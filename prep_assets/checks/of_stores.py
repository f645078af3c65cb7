"""Checks of every store: files, accounting, redaction, row integrity."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from prep_assets.array_types import Ints
from prep_assets.checks.counts import metrics_again, recounted, stored_records, uncounted
from prep_assets.checks.sources_again import files_of
from prep_assets.data.quarantine import Refusal, read_quarantine
from prep_assets.errors import StoreError
from prep_assets.pipeline.asset import Check, FromLines, FromParts, FromRows, Store
from prep_assets.pipeline.sources import domain_of, read_sources, strings_in
from prep_assets.pipeline.workspace import build_command
from prep_assets.plugins import of_extension
from prep_assets.proofs.accounting import account
from prep_assets.proofs.tables import check_rows, require_filled
from prep_assets.proofs.verdict import Verdict, Worst, combined
from prep_assets.schemas.fields import NEUTRAL
from prep_assets.stores.arrays import batches, stretches
from prep_assets.stores.files import note_mapped_bytes
from prep_assets.stores.manifest import MANIFEST, build_key, described
from prep_assets.stores.shards import ATTENTION
from prep_assets.stores.table import MARGIN, PAIRS, SIDES, Table, open_stream
from prep_assets.stores.version_folders import KEY_LENGTH, name_of

# Files and recipe of every store.


def integrity(store: Store) -> Verdict:
    """Check that the files are those of the manifest, and that the build key is the hash of its recipe."""
    manifest = store.manifest
    numbers = {"files_checked": len(manifest.files), "bytes_checked": store.published.bytes}
    try:
        store.published.verify()
        _check_place(store)
    except StoreError as error:
        remedy = f"Build it again: {build_command(manifest.asset, manifest.partition)}"
        return Verdict(False, f"{error}\n{remedy}", numbers, Worst("files", str(error)))
    signed = f", which is {described(manifest.signature)}" if manifest.signature else ""
    return Verdict(True, f"{len(manifest.files):,} files have the size and sha256 of the manifest{signed}", numbers)


INTEGRITY = Check(
    "file_hashes", "Every file of the store has the size and sha256 that its manifest says, and there is no other.", integrity
)


def _check_place(store: Store) -> None:
    """Check that a store has the build key of its recipe, says of its checks what a build says, and stands where its manifest says."""
    manifest, directory = store.manifest, store.directory.resolve()
    where = f"{store.directory}/{MANIFEST}"
    if build_key(manifest.recipe) != manifest.build_key:
        raise StoreError(f"{where}: its recipe is not what its build key {manifest.build_key[:KEY_LENGTH]} was made of")
    if manifest.checks != store.asset.promises:
        raise StoreError(f"{where}: it says of its checks {[*manifest.checks]}, and a build says {[*store.asset.promises]}")
    name = name_of(manifest.build_key, manifest.content_hash)
    if directory.name != name and not directory.name.startswith(f"{name}-"):
        raise StoreError(f"{where}: it is of version {name}, in the folder {directory.name}")
    place = store.workspace.place(manifest.asset, manifest.partition)
    if directory.parent != place.backend.versions.resolve():
        raise StoreError(f"{where}: it is a store of {place.label}, in {directory.parent}")


# Accounting: every record that was read is kept, or rejected with a reason.


def accounting(store: Store) -> Verdict:
    """Check the counts of a store whose records come from rows or lines."""
    ignored = [f"{name}/{path}" for name, domain in store.family.domains.items() for path in domain.ignore]
    for name, fields in store.manifest.counts.get("fields_passed_over", {}).items():
        if store.family.domains[name].speaker_names == "leave_out":
            ignored += [f"{name}/{path}" for path in fields if path.endswith(".name")]
    verdict = account(
        store.manifest.counts,
        refusals_of(store),
        stored=stored_records(store),
        available=_available(store),
        neutral=NEUTRAL,
        ignored=ignored,
        recounted=recounted(store),
        uncounted=uncounted(store),
        metrics=(store.manifest.metrics, metrics_again(store)),
    )
    domain = domain_of(store.family, store.partition) if store.partition else None
    if domain and domain.redact and verdict.passed:
        verdict = combined([verdict, of_extension("redaction", "holds")(stored_texts(store), domain.redact, domain.countries)])
    return verdict


def stored_texts(store: Store) -> Iterator[tuple[str, str]]:
    """Yield what a store holds, decoded: the name of a record or a line, and its text or the texts of its fields."""
    for table in store.streams().values():
        if table.path is not None:
            yield from ((f"line {number:,} of {table.path.name}", "\n\n".join(strings_in(line))) for number, line in enumerate(table))
        vocabulary = store.workspace.vocabulary(store.family)
        for name in table.has("ids"):
            column = replace(table.columns[name], records=None)
            for part in batches(column.ends, 1 << 20):
                texts = vocabulary.decode_batch([ids.tolist() for ids in column.split(part)])
                yield from ((f"record {number:,} of {table.name} {name}", text) for number, text in enumerate(texts, part.start))
                note_mapped_bytes(4 << 20)


def raw_accounting(store: Store) -> Verdict:
    """Check the counts of a store of source files."""
    sources = read_sources(store.published)
    files = [entry for kind in ("files", "test_files") for entry in sources[kind]]
    rows, again = sum(entry["rows"] for entry in files), {"files": len(files), "bytes": sum(entry["size"] for entry in files)}
    refused = sum(1 for _ in refusals_of(store))
    folder = store.workspace.media_folder(domain_of(store.family, store.partition))
    if folder is not None and (fault := _fault_of_folder(folder, sources.get("images", {}))):
        return Verdict(False, fault, worst=Worst("sources.json", fault))
    return account(
        store.manifest.counts,
        refusals_of(store),
        stored=rows - refused,
        available=rows,
        recounted=again,
        metrics=(store.manifest.metrics, {}),
    )


def _fault_of_folder(folder: Path, pin: Mapping[str, Any]) -> str:
    """What the pin of a folder of images says wrongly of the files below it; ``""`` where it is right."""
    sizes = [path.stat().st_size for path in _files_below(folder)]
    files, size = pin.get("files", 0), pin.get("bytes", 0)
    if (len(sizes), sum(sizes)) == (files, size):
        return ""
    found = f"{len(sizes):,} files of {sum(sizes):,} bytes are below {folder}, the pin says {files:,} of {size:,}"
    return f"{found}: it leaves some out, or the folder has changed since. Pin it again"


def _files_below(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield all files below a folder; links are followed, but not to a folder that they are in."""
    if (place := folder.resolve()) not in above:
        for path in folder.iterdir():
            if path.is_dir():
                yield from _files_below(path, above | {place})
            elif path.is_file():
                yield path


def refusals_of(store: Store) -> Iterable[Refusal]:
    """The lines of the quarantine of a store, numbered by other code than wrote them: in files, ids count records from 0."""
    path = store.published.quarantine
    if path is None or not path.is_file():
        return
    with path.open(encoding="utf-8") as lines:
        for rejection, line in zip(read_quarantine(path), lines, strict=True):
            name, colon, row = json.loads(line)["id"].rpartition(":")
            yield structs.replace(rejection, id=f"{name}{colon}{int(row) + 1}") if row.isdecimal() else rejection


def _available(store: Store) -> int | None:
    """Count the records that the previous stage offers; `None` where the configuration reads only some of them."""
    source = store.asset.source
    if isinstance(source, FromLines):
        return sum(len(open_stream(store.above(asset, store.partition).directory, name)) for asset, name in source.files.values())
    if isinstance(source, FromParts):
        parts = [store.above(source.assets[0], name) for name in store.domains]
        return sum(int(part.manifest.counts["kept"]) for part in (*parts, *map(store.above, source.assets[1:])))
    names, family = store.domains, store.family
    if any(domain_of(family, name).max_items for name in names) or family.most_rows:
        return None
    return sum(int(store.above(store.raw, name).manifest.counts["read"]) for name in names)


ACCOUNTING = Check(
    "accounting", "Records read = records kept + records refused, and each refused one is in quarantine with its reason.", accounting
)
RAW_ACCOUNTING = Check(
    "accounting",
    "Rows read = readable rows + rows in quarantine, over all source files; the pin of a folder of images counts what is below it.",
    raw_accounting,
)


# Row integrity of token streams of any family.


def token_rows(store: Store) -> Verdict:
    """Check the rows of every stream, and their images; both sides of pairs must hold the same records.

    Raises:
        StoreError: they do not; or as `require_needed` and `require_full_shards`.
    """
    streams, size = store.streams(), store.vocabulary.size
    for name, stream in streams.items() if store.holds(PAIRS) else ():
        other = streams[name.removesuffix(SIDES[0]) + SIDES[1]] if name.endswith(SIDES[0]) else stream
        if not np.array_equal(stream.origins.row, other.origins.row):
            raise StoreError(f"{name} and {SIDES[1]} do not hold the same pairs")
    source = store.asset.source
    for name, (above, file) in source.files.items() if isinstance(source, FromLines) else ():
        if "/" in name and name in streams and not len(open_stream(store.above(above, store.partition).directory, file)):
            raise StoreError(f"{name} is made from {file}, which has no line")
    if isinstance(source, FromRows):
        require_needed(store, streams)
    for name, stream in streams.items():
        require_full_shards(store, store.directory / name, stream.lengths)
    types = types_of(store, streams.values()) if isinstance(source, FromRows) else ids_type(store)
    longest = store.family.preprocessing.max_seq_len if store.asset.name == "sft_tokens" else None
    records = (check_rows(stream, vocabulary_size=size, types=types, longest=longest) for stream in streams.values())
    return combined(chain(records, files_of(store).verdicts(streams.values())))


def require_full_shards(store: Store, folder: Path, lengths: Ints) -> None:
    """Check that the shards of records, if there are any, are as full as the options allow.

    Args:
        lengths: of each record, in tokens.

    Raises:
        StoreError: they are not.
    """
    metas = sorted(folder.glob("shard_*/meta.json"), key=lambda meta: int(meta.parent.name.removeprefix("shard_")))
    if len(lengths) and metas:
        sizes = [int(json.loads(meta.read_bytes())["sequence"]["shape"][0]) for meta in metas]
        require_filled(sizes, store.family.output.max_tokens_per_shard, lengths)


def require_needed(store: Store, streams: Mapping[str, Table]) -> None:
    """Check that each stream and column of a domain is there for something.

    Raises:
        StoreError: nothing is held out, and there is a stream of it; every token is attended, and that is stored; or a column of margins without one.
    """
    for name, stream in streams.items():
        if MARGIN in stream.columns and np.isnan(stream.columns[MARGIN].values).all():
            raise StoreError(f"no record of {name} has a margin, and {MARGIN} is stored. Build it again")
    held_out = store.asset.stems(store.partition).get("dev")
    if held_out in streams and not store.recipe.get("test_fraction") and not domain_of(store.family, store.partition).test_files:
        raise StoreError(f"nothing is held out, and there is a stream {held_out}. Build it again")
    attended = [stream.columns[ATTENTION].values for stream in streams.values() if ATTENTION in stream.columns]
    if attended and all(bool(np.all(mask[part])) for mask in attended for part in stretches(len(mask), 1 << 20)):
        raise StoreError(f"every token is attended, and {ATTENTION} is stored. Build it again")


def ids_type(store: Store) -> dict[str, str]:
    """Return the type that the options give token ids."""
    asked, size = store.family.output.dtype, store.family.pad_vocab_to or store.vocabulary.size
    return {"tokens": ("uint32" if size > 65_536 else "uint16") if asked == "auto" else asked}


def types_of(store: Store, streams: Collection[Table]) -> dict[str, str]:
    """Return the types that token ids, and masks of rows, must have: a mask without fractions is as small as it can be."""
    masked = bool(streams) and all("loss_mask" in stream.columns for stream in streams)
    return ids_type(store) | ({"loss_mask": "float32" if any(map(_has_fractions, streams)) else "uint8"} if masked else {})


def _has_fractions(stream: Table) -> bool:
    mask = stream.columns["loss_mask"].values
    blocks = (np.asarray(mask[part]) for part in stretches(len(mask), 1 << 20))
    return mask.dtype.kind == "f" and any(bool(np.any((block != 0) & (block != 1))) for block in blocks)


PLAIN_ROWS = Check("row_integrity", "Ids are inside the vocabulary.", token_rows)
