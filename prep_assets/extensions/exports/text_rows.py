"""Rows of text for trainers that tokenize by themselves: verl, FlagEmbedding, sentence-transformers.

verl                    Parquet; RL: ``data_source`` (selects the reward function: each row's verifier), ``prompt`` list of {role, content}, ``ability``,
                        ``reward_model`` {style, ground_truth}, ``extra_info`` {split, index}, and in it ``answer`` or ``arguments`` where the verifier is
                        told something. SFT: ``messages`` list of {role, content}
flag_embedding          JSON lines ``{query, pos, neg}``, with ``pos_scores, neg_scores`` and ``prompt`` where a row has them
sentence_transformers   Parquet ``anchor, positive``, then ``negative``, or ``negative_1`` to ``negative_n``; one row for each positive of a query
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import accumulate, islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.arrow import save_parquet
from prep_assets.extensions.exports.readable import Options, Readable, gold_again, parquet_table, without_nulls
from prep_assets.extensions.exports.registry import FileName, Progress, exporter, reads
from prep_assets.extensions.rl.schemas import number_text
from prep_assets.extensions.rl.verifiers import CODE, FORMS, code_tests
from prep_assets.stores.table import LINES, Table
from prep_assets.stores.verification import WrittenFile

# verl.

_ABILITY = "math"
_NUMBER = "number"
"""The default verifier."""
_MODEL = "model"
"""The verifier of rows scored by a reward model."""


@exporter(
    "verl",
    LINES,
    read_by="verl",
    opens={
        "": (
            'data.train_files="{folder}/{split}.parquet"',
            "data.prompt_key=prompt  # data.messages_key=messages for SFT",
            "data.max_prompt_length=1024",
        )
    },
    kind="parquet",
)
def verl(
    source: Table,
    out: Path,
    progress: Progress,
    *,
    data_source: str | dict[str, str] | None = None,
    ability: str = _ABILITY,
    split: FileName = "train",
) -> None:
    """``<split>.parquet`` of JSONL lines: RL for {prompt, gold}, SFT for {messages}.

    `data_source` is the name for rows with the verifier ``number``, e.g. ``openai/gsm8k``, or a mapping from verifier to name; without a
    mapping, rows with another verifier keep that as ``data_source``. verl raises on a name without a reward function.
    """
    sft = "messages" in next(iter(source))
    if sft and (data_source is not None or ability != _ABILITY):
        raise ConfigError(
            f"export 'verl': data_source and ability have no effect for SFT messages, which {source.path} holds. Leave them out"
        )

    def rows() -> Iterator[dict[str, Any]]:
        for index, row in enumerate(source):
            location = f"{source.path} line {index + 1:,}"
            if sft:
                yield _sft_row(row, location)
            else:
                reward_model, beside = _reward_model(row, location)
                extra = {"ability": ability, "reward_model": reward_model, "extra_info": {"split": split, "index": index, **beside}}
                prompt = [{"role": "user", "content": row["prompt"]}] if isinstance(row["prompt"], str) else row["prompt"]
                yield {"data_source": _data_source(row, data_source, location), "prompt": prompt, **extra}

    save_parquet(out / f"{split}.parquet", rows, source, progress)


def _sft_row(row: dict[str, Any], location: str) -> dict[str, Any]:
    if not isinstance(row.get("messages"), list):
        raise ConfigError(f"{location} has no list of messages; its fields: {sorted(row)}. verl reads messages in every line, as in line 1")
    return {key: row[key] for key in ("messages", "tools", "enable_thinking") if key in row}


def _reward_model(row: dict[str, Any], location: str) -> tuple[dict[str, str], dict[str, str]]:
    """The column ``reward_model``, and what ``extra_info`` has beside it. Verifiers that judge by what they are told find it as the ground truth, as
    verl's own for code do, and the gold as the answer; others find it beside the gold."""
    if not {"prompt", "gold"} <= set(row):
        raise ConfigError(f"{location} has the fields {sorted(row)}; verl needs messages (SFT), or prompt and gold (RL), in every line")
    require_no_tools(
        row,
        location,
        "verl takes both from its own configuration (multi_turn.tool_config_path, data.apply_chat_template_kwargs), not from rows",
    )
    style = "model" if row.get("verifier") == _MODEL else "rule"
    gold, told = gold_text(row, location), row.get("arguments", "")
    if told and (row.get("verifier") in FORMS or not gold):
        truth = _tests(told) if row.get("verifier") == CODE else told
        return {"style": style, "ground_truth": truth}, {"answer": gold} if gold else {}
    return {"style": style, "ground_truth": gold}, {"arguments": told} if told else {}


def _tests(told: str) -> str:
    """Tests as verl's ``prime_code`` parses them, or asserts as its ``sandbox_fusion`` does. Arguments of a call are a line of JSON each, its result JSON."""
    tests = code_tests(json.loads(told))
    if tests.asserts:
        return json.dumps({"assert_case": tests.asserts}, ensure_ascii=False)
    if tests.function is None:
        return json.dumps({"inputs": tests.inputs, "outputs": tests.outputs}, ensure_ascii=False)
    inputs = ["\n".join(map(json.dumps, arguments)) for arguments in tests.inputs]
    return json.dumps({"fn_name": tests.function, "inputs": inputs, "outputs": [*map(json.dumps, tests.outputs)]})


def require_no_tools(row: Mapping[str, Any], location: str, why: str) -> None:
    """Raises:
    ConfigError: the row has tools or variables of a chat template, for which the trainer's rows have no place.
    """
    if not {"tools", "chat_template_kwargs"}.isdisjoint(row):
        raise ConfigError(f"{location} has tools or variables of a chat template. {why}; keep such rows in a separate family")


def gold_text(row: Mapping[str, Any], location: str) -> str:
    """The gold of a row as the text that reward functions compare: as its source spells it."""
    gold = row.get("gold_text", row["gold"])
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        raise ConfigError(f"{location}: the gold is {gold!r:.80}, trainers compare text or numbers")
    return gold if isinstance(gold, str) else number_text(gold)


def _data_source(row: dict[str, Any], data_source: str | Mapping[str, str] | None, location: str) -> str:
    """The name that selects the reward function of a row."""
    verifier = str(row.get("verifier", _NUMBER))
    if isinstance(data_source, str) and verifier == _NUMBER:
        return data_source
    if isinstance(data_source, Mapping) and verifier in data_source:
        return data_source[verifier]
    if verifier == _NUMBER or isinstance(data_source, Mapping):
        problem = f"names none for the verifier {verifier!r}" if data_source else "is needed for rows without a verifier"
        raise ConfigError(
            f"{location}: data_source {problem}. It is the name that selects verl's reward function, e.g. data_source: {{{verifier}: openai/gsm8k}}"
        )
    return verifier


@reads("verl")
def read_verl(folder: Path, source: Table, options: Options) -> Readable:
    """Open a `verl` export with code independent of its writer."""
    table = parquet_table([folder / f"{options['split']}.parquet"])

    def expected(line: dict[str, Any], number: int) -> Any:
        if "messages" in line:
            return without_nulls({name: line[name] for name in ("messages", "tools", "enable_thinking") if name in line})
        prompt, gold = line["prompt"], line.get("gold_text", line["gold"])
        data_source, verifier = options["data_source"], line.get("verifier")
        if isinstance(data_source, dict):
            data_source = data_source[verifier or "number"]
        elif verifier not in (None, "number"):
            data_source = verifier
        ground_truth = gold_again(gold)
        told, beside = line.get("arguments"), {}
        if told and (verifier in ("code", "ifeval", "rubric") or gold == ""):
            beside = {"answer": ground_truth} if ground_truth else {}
            ground_truth = _expected_tests(json.loads(told)) if verifier == "code" else told
        elif told:
            beside = {"arguments": told}
        return {
            "data_source": data_source,
            "prompt": [{"content": prompt, "role": "user"}] if isinstance(prompt, str) else without_nulls(prompt),
            "ability": options["ability"],
            "reward_model": {"ground_truth": ground_truth, "style": {"model": "model"}.get(verifier or "", "rule")},
            "extra_info": {"index": number, "split": options["split"], **beside},
        }

    return Readable(len(table), lambda number: without_nulls(table.slice(number, 1).to_pylist()[0]), expected=expected)


def _expected_tests(told: Any) -> str:
    if isinstance(told, list):
        return json.dumps({"assert_case": told}, ensure_ascii=False)
    cases = told.get("test_cases") or [
        {"input": given, "output": wanted} for given, wanted in zip(told["inputs"], told["outputs"], strict=True)
    ]
    if name := told.get("fn_name") or cases[0].get("fn_name"):
        lines = [
            ([json.loads(line) for line in case["input"].split("\n")] if isinstance(case["input"], str) else case["input"])
            for case in cases
        ]
        wanted = [json.loads(case["output"]) if isinstance(case["input"], str) else case["output"] for case in cases]
        inputs = ["\n".join(json.dumps(argument) for argument in call) for call in lines]
        return json.dumps({"fn_name": name, "inputs": inputs, "outputs": [json.dumps(result) for result in wanted]})
    texts = {
        f"{side}s": [each if isinstance(each := case[side], str) else "\n".join(each) for case in cases] for side in ("input", "output")
    }
    return json.dumps(texts, ensure_ascii=False)


# FlagEmbedding.

_NAMES = {
    "query": "query",
    "positives": "pos",
    "negatives": "neg",
    "positive_scores": "pos_scores",
    "negative_scores": "neg_scores",
    "instruction": "prompt",
}
"""Field of a row → FlagEmbedding's name for it."""


@exporter(
    "flag_embedding",
    LINES,
    read_by="FlagEmbedding",
    opens={
        "": (
            "torchrun --nproc_per_node 1 \\",
            "  -m FlagEmbedding.finetune.embedder.encoder_only.base \\",
            "  --model_name_or_path MODEL --output_dir OUT \\",
            "  --train_data {folder}/{split}.jsonl --train_group_size 8",
        )
    },
    kind="json",
)
def flag_embedding(source: Table, out: Path, progress: Progress, *, split: FileName = "train") -> None:
    """``<split>.jsonl`` of contrastive rows. Each needs a negative, since the trainer draws some from every row."""
    presence: dict[str, bool] = {}
    with WrittenFile(out / f"{split}.jsonl") as file:
        for line, row in enumerate(source, 1):
            location = f"{source.path} line {line:,}"
            if not row.get("negatives"):
                raise ConfigError(
                    f"{location} has no negative text, and FlagEmbedding draws some from every row. Mine negatives first, or export to sentence_transformers"
                )
            for column, is_present, reason in (
                ("scores", {"positive_scores", "negative_scores"} <= set(row), "distillation reads them in every row or in none"),
                ("an instruction", "instruction" in row, "the trainer writes None before the queries of rows without one"),
            ):
                if presence.setdefault(column, is_present) != is_present:
                    raise ConfigError(f"{location} {'has' if is_present else 'lacks'} {column}, others do not agree; {reason}")
            file.write(json.dumps({column: row[key] for key, column in _NAMES.items() if key in row}, ensure_ascii=False).encode() + b"\n")
            progress(line, len(source))


@reads("flag_embedding")
def read_flag_embedding(folder: Path, source: Table, options: Options) -> Readable:
    """Open a `flag_embedding` export with code independent of its writer."""
    rows = [json.loads(line) for line in (folder / f"{options['split']}.jsonl").read_text("utf-8").split("\n") if line]

    def expected(line: dict[str, Any], number: int) -> dict[str, Any]:
        renamed = {"query": line["query"], "pos": line["positives"], "neg": line["negatives"]}
        if "positive_scores" in line:
            renamed["pos_scores"] = line["positive_scores"]
        if "negative_scores" in line:
            renamed["neg_scores"] = line["negative_scores"]
        return renamed | ({"prompt": line["instruction"]} if "instruction" in line else {})

    return Readable(len(rows), rows.__getitem__, expected=expected)


# sentence-transformers.

_WITHOUT_COLUMN = ("instruction", "positive_scores", "negative_scores")
"""Fields of a row that have no column."""


@exporter(
    "sentence_transformers",
    LINES,
    read_by="sentence-transformers",
    opens={
        "": (
            "from datasets import load_dataset",
            'dataset = load_dataset("parquet", data_files="{folder}/{split}.parquet", split="train")',
            "SentenceTransformerTrainer(model=model, train_dataset=dataset, loss=MultipleNegativesRankingLoss(model))",
        )
    },
    kind="parquet",
)
def sentence_transformers(
    source: Table,
    out: Path,
    progress: Progress,
    *,
    negatives: Annotated[int, Field(ge=0)] | None = None,
    leave_out: list[str] = [],  # noqa: B006  (it is only read)
    split: FileName = "train",
) -> None:
    """``<split>.parquet`` of contrastive rows: an anchor, one positive, and as many negatives in every row.

    The first `negatives` negatives of a row are written; needed where rows differ in how many they have. A row with fewer stops the
    export. `leave_out` lists fields that may be dropped: ``instruction``, ``positive_scores``, ``negative_scores``.

    Lists of answers become ``query, docs, labels``, which losses of whole lists read: Plackett-Luce is ``PListMLELoss``.
    """
    if any("responses" in row for row in islice(source, 1)):
        if negatives is not None or leave_out:
            raise ConfigError(
                "export 'sentence_transformers': lists have no negatives and none of the fields of leave_out. Leave both options out"
            )
        save_parquet(out / f"{split}.parquet", lambda: map(_listed, source), source, progress)
        return
    if unknown := sorted(set(leave_out) - set(_WITHOUT_COLUMN)):
        raise ConfigError(f"export 'sentence_transformers', option 'leave_out': {unknown[0]!r} is none of {', '.join(_WITHOUT_COLUMN)}")
    count = _negatives_per_row(source, negatives, leave_out)
    names = ["negative"] if count == 1 else [f"negative_{number}" for number in range(1, count + 1)]

    def rows() -> Iterator[dict[str, Any]]:
        for row in source:
            for positive in row["positives"]:
                yield {"anchor": row["query"], "positive": positive, **dict(zip(names, row["negatives"], strict=False))}

    save_parquet(out / f"{split}.parquet", rows, source, progress)


def _listed(row: dict[str, Any]) -> dict[str, Any]:
    """Raises:
    ConfigError: a prompt of messages, which has no place in a query.
    """
    if not isinstance(row["prompt"], str):
        raise ConfigError(
            "sentence-transformers reads lists of strings, and these have messages. Set form: text of the family, or export to hf_arrow"
        )
    return {"query": row["prompt"], "docs": row["responses"], "labels": row["rewards"]}


def _negatives_per_row(source: Table, negatives: int | None, leave_out: list[str]) -> int:
    """The number of negatives written for every row.

    Raises:
        ConfigError: a line is not a contrastive row, has too few negatives, or has a field without a column.
    """
    count = negatives
    for line, row in enumerate(source, 1):
        location = f"{source.path} line {line:,}"
        if "positives" not in row:
            raise ConfigError(
                f"{location} has the fields {sorted(row)}; sentence-transformers trains on rows of the asset contrastive, which have query, positives and "
                "negatives. Texts that are only to be embedded go to hf_arrow"
            )
        if unexported := [name for name in _WITHOUT_COLUMN if name in row and name not in leave_out]:
            raise ConfigError(
                f"{location} has {unexported[0]!r}, for which there is no column: give it to the trainer (prompts=…), and list it in leave_out; or export to "
                "flag_embedding"
            )
        size = len(row["negatives"])
        count = size if count is None else count
        if size < count or (negatives is None and size != count):
            raise ConfigError(
                f"{location} has {size} negatives, others have {count}, and every row needs as many. Set negatives: {min(size, count)}"
            )
    return count or 0


@reads("sentence_transformers")
def read_sentence_transformers(folder: Path, source: Table, options: Options) -> Readable:
    """Open a `sentence_transformers` export with code independent of its writer; all rows of one query count as one."""
    table = parquet_table([folder / f"{options['split']}.parquet"])
    if table.column_names == ["query", "docs", "labels"]:
        rows = table.to_pylist()
        return Readable(len(rows), rows.__getitem__, expected=lambda line, _: dict(zip(table.column_names, line.values(), strict=True)))
    ends = list(accumulate(len(row["positives"]) for row in source))
    count = next((len(line["negatives"]) for line in source), 0) if options["negatives"] is None else options["negatives"]
    names = ["anchor", "positive", *(["negative"] if count == 1 else [f"negative_{at + 1}" for at in range(count)])]
    if table.column_names != names or not ends or len(table) != ends[-1]:
        raise StoreError(f"{len(table):,} rows of {table.column_names}, the store has {ends[-1] if ends else 0:,} positives")

    def row(number: int) -> list[list[str]]:
        start = ends[number - 1] if number else 0
        return [list(values.values()) for values in table.slice(start, ends[number] - start).to_pylist()]

    def expected(line: dict[str, Any], number: int) -> list[list[str]]:
        return [[line["query"], positive, *line["negatives"][:count]] for positive in line["positives"]]

    return Readable(len(ends), row, expected=expected)
