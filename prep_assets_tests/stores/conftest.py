"""A place for stores, and how the tests of stores fill it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from prep_assets.stores.published import Draft, Place, Published

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
        audit: Callable[[Path], None] = lambda payload: None,
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
        published = where.propose(key, write, config_key=config_key or key, recipe=recipe, audit=audit, draft=draft, again=again)
        if accept:
            where.accept(published, {})
        return published

    return build


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Every file below a folder, by relative path."""
    return lambda folder: {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
