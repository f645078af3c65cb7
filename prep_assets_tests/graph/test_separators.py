"""What stands between a prompt and a completion without a chat template: Cerebras Model Zoo writes the tokenizer's ``sep_token``, else ``<|sep|>``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from prep_assets.errors import CheckFailed
from prep_assets.samples import COMPLETION, changed
from prep_assets.schemas import messages
from prep_assets.stores.table import open_stream
from prep_assets_tests.graph.workspaces import CONFIGS, build, domain, jsonl, minimal, verdicts, workspace_in

PAIR = {"prompt": "Say hi", "completion": "hi  "}
TURNS = {
    "semantic_data_array": [{"type": kind, "content": [{"text": text}]} for kind, text in PAIR.items() if kind in ("prompt", "completion")]
}
TOKEN = "<|im_start|>"


def tokenizer(folder: Path, **special: str) -> Path:
    """The shipped tokenizer with more special tokens."""
    made = Path(shutil.copytree(CONFIGS / "tokenizer", folder / "tokenizer"))
    file = made / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | special), "utf-8")
    return made


OWN: dict[str, Any] = {"sep_token": TOKEN}


@pytest.mark.parametrize(
    ("schema", "row", "special", "separator", "between", "typed"),
    [
        *(
            (schema, row, special, separator, between, "text")
            for schema, row in (("semantic", TURNS), ("prompt_completion", PAIR))
            for special, separator, between in (
                (OWN, None, TOKEN),
                ({}, None, "<|sep|>"),
                (OWN, "|", "|"),
                (OWN, "", ""),
                ({}, TOKEN, TOKEN),
            )
        ),
        *(
            ("prompt_completion_text_read_hook", PAIR, special, None, between, "text")
            for special, between in ((OWN, TOKEN), ({}, "<|sep|>"))
        ),
        *(("prompt_completion", PAIR, OWN, None, TOKEN, typed) for typed in ("strip", "refuse", "allow")),
    ],
)
def test_it_is_one_token_if_the_tokenizer_has_it(
    tmp_path: Path, schema: str, row: dict[str, Any], special: dict[str, str], separator: str | None, between: str, typed: str
) -> None:
    folder = tokenizer(tmp_path, **special)
    domains = {"a": domain(jsonl(tmp_path / "a.jsonl", [row]), schema, options={"separator": separator})}
    workspace = workspace_in(tmp_path, minimal("sft", domains, tokenizer=str(folder), template="chatml", special_in_content=typed))
    published = build(workspace, "sft_tokens", "a")
    store, read = open_stream(published.directory, "train"), Tokenizer.from_file(str(folder / "tokenizer.json"))
    # the reference: text between control tokens encoded alone, one id for each control token
    (end,) = (read.token_to_id(token) for token in ("<|endoftext|>",))
    plain = lambda text: read.encode(text, add_special_tokens=False).ids  # noqa: E731
    if between == TOKEN:
        ids = [*plain("Say hi"), read.token_to_id(TOKEN), *plain("hi  "), end]
    else:
        ids = [*plain(f"Say hi{between}hi  "), end]
    assert store.columns["tokens"].values[:].tolist() == ids
    trained = [token for token, weight in zip(ids, store.columns["loss_mask"].values[:].tolist(), strict=True) if weight]
    assert read.decode(trained, skip_special_tokens=False) == "hi  <|endoftext|>"


def test_the_default_of_the_hooks_is_the_tokenizers_own(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path, sep_token=TOKEN)
    domains = {
        name: domain(jsonl(tmp_path / f"{name}.jsonl", [row]), schema)
        for name, schema, row in (
            ("a", "prompt_completion_text_read_hook", PAIR),
            ("b", "semantic", TURNS),
            ("c", "prompt_completion", PAIR),
        )
    }
    workspace = workspace_in(tmp_path, minimal("sft", domains, tokenizer=str(folder), template="chatml"))
    token = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id(TOKEN)
    counts = [
        open_stream(build(workspace, "sft_tokens", name).directory, "train").columns["tokens"].values[:].tolist().count(token)
        for name in domains
    ]
    assert counts == [1, 1, 0]


def test_a_separator_typed_in_a_row_stays_text(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path, sep_token=TOKEN)
    rows = [{"prompt": f"Say {TOKEN}", "completion": f"{TOKEN}hi"}]
    domains = {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "prompt_completion", options={"separator": None})}
    workspace = workspace_in(tmp_path, minimal("sft", domains, tokenizer=str(folder), template="chatml"))
    ids = open_stream(build(workspace, "sft_tokens", "a").directory, "train").columns["tokens"].values[:].tolist()
    assert ids.count(Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id(TOKEN)) == 1


def test_texts_that_end_otherwise_than_their_row_says_are_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build and proof are given the same turns, so only the row itself tells."""
    right = messages.plain_sample
    monkeypatch.setattr(messages, "plain_sample", lambda row, turns: right(row, [changed(each, role=COMPLETION) for each in turns]))
    domains = {"a": domain(jsonl(tmp_path / "a.jsonl", [PAIR]), "prompt_completion")}
    workspace = workspace_in(tmp_path, minimal("sft", domains, template="chatml"))
    with pytest.raises(CheckFailed, match=r"source_texts: .* ends a record that must be '.*', and is '"):
        build(workspace, "sft_tokens", "a")


def test_a_separator_that_is_lost_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "separated", lambda turns, separator: tuple(turns))
    domains = {"a": domain(jsonl(tmp_path / "a.jsonl", [PAIR]), "prompt_completion_text_read_hook")}
    workspace = workspace_in(tmp_path, minimal("sft", domains, template="chatml"))
    with pytest.raises(CheckFailed, match=r"must be 'Say hi<\|sep\|>hi  <\|endoftext\|>', and is 'Say hihi  "):
        build(workspace, "sft_tokens", "a")


def test_sections_of_a_document_end_once(tmp_path: Path) -> None:
    rows = jsonl(tmp_path / "rows.jsonl", [{"title": "Sea", "text": " and sky."}, {"title": "Sun", "text": " and moon."}])
    sections = {"sections": [{"field": "title", "action": "train"}, {"field": "text", "action": "train"}]}
    workspace = workspace_in(tmp_path, minimal("pretrain", {"a": domain(rows, "sections", options=sections)}))
    found = verdicts(workspace, build(workspace, "pretrain_tokens", "a"))
    assert {name: verdict.summary for name, verdict in found.items() if not verdict.passed} == {}


def test_a_text_in_a_column_named_as_files_are_is_no_file(tmp_path: Path) -> None:
    rows = jsonl(tmp_path / "rows.jsonl", [{"audio": "What is heard?", "output": "The sea."}])
    workspace = workspace_in(tmp_path, minimal("sft", {"a": domain(rows, "alpaca", options={"prompt_key": "audio"})}))
    found = verdicts(workspace, build(workspace, "sft_tokens", "a"))
    assert {name: verdict.summary for name, verdict in found.items() if not verdict.passed} == {}
