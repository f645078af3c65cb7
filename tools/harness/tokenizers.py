"""The memory of one process that builds `sft_packed` with many tokenizers, one after the other.

    PYTHONPATH=tools python -m harness.tokenizers --tokenizers 40 --domains 31

The tokenizers are copies of the shipped one, and of those of PREP_ASSETS_TEST_DATA where that is set, each with an added token of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prep_assets.caches import CACHES
from prep_assets.engine import build
from prep_assets.own_process import set_up
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.effort import without_fsync
from prep_assets_tests.graph.workspaces import CONFIGS, domain, jsonl, minimal, workspace_in

MOST = 800_000_000
"""Bytes that a process may have had at once, with all that it has imported."""


def _tokenizer(source: Path, number: int, folder: Path) -> str:
    """A copy of a tokenizer with the tokens of ChatML and one that no other copy has."""
    spec = json.loads((source / "tokenizer.json").read_text("utf-8"))
    known = {token["content"]: token["id"] for token in spec["added_tokens"]}
    flags = {**dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False), "special": True}
    wanted = [text for text in ("<|im_start|>", "<|im_end|>", f"<|copy_{number}|>") if text not in known]
    first = 1 + max(*spec["model"]["vocab"].values(), *known.values())
    spec["added_tokens"] += [{"id": first + at, "content": text, **flags} for at, text in enumerate(wanted)]
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(spec), "utf-8")
    (folder / "tokenizer_config.json").write_bytes((source / "tokenizer_config.json").read_bytes())
    return str(folder)


def _chats(kind: int) -> Iterator[dict[str, Any]]:
    """Chats of one form, which no other kind has."""
    for row in range(12):
        rounds = [("user", f"What is {row} + {kind}?"), ("assistant", f"It is {row + kind}.")] * (1 + kind // 2)
        yield {"messages": [{"role": role, "content": text} for role, text in [("system", "Be brief.")][: kind % 2] + rounds]}


def workspaces_in(folder: Path, tokenizers: int, domains: int) -> None:
    """A workspace for each tokenizer, in folders by number."""
    real = os.environ.get("PREP_ASSETS_TEST_DATA")
    sources = [CONFIGS / "tokenizer", *([Path(real) / "tokenizers" / name for name in ("gpt2", "smollm")] if real else [])]
    named = {f"d{kind}": domain(jsonl(folder / f"d{kind}.jsonl", _chats(kind)), "messages") for kind in range(domains)}
    options = {"template": "chatml", "tokenizer_loader": "file", "packing": {"strategy": "concat", "row_len": 256}}
    for number in range(tokenizers):
        tokenizer = _tokenizer(sources[number % len(sources)], number, folder / f"tokenizer{number}")
        sft = {**minimal("sft", named, **options)["sft"], "tokenizer": tokenizer}
        workspace_in(folder / str(number), {"sft": sft})


def memory(which: str) -> int:
    """Bytes of this process that are in memory: ``VmRSS`` now, ``VmHWM`` at most so far."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(which))


def measured(tokenizers: int, domains: int) -> tuple[list[int], int]:
    """Bytes in memory after each tokenizer, and the most at any time, of a process of its own that finds nothing about them on disk."""
    with tempfile.TemporaryDirectory() as folder:
        workspaces_in(Path(folder), tokenizers, domains)
        command = [sys.executable, "-m", "harness.tokenizers", "--tokenizers", str(tokenizers), "--build", folder]
        environment = {**os.environ, "PREP_ASSETS_CACHE": f"{folder}/cache", "PYTHONPATH": str(Path(__file__).parents[1])}
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout.splitlines()[-1]
        *after, peak = json.loads(said)
        return after, peak


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizers", type=int, default=40)
    parser.add_argument("--domains", type=int, default=31)
    parser.add_argument("--build", type=Path, help="in this process, what is in this folder")
    options = parser.parse_args()
    if options.build is not None:
        without_fsync()
        set_up()  # as the command does
        found = []
        for number in range(options.tokenizers):
            folder = options.build / str(number)
            build(Workspace(folder / "configs", folder / "stores"), "sft_packed")
            found.append(memory("VmRSS"))
        print(", ".join(f"{name} {len(cache)}/{cache.maxsize:.0f}" for name, cache in CACHES.items() if cache), file=sys.stderr)
        print(json.dumps([*found, memory("VmHWM")]))
        return
    after, peak = measured(options.tokenizers, options.domains)
    print(f"after each of {len(after)} tokenizers: {', '.join(f'{size >> 20:,}' for size in after)} MiB; at most {peak >> 20:,} MiB")
    raise SystemExit(peak >= MOST)


if __name__ == "__main__":
    main()
