"""A store in plain values, and which of its files other tools can read: the source of every description."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from prep_assets.config.family import Domain
from prep_assets.config.models import FAMILIES
from prep_assets.errors import StoreError
from prep_assets.explain.report import accounting, made_from
from prep_assets.explain.streams import Opened
from prep_assets.exports.arrow import schema_of
from prep_assets.graph.graph import EVERY, asset_named
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.sources import read_sources
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.version_folders import Published

# Which files of a payload hold rows that other tools read, Parquet and JSON lines, and what their columns are.

Kind = str | list[Any] | dict[str, Any]
"""Arrow's name of a type; a list of one kind; an object with the kinds of its keys."""
READABLE = (".parquet", ".jsonl")
"""What the names of such files end with."""
_SHARD = re.compile(r"(\w+)-\d{5}-of-\d{5}\.parquet")
_SPLIT = re.compile(r"(?:(\w+)_)?(train|test|dev|validation)")


@dataclass(frozen=True, slots=True)
class Column:
    """A column."""

    name: str
    kind: Kind
    description: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The files of one split of one set of rows; splits of a set have the same name."""

    name: str
    split: str
    files: tuple[str, ...]
    rows: int
    columns: tuple[Column, ...]


def tables_of(folder: Path, files: Iterable[str]) -> tuple[Table, ...]:
    """The tables among the files of a payload, those that are empty left out. Lines are all read, since any of them may have another key."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for file in sorted(files):
        if file.endswith(READABLE):
            grouped.setdefault(_place(PurePosixPath(file)), []).append(file)
    found = [Table(*place, tuple(names), *_read(folder, names)) for place, names in grouped.items()]
    return tuple(sorted((each for each in found if each.rows), key=lambda each: (each.name, each.split != "train", each.split)))


def _place(file: PurePosixPath) -> tuple[str, str]:
    """Name and split of the table that a file belongs to."""
    if shard := _SHARD.fullmatch(file.name):
        return "default", shard[1]
    if file.parent.parent.name == "splits":
        return "default", file.parent.name
    stem = file.name.split(".", 1)[0]
    split = _SPLIT.fullmatch(stem)
    return (split[1] or "default", split[2]) if split else (stem, "train")


def _read(folder: Path, names: list[str]) -> tuple[int, tuple[Column, ...]]:
    if names[0].endswith(".parquet"):
        import pyarrow.parquet as pq

        footers = [pq.ParquetFile(folder / name) for name in names]
        return sum(each.metadata.num_rows for each in footers), _columns(footers[0].schema_arrow)
    count = sum(1 for _ in _lines(folder, names))
    return count, _columns(schema_of(lambda: _lines(folder, names), folder / names[0])) if count else ()


def _lines(folder: Path, names: list[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        with (folder / name).open("rb") as file:
            yield from map(json.loads, file)


def _columns(schema: Any) -> tuple[Column, ...]:
    return tuple(Column(field.name, _kind(field.type)) for field in schema)


def _kind(found: Any) -> Kind:
    import pyarrow as pa

    if pa.types.is_list(found) or pa.types.is_large_list(found):
        return [_kind(found.value_type)]
    if pa.types.is_struct(found):
        return {field.name: _kind(field.type) for field in found}
    return "string" if pa.types.is_large_string(found) else str(found)


# What a store is, in plain values: the source of every description in another tool's format.

Chain = Sequence[tuple[Asset, Sequence[Published]]]


@dataclass(frozen=True, slots=True)
class Source:
    """A file that records come from."""

    domain: str
    name: str
    bytes: int
    sha256: str
    rows: int
    held_out: bool


@dataclass(frozen=True, slots=True)
class Description:
    """A published store that is what its configuration and its sources give.

    Attributes:
        name: asset and domain, ``sft_tokens[gsm8k]``; `asset` is the former alone.
        summary: what the asset is, in a line.
        where: the folder of this version, or its address in a bucket.
        hashes: of the content, the build, the configuration, and of every tokenizer and template on the way.
        made_from: store → content hash, of those that it is made from directly or not; `upstream` are the assets that it is directly made from.
        sources: files of the sources, by domain.
        addresses: domain → where these are on the net; folders of this machine are left out.
        licences: domain → licence, empty where it is unknown.
        licence: those of the whole; empty where that of a part of it is unknown.
        counts, metrics: as its manifest has them.
        refused: store and reason → records refused on the way.
        files: payload file → bytes and sha256.
        tables: which of these files hold rows that other tools can read.
        columns: of the first table, or those that the asset promises.
        proofs: asset → checks that hold in each of its stores, of this one and those that it is made from.
        command: builds it again.
    """

    name: str
    asset: str
    summary: str
    where: str
    hashes: Mapping[str, str]
    upstream: tuple[str, ...]
    counts: Mapping[str, int]
    metrics: Mapping[str, float]
    refused: Mapping[str, int]
    files: Mapping[str, tuple[int, str]]
    tables: tuple[Table, ...]
    columns: tuple[Column, ...]
    proofs: Mapping[str, tuple[str, ...]]
    command: str
    made_from: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    licences: Mapping[str, str] = field(default_factory=dict)
    licence: tuple[str, ...] = ()

    @property
    def content_hash(self) -> str:
        """sha256 over names and hashes of its files."""
        return self.hashes["content"]

    @property
    def bytes(self) -> int:
        """Size of its files."""
        return sum(size for size, _ in self.files.values())


def described(folder: Path | str) -> Description:
    """What the manifest of a store alone says, for a machine that has neither its configuration nor its sources: nothing of these and of the stores
    that it was made from.

    Args:
        folder: of a store, e.g. ``stores/sft_packed/current``, or of a release.

    Raises:
        StoreError: the folder holds no store.
    """
    place = Path(folder).resolve()
    return _alone(Published(place, Manifest.read(place)))


def describe(workspace: Workspace, asset: str, partition: str = "") -> tuple[Description, Published]:
    """The current store of an asset, and all that there is to say of it.

    Raises:
        StoreError: there is none; it is out of date, so that its sources are no longer those it was made from; or its checks do not hold.
    """
    workspace = workspace.plain
    published = Opened(workspace).published(asset, partition)
    found, label = asset_named(asset, workspace), workspace.place(asset, partition).label
    if unproven := [check.name for check in found.checks if check.name not in _held([published])]:
        raise StoreError(f"{label}: {', '.join(unproven)} is not known to hold. Check it:\n  prep-assets verify {asset}")
    chain = made_from(workspace, [published])
    sources = tuple(_sources(chain))
    family = workspace.family(FAMILIES[found.family])
    domains = dict.fromkeys(source.domain for source in sources)
    licences = {domain: family.domains[domain].licence or "" for domain in domains}
    known = tuple(dict.fromkeys(licences.values()))
    description = replace(
        _alone(published),
        hashes=hashes_of(published.manifest, (each.manifest.recipe for _, stores in chain for each in stores)),
        made_from={each.manifest.label: each.manifest.content_hash for _, stores in chain for each in stores if each is not published},
        sources=sources,
        addresses={name: tuple(_public(family.domains[name])) for name in domains},
        licences=licences,
        licence=(family.licence,) if family.licence else () if "" in known else known,
        refused={step: count for kind, step, count in accounting(chain) if kind == "refused"},
        proofs={each.name: held for each, stores in chain if (held := _held(stores))},
    )
    return description, published


def _alone(published: Published) -> Description:
    manifest = published.manifest
    exported = manifest.asset not in EVERY
    asset = EVERY[manifest.recipe["from"] if exported else manifest.asset]
    readable = [name for name in manifest.files if name.endswith(READABLE)]
    # asking for the folder of a store in a bucket fetches it
    tables = tables_of(published.directory, readable) if readable else ()
    promised = () if exported else tuple(Column(name, kind, text) for name, kind, text in asset.columns)
    refused = manifest.counts.get("refused", {})
    return Description(
        name=manifest.label,
        asset=manifest.asset,
        summary=asset.description.split("\n", 1)[0] + (f" As {manifest.recipe['format']}." if exported else ""),
        where=published.where,
        hashes=hashes_of(manifest, [manifest.recipe]),
        upstream=(asset.name,) if exported else asset.upstream,
        counts={name: count for name, count in manifest.counts.items() if isinstance(count, int)},
        metrics=dict(manifest.metrics),
        refused={f"{manifest.asset}: {reason}": count for reason, count in sorted(refused.items())},
        files={name: (entry["bytes"], entry["sha256"]) for name, entry in sorted(manifest.files.items())},
        tables=tables,
        columns=tables[0].columns if tables else promised,
        proofs={manifest.asset: held} if (held := _held([published])) else {},
        command=build_command(manifest.asset, manifest.partition),
    )


def _held(stores: Sequence[Published]) -> tuple[str, ...]:
    """The checks that passed on each of the stores."""
    every = [{name for name, result in (each.results or {}).items() if result.passed} for each in stores]
    return tuple(name for name in stores[0].results or {} if all(name in each for each in every))


def _sources(chain: Chain) -> Iterator[Source]:
    for asset, stores in chain:
        for published in stores if asset.name == f"{asset.family}_raw" else ():
            listed = read_sources(published)
            for which in ("files", "test_files"):
                for entry in listed[which]:
                    size, rows = int(entry["size"]), int(entry["rows"])
                    yield Source(published.manifest.partition, entry["name"], size, entry["sha256"], rows, which == "test_files")


def _public(domain: Domain) -> Iterator[str]:
    """Addresses without names, passwords and signatures in them."""
    for address in (*domain.files, *domain.test_files):
        if "://" in address:
            parts = urlsplit(address)
            yield urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def hashes_of(manifest: Manifest, recipes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Hashes of a store, and of what rendered and tokenized its records, as recipes name it; several are one after another."""
    found: dict[str, dict[str, None]] = {"tokenizer": {}, "template": {}}
    for recipe in recipes:
        for name, values in found.items():
            value: Any = recipe.get(name)
            if value := value.get("sha256") if isinstance(value, Mapping) else value:
                values[str(value)] = None
    own = {"content": manifest.content_hash, "build_key": manifest.build_key, "configuration": manifest.config_key}
    return {**own, **{name: " ".join(values) for name, values in found.items() if values}}
