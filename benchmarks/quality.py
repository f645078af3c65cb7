"""What the quality steps for documents cost: their processor time as a share of what `tokenizers` takes to encode the same texts, in one thread.

    python benchmarks/quality.py --tokenizer DIR [--rounds 5] [--each] FILE.jsonl …

The rows of a file are ``{"text": …}``. Steps and encoding take turns, block by block, and each round is a whole file, after one that is not
counted. Python searches for garbage as seldom as in a build: a search takes longer than a block, and would count for whichever is at work.
`--each` also measures every step alone, with the columns that it needs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.extensions.quality.examined import BLOCK_BYTES
from prep_assets.extensions.quality.steps import Examples, configured_steps
from prep_assets.own_process import set_up
from prep_assets.samples import Sample, document

STEPS: dict[str, dict[str, Any]] = {
    "gopher_quality": {},
    "gopher_repetition": {},
    "c4_quality": {},
    "fineweb_quality": {},
    "near_duplicates": {},
    "repeated_passages": {},
    "language": {"keep": ["en"]},
    "private_data": {},
}


def blocks_of(path: Path) -> Iterator[Examples]:
    """The documents of a file, in blocks as builds read them."""
    texts, size = list[str](), 0
    for line in path.open(encoding="utf-8"):
        texts.append(json.loads(line)["text"])
        size += len(line.encode())
        if size >= BLOCK_BYTES:
            yield Examples([*map(str, range(len(texts)))], [*map(document, texts)])
            texts, size = [], 0
    if texts:
        yield Examples([*map(str, range(len(texts)))], [*map(document, texts)])


def judging(path: Path, steps: Mapping[str, Mapping[str, Any]], encode: Callable[[Sequence[str]], object]) -> tuple[float, float]:
    """Processor seconds of steps, and of encoding, for a file."""
    at_work = [step.make() for step in configured_steps(steps, Sample)]
    judged, encoded, count = 0.0, 0.0, 0
    for examples in blocks_of(path):
        texts, begin = [*examples.texts], time.process_time()
        encode(texts)
        bytearray(1 << 16)  # the C library sorts what encoding freed when it is next asked for more than a little
        middle = time.process_time()
        for step in at_work:
            step.judge(examples)
        encoded, judged, count = encoded + middle - begin, judged + time.process_time() - middle, count + len(examples)
    begin = time.process_time()
    for step in at_work:
        step.finish(np.ones(count, bool))
    return judged + time.process_time() - begin, encoded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True, type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    set_up()
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(given.tokenizer / "tokenizer.json"))
    groups = {"all": STEPS, **({name: {name: options} for name, options in STEPS.items()} if given.each else {})}
    for path in given.files:
        for group, steps in groups.items():
            judged, encoded = zip(*[judging(path, steps, tokenizer.encode_batch) for _ in range(given.rounds + 1)][1:], strict=True)
            shares = [step / encoding for step, encoding in zip(judged, encoded, strict=True)]
            print(
                f"{path.stem:12} {group:18} {statistics.median(shares):.3f} ({min(shares):.3f}–{max(shares):.3f})"
                f"   {min(judged):.3f} s, encoding {min(encoded):.3f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
