"""The manifest: what a store is made of, where it came from and what was proven about it.

It holds nothing that differs between two builds of the same input (no time, no path, no run id), so that equal builds are equal to the byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prep_assets.disk.blocks import BLOCK, first_difference, sums_of
from prep_assets.disk.strict_json import loads
from prep_assets.disk.written import write_text
from prep_assets.errors import StoreError
from prep_assets.stores.signing import fault, signature_of

MANIFEST = "manifest.json"
FORMAT = 2
"""Counts up when what stores look like changes, so that every store is built anew. Stores of format 1, whose files have no hashes of blocks, are
read as before, and are out of date."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Lineage and proof of one published store.

    Attributes:
        asset, partition: what it is a store of; `partition` is ``""`` where the asset has none.
        build_key: hash of everything that can change the bytes.
        config_key: the build key that the configuration file alone asks for; it differs from `build_key` when a run overrode an option.
        recipe: everything that went into the build key, readable.
        counts: records ``read``, ``kept`` and ``refused`` by ``stage/reason``; other whole numbers by name.
        metrics: further numbers, e.g. ``fill_rate``.
        files: payload files: relative path → size in bytes, sha256, and hashes of blocks (see `prep_assets.disk.blocks`); of HDF5 also a hash
            of where its data lies.
        checks: structural checks that passed before publication.
        quarantine: sha256 of the quarantine file beside the store, ``""`` where nothing was refused.
        signature: of `said`, see `prep_assets.stores.signing`; ``""`` where it is not signed.
        options: what the run that made a draft set over the configuration file of its family; written where there is any.
    """

    asset: str
    partition: str
    build_key: str
    config_key: str
    recipe: Mapping[str, Any]
    counts: Mapping[str, Any]
    metrics: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]
    checks: tuple[str, ...] = ()
    quarantine: str = ""
    format: int = FORMAT
    signature: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """How messages call the store."""
        return f"{self.asset}[{self.partition}]" if self.partition else self.asset

    @property
    def content_hash(self) -> str:
        """sha256 over names and hashes of the payload files: equal exactly when the payload is."""
        return digest({name: entry["sha256"] for name, entry in self.files.items()})

    def same_store(self, other: Manifest) -> bool:
        """Whether both are of one build and one content; what the configuration asks for may differ."""
        return all(getattr(self, name) == getattr(other, name) for name in ("build_key", "content_hash", "quarantine"))

    @property
    def text(self) -> str:
        """What ``manifest.json`` holds: signed where a key is configured, with a seal, which is the hash of everything else in it."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        if signature := signature_of(self.signed_digest) or fields.pop("signature"):
            fields["signature"] = signature
        if not self.options:
            del fields["options"]
        return json.dumps({**fields, "seal": digest(fields)}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"

    @property
    def signed_digest(self) -> str:
        """sha256 over what is signed: everything but the signature, and what a configuration or a run asked for."""
        return digest({name: getattr(self, name) for name in self.__slots__ if name not in ("config_key", "signature", "options")})

    @property
    def signature_fault(self) -> str:
        """What is wrong with its signature; empty where nothing is."""
        return fault(self.signed_digest, self.signature)

    def write(self, directory: Path) -> None:
        """Write ``manifest.json`` into `directory`."""
        write_text(directory / MANIFEST, self.text)

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """The manifest of the store in `directory`.

        Raises:
            StoreError: there is none, or it cannot be read.
        """
        path = directory / MANIFEST
        try:
            return cls.parse(path.read_bytes(), str(path))
        except FileNotFoundError as error:
            raise StoreError(f"{directory} is not a store: it has no {MANIFEST}") from error

    @classmethod
    def parse(cls, data: bytes, where: str) -> Manifest:
        """The manifest that a file holds; `where` is how messages call it.

        Raises:
            StoreError: it cannot be read.
        """
        try:
            fields = loads(data)
            seal = fields.pop("seal")
            for name, entry in fields["files"].items():
                if not (isinstance(entry["bytes"], int) and isinstance(entry["sha256"], str)):
                    raise ValueError(f"size or sha256 of {name!r}")
            if (found := digest(fields)) != seal:
                raise ValueError(f"what it says has the hash {found[:16]}…, its seal is {str(seal)[:16]}…")
            return cls(**{**fields, "checks": tuple(fields["checks"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{where} cannot be read ({error}); it was edited or cut short. Build the store again") from error


def digest(value: Any) -> str:
    """sha256 of a JSON value in one canonical form."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def build_key(recipe: Mapping[str, Any]) -> str:
    """sha256 of a recipe and of the store format's version."""
    return digest({"format": FORMAT, **recipe})


def differences(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> tuple[str, ...]:
    """The keys at which two recipes differ, dotted and sorted, e.g. ``packing.row_len``."""
    found: list[str] = []
    for key in sorted({*one, *other}):
        left, right = one.get(key), other.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found += differences(left, right, f"{prefix}{key}.")
        elif digest(left) != digest(right):  # as JSON, in which tuples are lists
            found.append(f"{prefix}{key}")
    return tuple(found)


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def payload_faults(directory: Path, manifest: Manifest) -> list[str]:
    """What is wrong with the files of a store, one sentence each; empty when every file is there, whole and unaltered."""
    faults = []
    listed = {entry["sha256"]: name for name, entry in manifest.files.items()}
    present = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()} - {MANIFEST}
    for name, expected in sorted(manifest.files.items()):
        path = directory / name
        if name not in present:
            faults.append(f"{name}: missing; the manifest lists it with {expected['bytes']:,} bytes")
        elif (found := sums_of(path)).sha256 == expected["sha256"]:
            continue
        elif found.sha256 in listed:
            faults.append(f"{name}: swapped: it holds what the manifest lists as {listed[found.sha256]}")
        elif found.bytes != expected["bytes"]:
            faults.append(f"{name}: {found.bytes:,} bytes, the manifest says {expected['bytes']:,}")
        else:
            block = first_difference(found.blocks, expected)
            where = "" if block is None else f" in bytes {block * BLOCK:,} to {min((block + 1) * BLOCK, found.bytes):,}"
            faults.append(f"{name}: content altered{where}: sha256 is {found.sha256[:16]}…, the manifest says {expected['sha256'][:16]}…")
    faults += [f"{name}: not in the manifest" for name in sorted(present - set(manifest.files))]
    return faults
