"""`Description`: a store in plain values, and its files that other tools can read. All exporters of metadata start from it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from prep_assets.checks.licences import UNKNOWN, licences_of
from prep_assets.config.family import Domain
from prep_assets.config.models import FAMILIES
from prep_assets.errors import StoreError
from prep_assets.extensions.explain.figures import accounting, made_from
from prep_assets.extensions.explain.unchanged import Unchanged
from prep_assets.extensions.exports.arrow import schema_of
from prep_assets.graph.graph import EVERY, asset_named
from prep_assets.pipeline.asset import Asset, FromRows, Store
from prep_assets.pipeline.sources import read_sources
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.version_folders import Published

# Payload files that other tools can read (Parquet and JSON lines), and their columns.

Kind = str | list[Any] | dict[str, Any]
"""An Arrow type name; ``[kind]`` for a list; key → kind for an object."""
READABLE = (".parquet", ".jsonl")
"""Suffixes of files that other tools can read."""
_SHARD = re.compile(r"(\w+)-\d{5}-of-\d{5}\.parquet")
_SPLIT = re.compile(r"(?:(\w+)_)?(train|test|dev|validation)")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    kind: Kind
    description: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The files of one split; the splits of a data set have the same name."""

    name: str
    split: str
    files: tuple[str, ...]
    rows: int
    columns: tuple[Column, ...]


def tables_of(folder: Path, files: Iterable[str]) -> tuple[Table, ...]:
    """The non-empty tables among the files of a payload. All JSON lines are read, since any line may have a new key."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for file in sorted(files):
        if file.endswith(READABLE):
            grouped.setdefault(_table_key(PurePosixPath(file)), []).append(file)
    tables = [Table(*key, tuple(names), *_count_and_columns(folder, names)) for key, names in grouped.items()]
    return tuple(sorted((table for table in tables if table.rows), key=lambda table: (table.name, table.split != "train", table.split)))


def _table_key(file: PurePosixPath) -> tuple[str, str]:
    """Name and split of the table of a file."""
    if shard := _SHARD.fullmatch(file.name):
        return "default", shard[1]
    if file.parent.parent.name == "splits":
        return "default", file.parent.name
    stem = file.name.split(".", 1)[0]
    split = _SPLIT.fullmatch(stem)
    return (split[1] or "default", split[2]) if split else (stem, "train")


def _count_and_columns(folder: Path, names: list[str]) -> tuple[int, tuple[Column, ...]]:
    if names[0].endswith(".parquet"):
        import pyarrow.parquet as pq

        footers = [pq.ParquetFile(folder / name) for name in names]
        return sum(footer.metadata.num_rows for footer in footers), _columns(footers[0].schema_arrow)
    count = sum(1 for _ in _lines(folder, names))
    return count, _columns(schema_of(lambda: _lines(folder, names), folder / names[0])) if count else ()


def _lines(folder: Path, names: list[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        with (folder / name).open("rb") as file:
            yield from map(json.loads, file)


def _columns(schema: Any) -> tuple[Column, ...]:
    return tuple(Column(field.name, _kind(field.type)) for field in schema)


def _kind(arrow_type: Any) -> Kind:
    import pyarrow as pa

    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return [_kind(arrow_type.value_type)]
    if pa.types.is_struct(arrow_type):
        return {field.name: _kind(field.type) for field in arrow_type}
    return "string" if pa.types.is_large_string(arrow_type) else str(arrow_type)


# A store in plain values, from which the metadata of every other tool is made.

Chain = Sequence[tuple[Asset, Sequence[Published]]]


@dataclass(frozen=True, slots=True)
class Source:
    """A source file of a store."""

    domain: str
    name: str
    bytes: int
    sha256: str
    rows: int
    held_out: bool


@dataclass(frozen=True, slots=True)
class Description:
    """A published store that is up to date with its configuration and sources.

    Attributes:
        name: asset and domain, ``sft_tokens[gsm8k]``; `asset` is without the domain.
        summary: one line about the asset.
        where: the folder of this version, or its address in a bucket.
        hashes: of the content, the build, the configuration, and of all tokenizers and templates that the store depends on.
        made_from: store → content hash, of all stores upstream; `upstream` are the assets directly upstream.
        sources: the source files, by domain.
        addresses: domain → URLs of its sources; local folders are omitted.
        licences: domain → licence, empty if unknown.
        licence: licences of the whole store; empty if one of a domain is unknown.
        licence_rows: licence → source rows that name it, of the stores that bring this one its records; empty where no domain has a `licence_key`.
        counts, metrics: from the manifest.
        refused: store and reason → records rejected there, upstream included.
        files: payload file → bytes and sha256.
        tables: the files that other tools can read, as tables.
        columns: of the first table, or those that the asset declares.
        proofs: asset → checks that hold in all of its stores, for this asset and those upstream.
        command: rebuilds the store.
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
    licence_rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def content_hash(self) -> str:
        """sha256 over the names and hashes of its files."""
        return self.hashes["content"]

    @property
    def bytes(self) -> int:
        """Total size of its files."""
        return sum(size for size, _ in self.files.values())


def described(folder: Path | str) -> Description:
    """Describe a store by its manifest alone, for a machine without its configuration and sources: those and the stores upstream are left out.

    Args:
        folder: of a store, e.g. ``stores/sft_packed/current``, or of a release.

    Raises:
        StoreError: the folder holds no store.
    """
    directory = Path(folder).resolve()
    return _describe_manifest(Published(directory, Manifest.read(directory)))


def describe(workspace: Workspace, asset: str, partition: str = "") -> tuple[Description, Published]:
    """The full description of the current store of an asset, and that store.

    Raises:
        StoreError: there is no store; it is out of date; or its checks do not hold.
    """
    workspace = workspace.plain
    published = Unchanged(workspace).published(asset, partition)
    definition, label = asset_named(asset, workspace), workspace.place(asset, partition).label
    if unproven := [check.name for check in definition.checks if check.name not in _passed_checks([published])]:
        raise StoreError(f"{label}: {', '.join(unproven)} is not known to hold. Check it:\n  prep-assets verify {asset}")
    chain = made_from(workspace, [published])
    own = own_stores(chain, published, definition.family)
    sources = tuple(_sources(own))
    family = workspace.family(FAMILIES[definition.family])
    domains = dict.fromkeys(source.domain for source in sources)
    by_row = {domain: counts for domain in domains if family.domains[domain].licence_key and (counts := _by_row(workspace, own, domain))}
    licences = {domain: _in_hub_terms(by_row.get(domain, {})) or family.domains[domain].licence or "" for domain in domains}
    distinct = tuple(dict.fromkeys(each for named in licences.values() for each in named.split(", ")))
    description = replace(
        _describe_manifest(published),
        hashes=hashes_of(published.manifest, (store.manifest.recipe for _, stores in chain for store in stores)),
        made_from={store.manifest.label: store.manifest.content_hash for _, stores in chain for store in stores if store is not published},
        sources=sources,
        addresses={name: tuple(_public_addresses(family.domains[name])) for name in domains},
        licences=licences,
        licence=(family.licence,) if family.licence else () if {"", UNKNOWN} & {*distinct} else distinct,
        licence_rows=dict(sorted(sum(by_row.values(), Counter()).items())),
        refused={step: count for kind, step, count in accounting(own) if kind == "refused"},
        proofs={upstream.name: passed for upstream, stores in chain if (passed := _passed_checks(stores))},
    )
    return description, published


def _by_row(workspace: Workspace, own: Chain, domain: str) -> Counter[str]:
    """Source rows of a domain by the licence that they name, of the stores that are made from its rows."""
    made = [(asset, store) for asset, stores in own if isinstance(asset.source, FromRows) for store in stores]
    of_domain = (Store(workspace, asset, store) for asset, store in made if store.manifest.partition == domain)
    return sum(map(licences_of, of_domain), Counter())


def _in_hub_terms(counts: Mapping[str, int]) -> str:
    """Licences of rows, each once; what is no identifier is ``other``."""
    named = {each if re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", each) else "other" for licences in counts for each in licences.split(", ")}
    return ", ".join(sorted(named))


def _describe_manifest(published: Published) -> Description:
    manifest = published.manifest
    exported = manifest.asset not in EVERY
    asset = EVERY[manifest.recipe["from"] if exported else manifest.asset]
    readable = [name for name in manifest.files if name.endswith(READABLE)]
    # reading `directory` downloads a store from a bucket
    tables = tables_of(published.directory, readable) if readable else ()
    declared = () if exported else tuple(Column(name, kind, text) for name, kind, text in asset.columns)
    rejected = manifest.counts.get("refused", {})
    return Description(
        name=manifest.label,
        asset=manifest.asset,
        summary=asset.description.split("\n", 1)[0] + (f" As {manifest.recipe['format']}." if exported else ""),
        where=published.where,
        hashes=hashes_of(manifest, [manifest.recipe]),
        upstream=(asset.name,) if exported else asset.made_of(manifest.recipe),
        counts={name: count for name, count in manifest.counts.items() if isinstance(count, int)},
        metrics=dict(manifest.metrics),
        refused={f"{manifest.asset}: {reason}": count for reason, count in sorted(rejected.items())},
        files={name: (entry["bytes"], entry["sha256"]) for name, entry in sorted(manifest.files.items())},
        tables=tables,
        columns=tables[0].columns if tables else declared,
        proofs={manifest.asset: passed} if (passed := _passed_checks([published])) else {},
        command=build_command(manifest.asset, manifest.partition),
    )


def _passed_checks(stores: Sequence[Published]) -> tuple[str, ...]:
    """The checks that passed in all of the stores."""
    passed = [{name for name, result in (store.results or {}).items() if result.passed} for store in stores]
    return tuple(name for name in stores[0].results or {} if all(name in names for names in passed))


def own_stores(chain: Chain, published: Published, family: str) -> list[tuple[Asset, list[Published]]]:
    """The part of a chain whose records a store may hold. Held-out texts, golds and, for one domain, other domains are only compared with them."""
    domains = {"", published.manifest.partition} if published.manifest.partition else None
    own = [(asset, [store for store in stores if domains is None or store.manifest.partition in domains]) for asset, stores in chain]
    return [(asset, stores) for asset, stores in own if asset.family == family and stores]


def _sources(chain: Chain) -> Iterator[Source]:
    for asset, stores in chain:
        for published in stores if asset.name == f"{asset.family}_raw" else ():
            pinned = read_sources(published)
            for group in ("files", "test_files"):
                for entry in pinned[group]:
                    size, rows = int(entry["size"]), int(entry["rows"])
                    yield Source(published.manifest.partition, entry["name"], size, entry["sha256"], rows, group == "test_files")


def _public_addresses(domain: Domain) -> Iterator[str]:
    """The URLs of a domain's files, without user names, passwords and signatures."""
    for address in (*domain.files, *domain.test_files):
        if "://" in address:
            parts = urlsplit(address)
            yield urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def hashes_of(manifest: Manifest, recipes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Hashes of a store, and of the tokenizers and templates in `recipes`; several of a kind are separated by spaces."""
    by_kind: dict[str, dict[str, None]] = {"tokenizer": {}, "template": {}}
    for recipe in recipes:
        for name, values in by_kind.items():
            value: Any = recipe.get(name)
            if value := value.get("sha256") if isinstance(value, Mapping) else value:
                values[str(value)] = None
    of_store = {"content": manifest.content_hash, "build_key": manifest.build_key, "configuration": manifest.config_key}
    return {**of_store, **{name: " ".join(values) for name, values in by_kind.items() if values}}
