"""`prep-assets inspect`: what is marked as trained is what the stored mask says."""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tokenizers import Tokenizer

TOKENIZER = Path(__file__).resolve().parents[2] / "configs" / "tokenizer" / "tokenizer.json"


def body(output: str) -> str:
    """What stands between the title and the footer."""
    return output.split("\n\n", 1)[1].rsplit("\n\n── ", 1)[0]


def marked(output: str) -> list[tuple[str, bool]]:
    """Stretches of text with whether they stand in ⟦ ⟧."""
    text = "".join(line for line in body(output).splitlines() if not line.startswith("│ "))
    characters, trained = [], False
    for char in text.replace("⏎", "\n"):
        if char in "⟦⟧":
            trained = char == "⟦"
        else:
            characters.append((char, trained))
    return [("".join(char for char, _ in group), flag) for flag, group in groupby(characters, key=lambda pair: pair[1])]


def decoded(ids: np.ndarray, mask: np.ndarray) -> list[tuple[str, bool]]:
    """The same from the arrays of the store, by the reference tokenizer."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    groups = groupby(range(len(ids)), key=lambda i: bool(mask[i]))
    return [(tokenizer.decode([int(ids[i]) for i in group], skip_special_tokens=False), flag) for flag, group in groups]


def packed(stores: Path) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    current = stores / "sft_packed" / "current"
    with h5py.File(current / "sft_packed.h5") as file:
        tokens, mask = file["tokens"][:], file["loss_mask"][:]
    return tokens, mask, {path.stem: np.load(path) for path in (current / "sft_packed.documents").glob("*.npy")}


def test_packed_rows_mark_exactly_the_trained_tokens(built: Any, run: Any) -> None:
    tokens, mask, documents = packed(built.stores)
    for row in (0, 1, len(tokens) // 2, len(tokens) - 1):
        result = run("inspect", "sft_packed", "--row", row)
        assert result.exit_code == 0
        used = int(documents["length"][documents["row"] == row].sum())
        assert marked(result.stdout) == decoded(tokens[row, :used], mask[row, :used])
        footer = result.stdout.splitlines()[-1]
        assert footer.startswith(f"── {used:,} positions · {int(mask[row].sum()):,} trained (")


def test_borders_name_the_records(built: Any, run: Any) -> None:
    _, _, documents = packed(built.stores)
    sources = json.loads((built.stores / "sft_packed" / "current" / "sft_packed.documents" / "sources.json").read_text())["sources"]
    expected = []
    for source, record in zip(documents["source"][documents["row"] == 1], documents["record"][documents["row"] == 1], strict=True):
        rows = np.load(built.stores / "sft_tokens" / sources[source] / "current" / "train.index" / "row.npy")
        expected.append(f"│ {sources[source]}/{sources[source]}.jsonl:{rows[record] + 1}")
    assert len(expected) > 1
    shown = [line for line in run("inspect", "sft_packed", "-r", 1).stdout.splitlines() if line.startswith("│ ")]
    assert shown == expected


def test_ids(built: Any, run: Any) -> None:
    tokens, mask, documents = packed(built.stores)
    lines = [line for line in body(run("inspect", "sft_packed", "--ids").stdout).splitlines()[1:] if not line.startswith("│ ")]
    fields = [re.match(r"\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S+)  (.*)", line) for line in lines]
    used = int(documents["length"][documents["row"] == 0].sum())
    assert [int(found[3]) for found in fields if found] == tokens[0, :used].tolist()
    assert [found[5].startswith("⟦") for found in fields if found] == (mask[0, :used] != 0).tolist()
    positions = [i for length in documents["length"][documents["row"] == 0] for i in range(length)]
    assert [int(found[2]) for found in fields if found] == positions


@pytest.mark.parametrize("asset, stream, partition", [("sft_tokens", "train", "chats"), ("preference_tokens", "rejected", "")])
def test_records_of_token_stores(built: Any, run: Any, asset: str, stream: str, partition: str) -> None:
    current = built.stores / asset / partition / "current"
    ends = np.load(current / f"{stream}.index" / "ends.npy")
    if partition:
        ids = np.fromfile(current / stream / "shard_0000" / "sequence.bin", "int32")
        mask = np.fromfile(current / stream / "shard_0000" / "loss_mask.bin", "uint8")
    else:
        with h5py.File(current / f"{stream}.h5") as file:
            ids, mask = file["tokens"][:], file["loss_mask"][:]
    where = slice(int(ends[2]), int(ends[3]))
    result = run("inspect", asset, "--row", 3, "--stream", stream, *(["-p", partition] if partition else []))
    assert marked(result.stdout) == decoded(ids[where], mask[where])


def test_pretraining_documents_have_no_mask(built: Any, run: Any) -> None:
    with h5py.File(built.stores / "pretrain_tokens" / "notes" / "current" / "notes_train.h5") as file:
        ids = file["tokens"][: int(np.load(built.stores / "pretrain_tokens/notes/current/notes_train.index/ends.npy")[0])]
    result = run("inspect", "pretrain_tokens")
    assert marked(result.stdout) == decoded(ids, np.zeros(len(ids)))
    assert "no loss mask" in result.stdout


@pytest.mark.parametrize(
    "words, file", [(("preferences",), "preferences"), (("preferences", "-s", "preferences_test"), "preferences_test")]
)
def test_lines_are_shown_as_json(built: Any, run: Any, words: tuple[str, ...], file: str) -> None:
    lines = (built.stores / "preferences" / "current" / f"{file}.jsonl").read_text().splitlines()
    assert json.loads(run("inspect", *words, "--row", 1).stdout) == json.loads(lines[1])


def test_raw_assets_show_their_files(built: Any, run: Any) -> None:
    source = Path(__file__).resolve().parents[2] / "configs" / "samples" / "dolly.jsonl"
    shown = run("inspect", "sft_raw", "-p", "dolly").stdout
    assert "sft_raw[dolly]" in shown
    assert re.search(rf"dolly\.jsonl\s+training\s+{len(source.read_text().splitlines())}\s", shown)


def test_colour_where_there_is_a_terminal(built: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = run("inspect", "sft_packed").stdout
    assert "\x1b[1;32m" in coloured and "⟦" not in body(re.sub(r"\x1b\[[0-9;]*m", "", coloured))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "⟦" in run("inspect", "sft_packed").stdout
