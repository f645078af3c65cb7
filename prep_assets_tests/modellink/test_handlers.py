"""Every handler through the command; for the llama2 examples that MindSpeed-LLM publishes, ids and labels computed slot by slot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prep_assets.modellink import BY_PROMPT_TYPE, ELSEWHERE, HANDLERS, KEYS, PAIRWISE
from prep_assets.schemas.registry import schemas
from prep_assets_tests.assets.test_sentences import punkt as punkt
from prep_assets_tests.assets.workspaces import jsonl
from prep_assets_tests.astrai.handler_rows import MODELLINK
from prep_assets_tests.modellink.conftest import BOS, EOS, INSTRUCTION, PAIRS, Call, files, names, pair, plain, token, whole, write

ROWS = {
    "GeneralPretrainHandler": [{"text": f"Text {n}."} for n in range(6)],
    "AlpacaPretrainHandler": MODELLINK["alpaca_text"],
    "SharegptPretrainHandler": MODELLINK["sharegpt_text"],
    "StackOverflowPythonPretrainHandler": MODELLINK["stack_overflow"],
    "GeneralInstructionHandler": MODELLINK["general"],
    "BelleMultiTurnInstructionHandler": MODELLINK["belle"],
    "MOSSMultiTurnHandler": MODELLINK["moss"],
    "MOSSInstructionHandler": MODELLINK["moss_instruction"],
    "LeetcodePythonInstructionHandler": MODELLINK["leetcode"],
    "HunyuanInstructionHandler": MODELLINK["hunyuan"],
    "AlpacaStyleInstructionHandler": MODELLINK["general"],
    "SharegptStyleInstructionHandler": MODELLINK["sharegpt_text"],
    "OpenAIInstructionHandler": MODELLINK["openai"],
    "AlpacaStylePairwiseHandler": MODELLINK["alpaca_pairs"],
    "SharegptStylePairwiseHandler": MODELLINK["sharegpt_pairs"],
}
QA = [{"instruction": f"Double {n}", "input": f"of {n}", "output": f"It is {2 * n}"} for n in range(12)]


def test_every_handler_of_theirs_is_known() -> None:
    """Those that a schema reads by their name, and the one whose rows are listed in a file."""
    theirs = {name for each in schemas().values() for name in (each.name, *each.aliases) if name.endswith("Handler")}
    assert {*HANDLERS} == {*ROWS} and {*HANDLERS, *ELSEWHERE} == theirs | {"LlamaFactoryInstructionHandler"}


@pytest.mark.parametrize("handler", ROWS)
def test_each_writes_its_files(here: Path, call: Call, handler: str) -> None:
    jsonl(here / "rows.jsonl", ROWS[handler])
    named = ["--prompt-type", "llama2"] if handler in (*BY_PROMPT_TYPE, *PAIRWISE) else []
    code, said = call("preprocess", "--input", "rows.jsonl", "--output-prefix", "out/x", "--handler-name", handler, *named)
    assert code == 0, said
    keys = [KEYS[handler] or "text"] if handler in KEYS else [f"packed_{key}" for key in (PAIRS if handler in PAIRWISE else INSTRUCTION)]
    assert names(here / "out") == files("x", *keys)
    assert {len(pair(here / "out" / f"x_{key}_document")) for key in keys} == {6}


def test_several_json_keys(here: Path, llama: Path, call: Call) -> None:
    rows = [{"title": f"Title {n}", "content": f"Content {n}.", "year": n} for n in range(5)]
    jsonl(here / "rows.jsonl", rows)
    code, said = call("preprocess", "--input", "rows.jsonl", "--json-keys", "title", "content", "--output-prefix", "out/text_x")
    assert code == 0, said
    assert "year of the rows is not read" in said
    assert names(here / "out") == files("text_x", "title", "content")
    for key in ("title", "content"):
        assert pair(here / "out" / f"text_x_{key}_document") == [whole(llama, str(row[key])) for row in rows]


def test_sentences(here: Path, call: Call, punkt: Path) -> None:
    jsonl(here / "rows.jsonl", [{"text": "He came in. Nobody knew."}])
    words = ("--input", "rows.jsonl", "--output-prefix", "out/x", "--split-sentences", "--keep-newlines")
    code, said = call("preprocess", *words)
    assert code == 0, said
    assert names(here / "out") == ["x_text_sentence.bin", "x_text_sentence.idx"]
    assert "nothing to do" in call("preprocess", *words)[1]


def test_belle_trains_the_last_answer_alone(here: Path, llama: Path, call: Call) -> None:
    row = {"instruction": "Human:Hi\nAssistant:Hello\nHuman:Go on\nAssistant:", "input": "", "output": "Gone"}
    write(here / "rows.json", [row])
    handler = ("--handler-name", "BelleMultiTurnInstructionHandler", "--append-eod")
    code, said = call("preprocess", "--input", "rows.json", "--output-prefix", "out/x", *handler)
    assert code == 0, said
    (ids,), _, (labels,) = (pair(here / "out" / f"x_packed_{key}_document") for key in INSTRUCTION)
    end = [*plain(llama, "Gone\n"), token(llama, EOS)]
    assert ids[-len(end) :] == end and labels == [*[-100] * (len(ids) - len(end)), *end]


def slots(tokenizer: Path, row: dict[str, Any]) -> tuple[list[int], list[int]]:
    """AlpacaStyleInstructionHandler with llama2: each slot tokenized alone, the answer trained with its end-of-text token."""
    asked = [token(tokenizer, BOS), *plain(tokenizer, f"[INST] {row['instruction']}\n{row['input']} [/INST]")]
    answer = [*plain(tokenizer, row["output"]), token(tokenizer, EOS)]
    return asked + answer, [-100] * len(asked) + answer


def parts(values: list[int], starts: list[int]) -> list[list[int]]:
    return [values[start:stop] for start, stop in zip(starts, [*starts[1:], len(values)], strict=True)]


@pytest.mark.parametrize("neat", [False, True])
def test_packed_instructions(here: Path, llama: Path, call: Call, neat: bool) -> None:
    """data_convert_llama2_instruction_pack.sh: its flags, and 64 tokens a row."""
    write(here / "rows.json", QA)
    code, said = call(
        "preprocess",
        *("--input", "rows.json", "--output-prefix", "out/alpaca", "--workers", 4, "--log-interval", 1000, "--overwrite-cache"),
        *("--handler-name", "AlpacaStyleInstructionHandler", "--prompt-type", "llama2", "--pack", "--append-eod", "--seq-length", 64),
        *(["--neat-pack"] if neat else []),
    )
    assert code == 0, said
    assert "no second one follows" in said
    ids, attention, labels = (pair(here / "out" / f"alpaca_packed_{key}_document") for key in INSTRUCTION)
    assert {len(row) for row in (*ids, *attention, *labels)} == {64} and 1 < len(ids) < len(QA)
    found = []
    for row, mask, label in zip(ids, attention, labels, strict=True):
        used = len(row) - [value == -100 for value in label[::-1]].index(False)
        starts = [at for at, number in enumerate(row[:used]) if number == token(llama, BOS)]
        found += list(zip(parts(row[:used], starts), parts(label[:used], starts), strict=True))
        numbers = [number for number, part in enumerate(parts(row[:used], starts), 1) for _ in part]
        assert mask == (numbers + [0] * (64 - used) if neat else [1] * 64)
        assert label[used:] == [-100] * (64 - used)
    assert sorted(found) == sorted(slots(llama, row) for row in QA)


def test_pairs(here: Path, llama: Path, call: Call) -> None:
    """data_convert_llama2_pairwise.sh: its flags, rows as those of orca_rlhf.jsonl."""
    rows = [{"system": f"Be {n}.", "question": f"What is {n}?", "chosen": f"Number {n}", "rejected": f"No {n}"} for n in range(6)]
    jsonl(here / "orca_rlhf.jsonl", rows)
    code, said = call(
        "preprocess",
        *("--input", "orca_rlhf.jsonl", "--output-prefix", "out/orca_rlhf", "--workers", 4, "--log-interval", 1000),
        *("--handler-name", "AlpacaStylePairwiseHandler", "--prompt-type", "llama2", "--seq-length", 4096),
        *("--map-keys", json.dumps({"prompt": "question", "query": "", "system": "system"})),
    )
    assert code == 0, said
    found = {key: pair(here / "out" / f"orca_rlhf_packed_{key}_document") for key in PAIRS}
    for number, row in enumerate(rows):
        asked = [token(llama, BOS), *plain(llama, f"[INST] <<SYS>>\n{row['system']}\n<</SYS>>\n\n{row['question']} [/INST]")]
        for side in ("chosen", "rejected"):
            answer = [*plain(llama, row[side]), token(llama, EOS)]
            assert found[f"{side}_input_ids"][number] == asked + answer
            assert found[f"{side}_labels"][number] == [-100] * len(asked) + answer
