"""Names of speakers with every template: left out and counted, or in front of the text, they give the tokens of the same chats written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from prep_assets.config.models import Sft
from prep_assets.errors import PrepAssetsError
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.lines import open_lines
from prep_assets.stores.tokens import open_tokens
from prep_assets.stores.version_folders import Published
from prep_assets.text.load_template import named_templates
from prep_assets_tests.graph.every_template import CHATML, PROMPT, tokenizer, trl, workspace_of
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, refusals, workspace_in

CALL = {"id": "c12345678", "type": "function", "function": {"name": "sum", "arguments": {"n": 2}}}
TOOL = {"type": "function", "function": {"name": "sum", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}
SHOWS = CHATML.replace("{{ m.role }}", "{{ m.role }}{{ ' name=' + m.name if m.name }}") + PROMPT


def chat(*messages: tuple[str, str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": text, **({"name": name} if name else {})} for role, name, text in messages]}


def by_hand(row: dict[str, Any], *, written: bool) -> dict[str, Any]:
    """The row without names, or with each in front of its text."""
    messages = [
        message
        if message["role"] == "tool"
        else {
            **{key: value for key, value in message.items() if key != "name"},
            "content": f"{message['name']}: {message['content']}" if written and "name" in message else message["content"],
        }
        for message in row["messages"]
    ]
    return {**row, "messages": messages}


NAMED = [
    chat(("user", "ann", "Hi"), ("assistant", "", "Well.")),
    chat(("system", "boss", "Be kind."), ("user", "ann", "Hello"), ("assistant", "bot", "Well.")),
    chat(("user", "ann", " Who?"), ("assistant", "", "You."), ("user", "ben", "And I?"), ("assistant", "", "You too.")),
    {
        "messages": [
            {"role": "user", "name": "ann", "content": "1 + 1?"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": CALL["id"], "name": "sum", "content": "2"},
            {"role": "assistant", "content": "Two."},
        ],
        "tools": [TOOL],
    },
]
BARE = [chat(("user", "", f"What is {number}?"), ("assistant", "", "It is it.")) for number in range(3)]
ROWS = [*NAMED, *BARE]
DOMAINS: Mapping[str, Any] = {
    "keep": (ROWS, {}),
    "leave_out": (ROWS, {"speaker_names": "leave_out"}),
    "left_out": ([by_hand(row, written=False) for row in ROWS], {}),
    "write": (ROWS, {"speaker_names": "write"}),
    "written": ([by_hand(row, written=True) for row in ROWS], {}),
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer("bytes", tmp_path_factory.mktemp("tokenizers") / "bytes")


def content(store: Published) -> list[Any]:
    """Everything that is trained with, and which rows are refused."""
    opened = open_tokens(store.directory, "train")
    arrays = [opened.arrays[key][:].tolist() for key in ("tokens", "loss_mask")]
    return [*arrays, opened.lengths.tolist(), [(each.id.rpartition(":")[2], each.reason) for each in refusals(store)]]


def wrong(workspace: Workspace) -> list[str]:
    """What is wrong with the stores of one template."""
    stores = {name: build(workspace, "sft_tokens", name) for name in DOMAINS}
    found = []
    for set_so, made_so in (("leave_out", "left_out"), ("write", "written")):
        found += [f"{set_so} is not {made_so}"] if content(stores[set_so]) != content(stores[made_so]) else []
    passed_over = {name: store.manifest.counts.get("fields_passed_over") for name, store in stores.items()}
    found += [] if passed_over == dict.fromkeys(DOMAINS) | {"leave_out": {"leave_out": {"messages.name": 4}}} else [str(passed_over)]
    refused = [each for each in refusals(stores["keep"]) if each.reason == "template_drops_names"]
    found += (
        [] if all("speaker_names: write" in each.detail and "speaker_names: leave_out" in each.detail for each in refused) else ["untold"]
    )
    return found if refused else [*found, "names are shown"]


def faults(folder: Path, templates: Mapping[str, str], tokens: Path) -> dict[str, list[str]]:
    found = {}
    for number, (name, source) in enumerate(templates.items()):
        stops = "none" if name == "glm4moe" else "turn"  # which ends no answer
        try:
            found[name] = wrong(workspace_of(folder / str(number), source, tokens, DOMAINS, train_on_eos=stops))
        except PrepAssetsError as error:
            found[name] = [str(error)]
    return {name: each for name, each in found.items() if each}


def test_shipped_templates(tmp_path: Path, tokens: Path) -> None:
    assert not faults(tmp_path, named_templates(), tokens)


def test_published_templates(tmp_path: Path, tokens: Path, real_data: Path) -> None:
    """But for the training variants, which render the same."""
    assert not faults(tmp_path, {name: source for name, source in trl(real_data).items() if not name.endswith("_training")}, tokens)


def test_a_template_that_shows_names(tmp_path: Path, tokens: Path) -> None:
    workspace = workspace_of(tmp_path / "shows", SHOWS, tokens, {name: DOMAINS[name] for name in ("keep", "write")})
    kept, written = (build(workspace, "sft_tokens", name) for name in ("keep", "write"))
    vocabulary = workspace.vocabulary(workspace.family(Sft))

    def first(store: Published) -> str:
        return vocabulary.decode(open_tokens(store.directory, "train").record(0, "tokens"))

    assert first(kept).startswith("<|im_start|>user name=ann\nHi<|im_end|>")
    assert first(written).startswith("<|im_start|>user\nann: Hi<|im_end|>")
    assert "fields_passed_over" not in kept.manifest.counts and "fields_passed_over" not in written.manifest.counts


@pytest.mark.parametrize(("mode", "asked", "counted"), [("write", "ann: Hi", {}), ("leave_out", "Hi", {"pairs": {"prompt.name": 4}})])
def test_preferences(tmp_path: Path, mode: str, asked: str, counted: Any) -> None:
    def said(text: str) -> list[dict[str, str]]:
        return [{"role": "assistant", "content": text}]

    question = [{"role": "user", "name": "ann", "content": "Hi"}]
    rows = [{"prompt": question, "chosen": said(f"Well, {number}."), "rejected": said(f"No, {number}.")} for number in range(4)]
    pairs = domain(jsonl(tmp_path / "pairs.jsonl", rows), "preference", speaker_names=mode)
    workspace = workspace_in(tmp_path, minimal("preference", {"pairs": pairs}))
    build(workspace, "preference_raw", "pairs")
    lines = build(workspace, "preferences_by_domain", "pairs")
    assert {line["prompt"] for line in open_lines(lines.directory, "preferences")} == {asked}
    assert lines.manifest.counts.get("fields_passed_over", {}) == counted
    build(workspace, "preference_tokens_by_domain", "pairs")
