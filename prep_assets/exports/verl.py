"""verl's Parquet files: RL prompts with what is right, and SFT messages.

RL: ``data_source`` (selects the reward function: each row's verifier), ``prompt`` list of {role, content}, ``ability``,
``reward_model`` {style, ground_truth}, ``extra_info`` {split, index}. SFT: ``messages`` list of {role, content}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError
from prep_assets.exports.arrow import save_parquet
from prep_assets.exports.readable import Options, Readable, Source, parquet, without_nulls
from prep_assets.exports.registry import FileName, Progress, exporter
from prep_assets.stores.lines import Lines

READ_BY = "verl"
LINES = {
    "": (
        'data.train_files="{folder}/{split}.parquet"',
        "data.prompt_key=prompt  # data.messages_key=messages for SFT",
        "data.max_prompt_length=1024",
    )
}


ABILITY = "math"
NUMBER = "number"
"""The verifier of rows that name none."""
MODEL = "model"
"""The verifier of rows that a reward model judges."""


@exporter("verl", Lines, kind="parquet")
def verl(
    source: Lines,
    out: Path,
    progress: Progress,
    *,
    data_source: str | dict[str, str] | None = None,
    ability: str = ABILITY,
    split: FileName = "train",
) -> None:
    """``<split>.parquet`` of JSONL lines: RL for {prompt, gold}, SFT for {messages}.

    `data_source` is the name for rows whose verifier is ``number``, e.g. ``openai/gsm8k``, or a mapping from verifier to name; a row with
    another verifier that no mapping names keeps its verifier as ``data_source``. verl raises on a name for which it has no reward function.
    """
    sft = "messages" in next(iter(source))
    if sft and (data_source is not None or ability != ABILITY):
        raise ConfigError(
            f"export 'verl': data_source and ability mean nothing for SFT messages, which {source.path} holds. Leave them out"
        )

    def rows() -> Iterator[dict[str, Any]]:
        for index, row in enumerate(source):
            (_check_sft if sft else _check_rl)(row, index + 1, source.path)
            if sft:
                yield _sft(row)
            else:
                yield _rl(row, index, _source_of(row, data_source, index + 1, source.path), ability, split)

    save_parquet(out / f"{split}.parquet", rows, source, progress)


def _check_sft(row: dict[str, Any], line: int, path: Path) -> None:
    if not isinstance(row.get("messages"), list):
        raise ConfigError(
            f"{path} line {line:,} has no list of messages; its fields: {sorted(row)}. verl reads messages in every line, as in line 1"
        )


def _check_rl(row: dict[str, Any], line: int, path: Path) -> None:
    if not {"prompt", "gold"} <= set(row):
        raise ConfigError(
            f"{path} line {line:,} has the fields {sorted(row)}; verl needs messages (SFT), or prompt and gold (RL), in every line"
        )
    if not {"tools", "chat_template_kwargs"}.isdisjoint(row):
        raise ConfigError(
            f"{path} line {line:,} has tools or variables of a chat template. verl takes both from its own configuration "
            "(multi_turn.tool_config_path, data.apply_chat_template_kwargs), not from rows; keep such rows in a family of their own"
        )
    if isinstance(row["gold"], bool) or not isinstance(row["gold"], str | int | float):
        raise ConfigError(f"{path} line {line:,}: the gold is {row['gold']!r:.80}, verl compares text or numbers")


def _source_of(row: dict[str, Any], data_source: str | Mapping[str, str] | None, line: int, path: Path) -> str:
    """The name that selects the reward function of a row."""
    verifier = str(row.get("verifier", NUMBER))
    if isinstance(data_source, str) and verifier == NUMBER:
        return data_source
    if isinstance(data_source, Mapping) and verifier in data_source:
        return data_source[verifier]
    if verifier == NUMBER or isinstance(data_source, Mapping):
        named = f"names none for the verifier {verifier!r}" if data_source else "is needed for rows without a verifier of their own"
        raise ConfigError(
            f"{path} line {line:,}: data_source {named}. It is the name that selects verl's reward function, e.g. "
            f"data_source: {{{verifier}: openai/gsm8k}}"
        )
    return verifier


def _rl(row: dict[str, Any], index: int, data_source: str, ability: str, split: str) -> dict[str, Any]:
    prompt = row["prompt"]
    return {
        "data_source": data_source,
        "prompt": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt,
        "ability": ability,
        "reward_model": {"style": "model" if row.get("verifier") == MODEL else "rule", "ground_truth": _text(row["gold"])},
        "extra_info": {"split": split, "index": index},
    }


def _text(gold: str | float) -> str:
    """The gold as verl's reward functions compare it: text, a whole number without ``.0``."""
    if isinstance(gold, str):
        return gold
    return str(int(gold)) if float(gold).is_integer() else repr(gold)


def _sft(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("messages", "tools", "enable_thinking") if key in row}


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
