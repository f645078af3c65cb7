"""The form that a family needs: a schema's variant that gives it is taken, and a schema without one stops the build."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError
from prep_assets.schemas.registry import schemas
from prep_assets.stores.lines import open_lines
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import build, build_all, domain, failing, jsonl, minimal, refusals

PAIR = {"prompt": "Q?", "chosen": "yes", "rejected": "no"}


@pytest.mark.parametrize("schema", ["alpaca", "sharegpt"])
def test_the_pairwise_variant_is_taken_for_preferences(make: Make, tmp_path: Path, schema: str) -> None:
    file = jsonl(tmp_path / "p.jsonl", [dict(schemas()[f"{schema}_pairwise"].example)])
    found = {}
    for name in (schema, f"{schema}_pairwise"):
        workspace = make(minimal("preference", {"a": domain(file, name)}, test_fraction=0.0, form="messages"), name)
        published = build_all(workspace, ["preference"])["preferences", ""]
        assert failing(workspace, published) == []
        found[name] = list(open_lines(published.directory, "preferences"))
    assert len(found[schema]) == 1 and found[schema] == found[f"{schema}_pairwise"]


WRONG = [
    ("preference", "messages", "Pair"),
    ("preference", "rl_prompt", "Pair"),
    ("sft", "preference", "Sample"),
    ("sft", "gsm8k_prompt", "Sample"),
    ("pretrain", "group", "Sample"),
    ("rl", "messages", "Prompt"),
]


@pytest.mark.parametrize(("family", "schema", "form"), WRONG)
def test_a_schema_that_cannot_give_the_form_stops(make: Make, tmp_path: Path, family: str, schema: str, form: str) -> None:
    # whatever the rows are: none is converted
    domains = {"z": domain(jsonl(tmp_path / "z.jsonl", [{"no": "such"}]), schema)}
    if family == "preference":
        domains["a"] = domain(jsonl(tmp_path / "a.jsonl", [{"no": "pair"}]), "preference")
    workspace = make(minimal(family, domains))
    with pytest.raises(ConfigError, match=rf"domains\.z: schema '{schema}' gives no {form}, which is needed here\. These do: "):
        workspace.family(FAMILIES[family])


def test_the_message_names_labelled_schemas_too(make: Make, tmp_path: Path) -> None:
    workspace = make(minimal("preference", {"z": domain(jsonl(tmp_path / "z.jsonl", [PAIR]), "text")}))
    with pytest.raises(ConfigError, match=r"domains\.z: schema 'text' gives no Pair.* These do: .*\bkto\b.*\bpreference\b"):
        workspace.family(FAMILIES["preference"])


OWN = """
from prep_assets.samples import ASSISTANT, USER, Pair, Sample, turn

def either(row):
    question, answer = turn(USER, "Q?"), turn(ASSISTANT, row["a"])
    if "b" in row:
        return Pair((question,), (answer,), (turn(ASSISTANT, row["b"]),))
    return Sample((question, answer), label=row.get("label"))
"""


def test_functions_of_ones_own_are_judged_row_by_row(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_forms.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    rows: list[dict[str, Any]] = [{"a": "yes", "b": "no"}, {"a": "yes"}, {"a": "yes", "label": True}]
    own = {"o": domain(jsonl(tmp_path / "o.jsonl", rows), "own_forms:either")}
    try:
        pairs = build_all(make(minimal("preference", own, test_fraction=0.0), "p"), ["preference"])["preferences_by_domain", "o"]
        workspace = make(minimal("sft", own), "s")
        build(workspace, "sft_raw", "o")
        tokens = build(workspace, "sft_tokens", "o")
        assert failing(workspace, tokens) == []
    finally:
        sys.modules.pop("own_forms", None)
    assert [(each.id, each.reason) for each in refusals(pairs)] == [("o.jsonl:1", "not_a_pair")]
    assert (pairs.manifest.counts["train"], pairs.manifest.counts["unpaired_train"]) == (1, 1)
    assert [(each.id, each.reason) for each in refusals(tokens)] == [("o.jsonl:0", "not_a_sample")]
