"""TRL's own preparation, where it is installed: its trainer is made with a model of two layers, and its collator gives the labels."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from prep_assets.doctor.rules import Labelled, Stops


def installed() -> str | None:
    """The version of TRL; `None` where it, or what its trainer needs, cannot be imported."""
    try:
        import datasets  # noqa: F401
        import trl
        from trl import SFTConfig, SFTTrainer  # noqa: F401
    except ImportError:
        return None
    return str(trl.__version__)


def prepare(tokenizer: Any, rows: Sequence[Mapping[str, Any]]) -> list[Labelled]:
    """Ids and labels of every row, as `SFTTrainer` with ``assistant_only_loss`` has them.

    Raises:
        Stops: the trainer refuses the data set.
    """
    from datasets import Dataset, disable_progress_bars
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl import SFTConfig, SFTTrainer

    disable_progress_bars()
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes))
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"output_dir": folder, "report_to": "none", "use_cpu": True, "bf16": False, "disable_tqdm": True}
        try:
            config = SFTConfig(assistant_only_loss=True, max_length=None, packing=False, **options)
            trainer = SFTTrainer(model=model, args=config, train_dataset=Dataset.from_list([*map(dict, rows)]), processing_class=tokenizer)
        except Exception as error:  # whatever it says, it is TRL's answer
            raise Stops(f"TRL stops: {type(error).__name__}: {error}") from error
        return [_labelled(trainer.data_collator([row])) for row in trainer.train_dataset]


def _labelled(batch: Mapping[str, Any]) -> Labelled:
    return batch["input_ids"][0].tolist(), (batch["labels"][0] != -100).tolist()
