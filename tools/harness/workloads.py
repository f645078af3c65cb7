"""What the harnesses disturb: everything that puts a store in its place, in every format, and what an asset family does."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import StoreError
from prep_assets.extensions.preprocess.astrai_run import write_h5_shard
from prep_assets.extensions.rl.scored import Scored, group_columns, group_dtypes
from prep_assets.stores.files import os_errors_in_words
from prep_assets.stores.guards import Guards
from prep_assets.stores.images import Image, ImageBlock
from prep_assets.stores.manifest import Result
from prep_assets.stores.packed import DOCUMENT_FIELDS, write_documents
from prep_assets.stores.published import Draft, Place
from prep_assets.stores.table import GROUPS, LINES, PACKED, TOKENS
from prep_assets.stores.verification import whole_folder, write_bytes
from prep_assets.stores.version_folders import Published, staging
from prep_assets.stores.writer import TableWriter
from prep_assets.workers.shards import Effort, Plan, Shard, ShardResult, Work, carried_out, carry_out, key_of

OLD, NEW = "a" * 64, "b" * 64
Payload = Callable[[Path, int], None]


def tokens(storage: str, times: int = 1) -> Payload:
    """A store of tokens, so many times as large."""

    def write(payload: Path, seed: int) -> None:
        ids = np.random.default_rng(seed).integers(0, 1000, 3000 * times)
        lengths = np.array([1000, 2000]) * times
        images = ImageBlock(np.array([1]), np.array([2]), np.array([3]), [Image("a.png", None)])
        with TableWriter(
            payload, "train", TOKENS, {"tokens": "int32", "loss_mask": "uint8"}, storage=storage, max_tokens_per_shard=2000 * times
        ) as out:  # type: ignore[arg-type]
            for _ in range(2):
                out.append({"tokens": ids, "loss_mask": ids % 2}, lengths, [0, 0], [1, 2], images=images)

    return write


def _packed(storage: str) -> Payload:
    def write(payload: Path, seed: int) -> None:
        ids = np.random.default_rng(seed).integers(0, 1000, (4, 256))
        dtypes = {"tokens": "int32", "loss_mask": "int8", **({"position_ids": "int32"} if storage == "bin" else {})}
        with TableWriter(payload, "table", PACKED, dtypes, storage=storage, rows=(8, 256), max_tokens_per_shard=1024) as out:  # type: ignore[arg-type]
            for _ in range(2):
                out.append({"tokens": ids, "loss_mask": ids % 2, "position_ids": ids})
        fields = {field: np.zeros(8, np.int64) for field in DOCUMENT_FIELDS}
        write_documents(payload, "table", {**fields, "row": np.arange(8), "length": np.full(8, 256)}, ("a",), 256)

    return write


def _lines(payload: Path, seed: int) -> None:
    with TableWriter(payload, "rows", LINES, domains=("a",), shuffle_seed=seed) as out:
        for row in range(50):
            out.append_object({"text": f"{seed} {row}"}, 0, row)


def _groups(payload: Path, seed: int) -> None:
    ids, mask = np.arange(seed, seed + 9), np.ones(9, np.uint8)
    with TableWriter(payload, "", GROUPS, group_dtypes("int32"), domains=["a"]) as out:
        out.append(*group_columns([Scored(ids, (ids, ids), (mask, mask), np.array([0.5, 1], np.float32), 0, 0, row) for row in range(3)]))


def _shard(payload: Path, seed: int) -> None:
    values = np.arange(seed, seed + 500)
    write_h5_shard(
        payload / "shard_0.h5", {"sequence": "int32"}, {"sequence": 500}, lambda _: [values], {"sequence": {"offsets": [0, 500]}}
    )


FORMATS: Mapping[str, Payload] = {
    **{f"tokens {storage}": tokens(storage) for storage in ("bin", "h5")},
    **{f"packed {storage}": _packed(storage) for storage in ("bin", "h5")},
    "lines": _lines,
    "groups": _groups,
    "shard h5": _shard,
}


class InTurn:
    """A runner whose shards are carried out one after the other in this process, so that a call's number says where it is struck."""

    elsewhere, size = False, 2

    def __init__(self) -> None:
        self.effort = Effort()

    def run_shards(self, plan: Plan, work: Work) -> Generator[ShardResult, None, None]:
        for shard in plan.shards:
            yield carry_out(shard, work, plan)


def _part(task: int, folder: Path) -> dict[str, int]:
    write_bytes(folder / "rows", f"{task} ".encode() * 2000)
    return {"rows": 2000}


def in_shards(payload: Path, seed: int) -> None:
    """A store that is joined of shards."""
    plan = Plan([Shard(number, f"part {number}", 1, seed + number) for number in range(3)], staging(payload) / key_of(_part))
    for result in carried_out(InTurn(), plan, _part):
        with Guards.of_work(result.folder, result.files).open(result.folder / "rows") as rows:
            write_bytes(payload / f"part_{result.shard.number}", rows.read())


PAYLOADS: Mapping[str, Payload] = {**FORMATS, "in shards": in_shards}


def publish(
    place: Place, key: str, payload: Payload, *, seed: int = 1, accept: bool = True, again: bool = False, draft: bool = False
) -> Published:
    """Write, prove and publish a store, with a refused record beside it."""

    def write(folder: Path, quarantine: Path) -> Draft:
        payload(folder, seed)
        with Quarantine(quarantine) as refused:
            refused.add("a:1", "schema", "empty", "is empty", {})
        return Draft({"read": 2, "kept": 1}, {}, ())

    published = place.propose(key, write, config_key=key, recipe={}, again=again, draft=draft)
    if accept:
        place.accept(published, {"sound": Result(True, "")})
    return published


@dataclass(frozen=True)
class Workload:
    """What is disturbed.

    Attributes:
        name: how messages call it.
        before: brings the place to where it begins.
        work: what is killed, and done again.
        asset, partition: whose place it is.
    """

    name: str
    before: Callable[[Place], None]
    work: Callable[[Place], None]
    asset: str = "asset"
    partition: str = "part"


def _damage(place: Place) -> None:
    current = place.current()
    assert current is not None
    path = next(
        path for path in sorted(current.directory.rglob("*")) if path.is_file() and path.name != "manifest.json" and path.stat().st_size
    )
    path.write_bytes(b"x" + path.read_bytes()[1:])


def set_aside(place: Place) -> None:
    """Set the first version of a store aside, as if damage had been found in it, where it is current; others stay."""
    now = place.pointers
    version = now.damaged or now.current
    if version and not version.endswith("-2"):
        with os_errors_in_words(place.directory):
            place.set_aside(place.backend.published(version), {"sound": Result(False, "bytes 0 to 9 are not what they were")})


def _export(place: Place) -> None:
    target = place.directory / "export"
    with whole_folder(target, lambda: None, busy=StoreError("busy"), replace=True) as work:
        for name in ("a", "b"):
            write_bytes(work / name, name.encode() * 3000)


def workloads() -> list[Workload]:
    """All of them, in a fixed order."""
    found = [
        Workload(f"first: {name}", lambda place: None, lambda place, each=payload: publish(place, NEW, each) and None)
        for name, payload in PAYLOADS.items()
    ]
    plain = FORMATS["lines"]

    def old(place: Place) -> None:
        publish(place, OLD, plain)

    def unused(place: Place) -> None:
        for key in ("c" * 64, "d" * 64, OLD):
            publish(place, key, plain)

    def damaged(place: Place) -> None:
        old(place)
        _damage(place)

    def aside(place: Place) -> None:
        old(place)
        set_aside(place)

    def candidate(place: Place) -> None:
        old(place)
        publish(place, NEW, plain, accept=False)

    found += [
        Workload(f"replace: {name}", old, lambda place, each=payload: publish(place, NEW, each, seed=2) and None)
        for name, payload in PAYLOADS.items()
    ]
    found += [
        Workload("candidate", old, lambda place: publish(place, NEW, plain, accept=False) and None),
        Workload("candidate to current", candidate, lambda place: publish(place, NEW, plain) and None),
        Workload("draft", old, lambda place: publish(place, NEW, plain, draft=True, accept=False) and None),
        Workload("repair", damaged, lambda place: publish(place, OLD, plain) and None),
        Workload("set aside", old, set_aside),
        Workload("set aside, then mended", aside, lambda place: publish(place, OLD, plain) and None),
        Workload("build again, equal", old, lambda place: publish(place, OLD, plain, again=True) and None),
        Workload("reuse", old, lambda place: publish(place, OLD, plain) and None),
        Workload("prune", unused, lambda place: place.remove_unused() and None),
        Workload("export", lambda place: _export(place), _export),
    ]
    return found
