"""Quality steps in the graph: who drops what, where it is refused, and what notices when it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from prep_assets.checks import of_quality, sources_again
from prep_assets.config.models import Sft
from prep_assets.data import tables as cuts
from prep_assets.errors import CheckFailed, ConfigError, PrepAssetsError
from prep_assets.graph.graph import EVERY, assets_of
from prep_assets.pipeline import tokens
from prep_assets.pipeline.verdicts import VERDICTS, Dropped, dropped_rows, read_verdicts
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.selection import DROPPED, GOOD, reason_fault
from prep_assets_tests.graph.workspaces import (
    build,
    domain,
    failing,
    jsonl,
    minimal,
    out_of_date,
    refusals,
    tree,
    verdicts,
    workspace_in,
)

OWN = "prep_assets_tests.quality.own_steps"
ROWS = [{"prompt": f"What is {n}?", "completion": "Two words." if n % 3 == 0 else f"It is the number {n}."} for n in range(30)]
SHORT = [f"rows.jsonl:{n}" for n in range(0, 30, 3)]


def of(folder: Path, steps: dict[str, Any], rows: list[Any] | None = None, **options: Any) -> Workspace:
    """A workspace with one domain of the family sft."""
    folder.mkdir(parents=True, exist_ok=True)
    source = domain(jsonl(folder / "rows.jsonl", rows or ROWS), "prompt_completion")
    return workspace_in(folder, minimal("sft", {"rows": source}, template="chatml", quality={"steps": steps}, **options))


def test_what_a_step_drops_is_refused_downstream_with_its_reason(tmp_path: Path) -> None:
    workspace = of(tmp_path, {f"{OWN}:short": {}, f"{OWN}:even": {"action": "note"}})
    published = build(workspace, "sft_tokens", "rows")
    assert [(each.id, each.stage, each.reason) for each in refusals(published)] == [(id, "quality", "short_answer") for id in SHORT]
    judged = workspace.built("sft_quality", "rows")
    counts = judged.manifest.counts
    assert (counts["examples"], counts["kept"], counts["dropped"]) == (30, 20, 10)
    assert counts["found"] == {f"{OWN}:even/even_row (note)": 15, f"{OWN}:short/short_answer (drop)": 10}
    assert failing(workspace, published) == failing(workspace, judged) == []
    assert out_of_date(workspace, EVERY["sft_tokens"], "rows") == []
    changed = of(tmp_path, {f"{OWN}:short": {"below": 3}, f"{OWN}:even": {"action": "note"}})
    assert [(asset.name, state) for asset, _, state in out_of_date(changed, EVERY["sft_tokens"], "rows")] == [("sft_quality", "stale")]


def test_without_steps_there_is_no_such_asset(tmp_path: Path) -> None:
    workspace = of(tmp_path, {})
    assert "sft_quality" not in assets_of(workspace)
    assert "quality" not in build(workspace, "sft_tokens", "rows").manifest.recipe


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
    assert carried_out == ["compare records of rows", "tokenize rows"]
    assert tree(stores[0].directory) == tree(stores[1].directory)
    assert failing(many, stores[1]) == []


def test_a_step_that_blocks_publishes_nothing(tmp_path: Path) -> None:
    workspace = of(tmp_path, {f"{OWN}:short": {"action": "block"}})
    with pytest.raises(CheckFailed, match=r"short_answer must not be found, and was; first rows.jsonl:0"):
        build(workspace, "sft_tokens", "rows")
    assert workspace.published("sft_quality", "rows") is None
    assert workspace.published("sft_tokens", "rows") is None


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        ({"lenguage": {}}, r"no quality step 'lenguage'"),
        ({f"{OWN}:short": {"action": "delete"}}, r"'action' = 'delete': needs one of drop, note, block"),
        ({f"{OWN}:shrt": {}}, "cannot be loaded"),
        ({f"{OWN}:too_few": {}}, r"returns 29 reasons for 30 examples"),
        ({f"{OWN}:short": {"over": 3}}, r"unexpected keyword argument 'over'; its signature is"),
        ({f"{OWN}:fails": {}}, r"raised KeyError: 'prompt' \(.*own_steps.py, line \d+\), on a block from rows.jsonl:0 to rows.jsonl:29"),
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
        monkeypatch.setattr(of_quality, "read_verdicts", lambda store, changed=changed: changed)
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
