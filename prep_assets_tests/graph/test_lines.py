"""Lines: their form, those that are looked at again, merged ones, contrastive rows."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from prep_assets.checks.sources_again import DomainSource
from prep_assets.config.models import FAMILIES
from prep_assets.engine.execute import verdicts_of as verdicts
from prep_assets.errors import ConfigError, PrepAssetsError, Refused, StoreError
from prep_assets.exports import export
from prep_assets.extensions.explain.trace import trace
from prep_assets.extensions.explain.where import where
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.graph.graph import EVERY, assets_of
from prep_assets.pipeline.merging import _records
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Contrast
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with, schemas
from prep_assets.stores.lines import Lines, LinesWriter, open_lines
from prep_assets.stores.tokens import TokenStore, append_records, open_tokens, record_writer
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import build, build_all, domain, jsonl, make, minimal, refusals, resealed, workspace_in
from prep_assets_tests.proofs.spoiled_records import on_row

# The form that a family needs: a schema's variant that gives it is taken, and a schema without one stops the build.


@pytest.mark.parametrize("schema", ["alpaca", "sharegpt"])
def test_the_pairwise_variant_is_taken_for_preferences(make: Make, tmp_path: Path, schema: str) -> None:
    file = jsonl(tmp_path / "p.jsonl", [dict(schemas()[f"{schema}_pairwise"].example)])
    found = {}
    for name in (schema, f"{schema}_pairwise"):
        workspace = make(minimal("preference", {"a": domain(file, name)}, test_fraction=0.0, form="messages"), name)
        published = build_all(workspace, ["preference"])["preferences", ""]
        found[name] = list(open_lines(published.directory, "preferences"))
    assert len(found[schema]) == 1 and found[schema] == found[f"{schema}_pairwise"]


WRONG = [
    ("preference", "messages", "Pair"),
    ("preference", "rl_prompt", "Pair"),
    ("sft", "preference", "Sample"),
    ("sft", "gsm8k_prompt", "Sample"),
    ("pretrain", "stepwise", "Sample"),
    ("rl", "messages", "Prompt"),
]


@pytest.mark.parametrize(("family", "schema", "form"), WRONG)
def test_a_schema_that_cannot_give_the_form_stops(make: Make, tmp_path: Path, family: str, schema: str, form: str) -> None:
    # whatever the rows are: none is converted
    domains = {"z": domain(jsonl(tmp_path / "z.jsonl", [{"no": "such"}]), schema)}
    if family == "preference":
        domains["a"] = domain(jsonl(tmp_path / "a.jsonl", [{"no": "pair"}]), "preference")
    workspace = make(minimal(family, domains))
    with pytest.raises(ConfigError, match=rf"domains\.z: schema '{schema}' gives no {form}, which is needed here\. These do: "):
        workspace.family(FAMILIES[family])


OWN = """
from prep_assets.samples import ASSISTANT, USER, Pair, Sample, turn

def either(row):
    question, answer = turn(USER, "Q?"), turn(ASSISTANT, row["a"])
    if "b" in row:
        return Pair((question,), (answer,), (turn(ASSISTANT, row["b"]),))
    return Sample((question, answer), label=row.get("label"))
"""


def test_functions_of_ones_own_are_judged_row_by_row(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_forms.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    rows: list[dict[str, Any]] = [{"a": "yes", "b": "no"}, {"a": "yes"}, {"a": "yes", "label": True}]
    own = {"o": domain(jsonl(tmp_path / "o.jsonl", rows), "own_forms:either")}
    try:
        pairs = build_all(make(minimal("preference", own, test_fraction=0.0), "p"), ["preference"])["preferences_by_domain", "o"]
        workspace = make(minimal("sft", own), "s")
        tokens = build(workspace, "sft_tokens", "o")
    finally:
        sys.modules.pop("own_forms", None)
    assert [(each.id, each.reason) for each in refusals(pairs)] == [("o.jsonl:2", "not_a_pair")]
    assert (pairs.manifest.counts["train"], pairs.manifest.counts["unpaired_train"]) == (1, 1)
    assert [(each.id, each.reason) for each in refusals(tokens)] == [("o.jsonl:1", "not_a_sample")]


def test_lines_and_their_rows_come_of_one_reading(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of both files of a split, whatever else is asked for, and whether or not a line differs."""
    rows = [{"prompt": f"P{i}?", "chosen": "yes", "rejected": "no"} for i in range(40)]
    workspace = make(minimal("preference", {"p": domain(jsonl(tmp_path / "p.jsonl", rows), "preference")}, test_fraction=0.3))
    published = build_all(workspace, ["preference"])["preferences_by_domain", "p"]
    readings: list[int] = []
    rows_of = DomainSource.rows
    monkeypatch.setattr(DomainSource, "rows", lambda *of: readings.append(1) or rows_of(*of))

    def found(*names: str) -> tuple[dict[str, Verdict], int]:
        readings.clear()
        checks = [check for check in EVERY["preferences_by_domain"].checks if check.name in names]
        return dict(verdicts(workspace, EVERY["preferences_by_domain"], published, checks)), len(readings)

    alone = {**found("source_match")[0], **found("selection")[0]}
    assert found("source_match")[1] == 1
    assert found("source_match", "selection") == (alone, 1)
    assert all(verdict.passed for verdict in alone.values())
    on_row("preferences", 4, chosen="maybe")(published)
    published = resealed(published)
    wrong, count = found("source_match", "selection")
    assert wrong == {**found("source_match")[0], "selection": alone["selection"]} and count == 1
    assert not wrong["source_match"].passed


# Which record of which domain each line of a merged file has.


DOMAINS = {"a": 20, "b": 3, "none": 0, "c": 11}


def written(folder: Path, counts: dict[str, int], seed: int | None = None) -> Lines:
    """Lines of some domains, each with the rows 0, 2, 4 … of its file 1."""
    folder.mkdir()
    with LinesWriter(folder, "lines", tuple(counts), shuffle_seed=seed) as writer:
        for number, (name, count) in enumerate(counts.items()):
            for row in range(count):
                writer.append({"line": f"{name} {row}"}, source=number, file=1, at=2 * row)
    return open_lines(folder, "lines")


def tokens(folder: Path, number: int, lines: list[int]) -> TokenStore:
    """Records of some lines of a domain: as many tokens as the line has digits, all of them the number of the domain."""
    writer = record_writer("bin", folder, "tokens", {"tokens": "int32"})
    lengths = np.array([len(str(line)) for line in lines], np.int64)
    with writer:
        writer.append({"tokens": np.full(int(lengths.sum()), number, np.int32)}, lengths, [0] * len(lines), lines)
    return open_tokens(folder, "tokens")


@pytest.mark.usefixtures("short_stretches")
def test_records_follow_their_lines(tmp_path: Path) -> None:
    merged = written(tmp_path / "merged", DOMAINS, seed=3)
    lines = {name: written(tmp_path / name, {name: count}) for name, count in DOMAINS.items()}
    tokenized = {"a": sorted(random.Random(0).sample(range(20), 15)), "c": list(range(11))}
    streams = {name: tokens(tmp_path / name, number, tokenized[name]) for number, name in enumerate(tokenized)}
    wanted = [
        (list(streams).index(name), tokenized[name].index(int(line)), at)
        for at, (name, line) in enumerate(row["line"].split() for row in merged)
        if name in streams and int(line) in tokenized[name]
    ]
    found = _records(merged, lines, streams)
    assert [*zip(*(column.tolist() for column in found), strict=True)] == wanted and len(wanted) == 26

    with record_writer("bin", tmp_path / "merged", "tokens", {"tokens": "int32"}) as writer:
        append_records(writer, list(streams.values()), *found)
    joined = open_tokens(tmp_path / "merged", "tokens")
    assert joined.row.tolist() == [at for *_, at in wanted]
    for at, (stream, record, _) in enumerate(wanted):
        assert joined.record(at, "tokens").tolist() == [stream] * len(str(list(tokenized.values())[stream][record]))


@pytest.mark.parametrize("count", [10, 12])
def test_lines_that_are_not_those_of_the_domain_stop_the_build(tmp_path: Path, count: int) -> None:
    merged, other = written(tmp_path / "merged", {"c": 11}, seed=0), written(tmp_path / "c", {"c": count})
    with pytest.raises(StoreError, match=f"does not hold the {count} lines of .*Build it again"):
        _records(merged, {"c": other}, {"c": tokens(tmp_path / "c", 0, [1, 2])})


# Queries with positive and negative texts: every spelling, what is refused, checks, exports, and the way back to the row.


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
    train, test = (list(open_lines(published.directory, name)) for name in ("contrastive", "contrastive_test"))
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
    assert list(open_lines(published.directory, "contrastive")) == [{"query": f"Text {n}.", "id": n} for n in range(4)]
    with pytest.raises(PrepAssetsError, match="the id 1 was given to another text before"):
        built(tmp_path / "twice", [{"context": "A", "id": 1}, {"context": "B", "id": 1}], "ctx_embed_gen_hook")


# -- exports ------------------------------------------------------------------------------------------------------------------------------


def test_exports_are_assets_with_their_checks(store: tuple[Workspace, Published]) -> None:
    workspace, published = store
    lines = list(open_lines(published.directory, "contrastive"))
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
    assert found.pieces[0].line == list(open_lines(published.directory, "contrastive"))[2]
    [place] = [each for whereabouts in where(workspace, "r#2") for each in whereabouts.found]
    assert (place.asset, place.partition, place.stream, place.row) == ("contrastive", "r", "contrastive", 2)


def test_the_data_set_has_an_item_for_each_positive(store: tuple[Workspace, Published]) -> None:
    pytest.importorskip("torch")
    from prep_assets.errors import StoreError
    from prep_assets.training import ContrastiveDataset

    _, published = store
    lines = list(open_lines(published.directory, "contrastive"))
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
