"""A place for stores, and how the tests of stores fill it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from prep_assets.extensions.buckets import bucket
from prep_assets.stores.published import Draft, Place
from prep_assets.stores.version_folders import Published
from prep_assets_tests.stores.azure import serving as azure_serving
from prep_assets_tests.stores.google import GoogleStorage
from prep_assets_tests.stores.s3 import S3, Fault, serving

FILES = {"train/shard_0000/meta.json": b"{}", "train/shard_0000/sequence.bin": bytes(range(256)) * 40, "notes.txt": b"0123456789"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "stores", "sft_tokens", "gsm8k")


@pytest.fixture
def publish(place: Place) -> Callable[..., Published]:
    """``publish(key)`` publishes `FILES`, or other `files`, under a build key."""

    def build(
        key: str = "a" * 64,
        files: Mapping[str, bytes] = FILES,
        *,
        refused: bytes = b"",
        config_key: str = "",
        where: Place = place,
        accept: bool = True,
        draft: bool = False,
        again: bool = False,
    ) -> Published:
        def write(payload: Path, quarantine: Path) -> Draft:
            for name, content in files.items():
                (payload / name).parent.mkdir(parents=True, exist_ok=True)
                (payload / name).write_bytes(content)
            if refused:
                quarantine.write_bytes(refused)
            return Draft({"read": 3, "kept": 2, "refused": {"render/lone_surrogate": 1}}, {"fill_rate": 0.75}, ("parts fit together",))

        recipe = {"stage": "tokens", "options": [1, None, "é"]}
        published = where.propose(key, write, config_key=config_key or key, recipe=recipe, draft=draft, again=again)
        if accept:
            where.accept(published, {})
        return published

    return build


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Every file below a folder, by relative path."""
    return lambda folder: {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="session")
def server() -> Iterator[S3]:
    with serving() as found:
        yield found


@pytest.fixture
def s3(server: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3:
    """The server, with its address and secrets in the environment, and clients that wait for milliseconds."""
    variables = {
        "ACCESS_KEY_ID": "AKIAEXAMPLE",
        "SECRET_ACCESS_KEY": "a-very-secret-key",
        "REGION": "us-east-1",
        "ENDPOINT_URL": server.url,
    }
    for name, value in {**variables, "ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "cache"))
    short = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=4), "base": 2}
    monkeypatch.setattr(bucket, "RETRIES", {"max_retries": 5, "retry_timeout": timedelta(seconds=60), "backoff": short})
    monkeypatch.setattr(bucket.Bucket, "pause", lambda self, attempt: None)
    bucket._client.cache_clear()
    server.calm()
    return server


@pytest.fixture(scope="session")
def azurite() -> Iterator[dict[str, str]]:
    with azure_serving() as found:
        yield found


@pytest.fixture
def azure(azurite: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment leads to a server of Azure's blobs."""
    for name, value in azurite.items():
        monkeypatch.setenv(name, value)
    bucket._client.cache_clear()


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The environment leads to a server of the protocol that clients of Google Cloud speak."""
    with GoogleStorage() as server:
        account = {"gcs_base_url": server.url, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
        (tmp_path / "account.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "account.json"))
        bucket._client.cache_clear()
        yield
    bucket._client.cache_clear()


@pytest.fixture
def failing_s3(s3: S3) -> S3:
    """The server, on which one request in five fails, in every way in which it may."""
    chance = random.Random(0)

    def plan(method: str, path: str, headers: Any) -> Fault:
        if chance.random() > 0.2:
            return ""
        if method == "PUT":
            return chance.choice(("500", "503", "lost", "409"))
        return chance.choice(("500", "503", "reset")) if method == "GET" else "503"

    s3.plan = plan
    return s3
