"""Signatures of manifests: ed25519, by a key that the environment names. A seal shows that a manifest was edited; a signature, by whom it was written.

    PREP_ASSETS_SIGNING_KEY     a private key: a file, or the PEM text itself. What is built is signed with it
    PREP_ASSETS_TRUSTED_KEYS    public keys: files or folders of ``.pem``, parted by ``:``. Every store must then be signed by one of them

Without the second, the key that signs is the one that is trusted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError

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
