"""A record is found wherever it is, and nowhere else: the way there is the inverse of the way back, for every token of every store."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.config.loading import FILE, payload_digest, read_tombstones
from prep_assets.engine import build
from prep_assets.errors import ConfigError
from prep_assets.extensions.explain.streams import Origin, Piece, Place, pieces_of
from prep_assets.extensions.explain.trace import Tracer
from prep_assets.extensions.explain.where import Whereabouts, where
from prep_assets.extensions.neighbours.forget import forget, needles_of, records_with
from prep_assets.graph.graph import assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.packed import open_documents
from prep_assets.stores.table import open_stream
from prep_assets_tests.explain.conftest import Command, with_sources
from prep_assets_tests.explain.made import EXPORTS, WITH_TOKENS, chat, every_place, small
from prep_assets_tests.graph.workspaces import all_unchecked, domain, jsonl, minimal, workspace_in
from prep_assets_tests.stored import packed_rows

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


def test_every_family_and_export_is_named(made: Workspace) -> None:
    row = next(number for number in range(40) if any(each.stream == "train" for each in _sft(made, f"gsm8k#{number}").found))
    by_family = {each.family: {place.asset for place in each.found} for each in where(made, f"gsm8k#{row}")}
    assert by_family["sft"] == {"sft_tokens", "sft_packed", "sft_export_trl", "sft_export_axolotl", "sft_export_by_domain"}
    every = {"rl_prompts", "rl_prompts_by_domain", "rl_tokens", "rl_tokens_by_domain", "rl_export_verl"}
    assert every >= by_family["rl"] >= {"rl_prompts", "rl_prompts_by_domain"}


def _sft(workspace: Workspace, record: str) -> Whereabouts:
    return next(each for each in where(workspace, record) if each.family == "sft")


def test_a_duplicate_names_the_winner(made: Workspace) -> None:
    found = _sft(made, "own/own.jsonl:3")
    assert found.found == ()
    [gone] = found.not_here
    assert (gone.asset, gone.partition, gone.reason, gone.winner) == ("sft_tokens", "own", "deduplicate/duplicate", "own.jsonl:2")
    assert _sft(made, f"own/{gone.winner}").found


def test_a_refused_record_says_why(made: Workspace, run: Command) -> None:
    [gone] = _sft(made, "own#3").not_here
    assert (gone.asset, gone.winner) == ("sft_tokens", None)
    assert gone.reason in run(made, "where", "own#3").output


def test_rows_beyond_a_limit_are_not_read(made: Workspace) -> None:
    [gone] = _sft(made, "gsm8k#100").not_here
    assert (gone.reason, gone.detail) == ("not_read", "the domain is not read so far (max_items: 16)")


def test_tokens_that_packing_leaves_out_are_counted(tmp_path: Path) -> None:
    domains = {"chats": domain("chats.jsonl", "messages", max_items=8)}
    configured = minimal("sft", domains, packing={"strategy": "concat", "row_len": 48, "tail": "drop"})
    workspace = all_unchecked(workspace_in(tmp_path, configured))
    left = sum(
        int(each.detail.split()[0]) for row in range(8) for each in _sft(workspace, f"chats#{row}").not_here if each.reason == "left_out"
    )
    packed = workspace.built("sft_packed")
    assert left == packed.manifest.counts["tokens_left_out"] + packed.manifest.counts["tokens_in_untrained_rows"] > 0


def test_stores_that_cannot_say_are_named(mine: Workspace) -> None:
    (mine.place("sft_packed").directory / "current").unlink()
    found = _sft(Workspace(mine.configs, mine.stores), "own#0")
    assert [label for label, _ in found.unknown] == ["sft_packed", "sft_export_trl", "sft_export_axolotl"]
    assert {each.asset for each in found.found} == {"sft_tokens", "sft_export_by_domain"}


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("own", "names no record. Write DOMAIN/FILE:NUMBER"),
        ("onw#3", "did you mean 'own'"),
        ("own/onw.jsonl:4", "did you mean 'own.jsonl'"),
        ("own/own.jsonl:5", "the file has no such record"),
        ("own#x", "names no record"),
        ("own/0", "counted from 1"),
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
    assert said["id"] == "own.jsonl:1"
    duplicate = run(made, "where", "own#2").output
    assert "prep-assets where 'own/own.jsonl:2'" in duplicate


# -- a forgotten record is in no current store, by index and by text, and never comes back; what did not hold it keeps its files ---------


SECRET = chat("Who lives at 12 Garden Street?", "Ada Byron lives there.")


@pytest.fixture(scope="session")
def _secret(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("forget")
    configured = small(folder / "data")
    plain = [chat("Who is it?", "It is nobody."), SECRET, chat("And then?", "Nothing more."), SECRET]
    configured["sft"]["domains"]["one"] = domain(jsonl(folder / "data" / "one.jsonl", plain), "messages")
    return all_unchecked(workspace_in(folder, configured))


@pytest.fixture
def workspace(_secret: Workspace, tmp_path: Path) -> Workspace:
    return with_sources(_secret, tmp_path / "w")


def folders(workspace: Workspace) -> dict[str, tuple[Path, int]]:
    """The current folder of each store, and its inode."""
    every = [(asset.name, each) for asset in assets_of(workspace).values() for each in asset.partitions(workspace)]
    found = {workspace.place(*store).label: workspace.place(*store).current() for store in every}
    return {label: (store.directory, store.directory.stat().st_ino) for label, store in found.items() if store}


def text_of(workspace: Workspace) -> str:
    """Everything that current stores and their quarantines say in plain bytes."""
    current = [directory for directory, _ in folders(workspace).values()]
    beside = [path for directory in current for path in directory.parent.glob(f"{directory.name}.quarantine.jsonl")]
    paths = [*(path for directory in current for path in directory.rglob("*") if path.is_file()), *beside]
    return "".join(path.read_bytes().decode("utf-8", "replace") for path in paths)


def decoded(workspace: Workspace, name: str) -> str:
    from prep_assets.config.models import Sft

    published = workspace.built(name)
    table = open_stream(published.directory, "sft_packed")
    return workspace.vocabulary(workspace.family(Sft)).decode([int(token) for row in packed_rows(table) for token in row])


def test_only_what_held_it_is_built_again(workspace: Workspace) -> None:
    before = folders(workspace)
    assert "Ada Byron" in decoded(workspace, "sft_packed")
    done = forget(workspace, ["one#1"], reason="asked by mail")
    after = folders(Workspace(workspace.configs, workspace.stores))
    assert {label for label in before if before[label] != after[label]} == {
        "sft_tokens[one]",
        "sft_packed",
        "sft_export_trl",
        "sft_export_tlfs",
    }
    assert set(done.held) >= {"sft_tokens[one]", "sft_packed", "sft_export_trl"}
    assert (done.left, done.searched) == ({}, len([label for label in before if label.startswith("sft") and label.count("[") == 0]) + 2)
    again = Workspace(workspace.configs, workspace.stores)
    assert "Ada Byron" not in decoded(again, "sft_packed")
    # the row and its duplicate are refused by name, and what they said is nowhere
    assert "Garden Street" not in text_of(again)
    assert [each.not_here[0].reason for row in (1, 3) for each in where(again, f"one#{row}")] == ["records/forgotten"] * 2
    published = again.built("sft_tokens", "one")
    assert published.manifest.counts["refused"] == {"records/forgotten": 2}


def test_the_tombstone_names_no_content(workspace: Workspace) -> None:
    forget(workspace, ["one/one.jsonl:2"], reason="asked by mail")
    [stone] = read_tombstones(workspace.configs)
    assert (stone.family, stone.domain, stone.record, stone.reason) == ("sft", "one", "one.jsonl:2", "asked by mail")
    assert stone.digest == payload_digest(dict(reversed(SECRET.items())))
    assert "Byron" not in (workspace.configs / FILE).read_text("utf-8")


def test_no_refresh_brings_it_back(workspace: Workspace) -> None:
    forget(workspace, ["one#1"])
    source = workspace.configs.parent / "data" / "one.jsonl"
    # fetched again: at another row, and with its keys in another order
    jsonl(source, [chat("New?", "New."), *[chat(f"{n}?", f"{n}.") for n in range(3)], dict(reversed(SECRET.items()))])
    again = Workspace(workspace.configs, workspace.stores)
    build(again, "sft_export_trl")
    [found] = where(again, "one#4")
    assert found.found == ()
    assert [gone.reason for gone in found.not_here] == ["records/forgotten"]
    assert "Byron" not in decoded(again, "sft_packed")


def test_old_versions_are_deleted_where_that_is_asked_for(workspace: Workspace) -> None:
    held = {label: folder for label, (folder, _) in folders(workspace).items()}
    done = forget(workspace, ["one#1"], prune=True)
    assert done.old == ()
    assert set(done.removed) >= {str(held[label]) for label in ("sft_tokens[one]", "sft_packed", "sft_export_trl")}
    assert not any(Path(path).exists() for path in done.removed)


def test_a_draft_that_holds_it_is_named_and_deleted_where_that_is_asked_for(workspace: Workspace) -> None:
    """A pointer led to it, so that no `prune` deleted it."""
    build(workspace.overriding("sft", {"packing": {"row_len": 64}}), "sft_packed")
    place = workspace.place("sft_packed")
    draft = place.draft()
    assert draft is not None
    kept = str(draft.directory)
    del draft
    assert kept in {str(each.published.directory) for each in forget(workspace, ["one#1"]).old}
    done = forget(workspace, ["one#1"], prune=True)
    assert done.old == () and kept in done.removed
    assert place.draft() is None and not Path(kept).exists()


def test_the_same_text_elsewhere_is_found(workspace: Workspace) -> None:
    """Another row that says the same is no duplicate, since it has one more field; so it stays, and is named."""
    jsonl(workspace.configs.parent / "data" / "two.jsonl", [chat("Hi?", "Hi."), {**SECRET, "id": 7}])
    again = Workspace(workspace.configs, workspace.stores)
    build(again, "sft_export_trl")
    build(again, "sft_export_tlfs")
    done = forget(again, ["one#1"])
    assert set(done.left) == {"sft_packed"}
    assert done.left["sft_packed"] == ("two/two.jsonl:2",)


@pytest.mark.parametrize("record", ["docs#2", "pairs#2", "sums#2", "one#2"])
def test_every_family_forgets(workspace: Workspace, record: str) -> None:
    [before] = where(workspace, record)
    assert before.found
    needles = needles_of(workspace, before.family, before.domain, before.payload)
    holding = {(each.asset, each.partition) for each in before.found if "_export_" not in each.asset}
    for asset, partition in holding:  # the search that proves it gone finds it while it is there
        published = workspace.built(asset, partition)
        assert records_with(workspace, published, needles), asset
    done = forget(workspace, [record])
    assert done.left == {}
    [after] = where(Workspace(workspace.configs, workspace.stores), record)
    assert after.found == ()


def test_stores_without_tombstones_keep_their_keys(workspace: Workspace) -> None:
    from prep_assets.config.models import Sft

    family = workspace.family(Sft)
    forget(workspace, ["one#1"])
    after = Workspace(workspace.configs, workspace.stores).family(Sft)
    assert family.domains["two"].reading == after.domains["two"].reading
    assert family.domains["one"].reading != after.domains["one"].reading


def test_a_broken_tombstone_stops_everything(workspace: Workspace) -> None:
    (workspace.configs / FILE).write_text('{"family": "sft", "domain": "one"}\n', "utf-8")
    with pytest.raises(ConfigError, match=r"forgotten.jsonl, line 1: .*it keeps a row out of every store"):
        build(Workspace(workspace.configs, workspace.stores), "sft_packed")


def test_the_command(workspace: Workspace, run: Command) -> None:
    result = run(workspace, "forget", "one#1", "--reason", "asked", "--json")
    assert result.exit_code == 0, result.output
    said: dict[str, Any] = json.loads(result.stdout)
    assert said["tombstones"][0]["reason"] == "asked"
    assert said["left"] == {}
    shown = run(workspace, "forget", "one#1", "--prune")
    assert "every one of them has a tombstone already" in shown.output
    assert "no trace is left" in shown.output
    assert "deleted" in shown.output
    assert run(workspace, "forget", "one#99").exit_code == 1


def test_the_pack_plan_itself_says_the_same(made: Workspace) -> None:
    """Without `rows` and `holding`: straight from the files that packing wrote."""
    packed, tokens = made.published("sft_packed"), made.published("sft_tokens", "gsm8k")
    assert packed is not None
    assert tokens is not None
    documents, sources, *_ = open_documents(packed.directory, "sft_packed")
    store = open_stream(tokens.directory, "train")
    [found] = [each for each in where(made, "gsm8k#5") if each.family == "sft"]
    records = np.flatnonzero(store.origins.row == 5)
    mine = np.isin(documents["record"], records) & (np.asarray(documents["source"]) == sources.index("gsm8k"))
    expected = {
        (int(row), int(offset), int(offset + length), int(start))
        for row, offset, length, start in zip(*(documents[field][mine] for field in ("row", "row_offset", "length", "start")), strict=True)
    }
    assert {(each.row, each.start, each.end, each.first) for each in found.found if each.asset == "sft_packed"} == expected
    assert expected
