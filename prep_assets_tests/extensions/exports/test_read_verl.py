"""verl's own data sets on our Parquet files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from prep_assets import export
from prep_assets_tests.extensions.exports.conftest import some, write_lines
from prep_assets_tests.extensions.exports.readers import reader, verl, verl_rewards

pytestmark = pytest.mark.readers
TOKENIZER = Path(__file__).resolve().parents[3] / "configs" / "tokenizer"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(TOKENIZER, chat_template=CHATML)


def test_rl_prompts(tmp_path: Path) -> None:
    config = reader("omegaconf").OmegaConf.create(
        {"cache_dir": str(tmp_path / "cache"), "max_prompt_length": 512, "filter_overlong_prompts_workers": 1}
    )
    rows = [{"prompt": f"What is {n} + é?", "gold": float(n)} for n in range(130)]
    out = export(write_lines(tmp_path / "l", "rl_prompts_train", rows), "verl", tmp_path / "out", data_source="openai/gsm8k")
    module = verl("rl_dataset")
    dataset = module.RLHFDataset(str(out / "train.parquet"), tokenizer(), config)
    assert len(dataset) == len(rows)
    places = some(len(rows))
    batch = module.collate_fn([dataset[i] for i in places])
    for at, place in enumerate(places):
        assert batch["raw_prompt"][at] == [{"role": "user", "content": rows[place]["prompt"]}]
        assert batch["reward_model"][at] == {"style": "rule", "ground_truth": str(place)}
        assert (batch["data_source"][at], batch["index"][at]) == ("openai/gsm8k", place)


@pytest.mark.parametrize(
    ("told", "gold", "other", "score"),
    [
        ({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7"]}, "print(sum(map(int, input().split())))", "print(3)", 0.5),
        ({"test_cases": [{"input": "1 2", "output": "3"}]}, "print(sum(map(int, input().split())))", "print(4)", 0.0),
        (
            {"fn_name": "add", "inputs": [[[1, 2], 3], [[], 1]], "outputs": [6, 1]},
            "class Solution:\n    def add(self, a, b):\n        return sum(a) + b",
            "def add(a, b):\n    return 0",
            0.0,
        ),
        (
            {"fn_name": "add", "inputs": ["[1,2]\n3"], "outputs": ["6"]},
            "def add(a, b):\n    return sum(a) + b",
            "def add(a, b):\n    return 5",
            0.0,
        ),
    ],
)
def test_tests_of_code(told: Any, gold: str, other: str, score: float, tmp_path: Path) -> None:
    """The reward function that verl calls for code parses the ground truth, and rewards the gold alone."""
    judge = verl_rewards("prime_code")
    rows = [{"prompt": "p", "gold": gold, "verifier": "code", "arguments": json.dumps(told)}]
    out = export(write_lines(tmp_path / "l", "rl_prompts_train", rows), "verl", tmp_path / "out", data_source={"code": "codecontests"})
    [row] = pq.read_table(out / "train.parquet").to_pylist()
    assert row["extra_info"]["answer"] == gold
    answers = [f"```python\n{program}\n```" for program in (gold, other)]
    assert [float(judge.compute_score(answer, row["reward_model"]["ground_truth"], continuous=True)[0]) for answer in answers] == [
        1.0,
        score,
    ]


def test_sft_messages(tmp_path: Path) -> None:
    """Its mask is on the answers: their text, the end of turn and the line break that its template puts after it."""
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"Say {n}"},
                {"role": "assistant", "content": f"{n}, é"},
                {"role": "user", "content": "Again"},
            ]
        }
        for n in range(130)
    ]
    for row in rows:
        row["messages"].append({"role": "assistant", "content": "No."})
    out = export(write_lines(tmp_path / "l", "chats", rows), "verl", tmp_path / "out")
    words = tokenizer()
    dataset = verl("multiturn_sft_dataset").MultiTurnSFTDataset(
        str(out / "train.parquet"), words, {"pad_mode": "no_padding", "max_length": 512}
    )
    assert len(dataset) == len(rows)
    for place in some(len(rows)):
        item, messages = dataset[place], rows[place]["messages"]
        assert words.decode(item["input_ids"]) == words.apply_chat_template(messages, tokenize=False)
        answers = [message["content"] for message in messages if message["role"] == "assistant"]
        assert words.decode(item["input_ids"][item["loss_mask"].bool()]) == "".join(f"{answer}<|im_end|>\n" for answer in answers)


def test_pairs_of_text(tmp_path: Path) -> None:
    """Its data set of pairs joins prompt and answer and ends both; it has no place for margins, labels or lists."""
    rows = [{"prompt": f"What is {n} + é?", "chosen": f" It is {n}.", "rejected": f" No idea, {n}."} for n in range(130)]
    out = export(write_lines(tmp_path / "l", "preferences", rows), "hf_parquet", tmp_path / "out")
    words = tokenizer()
    dataset = verl("rm_dataset").RMDataset(
        [str(path) for path in out.glob("data/*.parquet")], words, max_length=64, cache_dir=str(tmp_path / "cache")
    )
    assert len(dataset) == len(rows)
    for place in some(len(rows)):
        item, row = dataset[place], rows[place]
        said = [words.decode(ids[mask.bool()]) for ids, mask in zip(item["input_ids"], item["attention_mask"], strict=True)]
        assert said == [row["prompt"] + row[side] + words.eos_token for side in ("chosen", "rejected")]
