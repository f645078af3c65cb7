"""Exports as assets, and what beside the data they hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer, GenerationConfig

from prep_assets import export
from prep_assets.config.models import FAMILIES
from prep_assets.engine import state
from prep_assets.errors import CheckFailed, ConfigError, PrepAssetsError, StoreError
from prep_assets.extensions.exports.assets import asset_name, exporting, family_exports
from prep_assets.extensions.exports.compared import compare
from prep_assets.graph.graph import EVERY, asset_named, assets_of, run_check
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.published import open_published
from prep_assets.stores.table import PACKED, PAIRS, TOKENS, Pieces, Ragged, Table, open_stream, open_table, packed_table
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.exported import EXPORTS, NAMES, build_export, build_exports, entry
from prep_assets_tests.graph.workspaces import (
    SHIPPED_ASSETS,
    TOKENIZER,
    build,
    build_all,
    carried_out,
    checks_of,
    domain,
    jsonl,
    minimal,
    out_of_date,
    resealed,
    shipped,
    tree,
    workspace_in,
)
from prep_assets_tests.graph.workspaces import make as make_store
from prep_assets_tests.stored import packed_rows

# Exports as assets: configured, built, read back, rebuilt.


@pytest.fixture
def mine(exported: Workspace, tmp_path: Path) -> Workspace:
    """A copy for one test to change."""
    shutil.copytree(exported.configs.parent, tmp_path / "mine", symlinks=True)
    return Workspace(tmp_path / "mine" / "configs", tmp_path / "mine" / "stores")


def stores_of(workspace: Workspace, name: str) -> list[Published]:
    return [open_published(workspace.stores, name, each) for each in asset_named(name, workspace).partitions(workspace)]


def readable(workspace: Workspace, published: Published) -> Verdict:
    check = next(each for each in checks_of(published.manifest.asset, workspace) if each.name == "readable")
    return carried_out(run_check(check, workspace, published))


def configure(workspace: Workspace, family: str, found: Mapping[str, Any]) -> Workspace:
    return workspace_in(workspace.configs.parent, {family: {**shipped()[family], "exports": dict(found)}})


# -- the graph --------------------------------------------------------------------------------------------------------------------------


def test_without_exports_the_graph_is_the_fixed_one(tmp_path: Path) -> None:
    assert list(assets_of(workspace_in(tmp_path, shipped()))) == list(SHIPPED_ASSETS)


def test_exports_stand_below_their_sources(exported: Workspace) -> None:
    found = assets_of(exported)
    assert list(found) == [*SHIPPED_ASSETS, *NAMES]
    for family, configured in EXPORTS.items():
        for name, each in configured.items():
            asset = found[f"{family}_export_{name}"]
            assert (asset.family, asset.upstream(exported)) == (family, (each["from"],))
            assert asset.partitions(exported) == SHIPPED_ASSETS[each["from"]].partitions(exported)


def test_a_family_without_a_file_has_no_exports(mine: Workspace) -> None:
    (mine.configs / "sft.yaml").unlink()
    assert not [name for name in assets_of(Workspace(mine.configs, mine.stores)) if name.startswith("sft_export")]


def test_a_mistyped_export_names_the_nearest(exported: Workspace) -> None:
    with pytest.raises(ConfigError, match="did you mean 'sft_export_trl'"):
        asset_named("sft_export_tlr", exported)


# -- the stores -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_payload_is_what_export_writes_and_nothing_else(exported: Workspace, name: str, tmp_path: Path) -> None:
    published = stores_of(exported, name)[0]
    recipe = published.manifest.recipe
    source = open_published(exported.stores, recipe["from"], published.manifest.partition)
    each = next(
        each
        for each in [each for family in FAMILIES if exported.has(family) for each in family_exports(exported, family)]
        if asset_name(each) == name
    )
    export(source, recipe["format"], tmp_path / "out", stream=each.stem(published.manifest.partition), **recipe["options"])
    found = tree(published.directory)
    assert found.pop("manifest.json")
    # which is written by the tokenizer and the template, see `test_generation_config`
    found.pop("generation_config.json", None)
    assert found == tree(tmp_path / "out")


def test_padding_and_vocabulary_are_the_tokenizers(exported: Workspace) -> None:
    about = json.loads((Path(__file__).resolve().parents[2] / "configs/tokenizer/tokenizer.json").read_text("utf-8"))
    size = len(about["model"]["vocab"]) + len({each["id"] for each in about["added_tokens"]} - set(about["model"]["vocab"].values()))
    assert stores_of(exported, "sft_export_olmo")[0].manifest.recipe["options"]["vocab_size"] == size
    row = open_stream(open_published(exported.stores, "sft_packed").directory, "sft_packed")
    full = int(row.pieces.fields["length"].sum())
    if full < len(row) * row.width:
        assert stores_of(exported, "sft_export_tlfs")[0].manifest.recipe["options"]["pad_id"] == packed_rows(row)[len(row) - 1][-1]


def test_a_second_build_is_equal_to_the_byte(exported: Workspace, built_h5: Workspace, tmp_path: Path) -> None:
    """Its manifest too. The payload of every format is written twice by `test_the_payload_is_what_export_writes_and_nothing_else`."""
    names = ["pretrain_export_text", "sft_export_trl", "preference_export_dpo", "rl_export_verl"]
    other = build_exports(built_h5, tmp_path / "other", names)
    for name in names:
        assert tree(other.stores / name) == tree(exported.stores / name), name


def test_a_second_build_is_reused(exported: Workspace) -> None:
    assert [each.reused for each in build_export(exported, "sft_export_trl")] == [True]


def test_another_option_is_another_build(mine: Workspace) -> None:
    changed = configure(mine, "sft", {**EXPORTS["sft"], "trl": entry("sft_packed", "hf_arrow", layout="axolotl")})
    assert state(changed, asset_named("sft_export_trl", changed), "") == "stale"
    assert state(changed, asset_named("sft_export_tlfs", changed), "") == "current"
    before = stores_of(mine, "sft_export_trl")[0].manifest
    after = build_export(changed, "sft_export_trl")[0].manifest
    assert before.content_hash != after.content_hash and before.build_key != after.build_key


def test_a_changed_source_makes_it_stale_and_its_check_says_so(mine: Workspace) -> None:
    path = mine.configs / "sft.yaml"
    path.write_text(path.read_text("utf-8").replace("row_len: 512", "row_len: 256"), "utf-8")
    changed = Workspace(mine.configs, mine.stores)
    asset = asset_named("sft_export_trl", changed)
    assert [above.name for above, _, _ in out_of_date(changed, asset)] == ["sft_packed"]
    build(changed, "sft_packed")
    assert state(changed, asset, "") == "stale"
    verdict = readable(changed, stores_of(changed, "sft_export_trl")[0])
    assert not verdict.passed
    assert "sft_packed was built again since" in verdict.summary
    assert "prep-assets build sft_export_trl" in verdict.summary
    assert readable(changed, build_export(changed, "sft_export_trl")[0]).passed


def test_a_source_that_is_not_built_comes_with_its_command(mine: Workspace) -> None:
    shutil.rmtree(mine.stores / "sft_packed")
    with pytest.raises(StoreError, match="prep-assets build sft_packed"):
        build_export(mine, "sft_export_trl")


def test_a_damaged_source_is_built_anew_before_it_is_exported(mine: Workspace) -> None:
    """One flipped byte upstream used to be read, and the store made from it passed every check."""
    shutil.rmtree(mine.stores / "sft_export_trl")
    path = mine.stores / "sft_packed" / "current" / "sft_packed.h5"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"sft_packed\.h5: content altered"):
        asset_named("sft_export_trl", mine).build(mine, "").propose()
    assert not (mine.stores / "sft_export_trl" / "current").exists()
    build_export(mine, "sft_export_trl")
    sound = mine.built("sft_packed")
    sound.verify()


def test_files_that_cannot_be_read_fail_the_check(mine: Workspace) -> None:
    published = stores_of(mine, "sft_export_modellink")[0]
    path = next(published.directory.glob("*labels*.bin"))
    path.write_bytes(path.read_bytes()[:-4])
    assert not readable(mine, resealed(published)).passed


def test_an_export_that_does_not_read_back_is_not_published(mine: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(mine.stores / "sft_export_bridge")
    # a mask that is not moved to the place of the prediction: the mistake that this format invites
    monkeypatch.setattr("prep_assets.extensions.exports.blocks.Block.next_trained", property(lambda block: block.trained))
    with pytest.raises(CheckFailed, match=r"row 0: token \d+ is (not )?trained, in the store it is the other way round"):
        build_export(mine, "sft_export_bridge")
    assert not (mine.stores / "sft_export_bridge" / "current").exists()


# -- faults of the configuration --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "found", "message"),
    [
        ("sft", {"trl": entry("sft_packed", "hf_arow")}, r"exports\.trl\.to: no export format 'hf_arow'; did you mean 'hf_arrow'"),
        ("sft", {"trl": entry("sft_paked", "hf_arrow")}, r"exports\.trl\.from: no asset 'sft_paked' .*; did you mean 'sft_packed'"),
        ("sft", {"trl": entry("sft_raw", "hf_arrow")}, r"exports\.trl\.from: .* This family has: sft_tokens, sft_packed"),
        ("sft", {"x": entry("preferences", "hf_arrow")}, r"exports\.x\.from: 'preferences' is an asset of preference"),
        (
            "sft",
            {"trl": entry("sft_packed", "hf_arrow", layuot="trl")},
            r"exports\.trl\.options: .* no option 'layuot'; did you mean 'layout'",
        ),
        ("sft", {"trl": entry("sft_packed", "hf_arrow", layout="tlr")}, r"exports\.trl\.options: .*'tlr'"),
        (
            "sft",
            {"v": entry("sft_packed", "verl", data_source="x")},
            r"exports\.v\.to: verl takes JSONL, not packed table\. Formats that do: .*megatron",
        ),
        ("sft", {"d": {**entry("sft_packed", "mds"), "stream": "dev"}}, r"exports\.d\.stream: sft_packed has no stream 'dev'"),
        ("sft", {"t": entry("sft_tokens", "megatron")}, r"exports\.t\.to: megatron would lose the loss mask .* layout: instruction"),
        ("sft", {"t": entry("sft_tokens", "tlfs")}, r"exports\.t\.to: tlfs would lose the loss mask"),
        ("sft", {"a-b": entry("sft_packed", "mds")}, "'a-b' cannot be an export's name"),
        ("sft", {"a": {"form": "sft_packed", "to": "mds"}}, r"exports\.a\.form: unknown key; did you mean 'from'"),
        ("pretrain", {"l": entry("pretrain_tokens", "litdata")}, r"exports\.l\.options: .* needs the option 'block_size'"),
    ],
)
def test_a_fault_is_named_when_the_configuration_is_loaded(tmp_path: Path, family: str, found: dict[str, Any], message: str) -> None:
    workspace = workspace_in(tmp_path, {family: {**shipped()[family], "exports": found}})
    with pytest.raises(ConfigError, match=message) as raised:
        assets_of(workspace)
    assert f"{family}.yaml" in str(raised.value)


def test_every_fault_of_a_file_is_listed_at_once(tmp_path: Path) -> None:
    found = {"one": entry("sft_packed", "mdss"), "two": entry("sft_pack", "mds"), "good": entry("sft_packed", "mds")}
    with pytest.raises(ConfigError) as raised:
        assets_of(workspace_in(tmp_path, {"sft": {**shipped()["sft"], "exports": found}}))
    assert [line.split(":")[0].strip() for line in str(raised.value).splitlines()[1:]] == ["exports.one.to", "exports.two.from"]


def test_what_can_be_exported_is_there_under_its_name(exported: Workspace) -> None:
    for asset in SHIPPED_ASSETS.values():
        if not asset.streams:
            continue
        partition = asset.partitions(exported)[0]
        directory = open_published(exported.stores, asset.name, partition).directory
        for name, stream in asset.streams.items():
            if name.startswith(("unpaired", "ranked")):  # only where there are labelled answers, or lists
                continue
            stem = exporting(asset, "hf_arrow", name, {}).stem(partition)
            assert open_table(directory, stem).schema is stream.schema


# Every corruption of an export that reading back must notice.


def _with(source: Table, **values: Any) -> Table:
    """A table with other values in some columns."""
    return replace(
        source, columns={**source.columns, **{key: replace(source.columns[key], values=each.reshape(-1)) for key, each in values.items()}}
    )


def spoil_table(source: Table, what: str) -> Table:
    assert source.pieces is not None
    tokens, mask = packed_rows(source).copy(), packed_rows(source, "loss_mask").copy()
    last = len(source) - 1
    place = int(source.pieces.fields["row_offset"][-1]) + 1  # the second token of the last document: both are always looked at
    if what == "token":
        tokens[last, place] += 1
    elif what == "mask":
        mask[last, place] = 1 - mask[last, place]
    elif what == "late":
        mask[:, 1:] = mask[:, :-1].copy()
    elif what == "order":
        tokens[[0, last]], mask[[0, last]] = tokens[[last, 0]], mask[[last, 0]]
    return _with(source, tokens=tokens, loss_mask=mask)


def spoil_stream(source: Table, what: str) -> Table:
    name = "tokens" if what == "token" else "loss_mask"
    values, second = np.array(source.columns[name].values[:]), source.columns[name].spans(len(source) - 1)[0].start + 1
    values[second] = values[second] + 1 if what == "token" else 1 - values[second]
    return _with(source, **{name: values})


def spoil(source: Table, what: str, folder: Path) -> Table:
    if source.schema.fits(PACKED):
        return spoil_table(source, what)
    if source.schema.fits(TOKENS):
        return spoil_stream(source, what)
    if source.schema is PAIRS:
        name = "rejected_mask" if what == "mask" else "rejected"
        values, last = np.array(source.columns[name].values[:]), source.columns[name].spans(len(source) - 1)[0].start + 1
        values[last] = 1 - values[last] if what == "mask" else values[last] + 1
        return replace(source, columns={**source.columns, name: replace(source.columns[name], values=values)})
    rows = list(source)
    rows[-1] = {**rows[-1], "gold" if "gold" in rows[-1] else "rejected": 12345.0 if "gold" in rows[-1] else "something else"}
    return _of_lines(source, [json.dumps(row).encode() + b"\n" for row in rows], folder)


def _of_lines(source: Table, lines: list[bytes], folder: Path) -> Table:
    """A table of other lines."""
    assert source.path is not None
    path = folder / source.path.name
    path.write_bytes(b"".join(lines))
    column = Ragged(np.frombuffer(b"".join(lines), np.uint8), np.cumsum([*map(len, lines)]))
    return replace(source, path=path, count=len(lines), columns={"line": column})


def opened(workspace: Workspace, name: str) -> tuple[Table, str, dict[str, Any]]:
    each = next(
        each
        for each in [each for family in FAMILIES if workspace.has(family) for each in family_exports(workspace, family)]
        if asset_name(each) == name
    )
    partition = asset_named(name, workspace).partitions(workspace)[0]
    source = open_table(open_published(workspace.stores, each.source.name, partition).directory, each.stem(partition))
    return source, each.format, each.all_options(workspace)


UNMASKED = {
    *(f"pretrain_export_{name}" for name in EXPORTS["pretrain"]),
    *("preference_export_dpo", "preference_export_lines", "preference_export_reward", "preference_export_hub"),
    *("rl_export_verl", "rl_export_rollouts"),
}
"""Exports whose files do not say which tokens are trained."""
TABLES = [f"sft_export_{name}" for name, each in EXPORTS["sft"].items() if each["from"] == "sft_packed"]
SPOILED = [
    *((name, "token") for name in NAMES),
    *((name, "mask") for name in NAMES if name not in UNMASKED),
    *((name, what) for name in TABLES for what in ("late", "order")),
]


@pytest.mark.parametrize(("name", "what"), SPOILED)
def test_files_that_say_something_else_than_the_store_are_noticed(exported: Workspace, name: str, what: str, tmp_path: Path) -> None:
    source, to, options = opened(exported, name)
    folder = export(spoil(source, what, tmp_path), to, tmp_path / "out", **options)
    verdict = compare(folder, source, to, options)
    assert not verdict.passed
    assert verdict.worst is not None and verdict.worst.note


@pytest.mark.parametrize("name", ["sft_export_trl", "sft_export_neat", "sft_export_modellink", "sft_export_bridge", "sft_export_mds"])
def test_a_document_that_begins_elsewhere_is_noticed(exported: Workspace, name: str, tmp_path: Path) -> None:
    source, to, options = opened(exported, name)
    assert source.pieces is not None
    documents = {field: np.array(values) for field, values in source.pieces.fields.items()}
    # a token at the end of the first document, which nobody trains, becomes the first of the second
    documents["length"][0] -= 1
    documents["length"][1] += 1
    documents["row_offset"][1] -= 1
    mask = packed_rows(source, "loss_mask").copy()
    mask[0, documents["row_offset"][1] : documents["row_offset"][1] + 2] = 0
    unmarked = _with(source, loss_mask=mask)
    values = {key: column.values for key, column in unmarked.columns.items()}
    pieces = Pieces(source.pieces.domains, documents)
    folder = export(packed_table("", values, pieces, len(source), source.width), to, tmp_path / "out", **options)
    verdict = compare(folder, unmarked, to, options)
    assert not verdict.passed and "documents start at" in verdict.summary


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_row_is_noticed(exported: Workspace, name: str, tmp_path: Path) -> None:
    source, to, options = opened(exported, name)
    fewer: Table
    if source.path is not None:
        fewer = _of_lines(source, [*source.written()][:-1], tmp_path)
    elif source.pieces is not None:
        kept = np.asarray(source.pieces.fields["row"]) < len(source) - 1
        pieces = Pieces(source.pieces.domains, {field: np.asarray(values)[kept] for field, values in source.pieces.fields.items()})
        values = {key: packed_rows(source, key)[:-1].reshape(-1) for key in source.columns}
        fewer = packed_table("", values, pieces, len(source) - 1, source.width)
    elif source.schema is PAIRS:
        columns = {name: Ragged(column.values, column.ends[:-1]) for name, column in source.columns.items()}
        fewer = replace(source, count=len(source) - 1, columns=columns)
    else:
        fewer = _shorter(source)
    folder = export(fewer, to, tmp_path / "out", **options)
    try:
        verdict = compare(folder, source, to, options)
    except StoreError:
        return
    assert not verdict.passed


def _shorter(source: Table) -> Table:
    kept = source.some(slice(0, len(source) - 1))
    columns = {name: replace(column, values=np.array(column.values[: int(column.ends[-1])])) for name, column in kept.columns.items()}
    return replace(kept, columns=columns)


# `generation_config.json`: the tokens at which a trained model stops are those that end the answers it was trained on.


@pytest.mark.parametrize(("template", "stops"), [("chatml", ["<|im_end|>", "<|endoftext|>"]), ("plain", ["<|endoftext|>"])])
def test_an_export_says_where_a_model_stops(make: Make, tmp_path: Path, template: str, stops: list[str]) -> None:
    """A model that was trained to end turns with `<|im_end|>` went on for ever: `eos_token` is another token, and no file said so."""
    exports = {"trl": {"from": "sft_tokens", "to": "hf_arrow"}, "mds": {"from": "sft_tokens", "to": "mds"}}
    workspace = make(minimal("sft", {"a": domain("chats.jsonl", "messages")}, template=template, exports=exports))
    for name in ("sft_raw", "sft_tokens"):
        build(workspace, name, "a")
    found = {name: make_store(workspace, assets_of(workspace)[f"sft_export_{name}"], "a").directory for name in exports}
    assert not (found["mds"] / "generation_config.json").exists()
    said = json.loads((found["trl"] / "generation_config.json").read_text())["eos_token_id"]
    assert said == AutoTokenizer.from_pretrained(TOKENIZER).convert_tokens_to_ids(stops)
    assert GenerationConfig.from_pretrained(found["trl"]).eos_token_id == said
    tokens = workspace.built("sft_tokens", "a")
    store = open_stream(tokens.directory, "train")
    last = {int(store.record(n, "tokens")[np.flatnonzero(store.record(n, "loss_mask"))[-1]]) for n in range(len(store))}
    assert last <= set(said)


@pytest.mark.parametrize("lost", ["its stop", "the file", ""])
def test_a_config_without_the_stop_of_answers_is_seen(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    exports = {"trl": {"from": "sft_tokens", "to": "hf_arrow"}}
    workspace = make(minimal("sft", {"a": domain("chats.jsonl", "messages")}, template="chatml", exports=exports))
    for name in ("sft_raw", "sft_tokens"):
        build(workspace, name, "a")
    if lost == "its stop":
        monkeypatch.setattr("prep_assets.extensions.exports.assets.generation_stops", lambda template: ())
    if lost == "the file":
        monkeypatch.setattr("prep_assets.extensions.exports.assets.stop_ids", lambda *_: [])
    fault = r"has .*ends with '<\|im_end\|>'" if lost == "its stop" else "" if not lost else "what is trained on it would not stop"
    with pytest.raises(CheckFailed, match=f"readable: .*generation_config.json.*{fault}") if lost else nullcontext():
        make_store(workspace, assets_of(workspace)["sft_export_trl"], "a")


# `pad_vocab_to`: the model's vocabulary, where it has more ids than the tokenizer.


def test_types_and_exports_go_by_the_models_vocabulary(make: Make, tmp_path: Path) -> None:
    """As train-llm-from-scratch's 50,304 of 50,257, and MindSpeed-LLM's --pad-vocab-size-to."""
    rows = domain(jsonl(tmp_path / "rows.jsonl", [{"text": f"Document {n}."} for n in range(6)]), "text")
    options = {"output": {"dtype": "auto"}, "pad_vocab_to": 70_000}
    workspace = make(minimal("pretrain", {"d": rows}, **options))
    build_all(workspace, ["pretrain"])
    published = workspace.built("pretrain_tokens", "d")
    assert published.manifest.recipe["tokenizer"]["pad_vocab_to"] == 70_000
    # the tokenizer's 8,192 ids alone are uint16
    assert open_stream(published.directory, "d_train").columns["tokens"].values.dtype == np.dtype("uint32")
    for format in ("nanotron", "olmo", "megatron"):
        assert exporting(EVERY["pretrain_tokens"], format, None, {}).all_options(workspace)["vocab_size"] == 70_000


def test_a_vocabulary_that_does_not_hold_the_ids_stops(make: Make, tmp_path: Path) -> None:
    rows = domain(jsonl(tmp_path / "rows.jsonl", [{"text": "Hi."}]), "text")
    workspace = make(minimal("pretrain", {"d": rows}, pad_vocab_to=300))
    with pytest.raises(PrepAssetsError, match=r"pad_vocab_to: 300 ids do not hold tokenizer .*, whose highest id is [\d,]+\. Set it to"):
        build_all(workspace, ["pretrain"])
