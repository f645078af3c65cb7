"""Small domains that workers build beside each other: the same stores and events as one after the other, whatever becomes of a domain or of a worker."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.config.models import FAMILIES, TRAINED
from prep_assets.engine import build, plan
from prep_assets.engine import execute as beside
from prep_assets.engine import execute as running
from prep_assets.engine.events import Accepted, Blocked, Event, Planned, Progress, Skipped
from prep_assets.engine.execute import chains_of, stores_of
from prep_assets.errors import PrepAssetsError
from prep_assets.graph.graph import ASSETS
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import file_hash
from prep_assets.workers.pool import Pool
from prep_assets_tests.graph.shard_inputs import turns
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, shipped, with_groups, with_others, workspace_in
from prep_assets_tests.workers.works import die_of

NAMES = ("a", "b", "c", "d")


def four_domains(folder: Path, **more: Any) -> Workspace:
    folder.mkdir(exist_ok=True)
    files = {
        name: jsonl(folder / f"{name}.jsonl", ({"messages": turns(100 * at + number)} for number in range(40)))
        for at, name in enumerate(NAMES)
    }
    domains = {name: domain(file, "messages") for name, file in files.items()}
    return workspace_in(folder, minimal("sft", domains, **{"workers": 2, "packing": {"row_len": 64}, **more}))


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """The workers of all tests here: the process that they are forked from is started once."""
    with Pool() as made:
        yield made


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: Pool) -> Workspace:
    made = replace(four_domains(tmp_path), pool=pool)
    monkeypatch.setattr(beside, "LARGE_DOMAIN", 2 * (tmp_path / "a.jsonl").stat().st_size)
    return made


def told(workspace: Workspace, *assets: str, **how: Any) -> list[Event]:
    events: list[Event] = []
    with contextlib.suppress(PrepAssetsError):
        build(workspace, *assets, tell=events.append, **how)
    return [event for event in events if not isinstance(event, Progress | Planned)]


def here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stores that this process builds itself, as they come."""
    found: list[str] = []
    carry_out = running._Worker.carry_out

    def noting(self: Any, step: Any) -> Any:
        found.append(step.label)
        return carry_out(self, step)

    monkeypatch.setattr(running._Worker, "carry_out", noting)
    return found


def without_times(events: list[Event]) -> list[Any]:
    """Events as they compare: a store by what it holds."""
    return sorted(
        (event.step.label, type(event).__name__, getattr(event, "check", ""), str(getattr(event, "verdicts", "")), _content(event))
        for event in events  # type: ignore[union-attr]
    )


def _content(event: Any) -> Any:
    published = getattr(event, "published", None)
    return published and (published.manifest.content_hash, published.quarantine and file_hash(published.quarantine))


def test_stores_and_events_are_those_of_one_process(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = told(replace(workspace, workers=1, stores=workspace.stores.with_name("alone")), "sft_packed")
    mine = here(monkeypatch)
    together = told(workspace, "sft_packed")
    assert mine == ["sft_packed"]
    assert without_times(together) == without_times(alone)
    accepted = [event for event in together if isinstance(event, Accepted)]
    assert [event.step.label for event in accepted] == [
        *(f"sft_{kind}[{name}]" for name in NAMES for kind in ("raw", "tokens")),
        "sft_packed",
    ]
    assert all(event.seconds > 0 for event in accepted)
    assert told(workspace, "sft_packed")[0].step.label == "sft_packed"  # type: ignore[union-attr]


def test_progress_says_how_many_domains_are_done(workspace: Workspace) -> None:
    said: list[Progress] = []
    build(workspace, "sft_packed", tell=lambda event: said.append(event) if isinstance(event, Progress) else None)
    domains = [each for each in said if each.what.endswith("domains")]
    assert [each.what for each in domains] == [f"{number} of 4 domains" for number in (1, 2, 3, 4)]
    assert domains[-1].done == domains[-1].total == sum((workspace.configs.parent / f"{name}.jsonl").stat().st_size for name in NAMES)


def test_a_domain_that_cannot_be_built_stops_only_what_is_made_from_it(workspace: Workspace) -> None:
    (workspace.configs.parent / "b.jsonl").write_text('["no row"]\n' * 400)
    events = told(workspace, "sft_packed")
    [refused] = [event for event in events if isinstance(event, Blocked)]
    assert refused.step.label == "sft_raw[b]" and "b.jsonl" in refused.reason and isinstance(refused.error, PrepAssetsError)
    skipped = [(event.step.label, event.because) for event in events if isinstance(event, Skipped)]
    assert skipped == [("sft_tokens[b]", refused.step), ("sft_packed", refused.step)]
    assert sum(isinstance(event, Accepted) for event in events) == 6


def test_what_cannot_be_opened_is_told_by_each_store_that_needs_it(workspace: Workspace) -> None:
    config = workspace.configs / "sft.yaml"
    config.write_text(config.read_text().replace("tokenizer: ", "tokenizer: ./nowhere"))
    events = told(workspace, "sft_packed")
    assert [event.step.label for event in events if isinstance(event, Accepted)] == [f"sft_raw[{name}]" for name in NAMES]
    refused = [event for event in events if isinstance(event, Blocked)]
    assert [event.step.label for event in refused] == [f"sft_tokens[{name}]" for name in NAMES]
    assert all("nowhere" in event.reason for event in refused)


def test_a_worker_that_is_killed_costs_nothing_but_time(
    workspace: Workspace, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_chain", partial(die_of, domain="b", marks=tmp_path))
    lost = pool.effort.lost
    events = told(workspace, "sft_packed")
    assert pool.effort.lost == lost + 1
    assert sum(isinstance(event, Accepted) for event in events) == 9 and not any(isinstance(event, Blocked) for event in events)


def test_a_domain_that_ends_two_workers_is_named_and_the_others_are_built(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_chain", partial(die_of, domain="b", marks=None))
    events = told(workspace, "sft_packed")
    [refused] = [event for event in events if isinstance(event, Blocked)]
    assert refused.step.label == "sft_raw[b]" and "killed" in refused.reason and "--workers" in refused.reason
    assert "shard 2 of 4 (b)" in refused.reason
    skipped = [(event.step.label, event.because.label) for event in events if isinstance(event, Skipped)]
    assert skipped == [("sft_tokens[b]", "sft_raw[b]"), ("sft_packed", "sft_raw[b]")]
    assert sum(isinstance(event, Accepted) for event in events) == 6


@pytest.mark.soak
def test_each_lost_domain_is_counted_among_all(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_chain", partial(die_of, domain="", marks=None))
    events = told(workspace, "sft_tokens")
    refused = [event for event in events if isinstance(event, Blocked)]
    assert [event.step.label for event in refused] == [f"sft_raw[{name}]" for name in NAMES]
    assert all(f"shard {number} of 4 ({name})" in event.reason for number, (name, event) in enumerate(zip(NAMES, refused, strict=True), 1))


def test_what_has_changed_is_built_again_and_nothing_else(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    told(workspace, "sft_packed")
    for name in ("a", "c"):
        with (workspace.configs.parent / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps({"messages": turns(-1)}) + "\n")
    mine = here(monkeypatch)
    events = told(workspace, "sft_packed")
    assert mine == ["sft_packed"]
    written = [event.step.label for event in events if isinstance(event, Accepted) and not event.published.reused]
    assert written == ["sft_raw[a]", "sft_tokens[a]", "sft_raw[c]", "sft_tokens[c]", "sft_packed"]


def test_what_a_domain_was_made_from_and_is_damaged_is_built_again_first(workspace: Workspace) -> None:
    told(workspace, "sft_raw")
    for name in NAMES:
        store = workspace.built("sft_raw", name)
        with (store.directory / "sources.json").open("r+b") as file:
            os.truncate(file.fileno(), 5)
    events = told(workspace, "sft_tokens")
    accepted = [event.step.label for event in events if isinstance(event, Accepted)]
    assert accepted == [f"sft_{kind}[{name}]" for name in NAMES for kind in ("raw", "tokens")]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_was_current_is_compared_before_something_is_made_from_it(workspace: Workspace, workers: int) -> None:
    mine = replace(workspace, workers=workers)
    told(mine, "sft_tokens")
    shutil.rmtree(workspace.stores / "sft_tokens")
    store = workspace.built("sft_raw", "c")
    path = store.directory / "sources.json"
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
    events = told(mine, "sft_raw", "sft_tokens")
    assert [event.step.label for event in events if isinstance(event, Accepted) and event.step.why.startswith("damaged")] == ["sft_raw[c]"]


def test_domains_are_beside_each_other_after_what_all_of_them_wait_for(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    source = {
        "bench": {"files": [str(jsonl(workspace.configs.parent / "bench.jsonl", [{"text": "Nobody trains on this."}]))], "schema": "text"}
    }
    (workspace.configs / "eval.yaml").write_text(yaml.safe_dump({"domains": source}), "utf-8")
    mine = here(monkeypatch)
    events = told(workspace, "sft_packed")
    assert mine == ["eval_raw[bench]", "eval_passages", "sft_packed"]
    accepted = [event.step.label for event in events if isinstance(event, Accepted)]
    assert accepted[:2] == ["eval_raw[bench]", "eval_passages"]
    assert {*accepted[2:-1]} == {f"sft_{kind}[{name}]" for name in NAMES for kind in ("raw", "leaks", "tokens")}


@pytest.mark.parametrize("fault", ["", "{"])
def test_what_they_wait_for_fails_and_stops_them(workspace: Workspace, fault: str) -> None:
    source = {"bench": {"files": [str(workspace.configs.parent / "bench.jsonl")], "schema": "text"}}
    (workspace.configs.parent / "bench.jsonl").write_text(fault, "utf-8")
    (workspace.configs / "eval.yaml").write_text(yaml.safe_dump({"domains": source}), "utf-8")
    events = told(workspace, "sft_packed")
    assert "eval_raw[bench]" in [event.step.label for event in events if isinstance(event, Blocked)]
    assert {event.step.label for event in events if isinstance(event, Skipped)} >= {
        "eval_passages",
        *(f"sft_tokens[{name}]" for name in NAMES),
    }


def chains(workspace: Workspace, asset: str, partition: str | None = None) -> dict[str, list[str]]:
    with Pool() as pool:
        mine = replace(workspace, pool=pool)
        found = chains_of(mine, [step for step in plan(mine, stores_of(mine, [asset], partition)) if step.why])
        assert not pool.processes
    return {
        family: ["+".join(step.asset.name for step in chain) + f"[{chain[0].partition}]" for chain in each]
        for family, each in found.items()
    }


def test_which_domains_are_built_beside_each_other(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [f"sft_raw+sft_tokens[{name}]" for name in NAMES]
    assert chains(workspace, "sft_packed") == {"sft": whole}
    assert chains(workspace, "sft_template") == {}
    assert chains(workspace, "sft_raw") == {}, "rows are pinned sooner than workers start"
    assert chains(replace(workspace, workers=1), "sft_packed") == {}
    assert chains(workspace.overriding("sft", {"packing": {"row_len": 128}}), "sft_packed") == {}
    assert chains(workspace, "sft_tokens", partition="a") == {}, "one domain"
    alone = replace(workspace, pool=None)
    assert chains_of(alone, plan(alone, stores_of(alone, ["sft_packed"]))) == {}, "without a pool"
    shutil.copy(tmp_path / "b.jsonl", tmp_path / "more.jsonl")
    (tmp_path / "b.jsonl").write_bytes(3 * (tmp_path / "more.jsonl").read_bytes())
    assert chains(workspace, "sft_packed") == {"sft": [each for each in whole if "[b]" not in each]}, "a large one is cut into shards"
    monkeypatch.setattr(beside, "LARGE_DOMAIN", 1 << 20)
    assert chains(workspace, "sft_packed") == {}, "done sooner than workers start"


@pytest.mark.soak
def test_every_family_is_built_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: Pool) -> None:
    monkeypatch.setattr(beside, "_text_bytes", lambda *_: beside.LARGE_DOMAIN - 1)
    families = with_groups(with_others(shipped(), tmp_path), tmp_path, 30)
    for each in (each for family in families.values() for each in family["domains"].values()):
        each["max_items"] = 30
    made = workspace_in(tmp_path, families)
    names = [name for name, asset in ASSETS.items() if asset.family in TRAINED]
    several = {family for family in TRAINED if len(made.family(FAMILIES[family]).domains) > 1}
    alone = told(replace(made, workers=1, stores=tmp_path / "alone"), *names)
    mine = here(monkeypatch)
    together = told(replace(made, workers=2, pool=pool), *names)
    assert without_times(together) == without_times(alone)
    assert several and not [label for label in mine if label.endswith("]") and ASSETS[label.partition("[")[0]].family in several]


@pytest.mark.parametrize(("of_text", "workers", "prepared"), [(0, 2, 1), (0, 1, 0), (1 << 40, 2, 0)])
def test_what_workers_are_forked_from_starts_before_a_large_domain_is_hashed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, of_text: int, workers: int, prepared: int
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(beside, "LARGE_DOMAIN", of_text)
    monkeypatch.setattr(Pool, "prepare", lambda pool, ready: asked.append(ready.func))
    for _ in range(2):  # the second time there is nothing to do
        build(replace(workspace, workers=workers), "sft_raw", partition="a")
    assert asked == [beside.opened] * prepared
