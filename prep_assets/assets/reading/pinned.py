"""A domain's source files as its raw asset pinned them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from prep_assets.assets.commands import build_command
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Domain, Family
from prep_assets.errors import ConfigError, SourceError, nearest
from prep_assets.records.cuts import Cut
from prep_assets.records.files import SourceFile
from prep_assets.records.pin import Pin, verify_pins
from prep_assets.stores.guards import Guards, load_json
from prep_assets.stores.published import Published, open_published

SOURCES = "sources.json"
BLOCKS = "blocks.json"
"""Hashes of the files' blocks, so that a part of a file can be proven to be what was pinned."""


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
        raise ConfigError(f"no domain {name!r}{nearest(name, family.domains) or '.'} The configuration has: {', '.join(family.domains)}")
    return family.domains[name]


def pinned(workspace: Workspace, kind: type[Family], asset: str, name: str) -> Pinned:
    """The source files that the raw asset pinned.

    Raises:
        StoreError: the raw asset has no store.
        SourceError: a file changed since; the message says which and how to go on.
    """
    family = workspace.family(kind)
    domain, remedy = domain_of(family, name), build_command(asset, name)
    raw = open_published(workspace.stores, asset, name, remedy=remedy)
    files, test_files = workspace.files(domain), workspace.test_files(domain)
    listed, blocks = read_sources(raw), read_hashes(raw)
    for found, which in ((files, "files"), (test_files, "test_files")):
        expected = [Pin(entry["name"], entry["size"], entry["sha256"], blocks[which][entry["name"]], "") for entry in listed[which]]
        current = {pin.name: pin for pin in workspace.pins(found)}
        pins = [current[pin.name] if pin.name in current and current[pin.name].identity == pin.identity else pin for pin in expected]
        try:
            verify_pins(found, pins)
        except SourceError as error:
            raise SourceError(f"{asset}[{name}]: {error}:\n  {remedy}") from error
    if (found_images := images_pinned(workspace, domain).get("images")) != (expected_images := listed.get("images")):
        raise SourceError(
            f"{asset}[{name}]: the images in {workspace.image_folder(domain)} changed since they were pinned: expected {expected_images}, "
            f"found {found_images}. Pin them again, or restore the old ones:\n  {remedy}"
        )
    if benchmarks_pinned(workspace, family).get("benchmarks") != listed.get("benchmarks"):
        raise SourceError(f"{asset}[{name}]: the benchmarks of decontaminate changed since they were pinned. Pin them again:\n  {remedy}")
    entries = [entry for which in ("files", "test_files") for entry in listed[which]]
    marked = tuple(tuple(map(tuple, entry.get("cuts", ()))) for entry in entries)
    rows, sound = sum(entry["rows"] for entry in entries), not raw.manifest.counts["refused"]
    return Pinned(
        proven(files, blocks["files"], remedy, sound),
        proven(test_files, blocks["test_files"], remedy, sound),
        rows,
        raw.manifest.content_hash,
        proven(benchmarks := workspace.benchmarks(family), {pin.name: pin.blocks for pin in workspace.pins(benchmarks)}, remedy),
        marked,
    )


def proven(files: Iterable[SourceFile], blocks: Mapping[str, str], remedy: str, sound: bool = False) -> tuple[SourceFile, ...]:
    """Files that are compared, while they are read, with what they held when they were pinned.

    Args:
        sound: no row of them was refused then.
    """
    return tuple(replace(file, blocks=blocks[file.name], remedy=remedy, sound=sound) for file in files)


def read_sources(raw: Published) -> Mapping[str, Any]:
    """The content of a raw store."""
    return _read(raw, SOURCES)


def read_hashes(raw: Published) -> Mapping[str, Mapping[str, str]]:
    """Hashes of the blocks of the files that a raw store pinned, by name: of those to train on (``files``) and of ``test_files``."""
    return _read(raw, BLOCKS)


def _read(raw: Published, name: str) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = load_json(raw.directory / name, Guards())
    return loaded


def identities(workspace: Workspace, files: tuple[SourceFile, ...]) -> list[dict[str, str | int]]:
    """Name, size and hash of each file."""
    return [pin.identity for pin in workspace.pins(files)]


def images_pinned(workspace: Workspace, domain: Domain) -> dict[str, Any]:
    """What the folder of images holds. It is pinned with the files, so another image gives other stores."""
    pin = workspace.image_pin(domain)
    return {} if pin is None else {"images": pin}


def benchmarks_pinned(workspace: Workspace, family: Family) -> dict[str, Any]:
    """What benchmarks hold and how long a passage of them is. They are pinned with the files, so another benchmark gives other stores."""
    files = workspace.benchmarks(family)
    return {"benchmarks": {"files": identities(workspace, files), "words": family.decontaminate.words}} if files else {}
