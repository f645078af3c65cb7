"""Queries with positive and negative texts: every spelling, what is refused, checks, exports, and the way back to the row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from prep_assets import export
from prep_assets.errors import ConfigError, PrepAssetsError, Refused, StoreError
from prep_assets.extensions.explain.trace import trace
from prep_assets.extensions.explain.where import where
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.graph.graph import assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Contrast
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import build, domain, jsonl, make, minimal, refusals, workspace_in

ROWS = [
    {"query": f"What is {n}?", "pos": [f"It is {n}.", f"{n}, of course."], "neg": [f"It is {n + 1}.", f"Blue, {n} times."]}
    for n in range(24)
]


def built(folder: Path, rows: list[dict[str, Any]], schema: str = "contrastive", **options: Any) -> tuple[Workspace, Published]:
    folder.mkdir(exist_ok=True)
    source = domain(jsonl(folder / "rows.jsonl", rows), schema)
    workspace = workspace_in(folder, minimal("contrastive", {"r": source, "s": source}, **options))
    return workspace, build(workspace, "contrastive", "r")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Published]:
    exports = {
        "sbert": {"from": "contrastive", "to": "sentence_transformers", "options": {"negatives": 1}},
        "flag": {"from": "contrastive", "to": "flag_embedding"},
    }
    return built(tmp_path_factory.mktemp("contrastive"), ROWS, test_fraction=0.2, exports=exports)


@pytest.mark.parametrize(
    ("row", "found"),
    [
        # sentence-transformers
        ({"anchor": "q", "positive": "p"}, Contrast("q", ("p",))),
        ({"anchor": "q", "positive": "p", "negative": "n"}, Contrast("q", ("p",), ("n",))),
        ({"query": "q", "positive": "p", "negative_2": "b", "negative_10": "c", "negative_1": "a"}, Contrast("q", ("p",), ("a", "b", "c"))),
        # FlagEmbedding
        (
            {"query": "q", "pos": ["p"], "neg": ["a", "b"], "pos_scores": [1], "neg_scores": [0.5, 0], "prompt": "Find: "},
            Contrast("q", ("p",), ("a", "b"), None, "Find: ", (1.0,), (0.5, 0.0)),
        ),
        # Cerebras' types as columns
        ({"question": "q", "context_positive": "p", "context_negative": ["a"]}, Contrast("q", ("p",), ("a",))),
        # Tevatron and DPR: passages with a title
        (
            {
                "query": "q",
                "positive_passages": [{"docid": "1", "title": "T", "text": "p"}],
                "negative_passages": [{"docid": "2", "title": "", "text": "a"}],
            },
            Contrast("q", ("T\np",), ("a",)),
        ),
    ],
)
def test_each_spelling_is_read(row: dict[str, Any], found: Contrast) -> None:
    assert apply(convert_with("contrastive"), row) == found


def test_hooks_of_cerebras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert apply(convert_with("ques_embed_gen_hook", {"question_key": "ques"}), {"ques": "q", "id": 3}) == Contrast("q", id=3)
    assert apply(convert_with("ctx_embed_gen_hook"), {"context": "c", "id": 4}) == Contrast("c", id=4)
    code = """
def training(row):
    return [{"type": "question", "content": row["q"]}, {"type": "context_positive", "content": row["p"]},
            *({"type": "context_negative", "content": each} for each in row["n"])]

def generation(row):
    return [{"type": "embedding", "content": row["q"]}, {"type": "id", "content": int(row["i"])}]

def wrong(row):
    return [{"type": "question", "content": row["q"]}, {"type": "question", "content": row["q"]}]
"""
    (tmp_path / "raft_hooks.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    row = {"q": "q", "p": "p", "n": ["a", "b"], "i": "7"}
    assert apply(convert_with("raft_hooks:training"), {k: v for k, v in row.items() if k != "i"}) == Contrast("q", ("p",), ("a", "b"))
    assert apply(convert_with("raft_hooks:generation"), {"q": "q", "i": "7"}) == Contrast("q", id=7)
    with pytest.raises(Refused, match="2 turns have the type 'question'"):
        apply(convert_with("raft_hooks:wrong"), {"q": "q"})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"query": "q"}, "missing_field"),
        ({"query": "q", "anchor": "q", "positive": "p"}, "conflicting_fields"),
        ({"query": " ", "positive": "p"}, "empty_query"),
        ({"query": "q", "pos": []}, "empty_positive"),
        ({"query": "q", "pos": ["p"], "neg": [""]}, "empty_text"),
        ({"query": "q", "pos": ["p"], "neg": [3]}, "wrong_type"),
        ({"query": "q", "pos": ["p"], "pos_scores": [1, 2]}, "length_mismatch"),
        ({"query": "q", "pos": ["p"], "pos_scores": 1}, "wrong_type"),
    ],
)
def test_rows_that_are_refused(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused) as caught:
        apply(convert_with("contrastive"), row)
    assert caught.value.reason == reason


def test_one_field_for_two_sides_means_nothing() -> None:
    with pytest.raises(ConfigError, match="name one field twice"):
        convert_with("contrastive", {"query_key": "a", "positive_key": "a"})


def test_a_domain_becomes_lines_and_every_check_and_corruption_holds(store: tuple[Workspace, Published]) -> None:
    workspace, published = store
    train, test = (list(open_stream(published.directory, name)) for name in ("contrastive", "contrastive_test"))
    assert train + test and sorted(train + test, key=lambda row: int(row["query"][8:-1])) == [
        {"query": row["query"], "positives": row["pos"], "negatives": row["neg"]} for row in ROWS
    ]
    assert 0 < len(test) < len(train)
    trials = selftest(workspace, published)
    assert [trial for trial in trials if not trial.passed] == []
    assert sum(trial.tried > 0 for trial in trials) > 20


def test_what_stands_in_two_places_is_refused(tmp_path: Path) -> None:
    wrong = {
        "positive_among_negatives": {"query": "a", "pos": ["b"], "neg": ["c", "b "]},
        "repeated_text": {"query": "a", "pos": ["b"], "neg": ["c", "c"]},
        "too_long": {
            "query": "a",
            "pos": ["one two three four five six seven eight nine ten eleven twelve thirteen, fourteen, fifteen; sixteen!"],
        },
        "duplicate": {"query": "What?", "pos": ["That."]},
    }
    rows = [{"query": "What?", "pos": ["That."]}, *wrong.values()]
    _, published = built(tmp_path, rows, preprocessing={"max_seq_len": 12}, tokenizer_loader="file")
    assert [refusal.reason for refusal in refusals(published)] == list(wrong)


def test_texts_that_are_only_to_be_embedded_keep_their_ids(tmp_path: Path) -> None:
    rows = [{"context": f"Text {n}.", "id": n} for n in range(4)]
    _, published = built(tmp_path, rows, "ctx_embed_gen_hook")
    assert list(open_stream(published.directory, "contrastive")) == [{"query": f"Text {n}.", "id": n} for n in range(4)]
    with pytest.raises(PrepAssetsError, match="the id 1 was given to another text before"):
        built(tmp_path / "twice", [{"context": "A", "id": 1}, {"context": "B", "id": 1}], "ctx_embed_gen_hook")


# -- exports ------------------------------------------------------------------------------------------------------------------------------


def test_exports_are_assets_with_their_checks(store: tuple[Workspace, Published]) -> None:
    workspace, published = store
    lines = list(open_stream(published.directory, "contrastive"))
    known = assets_of(workspace)
    sbert, flag = (make(workspace, known[f"contrastive_export_{name}"], "r") for name in ("sbert", "flag"))
    assert pq.read_table(sbert.directory / "train.parquet").to_pylist() == [
        {"anchor": row["query"], "positive": positive, "negative": row["negatives"][0]} for row in lines for positive in row["positives"]
    ]
    assert [json.loads(line) for line in (flag.directory / "train.jsonl").read_text("utf-8").splitlines()] == [
        {"query": row["query"], "pos": row["positives"], "neg": row["negatives"]} for row in lines
    ]


@pytest.mark.parametrize(
    ("rows", "format", "options", "says"),
    [
        ([{"query": "a", "pos": ["b"]}], "flag_embedding", {}, "line 1 has no negative text"),
        (
            [{"query": "a", "pos": ["b"], "neg": ["c"], "pos_scores": [1], "neg_scores": [0]}, {"query": "d", "pos": ["e"], "neg": ["f"]}],
            "flag_embedding",
            {},
            "line 2 lacks scores",
        ),
        (
            [{"query": "a", "pos": ["b"], "neg": ["c"]}, {"query": "d", "pos": ["e"], "neg": ["f"], "prompt": "Find: "}],
            "flag_embedding",
            {},
            "line 2 has an instruction, others do not agree",
        ),
        (
            [{"query": "a", "pos": ["b"], "neg": ["c", "d"]}, {"query": "e", "pos": ["f"], "neg": ["g"]}],
            "sentence_transformers",
            {},
            "line 2 has 1 negatives, others have 2, and every row needs as many. Set negatives: 1",
        ),
        ([{"query": "a", "pos": ["b"], "neg": ["c"]}], "sentence_transformers", {"negatives": 2}, "line 1 has 1 negatives"),
        (
            [{"query": "a", "pos": ["b"], "prompt": "Find"}],
            "sentence_transformers",
            {},
            "line 1 has 'instruction', for which there is no column",
        ),
        ([{"query": "a", "pos": ["b"]}], "sentence_transformers", {"leave_out": ["query"]}, "'query' is none of instruction"),
    ],
)
def test_what_a_trainer_could_not_read_stops_the_export(
    tmp_path: Path, rows: list[dict[str, Any]], format: str, options: dict[str, Any], says: str
) -> None:
    _, published = built(tmp_path, rows)
    with pytest.raises(ConfigError, match=says):
        export(published, format, tmp_path / "out", stream="contrastive", **options)


def test_negatives_of_several_columns(tmp_path: Path) -> None:
    rows = [{"query": "a", "pos": ["b"], "neg": ["c", "d", "e"], "prompt": "Find"}, {"query": "f", "pos": ["g"], "neg": ["h", "i", "j"]}]
    _, published = built(tmp_path, rows)
    export(published, "sentence_transformers", tmp_path / "out", stream="contrastive", leave_out=["instruction"])
    table = pq.read_table(tmp_path / "out" / "train.parquet")
    assert table.column_names == ["anchor", "positive", "negative_1", "negative_2", "negative_3"]


# -- lineage and training -----------------------------------------------------------------------------------------------------------------


def test_a_line_is_traced_found_and_forgotten(tmp_path: Path) -> None:
    workspace, published = built(tmp_path, ROWS[:4])
    found = trace(workspace, "contrastive", 2, partition="r")
    assert found.pieces[0].line == list(open_stream(published.directory, "contrastive"))[2]
    [place] = [each for whereabouts in where(workspace, "r#2") for each in whereabouts.found]
    assert (place.asset, place.partition, place.stream, place.row) == ("contrastive", "r", "contrastive", 2)


def test_the_data_set_has_an_item_for_each_positive(store: tuple[Workspace, Published]) -> None:
    pytest.importorskip("torch")
    from prep_assets.training import ContrastiveDataset

    _, published = store
    lines = list(open_stream(published.directory, "contrastive"))
    dataset = ContrastiveDataset(published.directory, negatives=2)
    expected = [
        {"anchor": row["query"], "positive": positive, "negative_1": row["negatives"][0], "negative_2": row["negatives"][1]}
        for row in lines
        for positive in row["positives"]
    ]
    assert [dataset[at] for at in range(len(dataset))] == expected
    assert dataset[-1] == expected[-1]
    with pytest.raises(IndexError):
        dataset[len(dataset)]
    with pytest.raises(StoreError, match="each row needs one positive and 3 negatives"):
        ContrastiveDataset(published.directory, negatives=3)
