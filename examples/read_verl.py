"""Read a verl export with verl's own data set (`pip install verl`): prompts as messages, and what its reward function compares with.

dagster asset materialize --select +rl_prompts
prep-assets export rl_prompts --to verl --out out/verl --option data_source=openai/gsm8k
python examples/read_verl.py out/verl/train.parquet configs/tokenizer
"""

from __future__ import annotations

import sys
import tempfile

from omegaconf import OmegaConf
from torch.utils.data import DataLoader
from transformers import AutoTokenizer
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn


def main(file: str, tokenizer_folder: str) -> None:
    with tempfile.TemporaryDirectory() as cache:
        config = OmegaConf.create({"cache_dir": cache, "max_prompt_length": 1024, "filter_overlong_prompts": False})
        dataset = RLHFDataset(file, AutoTokenizer.from_pretrained(tokenizer_folder), config)
    first = dataset[0]
    print(
        f"{len(dataset):,} prompts; the first: {first['raw_prompt'][0]['content'][:40]!r} …, gold {first['reward_model']['ground_truth']!r}"
    )
    batch = next(iter(DataLoader(dataset, batch_size=4, collate_fn=collate_fn)))
    print(f"batch of {len(batch['raw_prompt'])}: {', '.join(sorted(batch))}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
