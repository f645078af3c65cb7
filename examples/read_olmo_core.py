"""Read an OLMo-core export with its own packing data set (`pip install ai2-olmo-core`): a row, its documents, and its shifted labels.

prep-assets export sft_packed --to olmo --out out/olmo --option vocab_size=4096
python examples/read_olmo_core.py out/olmo 4096
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from olmo_core.data.numpy_dataset import NumpyPackedFSLDataset
from olmo_core.data.utils import get_labels


def main(folder: str, vocab_size: int) -> None:
    parts = [str(path) for path in sorted(Path(folder).glob("token_ids_part_*.npy"))]
    dataset = NumpyPackedFSLDataset(
        *parts,
        sequence_length=1024,
        pad_token_id=0,
        eos_token_id=0,
        vocab_size=vocab_size,
        dtype=np.min_scalar_type(vocab_size - 1).type,
        label_mask_paths=[part.replace("token_ids", "labels_mask") for part in parts],
        generate_doc_lengths=True,
        use_array_if_local=False,  # borders from our .csv.gz; otherwise every end token is one
    )
    with tempfile.TemporaryDirectory() as work:
        dataset.work_dir, dataset.fs_local_rank = Path(work), 0
        dataset.prepare()
        row = dataset[0]
    labels = get_labels({key: row[key][None] for key in ("input_ids", "label_mask")})
    print(f"{len(dataset):,} rows; the first begins with {row['input_ids'][:8].tolist()}")
    print(f"its documents: {row['doc_lens'].tolist()[:6]} …, labels {tuple(labels.shape)}, {int((labels != -100).sum())} trained")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
