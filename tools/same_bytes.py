"""Whether two states of the code give the same bytes: builds configurations, and compares the hashes of every store, refusal count and verdict.

    python tools/same_bytes.py cases DATA FOLDER          write configurations for real data sets (PREP_ASSETS_TEST_DATA) × templates × tokenizers
    python tools/same_bytes.py record OUT.json FOLDER …   build every configuration below the folders, with the code that Python imports
    python tools/same_bytes.py compare A.json B.json      what differs; exit code 1 where anything does

A configuration is a folder that has a file of a family, such as `configs/` and the recipes. `case.json` beside it may hold options of one run.
Run `record` once with each state: ``PYTHONPATH=CHECKOUT CHECKOUT/.venv/bin/python tools/same_bytes.py record …``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from prep_assets.config.models import TRAINED

Cases = dict[str, tuple[str, str, dict[str, Any]]]
CHATS: Cases = {
    "gsm8k": ("gsm8k/train.jsonl", "gsm8k", {}),
    "alpaca_en": ("llama_factory/alpaca_en_demo.json", "alpaca", {}),
    "alpaca_zh": ("llama_factory/alpaca_zh_demo.json", "alpaca", {}),
    "v1_sft": ("llama_factory/v1_sft_demo.jsonl", "messages", {}),
    "glaive": ("llama_factory/glaive_toolcall_en_demo.json", "sharegpt", {}),
    "reason_tools": ("llama_factory/reason_tool_use_demo_50.jsonl", "messages", {}),
    "moss": ("moss/conversations.jsonl", "moss", {}),
    "moss_plugins": ("moss/conversations.jsonl", "moss", {"plugins": True, "system_key": "meta_instruction"}),
    "kto": ("llama_factory/kto_en_demo.json", "kto", {}),
}
PAIRS: Cases = {
    "hh": ("hh_rlhf/harmless_base_1500.jsonl.gz", "hh", {}),
    "dpo_en": ("llama_factory/dpo_en_demo.json", "sharegpt_pairwise", {}),
    "v1_dpo": ("llama_factory/v1_dpo_demo.jsonl", "preference", {}),
}
TEXTS: Cases = {"c4": ("llama_factory/c4_demo.jsonl", "text", {}), "wiki": ("llama_factory/wiki_demo.txt", "text", {})}
SHIPPED = {
    name: name
    for name in (
        "plain",
        "chatml",
        "llama2",
        "llama3",
        "qwen",
        "qwen3",
        "gemma",
        "mistral",
        "glm4",
        "phi",
        "deepseek-r1",
        "vicuna",
        "alpaca",
        "default",
    )
}
ROWS = 40


def first_rows(source: Path, target: Path, rows: int) -> None:
    """Rows that are evenly spread over a file, in a file of the same form."""
    if source.suffix == ".json":
        found = json.loads(source.read_text("utf-8"))
        target.write_text(json.dumps(found[:: max(1, len(found) // rows)][:rows], ensure_ascii=False), "utf-8")
        return
    opened = gzip.open if source.suffix == ".gz" else open
    with opened(source, "rb") as file:
        lines = [line for line in file if line.strip()]
    with opened(target, "wb") as file:
        file.writelines(lines[:: max(1, len(lines) // rows)][:rows])


def write_cases(data: Path, folder: Path) -> None:
    """One configuration for each template and tokenizer, with all data sets as domains."""
    import yaml

    cut = folder / "data"
    cut.mkdir(parents=True)
    for path, *_ in {**CHATS, **PAIRS, **TEXTS}.values():
        first_rows(data / path, cut / Path(path).name, ROWS)

    def domains(sets: dict[str, Any]) -> dict[str, Any]:
        return {
            name: {"files": [str(cut / Path(path).name)], "schema": schema, "options": options}
            for name, (path, schema, options) in sets.items()
        }

    def write(name: str, family: str, options: dict[str, Any]) -> None:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / f"{family}.yaml").write_text(yaml.safe_dump(options), "utf-8")

    published = {path.stem: str(path) for path in sorted((data / "chat_templates" / "trl").glob("*.jinja"))}
    for tokenizer in ("smollm", "gpt2", "mistral_v3"):
        made = {"tokenizer": str(data / "tokenizers" / tokenizer), "tokenizer_loader": "file"}
        for name, template in ({**published, **SHIPPED} if tokenizer != "mistral_v3" else SHIPPED).items():
            common = {**made, "template": template, "test_fraction": 0.1}
            write(
                f"{name}-{tokenizer}",
                "sft",
                {**common, "packing": {"strategy": "bfd", "row_len": 8192, "overlong": "drop"}, "domains": domains(CHATS)},
            )
            write(f"{name}-{tokenizer}", "preference", {**common, "domains": domains(PAIRS)})
        for storage in ("h5", "bin"):
            write(f"pretrain-{tokenizer}-{storage}", "pretrain", {**made, "output": {"storage_format": storage}, "domains": domains(TEXTS)})


def cases_below(folders: list[str]) -> Iterator[Path]:
    """Every folder below some folders that has a configuration."""
    for folder in map(Path, folders):
        yield from sorted({path.parent for family in TRAINED for path in folder.rglob(f"{family}.yaml")})


def record(case: Path) -> tuple[str, dict[str, Any]]:
    """What a configuration gives: by store, the hashes of its files and what is said of it."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import prep_assets as pa
    from prep_assets.errors import PrepAssetsError

    note = json.loads((case / "case.json").read_text("utf-8")) if (case / "case.json").is_file() else {}
    families = [note["family"]] if note else [family for family in TRAINED if (case / f"{family}.yaml").is_file()]
    found: dict[str, Any] = {}
    stores = Path(tempfile.mkdtemp(prefix="same-", dir=os.environ.get("SAME_BYTES_DIR")))
    try:
        for family in families:
            overrides = {family: note["overrides"]} if note.get("overrides") else {}
            workspace = pa.Workspace(case, stores, overrides=overrides)
            try:
                names = dict.fromkeys(label.partition("[")[0] for label in pa.status(workspace))
                pa.build(workspace, *(name for name in names if family_of(name) == family), publish=True)
            except PrepAssetsError as error:
                found[f"{family}: error"] = type(error).__name__
                found[f"{family}: message"] = str(error)[:1000].replace(str(stores), "STORES")
            except Exception as error:  # a test's own code may be missing; both states say the same
                found[f"{family}: error"] = f"{type(error).__name__}"
        for pointer in sorted(
            [*stores.glob("*/current"), *stores.glob("*/*/current"), *stores.glob("*/candidate"), *stores.glob("*/*/candidate")]
        ):
            found[pointer.relative_to(stores).as_posix()] = store(pointer.resolve())
    finally:
        shutil.rmtree(stores, ignore_errors=True)
    return str(case), found


def family_of(asset: str) -> str:
    """The family of an asset, by its name."""
    return {"preferences": "preference", "arithmetic": "rl"}.get(asset.partition("_")[0], asset.partition("_")[0])


def store(folder: Path) -> dict[str, Any]:
    """One store: its files, what was rejected, counts, and the checks that hold."""
    files = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json"
    }
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    checked = folder.with_name(f"{folder.name}.checks.json")
    said = json.loads(checked.read_text("utf-8")) if checked.is_file() else {"checks": {}}
    return {
        "files": {name: hashlib.sha256(path.read_bytes()).hexdigest()[:24] for name, path in files.items()},
        "counts": {key: value for key, value in manifest["counts"].items() if key != "quarantine"},
        "rejected": manifest["quarantine"][:24],
        "checks": {name: passed for name, (passed, *_) in said["checks"].items()},
    }


def compare(before: Path, after: Path) -> int:
    """Print what differs; the number of cases that do."""
    old, new = (json.loads(path.read_text("utf-8")) for path in (before, after))
    differing = 0
    for case in old:
        if case not in new:
            print(f"{case}: not recorded after")
            differing += 1
            continue
        keys = sorted(key for key in {*old[case], *new[case]} if not key.endswith(": message") and old[case].get(key) != new[case].get(key))
        for key in keys:
            was, now = old[case].get(key), new[case].get(key)
            if isinstance(was, dict) and isinstance(now, dict):
                parts = [part for part in was if was[part] != now.get(part)]
                print(
                    f"{case}: {key}: {', '.join(parts)}", *(f"    {part}: {was[part]} → {now.get(part)}"[:400] for part in parts), sep="\n"
                )
            else:
                print(f"{case}: {key}: {str(was)[:100]} → {str(now)[:100]}", new[case].get(f"{key.partition(':')[0]}: message", "")[:600])
        differing += bool(keys)
    print(f"{len(old):,} configurations, {sum(len(each) for each in old.values()):,} stores and errors, {differing:,} differ")
    return differing


def main(arguments: list[str]) -> int:
    command, *more = arguments
    if command == "cases":
        write_cases(Path(more[0]), Path(more[1]))
    elif command == "record":
        with get_context("spawn").Pool(int(os.environ.get("SAME_BYTES_WORKERS", "2")), maxtasksperchild=20) as pool:
            found = {}
            for case, stores in pool.imap_unordered(record, cases_below(more[1:])):
                found[case] = stores
                print(f"{len(found):,} {case}", file=sys.stderr)
        Path(more[0]).write_text(json.dumps(dict(sorted(found.items())), indent=1), "utf-8")
    else:
        return min(1, compare(Path(more[0]), Path(more[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
