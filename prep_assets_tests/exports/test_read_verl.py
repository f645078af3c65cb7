"""verl's own data sets on our Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets.exports import export
from prep_assets_tests.exports.conftest import some, write_lines
from prep_assets_tests.exports.readers import reader, verl

pytestmark = pytest.mark.readers
TOKENIZER = Path(__file__).resolve().parents[2] / "configs" / "tokenizer"
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
