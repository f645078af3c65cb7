"""What a wrong mask costs: a tiny model is trained on the same chats with the right mask and with those of common faults, and judged by its answers.

    python benchmarks/wrong_masks.py [--steps 400] [--seeds 3]

The data are the shipped GSM8K rows; the judge is the mean loss of the answers, stop tokens included, of rows that no training saw.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

import prep_assets as pa
from prep_assets.array_types import Bytes
from prep_assets.stores.table import open_stream

Row = tuple[npt.NDArray[Any], Bytes]
HELD_OUT, BATCH = 40, 8
CONFIG = """\
tokenizer: {tokenizer}
template: tokenizer
domains: {{gsm8k: {{files: [{rows}], schema: gsm8k}}}}
"""


def rows_of_gsm8k() -> list[Row]:
    """Ids and masks of the shipped rows, by a build."""
    shipped = Path(__file__).resolve().parent.parent / "configs"
    with tempfile.TemporaryDirectory() as folder:
        configs = Path(folder) / "configs"
        configs.mkdir()
        (configs / "sft.yaml").write_text(CONFIG.format(tokenizer=shipped / "tokenizer", rows=shipped / "samples" / "gsm8k.jsonl"))
        [built] = pa.build(pa.Workspace(configs, Path(folder) / "stores"), "sft_tokens")
        store = open_stream(built.published.directory, "train")
        return [(np.array(store.record(n, "tokens")), np.array(store.record(n, "loss_mask"))) for n in range(len(store))]


def without_stop(mask: Bytes) -> Bytes:
    """The last trained token, which ends the answer, is not trained."""
    changed = mask.copy()
    changed[np.flatnonzero(mask)[-1]] = 0
    return changed


FAULTS: dict[str, Callable[[Bytes], Bytes]] = {
    "right": lambda mask: mask,
    "every token trained": np.ones_like,
    "the stop not trained": without_stop,
    "one token early": lambda mask: np.append(mask[1:], np.uint8(0)),
    "one token late": lambda mask: np.append(np.uint8(0), mask[:-1]),
    "only the question trained": lambda mask: (1 - mask).astype(np.uint8),
}


def batch_loss(model: Any, rows: Sequence[Row]) -> Any:
    """The mean loss over the trained tokens of rows."""
    import torch

    longest = max(len(ids) for ids, _ in rows)
    ids, labels = torch.zeros(len(rows), longest, dtype=torch.long), torch.full((len(rows), longest), -100)
    for at, (tokens, mask) in enumerate(rows):
        ids[at, : len(tokens)] = torch.from_numpy(tokens.astype(np.int64))
        labels[at, : len(tokens)] = torch.from_numpy(np.where(mask != 0, tokens, -100).astype(np.int64))
    logits = model(
        input_ids=ids, attention_mask=(torch.arange(longest) < torch.tensor([[len(tokens)] for tokens, _ in rows])).long()
    ).logits
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def answered(rows: Sequence[Row], change: Callable[[Bytes], Bytes], steps: int, seed: int) -> tuple[float, float]:
    """Loss of held-out answers, and of their stop tokens alone, after training with a mask."""
    import torch
    import transformers

    torch.manual_seed(seed)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 4096}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, pad_token_id=0))
    optimizer, order = torch.optim.AdamW(model.parameters(), lr=3e-3), np.random.default_rng(seed)
    trained = [(ids, change(mask)) for ids, mask in rows[HELD_OUT:]]
    for _ in range(steps):
        loss = batch_loss(model, [trained[number] for number in order.choice(len(trained), BATCH, replace=False).tolist()])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    stops = [(ids, (mask - without_stop(mask)).astype(np.uint8)) for ids, mask in rows[:HELD_OUT]]
    with torch.no_grad():
        return float(batch_loss(model, rows[:HELD_OUT])), float(batch_loss(model, stops))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    rows = rows_of_gsm8k()
    print(f"| mask | loss of answers | of their stop tokens |\n|---|---|---|  median of {given.seeds} seeds, {given.steps} steps")
    for name, change in FAULTS.items():
        losses = [answered(rows, change, given.steps, seed) for seed in range(given.seeds)]
        print(f"| {name} | {median(loss for loss, _ in losses):.2f} | {median(stop for _, stop in losses):.2f} |")


if __name__ == "__main__":
    main()
