"""Bytes on disk: folders, ``meta.json``, shards, offsets, HDF5."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prep_assets import load
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.preprocess.astrai import parse_pipeline
from prep_assets.extensions.preprocess.astrai_run import load_tokenizer, preprocess
from prep_assets.training import DatasetFactory, share_memory
from prep_assets_tests.extensions.preprocess.conftest import WORDS, Run, chat, ids, message, write_rows
from prep_assets_tests.extensions.preprocess.pipelines import CHAT, DPO, GRPO, SECTIONS_CHAT, SECTIONS_TEXT, TEXT, changed
from prep_assets_tests.extensions.preprocess.reference import read_bin, read_domain

TEXTS = changed(TEXT, preprocessing={"min_chars": 0, "deduplicate": False})
SHORT = changed(SECTIONS_TEXT, preprocessing={"min_chars": 0})
ROWS = [{"content": text} for text in ("a b c", "d", "e f g h", "i j")]
SHORT_ROWS = [{"text": row["content"]} for row in ROWS]


def shard(tmp_path: Path, name: str = "__default__/shard_0000") -> Path:
    return tmp_path / "out" / name


def test_meta_of_the_typed_dialect_to_the_byte(run: Run, tmp_path: Path) -> None:
    run([chat(("user", "a"), ("assistant", "b"))], CHAT)
    expected = b'{"sequence": {"shape": [9], "dtype": "int64"}, "loss_mask": {"shape": [9], "dtype": "int64"}}'
    assert (shard(tmp_path) / "meta.json").read_bytes() == expected
    assert (shard(tmp_path) / "sequence.bin").read_bytes()[:16] == bytes([1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0])


def test_meta_of_the_sections_dialect_to_the_byte(run: Run, tmp_path: Path) -> None:
    run([chat(("user", "a"), ("assistant", "b"))], SECTIONS_CHAT)
    expected = (
        b'{"sequence": {"shape": [9], "dtype": "int32"}, "loss_mask": {"shape": [9], "dtype": "bool"}, '
        b'"position_ids": {"shape": [9], "dtype": "int32"}}'
    )
    assert (shard(tmp_path) / "meta.json").read_bytes() == expected


def test_a_text_store_has_no_mask_and_one_with_any_mask_always_has_it(run: Run, tmp_path: Path) -> None:
    run(ROWS, TEXTS)
    assert list(read_bin(shard(tmp_path))) == ["sequence"]
    fields = {"input": {"sections": [{"field": "x", "action": "mask"}, {"field": "y", "action": "train"}]}}
    run([{"x": "", "y": "a"}, {"x": "b", "y": "c d"}, {"x": "", "y": "e"}], fields, overwrite=True)
    found = read_bin(shard(tmp_path))
    assert found["sequence"].tolist() == ids("a b c d e")
    assert found["loss_mask"].tolist() == [1, 0, 1, 1, 1]
    assert found["position_ids"].tolist() == [0, 0, 1, 2, 0]


@pytest.mark.parametrize(("limit", "sizes", "records"), [(4, [4, 4, 2], [2, 1, 1]), (2, [3, 1, 4, 2], [1, 1, 1, 1])])
def test_shards_hold_whole_records_and_at_most_the_limit(limit: int, sizes: Any, records: Any, run: Run, tmp_path: Path) -> None:
    """But for a record over the limit, which has a shard of its own."""
    outcome = run(ROWS, changed(TEXTS, output={"max_tokens_per_shard": limit}))
    assert [len(read_bin(path)["sequence"]) for path in sorted((tmp_path / "out" / "__default__").iterdir())] == sizes
    assert read_domain(tmp_path / "out" / "__default__")["sequence"].tolist() == ids("a b c d e f g h i j")
    assert [entry["records"] for entry in outcome.totals.shards.values()] == records


def test_each_domain_has_its_own_budget_of_tokens(run: Run, tmp_path: Path) -> None:
    rows = [{"content": text, "source": source} for source, text in (("x", "a b c"), ("y", "d"), ("x", "e f g"), ("y", "h i"))]
    run(rows, changed(TEXTS, output={"domain_key": "source", "max_tokens_per_shard": 3}))
    assert sorted(path.name for path in (tmp_path / "out" / "x").iterdir()) == ["shard_0000", "shard_0001"]
    assert [path.name for path in (tmp_path / "out" / "y").iterdir()] == ["shard_0000"]
    assert read_domain(tmp_path / "out" / "y")["sequence"].tolist() == ids("d h i")


def test_memory_blocks_leave_no_trace(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(SHORT_ROWS, SHORT)
    whole = read_bin(shard(tmp_path))
    monkeypatch.setattr("prep_assets.extensions.preprocess.astrai_run.FLUSH_TOKENS", 2)
    monkeypatch.setattr("prep_assets.extensions.preprocess.astrai_run.BLOCK", 3)
    run(SHORT_ROWS, SHORT, overwrite=True)
    found = read_bin(shard(tmp_path))
    assert {key: values.tolist() for key, values in found.items()} == {key: values.tolist() for key, values in whole.items()}
    assert not (tmp_path / "out" / ".raw").exists()


def test_position_ids_begin_anew_in_each_document_or_run_through_the_shard(run: Run, tmp_path: Path) -> None:
    run(SHORT_ROWS, SHORT)
    assert read_bin(shard(tmp_path))["position_ids"].tolist() == [0, 1, 2, 0, 0, 1, 2, 3, 0, 1]
    run(SHORT_ROWS, changed(SHORT, output={"position_ids_mode": "continuous"}), overwrite=True)
    assert read_bin(shard(tmp_path))["position_ids"].tolist() == list(range(10))


def test_positions_that_do_not_fit_their_type_stop_the_run(run: Run) -> None:
    narrow = changed(
        SHORT, output={"position_ids_mode": "continuous", "dtype": {"position_ids": "int8"}}, preprocessing={"max_seq_len": 999}
    )
    with pytest.raises(ConfigError, match="position_ids reach 199"):
        run([{"text": "a " * 200}], narrow)


def test_ids_that_do_not_fit_their_type_stop_the_run_before_it_begins(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("prep_assets.text.vocabulary.Vocabulary.size", 300)
    with pytest.raises(ConfigError, match="int8 holds ids to 127, the vocabulary has 300"):
        run(SHORT_ROWS, changed(SHORT, output={"dtype": {"sequence": "int8"}}))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32"])
def test_masks_of_every_type(dtype: str, run: Run, tmp_path: Path) -> None:
    run([chat(("user", "a"), ("assistant", "b"))], changed(SECTIONS_CHAT, output={"dtype": {"loss_mask": dtype}}))
    assert read_bin(shard(tmp_path))["loss_mask"].astype(int).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_the_flat_layout_has_one_shard(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_tokens_per_shard"):
        run(ROWS, changed(TEXTS, output={"max_tokens_per_shard": 4}), layout="flat")
    with pytest.raises(ConfigError, match="h5"):
        run(ROWS, changed(TEXTS, output={"storage_format": "h5"}), layout="flat")
    assert not (tmp_path / "out").exists()


def test_h5_has_one_flat_dataset_in_each_keys_group(run: Run, tmp_path: Path) -> None:
    run([chat(("user", "a"), ("assistant", "b"))], changed(CHAT, output={"storage_format": "h5"}))
    assert sorted(path.name for path in (tmp_path / "out" / "__default__").iterdir()) == ["data_0000.h5"]
    with h5py.File(shard(tmp_path, "__default__/data_0000.h5")) as file:
        assert {key: list(file[key]) for key in file} == {"loss_mask": ["data_0"], "sequence": ["data_0"]}
        sequence = file["sequence/data_0"]
        assert (sequence.dtype, sequence.chunks, sequence.compression, len(sequence.attrs)) == (np.int64, None, None, 0)
        assert sequence[:].tolist() == ids("<s> <|im_start|> user a <|im_end|> <|im_start|> assistant b <|im_end|>")
        assert file["loss_mask/data_0"][:].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]


def pair(chosen: str, rejected: str) -> dict[str, Any]:
    return {
        "chosen": chat(("user", "a"), ("assistant", chosen))["messages"],
        "rejected": chat(("user", "a"), ("assistant", rejected))["messages"],
    }


def test_the_summary_states_what_astrais_document_promises_of_meta(run: Run, tmp_path: Path) -> None:
    run(SHORT_ROWS, SHORT)
    about = json.loads((tmp_path / "out" / "preprocess.json").read_text())
    assert about["storage_format"] == "bin"
    assert about["counts"]["tokens"] == 10
    keys = {"sequence": {"shape": [10], "dtype": "int32"}, "position_ids": {"shape": [10], "dtype": "int32"}}
    assert about["shards"] == {"__default__/shard_0000": {"records": 4, "tokens": 10, "keys": keys}}


# -- what `preprocess` writes of pairs and groups, read by `load` and by the data sets, equals what the rows say -------------------


words = st.lists(st.sampled_from(WORDS[3:20]), min_size=1, max_size=4).map(" ".join)
responses = st.lists(st.tuples(words, st.floats(-8, 8, width=32)), min_size=1, max_size=4)
groups = st.lists(st.tuples(words, responses), min_size=1, max_size=6, unique_by=repr)
layouts = st.sampled_from([("bin", "shards"), ("bin", "flat"), ("h5", "shards")])


def group_row(prompt: str, answers: Iterable[tuple[str, float]]) -> dict[str, Any]:
    texts, rewards = zip(*answers, strict=True)
    return {"prompt": [message("user", prompt)], "responses": list(texts), "rewards": list(rewards)}


def as_lists(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: [part.int().tolist() for part in value] if isinstance(value, list) else value.tolist() for key, value in sorted(item.items())
    }


def expected_group(prompt: str, answers: Iterable[tuple[str, float]]) -> dict[str, Any]:
    texts, rewards = zip(*answers, strict=True)
    found = [ids(text) for text in texts]
    turns = ids(f"<s> <|im_start|> user {prompt} <|im_end|>")
    masks = [[1] * len(each) for each in found]
    return {"masks": masks, "prompts": turns, "responses": found, "rewards": np.array(rewards, np.float32).tolist()}


@given(groups, layouts, st.sampled_from([1, 9, 20, 1000]))
def test_groups_of_any_shape(
    tmp_path_factory: pytest.TempPathFactory, tokenizer: Path, rows: list[Any], layout: tuple[str, Any], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("groups")
    limit = 1000 if layout[1] == "flat" else limit
    pipeline = changed(GRPO, output={"storage_format": layout[0], "max_tokens_per_shard": limit}, preprocessing={"min_chars": 0})
    source = write_rows(folder / "rows.jsonl", [group_row(*row) for row in rows])
    preprocess([str(source)], folder / "out", parse_pipeline(pipeline, "p.json"), load_tokenizer(tokenizer), layout=layout[1])
    dataset = DatasetFactory.load("grpo", folder / "out")
    assert [as_lists(item) for item in dataset] == [expected_group(*row) for row in rows]
    assert dataset[-1]["rewards"].dtype == torch.float32
    shutil.rmtree(folder)


def test_masks_that_have_the_name_which_preprocess_gives_them(run: Run, tmp_path: Path) -> None:
    pipeline = copy.deepcopy(GRPO)
    del pipeline["input"]["sources"]["responses"]["mask_key"]
    run([group_row("b c", [("d", 1.0), ("e f", -0.5)])], changed(pipeline, preprocessing={"min_chars": 0}))
    dataset = DatasetFactory.load("grpo", tmp_path / "out")
    assert "responses_mask" in dataset.store.keys
    assert [as_lists(item) for item in dataset] == [expected_group("b c", [("d", 1.0), ("e f", -0.5)])]


PAIRS = [("b", "c d e"), ("f g", "h"), ("i j k", "l")]


@pytest.mark.parametrize(("storage", "layout"), [("bin", "shards"), ("bin", "flat"), ("h5", "shards")])
def test_pairs(run: Run, tmp_path: Path, storage: str, layout: str) -> None:
    rows = [{side: chat(("user", "a"), ("assistant", text))["messages"] for side, text in zip(SIDES, pair, strict=True)} for pair in PAIRS]
    limit = 1000 if layout == "flat" else 12
    run(rows, changed(DPO, output={"storage_format": storage, "max_tokens_per_shard": limit}), layout=layout)
    dataset = DatasetFactory.load("dpo", tmp_path / "out")
    assert len(dataset) == len(PAIRS)
    for item, pair in zip(dataset, PAIRS, strict=True):
        for side, text in zip(SIDES, pair, strict=True):
            head, answer = ids("<s> <|im_start|> user a <|im_end|>"), ids(f"<|im_start|> assistant {text} <|im_end|>")
            assert item[side].tolist() == head + answer
            assert item[f"{side}_mask"].int().tolist() == [0] * len(head) + [1] * len(answer)


SIDES = ("chosen", "rejected")
ROWS_ROUND_TRIP = [("a", [("b c", 0.8), ("d", -0.3)]), ("e f", [("g", 1.0)])]


@pytest.fixture(params=["bin", "h5"])
def borders(request: pytest.FixtureRequest, run: Run, tmp_path: Path) -> Path:
    """The file that says where records and responses end, of a store of `ROWS`."""
    run([group_row(*row) for row in ROWS_ROUND_TRIP], changed(GRPO, output={"storage_format": request.param}))
    (found,) = (path for name in ("meta.json", "*.offsets.json") for path in (tmp_path / "out").rglob(name))
    return found


def test_a_nested_key_is_a_list_of_arrays_and_any_other_is_one_array(borders: Path) -> None:
    store = load(borders.parent)
    found = store.fetch_record(0, ["prompts", "responses", "rewards"])
    assert [part.tolist() for part in found["responses"]] == [ids("b c"), ids("d")]
    assert found["rewards"].tolist() == np.array([0.8, -0.3], np.float32).tolist()
    assert found["prompts"].ndim == 1
    assert [part.tolist() for part in store.fetch_record(-1, "responses")] == [ids("g")]
    assert store.fetch(0, 4, "responses").tolist() == ids("b c d g")
    assert [part.tolist() for part in share_memory(store).fetch_record(0, "responses")] == [ids("b c"), ids("d")]
    assert [part.tolist() for part in load(borders.parent, keys=["responses"]).fetch_record(0, "responses")] == [ids("b c"), ids("d")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"element_offsets": [0, 2, 3, 5]}, "'responses': its element_offsets end at 5, it has 4 values"),
        ({"element_offsets": [0, 2, 3]}, "'responses': its element_offsets end at 3, it has 4 values"),
        ({"element_offsets": [0, 2, 4]}, "'responses': record 0 ends at 3, in the middle of an element"),
        ({"element_offsets": [0, 2, 2, 3, 4]}, "'responses': element 1 begins at 2 and ends at 2"),
        ({"element_offsets": [0, 3, 2, 4]}, "'responses': element 1 begins at 3 and ends at 2"),
        ({"element_offsets": [1, 2, 3, 4]}, "element_offsets of 'responses' is [1, 2, 3, 4], must be whole numbers that begin with 0"),
        ({"element_offsets": []}, "element_offsets of 'responses' is [], must be"),
        ({"element_offsets": [0, [2], 4]}, "element_offsets of 'responses' is [0, [2], 4], must be"),
        ({"element_offsets": [0, 2.5, 4]}, "must be whole numbers"),
        ({"offsets": [0, 2, 4]}, "responses of [2] tokens, masks of [2, 1], 2 rewards"),
        ({"offsets": [0, 3]}, "keys hold different numbers of records"),
        ({"offsets": [0, 3, 5]}, "the records of 'responses' end at 5, it has 4 elements"),
    ],
)
def test_borders_that_do_not_add_up(borders: Path, change: dict[str, Any], said: str) -> None:
    entries = json.loads(borders.read_text())
    entries["responses"] |= change
    borders.write_text(json.dumps(entries))
    with pytest.raises(StoreError) as error:
        list(DatasetFactory.load("grpo", borders.parent))
    assert said in str(error.value)


def test_element_offsets_need_offsets(borders: Path) -> None:
    entries = json.loads(borders.read_text())
    for entry in entries.values():
        del entry["offsets"]
    borders.write_text(json.dumps(entries))
    with pytest.raises(StoreError, match=r"no record offsets|has offsets of \[\]"):
        DatasetFactory.load("grpo", borders.parent)


def test_a_key_is_nested_in_every_shard_or_in_none(run: Run, tmp_path: Path) -> None:
    run([group_row(*row) for row in ROWS_ROUND_TRIP], changed(GRPO, output={"max_tokens_per_shard": 5}))
    meta = tmp_path / "out" / "__default__" / "shard_0001" / "meta.json"
    entries = json.loads(meta.read_text())
    del entries["masks"]["element_offsets"]
    meta.write_text(json.dumps(entries))
    with pytest.raises(StoreError, match=r"shard_0001 has element_offsets for \['responses'\], .*shard_0000 for \['masks', 'responses'\]"):
        load(tmp_path / "out")


def test_offsets_beside_h5_are_about_its_keys(run: Run, tmp_path: Path) -> None:
    run([group_row(*row) for row in ROWS_ROUND_TRIP], changed(GRPO, output={"storage_format": "h5"}))
    (path,) = (tmp_path / "out").rglob("*.offsets.json")
    whole = path.read_text()
    path.write_text(json.dumps({key: entry for key, entry in json.loads(whole).items() if key != "masks"}))
    with pytest.raises(StoreError, match=r"offsets.json has offsets of \['prompts'"):
        load(tmp_path / "out")
    path.write_text(whole[:-3])
    with pytest.raises(StoreError, match=r"offsets\.json is missing or damaged"):
        load(tmp_path / "out")
    path.write_text("[]")
    with pytest.raises(StoreError, match=r"is not \{key: \{offsets, element_offsets\}\}"):
        load(tmp_path / "out")


def test_a_reward_that_its_type_does_not_hold(run: Run) -> None:
    rows = [group_row("a", [("b", 1e39)]), group_row("a", [("c", 70_000.0)])]
    assert run(rows, GRPO).counts.refused == {"schema/out_of_range": 1}
    with pytest.raises(ConfigError, match=r"rewards reach 70000, float16 holds 65504\. Set output\.dtype\.rewards to a wider type"):
        run(rows, changed(GRPO, output={"dtype": {"rewards": "float16"}}), overwrite=True)


def test_astrais_own_h5_has_one_record_a_dataset(tmp_path: Path) -> None:
    """Without offsets beside it, each ``data_<i>`` is a record, as AstrAI's writer left it."""
    with h5py.File(tmp_path / "data_0000.h5", "w") as file:
        for key, records in {"chosen": [[1, 2], [3]], "rejected": [[4], [5, 6]]}.items():
            for number, record in enumerate(records):
                file.create_dataset(f"{key}/data_{number}", data=np.array(record, np.int32))
    store = load(tmp_path)
    assert [store.fetch_record(i, ["chosen", "rejected"])["rejected"].tolist() for i in (0, 1)] == [[4], [5, 6]]


GROUPS = [
    {"prompt": [message("user", "a")], "responses": ["b c", "d"], "rewards": [0.8, -0.3]},
    {"prompt": [message("user", "e f")], "responses": ["g"], "rewards": 1},
]


def test_the_first_flat_output_counts_towards_a_shard(run: Run, tmp_path: Path) -> None:
    run(GROUPS, changed(GRPO, output={"max_tokens_per_shard": 5}))
    assert sorted(path.name for path in (tmp_path / "out" / "__default__").iterdir()) == ["shard_0000", "shard_0001"]
