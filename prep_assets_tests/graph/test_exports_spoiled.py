"""Every corruption of an export that reading back must notice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.checks.of_exports import compare
from prep_assets.config.models import FAMILIES
from prep_assets.errors import StoreError
from prep_assets.exports import export
from prep_assets.exports.readable import Pairs, Source, open_source
from prep_assets.graph.exports import asset_name
from prep_assets.graph.graph import asset_named, family_exports
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.published import open_published
from prep_assets.stores.tokens import TokenStore
from prep_assets_tests.graph.exported import EXPORTS, NAMES


def spoil_table(source: PackedStore, what: str) -> PackedStore:
    tokens, mask = np.array(source.tokens[:]), np.array(source.loss_mask[:])
    last = len(source) - 1
    place = int(source.documents["row_offset"][-1]) + 1  # the second token of the last document: both are always looked at
    if what == "token":
        tokens[last, place] += 1
    elif what == "mask":
        mask[last, place] = 1 - mask[last, place]
    elif what == "late":
        mask[:, 1:] = mask[:, :-1].copy()
    elif what == "order":
        tokens[[0, last]], mask[[0, last]] = tokens[[last, 0]], mask[[last, 0]]
    return replace(source, tokens=tokens, loss_mask=mask)


def spoil_stream(source: TokenStore, what: str) -> TokenStore:
    tokens = np.array(source.arrays["tokens"][:])
    last = int(source.starts[-1])
    arrays: dict[str, Any] = {**source.arrays}
    if what == "token":
        tokens[last + 1] += 1
        arrays["tokens"] = tokens
    else:
        mask = np.array(arrays["loss_mask"][:])
        mask[last + 1] = 1 - mask[last + 1]
        arrays["loss_mask"] = mask
    return replace(source, arrays=arrays)


def spoil(source: Source, what: str, folder: Path) -> Source:
    if isinstance(source, PackedStore):
        return spoil_table(source, what)
    if isinstance(source, TokenStore):
        return spoil_stream(source, what)
    if isinstance(source, Pairs):
        return Pairs(source.chosen, spoil_stream(source.rejected, what))
    rows = list(source)
    rows[-1] = {**rows[-1], "gold" if "gold" in rows[-1] else "rejected": 12345.0 if "gold" in rows[-1] else "something else"}
    path = folder / source.path.name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return replace(source, path=path)


def opened(workspace: Workspace, name: str) -> tuple[Source, str, dict[str, Any]]:
    each = next(
        each
        for each in [each for family in FAMILIES if workspace.has(family) for each in family_exports(workspace, family)]
        if asset_name(each) == name
    )
    partition = asset_named(name, workspace).partitions(workspace)[0]
    source = open_source(open_published(workspace.stores, each.source.name, partition), each.stem(partition))
    return source, each.format, each.all_options(workspace)


UNMASKED = {
    *(f"pretrain_export_{name}" for name in EXPORTS["pretrain"]),
    *("preference_export_dpo", "preference_export_lines", "preference_export_reward", "preference_export_hub"),
    *("rl_export_verl", "rl_export_rollouts"),
}
"""Exports whose files do not say which tokens are trained."""
TABLES = [f"sft_export_{name}" for name, each in EXPORTS["sft"].items() if each["from"] == "sft_packed"]
SPOILED = [
    *((name, "token") for name in NAMES),
    *((name, "mask") for name in NAMES if name not in UNMASKED),
    *((name, what) for name in TABLES for what in ("late", "order")),
]


@pytest.mark.parametrize(("name", "what"), SPOILED)
def test_files_that_say_something_else_than_the_store_are_noticed(exported: Workspace, name: str, what: str, tmp_path: Path) -> None:
    source, to, options = opened(exported, name)
    folder = export(spoil(source, what, tmp_path), to, tmp_path / "out", **options)
    verdict = compare(folder, source, to, options)
    assert not verdict.passed
    assert verdict.worst is not None and verdict.worst.note


@pytest.mark.parametrize("name", ["sft_export_trl", "sft_export_neat", "sft_export_modellink", "sft_export_bridge", "sft_export_mds"])
def test_a_document_that_begins_elsewhere_is_noticed(exported: Workspace, name: str, tmp_path: Path) -> None:
    source, to, options = opened(exported, name)
    assert isinstance(source, PackedStore)
    documents = {field: np.array(values) for field, values in source.documents.items()}
    # a token at the end of the first document, which nobody trains, becomes the first of the second
    documents["length"][0] -= 1
    documents["length"][1] += 1
    documents["row_offset"][1] -= 1
    mask = np.array(source.loss_mask[:])
    mask[0, documents["row_offset"][1] : documents["row_offset"][1] + 2] = 0
    unmarked = replace(source, loss_mask=mask)
    folder = export(replace(unmarked, documents=documents), to, tmp_path / "out", **options)
    verdict = compare(folder, unmarked, to, options)
    assert not verdict.passed and "documents start at" in verdict.summary


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_row_is_noticed(exported: Workspace, name: str, tmp_path: Path) -> None:
    source, to, options = opened(exported, name)
    fewer: Source
    if isinstance(source, Lines):
        fewer = spoil(source, "token", tmp_path)
        assert isinstance(fewer, Lines)
        fewer.path.write_bytes(b"".join(source.path.read_bytes().splitlines(keepends=True)[:-1]))
        fewer = replace(fewer, index={field: values[:-1] for field, values in source.index.items()})
    elif isinstance(source, PackedStore):
        kept = source.documents["row"] < len(source) - 1
        documents = {field: np.asarray(values)[kept] for field, values in source.documents.items()}
        fewer = replace(source, tokens=source.tokens[:-1], loss_mask=source.loss_mask[:-1], documents=documents)
    elif isinstance(source, Pairs):
        fewer = Pairs(_shorter(source.chosen), _shorter(source.rejected))
    else:
        fewer = _shorter(source)
    folder = export(fewer, to, tmp_path / "out", **options)
    try:
        verdict = compare(folder, source, to, options)
    except StoreError:
        return
    assert not verdict.passed


def _shorter(source: TokenStore) -> TokenStore:
    count = len(source) - 1
    arrays = {key: np.array(array[: int(source.ends[count - 1])]) for key, array in source.arrays.items()}
    return replace(source, arrays=arrays, ends=source.ends[:count], file=source.file[:count], row=source.row[:count])
