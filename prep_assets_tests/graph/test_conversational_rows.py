"""Preferences and RL prompts with tools, tool calls and reasoning: the form of their files, and their tokens, proven."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prep_assets.config.models import Preference, Rl
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.lines import open_lines
from prep_assets.stores.tokens import open_tokens
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import build, build_all, domain, failing, jsonl, minimal, part_of, refusals, workspace_in

FUNCTION = {"name": "f", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 2}}}]}
THOUGHT = {"role": "assistant", "content": "4", "reasoning_content": "Two twos."}
PLAIN = [{"prompt": f"P{i}?", "chosen": "yes", "rejected": "no"} for i in range(3)]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


RICH: list[dict[str, Any]] = [
    {"prompt": [user("2 + 2?")], "chosen": [THOUGHT], "rejected": [assistant("5")]},
    {"prompt": [user("2 + 2?")], "chosen": [CALL], "rejected": [assistant("5")], "tools": TOOLS},
    {
        "prompt": [{"role": "system", "content": "Brief."}, user("2 + 2?")],
        "chosen": [CALL, {"role": "tool", "content": "4"}, assistant("4")],
        "rejected": [CALL, {"role": "tool", "content": "4"}, assistant("5")],
        "tools": TOOLS,
    },
    {"prompt": [user("Hi"), assistant("Hi."), user("Bye")], "chosen": [assistant("Bye.")], "rejected": [assistant("No.")]},
]


def preferences(folder: Path, rows: list[dict[str, Any]], **options: Any) -> tuple[Workspace, Published]:
    folder.mkdir(parents=True, exist_ok=True)
    data = {"p": domain(jsonl(folder / "p.jsonl", rows), "preference")}
    chosen = {"template": "qwen3", "test_fraction": 0.0, "shuffle": False, **options}
    workspace = workspace_in(folder, minimal("preference", data, **chosen))
    stores = build_all(workspace, ["preference"])
    for store in stores.values():
        assert failing(workspace, store) == []
    return workspace, stores["preferences", ""]


def test_pairs_with_tools_and_reasoning_become_messages(tmp_path: Path) -> None:
    """They were refused: rows of this family had text only."""
    workspace, published = preferences(tmp_path, RICH)
    rows = list(open_lines(published.directory, "preferences"))
    plain = [{key: json.loads(value) if key == "tools" else value for key, value in row.items()} for row in rows]
    assert plain == RICH
    tokens = workspace.published("preference_tokens")
    assert tokens is not None and tokens.manifest.counts["kept"] == 4
    decode = workspace.vocabulary(workspace.family(Preference)).backend.decode
    store = open_tokens(tokens.directory, "chosen")
    trained = [decode(store.record(i, "tokens")[store.record(i, "loss_mask") != 0].tolist(), skip_special_tokens=False) for i in range(4)]
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 2}}\n</tool_call><|im_end|>'
    empty = "<think>\n\n</think>\n\n"
    assert trained == [
        "<think>\nTwo twos.\n</think>\n\n4<|im_end|>",
        f"{empty}{call}",
        f"{call}{empty}4<|im_end|>",
        f"{empty}Bye.<|im_end|>",
    ]
    assert "# Tools" in decode(store.record(1, "tokens").tolist(), skip_special_tokens=False)


@pytest.mark.parametrize("form", ["auto", "text", "messages"])
def test_one_form_for_the_whole_store(tmp_path: Path, form: str) -> None:
    workspace, published = preferences(tmp_path, [*PLAIN, *RICH[:1]], form=form)
    rows = list(open_lines(published.directory, "preferences"))
    kinds = {type(row[part]) for row in rows for part in ("prompt", "chosen", "rejected")}
    assert kinds == ({str} if form == "text" else {list})
    assert part_of(workspace, "preferences", "p").manifest.counts["refused"] == ({"pair/not_plain_text": 1} if form == "text" else {})
    assert published.manifest.counts["kept"] == len(rows) == (3 if form == "text" else 4)


def test_auto_writes_strings_where_they_do_and_does_not_change_for_a_row_that_is_refused(tmp_path: Path) -> None:
    empty = {"prompt": [user("2 + 2?")], "chosen": [THOUGHT], "rejected": [{**THOUGHT}]}
    _, published = preferences(tmp_path / "auto", [*PLAIN, empty])
    assert list(open_lines(published.directory, "preferences")) == PLAIN
    _, text = preferences(tmp_path / "text", PLAIN, form="text")
    assert list(open_lines(text.directory, "preferences")) == PLAIN


def test_the_same_reasoning_in_field_and_text_stands_once_in_a_pair(tmp_path: Path) -> None:
    both = {"role": "assistant", "content": "<think>Two twos.</think>4", "reasoning_content": "Two twos."}
    _, published = preferences(tmp_path, [{"prompt": [user("2 + 2?")], "chosen": [both], "rejected": [assistant("5")]}])
    (row,) = open_lines(published.directory, "preferences")
    assert row == {"prompt": "2 + 2?", "chosen": "<think>Two twos.</think>4", "rejected": "5"}


def test_labelled_answers_carry_them_too(tmp_path: Path) -> None:
    rows = [{"messages": [user("2 + 2?"), CALL], "label": True, "tools": TOOLS}, {"messages": [user("?"), assistant("4")], "label": False}]
    workspace = workspace_in(tmp_path, minimal("preference", {"k": domain(jsonl(tmp_path / "k.jsonl", rows), "kto")}, test_fraction=0.0))
    build(workspace, "preference_raw", "k")
    published = build(workspace, "preferences")
    assert failing(workspace, published) == [] and refusals(part_of(workspace, "preferences", "k")) == []
    found = {row["label"]: row for row in open_lines(published.directory, "unpaired")}
    assert found[True] == {"prompt": [user("2 + 2?")], "completion": [CALL], "label": True, "tools": json.dumps(TOOLS)}
    assert found[False] == {"prompt": [user("?")], "completion": [assistant("4")], "label": False}


def test_prompts_of_rl_carry_tools_and_calls(tmp_path: Path) -> None:
    asked = [user("2 + 2?"), CALL, {"role": "tool", "content": "4"}]
    rows: list[dict[str, Any]] = [{"prompt": "1 + 1?", "gold": "2"}, {"prompt": asked, "gold": "4", "tools": TOOLS}]
    data = {"p": domain(jsonl(tmp_path / "p.jsonl", rows), "rl_prompt")}
    workspace = workspace_in(tmp_path, minimal("rl", data, template="qwen3", test_fraction=0.0))
    stores = build_all(workspace, ["rl"])
    for store in stores.values():
        assert failing(workspace, store) == []
    found = list(open_lines(stores["rl_prompts", ""].directory, "rl_prompts_train"))
    assert found == [{"prompt": [user("1 + 1?")], "gold": 2}, {"prompt": asked, "gold": 4, "tools": json.dumps(TOOLS)}]
    assert stores["rl_tokens_by_domain", "p"].manifest.counts["refused"] == {}
    store = open_tokens(stores["rl_tokens", ""].directory, "prompts")
    text = workspace.vocabulary(workspace.family(Rl)).backend.decode(store.record(1, "tokens").tolist(), skip_special_tokens=False)
    assert "# Tools" in text and '{"name": "f", "arguments": {"a": 2}}' in text and text.endswith("<|im_start|>assistant\n")
