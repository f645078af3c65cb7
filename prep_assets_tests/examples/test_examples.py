"""Every script of ``examples/`` runs on stores that are built from the configuration and the samples of the demo."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prep_assets import export
from prep_assets.graph.graph import ASSETS
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.extensions.exports.readers import needs
from prep_assets_tests.graph.workspaces import make, out_of_date

ROOT = Path(__file__).resolve().parents[2]
TOKENIZER = str(ROOT / "configs" / "tokenizer")
RUN = "import runpy, sys; from prep_assets_tests.extensions.exports import readers; {}; runpy.run_path(sys.argv[0], run_name='__main__')"
"""Some trainers' packages are installed without what they do not need here; see `prep_assets_tests.extensions.exports.readers`."""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """What ``prep-assets demo`` builds from, and what the scripts for other families ask for."""
    return Workspace(ROOT / "configs", tmp_path_factory.mktemp("demo") / "stores")


def run(script: str, *arguments: Path | str, prepare: str = "None") -> str:
    """What the script prints."""
    code = RUN.format(prepare).replace("sys.argv[0]", repr(str(ROOT / "examples" / script)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def first(store: Path, stream: str) -> str:
    """The first eight tokens of a table or stream, as scripts print them."""
    from prep_assets import load

    file = store / f"{stream}.h5"
    return str(load(file if file.is_file() else store / stream).fetch(0, 8, "sequence").tolist())


def source(workspace: Workspace, asset: str) -> Path:
    """The store of an asset, built where it is not there yet; of the first domain where it has several."""
    partition = sorted(ASSETS[asset].partitions(workspace))[0]
    for above, each, _ in out_of_date(workspace, ASSETS[asset], partition):
        make(workspace, above, each)
    return make(workspace, ASSETS[asset], partition).directory


PACKAGES = {"read_megatron.py": "megatron", "read_nanotron.py": "datatrove", "read_litdata.py": "litdata", "read_mds.py": "streaming"}
SCRIPTS: list[Any] = [
    pytest.param("read_astrai.py", "sft_packed", "astrai", {}, ["1024"], "None"),
    pytest.param("read_cerebras.py", "sft_packed", "cerebras", {}, [], "None"),
    pytest.param("read_megatron_bridge.py", "sft_packed", "packed_parquet", {}, ["splits/train"], "None"),
    pytest.param("read_train_llm_from_scratch.py", "sft_packed", "tlfs", {}, ["sft_packed.h5"], "None"),
    *(
        pytest.param(*script, marks=pytest.mark.readers)
        for script in (
            ("read_megatron.py", "pretrain_tokens", "megatron", {}, [], "None"),
            ("read_nanotron.py", "pretrain_tokens", "nanotron", {"tokenizer": TOKENIZER}, [], "None"),
            ("read_litdata.py", "pretrain_tokens", "litdata", {"block_size": 65}, ["65"], "None"),
            ("read_mds.py", "sft_packed", "mds", {}, [], "readers.streaming()"),
        )
    ),
]


@pytest.mark.cli
@pytest.mark.parametrize(("script", "asset", "format_", "options", "arguments", "prepare"), SCRIPTS)
def test_the_first_row(
    workspace: Workspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
    asset: str,
    format_: str,
    options: dict[str, Any],
    arguments: list[str],
    prepare: str,
) -> None:
    """It prints how the first row begins, and what a batch has. Those that need a trainer's package run in a process of their own."""
    if script in PACKAGES:
        needs(PACKAGES[script])
    store = source(workspace, asset)
    stream = "docs_train" if asset == "pretrain_tokens" else asset
    out = export(store, format_, tmp_path / "out", stream=stream, **options)
    place, rest = (out / arguments[0], []) if arguments and (out / arguments[0]).exists() else (out, arguments)
    if script in PACKAGES:
        printed = run(script, place, *rest, prepare=prepare)
    else:
        monkeypatch.setattr(sys, "argv", [script, str(place), *rest])
        runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
        printed = capsys.readouterr().out
    assert f"begins with {first(store, stream)}" in printed
    assert re.search(r"shifted|loss \d", printed)


@pytest.mark.cli
@pytest.mark.readers
def test_olmo(workspace: Workspace, tmp_path: Path) -> None:
    """It packs by itself, so its first row is none of ours."""
    needs("olmo_core")
    out = export(source(workspace, "sft_packed"), "olmo", tmp_path / "out", vocab_size=4096)
    printed = run("read_olmo_core.py", out, "4096", prepare="readers.olmo()")
    assert re.search(r"labels \(1, 1024\), \d+ trained", printed)


@pytest.mark.cli
@pytest.mark.readers
def test_verl(workspace: Workspace, tmp_path: Path) -> None:
    needs("verl")
    out = export(source(workspace, "rl_prompts"), "verl", tmp_path / "out", stream="rl_prompts_train", data_source="openai/gsm8k")
    printed = run("read_verl.py", out / "train.parquet", TOKENIZER, prepare="readers.verl('rl_dataset')")
    assert "batch of 4" in printed and "raw_prompt" in printed


@pytest.mark.cli
@pytest.mark.readers
def test_trl(workspace: Workspace, tmp_path: Path) -> None:
    needs("trl")
    out = export(source(workspace, "sft_packed"), "hf_arrow", tmp_path / "out")
    assert re.search(r"loss after two steps: \d", run("trl_sft.py", out, TOKENIZER))
    assert re.search(r"loss after two steps: \d", run("trl_dpo.py", source(workspace, "preferences") / "preferences.jsonl", TOKENIZER))


def test_every_script_is_listed() -> None:
    listed = (ROOT / "examples" / "README.md").read_text("utf-8")
    assert [path.name for path in sorted((ROOT / "examples").glob("*.py")) if path.name not in listed] == []
