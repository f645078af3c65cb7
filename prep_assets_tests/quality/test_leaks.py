"""Held-out texts in the graph: what waits for them, what refuses them, and what is built again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets.data import tables as cuts
from prep_assets.errors import CheckFailed, ConfigError, SourceError
from prep_assets.extensions.leaks import checks
from prep_assets.extensions.leaks.search import PASSAGES, TEXTS
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.graph.graph import EVERY, assets_of
from prep_assets.pipeline import tokens
from prep_assets.pipeline.verdicts import read_verdicts
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published
from prep_assets.workers.pool import Pool
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, out_of_date, refusals, tree, verdicts, workspace_in

WORDS = ["counts", "the", "red", "and", "blue", "stones", "in", "boxes", "from", "north", "to", "south", "then", "sums", "up"]


def question(number: int) -> str:
    """Fifteen words; two questions have none in common."""
    return " ".join(f"{word}{number}" for word in WORDS)


def rows(numbers: range, planted: dict[int, str] | None = None) -> list[dict[str, str]]:
    """Prompts with completions; a planted text stands in the middle of an answer."""
    planted = planted or {}
    return [{"prompt": question(n), "completion": f"I say {planted[n]} and so on." if n in planted else f"It is {n}."} for n in numbers]


PLANTED = {3: question(1004), 17: question(1011).upper(), 40: question(1011)}
PLACES = [f"rows.jsonl:{n + 1}" for n in PLANTED]
BENCH = range(1000, 1020)


def of(folder: Path, planted: dict[int, str] | None = None, bench: range = BENCH, more: Any = None, **options: Any) -> Workspace:
    """A workspace with a domain of sft, and a held-out data set."""
    folder.mkdir(parents=True, exist_ok=True)
    source = domain(jsonl(folder / "rows.jsonl", rows(range(60), planted)), "prompt_completion")
    held_out = {"domains": {"bench": domain(jsonl(folder / "bench.jsonl", rows(bench)), "prompt_completion")}, **options}
    return workspace_in(folder, {**minimal("sft", {"rows": source, **(more or {})}, template="chatml"), "eval": held_out})


def leaks(published: Published) -> list[tuple[str, str, str]]:
    """Training record, held-out data set and record of each leak."""
    return [(f"rows.jsonl:{leak['row'] + 1}", leak["domain"], leak["record"]) for leak in read_verdicts(published).to_pylist()]


FOUND = [(place, "bench", f"bench.jsonl:{n}") for place, n in zip(PLACES, (4, 11, 11), strict=True)]


def test_a_domain_with_leaks_is_not_built(tmp_path: Path) -> None:
    workspace = of(tmp_path, PLANTED)
    with pytest.raises(CheckFailed, match=r"3 of 60 examples hold texts of bench \(eval\) \(3\); first rows.jsonl:4 shares 15 of 18 words"):
        build(workspace, "sft_tokens", "rows")
    assert workspace.published("sft_leaks", "rows") is workspace.published("sft_tokens", "rows") is None
    candidate = workspace.place("sft_leaks", "rows").candidate()
    assert candidate is not None
    assert leaks(candidate) == FOUND


@pytest.mark.parametrize(("policy", "kept"), [("drop", 57), ("report", 60)])
def test_leaks_are_refused_or_counted(tmp_path: Path, policy: str, kept: int) -> None:
    workspace = of(tmp_path, PLANTED, policy=policy)
    published = build(workspace, "sft_tokens", "rows")
    assert published.manifest.counts["kept"] == kept
    refused = [(each.id, each.stage, each.reason) for each in refusals(published)]
    assert refused == ([(place, "leaks", "held_out") for place in PLACES] if policy == "drop" else [])
    searched = workspace.built("sft_leaks", "rows")
    assert leaks(searched) == FOUND
    assert (searched.manifest.counts["examples"], searched.manifest.counts["leaks"]) == (60, 3)
    assert all(trial.passed for trial in selftest(workspace, searched))
    assert out_of_date(workspace, EVERY["sft_tokens"], "rows") == []


def test_a_new_benchmark_searches_again_and_builds_nothing(tmp_path: Path) -> None:
    before = build(of(tmp_path), "sft_tokens", "rows")
    workspace = of(tmp_path, bench=range(1000, 1030))
    waiting = [(asset.name, state) for asset, _, state in out_of_date(workspace, EVERY["sft_tokens"], "rows")]
    assert waiting == [("eval_raw", "stale"), ("eval_passages", "stale"), ("sft_leaks", "stale")]
    for asset, partition in (("eval_raw", "bench"), ("eval_passages", ""), ("sft_leaks", "rows")):
        build(workspace, asset, partition)
    assert out_of_date(workspace, EVERY["sft_tokens"], "rows") == []
    assert workspace.built("sft_tokens", "rows").version == before.version
    assert "leaks" not in before.manifest.recipe, "what is never dropped decides no byte"
    leaking = of(tmp_path, bench=range(50, 70))
    with pytest.raises(CheckFailed, match="10 of 60 examples"):
        for asset, partition in (("eval_raw", "bench"), ("eval_passages", ""), ("sft_leaks", "rows")):
            build(leaking, asset, partition)


def test_without_eval_there_is_no_such_asset(tmp_path: Path) -> None:
    workspace = of(tmp_path)
    (workspace.configs / "eval.yaml").unlink()
    assert not [name for name in assets_of(workspace) if name.startswith("eval") or name.endswith("leaks")]
    build(workspace, "sft_tokens", "rows")


def test_what_other_domains_hold_out_is_held_out_here(tmp_path: Path) -> None:
    """By a test file, and by the share that each family's own assets hold out; a domain's own share is none of these."""
    (tmp_path / "more").mkdir()
    held = jsonl(tmp_path / "more" / "held.jsonl", rows(range(20, 24)))
    asked = jsonl(tmp_path / "more" / "asked.jsonl", rows(range(2000, 2010)))
    more = {"more": domain(asked, "prompt_completion", test_files=[str(held)])}
    pairs = [{"prompt": question(n), "chosen": f"Yes {n}.", "rejected": f"No {n}."} for n in range(100, 160)]
    texts = [{"text": question(n)} for n in range(200, 260)]
    workspace = of(tmp_path, more=more, policy="report")
    workspace_in(
        tmp_path, minimal("preference", {"pairs": domain(jsonl(tmp_path / "pairs.jsonl", pairs), "preference")}, test_fraction=0.5)
    )
    workspace_in(tmp_path, minimal("pretrain", {"texts": domain(jsonl(tmp_path / "texts.jsonl", texts), "text")}, test_fraction=0.5))
    jsonl(tmp_path / "rows.jsonl", [*rows(range(20, 60)), *rows(range(100, 160)), *rows(range(200, 260))])
    published = build(workspace, "sft_leaks", "rows")
    found = {(leak["family"], leak["domain"], leak["row"]) for leak in read_verdicts(published).to_pylist()}
    [path] = build(workspace, "preferences").directory.rglob("*test*.jsonl")
    tests = [json.loads(line)["prompt"] for line in path.read_text("utf-8").splitlines()]
    numbers = {("preference", "pairs", 40 + n) for n in range(60) if question(100 + n) in tests}
    assert 10 < len(numbers) < 50
    dev = build(workspace, "pretrain_tokens", "texts").manifest.counts
    documents = {entry for entry in found if entry[0] == "pretrain"}
    assert found == {("sft", "more", row) for row in range(4)} | numbers | documents
    assert 10 < len(documents) < 50
    assert dev["tokens_dev"] * len(texts) == pytest.approx((dev["tokens_dev"] + dev["tokens_train"]) * len(documents), rel=0.05)
    own = build(workspace, "sft_leaks", "more")
    held_out_alone = yaml.safe_load((workspace.configs / "eval.yaml").read_text("utf-8"))
    assert read_verdicts(own).num_rows == 0
    alone = workspace_in(tmp_path, {"eval": {**held_out_alone, "splits": False}})
    for asset, partition, key, expected in (("eval_passages", "", "texts", 20), ("sft_leaks", "rows", "by_set", {})):
        assert build(alone, asset, partition).manifest.counts[key] == expected


@pytest.mark.soak  # with other verdicts `graph/test_workers.py` shows it
@pytest.mark.parametrize("workers", [2, 7])
def test_any_number_of_workers_refuses_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setattr(cuts, "SHARD_BYTES", 400)
    monkeypatch.setattr(tokens, "FEWEST", 2)
    stores = []
    with Pool() as pool:
        for count in (1, workers):
            workspace = replace(of(tmp_path / str(count), PLANTED, policy="drop"), workers=count, pool=pool)
            stores.append(build(workspace, "sft_tokens", "rows"))
    assert len(refusals(stores[0])) == 3
    assert tree(stores[0].directory) == tree(stores[1].directory)


def test_spoiled_passages_and_leaks_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = of(tmp_path, PLANTED, policy="report", rules=["gpt3", "open_r1"])
    searched, passages = build(workspace, "sft_leaks", "rows"), workspace.built("eval_passages")
    table = read_verdicts(searched)
    monkeypatch.setattr(checks, "read_verdicts", lambda store: table.slice(1))
    assert failing(workspace, searched) == ["leaks_again"]
    read = checks.read_table
    for spoiled in (TEXTS, PASSAGES.format("gpt3"), PASSAGES.format("open_r1")):
        monkeypatch.setattr(checks, "read_table", lambda store, name, spoiled=spoiled: read(store, name).slice(int(name == spoiled)))
        assert failing(workspace, passages) == ["passages_again"]


def test_wrong_counts_of_passages_and_leaks_are_noticed(tmp_path: Path) -> None:
    """Bounds judge by them, and reports show them."""
    workspace = of(tmp_path, PLANTED, policy="report", rules=["gpt3", "open_r1"])
    searched, passages = build(workspace, "sft_leaks", "rows"), workspace.built("eval_passages")
    for published, check, names in ((passages, "passages_again", PASSAGE_COUNTS), (searched, "leaks_again", LEAK_COUNTS)):
        assert failing(workspace, published) == []
        manifest = published.manifest
        for name, wrong in names.items():
            of_which = "metrics" if name.startswith("metrics.") else "counts"
            said = {**getattr(manifest, of_which), name.removeprefix("metrics."): wrong}
            assert failing(workspace, replace(published, manifest=replace(manifest, **{of_which: said}))) == [check], name


PASSAGE_COUNTS: dict[str, Any] = {
    "texts": 19,
    "by_set": {"bench (eval)": 19},
    "too_short": {"gpt3": 0, "open_r1": 1},
    "uncovered": {"bench (eval)": 1},
    "recall": {},
    "metrics.uncovered": 0.5,
}
LEAK_COUNTS: dict[str, Any] = {
    "examples": 59,
    "leaks": 1,
    "by_set": {},
    "uncovered": {"bench (eval)": [1, 20]},
    "first": "rows.jsonl:3 another",
    "metrics.leaks": 0.5,
    "metrics.uncovered": 0.5,
}


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"rules": ["gpt4"]}, "rules.0: .*'gpt3'"),
        ({"rules": []}, "rules: needs at least one entry"),
        ({"policy": "keep"}, "policy: .*'block', 'drop' or 'report'"),
        ({"tokenizer": "x"}, "tokenizer: 'x' has no effect here: held-out data sets are pinned"),
        ({"quality": {"steps": {"language": {"keep": ["en"]}}}}, "quality.steps: .* has no effect here"),
    ],
)
def test_options_mean_something_or_are_an_error(tmp_path: Path, options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        build(of(tmp_path, **options), "eval_raw", "bench")


@pytest.mark.parametrize(("schema", "row"), [
    ("preference", {"prompt": "Why?", "chosen": "So.", "rejected": question(7)}), ("rl_prompt", {"prompt": question(7), "gold": "4"}),
    ("group", {"prompt": "Why?", "responses": ["So.", question(7)], "rewards": [1.0, 0.0]}), ("contrastive", {"query": question(7), "pos": ["So."]}),
])  # fmt: skip
def test_any_schema_reads_a_benchmark(tmp_path: Path, schema: str, row: dict[str, Any]) -> None:
    workspace = of(tmp_path)
    held_out = {"domains": {"bench": domain(jsonl(tmp_path / "other.jsonl", [row]), schema)}, "policy": "report"}
    searched = build(workspace_in(workspace.configs.parent, {"eval": held_out}), "sft_leaks", "rows")
    assert leaks(searched) == [("rows.jsonl:8", "bench", "other.jsonl:0")]


def test_rows_of_a_benchmark_that_are_no_examples_cannot_be_found_and_are_said(tmp_path: Path) -> None:
    """Test sets whose answers are hidden: two of the four rows that `where` chooses."""
    workspace = of(tmp_path)
    held = [{"instruction": question(2000 + n), "output": "" if n % 2 else "So.", "kind": "ab"[n > 3]} for n in range(6)]
    source = domain(jsonl(tmp_path / "hidden.jsonl", held), "alpaca", where={"kind": "a"})
    searched = build(workspace_in(workspace.configs.parent, {"eval": {"domains": {"hidden": source}}}), "sft_leaks", "rows")
    assert searched.manifest.counts["uncovered"] == {"hidden (eval)": [2, 4]}
    assert searched.manifest.metrics["uncovered"] == 0.5
    passages = workspace.built("eval_passages")
    assert [each.id for each in refusals(passages) if each.reason == "empty_answer"] == ["hidden.jsonl:2", "hidden.jsonl:4"]
    assert passages.manifest.counts["refused"] == {"records/filtered_by_where": 2, "schema/empty_answer": 2}


def test_a_benchmark_that_no_schema_can_read_is_an_error(tmp_path: Path) -> None:
    workspace = of(tmp_path)
    jsonl(tmp_path / "bench.jsonl", [{"prompt": 5, "completion": "x"}])
    with pytest.raises(SourceError, match=r"eval_raw\[bench\]: its schema makes no example of any row"):
        build(workspace, "sft_leaks", "rows")


def test_leaks_are_shown_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = of(tmp_path, PLANTED)
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(workspace.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(workspace.stores))
    run = CliRunner().invoke
    assert "not built: sft_leaks[rows]" in run(app, ["leaks"]).output
    with pytest.raises(CheckFailed):
        build(workspace, "sft_leaks", "rows")
    shown = json.loads(run(app, ["leaks", "sft", "-p", "rows", "-n", "2", "--json"]).output)
    assert shown["stores"][0]["leaks"] == 3
    assert shown["stores"][0]["by_set"] == {"bench (eval)": 3}
    second = shown["leaks"]["sft_leaks[rows]"][1]
    assert (second["example"], second["held"], second["record"]) == ("rows.jsonl:18", "bench (eval)", "bench.jsonl:12")
    before = f"{question(17)}\n\nI say "
    assert second["training"] == [f"…{before[-80:]}", question(1011).upper(), " and so on."]
    assert second["held_out"] == ["", question(1011), "\n\nIt is 1011."]
    drawn = json.loads(run(app, ["leaks", "sft", "-p", "rows", "--sample", "2", "--json"]).output)["leaks"]["sft_leaks[rows]"]
    assert len(drawn) == 2 and {leak["example"] for leak in drawn} < set(PLACES)
    assert run(app, ["leaks", "sft", "--sample", "2"]).output == run(app, ["leaks", "sft", "--sample", "2"]).output
    asked = run(app, ["leaks", "sft", "--sample", "3", "--ask"], input="y\nn\nstop\n").output
    assert "bench (eval): 1 of 2 hits are copies, precision 0.50" in asked
    ended = run(app, ["leaks", "sft", "--sample", "3", "--ask"], input="y\n")
    assert ended.exit_code == 0 and "bench (eval): 1 of 1 hits are copies, precision 1.00" in ended.output
    for options in (["--ask"], ["--sample", "3", "--ask", "--json"]):
        assert "Add --sample 50, and leave out --json" in " ".join(run(app, ["leaks", "sft", *options]).output.split())
    text = run(app, ["leaks", "sft"]).output
    assert "rows.jsonl:4" in text
    assert "bench.jsonl:5" in text
    assert "no family 'stf'; did you mean 'sft'?" in run(app, ["leaks", "stf"]).output
    clean = of(tmp_path / "clean")
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(clean.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(clean.stores))
    build(clean, "sft_leaks", "rows")
    assert json.loads(run(app, ["leaks", "sft", "--json"]).output)["leaks"] == {"sft_leaks[rows]": []}


def test_what_no_rule_can_find_is_said_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of five held-out texts are shorter than a passage of any rule; a larger data set beside them does not make their share smaller."""
    jsonl(tmp_path / "short.jsonl", [{"text": text} for text in (question(2001), question(2002), "What is it?", question(2003), "你好吗")])
    jsonl(tmp_path / "long.jsonl", [{"text": question(number)} for number in range(3000, 3040)])
    held_out = {"domains": {name: domain(tmp_path / f"{name}.jsonl", "text") for name in ("short", "long")}, "rules": ["gpt3", "open_r1"]}
    workspace = workspace_in(of(tmp_path).configs.parent, {"eval": held_out})
    searched = build(workspace, "sft_leaks", "rows")
    assert searched.manifest.counts["uncovered"] == {"short (eval)": [2, 5]}
    said = verdicts(workspace, searched)["no_leaks"].summary
    assert said.endswith("2 of 5 texts of short (eval) cannot be found: no rule has passages that short, or their schema rejects them")
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(workspace.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(workspace.stores))
    run = CliRunner(env={"COLUMNS": "200"}).invoke
    assert "2 of 5 texts of short (eval) cannot be found" in run(app, ["leaks", "sft", "-n", "0"]).output
    assert "! sft_leaks[rows]: 2 of 5 texts of short (eval) cannot be found" in run(app, ["build", "sft_leaks", "--force"]).output
    probes = workspace.built("eval_passages").manifest.counts["recall"]["short (eval)"]
    disguises = ("verbatim", "other case", "wrapped", "split over turns")
    assert probes == {**{disguise: [3, 5] for disguise in disguises}, "13 to 50": [12, 12], "under 13 words": [0, 8]}
    run(app, ["report", "eval_passages", "-o", str(page := tmp_path / "page.html")])
    assert "probes found, wrapped" in page.read_text("utf-8") and "3 of 5 (60.00%)" in page.read_text("utf-8")
    for most in (0.5, 0.3):
        path = workspace.configs / "sft.yaml"
        config = {**yaml.safe_load(path.read_text("utf-8")), "quality": {"bounds": {"sft_leaks.uncovered": {"block": {"max": most}}}}}
        bounded = workspace_in(tmp_path, {"sft": config})
        assert failing(bounded, searched) == ([] if most == 0.5 else ["no_leaks"])
