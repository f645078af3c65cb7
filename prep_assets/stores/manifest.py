"""The manifest of a store, its signature, and its check results."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError, StoreError
from prep_assets.stores.files import loads
from prep_assets.stores.verification import first_difference, span_of, sums_of, write_text

# Signatures of manifests: ed25519, with keys from the environment. The seal shows that a manifest was edited; the signature shows who wrote it.
#
#     PREP_ASSETS_SIGNING_KEY     a private key: a file, or the PEM text itself. Builds are signed with it
#     PREP_ASSETS_TRUSTED_KEYS    public keys: files or folders of ``.pem``, separated by ``:``. Every store must then be signed by one of them
#
# Without the second variable, only the signing key is trusted.

SIGNING, TRUSTED = "PREP_ASSETS_SIGNING_KEY", "PREP_ASSETS_TRUSTED_KEYS"
_SCHEME = "ed25519"
_SHOWN = 16


def signature_of(digest: str, configured: str = "") -> str:
    """Sign a digest: ``<scheme>:<public key>:<signature>``, or ``""`` if no key is configured. `configured`: the key, in place of the variable's."""
    if not (configured := configured or os.environ.get(SIGNING, "")):
        return ""
    key = _signing_key(configured)
    return f"{_SCHEME}:{_public_hex(key.public_key())}:{key.sign(digest.encode()).hex()}"


def fault(digest: str, signature: str, configured: str = "") -> str:
    """Return what is wrong with a signature, or ``""``. A missing signature is wrong if keys are trusted. `configured`: those, in place of the variable's."""
    trusted = _public_keys(configured) if configured else _trusted_keys()
    if not signature:
        return (
            f"it is not signed, and {TRUSTED} or {SIGNING} asks for a signature: somebody else wrote it, or it is older" if trusted else ""
        )
    scheme, _, rest = signature.partition(":")
    public, _, signed_hex = rest.partition(":")
    if scheme != _SCHEME or not _is_valid(public, signed_hex, digest):
        return f"it is forged: what it says is not what the key {public[:_SHOWN]}… signed"
    if trusted and public not in trusted:
        return f"it is signed by the key {public[:_SHOWN]}…, which {configured or TRUSTED} does not have"
    return ""


def described(signature: str) -> str:
    """Describe a valid signature for a reader."""
    signer = signature.split(":")[1][:_SHOWN]
    return f"signed by {signer}…" + ("" if _trusted_keys() else f", an untrusted key: name it in {TRUSTED}")


def _is_valid(public: str, signature: str, digest: str) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise _missing_cryptography() from error
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), digest.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def _trusted_keys() -> frozenset[str]:
    if configured := os.environ.get(TRUSTED, ""):
        return _public_keys(configured)
    signing = os.environ.get(SIGNING, "")
    return frozenset((_public_hex(_signing_key(signing).public_key()),)) if signing else frozenset()


@bounded_cache("signing key", 4)
def _signing_key(configured: str) -> Any:
    text = configured if "PRIVATE KEY" in configured else _read_key(Path(configured), SIGNING)
    key = _load_key("load_pem_private_key", text, SIGNING, password=None)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{SIGNING}: {_WANTED}")
    return key


@bounded_cache("public keys", 4)
def _public_keys(configured: str) -> frozenset[str]:
    keys = set()
    for location in filter(None, configured.split(os.pathsep)):
        path = Path(location)
        files = sorted(path.glob("*.pem")) if path.is_dir() else [path]
        keys |= {_public_hex(_load_key("load_pem_public_key", _read_key(file, TRUSTED), f"{TRUSTED}: {file}")) for file in files}
    if not keys:
        raise ConfigError(f"{TRUSTED}={configured}: contains no key")
    return frozenset(keys)


_WANTED = (
    "needs an ed25519 key in PEM, as `openssl genpkey -algorithm ed25519 -out key.pem` and `openssl pkey -in key.pem -pubout` write them"
)


def _load_key(loader: str, text: str, setting: str, **options: Any) -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        raise _missing_cryptography() from error
    try:
        return getattr(serialization, loader)(text.encode(), **options)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{setting}: {_WANTED}") from error


def _read_key(path: Path, variable: str) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{variable}: {path} cannot be read: {error}") from error


def _public_hex(key: Any) -> str:
    try:
        return str(key.public_bytes_raw().hex())
    except AttributeError as error:
        raise ConfigError(f"{TRUSTED}: {_WANTED}") from error


def _missing_cryptography() -> ConfigError:
    return ConfigError("signatures need the package cryptography: pip install 'prep-assets[sign]'")


# The manifest: the files of a store, its lineage, and the checks that it passed.
#
# It holds nothing that differs between two builds of the same input (no time, path or run id), so equal builds are equal to the byte.

MANIFEST = "manifest.json"
FORMAT = 2
"""Version of the store format; a new one makes every store out of date. Stores of format 1, whose files have no hashes of blocks, can still be read."""


def label_of(asset: str, partition: str) -> str:
    """How messages call a store: ``sft_tokens[gsm8k]``, ``sft_packed``."""
    return f"{asset}[{partition}]" if partition else asset


@dataclass(frozen=True, slots=True)
class Manifest:
    """Lineage and proof of one published store.

    Attributes:
        asset, partition: of the store; `partition` is ``""`` if the asset has none.
        build_key: hash of everything that can change the bytes.
        config_key: the build key of the configuration file alone; it differs from `build_key` when a run overrode an option.
        recipe: the readable preimage of the build key.
        counts: records ``read``, ``kept`` and ``refused`` by ``stage/reason``; other integers by name.
        metrics: further numbers, e.g. ``fill_rate``.
        files: payload files: relative path → size in bytes, sha256, and hashes of blocks (see `prep_assets.stores.verification`); for HDF5 also a hash
            of its layout.
        checks: what its checks prove before publication.
        quarantine: sha256 of the quarantine file next to the store, ``""`` if no record was rejected.
        signature: of `signed_digest`; ``""`` if the manifest is not signed.
        options: the options of the run that built a draft, which override the configuration file of its family; omitted if empty.
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
        return label_of(self.asset, self.partition)

    @property
    def content_hash(self) -> str:
        """sha256 over names and hashes of the payload files: equal if and only if the payload is."""
        return digest({name: entry["sha256"] for name, entry in self.files.items()})

    def same_store(self, other: Manifest) -> bool:
        """Return whether everything is equal but the config key and the options of a draft. A store with the same files and other counts is another one: one
        of the two manifests is wrong."""
        return self.signed_digest == other.signed_digest

    @property
    def text(self) -> str:
        """The text of ``manifest.json``: signed if a key is configured, with a seal, the hash of everything else in it."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        if signature := signature_of(self.signed_digest) or fields.pop("signature"):
            fields["signature"] = signature
        if not self.options:
            del fields["options"]
        return json.dumps({**fields, "seal": digest(fields)}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"

    @property
    def signed_digest(self) -> str:
        """sha256 over what is signed: everything but `config_key`, `signature` and `options`."""
        return digest({name: getattr(self, name) for name in self.__slots__ if name not in ("config_key", "signature", "options")})

    def write(self, directory: Path) -> None:
        """Write ``manifest.json`` into `directory`."""
        write_text(directory / MANIFEST, self.text)

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """Read the manifest of the store in `directory`.

        Raises:
            StoreError: it is missing, or cannot be parsed.
        """
        path = directory / MANIFEST
        try:
            return cls.parse(path.read_bytes(), str(path))
        except FileNotFoundError as error:
            raise StoreError(f"{directory} is not a store: it has no {MANIFEST}") from error

    @classmethod
    def parse(cls, data: bytes, label: str) -> Manifest:
        """Parse the content of a manifest file; `label` names it in messages.

        Raises:
            StoreError: it cannot be parsed, or its seal does not hold.
        """
        try:
            fields = loads(data)
            seal = fields.pop("seal")
            for name, entry in fields["files"].items():
                if not (isinstance(entry["bytes"], int) and isinstance(entry["sha256"], str)):
                    raise ValueError(f"size or sha256 of {name!r}")
            if (actual_hash := digest(fields)) != seal:
                raise ValueError(f"what it says has the hash {actual_hash[:16]}…, its seal is {str(seal)[:16]}…")
            return cls(**{**fields, "checks": tuple(fields["checks"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{label} cannot be read ({error}); it was edited or cut short. Build the store again") from error


def digest(value: Any) -> str:
    """Return the sha256 of a JSON value in canonical form."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def build_key(recipe: Mapping[str, Any]) -> str:
    """Return the sha256 of a recipe and the version of the store format."""
    return digest({"format": FORMAT, **recipe})


def differences(first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = "") -> tuple[str, ...]:
    """Return the keys at which two recipes differ, dotted and sorted, e.g. ``packing.row_len``."""
    changed: list[str] = []
    for key in sorted({*first, *second}):
        old, new = first.get(key), second.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            changed += differences(old, new, f"{prefix}{key}.")
        elif digest(old) != digest(new):  # compared as JSON, in which tuples are lists
            changed.append(f"{prefix}{key}")
    return tuple(changed)


def file_hash(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def payload_faults(directory: Path, manifest: Manifest) -> list[str]:
    """Return what is wrong with the files of a store, one sentence per file; empty if every file exists and is unaltered, and nothing else does."""
    listed = {entry["sha256"]: name for name, entry in manifest.files.items()}
    folders = {parent.as_posix() for name in manifest.files for parent in PurePosixPath(name).parents}
    present, faults = set[str](), list[str]()
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_symlink():
            faults.append(f"{name}: a link to {path.readlink()}; a store has its files itself")
        elif path.is_file():
            present.add(name)
        elif not path.is_dir():
            faults.append(f"{name}: neither a file nor a folder")
        elif name not in folders and not any(path.iterdir()):
            faults.append(f"{name}: an empty folder, not in the manifest")
    present -= {MANIFEST}
    links = {fault.partition(": ")[0] for fault in faults}
    for name, expected in sorted(manifest.files.items()):
        path = directory / name
        if name in links or any(parent.as_posix() in links for parent in PurePosixPath(name).parents):
            continue
        if name not in present:
            faults.append(f"{name}: missing; the manifest lists it with {expected['bytes']:,} bytes")
        elif (actual := sums_of(path)).sha256 == expected["sha256"]:
            continue
        elif actual.sha256 in listed:
            faults.append(f"{name}: swapped: it holds what the manifest lists as {listed[actual.sha256]}")
        elif actual.bytes != expected["bytes"]:
            faults.append(f"{name}: {actual.bytes:,} bytes, the manifest says {expected['bytes']:,}")
        else:
            block = first_difference(actual.blocks, str(expected.get("blocks", "")))
            location = "" if block is None else f" in {span_of(block, actual.bytes)}"
            faults.append(
                f"{name}: content altered{location}: sha256 is {actual.sha256[:16]}…, the manifest says {expected['sha256'][:16]}…"
            )
    faults += [f"{name}: not in the manifest" for name in sorted(present - set(manifest.files))]
    return faults


# Check results of a store, in a file next to it: `versions/<build key>.checks.json`.
#
# They are not part of the store, whose bytes do not depend on who checked it, and are valid only for the content that was checked.

CHECKS = ".checks.json"


class Worst(msgspec.Struct, frozen=True):
    """The failing row to show, with its wrong tokens.

    Attributes:
        where: record id or row number.
        note: what is wrong with it: expected and found.
        ids: its token ids; empty where it has none.
        weights: their loss weights.
        at: the first wrong token; -1 if unknown.
        derivations: stored and expected text, stretch by stretch.
    """

    where: str
    note: str
    ids: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    at: int = -1
    derivations: tuple[tuple[str, str], ...] = ()


class Ruled(msgspec.Struct, frozen=True):
    """The rules that judged a check which holds by itself, and its verdict without them.

    Attributes:
        rules: hash of the rules, see `prep_assets.checks.bounds`.
        summary, numbers: of the check itself.
    """

    rules: str
    summary: str
    numbers: Mapping[str, int | float]


class Result(NamedTuple):
    """The result of one check: the first fields of a `Verdict`, in its order. Files of earlier versions end after the summary."""

    passed: bool
    summary: str
    numbers: Mapping[str, int | float] = {}
    worst: Worst | None = None
    warns: bool = False
    ruled: Ruled | None = None


def read_results(directory: Path, content_hash: str) -> Mapping[str, Result] | None:
    """Read the check results of the store in `directory`, by name; `None` if this content was never checked."""
    try:
        return parse_results(directory.with_name(directory.name + CHECKS).read_bytes(), content_hash)
    except OSError:
        return None


def parse_results(data: bytes, content_hash: str) -> Mapping[str, Result] | None:
    """Parse a file of check results; `None` if it is damaged, or is about other content."""
    try:
        document = loads(data)
        if document["content_hash"] != content_hash:
            return None
        return msgspec.convert(document["checks"], dict[str, Result])
    except (ValueError, KeyError, TypeError, msgspec.ValidationError):
        return None


def results_text(content_hash: str, results: Mapping[str, Result]) -> str:
    """Return the content of a file of check results."""
    # figures may be scalars of NumPy
    return json.dumps(msgspec.to_builtins({"content_hash": content_hash, "checks": results}, enc_hook=methodcaller("item"))) + "\n"
