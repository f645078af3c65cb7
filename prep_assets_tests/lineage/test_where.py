"""A record is found wherever it is, and nowhere else: the way there is the inverse of the way back, for every token of every store."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from prep_assets.assets.workspace import Workspace
from prep_assets.errors import ConfigError
from prep_assets.lineage.rows import Origin, Piece, Place, pieces_of
from prep_assets.lineage.trace import Tracer
from prep_assets.lineage.where import Whereabouts, where
from prep_assets.stores.packed import open_documents
from prep_assets.stores.tokens import open_tokens
from prep_assets_tests.assets.workspaces import domain, minimal
from prep_assets_tests.lineage.conftest import Command, built_in
from prep_assets_tests.lineage.test_trace import EXPORTS, WITH_TOKENS, every_place

Spots = Counter[tuple[Place, int, int, int, int]]
LINES = ("preferences_by_domain", "preferences", "rl_prompts_by_domain", "rl_prompts", "preference_export_dpo", "rl_export_verl")


def spots(place: Place, piece: Piece) -> Spots:
    """Every token of a piece: where it is, and which token of which sequence of the record it is."""
    if piece.end == piece.start:
        return Counter({(place, 0, piece.part, 0, 0): 1})
    numbers = range(piece.end - piece.start)
    return Counter((place, piece.start + number, piece.part, piece.first + number, 1) for number in numbers)


@pytest.mark.parametrize("asset", [*WITH_TOKENS, *EXPORTS, *LINES])
def test_there_and_back_is_the_identity_for_every_token(made: Workspace, asset: str) -> None:
    tracer = Tracer(made)
    back: dict[tuple[str, Origin], Spots] = {}
    total = 0
    for place in every_place(tracer, asset):
        for piece in tracer.row(place).pieces:
            if piece.origin is not None:  # generated rows have none
                back.setdefault((place.partition, piece.origin), Counter()).update(spots(place, piece))
                total += max(1, piece.end - piece.start)
    assert total > 100 or asset in (*LINES, "arithmetic_tokens")  # which no source has
    for (partition, origin), expected in back.items():
        there: Spots = Counter()
        for place, piece in pieces_of(tracer.opened, asset, partition, origin):
            there += spots(place, piece)
        assert there == expected
        assert set(there.values()) == {1}


def test_the_pack_plan_itself_says_the_same(made: Workspace) -> None:
    """Without `rows` and `holding`: straight from the files that packing wrote."""
    packed, tokens = made.published("sft_packed"), made.published("sft_tokens", "gsm8k")
    assert packed is not None
    assert tokens is not None
    documents, sources, _ = open_documents(packed.directory, "sft_packed")
    store = open_tokens(tokens.directory, "train")
    [found] = [each for each in where(made, "gsm8k#5") if each.family == "sft"]
    records = np.flatnonzero(store.row == 5)
    mine = np.isin(documents["record"], records) & (np.asarray(documents["source"]) == sources.index("gsm8k"))
    expected = {
        (int(row), int(offset), int(offset + length), int(start))
        for row, offset, length, start in zip(*(documents[field][mine] for field in ("row", "row_offset", "length", "start")), strict=True)
    }
    assert {(each.row, each.start, each.end, each.first) for each in found.found if each.asset == "sft_packed"} == expected
    assert expected


def test_every_family_and_export_is_named(made: Workspace) -> None:
    row = next(number for number in range(40) if any(each.stream == "train" for each in _sft(made, f"gsm8k#{number}").found))
    by_family = {each.family: {place.asset for place in each.found} for each in where(made, f"gsm8k#{row}")}
    assert by_family["sft"] == {"sft_tokens", "sft_packed", "sft_export_trl", "sft_export_axolotl", "sft_export_by_domain"}
    every = {"rl_prompts", "rl_prompts_by_domain", "rl_tokens", "rl_tokens_by_domain", "rl_export_verl"}
    assert every >= by_family["rl"] >= {"rl_prompts", "rl_prompts_by_domain"}


def _sft(workspace: Workspace, record: str) -> Whereabouts:
    return next(each for each in where(workspace, record) if each.family == "sft")


def test_a_duplicate_names_the_winner(made: Workspace) -> None:
    found = _sft(made, "own#own.jsonl:2")
    assert found.found == ()
    [gone] = found.not_here
    assert (gone.asset, gone.partition, gone.reason, gone.winner) == ("sft_tokens", "own", "deduplicate/duplicate", "own.jsonl:1")
    assert _sft(made, f"own#{gone.winner}").found


def test_a_refused_record_says_why(made: Workspace, run: Command) -> None:
    [gone] = _sft(made, "own#3").not_here
    assert (gone.asset, gone.winner) == ("sft_tokens", None)
    assert gone.reason in run(made, "where", "own#3").output


def test_rows_beyond_a_limit_are_not_read(made: Workspace) -> None:
    [gone] = _sft(made, "gsm8k#100").not_here
    assert (gone.reason, gone.detail) == ("not_read", "the domain is not read so far (max_items: 40)")


def test_tokens_that_packing_leaves_out_are_counted(tmp_path: Path) -> None:
    domains = {"chats": domain("chats.jsonl", "messages", max_items=8)}
    configured = minimal("sft", domains, packing={"strategy": "concat", "row_len": 48, "tail": "drop"})
    workspace = built_in(tmp_path, configured)
    left = sum(
        int(each.detail.split()[0]) for row in range(8) for each in _sft(workspace, f"chats#{row}").not_here if each.reason == "left_out"
    )
    packed = workspace.published("sft_packed")
    assert packed is not None
    assert left == packed.manifest.counts["tokens_left_out"] + packed.manifest.counts["tokens_in_untrained_rows"] > 0


def test_stores_that_cannot_say_are_named(mine: Workspace) -> None:
    (mine.place("sft_packed").directory / "current").unlink()
    found = _sft(Workspace(mine.configs, mine.stores), "own#0")
    assert [label for label, _ in found.unknown] == ["sft_packed", "sft_export_trl", "sft_export_axolotl"]
    assert {each.asset for each in found.found} == {"sft_tokens", "sft_export_by_domain"}


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("own", "names no record. Write DOMAIN#FILE:ROW"),
        ("onw#3", "did you mean 'own'"),
        ("own#onw.jsonl:3", "did you mean 'own.jsonl'"),
        ("own#own.jsonl:4", "the file has no such row"),
        ("own#x", "the row a number from 0"),
    ],
)
def test_what_is_not_there_is_said(made: Workspace, record: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        where(made, record)


def test_the_command_prints_places(made: Workspace, run: Command) -> None:
    result = run(made, "where", "own#0")
    assert result.exit_code == 0, result.output
    assert "sft_tokens[own]" in result.output
    [said] = json.loads(run(made, "where", "own#0", "--json").stdout)
    assert said["id"] == "own.jsonl:0"
    duplicate = run(made, "where", "own#2").output
    assert "prep-assets where 'own#own.jsonl:1'" in duplicate
