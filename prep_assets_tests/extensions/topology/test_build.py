"""Builds of packed tables for a topology: another one packs again and tokenizes nothing, and trains the same tokens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets.config.models import Sft
from prep_assets.errors import ConfigError
from prep_assets.graph.graph import EVERY
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.table import open_table
from prep_assets.stores.version_folders import Published
from prep_assets.training import ROWS, PackedDataset, PaddingFree, RowRecord
from prep_assets_tests.extensions.topology.reading import item
from prep_assets_tests.graph.exported import build_export
from prep_assets_tests.graph.workspaces import SHIPPED, build, copy_of, domain, failing, out_of_date, resealed, workspace_in
from prep_assets_tests.proofs import corruption

ALIGN = {"context_parallel": 2, "tensor_parallel": 4, "sequence_parallel": True}
PACKED = EVERY["sft_packed"]


def configured(folder: Path, **packing: Any) -> Workspace:
    family = {**SHIPPED["sft"], "packing": {"strategy": "bfd", "row_len": 512, **packing}, "output": {"storage_format": "bin"}}
    family["domains"] = {"gsm8k": domain("gsm8k.jsonl", "gsm8k"), "chats": domain("chats.jsonl", "messages")}
    exports = {name: {"from": "sft_packed", "to": name} for name in ("aligned_parquet", "megatron_sft")}
    return workspace_in(folder, {"sft": {**family, "exports": exports if packing.get("align") else {}}})


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Packed for a topology, in steps of three ranks, with both exports."""
    workspace = configured(tmp_path_factory.mktemp("topology"), align=ALIGN, balance=3)
    build(workspace, "sft_packed")
    for name in ("aligned_parquet", "megatron_sft"):
        build_export(workspace, f"sft_export_{name}")
    return workspace


def published(workspace: Workspace, asset: str = "sft_packed") -> Published:
    found = workspace.published(asset, "")
    assert found is not None
    return found


def trained(store: Published, name: str) -> Counter[tuple[int, int, int, tuple[int, ...], tuple[int, ...]]]:
    """Of each record: its tokens and which of them are trained, over all its pieces."""
    table = open_table(store.directory, name)
    assert table.pieces is not None
    starts, ends = table.documents_at
    tokens, mask = (table.columns[key].values for key in ("tokens", "loss_mask"))
    return Counter(
        (source, record, start, tuple(tokens[begin:end].tolist()), tuple(mask[begin:end].tolist()))
        for (source, record, start), begin, end in zip(
            table.pieces.read(slice(None), "source", "record", "start"), starts, ends, strict=True
        )
    )


def test_all_checks_hold_and_the_counts_say_what_it_takes(built: Workspace) -> None:
    store = published(built)
    assert failing(built, store) == []
    table = open_table(store.directory, "sft_packed")
    assert table.pieces is not None
    lengths = np.array(table.pieces.fields["length"])
    assert table.align == 8
    assert store.manifest.counts["places_for_alignment"] == sum(-length % 8 for length in lengths.tolist())
    assert 0.9 < store.manifest.metrics["work_evenness"] <= 1
    assert json.loads((store.directory / "sft_packed.documents" / "sources.json").read_bytes())["align"] == 8


def test_another_topology_packs_again_and_trains_the_same(built: Workspace, tmp_path: Path) -> None:
    copy_of(built, tmp_path / "w")
    before = published(built)
    dense = configured(tmp_path / "w")
    stale = out_of_date(dense, PACKED)
    assert stale == [] or {asset.name for asset, _, _ in stale} == {"sft_packed"}
    tokens = {each: dense.published("sft_tokens", each) for each in ("gsm8k", "chats")}
    after = build(dense, "sft_packed")
    assert {each: dense.published("sft_tokens", each) for each in tokens} == tokens
    for name in ("sft_packed", "sft_dev_packed"):
        assert trained(after, name) == trained(before, name)
    assert after.manifest.counts["trained_tokens"] == before.manifest.counts["trained_tokens"]
    assert "align" not in json.loads((after.directory / "sft_packed.documents" / "sources.json").read_bytes())
    assert after.manifest.counts["rows"] <= before.manifest.counts["rows"]


def test_exports_are_what_the_data_set_gives(built: Workspace) -> None:
    rows = list(PackedDataset(published(built).directory, "sft_packed"))
    lines = (published(built, "sft_export_megatron_sft").directory / "train.jsonl").read_text("utf-8").splitlines()
    vocabulary = built.vocabulary(built.family(Sft))
    for line, row in zip(lines, rows, strict=True):
        read = item(json.loads(line)["messages"], lambda text: vocabulary.backend.encode(text, add_special_tokens=False).ids, 512, 4, -1)
        # the trainer pads documents to 2 × CP = 8 places, which is what align asks for here
        assert read["cu_seqlens"] == row["cu_seqlens_padded"].tolist()
        assert sum(read["loss_mask"]) == int((row["labels"] != -100).sum())


@pytest.fixture
def said(built: Workspace, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What the command line says, errors too, in one line."""
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(built.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(built.stores))
    return lambda *words: " ".join(CliRunner().invoke(app, list(map(str, words))).output.split())


LINES = {
    "nemo": ("--to aligned_parquet --out", "packed_sequence_size=512, pad_seq_to_mult=8)"),
    "megatron": ("--to megatron_sft --out", "--sft-tokenizer-prompt-format identity --seq-length 512"),
    "modellink": ("multiples of 8 places, and megatron stores them without padding", "Export to aligned_parquet or megatron_sft"),
}


@pytest.mark.parametrize("trainer", LINES)
def test_the_lines_for_a_trainer_are_those_of_the_table(
    trainer: str, said: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which rows there are, not which would be built."""
    for configs in (None, configured(tmp_path).configs):
        if configs is not None:
            monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(configs))
        lines = said("launch-snippet", "sft_packed", "--trainer", trainer)
        assert all(part in lines for part in LINES[trainer]), lines


def test_the_end_of_text_token_is_one_of_the_model(built: Workspace, said: Callable[..., str], tmp_path: Path) -> None:
    vocabulary = built.vocabulary(built.family(Sft))
    command = ("export", "sft_packed", "--to", "aligned_parquet", "--option", "split=validation")
    error = said(*command, "--out", tmp_path / "no", "--option", f"eos_id={vocabulary.size}")
    assert f"option 'eos_id': {vocabulary.size:,} is no token of the model, which has {vocabulary.size:,}. Leave it out" in error
    assert f"is {vocabulary.eos_id}" in error and not (tmp_path / "no").exists()
    lines = said(*command, "--out", tmp_path / "out", "--option", f"eos_id={vocabulary.size - 1}")
    assert f'packed_val_data_path="{tmp_path / "out"}/splits/validation",' in lines


def test_a_record_of_a_run_has_its_documents(built: Workspace, tmp_path: Path) -> None:
    """A record looks whether items are rows of the store, and takes the loss of a document from its places."""
    data = PackedDataset(published(built).directory, "sft_packed")
    record = RowRecord(tmp_path / "run", data)
    batch = record.collate(PaddingFree())([record.numbered[at] for at in (0, 1)])
    rooms = [room for at in (0, 1) for room in data[at]["cu_seqlens_padded"].diff().tolist()]
    assert [size for *_, size in batch[ROWS].tolist()] == rooms
    assert batch["input_ids"].shape[1] == sum(rooms) == 1024


# -- Corruptions ------------------------------------------------------------------------------------------------------------------------


def sources_say(**about: Any) -> Callable[[Published], None]:
    def spoil(store: Published) -> None:
        path = store.directory / "sft_packed.documents" / "sources.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), **about}))

    return spoil


def piece_moved(store: Published) -> None:
    """The last piece of a row stands in another that has room for its tokens, and not for its padding."""
    folder = store.directory / "sft_packed.documents"
    row, length = (np.load(folder / f"{field}.npy") for field in ("row", "length"))
    rows = int(row.max()) + 1
    used, rooms = np.bincount(row, length, rows), np.bincount(row, -(-length // 8) * 8, rows)
    piece, target = next(
        (piece, target)
        for piece in np.flatnonzero(np.diff(row, append=rows))
        for target in range(rows)
        if target != row[piece] and (row == row[piece]).sum() > 1
        if used[target] + length[piece] <= 512 < rooms[target] + -(-length[piece] // 8) * 8
    )
    reorder(store, np.where(np.arange(len(row)) == piece, target, row))


def reorder(store: Published, row: npt.NDArray[Any]) -> None:
    """Pieces stand in these rows, one after another."""
    order = np.argsort(row, kind="stable")
    lengths = np.load(store.directory / "sft_packed.documents" / "length.npy")[order]
    before = np.cumsum(lengths) - lengths
    first = np.flatnonzero(np.diff(row[order], prepend=-1))
    offsets = before - np.repeat(before[first], np.diff(first, append=len(row)))
    changes: dict[str, Any] = {field: lambda values: values[order] for field in ("length", "source", "record", "start")}
    corruption.documents(store, **changes, row=lambda _: row[order], row_offset=lambda _: offsets)


def steps_exchanged(store: Published) -> None:
    """Two rows of different steps stand in each other's place."""
    row = np.load(store.directory / "sft_packed.documents" / "row.npy")
    reorder(store, np.where(row == 0, 3, np.where(row == 3, 0, row)))


SPOILED = {
    "the alignment is lost": sources_say(align=1),
    "the alignment of half the ranks": sources_say(align=4),
    "the alignment of twice the ranks": sources_say(align=16),
    "an alignment that is off by one": sources_say(align=9),
    "padding that does not fit": piece_moved,
    "two rows of different steps exchanged": steps_exchanged,
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_corruption_is_seen(name: str, built: Workspace, tmp_path: Path) -> None:
    workspace = copy_of(built, tmp_path / "w")
    store = published(workspace)
    SPOILED[name](store)
    assert "mixture" in failing(workspace, resealed(Published(store.directory, Manifest.read(store.directory))))


@pytest.mark.parametrize(
    ("packing", "said"),
    [
        (
            {"align": {"context_parallel": 3}},
            r"packing\.row_len: 512 is no multiple of 6, which packing\.align asks for: ranks could not split a row\. Set it to 510 or 516",
        ),
        (
            {"align": ALIGN, "strategy": "concat"},
            r"packing\.align: \{'context_parallel': 2, .*\} has no effect here: 'concat' cuts documents where rows end",
        ),
        ({"align": {"context_paralel": 2}}, "did you mean 'context_parallel'|context_paralel"),
        ({"align": {"context_parallel": 0}}, "context_parallel"),
        ({"balance": 1}, "balance"),
        ({"balance": 2, "strategy": "simple"}, "packing.balance: 2 has no effect here: 'simple' keeps the order of documents"),
    ],
)
def test_what_cannot_be_asked_for(packing: dict[str, Any], said: str, tmp_path: Path) -> None:
    workspace = configured(tmp_path, **packing)
    with pytest.raises(ConfigError, match=said):
        workspace.family(Sft)
