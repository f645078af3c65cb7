"""Margins of pairs, from scores to the columns of trainers, and stores in which they are wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prep_assets import export, load
from prep_assets.errors import ConfigError
from prep_assets.extensions.preference.mutations import MARGIN_MUTATIONS
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import PAIRS, open_stream, open_table
from prep_assets.stores.version_folders import Published
from prep_assets.training import DatasetFactory, PadPairs, PairDataset
from prep_assets_tests.graph.workspaces import (
    build_all,
    copy_of,
    domain,
    failing,
    jsonl,
    minimal,
    refusals,
    resealed,
    verdicts,
    workspace_in,
)

ANSWERS = {"chosen": "a", "rejected": "b"}
BY_DOMAIN = "preference_tokens_by_domain"


def scored(folder: Path, name: str, count: int, **more: Any) -> dict[str, Any]:
    """Rows of three scored answers, whose best and worst differ by 1 + a tenth of their number."""
    rows = [
        {"prompt": f"{name} {n}?", "responses": [f"It is {n}.", f"{n}!", f"No {n}."], "rewards": [0.1 * n, 0.05, -1.0]}
        for n in range(count)
    ]
    return domain(jsonl(folder / f"{name}.jsonl", rows), "group", **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("margins")
    domains = {
        "scores": scored(folder, "scores", 40, options={"margin": True}),
        "plain": domain(jsonl(folder / "p.jsonl", [{**ANSWERS, "prompt": f"{n}"} for n in range(9)]), "preference"),
        "wide": domain(
            jsonl(folder / "w.jsonl", [{"prompt": "Far?", "chosen": "a", "rejected": "b", "margin": margin} for margin in (1e39, 3e38)]),
            "preference",
        ),
    }
    workspace = workspace_in(folder, minimal("preference", domains, test_fraction=0.2))
    build_all(workspace, ["preference"])
    return workspace


def expected(workspace: Workspace, asset: str, partition: str, folder: str = "") -> list[float | None]:
    """The margins of the lines."""
    name = "preferences_test" if folder else "preferences"
    return [line.get("margin") for line in open_stream(workspace.built(asset, partition).directory, name)]


def stored(published: Published, folder: str = "") -> list[float] | None:
    pairs = open_table(published.directory, folder or None)
    assert pairs.schema is PAIRS
    return pairs.columns["margin"].values.tolist() if "margin" in pairs.columns else None


@pytest.mark.parametrize("folder", ["", "test"])
def test_margins_stand_beside_the_chosen_side(made: Workspace, folder: str) -> None:
    said = expected(made, "preferences_by_domain", "scores", folder)
    assert said and None not in said and len(set(said)) == len(said)
    assert stored(made.built(BY_DOMAIN, "scores"), folder) == np.array(said, np.float32).tolist()
    directory = made.built(BY_DOMAIN, "scores").directory
    assert [path.parent.name for path in (directory / folder).glob("*/margin.npy")] == ["chosen.index"]


def test_without_margins_there_is_no_column(made: Workspace) -> None:
    assert stored(made.built(BY_DOMAIN, "plain")) is None
    assert not list(made.built(BY_DOMAIN, "plain").directory.rglob("margin.npy"))


def test_merged_pairs_have_the_margins_of_their_lines(made: Workspace) -> None:
    said = np.array([np.nan if margin is None else margin for margin in expected(made, "preferences", "")], np.float32)
    assert np.isnan(said).any() and not np.isnan(said).all()
    assert np.array_equal(np.array(stored(made.built("preference_tokens")), np.float32), said, equal_nan=True)


def test_a_margin_that_no_float32_holds_is_refused(made: Workspace) -> None:
    [refused] = refusals(made.built("preferences_by_domain", "wide"))
    assert refused.reason == "margin_out_of_range"


def test_every_check_holds(made: Workspace) -> None:
    for asset, partition in ((BY_DOMAIN, "scores"), (BY_DOMAIN, "plain"), ("preference_tokens", "")):
        judged = verdicts(made, made.built(asset, partition))
        assert [name for name, verdict in judged.items() if not verdict.passed] == []
    assert verdicts(made, made.built(BY_DOMAIN, "scores"))["margins"].numbers == {"pairs_checked": 40, "margins_checked": 40}


def test_the_selftest_corrupts_them(made: Workspace) -> None:
    trials = [trial for trial in selftest(made, made.built(BY_DOMAIN, "scores")) if trial.check == "margins"]
    assert all(trial.passed for trial in trials)
    names = {mutation.name for mutation in MARGIN_MUTATIONS} - {"a margin where the source has none"}
    assert {trial.mutation for trial in trials if trial.caught} == {"", *names}


def rewritten(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        margins = np.load(path)
        np.save(path, change(margins).astype(np.float32))

    return spoil


SPOILS: dict[str, Callable[[Path], None]] = {
    "inverted": rewritten(lambda margins: -margins),
    "of the next pair": rewritten(lambda margins: np.roll(margins, 1)),
    "one lost": rewritten(lambda margins: np.where(margins == np.nanmax(margins), np.nan, margins)),
    "all lost": Path.unlink,
}


@pytest.mark.parametrize(("asset", "partition", "check"), [(BY_DOMAIN, "scores", "margins"), ("preference_tokens", "", "merged")])
@pytest.mark.parametrize("what", SPOILS)
def test_a_spoiled_store_is_seen(made: Workspace, tmp_path: Path, asset: str, partition: str, check: str, what: str) -> None:
    workspace = copy_of(made, tmp_path / "w")
    SPOILS[what](workspace.built(asset, partition).directory / "chosen.index" / "margin.npy")
    assert failing(workspace, resealed(workspace.built(asset, partition))) == [check]


def test_exports(made: Workspace, tmp_path: Path) -> None:
    import pyarrow as pa

    source = made.built(BY_DOMAIN, "scores")
    folder = export(source, "hf_arrow", tmp_path / "arrow")
    [file] = folder.glob("*.arrow")
    with pa.ipc.open_stream(pa.memory_map(str(file))) as table:
        columns = table.read_all().to_pydict()
    assert list(columns) == ["chosen_ids", "rejected_ids", "margin"]
    assert columns["margin"] == stored(source)
    for format, options, says in (
        ("hf_arrow", {"layout": "llama_factory"}, "layout 'llama_factory' has no place for the margins"),
        ("megatron", {}, "export 'megatron' has no place for the margins"),
    ):
        with pytest.raises(ConfigError, match=says):
            export(source, format, tmp_path / format, **options)
    with pytest.raises(ConfigError, match="pairs have no margin, and TRL reads one of every pair or of none"):
        export(made.built("preference_tokens"), "hf_parquet", tmp_path / "some")


@pytest.mark.parametrize("shared", [False, True])
def test_a_batch_has_the_margins_of_its_pairs(made: Workspace, shared: bool) -> None:
    path = made.built(BY_DOMAIN, "scores").directory
    items = list(DatasetFactory.load("dpo", path, share_memory=shared))
    said = np.array(expected(made, "preferences_by_domain", "scores"), np.float32).tolist()
    assert PadPairs()(items)["margin"].tolist() == said
    assert items[0]["margin"].dtype == PadPairs()(items)["margin"].dtype == torch.float32
    without = PairDataset(load(made.built(BY_DOMAIN, "plain").directory))[-1]
    assert "margin" not in without
    with pytest.raises(ConfigError, match="1 of 2 items of a batch have a `margin`"):
        PadPairs()([items[0], without])


def test_margins_of_some_pairs_stop_a_data_set(made: Workspace, tmp_path: Path) -> None:
    path, keys = made.built("preference_tokens").directory, ["chosen", "rejected", "chosen_mask", "rejected_mask"]
    lacking = expected(made, "preferences", "").count(None)
    with pytest.raises(ConfigError, match=rf"{lacking} of \d+ pairs have no margin, and a reward model's loss takes one of every pair"):
        PairDataset(load(path))
    assert "margin" not in PairDataset(load(path, keys=keys))[0]
    row = {key: [1, 1] for key in keys}
    lines = jsonl(tmp_path / "pairs.jsonl", [{**row, "margin": 0.5}, {**row, "margin": 2}])
    assert [item["margin"].item() for item in PairDataset(load(lines))] == [0.5, 2.0]
    with pytest.raises(ConfigError, match="1 of 2 pairs"):
        PairDataset(load(jsonl(tmp_path / "some.jsonl", [{**row, "margin": 0.5}, row])))
