"""verl's Parquet files: RL prompts with what is right, and SFT messages.

RL: ``data_source`` (selects the reward function), ``prompt`` list of {role, content}, ``ability``,
``reward_model`` {style, ground_truth}, ``extra_info`` {split, index}. SFT: ``messages`` list of {role, content}.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError
from prep_assets.exports.registry import Progress, exporter
from prep_assets.stores.lines import Lines


@exporter("verl", Lines)
def verl(
    source: Lines, out: Path, progress: Progress, *, data_source: str | None = None, ability: str = "math", split: str = "train"
) -> None:
    """``<split>.parquet`` of JSONL lines: RL for {prompt, gold}, SFT for {messages}.

    `data_source` must be given for RL: verl raises on a name for which it has no reward function, e.g. ``openai/gsm8k`` has one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = set(next(iter(source)))
    if "messages" not in fields and not {"prompt", "gold"} <= fields:
        raise ConfigError(f"{source.path} has the fields {sorted(fields)}; verl needs messages (SFT), or prompt and gold (RL)")
    if "messages" not in fields and data_source is None:
        raise ConfigError("export 'verl' needs data_source for RL prompts, the name that selects the reward function, e.g. 'openai/gsm8k'")
    lines, writer, done = enumerate(source), None, 0
    while batch := list(islice(lines, 10_000)):
        found = [_sft(row) if "messages" in fields else _rl(row, index, str(data_source), ability, split) for index, row in batch]
        table = pa.Table.from_pylist(found, None if writer is None else writer.schema)
        writer = writer or pq.ParquetWriter(out / f"{split}.parquet", table.schema, compression="zstd")
        writer.write_table(table)
        done += len(batch)
        progress(done, len(source))
    if writer is not None:
        writer.close()


def _rl(row: dict[str, Any], index: int, data_source: str, ability: str, split: str) -> dict[str, Any]:
    prompt = row["prompt"]
    return {
        "data_source": data_source,
        "prompt": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt,
        "ability": ability,
        "reward_model": {"style": "rule", "ground_truth": _text(row["gold"])},
        "extra_info": {"split": split, "index": index},
    }


def _text(gold: str | float) -> str:
    """The gold as verl's reward functions compare it: text, a whole number without ``.0``."""
    if isinstance(gold, str):
        return gold
    return str(int(gold)) if float(gold).is_integer() else repr(gold)


def _sft(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("messages", "tools", "enable_thinking") if key in row}
