"""`prep-assets launch-snippet`."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from prep_assets.assets.workspace import Workspace
from prep_assets.cli.launch_snippet import TRAINERS
from prep_assets_tests.cli.conftest import Run


@pytest.mark.parametrize("trainer", sorted(TRAINERS))
def test_the_command_writes_what_the_lines_open(built: Workspace, run: Run, tmp_path: Path, trainer: str) -> None:
    said = run("launch-snippet", "--trainer", trainer, "--out", tmp_path / "out")
    assert said.exit_code == 0, said.stderr
    assert not (tmp_path / "out").exists()
    head, _, lines = said.stdout.partition(" reads it\n")
    command = next(line for line in head.splitlines() if line.startswith("prep-assets export "))
    # the sample is shorter than one block of LitGPT's
    exported = run(*shlex.split(command.replace("block_size=2049", "block_size=65"))[1:])
    assert exported.exit_code == 0, exported.stderr
    assert lines.strip() and lines.strip().replace("2049", "65") in exported.stdout
    assert str(tmp_path / "out") in lines


def test_a_padded_vocabulary_is_told(built: Workspace, run: Run, tmp_path: Path) -> None:
    """Training on ids of the tokenizer alone would make a model of another shape."""
    config = built.configs / "pretrain.yaml"
    whole = config.read_text("utf-8")
    try:
        config.write_text(whole + "pad_vocab_to: 50304\n", "utf-8")
        said = run("launch-snippet", "--trainer", "nanotron", "--out", tmp_path / "out").stdout
    finally:
        config.write_text(whole, "utf-8")
    assert "the model has 50,304 ids (pad_vocab_to), the tokenizer" in said and "vocab_size: 50304" in said


def test_bad_input(built: Workspace, run: Run) -> None:
    assert "did you mean 'axolotl'" in run("launch-snippet", "--trainer", "axolotel").stderr
    assert run("launch-snippet", "--trainer", "verl", "sft_packed").exit_code == 1
