"""TRL on our files: its collators' batches teach what the store says, and its trainers take steps with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets import export
from prep_assets_tests.extensions.exports.conftest import Document, Stream, Table, some, write_lines
from prep_assets_tests.extensions.exports.learned import lessons, lessons_of, shifted
from prep_assets_tests.extensions.exports.readers import reader

pytestmark = pytest.mark.readers
TOKENIZER = Path(__file__).resolve().parents[3] / "configs" / "tokenizer"


def load(path: Path) -> Any:
    return reader("datasets").load_from_disk(str(path))


def tiny(kind: str = "LlamaForCausalLM", **options: Any) -> Any:
    """A random model of two layers, the same each time."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 4096}
    return getattr(transformers, kind)(transformers.LlamaConfig(**sizes, pad_token_id=0, **options))


def tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(TOKENIZER)


def settings(kind: Any, folder: Path, **more: Any) -> Any:
    """Two steps of two rows on the CPU."""
    common = {"max_steps": 2, "per_device_train_batch_size": 2, "use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no"}
    return kind(output_dir=str(folder), logging_steps=1, **common, **more)


def losses(trainer: Any) -> list[float]:
    """Of the steps; the weights have moved."""
    before = trainer.model.get_input_embeddings().weight.detach().clone()
    trainer.train()
    assert not before.equal(trainer.model.get_input_embeddings().weight)
    found = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(found) == 2
    return found


def test_the_sft_collator_teaches_the_packed_rows(table: Table, tmp_path: Path) -> None:
    collator = reader("trl.trainer.sft_trainer").DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    found, rows = load(export(table.folder, "hf_arrow", tmp_path / "out")), some(len(table.rows))
    batch = {key: value[0].tolist() for key, value in collator([found[row] for row in rows]).items() if getattr(value, "ndim", 0) == 2}
    taught = lessons_of(batch["input_ids"], shifted(batch["labels"]), batch["position_ids"])
    assert taught == lessons(document for row in rows for document in table.rows[row])


def test_sft_steps(table: Table, tmp_path: Path) -> None:
    """The loss of a batch is the mean over the trained tokens of its documents, each of them run through the model alone."""
    import torch

    trl = reader("trl")
    config = settings(
        trl.SFTConfig, tmp_path / "run", padding_free=True, packing=False, max_length=None, dataset_kwargs={"skip_prepare_dataset": True}
    )
    data = load(export(table.folder, "hf_arrow", tmp_path / "out"))
    trainer = trl.SFTTrainer(model=tiny(), args=config, train_dataset=data, processing_class=tokenizer())
    batch = next(iter(trainer.get_train_dataloader()))
    tokens, labels, positions = (batch[key][0].tolist() for key in ("input_ids", "labels", "position_ids"))
    taught = lessons_of(tokens, shifted(labels), positions)
    with torch.no_grad():
        found = float(trainer.compute_loss(trainer.model, dict(batch)))
        logits = [trainer.model(input_ids=torch.tensor([context])).logits[0, -1] for context, _ in taught]
        expected = torch.nn.functional.cross_entropy(torch.stack(logits), torch.tensor([target for _, target in taught]))
    assert found == pytest.approx(float(expected), rel=1e-4)
    assert all(0 < loss < 20 for loss in losses(trainer))


def test_the_reward_collator_has_both_sides(pairs: tuple[Path, list[Document], list[Document]], tmp_path: Path) -> None:
    collator = reader("trl.trainer.reward_trainer").DataCollatorForPreference(pad_token_id=0)
    folder, *sides = pairs
    found, rows = load(export(folder, "hf_arrow", tmp_path / "out")), some(len(sides[0]))
    batch = collator([found[row] for row in rows])
    expected = [documents[row][0] for documents in sides for row in rows]
    kept = [row[mask.bool()].tolist() for row, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
    assert kept == expected


def test_reward_steps_ask_for_margins(tmp_path: Path) -> None:
    """The loss of a batch is that of the rewards' differences less our margins, which the trainer reads beside our tokens."""
    import torch

    from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in

    trl, words = reader("trl"), ("It is right.", "No idea.", "Perhaps it is {}.")
    rows = [
        {"prompt": f"What is {n}?", "responses": [word.format(n) for word in words], "rewards": [0.25 * n, -1.5, 0.0]} for n in range(130)
    ]
    scored = domain(jsonl(tmp_path / "scored.jsonl", rows), "group", options={"margin": True})
    workspace = workspace_in(tmp_path, minimal("preference", {"scored": scored}, test_fraction=0))
    data = load(export(build(workspace, "preference_tokens"), "hf_arrow", tmp_path / "out"))
    assert sorted(data["margin"]) == [0.25 * n + 1.5 for n in range(130)]
    model = tiny("LlamaForSequenceClassification", num_labels=1)
    trainer = trl.RewardTrainer(
        model=model, args=settings(trl.RewardConfig, tmp_path / "run", max_length=None), train_dataset=data, processing_class=tokenizer()
    )
    batch = trainer.data_collator([data[row] for row in some(len(data))])
    with torch.no_grad():
        rewards = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.squeeze(-1)
        better, worse = rewards.chunk(2)
        expected = -torch.nn.functional.logsigmoid(better - worse - torch.tensor([data[row]["margin"] for row in some(len(data))])).mean()
        assert float(trainer.compute_loss(model, dict(batch))) == pytest.approx(float(expected), rel=1e-5)
    losses(trainer)


def test_kto_steps_on_labelled_responses(tmp_path: Path) -> None:
    """From scores to the trainer's own tokens: each response of a row with its label; the answers that it estimates KL with are to other prompts."""
    from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in

    trl, words = reader("trl"), tokenizer()
    rows = [{"prompt": f"What is {n}?", "responses": [f" {n}.", " No.", " Well."], "rewards": [1.0, -1.0, 0.0]} for n in range(60)]
    scored = domain(jsonl(tmp_path / "scored.jsonl", rows), "group_kto")
    built = build(workspace_in(tmp_path, minimal("preference", {"scored": scored}, test_fraction=0)), "preferences")
    data = load(export(built, "hf_arrow", tmp_path / "out", stream="unpaired"))
    expected = [(row["prompt"], answer, label) for row in rows for answer, label in ((row["responses"][0], True), (" No.", False))]
    assert sorted((row["prompt"], row["completion"], row["label"]) for row in data) == sorted(expected)
    config = settings(trl.KTOConfig, tmp_path / "run", max_length=None)
    trainer = trl.KTOTrainer(model=tiny(), ref_model=tiny(), args=config, train_dataset=data, processing_class=words)
    for row, found in zip(data, trainer.train_dataset, strict=True):
        assert (
            words.decode(found["prompt_ids"]) == row["prompt"]
            and words.decode(found["completion_ids"]) == row["completion"] + words.eos_token
        )
        assert found["label"] == row["label"]
    batch = 2
    prompts, kl = (
        data["prompt"],
        [words.decode(found["KL_completion_ids"]).removesuffix(words.eos_token) for found in trainer.train_dataset],
    )
    at = [(first // batch * batch) + (first - 1) % batch for first in range(len(data))]
    assert kl == [data["completion"][place] for place in at]
    assert sum(prompts[place] == prompt for place, prompt in zip(at, prompts, strict=True)) < len(data) / 10
    losses(trainer)


def test_dpo_steps(tmp_path: Path) -> None:
    """Its own tokens are those of our text: the completion of a row is the answer and the end of text, the rest of it the prompt."""
    trl = reader("trl")
    rows = [{"prompt": f"What is {n} + {n}?", "chosen": f" It is {2 * n}.", "rejected": f" No idea, {n}."} for n in range(130)]
    data = load(export(write_lines(tmp_path / "l", "preferences", rows), "hf_arrow", tmp_path / "out"))
    words = tokenizer()
    config = settings(trl.DPOConfig, tmp_path / "run", max_length=None)
    trainer = trl.DPOTrainer(model=tiny(), ref_model=tiny(), args=config, train_dataset=data, processing_class=words)
    places = some(len(rows))
    batch = trainer.data_collator([trainer.train_dataset[row] for row in places])
    completions, tokens = batch["completion_mask"].bool(), batch["attention_mask"].bool()
    both = [(row, side) for side in ("chosen", "rejected") for row in places]
    for (row, side), ids, answer, kept in zip(both, batch["input_ids"], completions, tokens, strict=True):
        assert words.decode(ids[answer]) == rows[row][side] + words.eos_token
        assert words.decode(ids[kept & ~answer]) == rows[row]["prompt"]
    # before the first step both models are the same, so the margin is 0
    assert losses(trainer)[0] == pytest.approx(0.6931, abs=1e-3)


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_dpo_takes_messages_with_one_stop_an_answer(tmp_path: Path) -> None:
    """A trainer that appends the end of text to what a template has ended teaches two stops; and one that cuts a pair apart elsewhere than where its
    answers begin compares other texts (trl#4481, trl PR#6960)."""
    trl = reader("trl")
    rows = [
        {
            "prompt": [{"role": "user", "content": f"What is {n} + {n}?"}],
            "chosen": [{"role": "assistant", "content": f"It is {2 * n}."}],
            "rejected": [{"role": "assistant", "content": f"It is not {n}."}],
        }
        for n in range(130)
    ]
    data = load(export(write_lines(tmp_path / "l", "preferences", rows), "hf_arrow", tmp_path / "out"))
    words = tokenizer()
    words.chat_template = CHATML
    assert words.eos_token != "<|im_end|>"
    config = settings(trl.DPOConfig, tmp_path / "run", max_length=None)
    trainer = trl.DPOTrainer(model=tiny(), ref_model=tiny(), args=config, train_dataset=data, processing_class=words)
    for place in some(len(rows)):
        found, row = trainer.train_dataset[place], rows[place]
        assert words.decode(found["prompt_ids"]) == f"<|im_start|>user\n{row['prompt'][0]['content']}<|im_end|>\n<|im_start|>assistant\n"
        for side in ("chosen", "rejected"):
            assert words.decode(found[f"{side}_ids"]) == f"{row[side][0]['content']}<|im_end|>\n"


def test_a_padding_token_that_ends_answers_keeps_its_labels(chats: Stream, tmp_path: Path) -> None:
    """Where the end of text pads as well, a collator that masks every padding id teaches no model to stop. TRL's takes our labels as they are."""
    found, rows = load(export(chats.folder, "hf_arrow", tmp_path / "out")), some(len(chats.documents))
    ends = [tokens[-1] for tokens, mask in (chats.documents[row] for row in rows) if len(tokens) > 1 and mask[-1]]
    pad = max(set(ends), key=ends.count)
    batch = reader("trl.trainer.sft_trainer").DataCollatorForLanguageModeling(pad_token_id=pad)([found[row] for row in rows])
    for row, tokens, labels in zip(rows, batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        assert lessons_of(tokens, shifted(labels), range(len(tokens))) == lessons([chats.documents[row]])


def test_transformers_language_modeling_collator_undoes_masks(chats: Stream, tmp_path: Path) -> None:
    """The page says not to use it: it makes labels of the tokens again, all of them but those that pad."""
    from transformers import DataCollatorForLanguageModeling

    words = tokenizer()
    words.pad_token = words.eos_token
    found = load(export(chats.folder, "hf_arrow", tmp_path / "out"))
    row = next(n for n, (tokens, mask) in enumerate(chats.documents) if len(tokens) > 2 and not all(mask[1:]))
    given = [{"input_ids": found[row]["input_ids"]}]
    labels = DataCollatorForLanguageModeling(words, mlm=False)(given)["labels"][0].tolist()
    assert lessons_of(given[0]["input_ids"], shifted(labels), range(len(labels))) != lessons([chats.documents[row]])


def test_accumulated_steps_are_means_over_all_their_tokens(chats: Stream, tmp_path: Path) -> None:
    """A mean of the means of unequal batches weighs short answers more (transformers#34191). The trainer counts our labels that are not -100."""
    trl = reader("trl")
    trained = {n: len(lessons([document])) for n, document in enumerate(chats.documents)}
    data = load(export(chats.folder, "hf_arrow", tmp_path / "out"))
    unequal = [max(trained, key=trained.__getitem__), min((n for n in trained if trained[n]), key=trained.__getitem__)]
    assert trained[unequal[0]] > trained[unequal[1]]
    taught = data.select(unequal)
    found = []
    for batch, steps in ((2, 1), (1, 2)):
        sizes = {"max_length": None, "dataset_kwargs": {"skip_prepare_dataset": True}, "gradient_accumulation_steps": steps}
        config = settings(trl.SFTConfig, tmp_path / f"run{steps}", **sizes)
        config.per_device_train_batch_size = batch
        found.append(losses(trl.SFTTrainer(model=tiny(), args=config, train_dataset=taught, processing_class=tokenizer())))
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_every_row_moves_the_weights(table: Table, tmp_path: Path) -> None:
    """A kernel or a denominator that overlooks the mask leaves no gradient (unsloth#5230)."""
    collator = reader("trl.trainer.sft_trainer").DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    data, model = load(export(table.folder, "hf_arrow", tmp_path / "out")), tiny()
    for row in some(len(data))[:20]:
        model.zero_grad()
        model(**collator([data[row]])).loss.nan_to_num().backward()
        moved = any(each.grad is not None and bool(each.grad.abs().sum()) for each in model.parameters())
        assert moved == bool(lessons(table.rows[row]))


def test_a_mask_of_ones_joins_the_documents_of_a_row(table: Table, tmp_path: Path) -> None:
    """The page says to add none: transformers finds the documents of a packed row by their positions where there is no mask (transformers PR#46634)."""
    import torch

    collator = reader("trl.trainer.sft_trainer").DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    data, model = load(export(table.folder, "hf_arrow", tmp_path / "out")), tiny().eval()
    batch = collator([data[0]])
    assert "attention_mask" not in batch
    tokens = [tokens for tokens, _ in table.rows[0]]
    with torch.no_grad():
        alone = torch.cat([model(input_ids=torch.tensor([each])).logits[0] for each in tokens])
        packed = model(**batch, use_cache=False).logits[0]
        joined = model(**batch, attention_mask=torch.ones_like(batch["input_ids"]), use_cache=False).logits[0]
    assert torch.allclose(packed, alone, atol=1e-4)
    assert not torch.allclose(joined, alone, atol=1e-2)
