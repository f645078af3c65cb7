"""Files for trainers that split rows, read as the trainers do; and files that are wrong, which the readers see."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tokenizers import Tokenizer

from prep_assets import export
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.compared import compare
from prep_assets.extensions.exports.registry import opening
from prep_assets.extensions.training.collate import tokens_of
from prep_assets.stores.table import Table, open_table
from prep_assets.training import PackedDataset, Pad, PaddingFree
from prep_assets_tests.extensions.topology.conftest import ALIGN, ROW_LEN, Aligned, rooms_of
from prep_assets_tests.extensions.topology.reading import item, trained_by_nemo_rl
from prep_assets_tests.graph.workspaces import TOKENIZER
from prep_assets_tests.stores.payload import write_table

EOS = 77


def rows_in(out: Path) -> list[dict[str, Any]]:
    return [row for file in sorted((out / "splits" / "train").iterdir()) for row in pq.read_table(file).to_pylist()]


# -- PackedDataset ----------------------------------------------------------------------------------------------------------------------


def test_rows_of_the_data_set_are_laid_out(aligned: Aligned) -> None:
    dataset = PackedDataset(aligned.folder)
    for row, found in zip(aligned.rows, dataset, strict=True):
        tokens, labels, positions, borders = list[int](), list[int](), list[int](), [0]
        for (ids, mask), room in zip(row, rooms_of(row), strict=True):
            tokens += ids + [0] * (room - len(ids))
            labels += [
                -100,
                *(token if trained else -100 for token, trained in zip(ids[1:], mask[1:], strict=True)),
                *[-100] * (room - len(ids)),
            ]
            positions += range(room)
            borders.append(borders[-1] + room)
        assert found["input_ids"].tolist() == tokens
        assert found["labels"].tolist() == labels
        assert found["position_ids"].tolist() == positions
        assert found["cu_seqlens_padded"].tolist() == borders
        assert borders[-1] == ROW_LEN
        assert all(border % ALIGN == 0 for border in borders)
        assert found["seq_lengths"].tolist() == [len(ids) for ids, _ in row]
        assert found["cu_seqlens"].tolist() == [0, *np.cumsum([len(ids) for ids, _ in row])]


# -- aligned_parquet --------------------------------------------------------------------------------------------------------------------


def test_what_megatron_bridge_trains_on(aligned: Aligned, tmp_path: Path) -> None:
    """Its collator takes all tokens of a document but the last as inputs, the next ones as labels, and the mask at the places of the inputs."""
    out = export(aligned.folder, "aligned_parquet", tmp_path / "out", eos_id=EOS, rows_per_file=5)
    found = rows_in(out)
    assert len(found) == len(aligned.rows)
    for row, documents in zip(found, aligned.rows, strict=True):
        ends = [*row["seq_start_id"], len(row["input_ids"])]
        inputs = 0
        for number, ((ids, mask), room) in enumerate(zip(documents, rooms_of(documents), strict=True)):
            begin, end = ends[number : number + 2]
            assert end - 1 - begin == room
            assert room % ALIGN == 0
            assert row["input_ids"][begin:end] == ids + [EOS] * (room + 1 - len(ids))
            assert row["loss_mask"][begin:end] == mask[1:] + [0] * (room + 2 - len(ids))
            inputs += room
            assert row["cu_seqlens_padded"][number + 1] == inputs
            assert row["cu_seqlens"][number + 1] - row["cu_seqlens"][number] == len(ids)
        assert inputs == ROW_LEN
    known = {
        "dataset_max_seqlen": max(room for row in aligned.rows for room in rooms_of(row)),
        "max_samples_per_bin": max(map(len, aligned.rows)),
        "min_packed_seqlen": ROW_LEN,
        "pack_size": ROW_LEN,
    }
    assert json.loads((out / "packed_metadata.json").read_bytes()) == [known]
    opens = opening("aligned_parquet", out, open_table(aligned.folder), {"split": "train"})[1]
    assert f"packed_sequence_size={ROW_LEN}, pad_seq_to_mult={ALIGN})" in opens


def verdict(out: Path, table: Table, name: str = "aligned_parquet", **options: Any) -> bool:
    try:
        return compare(out, table, name, {"split": "train", **options}).passed
    except StoreError:
        return False


Row = dict[str, Any]


def change(**changes: Callable[[Row], Any]) -> Callable[[Row], Row]:
    return lambda row: {**row, **{key: make(row) for key, make in changes.items()}}


def without(values: list[Any], at: int) -> list[Any]:
    return [*values[:at], *values[at + 1 :]]


CORRUPTIONS: dict[str, Callable[[Row], Row]] = {
    "a place of padding less": change(
        input_ids=lambda row: row["input_ids"][:-1],
        loss_mask=lambda row: row["loss_mask"][:-1],
        cu_seqlens_padded=lambda row: [*row["cu_seqlens_padded"][:-1], row["cu_seqlens_padded"][-1] - 1],
    ),
    "stored lengths are multiples, and inputs one less": change(
        input_ids=lambda row: without(row["input_ids"], row["seq_start_id"][1] - 1),
        loss_mask=lambda row: without(row["loss_mask"], row["seq_start_id"][1] - 1),
        seq_start_id=lambda row: [row["seq_start_id"][0], *(start - 1 for start in row["seq_start_id"][1:])],
    ),
    "borders end before the ids": change(
        cu_seqlens_padded=lambda row: [*row["cu_seqlens_padded"][:-1], row["cu_seqlens_padded"][-1] - ALIGN]
    ),
    "padding is trained": change(loss_mask=lambda row: [*row["loss_mask"][:-1], 1]),
    "padding is another token": change(input_ids=lambda row: [*row["input_ids"][:-1], EOS + 1]),
    "a border moved": change(seq_start_id=lambda row: [row["seq_start_id"][0], row["seq_start_id"][1] + 1, *row["seq_start_id"][2:]]),
    "a token counted as padding": change(cu_seqlens=lambda row: [*row["cu_seqlens"][:-1], row["cu_seqlens"][-1] - 1]),
    "a document without borders": change(seq_start_id=lambda row: row["seq_start_id"][:-1]),
    "mask at the predicted token": change(loss_mask=lambda row: [0, *row["loss_mask"][:-1]]),
    "another token": change(input_ids=lambda row: [row["input_ids"][0] + 1, *row["input_ids"][1:]]),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_wrong_file_is_seen(name: str, aligned: Aligned, tmp_path: Path) -> None:
    out = export(aligned.folder, "aligned_parquet", tmp_path / "out", eos_id=EOS)
    table, [file] = open_table(aligned.folder), (out / "splits" / "train").iterdir()
    assert verdict(out, table, eos_id=EOS)
    rows = rows_in(out)
    rows[4] = CORRUPTIONS[name](rows[4])
    pq.write_table(pa.Table.from_pylist(rows, pq.read_schema(file)), file)
    assert not verdict(out, table, eos_id=EOS)


ENDS: dict[str, tuple[list[int], list[int], bool]] = {
    "one, trained": ([1, 2, 3, EOS], [0, 1, 1, 1], True),
    "two, the first trained": ([1, 2, EOS, EOS], [0, 1, 1, 0], True),
    "one inside, one at the end": ([1, EOS, 2, EOS], [0, 1, 1, 1], True),
    "nothing else, untrained": ([EOS, EOS, EOS], [0, 0, 0], True),
    "two, trained": ([1, 2, 3, EOS, EOS], [0, 1, 1, 1, 1], False),
    "three, the last trained": ([1, EOS, EOS, EOS], [0, 0, 0, 1], False),
    "nothing else, trained": ([EOS, EOS], [0, 1], False),
    "as many as fill its places": ([1, 2, EOS, EOS], [0, 1, 1, 1], False),
}


def behind_the_end(row: Row) -> list[int]:
    """Trained inputs of a row, as Megatron-Bridge reads it, that are not in the documents that it finds."""
    borders, found = [*row["seq_start_id"], len(row["input_ids"])], list[int]()
    for begin, end in pairwise(borders):
        inputs, trained = np.array(row["input_ids"][begin : end - 1]), np.array(row["loss_mask"][begin : end - 1])
        length = max(np.flatnonzero(inputs != EOS), default=-1) + 1
        found += (begin + length + np.flatnonzero(trained[length:])).tolist()
    return found


@pytest.mark.parametrize("name", ENDS)
def test_ends_that_megatron_bridge_takes_for_padding(name: str, tmp_path: Path) -> None:
    ids, mask, sound = ENDS[name]
    plain = ([4, 5, 6, 7, EOS], [0, 1, 1, 1, 1])
    rows = [[plain], [plain, (ids, mask), plain], [plain]]
    dense = export(write_table(tmp_path / "dense", "bin", rows, ROW_LEN), "aligned_parquet", tmp_path / "as_stored", eos_id=EOS)
    assert verdict(dense, open_table(tmp_path / "dense"), eos_id=EOS)  # the trainer takes documents to end where they are stored to
    folder = write_table(tmp_path / "s", "bin", rows, ROW_LEN, align=ALIGN)
    if sound:
        out = export(folder, "aligned_parquet", tmp_path / "out", eos_id=EOS)
        assert [behind_the_end(row) for row in rows_in(out)] == [[], [], []]
        assert verdict(out, open_table(folder), eos_id=EOS)
        return
    with pytest.raises(
        ConfigError, match=rf"row 1: a document has several end-of-text tokens \({EOS}\) at its end .* Export to megatron_sft"
    ):
        export(folder, "aligned_parquet", tmp_path / "out", eos_id=EOS)
    # written nevertheless, with another token in its place, which becomes the end-of-text token
    stand_in = [[([8 if token == EOS else token for token in ids], mask) for ids, mask in row] for row in rows]
    out = export(write_table(tmp_path / "t", "bin", stand_in, ROW_LEN, align=ALIGN), "aligned_parquet", tmp_path / "out", eos_id=EOS)
    [file] = (out / "splits" / "train").iterdir()
    written = [{**row, "input_ids": [EOS if token == 8 else token for token in row["input_ids"]]} for row in rows_in(out)]
    pq.write_table(pa.Table.from_pylist(written, pq.read_schema(file)), file)
    assert behind_the_end(written[1])
    assert not verdict(out, open_table(folder), eos_id=EOS)


def test_the_end_of_text_token_is_needed(aligned: Aligned, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="option 'eos_id': the id of the trainer's end-of-text token"):
        export(aligned.folder, "aligned_parquet", tmp_path / "out")


@pytest.mark.parametrize("name", ["packed_parquet", "megatron"])
def test_a_format_without_padding_between_documents_is_refused(name: str, aligned: Aligned, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=rf"multiples of 4 places, and {name} stores them without padding .* Export to aligned_parquet or megatron_sft"
    ):
        export(aligned.folder, name, tmp_path / "out")


# -- megatron_sft -----------------------------------------------------------------------------------------------------------------------

BACKEND = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
ASKED = "<|im_start|>user\nWhat is {0} + {0}?<|im_end|>\n<|im_start|>assistant\n"
WIDE = 160


def encode(text: str) -> list[int]:
    ids: list[int] = BACKEND.encode(text, add_special_tokens=False).ids
    return ids


def chat(*turns: tuple[str, int]) -> tuple[list[int], list[int]]:
    """Tokens and loss mask of texts, each trained or not."""
    parts = [(encode(text), trained) for text, trained in turns]
    return [token for ids, _ in parts for token in ids], [trained for ids, trained in parts for _ in ids]


CHATS = [
    [chat((ASKED.format(n), 0), (f"It is {2 * n}, naïvely 三.<|im_end|>", 1), ("\n", 0)) for n in range(2, 5)],
    [chat((ASKED.format(7), 0), ("14<|im_end|>", 1), ("\n" + ASKED.format(8), 0), ("16<|im_end|>", 1))],
    [chat((ASKED.format(1), 0)), chat((ASKED.format(9), 1), ("18", 1))],
]


@pytest.fixture
def chats(tmp_path: Path) -> Table:
    table = open_table(write_table(tmp_path / "chats", "bin", CHATS, WIDE, 0, ALIGN))
    return replace(table, tokenizer=BACKEND)


def lines_in(out: Path) -> list[list[dict[str, str]]]:
    return [json.loads(line)["messages"] for line in (out / "train.jsonl").read_text("utf-8").splitlines()]


def test_what_megatron_lm_trains_on(chats: Table, tmp_path: Path) -> None:
    out = export(chats, "megatron_sft", tmp_path / "out")
    pad = BACKEND.get_vocab_size()  # of no token
    for messages, found, documents in zip(lines_in(out), PackedDataset(tmp_path / "chats"), CHATS, strict=True):
        read = item(messages, encode, WIDE, ALIGN // 2, pad)
        borders = found["cu_seqlens_padded"].tolist()
        assert read["cu_seqlens"] == borders
        assert read["position_ids"] == found["position_ids"].tolist()
        for (ids, mask), begin, end in zip(documents, borders[:-1], borders[1:], strict=True):
            assert read["tokens"][begin:end] == ids + [pad] * (end - begin - len(ids))
            trained = [bool(trained) for trained in mask[1:]]
            assert read["loss_mask"][begin:end] == trained + [0] * (end - begin - len(trained))
            assert [label for label, trained in zip(read["labels"][begin:end], trained, strict=False) if trained] == [
                token for token, trained in zip(ids[1:], mask[1:], strict=True) if trained
            ]
    assert verdict(out, chats, "megatron_sft")


def test_what_nemo_rl_trains_on(chats: Table, tmp_path: Path) -> None:
    """Of rows that are trained whole what the store trains; of any other it trains more, or refuses it."""
    rows = [[(ids, [0] + [1] * (len(ids) - 1)) for ids, _ in row] for row in CHATS]
    whole = replace(open_table(write_table(tmp_path / "whole", "bin", rows, WIDE, 0, ALIGN)), tokenizer=BACKEND)
    for messages, documents in zip(lines_in(export(whole, "megatron_sft", tmp_path / "out")), rows, strict=True):
        assert trained_by_nemo_rl(messages, encode) == [[id for id, trained in zip(*each, strict=True) if trained] for each in documents]
    first, *others = zip(lines_in(export(chats, "megatron_sft", tmp_path / "masked")), CHATS, strict=True)
    with pytest.raises(ValueError, match="must end with an assistant"):
        trained_by_nemo_rl(first[0], encode)
    for messages, documents in others:
        assert sum(map(len, trained_by_nemo_rl(messages, encode))) > sum(sum(mask) for _, mask in documents)


OF_LINES: dict[str, Callable[[list[dict[str, str]]], list[dict[str, str]]]] = {
    "an answer that nobody trains": lambda messages: [*messages[:2], {**messages[2], "role": "user"}, *messages[3:]],
    "a question that is trained": lambda messages: [messages[0], {**messages[1], "role": "assistant"}, *messages[2:]],
    "two documents as one": lambda messages: [message for at, message in enumerate(messages) if message["role"] != "system" or not at],
    "a message missing": lambda messages: without(messages, len(messages) - 2),
    "another word": lambda messages: [
        *messages[:2],
        {**messages[2], "content": messages[2]["content"].replace("It", "That")},
        *messages[3:],
    ],
    "space cut off": lambda messages: [*messages[:-1], {**messages[-1], "content": messages[-1]["content"].strip()}],
}


@pytest.mark.parametrize("name", OF_LINES)
def test_a_wrong_line_is_seen(name: str, chats: Table, tmp_path: Path) -> None:
    out = export(chats, "megatron_sft", tmp_path / "out")
    lines = lines_in(out)
    lines[0] = OF_LINES[name](lines[0])
    (out / "train.jsonl").write_text("".join(json.dumps({"messages": line}) + "\n" for line in lines), "utf-8")
    assert not verdict(out, chats, "megatron_sft")


def test_tokens_that_no_text_gives_are_refused(tmp_path: Path) -> None:
    letters = encode("What")[0], encode("a")[0], encode("b")[0]
    table = open_table(write_table(tmp_path / "s", "bin", [[([letters[0], letters[1], letters[2]] * 3, [0] + [1] * 8)]], 64))
    with pytest.raises(ConfigError, match=r"row 0: tokens .* as text, which is tokenized to .* Export to aligned_parquet"):
        export(replace(table, tokenizer=BACKEND), "megatron_sft", tmp_path / "out")


def test_the_token_of_padding_must_not_be_trained(tmp_path: Path) -> None:
    own = Tokenizer.from_str(BACKEND.to_str())
    own.add_special_tokens(["<unk>"])
    unknown = own.token_to_id("<unk>")
    table = open_table(write_table(tmp_path / "s", "bin", [[([*encode("What"), unknown], [0] * len(encode("What")) + [1])]], 64))
    with pytest.raises(ConfigError, match=rf"<unk> \({unknown}\) is trained in rows 0 to 0"):
        export(replace(table, tokenizer=own), "megatron_sft", tmp_path / "out")


TYPED = {
    "by a user": ["What is <unk>?", "A token.<|im_end|>"],
    "in an answer": ["Which token?", "It is <unk>.<|im_end|>"],
    "over two messages": ["What is <un", "k>.<|im_end|>"],
}


@pytest.mark.parametrize("name", TYPED)
def test_a_token_of_padding_that_the_trainer_is_given_is_in_no_text(name: str, tmp_path: Path) -> None:
    asked, answer = TYPED[name]
    trainers = Tokenizer.from_str(BACKEND.to_str())
    trainers.add_special_tokens(["<unk>"])
    assert trainers.encode(asked + answer, add_special_tokens=False).ids != encode(asked) + encode(answer)
    rows = [CHATS[0], [chat(("What is <unk", 0), ("A token.<|im_end|>", 1)), chat((asked, 0), (answer, 1))]]
    table = replace(open_table(write_table(tmp_path / "s", "bin", rows, WIDE)), tokenizer=BACKEND)
    with pytest.raises(ConfigError, match=r"row 1: '.*' has <unk> typed in it\. .* one token of padding .* Export to aligned_parquet"):
        export(table, "megatron_sft", tmp_path / "out")
    sound = replace(open_table(write_table(tmp_path / "t", "bin", [CHATS[0], rows[1][:1]], WIDE)), tokenizer=BACKEND)
    out = export(sound, "megatron_sft", tmp_path / "out")
    assert verdict(out, sound, "megatron_sft")
    first, second = lines_in(out)
    typed = [{"role": "system", "content": ""}, {"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    (out / "train.jsonl").write_text("".join(json.dumps({"messages": line}) + "\n" for line in (first, second + typed)), "utf-8")
    assert not verdict(out, table, "megatron_sft")


def test_it_needs_the_tokenizer(aligned: Aligned, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"texts are made with the family's tokenizer\. Use prep-assets export"):
        export(aligned.folder, "megatron_sft", tmp_path / "out")


# -- Collators and records of runs ------------------------------------------------------------------------------------------------------


def test_collators_keep_the_padding_of_documents(aligned: Aligned) -> None:
    items = list(PackedDataset(aligned.folder))
    batch = PaddingFree()(items)
    assert batch["cu_seqlens"].diff().tolist() == [room for row in aligned.rows for room in rooms_of(row)]
    assert torch.equal(batch["input_ids"][0], torch.cat([found["input_ids"] for found in items]))
    assert torch.equal(batch["labels"][0], torch.cat([found["labels"] for found in items]))
    assert "attention_mask" not in batch
    alone = [found for found in items if len(found["seq_lengths"]) == 1]
    assert Pad()(alone)["attention_mask"].sum(1).tolist() == [int(found["seq_lengths"][0]) for found in alone]


def test_tokens_of_an_item_are_those_of_the_row(aligned: Aligned) -> None:
    for row, found in zip(aligned.rows, PackedDataset(aligned.folder), strict=True):
        assert tokens_of(found).tolist() == [token for tokens, _ in row for token in tokens]
