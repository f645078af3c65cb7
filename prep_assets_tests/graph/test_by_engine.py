"""How many documents are for which engine, against what the reference library was given while the store was built."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from prep_assets.graph.graph import EVERY, store_of
from prep_assets.pipeline import documents
from prep_assets.pipeline.asset import by_engine
from prep_assets.text.engines import BETWEEN, ReferenceEngine
from prep_assets.text.ids import Flat
from prep_assets_tests.graph.workspaces import build, jsonl, minimal, workspace_in

ODD = "\U000f0000"
"""A code point of a private plane, which is never tried."""
TEXTS = [f"document {number}{ODD * (number % 7 == 0)} é{BETWEEN * (number % 31 == 5)}" for number in range(200)]
FOR_REFERENCE = {text for text in TEXTS if ODD in text or BETWEEN in text}


@pytest.mark.parametrize("block", [1, 2 << 20])
def test_documents_are_counted_by_what_is_in_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    given = set[str]()
    encode = ReferenceEngine.encode

    def watched(self: ReferenceEngine, texts: Sequence[str]) -> Flat:
        given.update(texts)
        return encode(self, texts)

    monkeypatch.setattr(ReferenceEngine, "encode", watched)
    monkeypatch.setitem(documents.read_documents.__kwdefaults__, "block_bytes", block)
    file = jsonl(tmp_path / "docs.jsonl", ({"text": text} for text in TEXTS))
    workspace = workspace_in(tmp_path, minimal("pretrain", {"docs": {"files": [str(file)], "schema": "text"}}, tokenizer_loader="file"))
    build(workspace, "pretrain_raw", "docs")
    given.clear()
    published = EVERY["pretrain_tokens"].build(workspace, "docs").propose()
    assert given & set(TEXTS) == FOR_REFERENCE
    store = store_of(workspace, published)
    assert by_engine(store, 1 << 20) == {"gigatoken": 200 - len(FOR_REFERENCE), "tokenizers": len(FOR_REFERENCE)}
    tokens = published.manifest.counts["tokens"]
    assert by_engine(store, tokens) and not by_engine(store, tokens - 1)


def test_chats_are_counted_whole(tmp_path: Path) -> None:
    chats = [
        [("user", f"a {n}"), ("assistant", f"b{ODD * (n % 3 == 0)}"), ("user", "c"), ("assistant", ODD * (n % 5 == 0) + "d")]
        for n in range(60)
    ]
    rows = ({"messages": [{"role": role, "content": text} for role, text in chat]} for chat in chats)
    file = jsonl(tmp_path / "chats.jsonl", rows)
    domains = {"chats": {"files": [str(file)], "schema": "messages"}}
    workspace = workspace_in(tmp_path, minimal("sft", domains, template="chatml", tokenizer_loader="file"))
    build(workspace, "sft_raw", "chats")
    published = build(workspace, "sft_tokens", "chats")
    odd = sum(any(ODD in text for _, text in chat) for chat in chats)
    assert by_engine(store_of(workspace, published), 1 << 20) == {"gigatoken": 60 - odd, "tokenizers": odd}
    workspace = workspace_in(tmp_path, minimal("sft", domains, template="chatml", tokenizer_loader="file", engine="reference"))
    assert by_engine(store_of(workspace, published), 1 << 20) == {"tokenizers": 60}
