"""How each trainer opens an export: a few lines to copy, from the `__init__.py` of its format."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prep_assets.tokenization.sentences import STARTS

_TRL_TRAINERS: Mapping[str, str] = {
    "unpaired": "KTOTrainer(model=model",
    "rl_prompts": "GRPOTrainer(model=model, reward_funcs=reward",
    "arithmetic_prompts": "GRPOTrainer(model=model, reward_funcs=reward",
}
"""TRL's trainer for a JSONL file, by how its name starts; `DPOTrainer` for any other."""


def read_by(format: str) -> str:
    """The trainers that read a format."""
    trainers: str = importlib.import_module(f"prep_assets.exports.{format}").READ_BY
    return trainers


def opening(format: str, folder: Path, source: object, options: Mapping[str, Any]) -> tuple[str, str]:
    """Who reads the export in `folder`, and the lines that open it there.

    In a format, `LINES` and `READERS` have an entry for each ``[<layout>] [<kind of source>]``; the most precise one that fits is used.

    Args:
        source: what was exported.
        options: every option that it was exported with.
    """
    found = importlib.import_module(f"prep_assets.exports.{format}")
    kind, layout = type(source).__name__, options.get("layout") or ""
    keys = [*([f"{layout} {kind}", layout] if layout else []), kind, ""]
    row_len = getattr(source, "row_len", 2048)
    own = {"PackedStore": "sft_packed", "TokenStore": "pile_train"}.get(kind) or Path(getattr(source, "path", "")).stem
    more = {
        "trl_trainer": next((call for start, call in _TRL_TRAINERS.items() if own.startswith(start)), "DPOTrainer(model=model"),
        "folder": folder.as_posix(),
        "level": "sentence" if STARTS in getattr(source, "arrays", {}) else "document",
        "row_len": row_len,
        "neat_len": row_len + 1,
        "neat_pack": " --neat-pack" if options.get("neat") else "",
        "file": options.get("name") or own,
    }
    lines = next(found.LINES[key] for key in keys if key in found.LINES)
    readers: Mapping[str, str] = getattr(found, "READERS", {})
    trainer = next((readers[key] for key in keys if key in readers), found.READ_BY)
    return trainer, "\n".join(lines).format(**{**options, **more})
