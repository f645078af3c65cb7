"""Ways to spoil a store of the bin format."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.graph.graph import EVERY
from prep_assets.stores.version_folders import Published

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


# -- whole records ----------------------------------------------------------------------------------------------------------------------


@dataclass
class Stored:
    """One record of a store: its per-token arrays or its line, and where it came from."""

    content: dict[str, Any]
    origin: dict[str, int]


def records(published: Published, name: str, change: Callable[[list[Stored]], list[Stored]]) -> None:
    """Rewrite the records of a token stream or of a JSONL file."""
    path = published.directory / f"{name}.jsonl"
    index = published.directory / f"{name}.index"
    if path.is_file():
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        fields = ("source", "file", "row")
    else:
        folder, ends = published.directory / name / "shard_0000", np.load(index / "ends.npy")
        meta = json.loads((folder / "meta.json").read_text())
        arrays = {key: np.split(np.fromfile(folder / f"{key}.bin", meta[key]["dtype"]), ends[:-1]) for key in meta}
        rows = [{key: parts[number] for key, parts in arrays.items()} for number in range(len(ends))]
        fields = ("file", "row", *(["source"] if (index / "source.npy").is_file() else []))
    origin = {field: np.load(index / f"{field}.npy") for field in fields}
    changed = change([Stored(row, {field: int(origin[field][at]) for field in fields}) for at, row in enumerate(rows)])
    for field in fields:
        np.save(index / f"{field}.npy", np.array([record.origin[field] for record in changed], origin[field].dtype))
    if path.is_file():
        path.write_text("".join(json.dumps(record.content) + "\n" for record in changed), "utf-8")
        return
    for key, entry in meta.items():
        values = np.concatenate([record.content[key] for record in changed]).astype(entry["dtype"])
        values.tofile(folder / f"{key}.bin")
        entry["shape"] = [len(values)]
        np.save(index / "ends.npy", np.cumsum([len(record.content[key]) for record in changed]))
    (folder / "meta.json").write_text(json.dumps(meta))


def quarantine(published: Published, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Rewrite the quarantine, and the counts of it and of what is kept, so that the books balance."""
    path = quarantine_file(published)
    before = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []
    after = change([dict(line) for line in before])
    path.write_text("".join(json.dumps(line) + "\n" for line in after), "utf-8")
    refused: dict[str, int] = {}
    for line in after:
        refused[f"{line['stage']}/{line['reason']}"] = refused.get(f"{line['stage']}/{line['reason']}", 0) + 1
    counts(published, refused=lambda _: refused, kept=lambda kept: kept + len(before) - len(after))


DOMAINS = {"pretrain": "docs", "sft": "chats", "preference": "hh", "rl": "gsm8k", "eval": "bench"}
"""Which store of a family's assets is spoiled, if not that of ``questions``."""


def domain_of(asset: str) -> str:
    """The partition that is spoiled; empty if the asset has none."""
    return (
        ("scored" if asset == "rl_groups_by_domain" else DOMAINS.get(EVERY[asset].family, "questions")) if EVERY[asset].partitioned else ""
    )


@dataclass(frozen=True)
class Mutation:
    """A corruption and the check that must see it."""

    name: str
    asset: str
    check: str
    spoil: Spoil
    partition: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "partition", self.partition or domain_of(self.asset))
