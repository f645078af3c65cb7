"""The engine: what is built and why, what is refused, and what is left as it was."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest

from prep_assets.config.models import FAMILIES, Sft
from prep_assets.engine import BuildFailed, Statuses, build, plan, state
from prep_assets.engine.events import Accepted, Blocked, Event, Progress, Skipped, Started
from prep_assets.engine.execute import stores_of
from prep_assets.engine.plan import takes
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.graph.graph import ASSETS, EVERY, assets_of, run_check
from prep_assets.pipeline import workspace as workspaces
from prep_assets.pipeline.asset import Check
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import SHIPPED, all_unchecked, checks_of, domain, shipped, with_groups, with_others, workspace_in

SFT = tuple(SHIPPED["sft"]["domains"])
RUN_CHECK = "prep_assets.engine.execute.run_check"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The SFT family, built from nothing by one call. Read only."""
    workspace = workspace_in(tmp_path_factory.mktemp("made"), {"sft": SHIPPED["sft"]})
    build(workspace, "sft_packed", "sft_template")
    return workspace


@pytest.fixture
def mine(made: Workspace, tmp_path: Path) -> Workspace:
    """A copy that a test may change."""
    shutil.copytree(made.configs, tmp_path / "configs")
    shutil.copytree(made.stores, tmp_path / "stores", symlinks=True)
    return Workspace(tmp_path / "configs", tmp_path / "stores")


def told(workspace: Workspace, *assets: str, **how: Any) -> list[Event]:
    """Every event of a build that is done or fails, but for progress."""
    events: list[Event] = []
    with contextlib.suppress(PrepAssetsError):
        build(workspace, *assets, tell=events.append, **how)
    return [event for event in events if not isinstance(event, Progress)]


def labels(events: list[Event], kind: Any) -> list[str]:
    return [event.step.label for event in events if isinstance(event, kind)]


def failing(monkeypatch: pytest.MonkeyPatch, name: str, *stores: tuple[str, str]) -> None:
    """Let a check fail for some stores."""

    def verdict(check: Check, workspace: Workspace, published: Published) -> Verdict:
        if check.name == name and (published.manifest.asset, published.manifest.partition) in stores:
            return Verdict(False, "one record is missing")
        return run_check(check, workspace, published)

    monkeypatch.setattr(RUN_CHECK, verdict)


# -- from nothing, and again ------------------------------------------------------------------------------------------------------------


def test_one_call_builds_everything_upstream_in_order_checks_it_and_publishes_it(tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path, {"sft": SHIPPED["sft"]})
    events = told(workspace, "sft_packed")
    started = labels(events, Started)
    assert sorted(started) == sorted([*(f"sft_raw[{name}]" for name in SFT), *(f"sft_tokens[{name}]" for name in SFT), "sft_packed"])
    assert all(started.index(f"sft_raw[{name}]") < started.index(f"sft_tokens[{name}]") < started.index("sft_packed") for name in SFT)
    for event in events:
        if isinstance(event, Accepted):
            assert list(event.verdicts) == [check.name for check in checks_of(event.step.asset.name)]
            assert all(verdict.passed for verdict in event.verdicts.values())
    assert {state(workspace, ASSETS["sft_packed"]), *(state(workspace, ASSETS["sft_tokens"], name) for name in SFT)} == {"current"}


def test_what_is_current_is_left_alone(mine: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any) -> Any:
        raise AssertionError("nothing is to be checked")

    monkeypatch.setattr(RUN_CHECK, forbidden)
    [built] = build(mine, "sft_packed")
    assert built.published.reused and not built.draft
    assert [step.why for step in plan(mine, stores_of(mine, ["sft_packed"]))] == [""]


def test_what_is_current_is_checked_again_where_that_is_asked_for(mine: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "mask_alignment", ("sft_packed", ""))
    with pytest.raises(BuildFailed, match=r"sft_packed: the published store fails its checks.*\n.*mask_alignment: one record is missing"):
        build(mine, "sft_packed", recheck=True)
    assert state(mine, ASSETS["sft_packed"]) == "failed"


def test_only_what_changed_is_built(mine: Workspace) -> None:
    path = mine.configs / "sft.yaml"
    path.write_text(path.read_text("utf-8").replace("row_len: 512", "row_len: 256"), "utf-8")
    changed = Workspace(mine.configs, mine.stores)
    [step] = plan(changed, stores_of(changed, ["sft_packed"]))
    assert (step.state, step.why) == ("stale", "changed: packing.row_len")
    assert labels(told(changed, "sft_packed"), Started) == ["sft_packed"]


def test_a_plan_touches_nothing(tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path, {"sft": SHIPPED["sft"]})
    assert len(plan(workspace, stores_of(workspace, ["sft_packed"]))) == 2 * len(SFT) + 1
    assert not list(workspace.stores.rglob("manifest.json"))


def test_force_builds_what_was_named_and_nothing_above_it(mine: Workspace) -> None:
    before = mine.published("sft_packed")
    events = told(mine, "sft_packed", force=True)
    assert labels(events, Started) == ["sft_packed"]
    [accepted] = [event for event in events if isinstance(event, Accepted)]
    assert not accepted.published.reused
    # equal bytes: the store that is there stays
    assert mine.published("sft_packed") == before


# -- what is wrong ----------------------------------------------------------------------------------------------------------------------


def test_a_look_tells_options_of_one_run_from_those_of_the_file(made: Workspace) -> None:
    """A template that was read with other options is not taken for the file's."""
    look = made.overriding("sft", {"template": "plain"}).at_a_glance()
    assert look.template(look.family(Sft)).hash != look.plain.template(look.plain.family(Sft)).hash


def test_a_look_at_many_stores_opens_the_tokenizer_once_and_the_next_look_again(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(workspaces, "open_tokenizer", lambda *how, real=workspaces.open_tokenizer: (opened.append(how), real(*how))[1])
    for looks in (1, 2):
        look = Statuses(made)
        assert {look.at(ASSETS["sft_tokens"], name).state for name in SFT} == {"current"}
        assert len(opened) == looks


def test_a_store_that_fails_a_check_is_not_published_and_what_is_made_from_it_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_in(tmp_path, {"sft": SHIPPED["sft"]})
    failing(monkeypatch, "accounting", ("sft_tokens", "dolly"))
    events = told(workspace, "sft_packed")
    assert labels(events, Blocked) == ["sft_tokens[dolly]"]
    assert labels(events, Skipped) == ["sft_packed"]
    # the other domains are done all the same
    assert {name for name in SFT if workspace.published("sft_tokens", name)} == set(SFT) - {"dolly"}
    standing = Statuses(workspace).at(ASSETS["sft_tokens"], "dolly")
    assert standing.state == "missing" and list(standing.refused) == ["accounting"]
    with pytest.raises(BuildFailed, match=r"sft_tokens\[dolly\]: not published(?s:.)*so not built: sft_packed"):
        build(workspace, "sft_packed")


def test_two_domains_that_fail_are_both_named(mine: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "accounting", ("sft_tokens", "dolly"), ("sft_tokens", "chats"))
    with pytest.raises(BuildFailed) as raised:
        build(mine, "sft_tokens", force=True)
    assert "sft_tokens[dolly]" in str(raised.value) and "sft_tokens[chats]" in str(raised.value)


def test_the_run_of_another_configuration_cannot_publish_a_store_that_failed(mine: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs with different configurations: the checks of one used to publish the store of the other."""
    current = mine.published("sft_packed")
    other = mine.overriding("sft", {"packing": {"row_len": 256}})
    failing(monkeypatch, "mask_alignment", ("sft_packed", ""))
    with pytest.raises(BuildFailed):
        build(other, "sft_packed", publish=True)
    monkeypatch.undo()
    refused = mine.place("sft_packed").candidate()
    assert refused is not None
    build(mine, "sft_packed", recheck=True)
    assert mine.published("sft_packed") == current


def test_bytes_that_rot_upstream_are_noticed_before_they_are_read(mine: Workspace) -> None:
    path = next((mine.stores / "sft_tokens" / "dolly" / "current").rglob("loss_mask.bin"))
    before = mine.published("sft_packed")
    stored = np.memmap(path, np.uint8, "r+")
    stored[0] ^= 1
    stored.flush()
    events = told(mine, "sft_packed", force=True)
    assert labels(events, Accepted) == ["sft_tokens[dolly]", "sft_packed"]
    assert before is not None
    after = mine.built("sft_packed")
    assert after.manifest.content_hash == before.manifest.content_hash


def test_a_store_with_a_manifest_that_cannot_be_read_is_built_anew(mine: Workspace) -> None:
    (mine.stores / "sft_tokens" / "dolly" / "current" / "manifest.json").write_text("{", "utf-8")
    assert Statuses(mine).at(ASSETS["sft_tokens"], "dolly").state == "broken"
    build(mine, "sft_packed")
    assert state(mine, ASSETS["sft_packed"]) == "current"


def test_a_store_that_nobody_checked_is_checked_before_it_is_used(mine: Workspace) -> None:
    for path in (mine.stores / "sft_tokens" / "dolly" / "versions").glob("*.checks.json"):
        path.unlink()
    assert Statuses(mine).at(ASSETS["sft_tokens"], "dolly").state == "unchecked"
    events = told(mine, "sft_packed")
    assert labels(events, Started) == ["sft_tokens[dolly]", "sft_packed"]
    assert state(mine, ASSETS["sft_packed"]) == "current"


def test_what_the_system_says_is_told_with_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Iterator[Any]:
        raise OSError(28, "No space left on device")

    workspace = workspace_in(tmp_path, {"sft": SHIPPED["sft"]})
    monkeypatch.setattr("prep_assets.graph.raw.read_blocks", full)
    with pytest.raises(PrepAssetsError, match=r"sft_raw\[dolly\]: .*the disk is full: [\d,]+ bytes are free at .* Free some"):
        build(workspace, "sft_raw", partition="dolly")


def test_a_name_that_means_nothing_is_refused(made: Workspace) -> None:
    with pytest.raises(ConfigError, match=r"no asset 'sft_paked'; did you mean 'sft_packed'\?"):
        build(made, "sft_paked")
    with pytest.raises(ConfigError, match=r"sft_tokens has no partition 'doly'; did you mean 'dolly'\?"):
        build(made, "sft_tokens", partition="doly")
    with pytest.raises(ConfigError, match="sft_packed has no partitions"):
        build(made, "sft_packed", partition="dolly")


# -- options of one run -----------------------------------------------------------------------------------------------------------------


def test_options_of_one_run_make_a_draft(mine: Workspace) -> None:
    before = mine.published("sft_packed")
    [built] = build(mine.overriding("sft", {"packing": {"row_len": 128}}), "sft_packed")
    assert built.draft and built.overrides == ("packing.row_len",)
    assert mine.published("sft_packed") == before
    standing = Statuses(mine).at(ASSETS["sft_packed"], "")
    assert standing.state == "current" and standing.draft is not None
    assert standing.draft.directory == built.published.directory.resolve()


def test_a_draft_that_is_published_says_so_and_a_build_without_options_goes_back(mine: Workspace) -> None:
    before = mine.published("sft_packed")
    options = mine.overriding("sft", {"packing": {"row_len": 128}})
    build(options, "sft_packed")
    [built] = build(options, "sft_packed", publish=True)
    assert not built.draft
    standing = Statuses(mine).at(ASSETS["sft_packed"], "")
    assert (standing.state, standing.overrides, standing.draft) == ("current", ("packing.row_len",), None)
    [step] = plan(mine, stores_of(mine, ["sft_packed"]))
    assert step.why == "published with options of one run: packing.row_len"
    build(mine, "sft_packed")
    assert mine.published("sft_packed") == before


OTHER: dict[str, Any] = {
    "tokenizer_revision": "0" * 40,
    "template": "chatml",
    "template_options": {"enable_thinking": False},
    "mask": {"user": "train"},
    "preprocessing.max_seq_len": 77,
    "pad_vocab_to": 1 << 17,
    "rules": ["dolma"],
    "blend": {"seed": 7},
}
BESIDE_OTHERS = (
    *(
        *("domains", "reasoning_tags", "tokenizer", "image_", "audio_token", "video_token", "preprocessing.fim"),
        *("template_options", "training_template", "output.max_tokens_per_shard", "truncation_keeps", "split_sentences"),
    ),
    "packing.overlong",
    "packing.buckets",
    "packing.align",
)
"""Options that mean something only beside others, which the shipped configuration does not set, or that the test cannot change."""


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Every asset but exports, built. Read only."""
    folder = tmp_path_factory.mktemp("everything")
    families = with_others(with_groups(shipped(), folder / "groups"), folder)
    families["pretrain"]["blend"], families["sft"]["blend"] = {"window": 16}, {}
    workspace = workspace_in(folder, {**families, "eval": {"domains": {"bench": domain("notes.txt", "text")}, "policy": "report"}})
    return all_unchecked(workspace)


def leaves(model: Any, prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and hasattr(inner, "model_fields"):
            yield from leaves(inner, f"{prefix}{name}.")
        else:
            yield prefix + name


@pytest.mark.parametrize("name", [name for name, asset in EVERY.items() if asset.options and asset.stage != "quality"])
def test_an_asset_lists_the_options_that_its_recipe_reads_and_no_other(everything: Workspace, name: str) -> None:
    """They are its code version in Dagster: one that is missing leaves a stale store green, one too many marks a good one."""
    asset = assets_of(everything)[name]
    partition = asset.partitions(everything)[0]
    kind = FAMILIES[asset.family]
    plain, read = everything.family(kind), set[str]()
    recipe = asset.recipe(everything, partition)
    for path in leaves(kind):
        if path.split(".")[0] in (
            *("domains", "refresh", "exports", "on_missing", "engine", "tokenizer", "tokenizer_revision", "tokenizer_loader"),
            *("tokenizer_class",),
        ):
            continue
        for value in different(kind, plain, path):
            options: dict[str, Any] = {}
            *above, last = path.split(".")
            place = options
            for key in above:
                place = place.setdefault(key, {})
            place[last] = value
            try:
                changed = everything.overriding(asset.family, options)
                if asset.recipe(changed, partition) != recipe:
                    read.add(path)
            except PrepAssetsError:
                continue
    listed = {path for path in leaves(kind) if takes(asset, path)}
    assert read <= listed
    assert {path for path in listed - read if not path.startswith(BESIDE_OTHERS)} == set()


def different(kind: Any, family: Any, path: str) -> Iterator[Any]:
    """Values that an option may have and has not."""
    value, annotation = family, kind
    for key in path.split("."):
        value, annotation = getattr(value, key), annotation.model_fields[key].annotation
    words = [word for part in (annotation, *get_args(annotation)) if get_origin(part) is Literal for word in get_args(part)]
    if path in OTHER:
        yield OTHER[path]
    elif words:
        yield from (word for word in words if word != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value + 1, value + 7, value / 2 + 0.01, 0.25)
    else:
        yield from (5, 0.5, "x", {"gsm8k": 1.0}, {"gsm8k": 5}, {"x": 1}, ["x"], ["<a>", "</a>"])


def test_only_the_engine_publishes() -> None:
    """A second way by which a store became current without its checks is how one got there that failed them. `impact` has a store folder of its own,
    which is gone when it ends; the IO manager takes rows of a project's own assets, which have no checks of ours."""
    root = Path(__file__).resolve().parents[2] / "prep_assets"
    found = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if ".accept(" in path.read_text("utf-8")}
    assert found == {"engine/execute.py", "extensions/changes/changes.py", "extensions/dagster/io_manager.py"}
