"""`prep-assets doctor`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from prep_assets_tests.cli.conftest import CONFIGS, Run

ASKED = ("doctor", "--dataset", CONFIGS / "samples" / "chats.jsonl", "--tokenizer", CONFIGS / "tokenizer", "-n", 20)


def test_labels_that_differ(run: Run) -> None:
    found = run(*ASKED, "--trainer", "torchtune")
    assert found.exit_code == 1
    assert "the trainer itself is not run" in found.stdout
    assert "the header of an answer is trained" in found.stdout
    assert "⟪+<|im_start|>assistant" in found.stdout
    assert "labels are equal on 0 of 20 rows" in found.stdout


def test_equal_labels(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prep_assets.doctor.run.trl_version", lambda: None)
    found = run(*ASKED, "--trainer", "trl")
    assert found.exit_code == 0
    assert "labels are equal on 20 of 20 rows" in found.stdout


def test_json(run: Run) -> None:
    found = run(*ASKED, "--trainer", "open-instruct", "--json", "--show", 0)
    said = json.loads(found.stdout)
    assert (said["compared"], said["equal"], said["shown"], found.exit_code) == (20, 0, [], 1)
    assert {each["trained_by"] for each in said["reasons"]} == {"theirs"}


def test_bad_input(run: Run, tmp_path: Path) -> None:
    assert "did you mean 'axolotl'" in run(*ASKED, "--trainer", "axolotel").stderr
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n', "utf-8")
    found = run("doctor", "--trainer", "verl", "--tokenizer", CONFIGS / "tokenizer", "--dataset", tmp_path / "a.jsonl")
    assert (found.exit_code, "no schema reads" in found.stderr) == (1, True)


def test_nothing_to_compare_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prep_assets.doctor.run.trl_version", lambda: None)
    found = run(*ASKED, "--trainer", "trl", "--template", "chatml")
    assert found.exit_code == 1
    assert "no row could be compared" in found.stderr


def test_code_that_comes_with_a_tokenizer_is_neither_run_nor_asked_about(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers asked on the terminal, and `yes |` ran the folder's Python."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    folder = tmp_path / "tokenizer"
    shutil.copytree(CONFIGS / "tokenizer", folder)
    path = folder / "tokenizer_config.json"
    about = json.loads(path.read_text("utf-8")) if path.exists() else {}
    about |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    path.write_text(json.dumps(about), "utf-8")
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", "utf-8")
    found = run("doctor", "--trainer", "openrlhf", "--dataset", CONFIGS / "samples" / "chats.jsonl", "--tokenizer", folder, "-n", 2)
    assert "is never run" in found.stderr
    assert not (tmp_path / "ran").exists()
