"""The callback that records which rows each step of a `transformers.Trainer` sees, and so those of TRL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import TrainerCallback

from prep_assets.errors import ConfigError
from prep_assets.extensions.training.collate import IGNORE
from prep_assets.extensions.training.recording import ROWS, RowRecord

PART = 1024
"""Tokens whose logits are made float32 together."""


class RecordRows(TrainerCallback):  # type: ignore[misc]
    """Records steps of the trainer that it was added to by `record_rows`."""

    def __init__(self, record: RowRecord) -> None:
        self.record = record
        self._tokens = list[Tensor]()

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Begin, or resume after the step of the checkpoint."""
        self.record.begin(after=state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Record an optimizer step."""
        self.record.step(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """A checkpoint has all steps before it in the record."""
        self.record.sync()

    def look(self, model: Any, args: Any, inputs: Any, outputs: Any) -> None:
        """Keep the losses of the tokens of a batch, as a model gives its outputs: log probabilities of TRL's, or logits with labels."""
        labels, logits = inputs.get("labels"), getattr(outputs, "logits", None)
        if not model.training:
            return
        if getattr(outputs, "log_probs", None) is not None:
            self._tokens = [-outputs.log_probs.detach(), outputs.label_mask]
        elif labels is not None and logits is not None and logits.shape[:-1] == labels.shape:
            labels, parts = labels[:, 1:], logits.detach()[:, :-1].flatten(0, 1).split(PART)
            pairs = zip(parts, labels.flatten().split(PART), strict=True)
            losses = [cross_entropy(part.float(), of, ignore_index=IGNORE, reduction="none") for part, of in pairs]
            self._tokens = [torch.cat(losses).view_as(labels), labels != IGNORE]

    def seeing(self, trainer: Any) -> Any:
        """The trainer's `compute_loss`, which sees what it is given first."""
        compute = trainer.compute_loss

        def compute_loss(model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
            rows = inputs.pop(ROWS, None)
            self._tokens.clear()
            found = compute(model, inputs, *args, **options)
            if rows is not None and trainer.model.training:
                loss = found[0] if isinstance(found, tuple) else found
                # a share of the loss over all batches of the step, which are averaged when it is recorded
                share = options.get("num_items_in_batch") is not None
                one = loss.detach() * (trainer.current_gradient_accumulation_steps if share else 1)
                # pairs have no tokens of their own: their models see other rows than the batch has
                size = int(rows[:, 2].sum()) if len(inputs.get("input_ids", ())) == 1 else None  # before the padding of pad_to_multiple_of
                self.record.see(rows, *([each[:, :size] for each in self._tokens] if self._tokens and rows[:, 2].all() else [one]))
            return found

        return compute_loss


def record_rows(trainer: Any, run: Path | str, store: Path | str) -> RecordRows:
    """Record which rows each step of a trainer sees: a `transformers.Trainer`, TRL's SFT, DPO or reward trainer.

    Args:
        trainer: made with a data set of the store's rows in their order, before ``trainer.train()``.
        run: the folder of the record.
        store: the published store that the data set was exported from.

    Returns:
        The callback, which the trainer has.

    Raises:
        ConfigError: a data set whose items have no numbers, or are not the rows of the store; several GPUs in one process.
    """
    if getattr(trainer.args, "n_gpu", 1) > 1:
        raise ConfigError(f"{trainer.args.n_gpu} GPUs in one process share a batch (DataParallel). Start one process for each: torchrun")
    if trainer.accelerator.dispatch_batches:
        raise ConfigError("with dispatch_batches one process cuts batches for all, and nothing says which rows each gets. Leave it out")
    callback = RecordRows(RowRecord(run, trainer.train_dataset, store))
    trainer.train_dataset = callback.record.numbered
    trainer.data_collator = callback.record.collate(trainer.data_collator)
    trainer.args.remove_unused_columns = False  # the number is not a column that a model reads
    trainer.compute_loss = callback.seeing(trainer)
    trainer.model.register_forward_hook(callback.look, with_kwargs=True)
    trainer.add_callback(callback)
    return callback
