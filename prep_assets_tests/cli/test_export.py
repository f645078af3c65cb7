"""`prep-assets export`."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import yaml

from prep_assets.extensions.exports.registry import export, exports, opening
from prep_assets.extensions.start.launch import TRAINERS
from prep_assets.graph.graph import asset_named
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import GROUPS, LINES, PACKED, PAIRS, TOKENS, Origins, Ragged, Table, open_table
from prep_assets_tests.cli.conftest import Run
from prep_assets_tests.graph.workspaces import jsonl, make, tree


def lines_of(output: str) -> list[str]:
    """The lines that open an export: what follows the name of the trainer."""
    shown = output.splitlines()
    return shown[
        next(
            number
            for number, line in enumerate(shown)
            if line in {f"{name}:" for name in {*(each.read_by for each in exports().values()), "TRL"}}
        )
        + 1 :
    ]


def test_writes_what_the_export_function_writes(built: Any, run: Any, tmp_path: Path) -> None:
    result = run("export", "sft_packed", "--to", "packed_parquet", "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    assert tree(tmp_path / "a") == tree(export(built.stores / "sft_packed" / "current", "packed_parquet", tmp_path / "b"))
    assert f"{tmp_path / 'a'}: 1 file, " in result.stdout
    assert result.stderr == ""


def test_the_lines_it_shows_open_the_files(built: Any, run: Any, tmp_path: Path) -> None:
    result = run("export", "sft_packed", "--to", "tlfs", "--out", tmp_path / "a")
    names: dict[str, Any] = {}
    exec("\n".join(lines_of(result.stdout)), names)
    with h5py.File(built.stores / "sft_packed" / "current" / "sft_packed.h5") as file:
        assert np.array_equal(names["file"]["tokens"][:], file["tokens"][:])


@pytest.mark.readers
def test_the_lines_for_trl_open_the_files(built: Any, run: Any, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    lines = lines_of(run("export", "sft_packed", "--to", "hf_arrow", "--out", tmp_path / "a").stdout)
    names: dict[str, Any] = {}
    exec("\n".join(lines[:2]), names)
    assert names["dataset"].column_names == ["input_ids", "labels", "seq_lengths"]
    assert "padding_free=True" in lines[2] and "{{" not in lines[2]


@pytest.mark.parametrize("name", exports())
def test_every_format_has_lines_for_everything_that_it_takes(built: Any, tmp_path: Path, name: str) -> None:
    places = {PACKED: "sft_packed", TOKENS: "sft_tokens/chats", PAIRS: "preference_tokens"}
    each = exports()[name]
    options = {key: parameter.default for key, parameter in each.options.items()}
    for taken in each.takes:
        if taken is GROUPS:
            continue  # a workspace of its own: see test_groups
        stream = "preferences" if taken is LINES else None
        source = open_table(built.stores / places.get(taken, "preferences") / "current", stream)
        for layout in ("trl", "axolotl", "llama_factory", "open_instruct", "skyrl") if name == "hf_arrow" else (options.get("layout"),):
            if (taken is PAIRS and layout in ("axolotl", "skyrl")) or (taken is LINES and layout not in ("trl", None)):
                continue  # not to be had
            trainer, lines = opening(name, tmp_path, source, {**options, "layout": layout})
            assert trainer in exports()[name].read_by
            assert tmp_path.as_posix() in lines
            assert 2 <= len(lines.splitlines()) <= 4
            assert not re.search(r"\{\w+\}", lines)


def test_options_are_read_as_their_types(built: Any, run: Any, tmp_path: Path) -> None:
    words = ("--option", "neat=false", "--option", "pad_id=7", "--option", "name=007")
    result = run("export", "sft_packed", "-t", "megatron", "-o", tmp_path / "a", *words)
    assert result.exit_code == 0, result.output
    expected = export(built.stores / "sft_packed" / "current", "megatron", tmp_path / "b", neat=False, pad_id=7, name="007")
    assert tree(tmp_path / "a") == tree(expected)


def test_the_held_out_file_is_not_exported_unless_asked_for(built: Any, run: Any, tmp_path: Path) -> None:
    for stream, name in (((), "preferences"), (("-s", "preferences_test"), "preferences_test")):
        said = run("export", "preferences", "-t", "tlfs", "-o", tmp_path / name, *stream)
        assert said.exit_code == 0 and f"/{name}.jsonl" in said.stdout and "h5py" not in said.stdout
        assert (tmp_path / name / f"{name}.jsonl").read_bytes() == (built.stores / "preferences" / "current" / f"{name}.jsonl").read_bytes()


def test_list_shows_every_format_with_what_it_takes_and_who_reads_it(run: Any) -> None:
    result = run("export", "--list")
    assert result.exit_code == 0
    for name, each in exports().items():
        row = next(line for line in result.stdout.splitlines() if line.split()[:1] == [name])
        assert ("pairs" in row) == (PAIRS in each.takes)
        assert each.read_by.split(",")[0] in row


@pytest.mark.parametrize("words", [(), ("sft_packed",), ("sft_packed", "-t", "mds"), ("sft_packed", "-o", "x")])
def test_an_incomplete_command_line(built: Any, run: Any, words: tuple[str, ...]) -> None:
    result = run("export", *words)
    assert result.exit_code == 2
    assert "prep-assets export --list" in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("place", "complaint"), [(".", "is the current folder"), ("file", "it is a file"), ("file/a", "is below"), ("mine", "is not empty")]
)
def test_a_wrong_place_is_not_the_fault_of_the_store(
    built: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, complaint: str
) -> None:
    (tmp_path / "file").write_text("keep")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("keep")
    monkeypatch.chdir(tmp_path)
    result = run("export", "sft_packed", "-t", "mds", "-o", place)
    assert (result.exit_code, result.stdout) == (1, "")
    assert complaint in result.stderr and "prep-assets verify" not in result.stderr


def test_a_damaged_store_comes_with_the_command_that_builds_it(mine: Any, run: Any, tmp_path: Path) -> None:
    folder = mine.stores / "sft_tokens" / "chats" / "current"
    path = next(path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json")
    path.write_bytes(path.read_bytes()[:-1])
    command = "Build it again:\n  prep-assets build sft_tokens --partition chats"
    manifest = folder / "manifest.json"
    spoil = (lambda: None, lambda: manifest.write_text("{"), manifest.unlink)
    says = ("is not what its manifest says", "it was edited or cut short. Build it again:", "it has no manifest.json")
    for spoilt, said in zip(spoil, says, strict=True):
        spoilt()
        result = run("export", "sft_tokens", "-p", "chats", "-t", "mds", "-o", tmp_path / "a")
        assert result.exit_code == 1 and said in result.stderr and command in result.stderr


def lines_with(folder: Path, *columns: str) -> Table:
    """Lines of a file whose name says nothing."""
    path = jsonl(folder / "ranked_unpaired.jsonl", [dict.fromkeys(columns)])
    none, text = np.zeros(1, int), path.read_bytes()
    return Table("", LINES, 1, Origins((), none, none, none), {"line": Ragged(np.frombuffer(text, np.uint8), np.array([len(text)]))}, path)


@pytest.mark.parametrize(
    ("columns", "trainer"),
    [(["prompt", "completion", "label"], "KTO"), (["prompt", "chosen", "rejected"], "DPO"), (["prompt", "gold"], "GRPO")],
)
def test_the_trainer_that_is_named_reads_the_lines(tmp_path: Path, columns: list[str], trainer: str) -> None:
    _, lines = opening("hf_arrow", tmp_path, lines_with(tmp_path, *columns), {"layout": "trl"})
    assert f"\n{trainer}Trainer(model=model" in lines and lines.count("Trainer") == 1


def test_lists_are_no_pairs(tmp_path: Path) -> None:
    for format, says in (("hf_arrow", 'dataset[0]["responses"]'), ("sentence_transformers", "PListMLELoss")):
        _, lines = opening(format, tmp_path, lines_with(tmp_path, "prompt", "responses", "rewards"), {"layout": "trl", "split": "train"})
        assert says in lines and "DPO" not in lines and "MultipleNegatives" not in lines


def test_configured_exports_are_assets_like_the_others(mine: Any, run: Any) -> None:
    path = mine.configs / "sft.yaml"
    config = yaml.safe_load(path.read_text("utf-8"))
    config["exports"] = {"trl": {"from": "sft_packed", "to": "hf_arrow"}, "by_domain": {"from": "sft_tokens", "to": "mds"}}
    path.write_text(yaml.safe_dump(config), "utf-8")
    shown = run("status").stdout
    assert re.search(r"^  prep-assets build (sft_export_trl|sft_export_by_domain| )+$", shown, re.MULTILINE), shown[-300:]

    workspace = Workspace(mine.configs, mine.stores)
    make(workspace, asset_named("sft_export_trl", workspace))
    assert run("path", "sft_export_trl").stdout == f"{mine.stores / 'sft_export_trl' / 'current'}\n"
    verified = run("verify", "sft_export_trl")
    assert verified.exit_code == 0 and "all 2 checks of 1 store passed" in verified.stdout
    assert json.loads(run("stats", "sft_export_trl", "--json").stdout)["stores"][0]["recipe"]["format"] == "hf_arrow"
    assert "no record was refused here" in run("quarantine", "sft_export_trl").stdout
    looked = run("inspect", "sft_export_trl")
    assert looked.exit_code == 1 and "prep-assets inspect sft_packed" in looked.stderr


# -- `prep-assets launch-snippet` --------------------------------------------------------------------------------------------------------


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


# -- `prep-assets path` ------------------------------------------------------------------------------------------------------------------


def test_text_is_exported_without_a_tokenizer(mine: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: Any) -> None:
        raise AssertionError("the tokenizer is opened")

    monkeypatch.setattr(Workspace, "_tokenizer", opened)
    result = run("export", "preferences", "--to", "hf_arrow", "--out", tmp_path / "pairs")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(("asset", "partition"), [("sft_packed", []), ("pretrain_tokens", ["--partition", "notes"])])
def test_the_loop_of_plain_pytorch_trains(
    built: Workspace, run: Run, capsys: pytest.CaptureFixture[str], asset: str, partition: list[str]
) -> None:
    said = run("launch-snippet", "--trainer", "torch", asset, *partition)
    assert said.exit_code == 0, said.stderr
    torch.manual_seed(0)
    capsys.readouterr()
    exec(said.stdout, {})
    steps = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [int(step) for step, _ in steps] == list(range(len(steps))) and len(steps) >= 1
    losses = [float(loss) for _, loss in steps]
    # an untrained model knows nothing of 4,096 tokens: ln 4096 = 8.3
    assert 8 < losses[0] < 9 and losses[-1] <= losses[0]


def test_torch_has_no_loop_for_text(built: Workspace, run: Run) -> None:
    said = run("launch-snippet", "--trainer", "torch", "preferences")
    assert said.exit_code == 1 and "Loops are for: sft_packed, pretrain_tokens" in said.stderr
