"""Bounds of metrics: which warn, which block, and what the last good build has to do with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from prep_assets import api
from prep_assets.checks.bounds import BOUNDED, metrics_of
from prep_assets.cli.main import app
from prep_assets.config.models import Sft
from prep_assets.engine import build as engine_build
from prep_assets.errors import CheckFailed, ConfigError, PrepAssetsError
from prep_assets.graph.graph import EVERY, assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import build, build_all, domain, jsonl, minimal, verdicts, workspace_in

TOKENS = "sft_tokens.tokens"


def of(folder: Path, count: int, bounds: dict[str, Any], **quality: Any) -> Workspace:
    """A workspace with one domain of so many records."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"prompt": f"What is {n}?", "completion": f"It is the number {n}."} for n in range(count)]
    source = domain(jsonl(folder / "rows.jsonl", rows), "prompt_completion")
    return workspace_in(folder, minimal("sft", {"rows": source}, template="chatml", quality={"bounds": bounds, **quality}))


def built(workspace: Workspace) -> tuple[str, bool]:
    """Summary of `accounting` of the store of the domain, and whether it warns."""
    build(workspace, "sft_raw", "rows")
    verdict = verdicts(workspace, build(workspace, "sft_tokens", "rows"))["accounting"]
    assert verdict.passed
    return verdict.summary, verdict.warns


@pytest.mark.parametrize(
    ("limits", "fault"),
    [
        ({"min": 10_000}, "tokens is 480, at least 10,000 is wanted"),
        ({"max": 100}, "tokens is 480, at most 100 is wanted"),
        ({"min": 480, "max": 480, "change": 0}, ""),
    ],
)
def test_bounds_warn_or_block(tmp_path: Path, limits: dict[str, float], fault: str) -> None:
    tokens = build(of(tmp_path / "count", 24, {}), "sft_tokens", "rows").manifest.counts["tokens"]
    limits, fault = {name: tokens if value == 480 else value for name, value in limits.items()}, fault.replace("480", f"{tokens:,}")
    summary, warns = built(of(tmp_path / "warn", 24, {TOKENS: {"warn": limits}}))
    assert (fault in summary, warns) == (True, bool(fault))
    workspace = of(tmp_path / "block", 24, {TOKENS: {"block": limits}})
    if fault:
        with pytest.raises(CheckFailed, match=f"{fault}. Look for the cause, or change quality.bounds"):
            build(workspace, "sft_tokens", "rows")
        assert workspace.published("sft_tokens", "rows") is None
    else:
        assert built(workspace) == (built(of(tmp_path / "none", 24, {}))[0], False)


def test_a_change_is_measured_against_the_last_good_build(tmp_path: Path) -> None:
    bounds = {TOKENS: {"warn": {"change": 0.1}, "block": {"change": 0.5}}, "sft_tokens.kept": {"block": {"change": 0.9}}}
    assert built(of(tmp_path, 100, bounds))[1] is False, "there is none yet"
    good = Workspace(tmp_path / "configs", tmp_path / "stores").built("sft_tokens", "rows").version
    workspace = of(tmp_path, 40, bounds)
    build(workspace, "sft_raw", "rows")
    for _ in range(2):  # a blocked store is no good build
        with pytest.raises(CheckFailed, match=r"tokens was .* in the last good build and is .*: a change of at most 50.0% is wanted"):
            build(workspace, "sft_tokens", "rows")
    assert workspace.built("sft_tokens", "rows").version == good
    workspace = of(tmp_path, 85, bounds)
    build(workspace, "sft_raw", "rows")
    result = (build(workspace, "sft_tokens", "rows").results or {})["accounting"]
    assert result.passed
    assert "Warning: tokens was" in result.summary
    assert "kept was" not in result.summary


def test_bounds_of_every_kind_of_metric(tmp_path: Path) -> None:
    """Of tokens, packed rows, pins and verdicts; one that a store does not have blocks, and says which it has."""
    bounds: dict[str, Any] = {
        "sft_raw.read": {"block": {"min": 24}},
        "sft_tokens.trained_share": {"block": {"min": 0.1, "max": 0.9}},
        "sft_tokens.refused.quality/language": {"block": {"max": 0.0}},
        "sft_tokens.length_p99": {"block": {"min": 10, "max": 2048}},
        "sft_tokens.refused_share": {"block": {"max": 0.0}},
        "sft_quality.language.language.en": {"block": {"min": 0.5}},
        "sft_packed.fill_rate": {"block": {"min": 0.01}},
    }
    steps = {"language": {"keep": ["en"], "action": "note"}}
    build(of(tmp_path, 24, bounds, steps=steps), "sft_packed")
    with pytest.raises(
        CheckFailed,
        match=r"sft_tokens has no metric 'tokns'; did you mean 'tokens'\? It has bytes, bytes_per_token, control_tokens_in_content, kept",
    ):
        build(of(tmp_path / "none", 24, {"sft_tokens.tokns": {"warn": {"min": 1}}}), "sft_tokens", "rows")


def test_every_asset_that_takes_bounds_is_held_to_them_by_one_check(tmp_path: Path) -> None:
    steps = {"language": {"keep": ["en"], "action": "note"}}
    names = [asset.name for asset in assets_of(of(tmp_path, 24, {}, steps=steps)).values() if any(c.name in BOUNDED for c in asset.checks)]
    assert {"sft_raw", "sft_quality", "sft_tokens", "sft_packed"} <= {*names}
    workspace = of(tmp_path, 24, {f"{name}.bytes": {"warn": {"max": 1}} for name in names}, steps=steps)
    for (name, _), published in build_all(workspace, ["sft"]).items():
        warning = [check for check, verdict in verdicts(workspace, published).items() if verdict.warns]
        assert len(warning) == (name in names), name


@pytest.mark.parametrize(
    ("bounds", "fault"),
    [
        (
            {"sft_token.tokens": {"warn": {"min": 1}}},
            r"quality.bounds.sft_token.tokens: no asset 'sft_token' with metrics; did you mean 'sft_tokens'",
        ),
        ({"sft_template.tokens": {"warn": {"min": 1}}}, "no asset 'sft_template' with metrics"),
        ({"tokens": {"warn": {"min": 1}}}, "quality.bounds.tokens"),
        ({TOKENS: {}}, "needs warn or block"),
        ({TOKENS: {"warn": {}}}, "needs min, max or change"),
        ({TOKENS: {"warn": {"change": -1}}}, "change"),
        ({TOKENS: {"block": {"min": 10, "max": 5}}}, "min 10 is above max 5"),
        ({"pretrain_tokens.tokens": {"warn": {"min": 1}}}, "no asset 'pretrain_tokens' with metrics"),
        ({"sft_quality.kept": {"warn": {"min": 1}}}, "no asset 'sft_quality' with metrics"),
    ],
)
def test_a_bound_that_nothing_has_stops_a_build(tmp_path: Path, bounds: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        engine_build(of(tmp_path, 3, bounds), "sft_raw")


def test_metrics_are_figures_of_the_manifest_and_of_lengths(tmp_path: Path) -> None:
    workspace = of(tmp_path, 40, {}, steps={"language": {"keep": ["en"], "action": "note"}}, max_refused={"*": 1.0})
    published = build(workspace, "sft_tokens", "rows")
    counts = {"read": 10, "kept": 8, "tokens": 80, "trained_tokens": 20, "refused": {"a/b": 2}, "found": {}}
    manifest = Manifest("a", "", "", "", {}, counts, {"fill_rate": 0.5, "note": "x"}, {"x": {"bytes": 160}, "y": {"bytes": 160}})
    found = metrics_of(EVERY["sft_tokens"], Published(tmp_path, manifest))
    shares = {"bytes": 320, "bytes_per_token": 4, "tokens_per_record": 10, "trained_share": 0.25, "refused_share": 0.2, "refused.a/b": 0.2}
    assert found == {"read": 10, "kept": 8, "tokens": 80, "trained_tokens": 20, "fill_rate": 0.5, **shares}
    assert Sft.model_fields["quality"].default.bounds == {}
    lengths = sorted(len(open_stream(published.directory, "train").record(n, "tokens")) for n in range(40))
    found = metrics_of(EVERY["sft_tokens"], published)
    assert (found["length_median"], found["length_p99"], found["length_longest"]) == (lengths[19], lengths[39], lengths[39])


def ruled(folder: Path, quality: dict[str, Any]) -> Workspace:
    """The workspace of `of` with other rules, and nothing else changed."""
    path = folder / "configs" / "sft.yaml"
    options = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**options, "quality": quality}))
    return Workspace(folder / "configs", folder / "stores")


def brought_up(workspace: Workspace) -> str:
    """What a build of `sft_packed` is refused for; empty where it is done."""
    try:
        engine_build(workspace, "sft_packed")
    except PrepAssetsError as error:
        return str(error)
    return ""


def written(workspace: Workspace) -> dict[str, int]:
    """When each manifest was written."""
    return {str(path): path.stat().st_mtime_ns for path in workspace.stores.rglob("manifest.json")}


@pytest.mark.parametrize(
    ("rules", "store", "fault"),
    [
        ({"bounds": {"sft_packed.trained_share": {"block": {"min": 0.99}}}}, "sft_packed", "at least 0.99 is wanted"),
        ({"bounds": {"sft_raw.read": {"block": {"max": 3}}}}, "sft_raw[rows]", "read is 24, at most 3 is wanted"),
        ({"max_refused": {"*": 0.001}}, "sft_tokens[rows]", "1 of 24 records are refused for any reason, 4.2%"),
    ],
)
def test_a_rule_that_is_added_judges_stores_that_exist(tmp_path: Path, rules: dict[str, Any], store: str, fault: str) -> None:
    workspace = of(tmp_path, 23, {})
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"prompt": "Why?", "completion": ""}\n')
    assert brought_up(workspace) == ""
    before = written(workspace)
    strict = ruled(tmp_path, rules)
    assert (api.status(strict)[store].state, fault in str(api.status(strict)[store].failed)) == ("failed", True)
    refused = brought_up(strict)
    assert fault in refused
    assert "the published store fails its checks" in refused
    assert (written(strict), api.status(strict)[store].state) == (before, "failed"), "judged from the manifest, not built again"
    env = {"PREP_ASSETS_CONFIG_DIR": str(strict.configs), "PREP_ASSETS_STORE_DIR": str(strict.stores), "COLUMNS": "400"}
    for asset in (store.partition("[")[0], "sft_packed"):  # which is made from it
        result = CliRunner(env=env).invoke(app, ["path", asset])
        assert (result.exit_code == 0, fault in result.output) == (False, True)
    assert CliRunner(env=env).invoke(app, ["path", "sft_packed", "--even-if-failed"]).exit_code == 0
    loose = ruled(tmp_path, {})
    states = {name: each.state for name, each in api.status(loose).items()}
    assert (states[store], "failed" in states.values()) == ("current", False), "a rule that is gone heals without a build"
    assert (brought_up(loose), written(loose)) == ("", before)
    engine_build(loose, store.partition("[")[0])
    assert written(loose) == before
    stores = [each.published for each in api.status(loose).values() if each.published]
    assert all(one.passed for each in stores for one in (each.results or {}).values()), "and the store says so itself"


def test_a_rule_that_is_added_warns_of_stores_that_exist(tmp_path: Path) -> None:
    workspace = of(tmp_path, 24, {})
    assert brought_up(workspace) == ""
    ruled(tmp_path, {"bounds": {"sft_packed.trained_share": {"warn": {"min": 0.99}}}})
    env = {"PREP_ASSETS_CONFIG_DIR": str(workspace.configs), "PREP_ASSETS_STORE_DIR": str(workspace.stores), "COLUMNS": "400"}
    for command in (["build", "sft_packed"], ["status"]):
        done = CliRunner(env=env).invoke(app, command)
        assert (done.exit_code, "at least 0.99 is wanted" in done.output) == (0, True), done.output


def test_a_draft_is_judged_by_the_rules_of_now(tmp_path: Path) -> None:
    workspace = of(tmp_path, 24, {})
    assert brought_up(workspace) == ""
    of(tmp_path, 20, {})
    env = {"PREP_ASSETS_CONFIG_DIR": str(workspace.configs), "PREP_ASSETS_STORE_DIR": str(workspace.stores), "COLUMNS": "400"}
    build_review, path, accept = ["build", "sft_tokens", "--review"], ["path", "sft_tokens", "--draft"], ["accept", "sft_tokens"]
    assert [CliRunner(env=env).invoke(app, command).exit_code for command in (build_review, path)] == [0, 0]
    ruled(tmp_path, {"bounds": {"sft_tokens.kept": {"block": {"change": 0.1}}}})
    for command in (path, accept):
        done = CliRunner(env=env).invoke(app, command)
        assert (done.exit_code, "accounting: kept was 24 in the last good build and is 20" in done.output) == (1, True), done.output
    assert workspace.built("sft_tokens", "rows").manifest.counts["kept"] == 24
    ruled(tmp_path, {})
    assert [CliRunner(env=env).invoke(app, command).exit_code for command in (path, accept)] == [0, 0]


def test_going_back_to_an_older_version_is_judged_by_the_rules_of_now(tmp_path: Path) -> None:
    assert brought_up(of(tmp_path, 24, {})) == ""
    assert brought_up(of(tmp_path, 60, {})) == ""
    larger = Workspace(tmp_path / "configs", tmp_path / "stores").built("sft_packed").version
    for bound, fault in (({"min": 10_000}, "at least 10,000 is wanted"), ({"change": 0.1}, "a change of at most 10.0% is wanted")):
        back = of(tmp_path, 24, {"sft_packed.tokens": {"block": bound}})
        assert fault in brought_up(back)
        assert back.built("sft_packed").version == larger


@pytest.mark.parametrize(
    ("quality", "fault"),
    [
        ({"max_refused": {"tokenize/too_lng": 0.1}}, "quality.max_refused.tokenize/too_lng: no record is rejected for 'too_lng'; did you mean 'too_long'"),
        ({"max_refused": {"tokenise/too_long": 0.1}}, "no stage 'tokenise' rejects records; did you mean 'tokenize'"),
        ({"bounds": {"sft_tokens.refused.tokenize/too_lng": {"warn": {"max": 0}}}}, "did you mean 'too_long'"),
        ({"bounds": {"sft_quality.dropped.near_duplicat": {"warn": {"max": 0}}}, "steps": {"near_duplicates": {}}}, "did you mean 'near_duplicate'"),
    ],
)  # fmt: skip
def test_a_reason_that_no_record_can_have_is_an_error(tmp_path: Path, quality: dict[str, Any], fault: str) -> None:
    of(tmp_path, 3, {})
    with pytest.raises(ConfigError, match=fault):
        engine_build(ruled(tmp_path, quality), "sft_raw")


def test_a_share_that_no_record_has_is_zero(tmp_path: Path) -> None:
    of(tmp_path, 24, {})
    bounds = {
        name: {"block": {"max": 0}}
        for name in ("sft_quality.dropped.near_duplicate", "sft_quality.language.language.xx", "sft_tokens.refused.quality/my_reason")
    }
    steps = {
        "near_duplicates": {},
        "language": {"keep": ["en"], "action": "note"},
        "prep_assets_tests.quality.own_steps:short": {"action": "note"},
    }
    workspace = ruled(tmp_path, {"steps": steps, "bounds": bounds, "max_refused": {"quality/my_reason": 0.0}})
    verdict = verdicts(workspace, build(workspace, "sft_quality", "rows"))["not_blocked"]
    assert verdict.numbers["language.language.xx"] == 0
    build(workspace, "sft_tokens", "rows")


@pytest.mark.parametrize(("kept", "rule", "said"), [(17, None, True), (19, None, False), (17, {"warn": {"min": 1}}, False)])
def test_a_build_that_keeps_a_tenth_less_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int, rule: Any, said: bool) -> None:
    lines = []
    for count in (20, kept):
        workspace = of(tmp_path, count, {"sft_tokens.kept": rule} if rule else {})
        monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(workspace.configs))
        monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(workspace.stores))
        lines.append(" ".join(CliRunner(env={"COLUMNS": "200"}).invoke(app, ["build", "sft_tokens"]).output.split()))
    assert "fewer than" not in lines[0]
    assert ("! sft_tokens[rows]: 17 records are kept, 3 fewer than the 20 of the last good build" in lines[1]) is said


@pytest.mark.parametrize(("copies", "quality", "said"), [
    (11, {}, "dropped.near_duplicate is 0.52381, at most 0.5 is wanted"), (10, {}, ""), (11, {"action": "note"}, ""),
    (11, {"bounds": {"sft_quality.dropped.near_duplicate": {"block": {"max": 0.6}}}}, ""),
    (11, {"bounds": {"sft_quality.dropped.near_duplicate": {"warn": {"max": 0.1}}}}, "at most 0.5 is wanted"),
])  # fmt: skip
def test_more_than_half_of_a_domain_is_dropped_as_alike_only_if_a_bound_allows_it(
    tmp_path: Path, copies: int, quality: dict[str, Any], said: str
) -> None:
    others = [f"This is about number {n}, which is {n + 1} less 1, or {n * n} by itself." for n in range(20 - copies)]
    texts = [*(" ".join([*(f"word{at}" for at in range(60)), str(n)]) for n in range(copies + 1)), *others]
    rows = [{"prompt": "Go on.", "completion": text} for text in texts]
    source = domain(jsonl(tmp_path / "rows.jsonl", rows), "prompt_completion")
    steps = {"near_duplicates": {name: value for name, value in quality.items() if name == "action"}}
    bounds = {"bounds": quality.get("bounds", {})}
    workspace = workspace_in(tmp_path, minimal("sft", {"rows": source}, template="chatml", quality={"steps": steps, **bounds}))
    assert said in brought_up(workspace)
    assert bool(said) == bool(brought_up(workspace))
