"""The memory that one large record takes, in builds and in checks, as times its size.

    PYTHONPATH=tools python -m harness.large_record --megabytes 25

What counts is the most memory that the system could not take back, beyond what a process takes for small records alone. It may be ten times the record.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.memory import BUILD, Measured, in_a_process, text_of
from prep_assets_tests.graph.families import FAMILIES
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, workspace_in

ALLOWED = 10
SMALL = 50
"""Records beside the large one."""
LIMIT = 1 << 24
"""Tokens of a record, which nothing cuts off."""
Row = Callable[[int, str], dict[str, Any]]
KINDS: dict[str, tuple[str, list[str], Row]] = {
    "document": ("pretrain", ["pretrain_tokens"], lambda number, text: {"text": f"{number} {text}"}),
    "chat": (
        "sft",
        ["sft_tokens"],
        lambda number, text: {"messages": [{"role": "user", "content": f"{number}"}, {"role": "assistant", "content": text}]},
    ),
    "pair": (
        "preference",
        ["preferences_by_domain", "preference_tokens_by_domain"],
        lambda number, text: {"prompt": f"{number}", "chosen": text, "rejected": f"{number} no"},
    ),
    "prompt": ("rl", ["rl_prompts_by_domain", "rl_tokens_by_domain"], lambda number, text: {"prompt": f"{number} {text}", "gold": number}),
    "group": (
        "rl",
        ["rl_groups_by_domain"],
        lambda number, text: {"prompt": f"{number}", "responses": [text, "no"], "rewards": [1.0, 0.25]},
    ),
    "contrast": ("contrastive", ["contrastive"], lambda number, text: {"query": f"{number}", "pos": [text], "neg": ["no"]}),
}


def _measured(folder: Path, kind: str, asset: str, text: str, options: dict[str, Any]) -> Measured:
    """A store of small records, and of one with this text if there is any."""
    family, _, row = KINDS[kind]
    chance = random.Random(0)
    rows = [row(number, text_of(chance, 50)) for number in range(SMALL)]
    folder.mkdir()
    source = jsonl(folder / "rows.jsonl", [*rows[: SMALL // 2], *([row(1000, text)] if text else []), *rows[SMALL // 2 :]])
    own = {"rl": {"arithmetic": {"n": 100}}, "sft": {"template": "chatml"}}.get(family, {})
    limit = {} if family in ("pretrain", "contrastive") else {"preprocessing": {"max_seq_len": LIMIT}}
    schema = "group" if kind == "group" else FAMILIES[family].schema
    workspace_in(folder, minimal(family, {"a": domain(source, schema)}, workers=1, **own, **limit, **options))
    in_a_process(folder, asset)  # what it is made from, and the choice of the engine
    return in_a_process(folder, asset, "--force")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=25)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--tokenizer", help="another one than that of the samples")
    parser.add_argument("--text", type=Path, help="a file of text that the record repeats, instead of made words")
    parser.add_argument("--where", action="store_true", help="say what was done when most was taken")
    options = parser.parse_args()
    size, wrong = int(options.megabytes * 2**20), 0
    text = options.text.read_text("utf-8") if options.text else text_of(random.Random(1), 200_000)
    text = (text * (size // len(text) + 1))[:size]
    more = {"tokenizer": options.tokenizer} if options.tokenizer else {}
    for kind, asset in ((each, asset) for each in options.kinds for asset in KINDS[each][1]):
        with tempfile.TemporaryDirectory() as folder:
            small, large = (_measured(Path(folder) / name, kind, asset, each, more) for name, each in (("small", ""), ("large", text)))
        base, bytes_of = small.peaks[small.most], len(text.encode())
        times = {phase: (peak - base) / bytes_of for phase, peak in large.peaks.items()}
        checks = {phase: each for phase, each in times.items() if phase != BUILD}
        dearest = max(checks, key=checks.__getitem__)
        wrong += max(times.values()) > ALLOWED
        print(f"{kind:9} {asset:28} build {times[BUILD]:5.1f}  dearest check {checks[dearest]:5.1f} ({dearest})", flush=True)
        for phase, each in times.items() if options.where else ():
            print(f"    {phase:22} {each:5.1f}  {large.where[phase]}", flush=True)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
