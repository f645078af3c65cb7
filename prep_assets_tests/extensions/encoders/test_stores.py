"""Stores of chats that code writes: built, proven by the second implementation, corrupted, packed, exported, and stale with the package."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.config.models import Sft
from prep_assets.errors import CheckFailed, PrepAssetsError
from prep_assets.extensions.doctor.command import doctor
from prep_assets.extensions.encoders.names import find
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.graph.graph import EVERY
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import open_table
from prep_assets_tests.extensions.encoders.written import HARMONY, K3, RULE, V4, asks, call, needs, result, says, tide, tokenizer_with
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, out_of_date, refusals, workspace_in

needs("renderers", "tml_renderers", "openai_harmony")

VENDOR = "prep_assets_tests.extensions.encoders.vendor_formats:chat"
CALL = call("tide_at", "c1", port="Callao")
ROWS: list[dict[str, Any]] = [
    {"messages": [RULE, asks("Why is the sea salt?"), says("Rivers bring salt.")]},
    {"messages": [asks("What is 6 times 7?"), says("It is 42.", "6 · 7 = 42.")]},
    {"messages": [asks("Tide at Callao?"), says("", "", CALL), result("High", "c1"), says("It is high.")], "tools": [tide()]},
    {"messages": [asks("First."), asks("Second."), says("Third.")]},
    {"messages": [asks("Type <|end|> and <｜User｜>"), says("No <think> please.")]},
    {"messages": [asks("Where is Lima?"), says("In Peru."), asks("And Quito?"), says("In Ecuador.")]},
]
FORMATS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "deepseek-v4": (V4, {"template_options": {"enable_thinking": True}, "expand": "turns"}),
    "gpt-oss": (HARMONY, {}),
    VENDOR: (K3, {}),
}
ALLOWED = {"max_refused": {"render/renderers_differ": 0.2}}
REFUSED = {"deepseek-v4": [("chats.jsonl:4", "renderers_differ")], "gpt-oss": [("chats.jsonl:4", "renderers_differ")]}


TRAINED = {
    "deepseek-v4": "6 · 7 = 42.</think>It is 42.<｜end▁of▁sentence｜>",
    "gpt-oss": "<|channel|>analysis<|message|>6 · 7 = 42.<|end|><|start|>assistant<|channel|>final<|message|>It is 42.<|return|>",
    VENDOR: "6 · 7 = 42.<|close|>think<|sep|><|open|>response<|sep|>It is 42.<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>",
}
"""What is trained of the second row."""


def workspace_of(name: str, folder: Path, **options: Any) -> Workspace:
    tokens, own = FORMATS[name]
    folder.mkdir(exist_ok=True)
    chats = domain(jsonl(folder / "chats.jsonl", ROWS), "messages")
    said = {"tokenizer": tokenizer_with(tokens, folder / "tokenizer"), "template": f"encoder:{name}", "quality": ALLOWED, **own, **options}
    return workspace_in(folder, minimal("sft", {"chats": chats}, packing={"strategy": "bfd", "row_len": 800}, **said))


@pytest.mark.parametrize("name", [*FORMATS])
def test_a_store_is_built_and_each_corruption_caught(name: str, tmp_path: Path) -> None:
    """The row that one implementation joins and the other does not is rejected, and none else; every corruption is caught by its check."""
    workspace = workspace_of(name, tmp_path)
    packed, store = build(workspace, "sft_packed"), workspace.built("sft_tokens", "chats")
    assert [(refusal.id, refusal.reason) for refusal in refusals(store)] == REFUSED.get(name, [])
    table, vocabulary = open_table(store.directory, "train"), workspace.vocabulary(workspace.family(Sft))
    weights = table.weights("tokens", slice(int(table.lengths[:1].sum()), int(table.lengths[:2].sum())))
    assert weights is not None
    text = vocabulary.decode(np.asarray(table.record(1, "tokens"))[np.asarray(weights) > 0].tolist())
    assert text == TRAINED[name]
    assert packed.manifest.counts["tokens"] == store.manifest.counts["tokens"]
    trials = selftest(workspace, store)
    assert [trial for trial in trials if not trial.passed] == []
    marks = {"what the renderer marks begins a character late", "the renderer does not mark the last answer"} if name in REFUSED else set()
    assert {trial.mutation for trial in trials if trial.tried} >= marks | {
        "the last marker of a chat changed",
        "mask shifted by +1",
        "tail of a record cut off",
    }


def test_rows_that_both_write_differently_stop_a_build_unless_they_are_allowed(tmp_path: Path) -> None:
    with pytest.raises(
        PrepAssetsError, match=r"two implementations of the chat format differ in 1 of 6 records, so one of them is wrong"
    ) as raised:
        build(workspace_of("gpt-oss", tmp_path / "none", quality={}), "sft_tokens", "chats")
    assert "The first one, chats.jsonl:4: two renders of it differ: …" in str(raised.value)
    assert str(raised.value).endswith("to reject such rows, set quality.max_refused: {render/renderers_differ: 0.167}")
    with pytest.raises(CheckFailed, match=r"quality.max_refused allows 10.0%"):
        build(workspace_of("gpt-oss", tmp_path / "few", quality={"max_refused": {"render/renderers_differ": 0.1}}), "sft_tokens", "chats")


def test_a_wrong_encoder_of_ones_own_is_named_as_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = VENDOR.replace(":chat", ":late_prompts_short")
    monkeypatch.setitem(FORMATS, wrong, FORMATS[VENDOR])
    with pytest.raises(
        PrepAssetsError, match=r"two independent derivations of the loss mask differ in [0-9] of 6 records: nothing is built"
    ) as raised:
        build(workspace_of(wrong, tmp_path), "sft_tokens", "chats")
    assert f"The likeliest cause is the code of encoder:{wrong}: with generation_prompt " in str(raised.value)


def test_history_that_a_package_marks_otherwise_is_rejected_with_the_remedy(tmp_path: Path) -> None:
    """With reasoning, but without `expand`: DeepSeek V4 closes reasoning before answers of history, and `renderers` gives that token to nobody."""
    workspace = workspace_of("deepseek-v4", tmp_path, expand="none")
    build(workspace, "sft_tokens", "chats")
    found = {refusal.id: refusal for refusal in refusals(workspace.built("sft_tokens", "chats"))}
    assert {identity: refusal.reason for identity, refusal in found.items()} == {
        "chats.jsonl:4": "renderers_differ",
        "chats.jsonl:6": "mask_not_provable",
    }
    assert "No server sends the prompt before it: set expand: turns, or train_turns: last" in found["chats.jsonl:6"].detail


def test_another_package_makes_stale_what_it_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = workspace_of("gpt-oss", tmp_path)
    build(workspace, "sft_tokens", "chats")
    asset = EVERY["sft_tokens"]
    assert out_of_date(workspace, asset, "chats") == []
    module = import_module("prep_assets.extensions.encoders.harmony")
    monkeypatch.setattr(module, "FORMAT", replace(module.FORMAT, pinned=("another version",)))
    again = Workspace(workspace.configs, workspace.stores)
    assert {(above.name, state) for above, _, state in out_of_date(again, EVERY["sft_packed"])} == {("sft_tokens", "stale")}


def test_second_implementation_that_says_otherwise_stops_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of which one marker is wrong: nothing is built."""
    module = import_module("prep_assets.extensions.encoders.harmony")
    wrong = next(format_ for what, format_, _ in module.FORMAT.corrupted() if "marker" in what)
    monkeypatch.setattr(module, "FORMAT", wrong)
    with pytest.raises(Exception, match="renderers_differ"):
        build(workspace_of("gpt-oss", tmp_path), "sft_tokens", "chats")
    assert find("encoder:gpt-oss", None) is wrong


def test_prime_rl_trains_on_the_same_tokens(tmp_path: Path) -> None:
    """Its own code, with the renderer of its own that it would take: ids and labels of each row, but for a control token that is typed in a text."""
    names = ("latest_reminder", "action", "query", "authority", "domain", "title", "read_url")
    tokenizer = tokenizer_with([*V4, *(f"<｜{name}｜>" for name in names)], tmp_path / "tokenizer")
    rows = [ROWS[at] for at in (0, 2, 4, 5)]
    arguments = {"trainer": "prime-rl", "dataset": str(jsonl(tmp_path / "chats.jsonl", rows)), "tokenizer": tokenizer}
    facts = doctor.__wrapped__(**arguments, template="encoder:deepseek-v4", renderer="deepseek-v4").facts  # type: ignore[attr-defined]
    assert (facts["compared"], facts["equal"]) == (4, 3)
    assert "a control token that is typed in a text becomes the control token" in str(facts)
