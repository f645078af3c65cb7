"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets.exports.readable import Options, Readable, parquet, without_nulls
from prep_assets.exports.source import Source


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    table = parquet([folder / f"{options['split']}.parquet"])

    def expected(line: dict[str, Any], number: int) -> Any:
        if "messages" in line:
            return without_nulls({name: line[name] for name in ("messages", "tools", "enable_thinking") if name in line})
        prompt, gold = line["prompt"], line["gold"]
        named, verifier = options["data_source"], line.get("verifier")
        if isinstance(named, dict):
            named = named[verifier or "number"]
        elif verifier not in (None, "number"):
            named = verifier
        truth = f"{gold:.0f}" if isinstance(gold, int | float) and gold == round(gold) else str(gold)
        return {
            "data_source": named,
            "prompt": [{"content": prompt, "role": "user"}] if isinstance(prompt, str) else without_nulls(prompt),
            "ability": options["ability"],
            "reward_model": {"ground_truth": truth, "style": {"model": "model"}.get(verifier or "", "rule")},
            "extra_info": {"index": number, "split": options["split"]},
        }

    return Readable(len(table), lambda number: without_nulls(table.slice(number, 1).to_pylist()[0]), expected=expected)
