"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prep_assets.exports.readable import Options, Readable
from prep_assets.exports.source import Source


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    found = [json.loads(line) for line in (folder / f"{options['split']}.jsonl").read_text("utf-8").split("\n") if line]

    def expected(line: dict[str, Any], number: int) -> dict[str, Any]:
        renamed = {"query": line["query"], "pos": line["positives"], "neg": line["negatives"]}
        if "positive_scores" in line:
            renamed["pos_scores"] = line["positive_scores"]
        if "negative_scores" in line:
            renamed["neg_scores"] = line["negative_scores"]
        return renamed | ({"prompt": line["instruction"]} if "instruction" in line else {})

    return Readable(len(found), lambda number: found[number], expected=expected)
