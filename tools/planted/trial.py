"""Builds a workspace with all checks and says what its stores are; compares them with those of the clean build."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

from planted.candidates import PACKAGE

IDLE = 300
"""Calls of a function after which it is not traced any more, as none of them came to a line that was not seen before."""
Stores = dict[str, dict[str, Any]]
"""What each store is, by its label: hashes of files, of the quarantine and of the manifest, and what explains them."""


class Stopped(Exception):
    """A build published not all of its stores: `args` are what stopped it, and what it says."""


def stores_of(configs: Path, folder: Path, *, checks: bool = True, sharded: bool = False) -> Stores:
    """Build every store of a workspace in a new folder.

    Args:
        checks: run the checks.
        sharded: two workers build small shards.

    Raises:
        Stopped: something was raised, a check failed, or a store is not there.
    """
    from prep_assets.engine import execute, plan
    from prep_assets.engine.events import Accepted, Blocked, Skipped
    from prep_assets.graph.graph import assets_of
    from prep_assets.pipeline.workspace import Workspace
    from prep_assets.text import agreement

    # transformers takes longer to import than all else takes, and what it makes of a tokenizer is remembered from build to build
    agreement._compare_in_new_process = lambda name, path: agreement.Agreement("is not compared")
    if sharded:
        _make_shards_small()
    if not checks:
        execute.verdicts_of = lambda *_: iter(())  # type: ignore[assignment]
    found: Stores = {}
    try:
        workspace = Workspace(configs, folder, workers=2 if sharded else 1)
        stores = [(asset, partition) for asset in assets_of(workspace).values() for partition in asset.partitions(workspace)]
        for event in execute.run(workspace, plan(workspace, stores)):
            if isinstance(event, Blocked | Skipped):
                verdicts = event.verdicts if isinstance(event, Blocked) else {}
                failed = [name for name, verdict in verdicts.items() if not verdict.passed]
                error = getattr(event, "error", None)
                by = ", ".join(failed) or (type(error).__name__ if error else "skipped")
                raise Stopped(f"{event.step.label}: {by}", getattr(event, "reason", "")[-600:])
            if isinstance(event, Accepted):
                found[event.step.label] = _store(event.published)
    except Stopped:
        raise
    except Exception as error:
        raise Stopped(type(error).__name__, str(error)[:600]) from error
    return found


def _make_shards_small() -> None:
    from prep_assets.data import tables
    from prep_assets.engine import execute
    from prep_assets.graph import raw
    from prep_assets.pipeline import tokens

    tables.SHARD_BYTES = 8000
    tokens.FEWEST = raw.FEWEST = 2
    execute.LARGE = 1


def _store(published: Any) -> dict[str, Any]:
    """What a store is; its files are read and hashed without the package."""
    folder = Path(published.directory).resolve()
    files = {path.relative_to(folder).as_posix(): _digest(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    quarantine = folder.with_name(folder.name + ".quarantine.jsonl")
    rejected = [json.loads(line) for line in quarantine.read_text("utf-8").splitlines()] if quarantine.is_file() else []
    files.pop("manifest.json")
    return {
        "files": files,
        "quarantine": _digest(quarantine) if quarantine.is_file() else "",
        "rejected": dict(Counter(f"{row['stage']}/{row['reason']}" for row in rejected)),
        "counts": manifest.get("counts", {}),
        "manifest": {name: _digest_of(value) for name, value in manifest.items() if name not in ("files", "quarantine", "seal")},
    }


def _digest_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def difference(clean: Stores, stores: Stores) -> tuple[str, dict[str, Any]]:
    """What kind of difference there is between the stores of two builds, empty if there is none; and what differs."""
    if missing := sorted({*clean} ^ {*stores}):
        return "stores", {"stores": missing}
    said: dict[str, Any] = {}
    kinds: list[str] = []
    for label, store in stores.items():
        true = clean[label]
        files = [name for name in sorted({*store["files"], *true["files"]}) if store["files"].get(name) != true["files"].get(name)]
        quarantine = store["quarantine"] != true["quarantine"]
        counts = dict(_numbers(true["counts"], store["counts"]))
        fields = sorted(
            name for name in {*store["manifest"], *true["manifest"]} if store["manifest"].get(name) != true["manifest"].get(name)
        )
        if not files and not quarantine and not fields:
            continue
        kept, tokens, trained = (
            next((two for path, two in counts.items() if path == name), None) for name in ("kept", "tokens", "trained_tokens")
        )
        if not files and not quarantine:
            kinds.append("counts" if {"counts", "metrics"} & {*fields} else "recipe")
        elif label.startswith("sft_template"):
            kinds.append("certificate")
        elif kept:
            kinds.append("rows lost" if (kept[1] or 0) < (kept[0] or 0) else "rows more")
        elif not files:
            kinds.append("quarantine")
        elif tokens:
            kinds.append("tokens")
        elif trained:
            kinds.append("weights")
        else:
            kinds.append("other bytes")
        rejected = {} if true["rejected"] == store["rejected"] else {"rejected": [true["rejected"], store["rejected"]]}
        said[label] = {
            "files": files[:6],
            **({"quarantine": True} if quarantine else {}),
            **rejected,
            "counts": dict([*counts.items()][:12]),
        }
    order = ("rows lost", "rows more", "tokens", "weights", "other bytes", "certificate", "quarantine", "counts", "recipe")
    return next((kind for kind in order if kind in kinds), ""), said


def _numbers(true: Any, other: Any, path: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Paths of two counts that differ, and both values."""
    if isinstance(true, Mapping) and isinstance(other, Mapping):
        for name in {**true, **other}:
            yield from _numbers(true.get(name), other.get(name), f"{path}/{name}" if path else name)
    elif true != other:
        yield path, (true, other)


@contextmanager
def traced(lines: dict[str, set[int]]) -> Iterator[None]:
    """Note the lines of the package that are run, by file."""
    package, looked_at = f"{PACKAGE}/", dict[CodeType, list[int]]()

    def called(frame: Any, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(package):
            return None
        idle = looked_at.setdefault(code, [0])
        if idle[0] > IDLE:
            return None
        idle[0] += 1
        found = lines.setdefault(code.co_filename, set())

        def local(frame: Any, event: str, argument: Any) -> Any:
            if event == "line" and frame.f_lineno not in found:
                found.add(frame.f_lineno)
                idle[0] = 0
            return local

        return local

    threading.settrace(called)
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
