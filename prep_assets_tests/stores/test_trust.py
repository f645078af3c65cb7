"""Stores whose files, links or manifests somebody changed: readers and `verify` refuse them, and a build makes them good again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from prep_assets import load
from prep_assets.cli.main import app
from prep_assets.engine.execute import build
from prep_assets.errors import StoreError
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.published import Place
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import build_all, copy_of, domain, failing, minimal, workspace_in

ASSET = "pretrain_tokens"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    domains = {"notes": domain("notes.txt", "text"), "docs": domain("docs.jsonl.zst", "text")}
    workspace = workspace_in(tmp_path_factory.mktemp("whole"), minimal("pretrain", domains))
    build_all(workspace, ["pretrain"])
    return workspace


@pytest.fixture
def workspace(whole: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    copy = copy_of(whole, tmp_path / "copy")
    monkeypatch.setenv("PREP_ASSETS_CONFIG_DIR", str(copy.configs))
    monkeypatch.setenv("PREP_ASSETS_STORE_DIR", str(copy.stores))
    return copy


def prep_assets(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, words)
    return result.exit_code, " ".join(result.output.split())


def first_tokens(workspace: Workspace, partition: str) -> list[int]:
    store = load(workspace.stores / ASSET / partition, verify="full")
    return [int(token) for token in store.fetch(0, 20, "sequence")]


def is_sound_again(workspace: Workspace, whole: Workspace) -> None:
    """A build makes of the store what it was."""
    code, output = prep_assets("build", ASSET, "-p", "notes")
    assert code == 0, output
    assert first_tokens(workspace, "notes") == first_tokens(whole, "notes")
    assert prep_assets("verify", ASSET, "-p", "notes")[0] == 0
    published = workspace.built(ASSET, "notes")
    assert published.manifest.counts == whole.built(ASSET, "notes").manifest.counts


# Manifests.

FORGED: dict[str, dict[str, Any]] = {
    "a row that was never read": {"read": 1},
    "a row that was refused": {"refused": {"schema/not_text": 1}, "read": 1},
    "a row less": {"kept": -1, "read": -1},
}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("what", FORGED)
def test_a_store_with_wrong_counts_in_its_manifest_is_made_good(workspace: Workspace, whole: Workspace, what: str, force: bool) -> None:
    published = workspace.built(ASSET, "notes")
    counts = dict(published.manifest.counts)
    for name, change in FORGED[what].items():
        counts[name] = change if isinstance(change, Mapping) else counts[name] + change
    replace(published.manifest, counts=counts).write(published.directory)
    code, output = prep_assets("verify", ASSET, "-p", "notes")
    assert code == 1 and "accounting" in output
    if force:
        build(workspace, ASSET, partition="notes", force=True)
    is_sound_again(workspace, whole)


def test_a_forced_build_replaces_figures_that_no_check_looks_at(workspace: Workspace, whole: Workspace) -> None:
    published = workspace.built(ASSET, "notes")
    replace(published.manifest, metrics={"tokens_per_record": -1.0}, checks=()).write(published.directory)
    [built] = build(workspace, ASSET, partition="notes", force=True)
    manifest = whole.built(ASSET, "notes").manifest
    assert (built.published.manifest.metrics, built.published.manifest.checks) == (manifest.metrics, manifest.checks)


# Folders without a manifest, and links.


def inside(workspace: Workspace) -> Path:
    """A folder in the current version, as a trainer may name it."""
    return next(path for path in (workspace.stores / ASSET / "notes" / "current").iterdir() if path.is_dir())


@pytest.mark.parametrize("verify", ["lazy", "full", "off"])
def test_nothing_inside_a_version_is_read_without_its_manifest(workspace: Workspace, whole: Workspace, verify: Any) -> None:
    stream, store = inside(workspace), workspace.stores / ASSET / "notes"
    file = next(path for path in (store / "current").iterdir() if path.suffix == ".h5")
    (store / "current" / "manifest.json").unlink()
    for path in (stream, file, file.resolve(), store):
        with pytest.raises(StoreError, match=r"has no manifest\.json"):
            load(path, verify=verify).fetch(0, 5, "sequence")
    assert prep_assets("verify", ASSET, "-p", "notes")[0] == 1
    is_sound_again(workspace, whole)


def test_a_folder_called_versions_that_is_not_ours_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "versions" / "1.2"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text('{"text": "one"}\n')
    assert load(folder, verify="full").num_records == 1


def to_a_version(workspace: Workspace) -> None:
    """`current` leads into another domain's versions."""
    pointer = workspace.stores / ASSET / "notes" / "current"
    pointer.unlink()
    pointer.symlink_to(Path("..") / "docs" / (workspace.stores / ASSET / "docs" / "current").readlink())


def by_a_link(workspace: Workspace) -> None:
    """A version is a link into another domain's versions."""
    version = workspace.built(ASSET, "notes").directory.resolve()
    shutil.rmtree(version)
    version.symlink_to(workspace.built(ASSET, "docs").directory.resolve())


def by_a_file(workspace: Workspace) -> None:
    """`current` is the file of file systems without links."""
    pointer = workspace.stores / ASSET / "notes" / "current"
    pointer.unlink()
    pointer.write_text(f"../docs/{(workspace.stores / ASSET / 'docs' / 'current').readlink()}\n")


def to_a_copy(workspace: Workspace) -> None:
    """`current` leads to a copy outside of the stores."""
    store, copy = workspace.stores / ASSET / "notes", workspace.stores.parent / "elsewhere"
    version = copy / "versions" / (store / "current").resolve().name
    shutil.copytree(store / "current", version)
    (store / "current").unlink()
    (store / "current").symlink_to(version)


@pytest.mark.parametrize("lead", [to_a_version, by_a_link, by_a_file, to_a_copy])
def test_a_pointer_that_leads_out_of_its_store_is_refused(
    workspace: Workspace, whole: Workspace, lead: Callable[[Workspace], None]
) -> None:
    lead(workspace)
    store = workspace.stores / ASSET / "notes"
    paths = [
        store,
        *(
            [path for path in (store / "current").iterdir() if path.is_dir() or path.suffix == ".h5"]
            if (store / "current").is_dir()
            else []
        ),
    ]
    for path in paths:
        with pytest.raises(StoreError, match=r"leads (out of|to)"):
            load(path).fetch(0, 5, "sequence")
    for command in ("verify", "path", "inspect"):
        code, output = prep_assets(command, ASSET, "-p", "notes")
        assert code == 1 and "leads to" in output, output
    code, output = prep_assets("status")
    assert code == 1 and "broken" in output, output
    is_sound_again(workspace, whole)


def linked_file(version: Path, outside: Path) -> str:
    file = next(path for path in version.iterdir() if path.suffix == ".h5")
    file.rename(outside / file.name)
    file.symlink_to(outside / file.name)
    return f"{file.name}: a link to"


def linked_folder(version: Path, outside: Path) -> str:
    folder = next(path for path in version.iterdir() if path.is_dir())
    folder.rename(outside / folder.name)
    folder.symlink_to(outside / folder.name)
    return f"{folder.name}: a link to"


def dangling_link(version: Path, outside: Path) -> str:
    (version / "gone").symlink_to(outside / "gone")
    return "gone: a link to"


def link_to_a_folder(version: Path, outside: Path) -> str:
    (version / "more").symlink_to(outside)
    return "more: a link to"


def empty_folder(version: Path, outside: Path) -> str:
    (version / "one" / "two").mkdir(parents=True)
    return "one/two: an empty folder, not in the manifest"


def unknown_file(version: Path, outside: Path) -> str:
    (version / "one").mkdir()
    (version / "one" / "more.txt").write_text("more")
    return "one/more.txt: not in the manifest"


@pytest.mark.parametrize("change", [linked_file, linked_folder, dangling_link, link_to_a_folder, empty_folder, unknown_file])
def test_what_the_manifest_does_not_list_fails(
    workspace: Workspace, whole: Workspace, tmp_path: Path, change: Callable[[Path, Path], str]
) -> None:
    published, outside = workspace.built(ASSET, "notes"), tmp_path / "outside"
    outside.mkdir()
    fault = change(published.directory, outside)
    assert failing(workspace, published)[0] == "file_hashes"
    code, output = prep_assets("verify", ASSET, "-p", "notes")
    assert code == 1 and fault in output
    with pytest.raises(StoreError, match=fault):
        load(workspace.stores / ASSET / "notes", verify="full")
    if change in (linked_file, linked_folder):
        with pytest.raises(StoreError, match=r"a link to|leads out of"):
            load(workspace.stores / ASSET / "notes")
    is_sound_again(workspace, whole)


def test_two_manifests_of_the_same_files_are_two_stores(place: Place, publish: Callable[..., Published]) -> None:
    published = publish()
    wrong = replace(published.manifest, counts={**published.manifest.counts, "kept": 1})
    wrong.write(published.directory)
    again = publish(again=True)
    assert again.version == f"{published.version}-2" and again.manifest.counts["kept"] == 2
    assert place.current() == again and Manifest.read(published.directory) == wrong
