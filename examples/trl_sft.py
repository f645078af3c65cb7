"""Two steps of TRL's SFT trainer on an hf_arrow export of a packed table, with a tiny random model on the CPU.

    prep-assets export sft_packed --to hf_arrow --out out/trl
    python examples/trl_sft.py out/trl configs/tokenizer

For real training, load a model in place of the random one, with FlashAttention: it keeps the documents of a row apart at no cost.
"""

from __future__ import annotations

import sys
import tempfile

import torch
from datasets import load_from_disk
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer


def main(folder: str, tokenizer_folder: str) -> None:
    """Train on rows as they are: tokens, labels and the lengths of their documents are in the data set."""
    torch.manual_seed(0)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tokenizer_folder)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
    )
    with tempfile.TemporaryDirectory() as output:
        config = SFTConfig(
            output_dir=output,
            max_steps=2,
            per_device_train_batch_size=2,
            packing=False,
            padding_free=True,
            max_length=None,
            dataset_kwargs={"skip_prepare_dataset": True},
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
        )
        trainer = SFTTrainer(model=model, args=config, train_dataset=load_from_disk(folder), processing_class=tokenizer)
        batch = next(iter(trainer.get_train_dataloader()))
        trained = int((batch["labels"] != -100).sum())
        print(
            f"first batch: {batch['input_ids'].numel():,} tokens, {trained:,} trained, {int((batch['position_ids'] == 0).sum()):,} documents"
        )
        print(f"loss after two steps: {trainer.train().training_loss:.3f}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
