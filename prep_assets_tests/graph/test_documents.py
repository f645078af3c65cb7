"""Plain text taken as it is equals plain text that goes through all forms; and nothing depends on the size of blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.config.family import Domain
from prep_assets.data.files import find_files
from prep_assets.errors import CheckFailed
from prep_assets.graph import pretrain
from prep_assets.pipeline.documents import Documents, Sizes, _is_clean, _totals, document_text, read_documents
from prep_assets.pipeline.examples import Deduplicator, Reading
from prep_assets.pipeline.sources import Pinned, Router
from prep_assets.samples import Sample
from prep_assets.schemas.reader import Account, Reader
from prep_assets.schemas.registry import Convert, convert_with
from prep_assets.schemas.text import TextField
from prep_assets.text.ids import Flat
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, refusals, tree
from prep_assets_tests.peak import peak

WORDS = st.sampled_from(
    ["a", "cat", "\u00e9", "\u732b", " ", "\n", "\u2028", "\x00", "\ufdd0", "\ufffd", "\U0001f408", "", "<|endoftext|>"]
)
TEXTS = st.lists(WORDS, max_size=6).map("".join)
VALUES = st.one_of(
    TEXTS, st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.lists(TEXTS)
)
ROWS = st.dictionaries(st.sampled_from(["text", "body", "lang", "n"]), VALUES, max_size=3)
LINES = st.one_of(
    ROWS.map(lambda row: json.dumps(row, ensure_ascii=False).encode()),
    ROWS.map(lambda row: json.dumps(row).encode()),
    st.sampled_from([b"", b"   ", b"[1]", b"{", b'{"text": "\\ud800"}', b'{"text": "\xff"}', b'{"text": 1e999}', b'{"text": "x"}' * 2]),
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "text_key": st.sampled_from(["text", "body"]),
        "min_chars": st.integers(1, 4),
        "max_chars": st.one_of(st.none(), st.integers(1, 6)),
        "strip": st.booleans(),
    },
)
MORE = st.fixed_dictionaries(
    {},
    optional={
        "where": st.sampled_from([{"lang": "cat"}, {"n": {">": 0}}, {"text": {"exists": True}}]),
        "max_items": st.integers(1, 8),
        "domain_key": st.just("lang"),
    },
)


@pytest.mark.parametrize("code", [0xFDCF, 0xFDD0, 0xFDEF, 0xFDF0, 0xFFFE, 0xEF, 0xD800])
def test_a_text_is_clean_that_rendering_has_nothing_against(code: int) -> None:
    assert _is_clean(f"a\ufdc0 {chr(code)}") is not (0xFDD0 <= code <= 0xFDEF or code == 0xD800)


def through_all_forms(options: Mapping[str, Any]) -> Convert:
    """The schema `text`, hidden from whoever looks for its shortcut."""
    schema = convert_with("text", options)
    return lambda row: schema(row)


def read(file: Path, domain: Domain, convert: Convert, sizes: Sizes, deduplicate: bool, block_bytes: int) -> tuple[list[Any], list[Any]]:
    """Documents and refusals with their rows."""
    files = find_files([str(file)], file.parent)
    router = Router(domain.domain_key, "cat", {files[0].url: frozenset({"cat", "a"})})
    sources = Pinned(files, (), 0, "")
    reader = Reader(convert, Account(("body",), ("lang", "n", "text")))
    reading = Reading("a", domain, router, sources, reader, Deduplicator() if deduplicate else None, max_items=domain.max_items)
    found: list[Documents] = list(read_documents(reading, document_text, sizes.check, block_bytes=block_bytes))
    kept = [(record.file, record.row, text) for block in found for record, text in zip(block.records, block.texts, strict=True)]
    refused = [entry for block in found for entry in block.refused]
    assert reading.read == len(kept) + len(refused)
    return kept, refused


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(LINES, max_size=12),
    OPTIONS,
    MORE,
    st.builds(Sizes, st.integers(0, 4), st.one_of(st.none(), st.integers(1, 6))),
    st.booleans(),
    st.sampled_from([1, 50, 1 << 20]),
)
def test_the_shortcut_gives_what_the_long_way_gives(
    tmp_path: Path,
    lines: list[bytes],
    options: dict[str, Any],
    more: dict[str, Any],
    sizes: Sizes,
    deduplicate: bool,
    block_bytes: int,
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    asked = Domain.model_validate({"files": [str(file)], "schema": "text", "options": options, **more})
    short = read(file, asked, convert_with("text", options), sizes, deduplicate, block_bytes)
    long = read(file, asked, through_all_forms(options), sizes, deduplicate, 1 << 20)
    assert short == long


@given(ROWS, OPTIONS)
def test_the_plain_text_of_a_row_is_that_of_its_sample(row: dict[str, Any], options: dict[str, Any]) -> None:
    schema = convert_with("text", options)
    assert isinstance(schema, TextField)
    text = schema.plain(row)
    if text is not None:
        sample = schema(row)
        assert isinstance(sample, Sample)
        assert text == "".join(turn.text for turn in sample.turns)


@pytest.mark.parametrize("row", [{"text": "A cat."}, {"text": " \u732b\n"}])
def test_the_shortcut_is_taken(row: dict[str, Any]) -> None:
    schema = convert_with("GeneralPretrainHandler")
    assert isinstance(schema, TextField)
    assert schema.plain(row) == row["text"]


def cats() -> list[dict[str, Any]]:
    """Rows of which every stage refuses some."""
    rows: list[dict[str, Any]] = [{"text": f"The cat number {i} sat on the mat. \u732b " * (1 + i % 7), "n": i} for i in range(60)]
    rows[7], rows[31], rows[40], rows[41], rows[50] = rows[3], {"text": "no"}, {"body": "x"}, {"text": "cat " * 400}, {"text": "\ufdd0 cat"}
    return rows


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_stores_and_quarantine_do_not_depend_on_the_size_of_blocks(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    jsonl(tmp_path / "a.jsonl", cats())
    jsonl(tmp_path / "b.jsonl", cats()[20:45])
    trees = []
    reading: Callable[..., Any] = pretrain.read_documents
    for size in (1, 700, 16 << 20):
        files = {"files": [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")], "schema": "text", "ignore": ["n"]}
        workspace = make(
            minimal(
                "pretrain",
                {"docs": files},
                preprocessing={"min_chars": 5, "max_seq_len": 200},
                test_fraction=0.2,
                engine=engine,
                output={"storage_format": "bin", "max_tokens_per_shard": 500},
            ),
            str(size),
        )
        monkeypatch.setattr(pretrain, "read_documents", lambda *args, size=size, **more: reading(*args, **more, block_bytes=size))
        build(workspace, "pretrain_raw", "docs")
        published = build(workspace, "pretrain_tokens", "docs")
        assert failing(workspace, published) == []
        trees.append(tree(workspace.stores))
    assert trees[0] == trees[1] == trees[2]
    assert [(refusal.id, refusal.reason) for refusal in refusals(published)][:6] == [
        ("a.jsonl:7", "duplicate"),
        ("a.jsonl:31", "too_short"),
        ("a.jsonl:40", "missing_field"),
        ("a.jsonl:41", "too_long"),
        ("a.jsonl:50", "noncharacter"),
        ("b.jsonl:0", "duplicate"),
    ]


def test_an_error_while_tokenizing_stops_the_build_with_its_message(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make(minimal("pretrain", {"docs": domain(jsonl(tmp_path / "a.jsonl", cats()), "text", ignore=["n"])}))
    build(workspace, "pretrain_raw", "docs")

    def fails(self: object, texts: object) -> None:
        raise ValueError("the engine is broken")

    monkeypatch.setattr(type(workspace.engines(workspace.family(pretrain.Pretrain)).first), "encode", fails)
    with pytest.raises(ValueError, match="the engine is broken"):
        build(workspace, "pretrain_tokens", "docs")
    assert workspace.published("pretrain_tokens", "docs") is None


def test_bytes_of_long_documents_are_summed_a_stretch_at_a_time() -> None:
    table, ids = np.arange(500), np.random.default_rng(0).integers(0, 500, 1 << 19).astype(np.uint32)
    offsets = np.array([0, 0, 5, 70_000, 70_000, 1 << 18, 1 << 19, 1 << 19])
    flat = Flat(ids, offsets)
    assert _totals(table, flat).tolist() == [int(table[ids[start:end]].sum()) for start, end in pairwise(offsets.tolist())]
    assert peak(lambda: _totals(table, flat)) < 2 * len(ids)


def test_an_id_beyond_the_vocabulary_stops_the_build() -> None:
    flat = Flat(np.array([0, 499, 500], np.uint32), np.array([0, 3]))
    with pytest.raises(CheckFailed, match=r"gave the id 500, and the vocabulary has 500"):
        _totals(np.arange(500), flat)
