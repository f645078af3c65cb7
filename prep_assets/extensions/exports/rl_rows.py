"""Prompts with their verifier and what it is told, in the rows of RL trainers. verl's are in `text_rows`.

open_instruct   Parquet ``messages``, ``ground_truth`` (the gold; tests as JSON; constraints in Python's notation; a rubric as JSON), ``dataset``: the verifier;
                of pairs ``chosen, rejected``, whole chats
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError
from prep_assets.extensions.exports.arrow import save_parquet
from prep_assets.extensions.exports.readable import Options, Readable, gold_again, parquet_table, without_nulls
from prep_assets.extensions.exports.registry import FileName, Progress, exporter, reads
from prep_assets.extensions.exports.text_rows import gold_text, require_no_tools
from prep_assets.extensions.rl.verifiers import CODE, IFEVAL, RUBRIC, code_tests, constraints, criteria
from prep_assets.stores.table import LINES, SIDES, Table

_NAMES = {"number": "gsm8k", CODE: CODE, IFEVAL: IFEVAL, RUBRIC: RUBRIC}
"""Verifier → open-instruct's name for it, where rows need not say it."""
_STDIO = "code_stdio"


@exporter(
    "open_instruct",
    LINES,
    read_by="open-instruct",
    opens={"": ("--dataset_mixer_list {folder}/{split}.parquet 1.0", "--dataset_mixer_list_splits train")},
    kind="parquet",
)
def open_instruct(
    source: Table, out: Path, progress: Progress, *, dataset: dict[str, str] | None = None, split: FileName = "train"
) -> None:
    """``<split>.parquet`` of RL prompts, or of pairs. `dataset` maps verifiers to open-instruct's names for them, where they differ."""
    pairs = "chosen" in next(iter(source))
    if pairs and dataset is not None:
        raise ConfigError(f"export 'open_instruct', option 'dataset' has no effect for pairs, which {source.path} holds. Leave it out")

    def rows() -> Iterator[dict[str, Any]]:
        for number, row in enumerate(source, 1):
            location = f"{source.path} line {number:,}"
            if pairs:
                yield _chats(row, location)
                continue
            messages, verifier = _messages(row, location), str(row.get("verifier", "number"))
            truth, name = _ground_truth(row, messages, verifier, location)
            yield {"messages": messages, "ground_truth": truth, "dataset": (dataset or {}).get(verifier, name)}

    save_parquet(out / f"{split}.parquet", rows, source, progress)


def _chats(row: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Both sides of a pair with the prompt, which open-instruct reads from the chosen one: ``chosen[:-1]``."""
    require_no_tools(row, location, "open-instruct renders both sides without")
    if "margin" in row:
        raise ConfigError(
            f"{location} has a margin, which open-instruct's losses do not read. Leave it out (ignore: [margin]), or export to hf_arrow"
        )
    if not isinstance(row["prompt"], list):
        raise ConfigError(f"{location} is text, and open-instruct reads messages. Build with form: messages")
    return {side: [*row["prompt"], *row[side]] for side in SIDES}


def _ground_truth(row: Mapping[str, Any], messages: list[dict[str, str]], verifier: str, location: str) -> tuple[str, str]:
    """The text that open-instruct's verifier parses, and its name. It reads constraints by ``ast.literal_eval``, which knows no ``null``."""
    if "arguments" not in row:
        return gold_text(row, location), _NAMES.get(verifier, verifier)
    told = json.loads(row["arguments"])
    if verifier == CODE:
        tests = code_tests(told)
        if tests.function is not None:
            raise ConfigError(
                f"{location} has tests that call {tests.function}; open-instruct runs asserts, or programs that read standard input. Keep such rows apart"
            )
        cases = [{"input": given, "output": wanted} for given, wanted in zip(tests.inputs, tests.outputs, strict=True)]
        return json.dumps(list(tests.asserts) or cases, ensure_ascii=False), CODE if tests.asserts else _STDIO
    if verifier == IFEVAL:
        asked = constraints(told)
        return repr([{"instruction_id": [each.name for each in asked], "kwargs": [dict(each.kwargs) for each in asked]}]), IFEVAL
    if verifier == RUBRIC:
        rubric = [{"description": each.text, "weight": each.weight} for each in criteria(told)]
        return json.dumps({"query": messages[-1]["content"], "rubrics": rubric}, ensure_ascii=False), RUBRIC
    raise ConfigError(
        f"{location} tells the verifier {verifier!r} something, which open-instruct's has no place for. Known: {CODE}, {IFEVAL}, {RUBRIC}"
    )


def _messages(row: Mapping[str, Any], location: str) -> list[dict[str, str]]:
    if not {"prompt", "gold"} <= set(row):
        raise ConfigError(
            f"{location} has the fields {sorted(row)}; open-instruct reads RL prompts (prompt, gold) or pairs (chosen, rejected)"
        )
    require_no_tools(row, location, "the trainer takes both from its own configuration or environment")
    return [{"role": "user", "content": row["prompt"]}] if isinstance(row["prompt"], str) else row["prompt"]


def _shown(line: Mapping[str, Any]) -> tuple[Any, str]:
    """The messages of a line, and its gold as text."""
    prompt = line["prompt"]
    return ([{"content": prompt, "role": "user"}] if isinstance(prompt, str) else without_nulls(prompt)), gold_again(
        line.get("gold_text", line["gold"])
    )


@reads("open_instruct")
def read_open_instruct(folder: Path, source: Table, options: Options) -> Readable:
    """Open an `open_instruct` export with code independent of its writer."""
    table = parquet_table([folder / f"{options['split']}.parquet"])
    names = {"number": "gsm8k"} | (options["dataset"] or {})

    def row(number: int) -> Any:
        return without_nulls(table.slice(number, 1).to_pylist()[0])

    def expected(line: dict[str, Any], number: int) -> Any:
        if "chosen" in line:
            return {name: without_nulls(line["prompt"] + line[name]) for name in ("chosen", "rejected")}
        (messages, truth), verifier = _shown(line), line.get("verifier", "number")
        stdio = False
        if "arguments" in line:
            told = json.loads(line["arguments"])
            if verifier == "rubric":
                listed = told["rubrics"] if isinstance(told, dict) else told
                texts = [each.get("criterion") or each["description"] for each in listed]
                weights = [float(each["weight"] if each.get("points") is None else each["points"]) for each in listed]
                rubrics = [{"description": text, "weight": weight} for text, weight in zip(texts, weights, strict=True)]
                truth = json.dumps({"query": messages[-1]["content"], "rubrics": rubrics}, ensure_ascii=False)
            elif verifier == "ifeval":
                told = told[0] if isinstance(told, list) else told
                told = json.loads(told) if isinstance(told, str) else told
                asked = told.get("instruction_id_list", told.get("instruction_id"))
                truth = repr([{"instruction_id": asked, "kwargs": [without_nulls(each or {}) for each in told["kwargs"]]}])
            else:
                stdio = isinstance(told, dict)
                cases = (
                    told["test_cases"] if "test_cases" in told else [] if not stdio else zip(told["inputs"], told["outputs"], strict=True)
                )
                pairs = [each if isinstance(each, tuple) else (each["input"], each["output"]) for each in cases]
                texts = [["\n".join(text) if isinstance(text, list) else text for text in pair] for pair in pairs]
                truth = json.dumps([{"input": a, "output": b} for a, b in texts] if stdio else told, ensure_ascii=False)
        return {"messages": messages, "ground_truth": truth, "dataset": names.get(verifier, verifier + "_stdio" * stdio)}

    return Readable(len(table), row, expected=expected)
