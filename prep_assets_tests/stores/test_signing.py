"""Signed manifests: sealed, signed and forged are described apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from harness.workloads import FORMATS, NEW, publish

from prep_assets.errors import ConfigError, StoreError
from prep_assets.stores.manifest import SIGNING, TRUSTED, Manifest, described
from prep_assets.stores.published import Place
from prep_assets.stores.version_folders import Published

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")


def pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Files of a new key, private and public."""
    key = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.key").write_bytes(private)
    (folder / f"{name}.pem").write_bytes(public)
    return folder / f"{name}.key", folder / f"{name}.pem"


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Ours, with which is signed."""
    found = pair(tmp_path / "keys", "ours")
    monkeypatch.setenv(SIGNING, str(found[0]))
    return found


def rewritten(published: Published, **changes: object) -> Published:
    """The store with another manifest, sealed anew."""
    changed = replace(published.manifest, **changes)  # type: ignore[arg-type]
    changed.write(published.folder)
    return replace(published, manifest=Manifest.read(published.folder))


def test_what_is_built_with_a_key_is_signed(tmp_path: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    published = publish(Place(tmp_path, "a"), NEW, FORMATS["lines"])
    assert published.manifest.signature.startswith("ed25519:")
    published.verify()
    assert described(published.manifest.signature).startswith("signed by ")
    monkeypatch.delenv(SIGNING)
    published.verify()
    assert "an untrusted key" in described(published.manifest.signature)
    monkeypatch.setenv(TRUSTED, str(keys[1].parent))
    published.verify()
    # what the configuration asks for may change without the key
    rewritten(published, config_key="e" * 64).verify()


def test_a_manifest_that_somebody_else_sealed_is_forged(tmp_path: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    published = publish(Place(tmp_path, "a"), NEW, FORMATS["lines"])
    monkeypatch.delenv(SIGNING)
    for trusted in ("", str(keys[1])):
        monkeypatch.setenv(TRUSTED, trusted)
        with pytest.raises(StoreError, match=r"manifest\.json: it is forged: what it says is not what the key [0-9a-f]{16}… signed"):
            rewritten(published, counts={"read": 3}).verify()
    with pytest.raises(StoreError, match="it is not signed, and PREP_ASSETS_TRUSTED_KEYS or PREP_ASSETS_SIGNING_KEY asks for a signature"):
        rewritten(published, signature="").verify()
    monkeypatch.setenv(SIGNING, str(pair(tmp_path / "theirs", "theirs")[0]))
    with pytest.raises(StoreError, match=r"it is signed by the key [0-9a-f]{16}…, which PREP_ASSETS_TRUSTED_KEYS does not have"):
        rewritten(published).verify()


def test_a_forged_or_unsigned_store_is_built_again_and_not_signed_over(
    tmp_path: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, "a")
    monkeypatch.delenv(SIGNING)
    unsigned = publish(place, NEW, FORMATS["lines"])
    unsigned.verify()
    monkeypatch.setenv(SIGNING, str(keys[0]))
    signed = publish(place, NEW, FORMATS["lines"])
    assert not signed.reused
    assert signed.manifest.content_hash == unsigned.manifest.content_hash
    signed.verify()
    assert publish(place, NEW, FORMATS["lines"]).reused
    current = place.current()
    assert current is not None
    assert current.manifest.signature == signed.manifest.signature


@pytest.mark.parametrize("text", ["nonsense", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"])
def test_a_key_that_is_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "bad").write_text(text)
    monkeypatch.setenv(SIGNING, str(tmp_path / "bad"))
    with pytest.raises(ConfigError, match="PREP_ASSETS_SIGNING_KEY: needs an ed25519 key in PEM, as `openssl genpkey"):
        publish(Place(tmp_path, "a"), NEW, FORMATS["lines"])
    monkeypatch.setenv(SIGNING, "")
    monkeypatch.setenv(TRUSTED, str(tmp_path / "nowhere.pem"))
    with pytest.raises(ConfigError, match=r"PREP_ASSETS_TRUSTED_KEYS: .*nowhere\.pem cannot be read"):
        publish(Place(tmp_path, "b"), NEW, FORMATS["lines"]).verify()
