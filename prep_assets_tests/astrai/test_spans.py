"""``--masking spans``: the house's own render and masks in AstrAI's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prep_assets.astrai.config import parse_pipeline
from prep_assets.astrai.preprocess import Outcome, load_tokenizer, preprocess
from prep_assets.errors import ConfigError
from prep_assets.tokenization.vocabulary import Vocabulary
from prep_assets_tests.astrai.conftest import chat, message, write_rows
from prep_assets_tests.astrai.pipelines import CHAT, DPO, GRPO, INSTRUCTION, SECTIONS_CHAT, TEXT, changed
from prep_assets_tests.astrai.reference import read_bin

TOKENIZER = Path(__file__).resolve().parents[2] / "configs" / "tokenizer"
TALK = chat(("system", "Be brief."), ("user", "What is 2+2?"), ("assistant", "4"), ("user", "And 3+3?"), ("assistant", "6"))


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return load_tokenizer(TOKENIZER)


def spans(folder: Path, rows: list[Any], pipeline: dict[str, Any], vocabulary: Vocabulary) -> Outcome:
    source = write_rows(folder / "rows.jsonl", rows)
    return preprocess([str(source)], folder / "out", parse_pipeline(pipeline, "p"), vocabulary, masking="spans")


def trained(folder: Path, vocabulary: Vocabulary, key: str = "sequence", mask: str = "loss_mask") -> str:
    found = read_bin(folder / "out" / "__default__" / "shard_0000")
    return vocabulary.decode(found[key][found[mask].astype(bool)])


def test_only_answers_and_their_stop_tokens_are_trained(tmp_path: Path, vocabulary: Vocabulary) -> None:
    spans(tmp_path, [TALK], CHAT, vocabulary)
    assert trained(tmp_path, vocabulary) == "4<|im_end|>6<|im_end|>"
    whole = read_bin(tmp_path / "out" / "__default__" / "shard_0000")["sequence"]
    pieces = [f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in TALK["messages"]]
    assert vocabulary.decode(whole) == "".join(pieces)


def test_a_control_token_in_the_content_is_plain_text(tmp_path: Path, vocabulary: Vocabulary) -> None:
    spans(tmp_path, [chat(("user", "say <|im_end|>"), ("assistant", "ok"))], CHAT, vocabulary)
    found = read_bin(tmp_path / "out" / "__default__" / "shard_0000")["sequence"].tolist()
    assert found.count(vocabulary.control["<|im_end|>"]) == 2


def test_a_fixed_action_overrules_roles(tmp_path: Path, vocabulary: Vocabulary) -> None:
    everything = changed(SECTIONS_CHAT, input={"sections": [{"field": "messages", "action": "train", "template": True}]})
    spans(tmp_path, [chat(("user", "a"), ("assistant", "b"))], everything, vocabulary)
    assert trained(tmp_path, vocabulary) == "a<|im_end|>b<|im_end|>"


def test_an_instruction_trains_its_response_and_the_end_of_text(tmp_path: Path, vocabulary: Vocabulary) -> None:
    spans(tmp_path, [{"instruction": "2+2=\n", "output": "4"}], INSTRUCTION, vocabulary)
    assert trained(tmp_path, vocabulary) == "4<|endoftext|>"


def test_text_is_the_same_either_way(tmp_path: Path, vocabulary: Vocabulary) -> None:
    rows = [{"content": "some text that is long enough to be kept by the default bounds"}]
    spans(tmp_path, rows, TEXT, vocabulary)
    by_spans = read_bin(tmp_path / "out" / "__default__" / "shard_0000")["sequence"].tolist()
    assert by_spans == vocabulary.backend.encode(rows[0]["content"]).ids


def test_pairs(tmp_path: Path, vocabulary: Vocabulary) -> None:
    row = {side: [message("user", "2+2?"), message("assistant", answer)] for side, answer in (("chosen", "4"), ("rejected", "5"))}
    spans(tmp_path, [row], DPO, vocabulary)
    assert trained(tmp_path, vocabulary, "chosen", "chosen_mask") == "4<|im_end|>"
    assert trained(tmp_path, vocabulary, "rejected", "rejected_mask") == "5<|im_end|>"


def test_groups(tmp_path: Path, vocabulary: Vocabulary) -> None:
    row = {"prompt": [message("user", "2+2?")], "responses": ["4", "Five"], "rewards": [1.0, 0.25]}
    spans(tmp_path, [row], GRPO, vocabulary)
    shard = tmp_path / "out" / "__default__" / "shard_0000"
    meta, found = json.loads((shard / "meta.json").read_text()), read_bin(shard)
    first, second, end = meta["responses"]["element_offsets"]
    texts = [vocabulary.decode(found["responses"][start:stop]) for start, stop in ((first, second), (second, end))]
    assert texts == ["4<|endoftext|>", "Five<|endoftext|>"]
    assert not found["prompts_mask"].any()


def test_a_record_in_which_nothing_is_trained_is_refused(tmp_path: Path, vocabulary: Vocabulary) -> None:
    short = changed(CHAT, preprocessing={"max_seq_len": 12})
    rows = [chat(("user", "a"), ("assistant", "b")), chat(("user", "a " * 50), ("assistant", "b")), chat(("user", "only"))]
    counts = spans(tmp_path, rows, short, vocabulary).counts
    assert (counts.kept, counts.refused) == (1, {"tokenize/nothing_to_train": 2})


def test_refusals_do_not_shift_the_records_after_them(tmp_path: Path, vocabulary: Vocabulary) -> None:
    rows = [
        {"chosen": [message("user", "q"), message("assistant", f"{n}")], "rejected": [message("user", "q"), message("assistant", "x")]}
        for n in range(4)
    ]
    rows[1]["chosen"][1]["content"] = ""
    rows[2]["rejected"][1]["weight"] = 0.5  # type: ignore[assignment]
    rows.insert(3, {side: [dict(each) for each in turns] for side, turns in rows[0].items()})
    rows[3]["chosen"][1]["weight"] = 0.5  # type: ignore[assignment]
    counts = spans(tmp_path, rows, DPO, vocabulary).counts
    assert counts.refused == {"schema/empty_answer": 1, "tokenize/fractional_weight": 2}
    assert trained(tmp_path, vocabulary, "chosen", "chosen_mask") == "0<|im_end|>3<|im_end|>"


def test_a_record_is_rendered_or_it_is_not(tmp_path: Path, vocabulary: Vocabulary) -> None:
    mixed = {"input": {"sections": [{"field": "x", "action": "mask"}, {"field": "messages", "action": "$role", "template": True}]}}
    with pytest.raises(ConfigError, match="--masking astrai"):
        spans(tmp_path, [TALK], mixed, vocabulary)


def test_a_field_that_nothing_reads_stops_the_run(tmp_path: Path, vocabulary: Vocabulary) -> None:
    with pytest.raises(ConfigError, match=r"'task' in 1 row, e.g. 'Translate.'\n.*\n  --ignore task$"):
        spans(tmp_path, [{**TALK, "task": "Translate."}], CHAT, vocabulary)


def test_tools_that_are_not_shown_refuse_their_record(tmp_path: Path, vocabulary: Vocabulary) -> None:
    assert spans(tmp_path, [TALK, {**TALK, "tools": [{"name": "f"}]}], CHAT, vocabulary).counts.refused == {"schema/unsupported_column": 1}
