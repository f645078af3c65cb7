"""Whole published files with their schema: what is kept, what is refused and why. The expectations are counted here, the plain way."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import Refused
from prep_assets.extensions.rl.schemas import gold_as_json_number
from prep_assets.extensions.start.sniff import sniff
from prep_assets.samples import Example
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with


def rows_of(file: Path) -> list[Any]:
    if file.suffix == ".json":
        return json.loads(file.read_text("utf-8"))
    if file.suffix == ".txt":
        return [{"text": line} for line in file.read_text("utf-8").split("\n") if line]
    raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return [json.loads(line) for line in raw.decode().split("\n") if line.strip()]


def run(name: str, rows: list[Any], **options: Any) -> tuple[list[Example], Counter[str]]:
    convert = convert_with(name, options)
    examples, refused = [], Counter[str]()
    for row in rows:
        try:
            examples.append(apply(convert, row))
        except Refused as refusal:
            refused[refusal.reason] += 1
    return examples, refused


@pytest.mark.parametrize(
    ("file", "schema", "options", "kept"),
    [
        ("llama_factory/c4_demo.jsonl", "text", {}, 300),
        ("llama_factory/wiki_demo.txt", "text", {}, 30),
        ("llama_factory/alpaca_en_demo.json", "alpaca", {}, 999),
        ("llama_factory/alpaca_zh_demo.json", "alpaca", {}, 1000),
        ("llama_factory/identity.json", "alpaca", {}, 91),
        ("llama_factory/glaive_toolcall_en_demo.json", "sharegpt", {}, 300),
        ("llama_factory/reason_tool_use_demo_50.jsonl", "messages", {}, 50),
        ("llama_factory/v1_sft_demo.jsonl", "messages", {"order": "alternate"}, 500),
        ("llama_factory/v1_multimodal_demo.jsonl", "messages", {}, 24),
        ("llama_factory/mllm_demo.json", "messages", {}, 6),
        ("llama_factory/dpo_en_demo.json", "sharegpt_pairwise", {}, 300),
        ("llama_factory/v1_dpo_demo.jsonl", "preference", {"chosen_key": "chosen_messages", "rejected_key": "rejected_messages"}, 10),
        ("llama_factory/kto_en_demo.json", "kto", {}, 300),
        ("gsm8k/train.jsonl", "gsm8k", {}, 7473),
        ("gsm8k/train.jsonl", "gsm8k_prompt", {}, 7473),
        ("moss/conversations.jsonl", "moss", {}, 840),
    ],
)
def test_files_without_a_bad_row_are_kept_whole(real_data, file, schema, options, kept) -> None:
    rows = rows_of(real_data / file)
    examples, refused = run(schema, rows, **options)
    assert (len(rows), len(examples), refused) == (kept, kept, Counter())


def test_glaive_calls_observations_and_tools(real_data) -> None:
    rows = rows_of(real_data / "llama_factory/glaive_toolcall_en_demo.json")
    examples, _ = run("sharegpt", rows)
    for row, sample in zip(rows, examples, strict=True):
        for message, turn in zip(row["conversations"], sample.turns, strict=True):
            role = {"human": "user", "gpt": "assistant", "function_call": "assistant", "observation": "tool"}[message["from"]]
            is_call = message["from"] == "function_call"
            text = json.dumps(json.loads(message["value"]), ensure_ascii=False, separators=(",", ":")) if is_call else message["value"]
            assert (turn.role, turn.text, turn.regions[0].kind) == (role, text, "tool_call" if is_call else "text")
        assert [tool["function"] for tool in sample.tools] == json.loads(row["tools"])
    assert sum(region.kind == "tool_call" for sample in examples for turn in sample.turns for region in turn.regions) == 211


def test_reasoning_and_several_calls(real_data) -> None:
    rows = rows_of(real_data / "llama_factory/reason_tool_use_demo_50.jsonl")
    kinds = {"text": "text", "reasoning": "thinking", "tool_call": "tool_call"}
    for row, sample in zip(rows, run("messages", rows)[0], strict=True):
        for message, turn in zip(row["messages"], sample.turns, strict=True):
            assert turn.role == message["role"]
            assert [region.kind for region in turn.regions] == [kinds[part["type"]] for part in message["content"]]
            for part, region in zip(message["content"], turn.regions, strict=True):
                assert json.loads(region.text) == json.loads(part["value"]) if region.kind == "tool_call" else region.text == part["value"]
        assert list(sample.tools) == json.loads(row["tools"])


def test_weights_of_llama_factory_v1(real_data) -> None:
    rows = rows_of(real_data / "llama_factory/v1_sft_demo.jsonl")
    for row, sample in zip(rows, run("messages", rows)[0], strict=True):
        assert [turn.regions[0].loss_weight for turn in sample.turns] == [message["loss_weight"] for message in row["messages"]]
    rows = rows_of(real_data / "llama_factory/v1_dpo_demo.jsonl")
    for row, pair in zip(rows, run("preference", rows, chosen_key="chosen_messages", rejected_key="rejected_messages")[0], strict=True):
        for side, turns in (("chosen", pair.chosen), ("rejected", pair.rejected)):
            written = [(m["role"], m["content"][0]["value"], m["loss_weight"]) for m in row[f"{side}_messages"]]
            assert [(turn.role, turn.text, turn.regions[0].loss_weight) for turn in (*pair.prompt, *turns)] == written


def test_hh_rlhf(real_data) -> None:
    """Split by hand at the last marker: 4 rows have an empty answer, 1 has two different prompts."""
    rows = rows_of(real_data / "hh_rlhf/harmless_base_1500.jsonl.gz")
    mark = "\n\nAssistant:"
    expected, empty, different = [], 0, 0
    for row in rows:
        sides = [row[side].rsplit(mark, 1) for side in ("chosen", "rejected")]
        (prompt, chosen), (other, rejected) = [[part.strip() for part in side] for side in sides]
        if not chosen or not rejected:
            empty += 1
        elif prompt != other:
            different += 1
        else:
            expected.append((prompt, chosen, rejected))
    pairs, refused = run("hh", rows)
    assert (len(rows), len(expected), empty, different) == (1500, 1495, 4, 1)
    assert [(pair.prompt[0].text, pair.chosen[0].text, pair.rejected[0].text) for pair in pairs] == expected
    assert refused == {"empty_answer": empty, "prompts_differ": different}
    kept, refused = run("hh", rows, prompt_check="chosen")
    assert (len(kept), refused) == (1496, {"empty_answer": 4})
    turns = run("hh", rows, split_turns=True)[0]
    assert [sum(turn.role == "user" for turn in pair.prompt) for pair in turns] == [
        ("\n\n" + p).count("\n\nHuman:") for p, _, _ in expected
    ]


def test_hh_rlhf_by_the_hook_of_cerebras(real_data) -> None:
    """Its rule: chosen is cut after its last marker in any case, and rejected at the same place; whatever differs before that is refused here."""
    expected, refusals = [], 0
    rows = rows_of(real_data / "hh_rlhf/harmless_base_1500.jsonl.gz")
    for row in rows:
        at = row["chosen"].lower().rindex("assistant:") + len("assistant:")
        prompt, chosen, rejected = (text.strip() for text in (row["chosen"][:at], row["chosen"][at:], row["rejected"][at:]))
        if row["rejected"][:at].strip() == prompt and chosen and rejected:
            expected.append((prompt, chosen, rejected))
        else:
            refusals += 1
    pairs, refused = run("dpo_read_hook", rows)
    assert [(pair.prompt[0].text, pair.chosen[0].text, pair.rejected[0].text) for pair in pairs] == expected
    assert refused.total() == refusals < 10


def test_moss_texts_and_plugins(real_data) -> None:
    rows = rows_of(real_data / "moss/conversations.jsonl")
    for row, sample in zip(rows, run("moss", rows)[0], strict=True):
        texts = []
        for exchange in row["chat"].values():
            texts.append(exchange["Human"].replace("<eoh>", "").replace("<|Human|>: ", "").strip())
            texts.append(exchange["MOSS"].replace("<|MOSS|>:", "").replace("<eom>", "").strip())
        assert [turn.text for turn in sample.turns] == texts

    def unreadable(commands: str) -> bool:
        """Whether anything is left once every call and the commas between calls are taken away."""
        plain = commands.replace("<|Commands|>:", "").replace("<eoc>", "").strip()
        return bool(re.sub(r'(Search|Calculate|Solve|Text2Image)\("[^"]*"\)(,\s*|\s*$)|None\.?\s*$', "", plain))

    bad = sum(any(unreadable(exchange["Commands"]) for exchange in row["chat"].values()) for row in rows)
    kept, refused = run("moss", rows, plugins=True, system_key="meta_instruction")
    assert (len(kept), refused) == (len(rows) - bad, {"bad_tool_call": bad})
    assert bad == 8


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("gsm8k/train.jsonl", "gsm8k"),
        ("hh_rlhf/harmless_base_1500.jsonl.gz", "hh"),
        ("llama_factory/alpaca_en_demo.json", "alpaca"),
        ("llama_factory/alpaca_zh_demo.json", "alpaca"),
        ("llama_factory/c4_demo.jsonl", "text"),
        ("llama_factory/dpo_en_demo.json", "sharegpt_pairwise"),
        ("llama_factory/glaive_toolcall_en_demo.json", "sharegpt"),
        ("llama_factory/identity.json", "alpaca"),
        ("llama_factory/kto_en_demo.json", "kto"),
        ("llama_factory/mllm_demo.json", "messages"),
        ("llama_factory/reason_tool_use_demo_50.jsonl", "messages"),
        ("llama_factory/v1_dpo_demo.jsonl", "preference"),
        ("llama_factory/v1_multimodal_demo.jsonl", "messages"),
        ("llama_factory/v1_sft_demo.jsonl", "messages"),
        ("llama_factory/wiki_demo.txt", "text"),
        ("moss/conversations.jsonl", "moss"),
    ],
)
def test_sniff_names_the_right_schema_first(real_data, file, schema) -> None:
    rows = rows_of(real_data / file)[:100]
    assert sniff(rows)[0].schema == schema


def test_the_whole_train_file(real_data, convert) -> None:
    """The bytes of train-llm-from-scratch's ``rl_prompts_train.jsonl``, by their published SHA-256."""
    rows = [json.loads(line) for line in (real_data / "gsm8k/train.jsonl").read_text("utf-8").splitlines()]
    prompts = [convert("gsm8k_prompt", row) for row in rows]
    lines = [json.dumps({"prompt": p.prompt[0].text, "gold": gold_as_json_number(p.gold)}) + "\n" for p in prompts]
    assert len(lines) == 7473
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == "80b7b6650c41e07b70b63482104801eef4a884238bd1bae39225cca21bded712"
    for row, prompt in zip(rows, prompts, strict=True):
        reasoning, final = re.sub("<<[^>]*>>", "", row["answer"]).split("####")
        answer = convert("gsm8k", row).turns[1].text
        assert answer == f"<think>{reasoning.strip()}</think><answer>{final.strip()}</answer>"
        assert prompt.gold == final.strip().replace(",", "")
