"""Ways to spoil a store of the bin format."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.stores.published import Published

Spoil = Callable[[Published], None]


class Ragged:
    """The arrays of a token stream, mapped for writing."""

    def __init__(self, published: Published, name: str) -> None:
        folder = published.directory / name / "shard_0000"
        meta = json.loads((folder / "meta.json").read_text())
        self.tokens, self.mask = (
            np.memmap(folder / f"{key}.bin", meta[key]["dtype"], "r+") if key in meta else None for key in ("sequence", "loss_mask")
        )
        self.ends = np.load(published.directory / f"{name}.index" / "ends.npy")

    def span(self, record: int) -> slice:
        """Where a record's tokens are."""
        return slice(int(self.ends[record - 1]) if record else 0, int(self.ends[record]))


def packed(published: Published, key: str) -> npt.NDArray[Any]:
    """`sequence` or `loss_mask` of the packed table, (rows, row length), mapped for writing."""
    folder = published.directory / "sft_packed" / "shard_0000"
    about = json.loads((published.directory / "sft_packed.documents" / "sources.json").read_text())
    return np.memmap(folder / f"{key}.bin", json.loads((folder / "meta.json").read_text())[key]["dtype"], "r+").reshape(
        -1, about["row_len"]
    )


def documents(published: Published, **changes: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> None:
    """Rewrite fields of the packed table's documents."""
    for field, change in changes.items():
        path = published.directory / "sft_packed.documents" / f"{field}.npy"
        old = np.load(path)
        np.save(path, change(old.copy()).astype(old.dtype))


def lines(published: Published, name: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Rewrite the objects of a JSONL file; their number stays."""
    path = published.directory / f"{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    before = len(rows)
    changed = change(rows)
    assert len(changed) == before
    path.write_text("".join(json.dumps(row) + "\n" for row in changed), "utf-8")


def counts(published: Published, **changes: Callable[[Any], Any]) -> None:
    """Rewrite counts of the manifest."""
    manifest = published.manifest
    new = {key: changes[key](value) if key in changes else value for key, value in manifest.counts.items()}
    replace(manifest, counts=new).write(published.directory)


def quarantine_file(published: Published) -> Path:
    """The quarantine beside a store."""
    return published.directory.with_name(published.directory.name + ".quarantine.jsonl")
