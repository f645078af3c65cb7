"""Bounds of metrics: which warn, which block, and what the last good build has to do with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from prep_assets.checks.bounds import metrics_of
from prep_assets.config.models import Sft
from prep_assets.defs.io_manager import StoreIOManager
from prep_assets.defs.metadata import evaluations
from prep_assets.defs.site import Site, WorkspaceResource
from prep_assets.engine.plan import Step
from prep_assets.errors import CheckFailed, ConfigError
from prep_assets.graph.graph import BOUNDED, EVERY, assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.tokens import open_tokens
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


def test_a_warning_is_a_warning_in_dagster(tmp_path: Path) -> None:
    workspace = of(tmp_path, 24, {TOKENS: {"warn": {"min": 10_000}}})
    published = build(workspace, "sft_tokens", "rows")
    found = verdicts(workspace, published)
    site = Site(WorkspaceResource(configs=str(workspace.configs)), StoreIOManager(store_dir=str(workspace.stores)))
    step = Step(EVERY["sft_tokens"], "rows", "missing", "", requested=True)
    told = {one.check_name: one for one in evaluations(dg.DagsterInstance.ephemeral(), site, workspace, step, found)}
    assert told["accounting"].passed and told["accounting"].blocking, "automation waits for a blocking check that is not green"
    assert (told["warnings"].passed, told["warnings"].severity, told["warnings"].blocking) == (False, dg.AssetCheckSeverity.WARN, False)
    assert (told["file_hashes"].passed, told["file_hashes"].severity) == (True, dg.AssetCheckSeverity.WARN)
    assert found["accounting"].numbers["tokens"] == published.manifest.counts["tokens"]


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
        CheckFailed, match=r"sft_tokens has no metric 'tokns'; it has bytes, bytes_per_token, control_tokens_in_content, kept"
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
    ],
)
def test_a_bound_that_means_nothing_is_an_error(tmp_path: Path, bounds: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        assets_of(of(tmp_path, 3, bounds))


def test_metrics_are_figures_of_the_manifest_and_of_lengths(tmp_path: Path) -> None:
    workspace = of(tmp_path, 40, {}, steps={"language": {"keep": ["en"], "action": "note"}}, max_refused={"*": 1.0})
    published = build(workspace, "sft_tokens", "rows")
    counts = {"read": 10, "kept": 8, "tokens": 80, "trained_tokens": 20, "refused": {"a/b": 2}, "found": {}}
    manifest = Manifest("a", "", "", "", {}, counts, {"fill_rate": 0.5, "note": "x"}, {"x": {"bytes": 160}, "y": {"bytes": 160}})
    found = metrics_of(EVERY["sft_tokens"], Published(tmp_path, manifest))
    shares = {"bytes": 320, "bytes_per_token": 4, "tokens_per_record": 10, "trained_share": 0.25, "refused_share": 0.2, "refused.a/b": 0.2}
    assert found == {"read": 10, "kept": 8, "tokens": 80, "trained_tokens": 20, "fill_rate": 0.5, **shares}
    assert Sft.model_fields["quality"].default.bounds == {}
    lengths = sorted(len(open_tokens(published.directory, "train").record(n, "tokens")) for n in range(40))
    found = metrics_of(EVERY["sft_tokens"], published)
    assert (found["length_median"], found["length_p99"], found["length_longest"]) == (lengths[19], lengths[39], lengths[39])
