"""A draft, which options of one run made, is traced with these options, and what it was made from with those of the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from prep_assets.assets.graph import EVERY
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Sft
from prep_assets.errors import StoreError
from prep_assets.lineage.opened import streams
from prep_assets.lineage.rows import Place
from prep_assets.lineage.token import token_of
from prep_assets.lineage.trace import Tracer, trace
from prep_assets.lineage.where import where
from prep_assets_tests.lineage.conftest import Command
from prep_assets_tests.lineage.test_trace import _count

DRAFTS: list[tuple[str, str, dict[str, Any]]] = [
    ("sft_tokens", "own", {"template": "chatml", "train_on_eos": "none"}),
    ("sft_packed", "", {"packing": {"row_len": 64}}),
    ("pretrain_tokens", "notes", {"append_eod": False}),
    ("preferences_by_domain", "hh", {"form": "messages"}),
    ("preference_tokens_by_domain", "hh", {"preprocessing": {"max_seq_len": 70}, "truncation": "end"}),
    ("rl_prompts_by_domain", "gsm8k", {"form": "messages"}),
    ("arithmetic_prompts", "", {"arithmetic": {"seed": 7}}),
]


def drafted(workspace: Workspace, asset: str, partition: str, options: dict[str, Any]) -> None:
    """Make a draft, without its checks."""
    found = EVERY[asset]
    made = found.build(workspace.overriding(found.family, options), partition).propose(draft=True)
    assert not made.reused and made.manifest.options == options


@pytest.mark.parametrize(("asset", "partition", "options"), DRAFTS, ids=[each[0] for each in DRAFTS])
def test_the_source_alone_gives_every_token_of_a_draft(mine: Workspace, asset: str, partition: str, options: dict[str, Any]) -> None:
    current = trace(mine, asset, 0, partition=partition or None)
    drafted(mine, asset, partition, options)
    tracer = Tracer(mine, (asset, partition))
    published = tracer.opened.published(asset, partition)
    assert published.manifest.content_hash != mine.content(asset, partition)
    seen = 0
    for stream in streams(published):
        first = Place(asset, partition, stream, 0)
        for found in tracer.trace([Place(asset, partition, stream, row) for row in range(_count(tracer, first))]):
            assert found.differs == ()
            for each in found.pieces:
                if each.line is not None and len(each.piece.path) == 1:
                    lines = (published.directory / f"{stream}.jsonl").read_text("utf-8").splitlines()
                    stored = json.loads(lines[found.row.place.row])
                    assert {key: stored[key] for key in each.line} == each.line
            seen += 1
    assert seen
    assert f"{mine.place(asset, partition).label} (draft)" in tracer.trace([Place(asset, partition, streams(published)[0], 0)])[0].hashes
    again = trace(mine, asset, 0, partition=partition or None)
    assert again.hashes == current.hashes and (again.row.ids == current.row.ids).all()


def test_where_looks_into_drafts_where_that_is_asked_for(mine: Workspace, run: Command) -> None:
    before = where(mine, "gsm8k#3")
    drafted(mine, "sft_packed", "", {"packing": {"row_len": 64}})
    assert where(mine, "gsm8k#3") == before
    [found] = [each for each in where(mine, "gsm8k#3", drafts=True) if each.family == "sft"]
    packed = [each for each in found.found if each.draft]
    [tokens] = [each for each in found.found if each.asset == "sft_tokens"]
    assert {each.asset for each in packed} == {"sft_packed"} and found.not_here == ()
    assert sorted(at for each in packed for at in range(each.first, each.first + each.end - each.start)) == list(range(tokens.end))
    assert "sft_packed (draft)" in run(mine, "where", "gsm8k#3", "--draft").output
    for each in packed:
        row = trace(mine, "sft_packed", each.row, draft=True)
        assert "gsm8k.jsonl:3" in {piece.source.id for piece in row.pieces if piece.source}


def test_a_draft_that_says_nothing_of_its_options_or_is_not_there_is_told(mine: Workspace, run: Command) -> None:
    with pytest.raises(StoreError, match=r"sft_packed has no draft.*\n.*prep-assets build sft_packed --set KEY=VALUE"):
        trace(mine, "sft_packed", 0, draft=True)
    with pytest.raises(StoreError, match=r"a draft of sft_raw\[own\] has no rows of its own"):
        trace(mine, "sft_raw", 0, partition="own", draft=True)
    drafted(mine, "sft_packed", "", {"packing": {"row_len": 64}})
    shown = run(mine, "trace", "sft_packed", "--row", 1, "--token", 0, "--draft")
    assert shown.exit_code == 0 and "sft_packed (draft) row 1 of" in shown.output
    file = mine.configs / "sft.yaml"
    file.write_text(file.read_text("utf-8").replace("strategy: concat", "strategy: bfd_split"), "utf-8")
    said = r'the draft of sft_packed is not what its options \({"packing": {"row_len": 64}}\) would give now \(changed: .*strategy'
    with pytest.raises(StoreError, match=said):
        trace(Workspace(mine.configs, mine.stores), "sft_packed", 0, draft=True)


def test_tokens_of_a_draft_are_named_by_its_own_tokenizer(mine: Workspace, tmp_path: Path) -> None:
    other = tmp_path / "tokenizer"
    shutil.copytree(mine.configs / mine.family(Sft).tokenizer, other)
    file = other / "tokenizer.json"
    said = json.loads(file.read_text("utf-8"))
    vocabulary = said["model"]["vocab"]
    one, two = (vocabulary[letter] for letter in "HG")  # two letters that no merge begins with change places
    vocabulary["H"], vocabulary["G"] = two, one
    file.write_text(json.dumps(said), "utf-8")
    drafted(mine, "sft_tokens", "own", {"tokenizer": str(other)})
    found = trace(mine, "sft_tokens", 0, partition="own", draft=True)
    texts = [token_of(found, place)[0].token.text for place in range(len(found.row.ids))]
    assert "".join(texts).startswith(trace(mine, "sft_tokens", 0, partition="own").pieces[0].sequence.text[:20])  # type: ignore[union-attr]
