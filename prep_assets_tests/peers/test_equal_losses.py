"""Trainers on our stores and on the same chats as they prepare them: equal data, equal steps, equal losses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets import export
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.extensions.exports.readers import reader
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in

pytestmark = pytest.mark.readers
STEPS, ROWS = 10, 2
TEMPLATE = """\
{%- for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}{% if m['role'] == 'assistant' %}\
{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}\
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
CHATS: list[dict[str, Any]] = [
    {"messages": [{"role": message["role"], "content": message["content"]} for message in json.loads(line)["messages"]]}
    for line in islice((ROOT / "configs" / "samples" / "chats.jsonl").read_text("utf-8").splitlines(), 30)
]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """The chats as one store of tokens, in their order."""
    folder = tmp_path_factory.mktemp("losses")
    (folder / "chat.jinja").write_text(TEMPLATE)
    source = domain(jsonl(folder / "chats.jsonl", CHATS), "messages")
    family = minimal("sft", {"chats": source}, template=str(folder / "chat.jinja"), preprocessing={"max_seq_len": 4096})
    return build(workspace_in(folder, family), "sft_tokens", "chats")


def model() -> Any:
    """A random model of two layers, the same each time."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 4096}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, pad_token_id=0))


def words() -> Any:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(ROOT / "configs" / "tokenizer")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def losses_of_trl(data: Any, folder: Path, **more: Any) -> list[float]:
    """Losses of TRL's SFT trainer; rows are drawn by its seed, the same for as many rows."""
    trl = reader("trl")
    common = {
        "max_steps": STEPS,
        "per_device_train_batch_size": ROWS,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
    }
    config = trl.SFTConfig(output_dir=str(folder), logging_steps=1, learning_rate=1e-2, max_length=None, **common, **more)
    trainer = trl.SFTTrainer(model=model(), args=config, train_dataset=data, processing_class=words())
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_trl_on_our_store_and_on_its_own_preparation(tokens: Published, tmp_path: Path) -> None:
    datasets = reader("datasets")
    ours = datasets.load_from_disk(str(export(tokens.directory, "hf_arrow", tmp_path / "ours")))
    theirs = datasets.Dataset.from_list(CHATS)
    on_ours = losses_of_trl(ours, tmp_path / "a", dataset_kwargs={"skip_prepare_dataset": True})
    on_theirs = losses_of_trl(theirs, tmp_path / "b", assistant_only_loss=True)
    assert on_ours == pytest.approx(on_theirs, rel=1e-5)
    assert len(on_ours) == STEPS and on_ours[-1] < on_ours[0]


def test_trl_on_every_token_is_another_training(tokens: Published, tmp_path: Path) -> None:
    """Its default, which trains the questions too; so the test above can fail."""
    ours = reader("datasets").load_from_disk(str(export(tokens.directory, "hf_arrow", tmp_path / "ours")))
    on_ours = losses_of_trl(ours, tmp_path / "a", dataset_kwargs={"skip_prepare_dataset": True})
    on_all = losses_of_trl(reader("datasets").Dataset.from_list(CHATS), tmp_path / "b")
    assert max(abs(one - other) for one, other in zip(on_ours, on_all, strict=True)) > 0.05


Row = tuple[Sequence[int], Sequence[int]]


def losses_of_torch(rows: Sequence[Row]) -> list[float]:
    """A loop in plain torch, as recipes of torchtune have it: labels shifted by one, the mean over the trained tokens of a batch, AdamW."""
    import torch

    trained, losses = model(), list[float]()
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    for batch in batches(rows):
        longest = max(len(ids) for ids, _ in batch)
        ids = torch.tensor([[*one, *[0] * (longest - len(one))] for one, _ in batch])
        labels = torch.tensor([[*np.where(np.array(mask) != 0, one, -100).tolist(), *[-100] * (longest - len(one))] for one, mask in batch])
        attended = torch.tensor([[*[1] * len(one), *[0] * (longest - len(one))] for one, _ in batch])
        logits = trained(input_ids=ids, attention_mask=attended).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def batches(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for step in range(STEPS):
        yield rows[step * ROWS : (step + 1) * ROWS]


def test_plain_torch_on_our_store_and_on_the_template_of_transformers(tokens: Published) -> None:
    tokenizer, theirs = words(), list[Row]()
    for chat in CHATS:
        encoded = tokenizer.apply_chat_template(chat["messages"], return_dict=True, return_assistant_tokens_mask=True)
        theirs.append((encoded["input_ids"], encoded["assistant_masks"]))
    store = open_stream(tokens.directory, "train")
    ours = [(store.record(number, "tokens").tolist(), store.record(number, "loss_mask").tolist()) for number in range(len(store))]
    assert losses_of_torch(ours) == pytest.approx(losses_of_torch(theirs), rel=1e-6)
    off_by_one = [(ids, [*mask[1:], 0]) for ids, mask in ours]
    assert losses_of_torch(ours) != pytest.approx(losses_of_torch(off_by_one), rel=1e-3)
