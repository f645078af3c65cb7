"""`*_raw`: pins a domain's source files: which they are, their hashes, how many records they hold, where they can be cut. Nothing is copied."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prep_assets.assets.build import Build
from prep_assets.assets.commands import materialize_command
from prep_assets.assets.reading.routing import Router, router_of
from prep_assets.assets.versions import RAW as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Domain, Family
from prep_assets.errors import ConfigError, SourceError, nearest
from prep_assets.records import cuts
from prep_assets.records.cuts import Cut, LineCuts, table_cuts
from prep_assets.records.files import SourceFile
from prep_assets.records.pin import Pin, verify_pins
from prep_assets.records.quarantine import Quarantine
from prep_assets.records.read import read_blocks
from prep_assets.stores.published import Draft, Published, open_published

SOURCES = "sources.json"
_LINES = {"jsonl", "csv", "tsv", "txt"}


@dataclass(frozen=True, slots=True)
class Pinned:
    """A domain's source files, and the benchmarks it must not hold, as its raw asset pinned them, checked to be unchanged."""

    files: tuple[SourceFile, ...]
    test_files: tuple[SourceFile, ...]
    rows: int
    content_hash: str
    benchmarks: tuple[SourceFile, ...] = ()
    cuts: tuple[tuple[Cut, ...], ...] = ()
    """Where each file can be cut, files to train on first."""

    @property
    def bytes(self) -> int:
        """Size of all files as stored."""
        return sum(file.size for file in (*self.files, *self.test_files))


def domain_of(family: Family, name: str) -> Domain:
    """The configuration of a domain.

    Raises:
        ConfigError: there is no such domain; the message names the nearest one.
    """
    if name not in family.domains:
        raise ConfigError(f"no domain {name!r}{nearest(name, family.domains)}. The configuration has: {', '.join(family.domains)}")
    return family.domains[name]


def raw_recipe(workspace: Workspace, kind: type[Family], name: str) -> dict[str, Any]:
    """What a raw store depends on: the files' names and hashes, and how they are read."""
    family = workspace.family(kind)
    domain, router = domain_of(family, name), router_of(workspace, family, name)
    files, test_files = workspace.files(domain), workspace.test_files(domain)
    return {
        "stage": "raw",
        "version": VERSION,
        "files": _identities(workspace, files),
        "test_files": _identities(workspace, test_files),
        "format": domain.format,
        "txt": domain.txt,
        "shard_bytes": cuts.SHARD_BYTES,
        "domain": [router.key, router.value, *(sorted(router.taken(file)) for file in (*files, *test_files))] if router.key else None,
        **_images(workspace, domain),
        **_benchmarks(workspace, family),
    }


def raw_build(workspace: Workspace, kind: type[Family], asset: str, name: str) -> Build:
    """Pin one domain: hash every file, read every record once, count."""
    family = workspace.family(kind)
    domain = domain_of(family, name)

    def write(payload: Path, quarantine_path: Path) -> Draft:
        _check_txt(workspace, name, domain)
        router = router_of(workspace, family, name)
        with Quarantine(quarantine_path) as quarantine:
            listed = {
                which: [
                    _count(workspace, domain, router, file, pin, quarantine) for file, pin in zip(files, workspace.pins(files), strict=True)
                ]
                for which, files in (("files", workspace.files(domain)), ("test_files", workspace.test_files(domain)))
            }
            refused = quarantine.counts
        router.check()
        content = {**listed, **_images(workspace, domain), **_benchmarks(workspace, family)}
        (payload / SOURCES).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
        every = [entry for entries in listed.values() for entry in entries]
        rows, unreadable = sum(entry["rows"] for entry in every), sum(refused.values())
        if not rows:
            raise SourceError(
                f"no records in {', '.join(entry['name'] for entry in every)}: {_why_empty(workspace, domain)}. Fetch again, or leave it out"
            )
        counts = {"read": rows, "kept": rows - unreadable, "refused": refused, "files": len(every), "bytes": sum(e["size"] for e in every)}
        return Draft(counts, {}, ("every record read",))

    recipe = raw_recipe(workspace, kind, name)
    return Build(workspace.place(asset, name), recipe, raw_recipe(workspace.plain, kind, name), write, audit=lambda payload: None)


def _check_txt(workspace: Workspace, name: str, domain: Domain) -> None:
    """Raises:
    ConfigError: `txt` says how to read text files, and there are none.
    """
    formats = sorted({file.format for file in (*workspace.files(domain), *workspace.test_files(domain))})
    if domain.txt != "line" and "txt" not in formats:
        raise ConfigError(
            f"domains.{name}.txt: {domain.txt!r} means nothing here: the files are {', '.join(formats)}. Leave it out, or set format: txt"
        )


def _why_empty(workspace: Workspace, domain: Domain) -> str:
    formats = {file.format for file in (*workspace.files(domain), *workspace.test_files(domain))}
    if domain.domain_key is not None:
        return f"no row has this domain's value of {domain.domain_key!r}"
    return "the list is empty" if formats == {"json"} else "only blank lines" if formats <= _LINES else "no rows"


def _images(workspace: Workspace, domain: Domain) -> dict[str, Any]:
    """What the folder of images holds. It is pinned with the files, so another image gives other stores."""
    pin = workspace.image_pin(domain)
    return {} if pin is None else {"images": pin}


def _benchmarks(workspace: Workspace, family: Family) -> dict[str, Any]:
    """What benchmarks hold and how long a passage of them is. They are pinned with the files, so another benchmark gives other stores."""
    files = workspace.benchmarks(family)
    return {"benchmarks": {"files": _identities(workspace, files), "words": family.decontaminate.words}} if files else {}


def _identities(workspace: Workspace, files: tuple[SourceFile, ...]) -> list[dict[str, str | int]]:
    return [pin.identity for pin in workspace.pins(files)]


def _count(workspace: Workspace, domain: Domain, router: Router, file: SourceFile, pin: Pin, quarantine: Quarantine) -> dict[str, Any]:
    rows, lines = 0, LineCuts(cuts.SHARD_BYTES)
    for read in read_blocks(file, 0, txt=domain.txt, watch=lines if file.format in cuts.LINES and domain.txt == "line" else None):
        block = router.pick(file, read)
        rows += len(block.records) + len(block.unreadable)
        for bad in block.unreadable:
            quarantine.add_unreadable(file, bad)
        workspace.progress(f"read {file.name}", block.bytes_read, file.size)
    found = table_cuts(file, cuts.SHARD_BYTES) if file.format in cuts.TABLES else lines.cuts
    return {**pin.identity, "rows": rows, **({"cuts": found} if found else {})}


def pinned(workspace: Workspace, kind: type[Family], asset: str, name: str) -> Pinned:
    """The source files that the raw asset pinned.

    Raises:
        StoreError: the raw asset has no store.
        SourceError: a file changed since; the message says which and how to go on.
    """
    family = workspace.family(kind)
    domain, remedy = domain_of(family, name), materialize_command(asset, name)
    raw = open_published(workspace.stores, asset, name, remedy=remedy)
    files, test_files = workspace.files(domain), workspace.test_files(domain)
    listed = read_sources(raw)
    for found, which in ((files, "files"), (test_files, "test_files")):
        expected = [Pin(entry["name"], entry["size"], entry["sha256"], "") for entry in listed[which]]
        fresh = {pin.name: pin for pin in workspace.pins(found)}
        known = [fresh[pin.name] if pin.name in fresh and fresh[pin.name].identity == pin.identity else pin for pin in expected]
        try:
            verify_pins(found, known)
        except SourceError as error:
            raise SourceError(f"{asset}[{name}]: {error}:\n  {remedy}") from error
    if (found_images := _images(workspace, domain).get("images")) != (expected_images := listed.get("images")):
        raise SourceError(
            f"{asset}[{name}]: the images in {workspace.image_folder(domain)} changed since they were pinned: expected {expected_images}, "
            f"found {found_images}. Pin them again, or restore the old ones:\n  {remedy}"
        )
    if _benchmarks(workspace, family).get("benchmarks") != listed.get("benchmarks"):
        raise SourceError(f"{asset}[{name}]: the benchmarks of decontaminate changed since they were pinned. Pin them again:\n  {remedy}")
    entries = [entry for which in ("files", "test_files") for entry in listed[which]]
    marked = tuple(tuple((start, row) for start, row in entry.get("cuts", ())) for entry in entries)
    return Pinned(
        files, test_files, sum(entry["rows"] for entry in entries), raw.manifest.content_hash, workspace.benchmarks(family), marked
    )


def read_sources(raw: Published) -> Mapping[str, Any]:
    """The content of a raw store."""
    loaded: Mapping[str, Any] = json.loads((raw.directory / SOURCES).read_text("utf-8"))
    return loaded
