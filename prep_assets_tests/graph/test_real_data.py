"""Every real file through the graph: what is read, kept and refused, counted here in the plain way.

What was measured stands in graph/real_data.md, and a run that finds other numbers fails. After a change write them again:
``PREP_ASSETS_WRITE_DOCS=1 python -m pytest prep_assets_tests/graph/test_real_data.py``.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets.graph.graph import ASSETS
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published
from prep_assets_tests.corpus.real import MOSS_COLUMNS, MOSS_WITHOUT_PLUGINS
from prep_assets_tests.graph.workspaces import build, failing, minimal, refusals, workspace_in
from prep_assets_tests.masks.trl import tokenizer_folder

PAGE = Path(__file__).with_name("real_data.md")
HEAD = "| file | schema | read | kept | refused | tokens |\n|---|---|---|---|---|---|\n"
Reasons = Callable[[list[Any]], Counter[str]]


def none(rows: list[Any]) -> Counter[str]:
    return Counter()


def undesirable(rows: list[Any]) -> Counter[str]:
    return Counter(undesirable=sum(row["label"] is False for row in rows))


def hh_faults(rows: list[Any]) -> Counter[str]:
    """Each side cut at its last mark by hand."""
    found = Counter[str]()
    for row in rows:
        (prompt, chosen), (other, rejected) = (
            [part.strip() for part in row[side].rsplit("\n\nAssistant:", 1)] for side in ("chosen", "rejected")
        )
        if not chosen or not rejected:
            found["empty_answer"] += 1
        elif prompt != other:
            found["prompts_differ"] += 1
    return found


def closing_tags_alone(rows: list[Any]) -> Counter[str]:
    """Answers with reasoning of their own and a closing tag of other reasoning in their text."""
    texts = [[part["value"] for message in row["messages"] for part in message["content"] if part["type"] == "text"] for row in rows]
    return Counter(conflicting_reasoning=sum(any("</think>" in text and "<think>" not in text for text in each) for each in texts))


def moss_faults(rows: list[Any]) -> Counter[str]:
    """Commands of which something is left once every call and the commas between calls are taken away."""

    def unreadable(commands: str) -> bool:
        plain = commands.replace("<|Commands|>:", "").replace("<eoc>", "").strip()
        return bool(re.sub(r'(Search|Calculate|Solve|Text2Image)\("[^"]*"\)(,\s*|\s*$)|None\.?\s*$', "", plain))

    return Counter(bad_tool_call=sum(any(unreadable(exchange["Commands"]) for exchange in row["chat"].values()) for row in rows))


@dataclass(frozen=True)
class Case:
    """One file as one domain.

    Attributes:
        file, schema, options: what is read, and how.
        faults: reasons to refuse rows, beside being duplicates, counted over the rows that are no duplicates.
        ignore: fields that are left out.
    """

    file: str
    schema: str
    options: dict[str, Any] = field(default_factory=dict)
    faults: Reasons = none
    ignore: tuple[str, ...] = ()


Group = tuple[str, str, Workspace, dict[str, Case]]
"""Name, family, workspace and cases."""

LF = "llama_factory/"
PLUGINS = {"plugins": True, "system_key": "meta_instruction"}
GROUPS: dict[str, tuple[str, dict[str, Any], dict[str, Case]]] = {
    "pretrain": ("pretrain", {"tokenizer": "gpt2"}, {"c4": Case(LF + "c4_demo.jsonl", "text"), "wiki": Case(LF + "wiki_demo.txt", "text")}),
    "instructions": (
        "sft",
        {"tokenizer": "smollm", "tokenizer_loader": "file", "template": "chatml"},
        {
            "gsm8k": Case("gsm8k/train.jsonl", "gsm8k"),
            "alpaca_en": Case(LF + "alpaca_en_demo.json", "alpaca"),
            "alpaca_zh": Case(LF + "alpaca_zh_demo.json", "alpaca"),
            "identity": Case(LF + "identity.json", "alpaca"),
            "v1_sft": Case(LF + "v1_sft_demo.jsonl", "messages"),
            "moss": Case("moss/conversations.jsonl", "moss", ignore=MOSS_WITHOUT_PLUGINS),
            "kto": Case(LF + "kto_en_demo.json", "kto", faults=undesirable),
        },
    ),
    "tools": (
        "sft",
        {"tokenizer": "smollm", "tokenizer_loader": "file", "template": "qwen3"},
        {
            "glaive": Case(LF + "glaive_toolcall_en_demo.json", "sharegpt"),
            "reason": Case(LF + "reason_tool_use_demo_50.jsonl", "messages", faults=closing_tags_alone),
            "moss_plugins": Case("moss/conversations.jsonl", "moss", PLUGINS, moss_faults, MOSS_COLUMNS),
            "gsm8k": Case("gsm8k/train.jsonl", "gsm8k"),
        },
    ),
    "images": (
        "sft",
        {"tokenizer": "smollm", "tokenizer_loader": "file", "template": "chatml", "image_token": "<jupyter_output>"},
        {"v1_multimodal": Case(LF + "v1_multimodal_demo.jsonl", "messages"), "mllm": Case(LF + "mllm_demo.json", "messages")},
    ),
    "preference": (
        "preference",
        {"tokenizer": "smollm", "tokenizer_loader": "file", "template": "chatml", "form": "messages"},
        {
            "hh": Case("hh_rlhf/harmless_base_1500.jsonl.gz", "hh", faults=hh_faults),
            "dpo": Case(LF + "dpo_en_demo.json", "sharegpt_pairwise"),
            "v1_dpo": Case(LF + "v1_dpo_demo.jsonl", "preference"),
            "kto": Case(LF + "kto_en_demo.json", "kto"),
        },
    ),
    "rl": ("rl", {"tokenizer": "smollm", "tokenizer_loader": "file", "template": "chatml"}, {"gsm8k": Case("gsm8k/train.jsonl", "gsm8k")}),
}
LAST = {"pretrain": "pretrain_tokens", "sft": "sft_tokens", "preference": "preferences_by_domain", "rl": "rl_prompts_by_domain"}


def rows_of(file: Path) -> list[Any]:
    """The rows by the standard library alone."""
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    text = data.decode("utf-8-sig")
    if file.suffix == ".json":
        return list(json.loads(text))
    lines = [line.removesuffix("\r") for line in text.split("\n") if line.strip()]
    return [{"text": line} for line in lines] if file.suffix == ".txt" else [json.loads(line) for line in lines]


def distinct(rows: list[Any]) -> list[Any]:
    return list({json.dumps(row, sort_keys=True): row for row in reversed(rows)}.values())


def expected_refusals(rows: list[Any], case: Case) -> Counter[str]:
    first = distinct(rows)
    found = case.faults(first)
    found["duplicate"] += len(rows) - len(first)
    return +found


@pytest.fixture(scope="module", params=GROUPS)
def group(request: pytest.FixtureRequest, real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Group:
    """Every store of one configuration's family, from real files."""
    family, options, cases = GROUPS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    # paths in v1_multimodal_demo.jsonl begin with `data/`, those of mllm_demo.json do not
    (folder / "images").mkdir()
    for place in ("data", "mllm_demo_data"):
        (folder / "images" / place).symlink_to(real_data / "llama_factory" / ("" if place == "data" else place))
    domains = {
        name: {"files": [str(real_data / case.file)], "schema": case.schema, "options": case.options, "ignore": [*case.ignore]}
        for name, case in cases.items()
    }
    if "image_token" in options:
        domains = {name: {**domain, "image_dir": str(folder / "images")} for name, domain in domains.items()}
    values = {**options, "tokenizer": str(real_data / "tokenizers" / options["tokenizer"]), "domains": domains}
    if family != "pretrain":
        values["preprocessing"] = {"max_seq_len": None}
    if family == "sft":
        values["packing"] = {"strategy": "ffd", "row_len": 1 << 15}
    workspace = workspace_in(folder, {family: values})
    for asset in ASSETS.values():
        if asset.family == family:
            for partition in asset.partitions(workspace):
                build(workspace, asset.name, partition)
    return request.param, family, workspace, cases


def stores(family: str, workspace: Workspace) -> Iterator[Published]:
    for asset in ASSETS.values():
        if asset.family == family:
            for partition in asset.partitions(workspace):
                published = workspace.published(asset.name, partition)
                assert published is not None, asset.name
                yield published


def test_every_record_is_kept_or_refused_for_a_reason_that_is_counted_independently(group: Group, real_data: Path) -> None:
    key, family, workspace, cases = group
    lines = []
    for name, case in cases.items():
        rows = rows_of(real_data / case.file)
        raw = workspace.published(f"{family}_raw", name)
        asset = ASSETS[LAST[family]]
        published = workspace.published(asset.name, name)
        assert raw is not None
        assert published is not None
        assert (raw.manifest.counts["read"], raw.manifest.counts["kept"]) == (len(rows), len(rows))
        mine = refusals(published)
        found = Counter(each.reason for each in mine)
        assert found == expected_refusals(rows, case), name
        for each in mine:
            assert each.stage
            assert each.detail
            payload = json.dumps(rows[int(each.id.rpartition(":")[2]) - 1], ensure_ascii=False)
            assert (each.payload, each.payload_length) == (payload[:2000], len(payload))
        kept, tokens = (
            published.manifest.counts["kept"],
            f"{published.manifest.counts['tokens']:,}" if "tokens" in published.manifest.counts else "",
        )
        assert kept == len(rows) - len(mine), name
        lines.append(f"| `{case.file}` | `{case.schema}` | {len(rows):,} | {kept:,} | {in_words(found)} | {tokens} |")
    print(f"{HEAD}" + "\n".join(lines))
    compare_with_page(key, lines)


def in_words(found: Counter[str]) -> str:
    return ", ".join(f"`{reason}` {count:,}" for reason, count in sorted(found.items()))


def compare_with_page(name: str, lines: list[str]) -> None:
    """The table of one group must be on the page; with `PREP_ASSETS_WRITE_DOCS` it is written there first."""
    section = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end of measured -->)", re.DOTALL)
    page, table = PAGE.read_text("utf-8"), HEAD + "".join(f"{line}\n" for line in lines)
    if os.environ.get("PREP_ASSETS_WRITE_DOCS"):
        page = section.sub(lambda found: found[1] + table + found[2], page)
        PAGE.write_text(page, "utf-8")
    found = section.search(page)
    assert found is not None
    assert found[0] == f"<!-- measured: {name} -->\n{table}<!-- end of measured -->"


def test_every_check_of_every_store_holds(group: Group) -> None:
    _, family, workspace, _ = group
    assert [
        (each.manifest.asset, each.manifest.partition, failing(workspace, each))
        for each in stores(family, workspace)
        if failing(workspace, each)
    ] == []


def test_every_file_of_the_folder_is_in_some_case(real_data: Path) -> None:
    files = {
        path.relative_to(real_data).as_posix()
        for pattern in ("*/*.json", "*/*.jsonl", "*/*.gz", "*/*.txt")
        for path in real_data.glob(pattern)
    }
    assert files == {case.file for _, _, cases in GROUPS.values() for case in cases.values()}


def test_token_counts_by_the_tokenizers_library_alone(real_data: Path) -> None:
    """Two files of the page: documents with their end-of-text token, and instructions in ChatML written by hand."""
    from tokenizers import Tokenizer

    def total(tokenizer: str, texts: list[str]) -> int:
        loaded = Tokenizer.from_file(str(real_data / "tokenizers" / tokenizer / "tokenizer.json"))
        return sum(len(each.ids) for each in loaded.encode_batch(texts, add_special_tokens=False))

    page = PAGE.read_text("utf-8")
    c4 = rows_of(real_data / LF / "c4_demo.jsonl")
    count = total("gpt2", [row["text"] + "<|endoftext|>" for row in c4])
    assert f"| `{LF}c4_demo.jsonl` | `text` | 300 | 300 |  | {count:,} |" in page
    chats = []
    for row in distinct(rows_of(real_data / LF / "identity.json")):
        question = "\n\n".join(part for part in (row["instruction"].strip(), row["input"].strip()) if part)
        chats.append(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{row['output'].strip()}<|im_end|>\n")
    assert f"| 91 | 91 |  | {total('smollm', chats):,} |" in page


# Real reasoning through the graph with the templates of reasoning models, and every check of the stores.
#
# What was measured stands in graph/real_data.md. After a change write it again:
# ``PREP_ASSETS_WRITE_DOCS=1 python -m pytest prep_assets_tests/graph/test_real_data.py``.


SECTION = re.compile(r"(<!-- measured: reasoning -->\n).*?(<!-- end of measured -->)", re.DOTALL)
REAL_REASONING_HEAD = "| file | read | kept | refused | templates |\n|---|---|---|---|---|\n"
TEMPLATES = (
    *("deepseekv3", "diffusion_gemma", "glm4moe_training", "gptoss", "nemotron_3_nano"),
    *("qwen3", "qwen3_5_think", "qwen3_6", "qwen3_training"),
)
REASONING = "llama_factory/reason_tool_use_demo_50.jsonl"


def measured(real_data: Path, name: str, folder: Path) -> tuple[list[str], list[str]]:
    """What becomes of each file, as cells of the table, and checks that do not hold."""
    domains: dict[str, Any] = {
        "gsm8k": {"files": [str(real_data / "gsm8k" / "train.jsonl")], "schema": "gsm8k", "max_items": 200},
        "tools": {"files": [str(real_data / REASONING)], "schema": "messages"},
    }
    tokenizer = str(tokenizer_folder(real_data, name, folder / "tokenizer"))
    options = {**minimal("sft", domains)["sft"], "tokenizer": tokenizer, "preprocessing": {"max_seq_len": None}}
    workspace = workspace_in(folder, {"sft": options})
    lines, faults = [], []
    for each in domains:
        try:
            published = build(workspace, "sft_tokens", each)
        except PrepAssetsError as error:
            found = re.search(r"all ([\d,]+) records were refused \((.*?)\)\.", str(error))
            assert found is not None, error
            lines.append(f"{each} | {found[1]} | 0 | {found[2]}")
            continue
        counts, why = published.manifest.counts, Counter(f"`{refusal.reason}`" for refusal in refusals(published))
        lines.append(f"{each} | {counts['read']} | {counts['kept']} | {', '.join(f'{r} {n}' for r, n in sorted(why.items()))}")
        faults += [f"{name}/{each}: {check}" for check in failing(workspace, published)]
    return lines, faults


@pytest.fixture(scope="module")
def found(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    every = {name: measured(real_data, name, tmp_path_factory.mktemp(name)) for name in TEMPLATES}
    rows: dict[str, list[str]] = {}
    for name, (lines, _) in every.items():
        for line in lines:
            rows.setdefault(line, []).append(name)
    return [f"| {line} | {', '.join(names)} |\n" for line, names in rows.items()], [each for _, faults in every.values() for each in faults]


def test_every_check_holds(found: tuple[list[str], list[str]]) -> None:
    assert found[1] == []


def test_the_page_says_what_is_kept_and_why_the_rest_is_refused(found: tuple[list[str], list[str]]) -> None:
    page, table = PAGE.read_text("utf-8"), REAL_REASONING_HEAD + "".join(found[0])
    if os.environ.get("PREP_ASSETS_WRITE_DOCS"):
        page = SECTION.sub(lambda match: match[1] + table + match[2], page)
        PAGE.write_text(page, "utf-8")
    shown = SECTION.search(page)
    assert shown is not None
    assert shown[0] == f"<!-- measured: reasoning -->\n{table}<!-- end of measured -->"


def test_rows_with_a_closing_tag_alone_are_those_that_the_page_speaks_of(real_data: Path) -> None:
    rows = [json.loads(line) for line in (real_data / REASONING).read_text("utf-8").splitlines()]
    said = [[part["value"] for message in row["messages"] for part in message["content"] if part["type"] == "text"] for row in rows]
    assert sum(any("</think>" in text and "<think>" not in text for text in texts) for texts in said) == 2
