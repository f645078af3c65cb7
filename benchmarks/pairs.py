"""One way to tokenize preference pairs, timed; `run.py` calls it.

    python benchmarks/pairs.py {ours,checks,trl} FILE.jsonl TOKENIZER [TEMPLATE]

FILE has rows ``{"prompt", "chosen", "rejected"}``, each a list of messages. Prints seconds, processor seconds and tokens as JSON. Ours is `preference_raw`,
`preferences_by_domain` and `preference_tokens_by_domain` with their audits; `checks` are all checks of the three. TRL is what its `DPOTrainer` does
with a data set before it trains. Every run is on one core, where the system can pin one; opening the tokenizer is not timed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from chats import Row, accepted, checking, timed

from prep_assets.config.models import Preference
from prep_assets.pipeline.workspace import Workspace

ASSETS = ("preference_raw", "preferences_by_domain", "preference_tokens_by_domain")
STEPS = tuple((asset, "pairs") for asset in ASSETS)


def workspace_for(source: Path, tokenizer: Path, template: str, folder: Path) -> Workspace:
    """A workspace of one domain, its tokenizer loaded and its engine chosen."""
    domains = {"pairs": {"files": [str(source)], "schema": "preference"}}
    (folder / "preference.yaml").write_text(json.dumps({"tokenizer": str(tokenizer), "template": template, "domains": domains}), "utf-8")
    workspace = Workspace(folder, folder / "stores")
    workspace.engines(workspace.family(Preference)).first.encode(["word"])
    return workspace


def ours(source: Path, tokenizer: Path, template: str) -> Row:
    """The three stores."""
    with tempfile.TemporaryDirectory() as name:
        workspace = workspace_for(source, tokenizer, template, Path(name))
        return timed(lambda: int(accepted(workspace, STEPS)[ASSETS[-1]].manifest.counts["tokens"]))


def checks(source: Path, tokenizer: Path, template: str) -> Row:
    """Their checks."""
    with tempfile.TemporaryDirectory() as name:
        workspace = workspace_for(source, tokenizer, template, Path(name))
        return checking(workspace, STEPS, ASSETS[-1])


def trl(source: Path, tokenizer: Path, template: str) -> Row:
    """The data set of TRL's `DPOTrainer`."""
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    from prep_assets.text.load_template import named_templates

    disable_progress_bars()
    opened = AutoTokenizer.from_pretrained(str(tokenizer))
    opened.chat_template = named_templates()[template]
    config = DPOConfig(output_dir=tempfile.gettempdir(), max_length=None, report_to=[], bf16=False)

    def work() -> int:
        pairs = Dataset.from_list([json.loads(line) for line in source.open(encoding="utf-8")])
        made = DPOTrainer._prepare_dataset(SimpleNamespace(_tokenizer=opened), pairs, opened, config, "train")
        return sum(2 * len(row["prompt_ids"]) + len(row["chosen_ids"]) + len(row["rejected_ids"]) for row in made)

    return timed(work)


WAYS = {"ours": ours, "checks": checks, "trl": trl}

if __name__ == "__main__":
    way, file, directory, *rest = sys.argv[1:]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(json.dumps(WAYS[way](Path(file).resolve(), Path(directory).resolve(), rest[0] if rest else "chatml")))
