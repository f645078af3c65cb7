"""JSON Schema of configuration files: it takes what the loader takes, and marks the mistakes that the loader refuses."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError
from prep_assets.extensions.quality.judging import steps_of
from prep_assets.extensions.start.editor import json_schema
from prep_assets.graph.graph import family_assets
from prep_assets_tests.cells import cells
from prep_assets_tests.docs.pages import PAGES, blocks
from prep_assets_tests.graph.families import FAMILIES as TRIED
from prep_assets_tests.graph.families import LAST
from prep_assets_tests.graph.workspaces import CONFIGS, SHIPPED, domain, minimal, workspace_in

FILES = [path for path in sorted(CONFIGS.rglob("*.yaml")) if path.stem in FAMILIES]
BASES: dict[str, dict[str, Any]] = {
    **SHIPPED,
    **{
        family: minimal(family, {"d": domain("gsm8k.jsonl", tried.schema)})[family]
        for family, tried in TRIED.items()
        if family not in SHIPPED
    },
    "eval": {"domains": {"d": domain("gsm8k.jsonl", "gsm8k")}},
}


@cache
def validator(family: str) -> Draft202012Validator:
    described = json_schema(family)
    Draft202012Validator.check_schema(described)
    return Draft202012Validator(described)


def marked(family: str, values: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator(family).iter_errors(json.loads(json.dumps(values)))]


def load(folder: Path, family: str, values: Any) -> None:
    """Whatever the loader says of a file, before anything is read or built."""
    workspace = workspace_in(folder, {family: values})
    loaded = workspace.family(FAMILIES[family])
    family_assets(workspace, family)
    for name in loaded.domains:
        steps_of(loaded, name)


@cells("path", FILES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_shipped_files_are_right(path: Path) -> None:
    assert marked(path.stem, yaml.safe_load(path.read_text("utf-8"))) == []


COMMON: list[tuple[str, Any]] = [
    ("tokeniser", "x"), ("domains", {}), ("domains.d", "rows.jsonl"), ("domains.d.file", ["x"]), ("domains.d.files", "x.jsonl"), ("domains.d.files", []),
    ("domains.d.schema", "mesages"), ("domains.d.schema", 5), ("domains.d.options", {"nope": 1}), ("domains.d.options", ["x"]), ("domains.d.txt", "word"),
    ("domains.d.max_items", 0), ("domains.d.max_items", "many"), ("domains.d.redact", ["mail"]), ("domains.d.ignore", "id"), ("domains.d.where", ["a"]),
    ("domains.d.speaker_names", "drop"), ("domains.d.licence", "MIT License"), ("domains.d.max_domains", 0), ("domains.d.test_files", "x"),
    ("refresh.evry", "0 3 * * *"), ("refresh.fresh_for", -1), ("workers", 0), ("workers", "many"), ("on_missing", "skip"), ("cluster.kind", "slurm"),
    ("cluster.shards", 0),
]  # fmt: skip
TRAINED: list[tuple[str, Any]] = [
    ("tokenizer_loader", "fast"), ("pad_vocab_to", 0), ("preprocessing.deduplicates", True), ("preprocessing.max_seq_len", 0),
    ("decontaminate.words", 0), ("output.dtype", "float32"), ("output.storage_format", "zip"), ("engine", "fast"), ("licence", 5),
    ("exports.e", {"to": "hf_arrow"}), ("exports.e", {"from": "@", "to": "hf_arow"}), ("exports.e", {"from": "nope", "to": "hf_arrow"}),
    ("exports.e", {"from": "@", "to": "hf_arrow", "options": {"layot": 1}}), ("quality.steps.gopher_qualty", {}),
    ("quality.steps.gopher_quality", {"min_words": "x"}), ("quality.steps.gopher_quality", {"action": "delete"}),
    ("quality.steps.language", {}), ("quality.max_refused", "x"), ("quality.bounds", {"nope.tokens": {"warn": {"max": 1}}}),
]  # fmt: skip
OWN: dict[str, list[tuple[str, Any]]] = {
    "pretrain": [
        ("append_eod", "yes please"), ("bos", "maybe"), ("test_fraction", 1), ("preprocessing.fim.rate", 2), ("blend", {"weights": {"d": 1}}),
        ("blend", {"window": 0}), ("blend", {"window": 8, "tokens": -1}), ("blend", {"window": 8, "schedule": [{"tokens": 5}]}),
    ],
    "sft": [
        ("mask.assistant", "learn"), ("train_on_eos", "always"), ("truncation", "middle"), ("truncation_keeps.user", {"part": "middle"}),
        ("packing.strategy", "best"), ("packing.row_len", 1), ("packing.weights.d", -1), ("expand", "turn"), ("blend.window", 5), ("template", 5),
        ("special_in_content", "drop"), ("train_turns", "first"), ("image_tokens", {"rule": "fixd"}),
    ],
    "preference": [("test_fraction", -0.1), ("shuffle", "yes please"), ("form", "texts"), ("truncation", "start")],
    "rl": [("arithmetic.n", 0), ("arithmetic.levels", "add"), ("form", "json")],
    "eval": [("rules", ["gpt4"]), ("rules", []), ("policy", "warn"), ("splits", "some")],
}  # fmt: skip
MISTAKES = [
    (family, path, value) for family in FAMILIES for path, value in (*COMMON, *(TRAINED if family != "eval" else []), *OWN.get(family, []))
]


def with_mistake(family: str, path: str, value: Any) -> dict[str, Any]:
    base = copy.deepcopy(BASES[family])
    first = next(iter(base["domains"]))
    place, keys = base, [first if key == "d" else key for key in path.split(".")]
    for key in keys[:-1]:
        place = place.setdefault(key, {})
    said = json.dumps(value).replace("@", LAST.get(family, "")).replace('"d"', json.dumps(first))
    place[keys[-1]] = json.loads(said)
    return base


def test_there_are_more_than_a_hundred() -> None:
    assert len(MISTAKES) > 250


def test_without_a_mistake_nothing_is_marked() -> None:
    assert [family for family, base in BASES.items() if marked(family, base)] == []


@cells(("family", "path", "value"), MISTAKES)
def test_a_mistake_is_marked_and_refused(family: str, path: str, value: Any, tmp_path: Path) -> None:
    wrong = with_mistake(family, path, value)
    assert marked(family, wrong)
    with pytest.raises(ConfigError):
        load(tmp_path, family, wrong)


@pytest.mark.parametrize(
    ("family", "path", "value"),
    [
        ("pretrain", "blend", {"window": 8, "tokens": 5, "schedule": [{"tokens": 5, "weights": {"d": 1}}]}),
        ("sft", "packing", {"weights": {"nobody": 1}}),
        ("sft", "exports.e", {"from": "sft_packed", "to": "verl"}),
        ("preference", "quality.bounds", {"preferences.tokens": {}}),
    ],
)
def test_what_only_the_loader_can_know(family: str, path: str, value: Any, tmp_path: Path) -> None:
    wrong = with_mistake(family, path, value)
    assert marked(family, wrong) == []
    with pytest.raises(ConfigError):
        load(tmp_path, family, wrong)


def test_it_says_what_keys_mean() -> None:
    described = json_schema("sft")
    assert described["properties"]["train_on_eos"]["description"].startswith("Which stop tokens are trained")
    schemas = described["$defs"]["Domain"]["properties"]["schema"]["anyOf"][0]["enum"]
    assert {"messages", "gsm8k", "ultrachat"} - {*schemas} <= {"ultrachat"}
    assert (
        "preference" not in schemas
        and "preference" in json_schema("preference")["$defs"]["Domain"]["properties"]["schema"]["anyOf"][0]["enum"]
    )


def test_examples_of_the_pages_are_right() -> None:
    known = {family: {*model.model_fields} for family, model in FAMILIES.items()}
    for page in PAGES:
        for block in blocks(page, "yaml"):
            values = yaml.safe_load(block)
            if isinstance(values, dict) and "domains" in values and "tokenizer" in values:
                assert [family for family in known if {*values} <= known[family] and not marked(family, values)], block
