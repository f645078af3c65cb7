"""The manifest of a store, its signature, and what its checks said."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError, StoreError
from prep_assets.stores.files import loads
from prep_assets.stores.verification import first_difference, span_of, sums_of, write_text

# Signatures of manifests: ed25519, by a key that the environment names. A seal shows that a manifest was edited; a signature, by whom it was written.
#
#     PREP_ASSETS_SIGNING_KEY     a private key: a file, or the PEM text itself. What is built is signed with it
#     PREP_ASSETS_TRUSTED_KEYS    public keys: files or folders of ``.pem``, parted by ``:``. Every store must then be signed by one of them
#
# Without the second, the key that signs is the one that is trusted.

SIGNING, TRUSTED = "PREP_ASSETS_SIGNING_KEY", "PREP_ASSETS_TRUSTED_KEYS"
_SCHEME = "ed25519"
_SHOWN = 16


def signature_of(digest: str) -> str:
    """The signature of what a manifest says, with the public key; empty where no key is configured."""
    key = _signing_key(os.environ.get(SIGNING, ""))
    return "" if key is None else f"{_SCHEME}:{_public(key.public_key())}:{key.sign(digest.encode()).hex()}"


def fault(digest: str, signature: str) -> str:
    """What is wrong with a signature; empty where nothing is. One that is missing is wrong where keys are trusted."""
    trusted = _trusted()
    if not signature:
        return (
            f"it is not signed, and {TRUSTED} or {SIGNING} asks for a signature: somebody else wrote it, or it is older" if trusted else ""
        )
    scheme, _, rest = signature.partition(":")
    public, _, signed = rest.partition(":")
    if scheme != _SCHEME or not _holds(public, signed, digest):
        return f"it is forged: what it says is not what the key {public[:_SHOWN]}… signed"
    if trusted and public not in trusted:
        return f"it is signed by the key {public[:_SHOWN]}…, which {TRUSTED} does not have"
    return ""


def described(signature: str) -> str:
    """What to say of a signature without a fault."""
    who = signature.split(":")[1][:_SHOWN]
    return f"signed by {who}…" + ("" if _trusted() else f", a key that nobody trusts yet: name it in {TRUSTED}")


def _holds(public: str, signed: str, digest: str) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise _missing() from error
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signed), digest.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def _trusted() -> frozenset[str]:
    named, own = os.environ.get(TRUSTED, ""), _signing_key(os.environ.get(SIGNING, ""))
    if not named:
        return frozenset() if own is None else frozenset((_public(own.public_key()),))
    return _public_keys(named)


@bounded_cache("signing key", 4)
def _signing_key(named: str) -> Any:
    if not named:
        return None
    text = named if "PRIVATE KEY" in named else _text(Path(named), SIGNING)
    key = _loaded("load_pem_private_key", text, SIGNING, password=None)
    if not hasattr(key, "sign") or not hasattr(key, "public_key") or type(key).__name__.lower().find(_SCHEME) < 0:
        raise ConfigError(f"{SIGNING}: {_WANTED}")
    return key


@bounded_cache("public keys", 4)
def _public_keys(named: str) -> frozenset[str]:
    found = set()
    for each in filter(None, named.split(os.pathsep)):
        path = Path(each)
        files = sorted(path.glob("*.pem")) if path.is_dir() else [path]
        found |= {_public(_loaded("load_pem_public_key", _text(file, TRUSTED), f"{TRUSTED}: {file}")) for file in files}
    if not found:
        raise ConfigError(f"{TRUSTED}={named}: there is no key in it")
    return frozenset(found)


_WANTED = (
    "needs an ed25519 key in PEM, as `openssl genpkey -algorithm ed25519 -out key.pem` and `openssl pkey -in key.pem -pubout` write them"
)


def _loaded(load: str, text: str, where: str, **options: Any) -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        raise _missing() from error
    try:
        return getattr(serialization, load)(text.encode(), **options)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {_WANTED}") from error


def _text(path: Path, variable: str) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{variable}: {path} cannot be read: {error}") from error


def _public(key: Any) -> str:
    try:
        return str(key.public_bytes_raw().hex())
    except AttributeError as error:
        raise ConfigError(f"{TRUSTED}: {_WANTED}") from error


def _missing() -> ConfigError:
    return ConfigError("signatures need the package cryptography: pip install 'prep-assets[sign]'")


# The manifest: what a store is made of, where it came from and what was proven about it.
#
# It holds nothing that differs between two builds of the same input (no time, no path, no run id), so that equal builds are equal to the byte.

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
        files: payload files: relative path → size in bytes, sha256, and hashes of blocks (see `prep_assets.stores.verification`); of HDF5 also a hash
            of where its data lies.
        checks: structural checks that passed before publication.
        quarantine: sha256 of the quarantine file beside the store, ``""`` where nothing was refused.
        signature: of `said`, see `prep_assets.stores.manifest`; ``""`` where it is not signed.
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
            block = first_difference(found.blocks, str(expected.get("blocks", "")))
            where = "" if block is None else f" in {span_of(block, found.bytes)}"
            faults.append(f"{name}: content altered{where}: sha256 is {found.sha256[:16]}…, the manifest says {expected['sha256'][:16]}…")
    faults += [f"{name}: not in the manifest" for name in sorted(present - set(manifest.files))]
    return faults


# What the checks of a store said, in a file beside it: `versions/<build key>.checks.json`.
#
# It is not part of the store, whose bytes do not depend on who looked at it, and it counts for the very content that was looked at only.

CHECKS = ".checks.json"


class Result(NamedTuple):
    """What one check said.

    Attributes:
        passed: whether it holds.
        summary: one sentence with numbers.
    """

    passed: bool
    summary: str


def read_results(directory: Path, content_hash: str) -> Mapping[str, Result] | None:
    """By name, what the checks of the store in `directory` said of this content; `None` where they never looked at it."""
    try:
        return parse_results(directory.with_name(directory.name + CHECKS).read_bytes(), content_hash)
    except OSError:
        return None


def parse_results(data: bytes, content_hash: str) -> Mapping[str, Result] | None:
    """What a file says of this content; `None` where it is damaged, or about another one."""
    try:
        found = loads(data)
        if found["content_hash"] != content_hash:
            return None
        return {name: Result(bool(passed), str(summary)) for name, (passed, summary) in found["checks"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def write_results(directory: Path, content_hash: str, results: Mapping[str, Result]) -> None:
    """Write it down, in one step; what is written already stays."""
    if read_results(directory, content_hash) == results:
        return
    path = directory.with_name(directory.name + CHECKS)
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    write_text(temporary, results_text(content_hash, results))
    temporary.replace(path)


def results_text(content_hash: str, results: Mapping[str, Result]) -> str:
    """What the file holds."""
    return json.dumps({"content_hash": content_hash, "checks": {name: list(each) for name, each in results.items()}}, indent=1) + "\n"
