"""What is missing, stale or current, and what a change makes stale: everything below it and nothing beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.engine import state
from prep_assets.errors import ConfigError
from prep_assets.graph.graph import ASSETS, asset_named
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import (
    CONFIGS,
    SHIPPED,
    TOKENIZER,
    build,
    build_all,
    domain,
    minimal,
    out_of_date,
    shipped,
    workspace_in,
)

SFT = ("gsm8k", "alpaca", "dolly", "chats")
EVERY_SFT_TOKENS = {f"sft_tokens[{name}]" for name in SFT}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SFT and pretraining, built, with sources, tokenizer and template in the same folder."""
    folder = tmp_path_factory.mktemp("original")
    shutil.copytree(CONFIGS / "samples", folder / "samples")
    shutil.copytree(TOKENIZER, folder / "tokenizer")
    families: dict[str, Any] = {name: shipped()[name] for name in ("pretrain", "sft")}
    for options in families.values():
        options["tokenizer"] = "../tokenizer"
        for each in options["domains"].values():
            each["files"] = [f"../samples/{Path(file).name}" for file in each["files"]]
    families["sft"]["template"] = "mine.jinja"
    workspace = workspace_in(folder, families)
    (workspace.configs / "mine.jinja").write_text(
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    )
    build_all(workspace, ("pretrain", "sft"))
    return folder


@pytest.fixture
def local(original: Path, tmp_path: Path) -> Workspace:
    """A copy of it, to be changed."""
    shutil.copytree(original, tmp_path / "copy", symlinks=True)
    return Workspace(tmp_path / "copy" / "configs", tmp_path / "copy" / "stores")


def reopened(workspace: Workspace) -> Workspace:
    return Workspace(workspace.configs, workspace.stores)


def states(workspace: Workspace) -> dict[str, str]:
    fresh = reopened(workspace)
    chosen = [ASSETS[name] for name in ("pretrain_raw", "pretrain_tokens", "sft_raw", "sft_template", "sft_tokens", "sft_packed")]
    return {f"{a.name}[{p}]" if p else a.name: state(fresh, a, p) for a in chosen for p in a.partitions(fresh)}


def stale(workspace: Workspace) -> set[str]:
    found = states(workspace)
    assert set(found.values()) <= {"stale", "current"}
    return {name for name, value in found.items() if value == "stale"}


def reconfigure(workspace: Workspace, family: str, **changes: Any) -> None:
    path = workspace.configs / f"{family}.yaml"
    options = yaml.safe_load(path.read_text("utf-8"))
    for key, value in changes.items():
        options[key] = {**options.get(key, {}), **value} if isinstance(value, dict) else value
    path.write_text(yaml.safe_dump(options, sort_keys=False), "utf-8")


def test_everything_is_missing_then_current(tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path, {name: shipped()[name] for name in ("pretrain", "sft")})
    assert set(states(workspace).values()) == {"missing"}
    build_all(workspace, ("pretrain", "sft"))
    assert set(states(workspace).values()) == {"current"}


def test_what_has_to_be_built_first_comes_first(tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path, {"sft": SHIPPED["sft"]})
    needed = [(above.name, partition) for above, partition, _ in out_of_date(workspace, ASSETS["sft_packed"])]
    assert sorted(needed) == sorted([("sft_raw", name) for name in SFT] + [("sft_tokens", name) for name in SFT])
    assert all(needed.index(("sft_raw", name)) < needed.index(("sft_tokens", name)) for name in SFT)
    for asset, partition in needed:
        build(workspace, asset, partition)
    assert out_of_date(workspace, ASSETS["sft_packed"]) == []
    assert state(workspace, ASSETS["sft_packed"], "") == "missing"


@pytest.mark.parametrize(("first", "second"), [({"txt": "line"}, {"txt": "file"}), ({"format": "txt"}, {"format": "jsonl"})])
def test_how_files_are_read_is_part_of_what_is_made_from_them(tmp_path: Path, first: dict[str, str], second: dict[str, str]) -> None:
    """Also where the same number of rows comes out of the same bytes, so that the pinned sources are equal."""
    source = tmp_path / ("dump.txt" if "txt" in first else "dump.data")
    source.write_text('{"text": "one document"}\n')
    found = []
    for how in (first, second):
        workspace = workspace_in(tmp_path, minimal("pretrain", {"d": domain(source, "text", **how)}, test_fraction=0.0))
        build(workspace, "pretrain_raw", "d")
        assert state(workspace, ASSETS["pretrain_tokens"], "d") in ("missing", "stale")
        store = build(workspace, "pretrain_tokens", "d")
        found.append(store.manifest.content_hash)
    assert found[0] != found[1]


def test_one_byte_of_a_source_makes_its_domain_and_the_mixture_stale(local: Workspace) -> None:
    source = local.configs.parent / "samples" / "chats.jsonl"
    data = source.read_bytes()
    source.write_bytes(data.replace(b"Hello!", b"Hallo!", 1))
    assert stale(local) == {"sft_raw[chats]", "sft_tokens[chats]", "sft_packed"}
    names = [(above.name, partition) for above, partition, _ in out_of_date(reopened(local), ASSETS["sft_packed"])]
    assert names == [("sft_raw", "chats"), ("sft_tokens", "chats")]
    source.write_bytes(data)
    assert stale(local) == set(), "the old bytes make the old stores current again"


def test_rebuilding_what_is_stale_makes_everything_current(local: Workspace) -> None:
    source = local.configs.parent / "samples" / "notes.txt"
    source.write_bytes(source.read_bytes() + b"One more note.\n")
    assert stale(local) == {"pretrain_raw[notes]", "pretrain_tokens[notes]"}
    build(reopened(local), "pretrain_raw", "notes")
    assert stale(local) == {"pretrain_tokens[notes]"}
    build(reopened(local), "pretrain_tokens", "notes")
    assert stale(local) == set()


def touched(workspace: Workspace) -> None:
    os.utime(workspace.configs.parent / "samples" / "chats.jsonl", (1, 1))


def another_template(workspace: Workspace) -> None:
    path = workspace.configs / "mine.jinja"
    path.write_text(path.read_text() + "\n")


def turned_round(workspace: Workspace) -> None:
    path = workspace.configs / "sft.yaml"
    options = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**options, "domains": dict(reversed(options["domains"].items()))}, sort_keys=False))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (touched, set()),
        (turned_round, set()),
        (another_template, EVERY_SFT_TOKENS | {"sft_template"}),
        ({"packing": {"row_len": 256}}, {"sft_packed"}),
        ({"packing": {"seed": 1}}, {"sft_packed"}),
        ({"output": {"storage_format": "bin"}}, {"sft_packed"}),
        ({"mask": {"user": "train"}}, EVERY_SFT_TOKENS),
        ({"train_on_eos": "none"}, EVERY_SFT_TOKENS),
        ({"preprocessing": {"max_seq_len": 200}}, EVERY_SFT_TOKENS),
        ({"template": "plain"}, EVERY_SFT_TOKENS | {"sft_template"}),
        (
            {"domains": {"dolly": {**SHIPPED["sft"]["domains"]["dolly"], "files": ["../samples/dolly.jsonl"], "max_items": 5}}},
            {"sft_tokens[dolly]"},
        ),
        ({"refresh": {"every": "0 4 * * *"}}, set()),
        ({"on_missing": "fail"}, set()),
    ],
)
def test_a_change_makes_stale_what_depends_on_it(
    local: Workspace, change: Callable[[Workspace], None] | dict[str, Any], expected: set[str]
) -> None:
    if isinstance(change, dict):
        reconfigure(local, "sft", **change)
    else:
        change(local)
    assert stale(local) == expected | ({"sft_packed"} if expected else set())


def test_a_domain_that_is_added_or_removed_changes_the_mixture_alone(local: Workspace) -> None:
    options = yaml.safe_load((local.configs / "sft.yaml").read_text())
    removed = options["domains"].pop("dolly")
    (local.configs / "sft.yaml").write_text(yaml.safe_dump(options, sort_keys=False))
    assert stale(local) == {"sft_packed"}
    options["domains"] = {**options["domains"], "dolly": removed, "more": domain("chats.jsonl", "messages")}
    (local.configs / "sft.yaml").write_text(yaml.safe_dump(options, sort_keys=False))
    found = states(local)
    assert {name for name, value in found.items() if value != "current"} == {"sft_raw[more]", "sft_tokens[more]", "sft_packed"}
    assert found["sft_packed"] == "stale" and found["sft_raw[more]"] == found["sft_tokens[more]"] == "missing"


def test_another_tokenizer_makes_all_tokens_stale_even_in_a_process_that_has_read_the_old_one(local: Workspace) -> None:
    path = local.configs.parent / "tokenizer" / "tokenizer_config.json"
    assert stale(local) == set()
    path.write_text(path.read_text().replace('"pad_token": "<|pad|>"', '"pad_token": "<|endoftext|>"'))
    everything = {"pretrain_tokens[docs]", "pretrain_tokens[notes]", "sft_packed", "sft_template"} | EVERY_SFT_TOKENS
    assert stale(local) == everything


def test_a_run_with_other_options_builds_another_store_that_counts_as_current(local: Workspace) -> None:
    plain = build(reopened(local), "sft_packed")
    overridden = build(reopened(local).overriding("sft", {"packing": {"row_len": 300}}), "sft_packed")
    assert overridden.directory != plain.directory
    assert overridden.manifest.recipe["packing"]["row_len"] == 300
    assert overridden.manifest.config_key == plain.manifest.build_key != overridden.manifest.build_key
    assert stale(local) == set()
    current = reopened(local).built("sft_packed")
    assert current.directory == overridden.directory
    reconfigure(local, "sft", packing={"row_len": 128})
    assert stale(local) == {"sft_packed"}, "the file asks for something else than when it was overridden"


def test_options_of_a_run_are_checked_like_the_file(local: Workspace) -> None:
    with pytest.raises(ConfigError, match=r"(?s)sft\.yaml with this run's options.*packing\.rowlen: unknown key; did you mean 'row_len'"):
        build(reopened(local).overriding("sft", {"packing": {"rowlen": 300}}), "sft_packed")


def test_a_removed_cache_of_hashes_or_a_broken_one_changes_nothing(local: Workspace) -> None:
    for cache in (local.stores / ".hashes").iterdir():
        cache.write_text("[{")
    assert stale(local) == set()
    shutil.rmtree(local.stores / ".hashes")
    assert stale(local) == set()


def test_an_asset_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match=r"no asset 'sft_pack'; did you mean 'sft_packed'\? There are: pretrain_raw"):
        asset_named("sft_pack")
