"""Quality steps in the graph: who drops what, where it is refused, and what notices when it is not."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from typer.testing import CliRunner

from prep_assets import limits
from prep_assets.checks import sources_again
from prep_assets.cli.main import app
from prep_assets.config.models import Sft
from prep_assets.data import tables as cuts
from prep_assets.engine import build as engine_build
from prep_assets.engine import execute
from prep_assets.errors import CheckFailed, ConfigError, PrepAssetsError
from prep_assets.extensions.leaks import overlap
from prep_assets.extensions.leaks.checks import known_leaks_fault
from prep_assets.extensions.leaks.proofs import LEAKS
from prep_assets.extensions.quality import apart, checks, gopher
from prep_assets.extensions.quality.checks import known_fault
from prep_assets.extensions.quality.language import Identifier
from prep_assets.extensions.quality.proofs.known_answers import KNOWN_ANSWERS, doubtful_pairs
from prep_assets.extensions.quality.proofs.known_verdicts import KNOWN
from prep_assets.extensions.quality.steps import Examples, _own_step, configured_steps
from prep_assets.extensions.selftest.stores import verdict_trials
from prep_assets.graph.graph import EVERY, assets_of, store_of
from prep_assets.pipeline import tokens
from prep_assets.pipeline.verdicts import VERDICTS, Dropped, dropped_rows, read_verdicts
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.selection import DROPPED, GOOD, reason_fault
from prep_assets.samples import Sample, document
from prep_assets.stores.guards import Guards, load_array
from prep_assets.stores.table import open_stream
from prep_assets.workers.pool import Pool
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, out_of_date, refusals, tree, verdicts, workspace_in

OWN = "prep_assets_tests.quality.own_steps"
ROWS = [{"prompt": f"What is {n}?", "completion": "Two words." if n % 3 == 0 else f"It is the number {n}."} for n in range(30)]
SHORT = [f"rows.jsonl:{n}" for n in range(1, 31, 3)]


def of(folder: Path, steps: dict[str, Any], rows: list[Any] | None = None, **options: Any) -> Workspace:
    """A workspace with one domain of the family sft."""
    folder.mkdir(parents=True, exist_ok=True)
    source = domain(jsonl(folder / "rows.jsonl", rows or ROWS), "prompt_completion")
    return workspace_in(folder, minimal("sft", {"rows": source}, template="chatml", quality={"steps": steps}, **options))


def test_what_steps_found_is_shown_where_one_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = of(tmp_path, {f"{OWN}:short": {}, f"{OWN}:even": {"action": "note"}})
    published = build(workspace, "sft_quality", "rows")
    noted = read_verdicts(published)["found"].to_pylist()
    assert noted == [[f"{OWN}:even/even_row (note): says {OWN}:even"] if n % 2 else [] for n in range(30)]
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(workspace.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(workspace.stores))

    def said(*words: str) -> Any:
        return json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)

    shown = said("quarantine", "sft_quality", "-n", "100")
    assert {entry["reason"]: entry["records"] for entry in shown["counts"]} == {
        "quality/short_answer": 10,
        f"{OWN}:even/even_row (note)": 15,
    }
    assert [row["id"] for row in shown["records"] if row["stage"] == "quality"] == SHORT
    assert [row["id"] for row in shown["records"] if row["stage"] != "quality"] == [f"rows.jsonl:{n}" for n in range(2, 31, 2)]
    assert all(json.loads(row["payload"]) == ROWS[int(row["id"].rpartition(":")[2]) - 1] for row in shown["records"])
    assert len(said("quarantine", "sft_quality", "--reason", "short_answer", "-n", "3")["records"]) == 3
    assert said("inspect", "sft_quality")["dropped"] == "short_answer"
    page = tmp_path / "page.html"
    CliRunner().invoke(app, ["report", "sft_quality", "-o", str(page)])
    assert "25 records were found by quality steps" in " ".join(page.read_text("utf-8").split()) and "even_row" in page.read_text("utf-8")


def test_what_a_step_drops_is_refused_downstream_with_its_reason(tmp_path: Path) -> None:
    workspace = of(tmp_path, {f"{OWN}:short": {}, f"{OWN}:even": {"action": "note"}})
    published = build(workspace, "sft_tokens", "rows")
    assert [(each.id, each.stage, each.reason) for each in refusals(published)] == [(id, "quality", "short_answer") for id in SHORT]
    judged = workspace.built("sft_quality", "rows")
    counts = judged.manifest.counts
    assert (counts["examples"], counts["kept"], counts["dropped"]) == (30, 20, 10)
    assert counts["found"] == {f"{OWN}:even/even_row (note)": 15, f"{OWN}:short/short_answer (drop)": 10}
    assert out_of_date(workspace, EVERY["sft_tokens"], "rows") == []
    changed = of(tmp_path, {f"{OWN}:short": {"below": 3}, f"{OWN}:even": {"action": "note"}})
    assert [(asset.name, state) for asset, _, state in out_of_date(changed, EVERY["sft_tokens"], "rows")] == [("sft_quality", "stale")]


def test_without_steps_there_is_no_such_asset(tmp_path: Path) -> None:
    workspace = of(tmp_path, {})
    assert "sft_quality" not in assets_of(workspace)
    assert "quality" not in build(workspace, "sft_tokens", "rows").manifest.recipe


@pytest.mark.soak
@pytest.mark.parametrize("workers", [2, 7])
def test_any_number_of_workers_refuses_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setattr(cuts, "SHARD_BYTES", 400)
    monkeypatch.setattr(tokens, "FEWEST", 2)
    rows = [{**row, "prompt": f"{number} {row['prompt']}"} for number in range(4) for row in ROWS]
    carried_out: list[str] = []
    shards = tokens.shard_results

    def noted(*task: Any) -> Any:
        carried_out.append(task[1])
        return shards(*task)

    monkeypatch.setattr(tokens, "shard_results", noted)
    one, many = (of(tmp_path / str(count), {f"{OWN}:short": {}}, rows, workers=count) for count in (1, workers))
    stores = [build(workspace, "sft_tokens", "rows") for workspace in (one, many)]
    assert len(refusals(stores[0])) == 40
    assert carried_out == [
        "compare records of rows",
        "judge rows",
        "compare records of rows",
        "judge rows",
        "compare records of rows",
        "tokenize rows",
    ]
    assert tree(stores[0].directory) == tree(stores[1].directory)


def test_a_step_that_blocks_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = of(tmp_path, {f"{OWN}:short": {"action": "block"}})
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(workspace.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(workspace.stores))
    with pytest.raises(
        CheckFailed, match=r"short_answer must not be found, and was; first rows.jsonl:1.* See all: prep-assets quarantine sft_quality\."
    ):
        build(workspace, "sft_tokens", "rows")
    assert workspace.published("sft_quality", "rows") is None
    assert workspace.published("sft_tokens", "rows") is None
    shown = json.loads(CliRunner().invoke(app, ["quarantine", "sft_quality", "-n", "20", "--json"]).stdout)
    assert [row["id"] for row in shown["records"]] == SHORT, "of a build that is not published"
    assert shown["counts"][0]["reason"] == f"{OWN}:short/short_answer (block)"
    assert json.loads(CliRunner().invoke(app, ["inspect", "sft_quality", "--json"]).stdout)["found"] != []
    assert "not published because a check fails" in CliRunner().invoke(app, ["quarantine", "sft_quality"]).stdout
    workspace = of(tmp_path, {f"{OWN}:gives": {"what": "too: (short)", "action": "note"}})
    build(workspace, "sft_quality", "rows")
    [of_reason] = json.loads(CliRunner().invoke(app, ["quarantine", "sft_quality", "--json"]).stdout)["counts"]
    assert of_reason["reason"] == f"{OWN}:gives/too: (short) (note)", "and of the published one again"


STORY = " ".join(f"word{n}" for n in range(200)) + " and then {} more."


def across(folder: Path, first: list[int], second: list[int], **options: Any) -> Workspace:
    """A workspace with two domains of stories, of which those with a number between 100 and 199 are twins of each other."""
    folder.mkdir(parents=True, exist_ok=True)
    domains = {
        name: domain(jsonl(folder / f"{name}.jsonl", [{"text": STORY.format(n) if 100 <= n < 200 else f"{n} " * 30} for n in rows]), "text")
        for name, rows in (("first", first), ("second", second))
    }
    steps: dict[str, Any] = {"near_duplicates": {"across": True, **options}}
    bounds = {"pretrain_quality.dropped.near_duplicate": {"block": {"max": 0.9}}}
    return workspace_in(
        folder, minimal("pretrain", domains, quality={"steps": steps, "bounds": bounds if options.get("action") != "note" else {}})
    )


def test_twins_in_two_domains_leave_one_in_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = across(tmp_path, [1, 2, 100, 101], [3, 2, 102, 4, 103])
    published = build(workspace, "pretrain_tokens", "second")
    assert [(each.id, each.reason) for each in refusals(published)] == [(f"second.jsonl:{n}", "near_duplicate") for n in (2, 3, 5)]
    assert "is like an example of the domain first, which comes before" in refusals(published)[0].detail
    assert [each.id for each in refusals(build(workspace, "pretrain_tokens", "first"))] == ["first.jsonl:4"]
    judged = workspace.built("pretrain_quality", "second")
    left = load_array(judged.directory / "near_duplicates.left.npy", Guards())
    assert len(left) == 2 * 14, "of the examples that stay"
    monkeypatch.setattr(checks, "load_array", lambda path, guards: load_array(path, guards)[::-1])
    assert failing(workspace, judged) == ["verdicts_again"]


@pytest.mark.parametrize(("fraction", "action"), [(0.2, "note"), (0.2, "drop"), (0.0, "note")])
def test_noted_twins_of_two_domains_are_an_error_where_some_are_held_out(tmp_path: Path, fraction: float, action: str) -> None:
    workspace = across(tmp_path, [1, 100], [3, 101], action=action).overriding("pretrain", {"test_fraction": fraction})
    with pytest.raises(ConfigError, match="one of them may be trained on") if (fraction, action) == (0.2, "note") else nullcontext():
        build(workspace, "pretrain_tokens", "second")


TWINS = [{"prompt": "Tell a story.", "completion": STORY.format(100 + n // 10) + f" {n}"} for n in range(40)]
"""Four tales of ten versions, all alike."""
ALONE = [{"prompt": f"What is {n}?", "completion": f"It is {n}, " + f"{n} " * 20} for n in range(20)]


@pytest.mark.parametrize("test_files", [False, True], ids=["by hash", "by file"])
def test_no_cluster_stands_on_both_sides_of_a_split(tmp_path: Path, test_files: bool) -> None:
    """Which records are held out is read from the store that is built without the step."""
    held = {"test_files": [str(jsonl(tmp_path / "held.jsonl", [{**TWINS[0], "prompt": "Tell it again."}]))]} if test_files else {}
    source = {**domain(jsonl(tmp_path / "rows.jsonl", TWINS + ALONE), "prompt_completion"), **held}

    def sides(name: str, steps: dict[str, Any]) -> tuple[Workspace, dict[str, set[str]]]:
        fraction = 0.0 if test_files else 0.4
        folder = tmp_path / name
        folder.mkdir()
        workspace = workspace_in(
            folder, minimal("sft", {"rows": source}, template="chatml", quality={"steps": steps}, test_fraction=fraction)
        )
        published = build(workspace, "sft_tokens", "rows")
        return workspace, {stem: ids_in(published, stem) for stem in ("train", "dev")}

    _, before = sides("before", {})
    workspace, after = sides("after", {"near_duplicates": {"action": "note"}})
    twins = {f"rows.jsonl:{n}" for n in range(1, 41)} | {"held.jsonl:1"}
    assert before["train"] & twins and before["dev"] & twins
    assert after["dev"] == before["dev"], "what is held out stays"
    assert after["train"] == before["train"] - twins
    judged = workspace.built("sft_quality", "rows")
    assert judged.manifest.counts["found"]["near_duplicates/alike_across_splits (drop)"] == len(before["train"] & twins)
    refused = refusals(workspace.built("sft_tokens", "rows"))
    assert {(each.stage, each.reason) for each in refused} == {("quality", "alike_across_splits")}
    assert "which is held out (near_duplicates)" in refused[0].detail


def ids_in(published: Any, stem: str) -> set[str]:
    """Ids of the records of a stream of tokens; the domain has one file to train on, and one to test with."""
    store = open_stream(published.directory, stem)
    return {
        f"{('rows', 'held')[file]}.jsonl:{row + 1}"
        for file, row in zip(store.origins.file.tolist(), store.origins.row.tolist(), strict=True)
    }


def test_another_share_held_out_judges_again_where_alike_examples_stay(tmp_path: Path) -> None:
    def stale(action: str) -> list[str]:
        workspace = of(tmp_path, {"near_duplicates": {"action": action}}, test_fraction=0.1)
        build(workspace, "sft_quality", "rows")
        changed = of(tmp_path, {"near_duplicates": {"action": action}}, test_fraction=0.3)
        return [asset.name for asset, _, _ in out_of_date(changed, EVERY["sft_tokens"], "rows")]

    assert stale("drop") == []
    assert stale("note") == ["sft_quality"]


def test_a_change_of_the_first_domain_judges_the_second_again_and_not_the_other_way_round(tmp_path: Path) -> None:
    build(across(tmp_path, [1, 2], [3, 2]), "pretrain_tokens", "second")
    changed = across(tmp_path, [1, 5], [3, 2])
    stale = [(asset.name, partition) for asset, partition, _ in out_of_date(changed, EVERY["pretrain_tokens"], "second")]
    assert stale == [("pretrain_raw", "first"), ("pretrain_quality", "first"), ("pretrain_quality", "second")]
    for asset, partition in (("pretrain_raw", "first"), ("pretrain_quality", "first"), ("pretrain_quality", "second")):
        build(changed, asset, partition)
    assert refusals(build(changed, "pretrain_tokens", "second")) == []
    assert out_of_date(across(tmp_path, [1, 5], [3, 4]), EVERY["pretrain_quality"], "first") == []


def test_without_across_domains_stand_alone(tmp_path: Path) -> None:
    workspace = across(tmp_path, [1, 100], [1, 101], across=False)
    assert refusals(build(workspace, "pretrain_tokens", "second")) == []
    assert [path.name for path in workspace.built("pretrain_quality", "second").directory.glob("*.npy")] == []
    assert workspace.published("pretrain_quality", "first") is None


def test_an_answer_must_be_the_gold_of_the_same_prompt(tmp_path: Path) -> None:
    pytest.importorskip("math_verify", reason="the extra `quality`")
    rows = [{"prompt": f"What is {n} / 2?", "completion": f"It is so.\n#### {n / 2 + (n == 7)}"} for n in range(10)]

    def asked(golds: int) -> Workspace:
        asked = [{"prompt": f"what is  {n} / 2?", "gold": f"\\frac{{{n}}}{{2}}"} for n in range(golds)]
        workspace_in(
            tmp_path, minimal("rl", {"halves": domain(jsonl(tmp_path / "halves.jsonl", asked), "rl_prompt", options={"verifier": "math"})})
        )
        return of(tmp_path, {"rl_golds": {}}, rows)

    published = build(asked(9), "sft_tokens", "rows")
    assert [(each.id, each.reason) for each in refusals(published)] == [("rows.jsonl:8", "answer_is_not_the_gold")]
    stale = [(asset.name, state) for asset, _, state in out_of_date(asked(5), EVERY["sft_tokens"], "rows")]
    assert stale == [("rl_raw", "stale"), ("sft_quality", "stale")]
    (tmp_path / "configs" / "rl.yaml").unlink()
    with pytest.raises(ConfigError, match=r"judges by the golds of the family rl, and there is no rl\.yaml"):
        build(of(tmp_path, {"rl_golds": {}}, rows), "sft_tokens", "rows")


def test_workers_judge_domains_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "_text_bytes", lambda *_: execute.LARGE_DOMAIN - 1)
    stores = []
    for count in (1, 2):
        workspace = across(tmp_path / str(count), [1, 2, 100, 101], [3, 2, 102, 4, 103])
        with Pool() as pool:
            asked = [("pretrain_tokens", name) for name in ("second", "first")]
            engine_build(replace(workspace, workers=count, pool=pool), *dict(asked))
        stores.append(workspace.built("pretrain_tokens", "second"))
    assert tree(stores[0].directory) == tree(stores[1].directory)


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        ({"lenguage": {}}, r"no quality step 'lenguage'"),
        ({f"{OWN}:short": {"action": "delete"}}, r"'action' = 'delete': needs one of drop, note, block"),
        ({f"{OWN}:shrt": {}}, "cannot be loaded"),
        ({f"{OWN}:too_few": {}}, r"returns 29 reasons for 30 examples"),
        ({f"{OWN}:bare": {}}, r"returns str for 30 examples"),
        ({f"{OWN}:short": {"over": 3}}, r"unexpected keyword argument 'over'; its signature is"),
        ({f"{OWN}:interrupts": {}}, r"raised KeyboardInterrupt .*, on a block from rows.jsonl:1 to rows.jsonl:30"),
        ({f"{OWN}:fails": {}}, r"raised KeyError: 'prompt' \(.*own_steps.py, line \d+\), on a block from rows.jsonl:1 to rows.jsonl:30"),
    ],
)
def test_a_step_that_cannot_be_is_an_error(tmp_path: Path, steps: dict[str, Any], fault: str) -> None:
    with pytest.raises(PrepAssetsError, match=fault):
        build(of(tmp_path, steps), "sft_tokens", "rows")


def test_the_proof_reads_which_rows_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dropped row that is stored, and a kept one that is refused as dropped: `selection` fails on both."""
    workspace = of(tmp_path, {f"{OWN}:short": {}})
    published = build(workspace, "sft_tokens", "rows")
    honest = dropped_rows
    for rows, said in (
        ({(0, 1): ("quality", "x", "")}, "is stored, though it is dropped by its verdict"),
        ({(0, 0): None}, "is refused for quality"),
    ):
        monkeypatch.setattr(
            sources_again,
            "dropped_rows",
            lambda *place, rows=rows: Dropped({at: why for at, why in {**honest(*place).rows, **rows}.items() if why}),
        )
        verdict = verdicts(workspace, published)["selection"]
        assert not verdict.passed
        assert said in verdict.summary
    assert reason_fault(DROPPED, "quality/x") is None
    assert reason_fault(DROPPED, "tokenize/too_long")
    assert reason_fault(GOOD, "quality/x")


def test_verdicts_that_are_shifted_by_one_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = of(tmp_path, {f"{OWN}:short": {}})
    published = build(workspace, "sft_quality", "rows")
    table = read_verdicts(published)
    dropped = table["dropped"].to_pylist()
    for changed in (
        table.set_column(2, "dropped", pa.array([*dropped[1:], dropped[0]], pa.string())),
        table.slice(1),
        table.drop(["detail"]),
    ):
        monkeypatch.setattr(checks, "read_verdicts", lambda store, changed=changed: changed)
        assert failing(workspace, published) == ["verdicts_again"]
    assert [path.name for path in published.directory.glob("*.parquet")] == [VERDICTS]


def test_a_share_of_refusals_that_is_too_large_stops_the_build(tmp_path: Path) -> None:
    steps: dict[str, Any] = {f"{OWN}:short": {}}
    bounds = {"*": 0.4, "quality/short_answer": 0.3, "tokenize/too_long": 0.0}
    workspace = of(tmp_path, steps)
    configs = tmp_path / "configs" / "sft.yaml"
    text = configs.read_text()
    for most, fault in ((bounds, "10 of 30 records are refused for quality/short_answer, 33.3%"), ({"*": 0.33}, "for any reason")):
        configs.write_text(text.replace("quality:\n", f"quality:\n  max_refused: {most}\n"))
        with pytest.raises(CheckFailed, match=fault):
            build(workspace, "sft_tokens", "rows")
    configs.write_text(text.replace("quality:\n", "quality:\n  max_refused: {'*': 0.34}\n"))
    assert build(workspace, "sft_tokens", "rows").manifest.counts["kept"] == 20
    configs.write_text(text.replace("quality:\n", "quality:\n  max_refused: {all: 0.34}\n"))
    with pytest.raises(ConfigError, match="max_refused"):
        Workspace(workspace.configs, workspace.stores).family(Sft)


@pytest.mark.parametrize("what", [False, 0, "nan", "", "two\nlines", "half a pair: \ud83d", "x" * 101])
def test_a_step_of_ones_own_returns_texts_or_nothing(what: Any) -> None:
    [step] = configured_steps({f"{OWN}:gives": {"what": what}}, Sample)
    with pytest.raises(PrepAssetsError, match=r"own_steps:gives' returns .* for r:0. It must return a reason, a line of up to 100"):
        step.make().judge(Examples(["r:0"], [document("text")]))


def test_a_step_of_ones_own_that_exits_or_waits_is_stopped_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.3)
    monkeypatch.setattr(apart, "LATE", 1.4)
    cannot = "takes more than 0.3 seconds, and cannot be interrupted"
    for name, fault in (
        ("exits", "raised SystemExit: 3"),
        ("sleeps", "takes more than 0.3 seconds"),
        ("computes", cannot),
        ("goes_on", cannot),
    ):
        [step] = configured_steps({f"{OWN}:{name}": {}}, Sample)
        with pytest.raises(PrepAssetsError, match=f"own_steps:{name}.*{fault}"):
            step.make().judge(Examples(["r:0"], [document("text")]))


@pytest.mark.parametrize(
    ("killed", "how"), [pytest.param(False, "ended with exit code 0", marks=pytest.mark.soak), (True, r"was killed \(SIGKILL\)")]
)
def test_a_step_that_ends_its_process_is_named_with_the_record(killed: bool, how: str) -> None:
    [step] = configured_steps({f"{OWN}:ends": {"killed": killed}}, Sample)
    examples = Examples([f"r:{number}" for number in range(6)], [document("the end" if number == 4 else "text") for number in range(6)])
    with pytest.raises(PrepAssetsError, match=rf"own_steps:ends': its process {how}.* on r:4\. Correct it"):
        step.make().judge(examples)
    assert step.make().judge(Examples(["r:0"], [document("text")])).found == {}


def test_a_step_that_ends_its_process_stops_the_build_with_its_name(tmp_path: Path) -> None:
    workspace = of(tmp_path, {f"{OWN}:exits_at_once": {}}, ROWS[:2])
    with pytest.raises(
        PrepAssetsError, match=r"sft_quality\[rows\]: quality step '.*:exits_at_once': its process ended with exit code 4 on .*:1\. Correct"
    ):
        build(workspace, "sft_quality", "rows")


def test_a_step_that_is_edited_between_two_builds_of_one_process_is_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    counts = []
    for word in ("It", "Two"):
        (tmp_path / "edited_step.py").write_text(
            f"def step(examples):\n    return ['has' if {word!r} in text else None for text in examples.texts]\n"
        )
        counts.append(build(of(tmp_path, {"edited_step:step": {}}), "sft_quality", "rows").manifest.counts["dropped"])
    assert counts == [20, 10]


@pytest.mark.parametrize("name", ["hashes", "first_of_block"])
def test_a_step_that_goes_by_its_process_or_its_block_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckFailed, match=rf"verdicts_again: row .* of file 1: dropped is .*\. {OWN}:{name} must judge each example alone"):
        build(of(tmp_path, {f"{OWN}:{name}": {}}), "sft_quality", "rows")


def test_a_step_that_forks_or_has_classes_of_its_own_is_answered_once() -> None:
    """The answer of a fork that came back would be taken for that of the next call, and a class of its own be loaded in the build."""
    blocks = [Examples([f"r:{number}"], [document("text")]) for number in range(3)]
    for name, found in (("comes_back_twice", {}), ("own_texts", {0: ("own", f"says {OWN}:own_texts")})):
        [step] = configured_steps({f"{OWN}:{name}": {}}, Sample)
        judged = [step.make().judge(block).found for block in blocks]
        assert judged == [found] * 3
        assert all(type(reason) is str for each in judged for reason, _ in each.values())
    [step] = configured_steps({f"{OWN}:raises_unsaid": {}}, Sample)
    with pytest.raises(PrepAssetsError, match=r"raises_unsaid' raised .*Unsaid: <exception str"):
        step.make().judge(blocks[0])


def test_a_step_that_ends_its_process_while_it_is_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record is to blame for it, so that `where` is no remedy."""
    (tmp_path / "ends_at_once.py").write_text("import os\n\nos._exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(apart, "_PROCESSES", {})
    says = "ends_at_once:step': its process ended with exit code 3 while it was loaded. Correct it, so that it ends no process$"
    with pytest.raises(PrepAssetsError, match=says):
        _own_step("ends_at_once:step", {})


def test_gold_answers_judges_the_solutions_that_the_schema_gsm8k_takes_apart(tmp_path: Path) -> None:
    """Notes and the final mark are not in the example, but in the row; a wrong operand, a wrong result and a wrong final answer are found."""
    right, note, final = "She has 3*4=<<3*4=12>>12.\n#### 12", "She has 3*4=<<3*4=13>>13.\n#### 13", "She has 3*4=<<3*4=12>>12.\n#### 21"
    operand = "She has 3*4=<<3*5=12>>12.\n#### 12"
    rows = [{"question": f"How many, {n}?", "answer": text} for n, text in enumerate((right, note, final, operand, right))]
    source = domain(jsonl(tmp_path / "rows.jsonl", rows), "gsm8k")
    for family in ("sft", "rl"):
        options = {"template": "chatml"} if family == "sft" else {}
        workspace = workspace_in(tmp_path / family, minimal(family, {"rows": source}, quality={"steps": {"gold_answers": {}}}, **options))
        published = build(workspace, f"{family}_quality", "rows")
        assert read_verdicts(published)["dropped"].to_pylist() == [None, "wrong_calculation", "answer_differs", "wrong_calculation", None]
        trials = verdict_trials(store_of(workspace, published))
        assert [trial.caught for trial in trials if trial.check == "gold_answers"] == [1]


def test_the_selftest_corrupts_what_a_build_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the solutions of rows `gold_answers` sees nothing, and its selftest says so."""
    rows = [{"question": "How many?", "answer": "She has 3*4=<<3*4=12>>12.\n#### 12"}]
    source = domain(jsonl(tmp_path / "rows.jsonl", rows), "gsm8k")
    workspace = workspace_in(tmp_path, minimal("sft", {"rows": source}, template="chatml", quality={"steps": {"gold_answers": {}}}))
    published = build(workspace, "sft_quality", "rows")
    monkeypatch.setattr("prep_assets.extensions.quality.judging.solutions_of", lambda *_: ())
    trials = verdict_trials(store_of(workspace, published))
    assert [trial.caught for trial in trials if trial.check == "gold_answers"] == [0]


@pytest.mark.parametrize("name", KNOWN | KNOWN_ANSWERS)
def test_steps_give_the_known_verdicts(name: str) -> None:
    known = [*(KNOWN | KNOWN_ANSWERS)[name]()]
    assert known_fault(name) == "" and any(each.found for each in known)
    assert all(each.found.keys() <= {*range(len(each.examples))} for each in known)


def test_doubtful_labels_are_as_probable_as_a_slow_computation_says() -> None:
    """Logistic regressions on whole matrices, accelerated as Nesterov wrote it; then two mirrored normal distributions, one pair after another."""
    pairs, rows = doubtful_pairs(), []
    for pair in pairs:
        row = np.zeros(1 << 16)
        for sign, (answer,) in ((1, pair.chosen), (-1, pair.rejected)):
            words = re.findall(r"\w+|[^\w\s]", answer.regions[0].text.casefold())
            for said in (*words, *(f"{first} {second}" for first, second in pairwise(words))):
                row[xxhash.xxh3_64_intdigest(said.encode()) % len(row)] += sign
        row = np.sign(row) * np.log1p(np.abs(row))
        rows.append(row / np.linalg.norm(row))
    table, scores = np.array(rows), np.zeros(60)
    for fold in range(5):
        others, weights = np.delete(table, range(fold, 60, 5), axis=0), np.zeros(1 << 16)
        ahead = weights
        for step in range(40):
            gradient = others.T @ (1 / (1 + np.exp(others @ ahead))) / 48 - ahead / 48
            before, weights = weights, ahead + 4 * gradient
            ahead = weights + step / (step + 3) * (weights - before)
        scores[fold::5] = table[fold::5] @ weights
    share, mean, deviation = 0.05, scores.mean(), scores.std()
    for _ in range(200):
        right = [(1 - share) * NormalDist(mean, deviation).pdf(score) for score in scores]
        wrong = [share * NormalDist(-mean, deviation).pdf(score) for score in scores]
        swapped = np.array([no / (no + yes) for yes, no in zip(right, wrong, strict=True)])
        share, mean = swapped.mean(), (scores * (1 - 2 * swapped)).mean()
        deviation = np.sqrt(((1 - swapped) * (scores - mean) ** 2 + swapped * (scores + mean) ** 2).mean())
    *_, known = KNOWN_ANSWERS["swapped_labels"]()
    assert np.round(swapped, 3).tolist() == known.notes["probability"]


def test_rules_that_are_broken_for_every_text_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert known_leaks_fault() == "" and LEAKS.keys() == overlap.RULES.keys()
    with monkeypatch.context() as patch:
        patch.setattr(overlap, "_ANSWERS", ())
        assert known_leaks_fault().startswith("rule open_r1 finds a held-out example in {")
    monkeypatch.setattr(overlap, "normalized", lambda text: text)
    assert known_leaks_fault().endswith("must find it in {1: 28, 2: 28, 3: 12, 4: 28, 6: 16}")


def test_probabilities_that_are_not_the_librarys_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    classify = Identifier.classify
    monkeypatch.setattr(Identifier, "classify", lambda self, texts: [(code, 1.0) for code, _ in classify(self, texts)])
    assert "language notes {'language': ['de', 'vec', 'sr', 'ext', 'sl'], 'probability': [1.0, 1.0, 1.0, 1.0, 1.0]}" in known_fault(
        "language"
    )


def test_a_step_that_is_broken_for_every_row_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = of(tmp_path, {"gopher_quality": {"action": "note", "min_words": 1}})
    published = build(workspace, "sft_quality", "rows")
    monkeypatch.setattr(gopher, "STOP_WORDS", gopher.STOP_WORDS[1:])
    fault = known_fault("gopher_quality")
    assert "gopher_quality finds {0: 'gopher_stop_words: 1 different" in fault and "in which it must find nothing" in fault
    assert failing(workspace, published) == ["verdicts_again"]


def test_wrong_counts_of_verdicts_are_noticed(tmp_path: Path) -> None:
    """Bounds judge by them."""
    workspace = of(tmp_path, {"gopher_quality": {"min_words": 5}, "language": {"keep": ["en"], "action": "note"}})
    published = build(workspace, "sft_quality", "rows")
    assert failing(workspace, published) == []
    manifest = published.manifest
    for name in ("examples", "kept", "dropped"):
        wrong = replace(manifest, counts={**manifest.counts, name: manifest.counts[name] + 1})
        assert failing(workspace, replace(published, manifest=wrong)) == ["verdicts_again"]
    assert any(name.startswith("language.language.") for name in manifest.metrics)
    for name, share in manifest.metrics.items():
        for metrics in (
            {**manifest.metrics, name: share + 0.1},
            {other: of_it for other, of_it in manifest.metrics.items() if other != name},
        ):
            assert failing(workspace, replace(published, manifest=replace(manifest, metrics=metrics))) == ["verdicts_again"]
