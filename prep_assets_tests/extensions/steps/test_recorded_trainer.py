"""TRL's trainers with the callback: what it records is what its model was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import ConfigError
from prep_assets.extensions.steps.record import Run
from prep_assets.extensions.steps.rows import step_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.training import record_rows
from prep_assets_tests.extensions.exports.readers import reader
from prep_assets_tests.extensions.exports.test_read_trl import load, tiny, tokenizer
from prep_assets_tests.extensions.steps.conftest import NOISE, noisy

pytestmark = pytest.mark.readers


def settings(kind: Any, folder: Path, **more: Any) -> Any:
    """Two steps of two rows on the CPU, unless more is said."""
    common = {"max_steps": 2, "per_device_train_batch_size": 2, "use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no"}
    return kind(output_dir=str(folder), logging_steps=1, **{**common, **more})


def sft(workspace: Workspace, folder: Path, **options: Any) -> Any:
    """TRL's SFT trainer on the packed rows, with the documents of a batch end to end."""
    trl = reader("trl")
    data = load(workspace.built("sft_export_trl").directory)
    sizes = {"padding_free": True, "packing": False, "max_length": None, "dataset_kwargs": {"skip_prepare_dataset": True}, **options}
    config = settings(trl.SFTConfig, folder, **sizes)
    return trl.SFTTrainer(model=tiny(), args=config, train_dataset=data, processing_class=tokenizer())


def given(trainer: Any) -> list[list[list[int]]]:
    """The tokens of each batch that the model is given, in the order of its calls: a list that grows."""
    calls = list[list[list[int]]]()
    trainer.model.register_forward_pre_hook(
        lambda model, args, inputs: calls.append(inputs["input_ids"].tolist()) if model.training else None, with_kwargs=True
    )
    return calls


def test_the_record_names_the_rows_that_the_model_was_given(packed: Workspace, tmp_path: Path) -> None:
    """Over two epochs with accumulated gradients; and the losses are those of the trainer's log."""
    trainer = sft(packed, tmp_path / "out", gradient_accumulation_steps=3, max_steps=5)
    record_rows(trainer, tmp_path / "run", packed.stores / "sft_packed")
    calls, rows = given(trainer), load(packed.built("sft_export_trl").directory)
    trainer.train()
    logged = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
    run, met = Run(tmp_path / "run"), list[list[int]]()
    for step in range(1, 6):
        seen, loss = run.seen(step)
        assert loss == pytest.approx(logged[step], rel=1e-4)
        met += [rows[row.item]["input_ids"] for row in seen if row.piece == 0]
    assert [token for row in met for token in row] == [token for batch in calls for row in batch for token in row]
    [worst] = step_of(packed, tmp_path / "run", 5, top=1).rows
    assert worst.seen.loss == max(row.loss or 0 for row in run.seen(5)[0])


def test_noise_comes_first_after_a_resume(packed: Workspace, tmp_path: Path) -> None:
    """Killed after a checkpoint, and resumed by the trainer itself: the record has each row of the epoch once, and noise at the top of its steps."""
    options = {"per_device_train_batch_size": 8, "learning_rate": 3e-2, "save_strategy": "steps", "save_steps": 12, "max_steps": 16}
    options["pad_to_multiple_of"] = 64  # behind the documents of a batch
    run = tmp_path / "run"
    first = sft(packed, tmp_path / "out", **options)
    callback = record_rows(first, run, packed.stores / "sft_packed")
    first.add_callback(stop_after(14))
    first.train()
    callback.record.close()
    again = sft(packed, tmp_path / "out", **options)
    record_rows(again, run, packed.stores / "sft_packed")
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-12"))
    assert Run(run).steps == [range(1, 13), range(13, 17)]
    assert Run(run).main[0].last == 14
    epoch, found = list[int](), list[str]()
    for step in range(9, 17):
        rows = step_of(packed, run, step).rows
        names = [stretch.source.id for row in rows for stretch in row.stretches if stretch.source]
        noise = [name for name in names if noisy(int(name.rpartition(":")[2]) - 1)]
        assert noise == names[: len(noise)]
        found += noise
        epoch += [row.seen.item for row in rows if row.seen.piece == 0]
    assert sorted(epoch) == list(range(64)) and len(set(found)) == len(found) == NOISE


def stop_after(step: int) -> Any:
    from transformers import TrainerCallback

    class Stop(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
            control.should_training_stop = state.global_step == step
            return control

    return Stop()


def test_a_plain_trainer_of_transformers(packed: Workspace, tmp_path: Path) -> None:
    """Padded rows, and losses from the logits of the model, which is evaluated in between."""
    transformers, trl = reader("transformers"), reader("trl")
    data = load(packed.built("sft_export_trl").directory)
    config = settings(transformers.TrainingArguments, tmp_path / "out", eval_strategy="steps", eval_steps=1)
    collator = trl.trainer.sft_trainer.DataCollatorForLanguageModeling(pad_token_id=0)
    trainer = transformers.Trainer(
        model=tiny(), args=config, train_dataset=data, eval_dataset=data.select(range(4)), data_collator=collator
    )
    record_rows(trainer, tmp_path / "run", packed.stores / "sft_packed")
    calls = given(trainer)
    trainer.train()
    logged = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
    for step in (1, 2):
        seen, loss = Run(tmp_path / "run").seen(step)
        items = [row.item for row in seen if row.piece == 0]
        assert loss == pytest.approx(logged[step], rel=1e-4)
        for item, tokens in zip(items, calls[step - 1], strict=True):
            assert tokens[: len(data[item]["input_ids"])] == data[item]["input_ids"]
            assert not any(tokens[len(data[item]["input_ids"]) :])


def test_pairs_have_the_loss_of_their_step(tmp_path: Path) -> None:
    """DPO gives no loss by row: that of the step is recorded."""
    from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in

    trl = reader("trl")
    rows = [{"prompt": f"What is {n}?", "chosen": f" {n}.", "rejected": " No idea."} for n in range(12)]
    workspace = workspace_in(
        tmp_path, minimal("preference", {"pairs": domain(jsonl(tmp_path / "p.jsonl", rows), "preference")}, test_fraction=0)
    )
    store = build(workspace, "preferences")
    from prep_assets import export

    data = load(export(store, "hf_arrow", tmp_path / "out", stream="preferences"))
    config = settings(trl.DPOConfig, tmp_path / "trl", max_length=None)
    trainer = trl.DPOTrainer(model=tiny(), ref_model=tiny(), args=config, train_dataset=data, processing_class=tokenizer())
    record_rows(trainer, tmp_path / "run", workspace.stores / "preferences")
    trainer.train()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    for step, loss in enumerate(logged, 1):
        found = step_of(workspace, tmp_path / "run", step)
        assert found.loss == pytest.approx(loss, rel=1e-4) and [row.seen.loss for row in found.rows] == [None, None]
        assert all(len(row.stretches) == 1 for row in found.rows)


def test_rows_that_are_not_those_of_the_store(packed: Workspace, tmp_path: Path) -> None:
    trainer, store = sft(packed, tmp_path / "out"), packed.stores / "sft_packed"
    whole = trainer.train_dataset
    for changed, said in (
        (whole.select(range(63)), "has 64 rows"),
        (whole.shuffle(seed=1), "is not item"),
    ):
        trainer.train_dataset = changed
        with pytest.raises(
            ConfigError,
            match=rf"the \d\d items of this Dataset are not the rows of .*sft_packed: .*{said}.* neither filtered, shuffled nor packed",
        ):
            record_rows(trainer, tmp_path / "run", store)
    trainer.train_dataset, trainer.accelerator.dataloader_config.dispatch_batches = whole, True
    with pytest.raises(ConfigError, match="with dispatch_batches one process cuts batches for all"):
        record_rows(trainer, tmp_path / "run", store)
    trainer.accelerator.dataloader_config.dispatch_batches = None
    trainer.train_dataset = whole.to_iterable_dataset()
    with pytest.raises(ConfigError, match="items of a IterableDataset have no numbers, as it is streamed"):
        record_rows(trainer, tmp_path / "run", store)
    with pytest.raises(ConfigError, match=r"out.* is no published store, so nothing says what its rows are made of"):
        trainer.train_dataset = whole
        record_rows(trainer, tmp_path / "run", tmp_path / "out")
