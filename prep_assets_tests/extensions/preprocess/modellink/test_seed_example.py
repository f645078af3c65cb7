"""The two command lines of ModelLink's own example, Llama 2 13B: pretraining from Parquet, SFT from Alpaca's rows. What they write is what its published
handlers compute, done here by hand; Megatron-LM's reader opens it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep_assets import load
from prep_assets_tests.extensions.exports.readers import reader
from prep_assets_tests.extensions.preprocess.modellink.conftest import EOS, INSTRUCTION, Call, files, names, pair, token, whole, write

SYSTEM = (
    "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately "
    "completes the request. Please note that you need to think through your response logically and step by step."
)
TEXTS = [f"Document {n}.\n\nIt has 东西 and {n * 7} words. " * (n + 1) for n in range(9)]
ALPACA = [{"instruction": f"Add {n} and 2.\nShow it.", "input": f"n = {n}", "output": f"It is {n + 2}.\n\nDone, 好的"} for n in range(9)]
Read = Callable[[Path], list[list[int]]]


def by_megatron(prefix: Path) -> list[list[int]]:
    found = reader("megatron.core.datasets.indexed_dataset").IndexedDataset(str(prefix))
    assert found.document_indices.tolist() == list(range(len(found) + 1))
    return [found[number].tolist() for number in range(len(found))]


READERS = [pytest.param(pair, id="layout"), pytest.param(by_megatron, id="megatron", marks=pytest.mark.readers)]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("append_eod", [False, True])
def test_pretraining_from_parquet(here: Path, llama: Path, call: Call, read: Read, append_eod: bool) -> None:
    rows = [{"text": text, "instruction": "optional", "input": "content", "output": "of other keys"} for text in TEXTS]
    pq.write_table(pa.Table.from_pylist(rows), here / "train-00000-of-00001-a09b74b3ef9c3b56.parquet")
    code, said = call(
        "preprocess",
        *("--input", "train-00000-of-00001-a09b74b3ef9c3b56.parquet", "--output-prefix", "processed_for_input/llama2-13b/alpaca"),
        *("--seq-length", 4096, "--workers", 2, "--log-interval", 1000, *(["--append-eod"] if append_eod else [])),
    )
    assert code == 0, said
    assert "input, instruction, output of the rows is not read" in said
    out = here / "processed_for_input" / "llama2-13b"
    assert names(out) == files("alpaca", "text")
    end = [token(llama, EOS)] if append_eod else []
    assert read(out / "alpaca_text_document") == [[*whole(llama, text), *end] for text in TEXTS]
    store = load(out / "alpaca_text_document.idx")
    assert [store.fetch_record(n, "sequence").tolist() for n in range(len(TEXTS))] == [[*whole(llama, text), *end] for text in TEXTS]


def by_the_handler(tokenizer: Path, row: dict[str, Any], append_eod: bool) -> tuple[list[int], list[int]]:
    """What GeneralInstructionHandler computes: ids, and labels that are -100 up to the answer."""
    prompt = f"\n{SYSTEM}\n### Instruction:\n{row['instruction']}\n{row['input']}\n### Response:\n"
    ids = [*whole(tokenizer, f"{prompt}{row['output']}\n"), *([token(tokenizer, EOS)] if append_eod else [])]
    asked = len(whole(tokenizer, prompt))
    return ids, [-100] * asked + ids[asked:]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("append_eod", [False, True])
def test_sft_from_alpacas_rows(here: Path, llama: Path, call: Call, read: Read, append_eod: bool) -> None:
    write(here / "alpaca_gpt4_data.json", ALPACA)
    code, said = call(
        "preprocess",
        *("--input", "alpaca_gpt4_data.json", "--output-prefix", here / "out" / "alpaca_ft", "--handler-name", "GeneralInstructionHandler"),
        *("--seq-length", 4096, "--workers", 2, "--log-interval", 1000, *(["--append-eod"] if append_eod else [])),
    )
    assert code == 0, said
    assert names(here / "out") == files("alpaca_ft", *(f"packed_{key}" for key in INSTRUCTION))
    ids, attention, labels = (read(here / "out" / f"alpaca_ft_packed_{key}_document") for key in INSTRUCTION)
    expected = [by_the_handler(llama, row, append_eod) for row in ALPACA]
    assert ids == [each for each, _ in expected]
    assert attention == [[1] * len(each) for each in ids]
    if append_eod:
        assert labels == [each for _, each in expected]
    else:  # the note says so: what follows the answer's text, here a line break, is not trained
        assert "what follows the answer's text is not trained" in said
        assert labels == [[*each[:-1], -100] for _, each in expected]
    store = load(here / "out" / "alpaca_ft_packed_labels_document.idx")
    assert [store.fetch_record(n, "labels").tolist() for n in range(len(ALPACA))] == labels


@pytest.mark.parametrize(("name", "spaced"), [("gpt2", False), ("mistral_v3", True)])
def test_real_rows_and_tokenizers(here: Path, real_data: Path, call: Call, name: str, spaced: bool) -> None:
    """A thousand rows of Alpaca. Mistral's tokenizer has a piece for a space behind a begin-of-text token that it adds itself, and none behind one
    that a template writes, as in every chat; a note says so."""
    tokenizer, source = real_data / "tokenizers" / name, real_data / "llama_factory" / "alpaca_en_demo.json"
    words = ("--input", source, "--output-prefix", "out/x", "--handler-name", "GeneralInstructionHandler", "--seq-length", 512)
    code, said = call("preprocess", *words, tokenizer=tokenizer)
    assert code == 0 and ("no piece for a space stands between <s> and the text" in said) == spaced, said
    expected = []
    for row in json.loads(source.read_text("utf-8")):
        asked = f"{row['instruction']}\n{row['input']}" if row["input"] else row["instruction"]
        prompt = f"\n{SYSTEM}\n### Instruction:\n{asked}\n### Response:\n"
        ids, masked = (whole(tokenizer, text) for text in (f"{prompt}{row['output']}\n", prompt))
        if spaced:
            del ids[1], masked[1]
        if len(ids) <= 512:
            expected.append((ids, [-100] * len(masked) + ids[len(masked) : -1] + [-100]))
    found = (pair(here / "out" / f"x_packed_{key}_document") for key in ("input_ids", "labels"))
    assert list(zip(*found, strict=True)) == expected
