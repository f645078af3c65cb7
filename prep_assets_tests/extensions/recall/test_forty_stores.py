"""Forty stores, some of which a bug of one version window wrote: recalled is what changes in a full rebuild, and nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace as altered
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from packaging.version import Version
from typer.testing import CliRunner

from prep_assets import load
from prep_assets.cli.main import app
from prep_assets.engine import execute
from prep_assets.engine.execute import build
from prep_assets.engine.status import places_in
from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.extensions.changes.changes import diff
from prep_assets.extensions.keep.versions import read_versions
from prep_assets.extensions.recall.closure import Rules
from prep_assets.extensions.recall.command import lift, make, planned, search
from prep_assets.extensions.recall.record import recalls, settled
from prep_assets.extensions.training.blends import BlendDataset
from prep_assets.extensions.training.items import PackedDataset
from prep_assets.graph.graph import assets_of
from prep_assets.pipeline import asset as assets
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.manifest import label_of
from prep_assets.stores.published import Place
from prep_assets.text.ids import Flat
from prep_assets_tests.graph.workspaces import TOKENIZER, domain, jsonl, workspace_in

PRETRAIN = {"a": "0.20.3", "b": "0.21.0rc1", "c": "0.21.0", "d": "0.21.4", "e": "0.22.0rc1", "f": "0.22.0", "g": "0.21.9", "h": "0.23.1"}
SFT = {"p": "0.21.0", "q": "0.22.0", "r": "0.21.1"}
PREFERENCE = {"x": "0.21.2", "y": "0.22.1"}
VERSIONS = {**PRETRAIN, **SFT, **PREFERENCE}
WINDOW = "tokenizers>=0.21.0rc1 and tokenizers<0.22.0rc1 and engine=auto"
"""Other words for what `in_window` says."""


def in_window(version: str, engine: str) -> bool:
    return Version("0.21.0rc1") <= Version(version) < Version("0.22.0rc1") and engine == "auto"


def words(seed: str, count: int = 8) -> Iterator[str]:
    return (f"Document {n} of {seed} says {'a good deal ' * (n % 3)}about {seed * 3}." for n in range(count))


def forty(folder: Path) -> Workspace:
    """8 domains pinned, tokenized and exported, 3 of SFT by the reference engine, packed, 2 of pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {name: jsonl(folder / f"{name}.jsonl", ({"text": text} for text in words(name))) for name in PRETRAIN}
    chats = {
        name: jsonl(folder / f"{name}.jsonl", ({"instruction": text, "input": "", "output": text[9:]} for text in words(name)))
        for name in SFT
    }
    pairs = {
        name: jsonl(folder / f"{name}.jsonl", ({"prompt": text, "chosen": f"{text[9:]} Yes.", "rejected": "No."} for text in words(name)))
        for name in PREFERENCE
    }
    families: dict[str, dict[str, Any]] = {
        "pretrain": {
            "domains": {name: domain(file, "text") for name, file in texts.items()},
            "exports": {"plain": {"from": "pretrain_tokens", "to": "nanotron"}},
        },
        "sft": {
            "engine": "reference",
            "domains": {name: domain(file, "alpaca") for name, file in chats.items()},
            "packing": {"strategy": "ffd", "row_len": 256},
        },
        "preference": {"domains": {name: domain(file, "preference") for name, file in pairs.items()}},
    }
    return workspace_in(folder, {family: {"tokenizer": TOKENIZER, **options} for family, options in families.items()})


@contextmanager
def tokenizers(versions: dict[str, str], *, bug: bool) -> Iterator[None]:
    """Each domain is tokenized with its version of `tokenizers`; with the bug, those in the window merge no pieces. Checks, which would see it, are off."""
    recipe, engines, current = Asset.recipe, Workspace.engines, [""]

    def of_domain(self: Asset, workspace: Workspace, partition: str) -> dict[str, Any]:
        current[0] = versions.get(partition, "0.23.1")
        return recipe(self, workspace, partition)

    class Wrong:
        def __init__(self, engine: Any) -> None:
            self._engine = engine

        def encode(self, texts: Any) -> Flat:
            return Flat.of([self._engine.encode(list(text)).ids for text in texts])

        def __getattr__(self, name: str) -> Any:
            return getattr(self._engine, name)

    def perhaps_wrong(self: Workspace, family: Any) -> Any:
        right = engines(self, family)
        wrong = bug and in_window(current[0], family.engine)
        return altered(right, first=Wrong(right.first), rest=Wrong(right.rest)) if wrong else right

    def unseen(*of: Any) -> Iterator[tuple[str, Verdict]]:
        return ((check.name, Verdict(True, "not looked at", {})) for check in of[-1])

    with (
        patch.object(Asset, "recipe", of_domain),
        patch.object(Workspace, "engines", perhaps_wrong),
        patch.object(assets, "installed_version", lambda package: current[0]),
        patch.object(execute, "verdicts_of", unseen),
    ):
        yield


def build_all(workspace: Workspace) -> dict[str, str]:
    """Build every store; label → content."""
    build(workspace, *assets_of(workspace))
    return contents(workspace)


def contents(workspace: Workspace) -> dict[str, str]:
    places = [workspace.place(asset.name, name) for asset in assets_of(workspace).values() for name in asset.partitions(workspace)]
    return {place.label: place.backend.published(place.pointers.current).manifest.content_hash for place in places}


def test_recalled_is_what_a_full_rebuild_changes(tmp_path: Path) -> None:
    workspace, root = forty(tmp_path), tmp_path / "stores"
    with tokenizers(VERSIONS, bug=True):
        wrong = build_all(workspace)
    with tokenizers(VERSIONS, bug=False):
        right = build_all(Workspace(workspace.configs, tmp_path / "rebuilt"))
    changed = {label for label in wrong if wrong[label] != right[label]}
    assert (len(wrong), len(changed)) == (40, 10)
    assert {"pretrain_tokens[b]", "preference_tokens"} < changed < {*wrong}

    # recipes of now say all that they could say: nothing is unclear for any name that any of them has
    versions = read_versions(root)
    names, rules = {name for version in versions for name in version.facts}, Rules(versions)
    assert len(names) > 60
    assert [(name, version.key) for name in names for version in versions if rules.holds(f"{name}=x", version) is None] == []

    found, _ = search(root, planned(root, WINDOW))
    assert ({each.store for each in found.found}, {each.state for each in found.found}) == (changed, {"recalled"})
    assert found.versions == 40
    assert recalls(root) == ()  # nothing was written
    made = make(root, WINDOW, "pieces are not merged")
    assert {label_of(each.asset, each.partition) for each in made.found} == changed

    # killed before any pointer has moved: nobody reads any of them all the same, and everything else as before
    assert readable(workspace) == {*wrong} - changed
    done = list(settled(root, places_in(root), write=True))
    assert {label for label, _, _ in done} == changed
    assert {place.label for place in places_in(root) if place.pointers.damaged} == changed
    assert readable(workspace) == {*wrong} - changed
    assert list(settled(root, places_in(root), write=True)) == []

    # the same version would make the same again
    with tokenizers(VERSIONS, bug=True), pytest.raises(PrepAssetsError, match="what this makes is recalled") as refused:
        build_all(workspace)
    assert str(refused.value).count("recall 1, ") == 5  # all else that changed waits for these
    assert readable(workspace) == {*wrong} - changed

    # without the bug, and with another version, the bytes are right, and what a domain of none of these made is as it was
    later = {name: "0.24.0" if in_window(version, "auto") else version for name, version in VERSIONS.items()}
    with tokenizers(later, bug=True):
        assert build_all(workspace) == right
    assert readable(workspace) == {*wrong}
    assert list(settled(root, places_in(root), write=True)) == []
    lift(root, 1)
    assert list(settled(root, places_in(root), write=True)) == []
    assert contents(workspace) == right


def readable(workspace: Workspace) -> set[str]:
    """Labels of current stores that somebody may read."""
    found = set[str]()
    for place in places_in(workspace.stores):
        try:
            found |= {place.label} if place.current() else set()
        except StoreError as error:
            assert "is recalled, so nothing reads it: recall 1, " in str(error), error
    return found


def test_a_window_without_effect_is_recalled_and_says_so_after_the_rebuild(tmp_path: Path) -> None:
    """What was made from it stands on equal bytes, and is put back without being built again."""
    source = jsonl(tmp_path / "rows.jsonl", ({"text": text} for text in words("a")))
    options = {
        "tokenizer": TOKENIZER,
        "domains": {"a": domain(source, "text")},
        "exports": {"plain": {"from": "pretrain_tokens", "to": "nanotron"}},
    }
    workspace, root = workspace_in(tmp_path, {"pretrain": options}), tmp_path / "stores"
    with tokenizers({"a": "0.21.0"}, bug=False):
        before = build_all(workspace)
    make(root, WINDOW)
    assert [what for _, what, _ in settled(root, places_in(root), write=True)] == [
        f"set aside: recall 1, {WINDOW} (made from pretrain_tokens[a] {before['pretrain_tokens[a]'][:12]})",
        f"set aside: recall 1, {WINDOW} (tokenizer.engine=auto, tokenizer.tokenizers=0.21.0)",
    ]
    export = Place(root, "pretrain_export_plain", "a")
    old = export.pointers.damaged
    with tokenizers({"a": "0.24.0"}, bug=False):
        build(workspace, "pretrain_tokens")
        assert list(settled(root, places_in(root), write=False)) == [(export.label, "current again", True)]
        assert list(settled(root, places_in(root), write=True)) == [(export.label, "current again", False)]
        assert build_all(workspace) == before
    assert export.pointers.current == old
    [same] = search(root, planned(root, WINDOW))[0].found
    assert (same.store, same.equal) == ("pretrain_tokens[a]", workspace.place("pretrain_tokens", "a").pointers.current)


def test_prune_keeps_the_version_that_shows_that_recalled_bytes_are_sound(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "rows.jsonl", ({"text": text} for text in words("a")))
    workspace = workspace_in(tmp_path, {"pretrain": {"tokenizer": TOKENIZER, "domains": {"a": domain(source, "text")}}})
    place, kept = workspace.place("pretrain_tokens", "a"), ""
    for version in ("0.24.0", "0.21.0"):
        kept = place.pointers.current
        with tokenizers({"a": version}, bug=False):
            build(workspace, "pretrain_tokens")
    make(workspace.stores, WINDOW)
    assert list(place.proofs()) == [kept]
    env = {"PREP_ASSETS_STORE_DIR": str(workspace.stores), "PREP_ASSETS_CONFIG_DIR": str(workspace.configs), "COLUMNS": "400"}
    (place.backend.versions / ".writing-killed").mkdir()  # something to prune
    pruned = CliRunner().invoke(app, ["prune", "--yes"], env=env)
    assert f"pretrain_tokens[a]: {kept} stays: it alone shows that equal bytes are sound, which is why recall 1, {WINDOW}" in pruned.stdout
    assert "1 folder, " in pruned.stdout
    assert kept in place.backend.names()


def test_trainers_and_diff_ask_the_record_whatever_version_they_are_given(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "rows.jsonl", ({"instruction": text, "input": "", "output": text[9:]} for text in words("p")))
    sft = {"tokenizer": TOKENIZER, "domains": {"p": domain(source, "alpaca")}}
    for length in (256, 512):
        workspace = workspace_in(tmp_path, {"sft": {**sft, "packing": {"strategy": "ffd", "row_len": length}}})
        build(workspace, "sft_packed")
    place = workspace.place("sft_packed")
    [old] = place.unused()
    path = place.backend.versions / old
    assert len(PackedDataset(path))
    assert diff(workspace, "sft_packed").before.version == diff(workspace, "sft_packed", old).before.version == old
    make(workspace.stores, "row_len=256")
    for read in (
        lambda: PackedDataset(path),
        lambda: load(path),
        lambda: load(path, verify="off"),
        lambda: diff(workspace, "sft_packed"),
        lambda: diff(workspace, "sft_packed", old),
    ):
        with pytest.raises(StoreError, match=r"is recalled, so nothing reads it: recall 1, row_len=256 \(packing\.row_len=256\)"):
            read()
    assert len(PackedDataset(place.directory))


def test_a_blend_of_recalled_domains_is_not_read_though_its_pointer_stays(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "rows.jsonl", ({"text": text * 9} for text in words("a")))
    workspace = workspace_in(
        tmp_path, {"pretrain": {"tokenizer": TOKENIZER, "domains": {"a": domain(source, "text")}, "blend": {"window": 16}}}
    )
    build(workspace, "pretrain_blend")
    place = workspace.place("pretrain_blend")
    data = BlendDataset(place.directory)
    make(workspace.stores, "asset=pretrain_tokens")
    for read in (
        lambda: BlendDataset(place.directory),
        lambda: BlendDataset(place.directory / "current"),
        lambda: pickle.loads(pickle.dumps(data)),
    ):
        with pytest.raises(StoreError, match=r"pretrain_blend.* is recalled, so nothing reads it: .* \(made from pretrain_tokens\[a\] "):
            read()
    assert data[0]  # opened before
