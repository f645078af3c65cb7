"""What is said of a store is what its manifest, its sources and its files say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import DatasetCard

from prep_assets.errors import StoreError
from prep_assets.extensions.neighbours.description import Column, Description, Table, describe, described, tables_of
from prep_assets.extensions.neighbours.hub import card, croissant
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.extensions.neighbours.test_hub import run
from prep_assets_tests.graph.workspaces import SAMPLES

Said = Mapping[str, Description]


def test_hashes_sources_and_counts(said: Said, built: Workspace) -> None:
    packed, export = said["sft_packed"], said["sft_export_hub"]
    manifest = json.loads((built.stores / "sft_packed" / "current" / "manifest.json").read_text("utf-8"))
    tokens = json.loads((built.stores / "sft_tokens" / "chats" / "current" / "manifest.json").read_text("utf-8"))["recipe"]
    files = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    whole = hashlib.sha256(json.dumps(files, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()
    assert packed.hashes == {
        "content": whole,
        "build_key": manifest["build_key"],
        "configuration": manifest["config_key"],
        "tokenizer": tokens["tokenizer"]["sha256"],
        "template": tokens["template"],
    }
    assert export.made_from["sft_packed"] == whole
    assert set(packed.made_from) == {f"sft_{stage}[{name}]" for stage in ("raw", "tokens") for name in ("dolly", "chats")}
    assert export.hashes["tokenizer"] == packed.hashes["tokenizer"]
    for source in packed.sources:
        content = (SAMPLES / source.name).read_bytes()
        assert (source.bytes, source.sha256, source.rows) == (len(content), hashlib.sha256(content).hexdigest(), content.count(b"\n"))
    assert [source.name for source in packed.sources] == ["dolly.jsonl", "chats.jsonl"]
    assert said["rl_prompts"].refused == {"rl_prompts_by_domain: schema/missing_field": 1, "rl_prompts_by_domain: deduplicate/duplicate": 1}
    assert {"row_integrity", "mask_alignment", "file_hashes"} <= set(packed.proofs["sft_packed"])
    assert list(export.proofs) == ["sft_raw", "sft_tokens", "sft_packed", "sft_export_hub"]
    assert export.summary == f"{packed.summary} As hf_parquet."


@pytest.mark.parametrize("asset", ["sft_export_hub", "preferences", "sft_packed", "rl_prompts"])
def test_a_folder_alone_says_the_same_of_itself(said: Said, built: Workspace, asset: str) -> None:
    alone, whole = described(built.stores / asset / "current"), said[asset]
    above = {"made_from", "sources", "addresses", "licences", "licence", "refused", "proofs", "hashes"}
    assert {field.name for field in fields(alone) if getattr(alone, field.name) != getattr(whole, field.name)} <= above
    assert alone.hashes.items() <= whole.hashes.items()
    assert alone.proofs.items() <= whole.proofs.items()
    assert (alone.sources, alone.licence, alone.made_from) == ((), (), {})


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is not a store: it has no manifest\.json"):
        described(tmp_path)


def test_licences(said: Said, mine: Workspace) -> None:
    assert said["preferences"].licence == ("apache-2.0",)
    assert said["sft_packed"].licence == ("cc-by-4.0",)
    assert said["sft_packed"].licences == {"dolly": "", "chats": ""}
    assert said["rl_prompts"].licence == ()
    path = mine.configs / "sft.yaml"
    options = yaml.safe_load(path.read_text("utf-8"))
    del options["licence"]
    options["domains"]["chats"]["licence"] = "mit"
    path.write_text(yaml.safe_dump(options, sort_keys=False), "utf-8")
    assert describe(Workspace(mine.configs, mine.stores), "sft_packed")[0].licence == ()
    options["domains"]["dolly"]["licence"] = "cc-by-sa-3.0"
    path.write_text(yaml.safe_dump(options, sort_keys=False), "utf-8")
    found, published = describe(Workspace(mine.configs, mine.stores), "sft_packed")
    assert found.licence == ("cc-by-sa-3.0", "mit")
    assert published.manifest.content_hash == said["sft_packed"].content_hash


def test_a_licence_that_is_a_sentence(mine: Workspace) -> None:
    path = mine.configs / "preference.yaml"
    path.write_text(path.read_text("utf-8").replace("licence: apache-2.0", "licence: Apache License"), "utf-8")
    assert "licence" in run(mine, "describe", "preferences").output


def test_a_store_that_is_out_of_date_is_not_described(mine: Workspace) -> None:
    path = mine.configs / "preference.yaml"
    path.write_text(path.read_text("utf-8").replace("test_fraction: 0.1", "test_fraction: 0.2"), "utf-8")
    with pytest.raises(StoreError, match="test_fraction"):
        describe(Workspace(mine.configs, mine.stores), "preferences")


def test_a_store_whose_checks_did_not_run_is_not_described(mine: Workspace) -> None:
    for path in (mine.stores / "preferences").rglob("*.json"):
        if "pair_sanity" in path.read_text("utf-8"):
            path.unlink()
    with pytest.raises(StoreError, match=r"pair_sanity.* is not known to hold"):
        describe(mine, "preferences")


def test_addresses_are_told_without_passwords_and_folders_are_not(said: Said) -> None:
    from prep_assets.config.family import Domain
    from prep_assets.extensions.neighbours.description import _public_addresses

    files = ("/home/me/a.jsonl", "https://me:secret@example.org/a.jsonl?sig=abc", "hub://openai/gsm8k@" + "0" * 40 + "/main")
    found = list(_public_addresses(Domain(files=files, schema="text")))
    assert found == ["https://example.org/a.jsonl", "hub://openai/gsm8k@" + "0" * 40 + "/main"]
    assert said["sft_packed"].addresses == {"dolly": (), "chats": ()}


def test_tables_columns_and_empty_files(tmp_path: Path) -> None:
    import pyarrow as pa

    (tmp_path / "a_train.jsonl").write_text('{"x": 1}\n{"x": 2, "m": [{"role": "user", "n": [1.5]}]}\n', "utf-8")
    (tmp_path / "a_test.jsonl").write_text("", "utf-8")
    (tmp_path / "data").mkdir()
    for number in range(2):
        pq.write_table(
            pa.table({"ids": pa.array([[[1]]], pa.list_(pa.list_(pa.int32())))}), tmp_path / f"data/held-0000{number}-of-00002.parquet"
        )
    (tmp_path / "splits" / "dev").mkdir(parents=True)
    pq.write_table(pa.table({"t": ["x"]}), tmp_path / "splits/dev/shard_000000.idx.parquet")
    names = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    message = [{"role": "string", "n": ["double"]}]
    assert tables_of(tmp_path, [*names, "x.h5"]) == (
        Table("a", "train", ("a_train.jsonl",), 2, (Column("x", "int64"), Column("m", message))),
        Table("default", "dev", ("splits/dev/shard_000000.idx.parquet",), 1, (Column("t", "string"),)),
        Table(
            "default", "held", ("data/held-00000-of-00002.parquet", "data/held-00001-of-00002.parquet"), 2, (Column("ids", [["int32"]]),)
        ),
    )


@pytest.mark.parametrize("asset", ["sft_export_hub", "preferences", "rl_prompts"])
def test_the_card_names_every_file_and_hash(said: Said, asset: str) -> None:
    text, told = card(said[asset]), said[asset]
    data = DatasetCard(text).data.to_dict()
    listed = [path for config in data["configs"] for split in config["data_files"] for path in split["path"]]
    assert sorted(listed) == sorted(file for table in told.tables for file in table.files)
    counted = {split["name"]: split["num_examples"] for info in data["dataset_info"] for split in info["splits"]}
    assert counted == {table.split: table.rows for table in told.tables}
    assert data["license"] == (told.licence[0] if told.licence else "unknown")
    wanted = [
        *told.hashes.values(),
        *(source.sha256 for source in told.sources),
        told.command,
        *told.refused,
        *(each for held in told.proofs.values() for each in held),
    ]
    assert [each for each in wanted if each not in text] == []


def test_the_card_names_data_sets_of_the_hub_and_breaks_no_table(said: Said) -> None:
    from dataclasses import replace

    source = replace(said["preferences"].sources[0], name="a|b\n.jsonl")
    address = "hub://openai/gsm8k@" + "0" * 40 + "/main"
    text = card(replace(said["preferences"], sources=(source,), addresses=dict.fromkeys(said["preferences"].licences, (address,))))
    assert DatasetCard(text).data.to_dict()["source_datasets"] == ["openai/gsm8k"]
    assert "| hh | a\\|b .jsonl |" in text


@pytest.mark.parametrize("asset", ["sft_export_hub", "preferences", "rl_prompts"])
def test_croissant_names_every_file_and_column(said: Said, asset: str) -> None:
    found: dict[str, Any] = croissant(said[asset])
    assert found["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    files = {each["@id"]: each["sha256"] for each in found["distribution"] if each["@type"] == "cr:FileObject"}
    assert files == {file: said[asset].files[file][1] for table in said[asset].tables for file in table.files}
    sets = {each["@id"]: each["includes"] for each in found["distribution"] if each["@type"] == "cr:FileSet"}
    assert sorted(file for each in sets.values() for file in each) == ([*files] if asset == "sft_export_hub" else [])
    for table, records in zip(said[asset].tables, found["recordSet"], strict=True):
        assert [field["@id"].split("/")[-1] for field in records["field"]] == [column.name for column in table.columns]
        for field in records["field"]:
            for each in field.get("subField", [field]):
                [place] = [each["source"][kind]["@id"] for kind in ("fileObject", "fileSet") if kind in each["source"]]
                assert place in {*files, *sets}
    assert [each["sha256"] for each in found["prov:wasDerivedFrom"]] == [source.sha256 for source in said[asset].sources]


def test_every_form_is_printed(built: Workspace, said: Said) -> None:
    assert json.loads(run(built, "describe", "sft_packed").stdout)["hashes"]["content"] == said["sft_packed"].content_hash
    assert run(built, "describe", "preferences", "--as", "card").stdout == card(said["preferences"])
    assert json.loads(run(built, "describe", "preferences", "--as", "croissant").stdout) == croissant(said["preferences"])
