"""JSON lines for FlagEmbedding: ``{query, pos, neg}``, with ``pos_scores, neg_scores`` and ``prompt`` where a row has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError
from prep_assets.exports.readable import Options, Readable, Source
from prep_assets.exports.registry import FileName, Progress, exporter
from prep_assets.stores.lines import Lines
from prep_assets.stores.verification import WrittenFile

READ_BY = "FlagEmbedding"
LINES = {
    "": (
        "torchrun --nproc_per_node 1 \\",
        "  -m FlagEmbedding.finetune.embedder.encoder_only.base \\",
        "  --model_name_or_path MODEL --output_dir OUT \\",
        "  --train_data {folder}/{split}.jsonl --train_group_size 8",
    )
}


NAMES = {
    "query": "query",
    "positives": "pos",
    "negatives": "neg",
    "positive_scores": "pos_scores",
    "negative_scores": "neg_scores",
    "instruction": "prompt",
}
"""Field of a row → its name there."""


@exporter("flag_embedding", Lines, kind="json")
def flag_embedding(source: Lines, out: Path, progress: Progress, *, split: FileName = "train") -> None:
    """``<split>.jsonl`` of contrastive rows. Each needs a negative, since the trainer draws some from every row."""
    present: dict[str, bool] = {}
    with WrittenFile(out / f"{split}.jsonl") as file:
        for line, row in enumerate(source, 1):
            where = f"{source.path} line {line:,}"
            if not row.get("negatives"):
                raise ConfigError(
                    f"{where} has no negative text, and FlagEmbedding draws some from every row. Mine negatives first, or export to sentence_transformers"
                )
            for name, has, why in (
                ("scores", {"positive_scores", "negative_scores"} <= set(row), "distillation reads them in every row or in none"),
                ("an instruction", "instruction" in row, "the trainer writes None before the queries of rows without one"),
            ):
                if present.setdefault(name, has) != has:
                    raise ConfigError(f"{where} {'has' if has else 'lacks'} {name}, others do not agree; {why}")
            file.write(json.dumps({name: row[key] for key, name in NAMES.items() if key in row}, ensure_ascii=False).encode() + b"\n")
            progress(line, len(source))


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
