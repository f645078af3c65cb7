"""verl's Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from prep_assets import export
from prep_assets.errors import ConfigError
from prep_assets.extensions.exports.compared import compare
from prep_assets.stores.table import open_table
from prep_assets_tests.extensions.exports.conftest import write_lines


@pytest.mark.parametrize(("gold", "truth"), [(72.0, "72"), (-3.0, "-3"), (0.5, "0.5"), ("2*x", "2*x"), (12345678.0, "12345678")])
def test_rl(gold: Any, truth: str, tmp_path: Path) -> None:
    rows = [{"prompt": "What?", "gold": gold}, {"prompt": [{"role": "system", "content": "s"}], "gold": gold}]
    out = export(write_lines(tmp_path / "l", "rl_prompts_train", rows), "verl", tmp_path / "out", data_source="openai/gsm8k")
    found = pq.read_table(out / "train.parquet").to_pylist()
    common = {"data_source": "openai/gsm8k", "ability": "math", "reward_model": {"style": "rule", "ground_truth": truth}}
    assert found == [
        {**common, "prompt": [{"role": "user", "content": "What?"}], "extra_info": {"split": "train", "index": 0}},
        {**common, "prompt": [{"role": "system", "content": "s"}], "extra_info": {"split": "train", "index": 1}},
    ]


def test_a_gold_has_the_digits_of_its_source(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a?", "gold": 5e-05, "gold_text": "0.00005"},
        {"prompt": "b?", "gold": 2.5, "gold_text": "2.50"},
        {"prompt": "c?", "gold": 2.5},
    ]
    lines, options = write_lines(tmp_path / "l", "rl_prompts_train", rows), {"data_source": "d", "ability": "math", "split": "train"}
    found = pq.read_table(export(lines, "verl", tmp_path / "out", data_source="d") / "train.parquet").to_pylist()
    assert [row["reward_model"]["ground_truth"] for row in found] == ["0.00005", "2.50", "2.5"]
    assert compare(tmp_path / "out", open_table(lines), "verl", options).passed
    changed = write_lines(tmp_path / "m", "rl_prompts_train", [{**rows[0], "gold_text": "0.000050"}, *rows[1:]])
    assert not compare(tmp_path / "out", open_table(changed), "verl", options).passed


def test_sft(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "source": "x"}]
    out = export(write_lines(tmp_path / "l", "chats", rows), "verl", tmp_path / "out", split="val")
    assert pq.read_table(out / "val.parquet").to_pylist() == [{"messages": rows[0]["messages"]}]


@pytest.mark.parametrize("more", [{"tools": "[]"}, {"chat_template_kwargs": {"enable_thinking": False}}])
def test_what_verl_takes_from_its_configuration_is_not_dropped(more: dict[str, Any], tmp_path: Path) -> None:
    rows = [{"prompt": "p", "gold": 1.0}, {"prompt": "q", "gold": 1.0, **more}]
    with pytest.raises(ConfigError, match=r"line 2 has tools or variables .*tool_config_path"):
        export(write_lines(tmp_path / "a", "x", rows), "verl", tmp_path / "out", data_source="d")


def test_each_row_keeps_its_verifier(tmp_path: Path) -> None:
    """Every row was given one `data_source`, so code was judged as arithmetic."""
    rows = [
        {"prompt": "1 + 1?", "gold": 2.0},
        {"prompt": "x + x?", "gold": "2*x", "verifier": "math"},
        {"prompt": "A poem.", "gold": "nice", "verifier": "model"},
    ]
    lines = write_lines(tmp_path / "l", "rl_prompts_train", rows)
    found = pq.read_table(export(lines, "verl", tmp_path / "a", data_source="openai/gsm8k") / "train.parquet").to_pylist()
    assert [row["data_source"] for row in found] == ["openai/gsm8k", "math", "model"]
    assert [row["reward_model"]["style"] for row in found] == ["rule", "rule", "model"]
    assert compare(tmp_path / "a", open_table(lines), "verl", {"data_source": "openai/gsm8k", "ability": "math", "split": "train"}).passed
    names = {"number": "openai/gsm8k", "math": "lighteval/MATH", "model": "judge"}
    options = {"data_source": names, "ability": "math", "split": "train"}
    found = pq.read_table(export(lines, "verl", tmp_path / "b", data_source=names) / "train.parquet").to_pylist()
    assert [row["data_source"] for row in found] == list(names.values())
    assert compare(tmp_path / "b", open_table(lines), "verl", options).passed
    assert not compare(tmp_path / "a", open_table(lines), "verl", options).passed
    with pytest.raises(ConfigError, match="line 1: data_source is needed for rows without a verifier"):
        export(lines, "verl", tmp_path / "c")
    del names["math"]
    with pytest.raises(ConfigError, match="line 2: data_source names none for the verifier 'math'"):
        export(lines, "verl", tmp_path / "c", data_source=names)


def test_what_rl_needs_means_nothing_for_sft(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}]
    with pytest.raises(ConfigError, match="have no effect for SFT messages"):
        export(write_lines(tmp_path / "l", "chats", rows), "verl", tmp_path / "out", ability="code")
