"""Pretraining documents: texts, which engine has them, fill-in-the-middle, and parts that are not trained."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets import export, load
from prep_assets.checks.of_documents import Unmasked, _weighed_fault
from prep_assets.config.family import Domain
from prep_assets.config.models import Pretrain
from prep_assets.data.files import find_files
from prep_assets.errors import CheckFailed, ConfigError, Refused
from prep_assets.extensions.dagster.metadata import by_engine
from prep_assets.graph import pretrain
from prep_assets.graph.graph import EVERY, store_of
from prep_assets.pipeline import documents
from prep_assets.pipeline.documents import Documents, Sizes, _is_clean, _totals, document_text, read_documents
from prep_assets.pipeline.examples import Deduplicator, Reading
from prep_assets.pipeline.sources import Pinned, Router
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import DOCUMENT, Region, Sample, Turn
from prep_assets.schemas.reader import Account, Reader
from prep_assets.schemas.registry import Convert, convert_with
from prep_assets.schemas.text import TextField
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets.text.engines import BETWEEN, ReferenceEngine
from prep_assets.text.ids import Flat
from prep_assets.training import DatasetFactory
from prep_assets_tests.corpus.sentinels import TOKENS, tokenizer_with_sentinels
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import (
    TOKENIZER,
    build,
    domain,
    failing,
    jsonl,
    minimal,
    refusals,
    resealed,
    tree,
    verdicts,
    workspace_in,
)
from prep_assets_tests.peak import peak
from prep_assets_tests.proofs.corruption import Ragged

# Plain text taken as it is equals plain text that goes through all forms; and nothing depends on the size of blocks.


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
    tmp_path: Path, lines: list[bytes], options: dict[str, Any], more: dict[str, Any], sizes: Sizes, deduplicate: bool, block_bytes: int
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\n".join([b"{}", *lines]) + b"\n")  # a first line that is no object would name the file
    asked = Domain.model_validate({"files": [str(file)], "schema": "text", "options": options, **more})
    short = read(file, asked, convert_with("text", options), sizes, deduplicate, block_bytes)
    long = read(file, asked, through_all_forms(options), sizes, deduplicate, 1 << 20)
    assert short == long


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
        published = build(workspace, "pretrain_tokens", "docs")
        trees.append(tree(workspace.stores))
    assert trees[0] == trees[1] == trees[2]
    assert [(refusal.id, refusal.reason) for refusal in refusals(published)][:6] == [
        ("a.jsonl:8", "duplicate"),
        ("a.jsonl:32", "too_short"),
        ("a.jsonl:41", "missing_field"),
        ("a.jsonl:42", "too_long"),
        ("a.jsonl:51", "noncharacter"),
        ("b.jsonl:1", "duplicate"),
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


# How many documents are for which engine, against what the reference library was given while the store was built.


ODD = "\U000f0000"
"""A code point of a private plane, which is never tried."""
BY_ENGINE_TEXTS = [f"document {number}{ODD * (number % 7 == 0)} é{BETWEEN * (number % 31 == 5)}" for number in range(200)]
FOR_REFERENCE = {text for text in BY_ENGINE_TEXTS if ODD in text or BETWEEN in text}


@pytest.mark.parametrize("block", [1, 2 << 20])
def test_documents_are_counted_by_what_is_in_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    given = set[str]()
    encode = ReferenceEngine.encode

    def watched(self: ReferenceEngine, texts: Sequence[str]) -> Flat:
        given.update(texts)
        return encode(self, texts)

    monkeypatch.setattr(ReferenceEngine, "encode", watched)
    monkeypatch.setitem(documents.read_documents.__kwdefaults__, "block_bytes", block)
    file = jsonl(tmp_path / "docs.jsonl", ({"text": text} for text in BY_ENGINE_TEXTS))
    workspace = workspace_in(tmp_path, minimal("pretrain", {"docs": {"files": [str(file)], "schema": "text"}}, tokenizer_loader="file"))
    build(workspace, "pretrain_raw", "docs")
    given.clear()
    published = EVERY["pretrain_tokens"].build(workspace, "docs").propose()
    assert given & set(BY_ENGINE_TEXTS) == FOR_REFERENCE
    store = store_of(workspace, published)
    assert by_engine(store, 1 << 20) == {"gigatoken": 200 - len(FOR_REFERENCE), "tokenizers": len(FOR_REFERENCE)}
    tokens = published.manifest.counts["tokens"]
    assert by_engine(store, tokens) and not by_engine(store, tokens - 1)


# `preprocessing.fim` from the configuration to a checked store.


Made = Callable[..., tuple[Workspace, Published]]


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    return tokenizer_with_sentinels(tmp_path)


@pytest.fixture
def made(make: Any, tokenizer: str) -> Made:
    def made(
        name: str, documents: dict[str, Any] | None = None, output: dict[str, Any] | None = None, **preprocessing: Any
    ) -> tuple[Workspace, Published]:
        domains = {"docs": documents or domain("docs.jsonl.zst", "text")}
        family = {"tokenizer": tokenizer, "domains": domains, "preprocessing": preprocessing, "output": output or {}}
        workspace = make({"pretrain": family}, name)
        return workspace, build(workspace, "pretrain_tokens", "docs")

    return made


def ids_of_documents(workspace: Workspace, store: Published) -> list[list[int]]:
    stream = open_stream(store.directory, "docs_train")
    return [stream.record(i, "tokens").tolist() for i in range(len(stream))]


def test_without_a_rate_nothing_changes(made: Made) -> None:
    _, plain = made("plain")
    _, zero = made("zero", fim={"rate": 0.0, "seed": 0, "middle_token": "<|fim_middle|>"})
    assert zero.manifest.build_key == plain.manifest.build_key
    assert zero.manifest.content_hash == plain.manifest.content_hash


def test_a_share_of_the_documents_is_cut_and_every_check_holds(made: Made) -> None:
    workspace, cut = made("cut", fim={"rate": 0.5})
    plain = ids_of_documents(*made("plain"))
    found = ids_of_documents(workspace, cut)
    identity = verdicts(workspace, cut)["tokenization_identity"]
    number = identity.numbers["documents_cut"]
    assert 0 < number < len(found) == len(plain)
    assert sum(a != b for a, b in zip(found, plain, strict=True)) == number
    assert f"{number:,} are cut into parts" in identity.summary
    # three sentinels more, and whatever two cuts do to the words they go through
    assert all(len(a) > len(b) for a, b in zip(found, plain, strict=True) if a != b)
    assert made("again", fim={"rate": 0.5})[1].manifest.content_hash == cut.manifest.content_hash
    assert made("seed", fim={"rate": 0.5, "seed": 1})[1].manifest.content_hash != cut.manifest.content_hash


@pytest.mark.parametrize("fault", ["sentinels exchanged", "parts exchanged", "a sentinel lost", "an uncut document cut"])
def test_a_store_with_its_parts_in_the_wrong_place_fails(made: Made, fault: str) -> None:
    workspace, store = made("cut", output={"storage_format": "bin"}, fim={"rate": 0.5, "spm_rate": 0.0})
    sentinels = [workspace.vocabulary(workspace.family(Pretrain)).backend.token_to_id(text) for text in TOKENS.values()]
    prefix, suffix, middle = sentinels
    stream = Ragged(store, "docs_train")
    is_cut = [prefix in stream.tokens[stream.span(i)] for i in range(len(stream.ends))]
    span = stream.span(is_cut.index(fault != "an uncut document cut"))
    ids = stream.tokens[span].copy()
    at = {token: int(np.flatnonzero(ids == token)[0]) for token in sentinels if token in ids}
    if fault == "sentinels exchanged":
        ids[at[suffix]], ids[at[middle]] = middle, suffix
    elif fault == "parts exchanged":
        head, body = ids[1 : at[suffix]], ids[at[middle] + 1 : -1]
        ids = np.concatenate([ids[:1], body, ids[at[suffix] : at[middle] + 1], head, ids[-1:]])
    elif fault == "a sentinel lost":
        ids[at[middle]] = ids[at[middle] + 1]
    else:
        ids[[0, 1, -2]] = sentinels
    stream.tokens[span] = ids
    stream.tokens.flush()
    assert "tokenization_identity" in failing(workspace, resealed(store))


def test_a_document_with_a_typed_sentinel_is_refused(made: Made, tmp_path: Path) -> None:
    rows = [{"text": "A document."}, {"text": "Another <|fim_suffix|> document."}]
    file = jsonl(tmp_path / "typed.jsonl", rows)
    _, store = made("typed", {"files": [str(file)], "schema": "text"}, fim={"rate": 0.0001})
    assert store.manifest.counts["kept"] == 1
    assert [(each.reason, json.loads(each.payload)) for each in refusals(store)] == [("control_token_in_content", rows[1])]


def test_a_tokenizer_without_the_tokens_stops(make: Any) -> None:
    family = {"tokenizer": TOKENIZER, "domains": {"docs": domain("docs.jsonl.zst", "text")}, "preprocessing": {"fim": {"rate": 0.5}}}
    workspace = make({"pretrain": family})
    build(workspace, "pretrain_raw", "docs")
    with pytest.raises(ConfigError, match=r"preprocessing\.fim\.prefix_token: .*no added token '<\|fim_prefix\|>'.*It has: "):
        build(workspace, "pretrain_tokens", "docs")


# Pretraining documents of which parts are not trained: sections, regions of a semantic data array, common words.


SEMANTIC = [
    {"semantic_data_array": [{"content": [{"a": "Not this."}, {"b": " This is trained."}], "semantic_loss_weight": [0, 1]}]},
    {"semantic_data_array": [{"content": [{"a": "All of it."}]}]},
    {"semantic_data_array": [{"content": [{"a": "Nothing here."}], "semantic_loss_weight": [0]}]},
]
SECTIONS = {"sections": [{"field": "q", "action": "mask"}, {"field": "a", "action": "train"}]}
CASES: list[tuple[str, dict[str, Any], list[dict[str, Any]], list[str], list[str]]] = [
    ("semantic", {}, SEMANTIC, [" This is trained.<|endoftext|>", "All of it.<|endoftext|>"], ["pretrain/nothing_to_train"]),
    ("sections", SECTIONS, [{"q": "A question?", "a": "\nAn answer."}], ["\nAn answer.<|endoftext|>"], []),
    ("common_words_mask", {}, [{"prompt": "Who?\n", "completion": "I am the keeper"}], ["Who?\n keeper<|endoftext|>"], []),
]


def built(
    make: Make, tmp_path: Path, schema: str, options: dict[str, Any], rows: list[dict[str, Any]], **more: Any
) -> tuple[Any, Published]:
    own = domain(jsonl(tmp_path / "rows.jsonl", rows), schema, options=options)
    workspace = make(minimal("pretrain", {"d": own}, **more))
    return workspace, build(workspace, "pretrain_tokens", "d")


@pytest.mark.parametrize("storage", ["h5", "bin"])
@pytest.mark.parametrize(("schema", "options", "rows", "trained", "refused"), CASES, ids=[case[0] for case in CASES])
def test_what_weighs_0_is_not_trained(
    make: Make,
    tmp_path: Path,
    storage: str,
    schema: str,
    options: dict[str, Any],
    rows: list[dict[str, Any]],
    trained: list[str],
    refused: list[str],
) -> None:
    """Sections to be masked and regions that weigh 0 were trained like all others."""
    workspace, published = built(make, tmp_path, schema, options, rows, output={"storage_format": storage})
    store = open_stream(published.directory, "d_train")
    vocabulary = workspace.vocabulary(workspace.family(Pretrain))
    found = [
        vocabulary.backend.decode(store.record(n, "tokens")[store.record(n, "loss_mask") != 0].tolist(), False) for n in range(len(store))
    ]
    assert found == trained
    assert [f"{each.stage}/{each.reason}" for each in refusals(published)] == refused
    assert published.manifest.counts["trained_tokens"] == int(np.sum(store.columns["loss_mask"].values[:] != 0))


def test_documents_that_are_trained_in_full_have_no_mask(make: Make, tmp_path: Path) -> None:
    _, published = built(make, tmp_path, "semantic", {}, [SEMANTIC[1]])
    assert set(open_stream(published.directory, "d_train").columns) == {"tokens"}


def test_exports_carry_the_mask_or_refuse(make: Make, tmp_path: Path) -> None:
    _, published = built(make, tmp_path, "semantic", {}, SEMANTIC[:2])
    for name, options in (("litdata", {"block_size": 4}), ("tlfs", {}), ("megatron", {})):
        with pytest.raises(ConfigError, match=r"loss mask"):
            export(published, name, tmp_path / name, **options)
    export(published, "megatron", tmp_path / "instruction", layout="instruction")
    store, out = open_stream(published.directory, "d_train"), export(published, "astrai", tmp_path / "astrai")
    mask = np.fromfile(out / "train" / "shard_0000" / "loss_mask.bin", np.int32)
    expected = np.asarray(store.columns["loss_mask"].values[:]).copy()
    expected[store.columns["tokens"].starts_of(slice(0, len(store)))] = 0
    assert mask.tolist() == expected.tolist()


def test_windows_without_a_mask_refuse_a_stream_that_has_one(make: Make, tmp_path: Path) -> None:
    """`seq` windows of a masked stream trained every token."""
    _, published = built(make, tmp_path, "semantic", {}, SEMANTIC[:2])
    with pytest.raises(ConfigError, match="loss_mask"):
        DatasetFactory.load("seq", published.directory, 4)
    assert len(DatasetFactory.load("sft", published.directory, 4)) > 0
    assert "loss_mask" in load(published.directory).keys


def test_fill_in_the_middle_cannot_cut_them(make: Make, tmp_path: Path) -> None:
    fim = {"rate": 1.0, "prefix_token": "<|im_start|>", "suffix_token": "<|im_end|>", "middle_token": "<|pad|>"}
    with pytest.raises(ConfigError, match=r"regions that are not trained: preprocessing\.fim would cut"):
        built(make, tmp_path, "semantic", {}, SEMANTIC[:2], preprocessing={"fim": fim})


@pytest.mark.parametrize("options", [{}, {"strip": True}, {"min_chars": 3}, {"max_chars": 3}, {"text_key": "body", "strip": True}], ids=str)
def test_the_shortcut_is_taken_for_every_text_that_the_schema_takes(options: dict[str, Any]) -> None:
    schema = convert_with("GeneralPretrainHandler", options)
    assert isinstance(schema, TextField)
    for text in ("", " \n", "a", "ab", "abc", "abcd", " ab\n", "\u2028\u732b "):
        try:
            expected = "".join(turn.text for turn in schema({schema.key: text}).turns)
        except Refused:
            expected = None
        assert schema.plain({schema.key: text}) == expected


@pytest.mark.parametrize(
    ("region", "fault"),
    [
        (Region("text", "a"), None),
        (Region("text", "a", 1), None),
        (Region("text", "a", 0.5), "a region weighs 0.5, and the stream has no loss mask"),
        (Region("text", "a", attend=False), "a region is not attended, and the stream has no loss mask"),
        (Region("text", "a", 0.5, drop=True), None),
        (Region("text", "", 0.5), None),
    ],
)
def test_a_stream_without_a_mask_trains_every_token(region: Region, fault: str | None) -> None:
    numbers = Counter[str]()
    assert _weighed_fault(Unmasked("a", Sample((Turn(DOCUMENT, (Region("text", "b"), region)),))), numbers) == fault and numbers == {
        "documents": 1
    }
