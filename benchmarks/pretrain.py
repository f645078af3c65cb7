"""Pretraining throughput: our pipeline against the plain way, `tokenizers` in batches, on the same documents in the same run.

    python benchmarks/pretrain.py FILE.jsonl --tokenizer DIRECTORY

Prints ratios only: absolute times belong to the machine. The plain way reads with `json`, encodes batches of 1,000 documents with
`tokenizers.encode_batch_fast`, appends the end-of-text token and writes raw ids; it does not validate, deduplicate, hash or check anything.
Every pair runs in a process of its own, because the fast engine remembers words. Loading the tokenizer and choosing the engine, which is done
once a process whatever the size of the corpus, is not timed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.assets.graph import ASSETS, CHECKS, run_check
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Pretrain
from prep_assets.stores.published import Published
from prep_assets.tokenization.vocabulary import Vocabulary


def plain(source: Path, vocabulary: Vocabulary, out: Path) -> int:
    """The plain way; returns the number of tokens."""
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


def workspace_for(source: Path, tokenizer: str, folder: Path) -> Workspace:
    """A workspace of one domain, its tokenizer loaded and its engine chosen."""
    config = f"tokenizer: {tokenizer}\noutput: {{storage_format: bin}}\ndomains:\n  docs: {{files: [{source}], schema: text}}\n"
    (folder / "pretrain.yaml").write_text(config, "utf-8")
    workspace = Workspace(folder, folder / "stores")
    workspace.engines(workspace.family(Pretrain))
    return workspace


def ours(workspace: Workspace) -> Published:
    """`pretrain_raw` and `pretrain_tokens`, written with all their audits. Checks are timed apart."""
    for asset in ("pretrain_raw", "pretrain_tokens"):
        build = ASSETS[asset].build(workspace, "docs")
        published = build.propose()
        build.place.accept(published, {})
    return published


def once(source: Path, tokenizer: str) -> dict[str, Any]:
    """Seconds of the plain way, of ours and of the checks; how many tokens; the engine."""
    with tempfile.TemporaryDirectory() as name:
        workspace = workspace_for(source, tokenizer, Path(name))
        family = workspace.family(Pretrain)
        clock = [time.perf_counter()]
        published = ours(workspace)
        clock.append(time.perf_counter())
        failed = [check.name for check in CHECKS["pretrain_tokens"] if not run_check(check, workspace, published).passed]
        clock.append(time.perf_counter())
        expected = plain(source, workspace.vocabulary(family), Path(name) / "plain.bin")
        clock.append(time.perf_counter())
    seconds = dict(zip(("ours", "checks", "plain"), np.diff(clock).tolist(), strict=True))
    tokens = {"plain": expected, "ours": int(published.manifest.counts["tokens"])}
    return {"seconds": seconds, "tokens": tokens, "failed": failed, "engine": workspace.engines(family).first.name}


def main() -> None:
    """Run the pairs, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    source, tokenizer = arguments.file.resolve(), str(Path(arguments.tokenizer).resolve())
    if arguments.once:
        print(json.dumps(once(source, tokenizer)))
        return
    command = [sys.executable, __file__, str(source), "--tokenizer", tokenizer, "--once"]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1]) for _ in range(arguments.repeats)]
    tokens, seconds = runs[0]["tokens"], [run["seconds"] for run in runs]
    print(
        f"{source.stat().st_size / 1e6:,.1f} MB of JSONL, engine {runs[0]['engine']}; tokens: plain {tokens['plain']:,}, ours {tokens['ours']:,} "
        f"(control tokens typed in documents stay text, duplicates go); failed checks: {runs[0]['failed'] or 'none'}"
    )
    for over, under in (("plain", "ours"), ("checks", "ours")):
        ratios = ", ".join(f"{each[over] / each[under]:.1f}x" for each in seconds)
        print(f"{over} / {under}: {ratios}")


if __name__ == "__main__":
    main()
