"""Chats that are too long, whichever way they are cut: every check holds, and what the manifest counts as cut away is what is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prep_assets.stores.tokens import open_tokens
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, verdicts, workspace_in

LONG = " ".join(f"word {n}" for n in range(20))
ROWS = [
    *({"messages": [{"role": "user", "content": f"Say {n}."}, {"role": "assistant", "content": f"{n}."}]} for n in range(5)),
    *(
        {"messages": [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]}
        for texts in ((LONG, "Yes."), ("Hi", "Hello.", LONG + "?", "No."), (LONG, "One.", LONG.upper(), "Two."))
    ),
]


@pytest.mark.parametrize(
    "cut",
    [
        {"truncation": "prompt"},
        {"truncation": "prompt", "truncation_keeps": {"user": {"part": "end", "least": 7}}},
        {"truncation": "turns"},
        {"truncation": "start"},
    ],
    ids=str,
)
def test_what_is_cut_away_is_counted_and_proven(tmp_path: Path, cut: dict[str, Any]) -> None:
    rows = domain(jsonl(tmp_path / "rows.jsonl", ROWS), "messages")
    lengths = {}
    for name, options in (("whole", {}), ("cut", {"preprocessing": {"max_seq_len": 60}, **cut})):
        workspace = workspace_in(tmp_path / name, minimal("sft", {"d": rows}, packing={"row_len": 512}, **options))
        build(workspace, "sft_raw", "d")
        built = build(workspace, "sft_tokens", "d")
        stream = open_tokens(built.directory, "train")
        lengths[name] = dict(zip(stream.row.tolist(), (stream.ends - stream.starts).tolist(), strict=True))
    assert not failing(workspace, built)
    gone = sum(lengths["whole"][row] - length for row, length in lengths["cut"].items())
    assert built.manifest.counts["tokens_cut_away"] == gone > 0
    other = replace(built, manifest=replace(built.manifest, counts=built.manifest.counts | {"tokens_cut_away": gone - 1}))
    found = verdicts(workspace, other)
    assert [name for name, verdict in found.items() if not verdict.passed] == ["tokenization_identity"]
    assert found["tokenization_identity"].summary == f"truncation took {gone:,} tokens, the manifest counts {gone - 1:,}"
