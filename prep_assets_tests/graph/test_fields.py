"""Fields that a schema does not read: counted where somebody says that they mean nothing, else a reason to refuse or to stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from prep_assets.checks.of_stores import SELECTION
from prep_assets.config.family import Domain
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.graph.graph import ASSETS
from prep_assets.pipeline.asset import Store
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, refusals, verdicts

LAST = {"pretrain": "pretrain_tokens", "sft": "sft_tokens", "preference": "preferences_by_domain", "rl": "rl_prompts_by_domain"}
ROWS: dict[str, dict[str, Any]] = {
    "pretrain": {"text": "A document about cats."},
    "sft": {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
    "preference": {"prompt": "q", "chosen": "good", "rejected": "bad"},
    "rl": {"prompt": "What is 1 + 1?", "gold": "2"},
    "groups": {"prompt": "What is 1 + 1?", "responses": ["2", "3"], "rewards": [1, 0]},
}
SCHEMAS = {"pretrain": "text", "sft": "messages", "preference": "preference", "rl": "rl_prompt", "groups": "group"}


def rows(family: str, count: int = 6) -> list[dict[str, Any]]:
    """Rows that differ, without a further field."""
    keys = {"pretrain": "text", "sft": "messages"}
    made = []
    for number in range(count):
        row = dict(ROWS[family])
        key = keys.get(family, "prompt")
        row[key] = [{"role": "user", "content": f"q{number}"}, row[key][1]] if family == "sft" else f"{row[key]} {number}"
        made.append(row)
    return made


def built(make: Make, tmp_path: Path, family: str, content: list[dict[str, Any]], **more: Any) -> tuple[Workspace, Published]:
    kind = "rl" if family == "groups" else family
    workspace = make(minimal(kind, {"a": domain(jsonl(tmp_path / "a.jsonl", content), SCHEMAS[family], **more)}))
    asset = "rl_groups_by_domain" if family == "groups" else LAST[kind]
    build(workspace, f"{kind}_raw", "a")
    return workspace, build(workspace, asset, "a")


@pytest.mark.parametrize("family", SCHEMAS)
def test_an_unknown_field_stops_the_build_and_the_line_that_it_prints_mends_it(make: Make, tmp_path: Path, family: str) -> None:
    """Audit W11 and W19: fields of all kinds vanished from every family without a word."""
    content = [{**row, "mood": "good", "id": 7} if number % 2 else {**row, "mood": "", "id": 7} for number, row in enumerate(rows(family))]
    with pytest.raises(ConfigError, match=r"domain a: .*\n  'mood' in 3 rows, e\.g\. 'good'\n(.|\n)*  ignore: \[mood\]$") as stopped:
        built(make, tmp_path, family, content)
    listed = yaml.safe_load(str(stopped.value).rpartition("\n")[2])
    workspace, published = built(make, tmp_path, family, content, **listed)
    assert published.manifest.counts["fields_passed_over"] == {"a": {"id": 6, "mood": 3}}
    assert published.manifest.counts["kept"] == 6
    assert failing(workspace, published) == []
    assert verdicts(workspace, published)["accounting"].summary.endswith("fields left unread: a/id in 6, a/mood in 3")


@pytest.mark.parametrize("family", SCHEMAS)
def test_a_field_that_only_a_later_block_has_stops_the_build_then(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    from prep_assets.pipeline import examples as reading

    small = reading.read_blocks
    monkeypatch.setattr(reading, "read_blocks", lambda file, number, **more: small(file, number, **{**more, "block_bytes": 1}))
    content = rows(family, 30)
    content[25] = {**content[25], "mood": {"today": ["good"]}}
    with pytest.raises(ConfigError, match=r"'mood' in 1 row, e\.g\. \{'today'"):
        built(make, tmp_path, family, content)


@pytest.mark.parametrize("family", SCHEMAS)
def test_a_decisive_field_without_a_place_refuses_its_row_alone(make: Make, tmp_path: Path, family: str) -> None:
    content = rows(family)
    content[2] = {**content[2], "history": [["q", "a"]]}
    content[4] = {**content[4], "videos": ["v.mp4"]}
    workspace, published = built(make, tmp_path, family, content)
    assert [(each.id, each.stage, each.reason) for each in refusals(published)] == [
        ("a.jsonl:2", "schema", "unsupported_column"),
        ("a.jsonl:4", "schema", "unsupported_media"),
    ]
    assert failing(workspace, published) == []
    _, whole = built(make, tmp_path, family, content, ignore=["history", "videos"])
    assert whole.manifest.counts["kept"] == 6


def test_fields_inside_messages_stop_the_build_as_well(make: Make, tmp_path: Path) -> None:
    content = [{"messages": [{**ROWS["sft"]["messages"][0], "mood": "good"}, {"role": "assistant", "content": "a", "id": 3}]}]
    with pytest.raises(ConfigError, match=r"ignore: \[messages\.mood\]"):
        built(make, tmp_path, "sft", content)
    _, published = built(make, tmp_path, "sft", content, ignore=["messages.mood"])
    assert published.manifest.counts["fields_passed_over"] == {"a": {"messages.id": 1, "messages.mood": 1}}


def test_fields_that_choose_rows_are_accounted_for(make: Make, tmp_path: Path) -> None:
    content = [{**row, "kind": "chat", "stars": 5} for row in rows("sft")]
    more = {"where": {"stars": {">": 3}}, "domain_key": "kind", "domain_value": "chat"}
    _, published = built(make, tmp_path, "sft", content, **more)
    assert "fields_passed_over" not in published.manifest.counts and published.manifest.counts["kept"] == 6


def test_a_condition_carries_neither_a_system_prompt_nor_a_weight(make: Make, tmp_path: Path) -> None:
    """Documents that `where` chose by their weight all weighed 1; what a label or a weight of 1 says is true of every row that is read."""
    content = [{**row, "weight": weight, "label": True} for row, weight in zip(rows("pretrain"), (1, 1.0, 1, 0.5, 2, 0), strict=True)]
    _, published = built(make, tmp_path, "pretrain", content, where={"weight": {">": 0}, "label": True})
    assert [(each.id, f"{each.stage}/{each.reason}") for each in refusals(published)] == [
        ("a.jsonl:3", "schema/unsupported_column"),
        ("a.jsonl:4", "schema/unsupported_column"),
        ("a.jsonl:5", "records/filtered_by_where"),
    ]
    _, listed = built(make, tmp_path, "pretrain", content, where={"weight": {">": 0}}, ignore=["weight", "label"])
    assert listed.manifest.counts["kept"] == 5


def test_fields_of_a_row_that_is_refused_for_what_it_became_are_not_counted(make: Make, tmp_path: Path) -> None:
    """They were, and a second reading, which counts kept rows, failed the store."""
    says = [{"type": "user", "content": [{"a": "q"}]}, {"type": "assistant", "content": [{"b": "a"}]}]
    spaced = [says[0], {"type": "assistant", "content": [{"text": " "}, {"thinking": "a"}], "semantic_loss_weight": [0, 1]}]
    file = jsonl(tmp_path / "a.jsonl", [{"id": 1, "semantic_data_array": says}, {"id": 2, "semantic_data_array": spaced}])
    workspace = make(minimal("sft", {"a": domain(file, "semantic")}))
    build(workspace, "sft_raw", "a")
    published = build(workspace, "sft_tokens", "a")
    assert published.manifest.counts["fields_passed_over"] == {"a": {"id": 1}}
    assert [each.reason for each in refusals(published)] == ["weighted_space"]


def test_an_answer_labelled_bad_is_never_trained(make: Make, tmp_path: Path) -> None:
    """Audit W18: a bad answer was trained where its schema did not look at the label."""
    content = rows("sft")
    content[0] = {**content[0], "label": False}
    content[1] = {**content[1], "kto_tag": True}
    _, published = built(make, tmp_path, "sft", content)
    assert [(each.id, each.reason) for each in refusals(published)] == [("a.jsonl:0", "undesirable")]


def test_a_field_of_a_users_own_schema_is_accounted_for(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trivia_schema.py").write_text(
        "import json\n"
        "from prep_assets.samples import ASSISTANT, USER, Sample, turn\n"
        "def some(row): return Sample((turn(USER, row['q']), turn(ASSISTANT, row.get('a'))))\n"
        "def every(row): return Sample((turn(USER, json.dumps(row)), turn(ASSISTANT, {**row}['a'])), tuple(row['backend']))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    content = [{"q": f"q{i}", "a": "a", "backend": [{"type": "function", "function": {"name": "f", "parameters": {}}}]} for i in range(3)]
    file = jsonl(tmp_path / "a.jsonl", content)
    for function, stops in (("some", True), ("every", False)):
        workspace = make(minimal("sft", {"a": domain(file, f"trivia_schema:{function}")}, template="qwen3"), function)
        build(workspace, "sft_raw", "a")
        if stops:
            with pytest.raises(PrepAssetsError, match=r"ignore: \[backend\]"):
                build(workspace, "sft_tokens", "a")
        else:
            assert build(workspace, "sft_tokens", "a").manifest.counts["kept"] == 3


def test_a_field_that_is_read_in_some_rows_is_counted_in_the_others(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows hold something there than were passed over, so only converting them again tells how many; the check took any smaller number for right."""
    (tmp_path / "some_schema.py").write_text(
        "from prep_assets.samples import ASSISTANT, USER, Sample, turn\n"
        "def some(row): return Sample((turn(USER, row['source'] if row['q'] == 'q1' else row['q']), turn(ASSISTANT, 'a')))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    file = jsonl(tmp_path / "a.jsonl", [{"q": f"q{i}", "source": "s", "id": i} for i in range(4)])
    workspace = make(minimal("sft", {"a": domain(file, "some_schema:some", ignore=["id"])}))
    build(workspace, "sft_raw", "a")
    published = build(workspace, "sft_tokens", "a")
    assert published.manifest.counts["fields_passed_over"] == {"a": {"id": 4, "source": 3}}
    for fields, fault in (
        ({"id": 4, "source": 2}, "of domain a 'source' is passed over in 3 rows by a second reading, in 2 as the manifest says"),
        ({"id": 4}, "of domain a 'source' is passed over, which the manifest does not name"),
    ):
        manifest = replace(published.manifest, counts={**published.manifest.counts, "fields_passed_over": {"a": fields}})
        assert SELECTION.run(Store(workspace, ASSETS["sft_tokens"], replace(published, manifest=manifest))).summary == fault


def test_what_is_ignored_is_part_of_the_recipe_and_nothing_else_is_changed() -> None:
    plain = Domain.model_validate({"files": ["a.jsonl"], "schema": "text"})
    assert plain.reading == ["text", {}, None, "line", {}, None, None, None]
    assert plain.model_copy(update={"ignore": ("b", "a")}).reading == [*plain.reading, {"ignore": ["a", "b"]}]


def test_a_manifest_that_passes_over_what_nobody_listed_fails_the_check() -> None:
    from prep_assets.proofs.accounting import account

    counts = {"read": 2, "kept": 2, "refused": {}, "fields_passed_over": {"a": {"mood": 2, "meta": 1}}}
    books = {"stored": 2, "available": 2, "neutral": {"meta"}}
    assert account(counts, [], ignored=["a/mood"], **books).passed
    assert "a/mood" in account(counts, [], **books).summary and not account(counts, [], **books).passed
    counts["fields_passed_over"] = {"a": {"meta": 3}}
    assert not account(counts, [], **books).passed
