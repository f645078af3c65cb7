"""Pretraining throughput: our pipeline against the plain way, `tokenizers` in batches, on the same documents in the same run.

    python benchmarks/pretrain.py FILE.jsonl --tokenizer DIRECTORY

Prints ratios only: absolute times belong to the machine. The plain way reads with `json`, encodes batches of 1,000 documents with
`tokenizers.encode_batch_fast`, appends the end-of-text token and writes raw ids; it does not validate, deduplicate, hash or check anything.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from prep_assets.pipelines.graph import ASSETS
from prep_assets.pipelines.workspace import Workspace
from prep_assets.tokenization.vocabulary import load_vocabulary


def plain(source: Path, tokenizer: str, out: Path) -> int:
    """The plain way; returns the number of tokens."""
    vocabulary = load_vocabulary(tokenizer)
    total = 0
    with source.open(encoding="utf-8") as lines, out.open("wb") as sink:
        batch: list[str] = []
        for line in [*lines, ""]:
            if line:
                batch.append(json.loads(line)["text"])
            if len(batch) == 1000 or (not line and batch):
                for encoding in vocabulary.backend.encode_batch_fast(batch, add_special_tokens=False):
                    ids = np.asarray([*encoding.ids, vocabulary.eos_id], np.int32)
                    ids.tofile(sink)
                    total += len(ids)
                batch = []
    return total


def ours(source: Path, tokenizer: str, folder: Path) -> int:
    """`pretrain_raw` and `pretrain_tokens`, published with all their audits; returns the number of tokens."""
    config = f"tokenizer: {tokenizer}\noutput: {{storage_format: bin}}\ndomains:\n  docs: {{files: [{source}], schema: text}}\n"
    (folder / "pretrain.yaml").write_text(config, "utf-8")
    workspace = Workspace(folder, folder / "stores")
    ASSETS["pretrain_raw"].build(workspace, "docs").publish()
    return int(ASSETS["pretrain_tokens"].build(workspace, "docs").publish().manifest.counts["tokens"])


def main() -> None:
    """Time both three times, in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokenizer", required=True)
    arguments = parser.parse_args()
    source, tokenizer = arguments.file.resolve(), str(Path(arguments.tokenizer).resolve())
    ratios = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            start = time.perf_counter()
            expected = plain(source, tokenizer, folder / "plain.bin")
            middle = time.perf_counter()
            found = ours(source, tokenizer, folder)
            ratios.append((middle - start) / (time.perf_counter() - middle))
    size = source.stat().st_size / 1e6
    print(
        f"{size:,.1f} MB of JSONL; tokens: plain {expected:,}, ours {found:,} (control tokens typed in documents stay text, duplicates go)"
    )
    print(f"plain / ours: {', '.join(f'{ratio:.1f}x' for ratio in ratios)}")


if __name__ == "__main__":
    main()
