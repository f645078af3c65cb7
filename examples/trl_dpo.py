"""Two steps of TRL's DPO trainer on ``preferences.jsonl``, with a tiny random model on the CPU.

    dagster asset materialize --select preferences
    python examples/trl_dpo.py data/stores/preferences/current/preferences.jsonl configs/tokenizer

The trainer tokenizes by itself, so it gets the text: ``prompt, chosen, rejected``.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

PAIRS = 32
"""Pairs that two steps choose from; `datasets.load_dataset("json", …)` reads them all."""


def main(file: str, tokenizer_folder: str) -> None:
    """Train on the first pairs of a file."""
    torch.manual_seed(0)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tokenizer_folder)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
    )
    rows = [json.loads(line) for line in Path(file).read_text("utf-8").splitlines()[:PAIRS]]
    with tempfile.TemporaryDirectory() as output:
        config = DPOConfig(
            output_dir=output,
            max_steps=2,
            per_device_train_batch_size=2,
            max_length=512,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
        )
        reference = copy.deepcopy(model)
        data = Dataset.from_list(rows)
        trainer = DPOTrainer(model=model, ref_model=reference, args=config, train_dataset=data, processing_class=tokenizer)
        print(f"loss after two steps: {trainer.train().training_loss:.3f}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
