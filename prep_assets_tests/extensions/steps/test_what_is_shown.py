"""What `prep-assets step` shows, line by line, with its styles."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.text import Text

from prep_assets.extensions.explain.streams import Place
from prep_assets.extensions.steps.command import _place
from prep_assets.extensions.steps.record import Run, trained_on
from prep_assets.extensions.steps.rows import SourceRow, Stretch, rank_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.training import PackedDataset, RowRecord
from prep_assets_tests.explain.conftest import Command

CODES = {None: "", "bold": "bold: ", "dim": "dim: ", "color(3)": "yellow: "}


def lines_of(output: str) -> list[str]:
    """The lines that are not blank, without space at their ends, with the style of what is all of a line."""
    found = [Text.from_ansi(line) for line in output.splitlines()]
    styles = {id(line): next((str(span.style) for span in line.spans if (span.start, span.end) == (0, len(line))), None) for line in found}
    return [CODES[styles[id(line)]] + line.plain.rstrip() for line in found if line.plain.strip()]


@pytest.fixture
def recorded(packed: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four steps before a resume, and one after it: documents of a packed row, items with a loss, with one for the step, with none."""
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm-256color"), ("COLUMNS", "300"), ("COLORTERM", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(packed.configs.parent)
    record = RowRecord(tmp_path / "run", PackedDataset(packed.stores / "sft_packed"))
    record.begin(attempt="one")
    each = lambda *items: torch.tensor([[item, 0, 1] for item in items])  # noqa: E731
    trained = torch.tensor([[1, 1, 0, 1]])
    record.step(1, torch.tensor([[2, 0, 2], [2, 1, 2]]), torch.tensor([[1.0, 2.0, 7.0, 4.0]]), trained)
    record.step(2, each(2, 3, 4), torch.tensor([5.0, math.nan, 0.25]))
    record.step(3, each(5), 1234.5)
    record.step(4, each(6))
    record.close()
    for rank in (0, 1):
        record = RowRecord(tmp_path / "run", PackedDataset(packed.stores / "sft_packed"), rank=rank, world_size=2)
        record.begin(after=7, attempt="two")
        record.step(8, each(rank), torch.tensor([0.5]))
        record.close()
    return tmp_path / "run"


@pytest.fixture
def stores(packed: Workspace) -> str:
    """The store of the run, in words."""
    published = packed.place("sft_packed").current()
    assert published is not None
    return f"sft_packed (build {published.manifest.build_key[:12]}…, manifest {published.manifest.content_hash[:12]}…)"


def sources(workspace: Workspace, row: int) -> list[tuple[int, int, str, int]]:
    """Tokens, record and row of the file of each document of a packed row, by `trace`."""
    from prep_assets import trace

    pieces = trace(workspace, "sft_packed", row).pieces
    return [(each.piece.start, each.piece.end, f"chats/{each.source.id}", each.source.row) for each in pieces if each.source]


def heads(table: str) -> str:
    return " ".join(table.split())


def test_documents_of_a_step(packed: Workspace, recorded: Path, stores: str, run: Command) -> None:
    title, trained_on, heading, _, *rows, hint = lines_of(run(packed, "step", recorded, 1).output)
    # means of 1 and 2, of 4, and of all three
    assert (title, trained_on) == (f"bold: step 1 of {recorded}: 1 item with 2 documents, 1 rank, loss 2.3333", f"dim: trained on {stores}")
    assert heads(heading) == "loss trained tokens rank item stored in record source"
    first, second = sources(packed, 2)
    for line, loss, trained, (start, end, record, row) in zip(rows, ("4.0000", "1.5000"), (1, 2), (second, first), strict=True):
        assert line.startswith(f" {loss}                {trained}      0      2   sft_packed row 2, tokens {start}–{end}")
        assert line.split()[-4:] == [record, "chats.jsonl", "row", str(row)]
    assert hint == "dim: its text and tokens: prep-assets trace sft_packed --row 2"


def test_items_of_a_step(packed: Workspace, recorded: Path, stores: str, run: Command) -> None:
    title, _, _, _, *rows, more, hint = lines_of(run(packed, "step", recorded, 2, "--top", 2).output)
    assert title == f"bold: step 2 of {recorded}: 3 items, 1 rank, loss nan"
    assert [line.split("sft_packed")[0].split() for line in rows] == [["nan", "0", "3"], [], ["5.0000", "0", "2"], []]
    assert (more, hint) == ("dim: 1 more: --top 3", "dim: its text and tokens: prep-assets trace sft_packed --row 3")
    plain = lines_of(run(packed, "step", recorded, 2, "--untraced").output)
    assert [line.split() for line in plain[4:]] == [["nan", "0", "3"], ["5.0000", "0", "2"], ["0.2500", "0", "4"]]


def test_a_step_without_a_loss_for_each(packed: Workspace, recorded: Path, run: Command) -> None:
    title, _, said, *_ = lines_of(run(packed, "step", recorded, 3).output)
    assert title == f"bold: step 3 of {recorded}: 1 item, 1 rank, loss 1,234.5000"
    assert said == "yellow: the loop gave no loss for each row"
    title, _, heading, *_ = lines_of(run(packed, "step", recorded, 4).output)
    assert title == f"bold: step 4 of {recorded}: 1 item, 1 rank, no loss was given" and heads(heading).startswith("loss")


def test_steps(packed: Workspace, recorded: Path, stores: str, run: Command) -> None:
    assert lines_of(run(packed, "step", recorded).output) == [
        f"bold: {recorded}: 5 steps, every line as it was written",
        f"dim: after step 0: 1 rank, {stores}",
        f"dim: after step 7: 2 ranks, {stores}",
        "yellow: nothing of steps 5 to 7 was recorded",
        " step         loss   items   documents   highest loss of one",
        " ───────────────────────────────────────────────────────────",
        "    2          nan       3           3                   nan",
        "    3   1,234.5000       1           1",
        "    1       2.3333       1           2                4.0000",
        "    8       0.5000       2           2                0.5000",
        "    4                    1           1",
    ]
    assert lines_of(run(packed, "step", recorded, 8).output)[0] == f"bold: step 8 of {recorded}: 2 items, 2 ranks, loss 0.5000"


def test_both_as_json(packed: Workspace, recorded: Path, run: Command) -> None:
    head = Run(recorded).main[0].head
    step = json.loads(run(packed, "step", recorded, 1, "--json").output)
    rows: list[dict[str, Any]] = step.pop("rows")
    assert step == {
        "run": str(recorded),
        "step": 1,
        "loss": 2.33333,
        "ranks": 1,
        "stores": head["stores"],
        "old": [],
        "items": 1,
        "count": 2,
    }
    assert [(row["rank"], row["item"], row["piece"], row["loss"], row["tokens"]) for row in rows] == [(0, 2, 1, 4.0, 1), (0, 2, 0, 1.5, 2)]
    (begin, end, _, _), (start, until, record, number) = sources(packed, 2)
    assert rows[0]["stretches"] == [
        {
            "place": {"asset": "sft_packed", "partition": "", "stream": "sft_packed", "row": 2},
            "start": start,
            "end": until,
            "source": {
                "domain": "chats",
                "id": record.removeprefix("chats/"),
                "url": str(packed.configs.parent / "chats.jsonl"),
                "row": number,
                "held_out": False,
            },
        }
    ]
    assert (rows[1]["stretches"][0]["start"], rows[1]["stretches"][0]["end"]) == (begin, end)
    assert json.loads(run(packed, "step", recorded, "--top", 2, "--json").output) == {
        "run": str(recorded),
        "steps": 5,
        "missing": [[5, 7]],
        "attempts": [{"after": 0, "ranks": 1, "stores": head["stores"]}, {"after": 7, "ranks": 2, "stores": head["stores"]}],
        "highest": [{"step": 2, "loss": "nan", "items": 3, "count": 3}, {"step": 3, "loss": 1234.5, "items": 1, "count": 1}],
    }


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line, packed = Place("rl_prompts", "", "rl_prompts", 1299), Place("sft_tokens", "chats", "train", 0)
    assert _place(Stretch(line, 0, 0, None)) == ["rl_prompts row 1,299", "generated", ""]
    source = SourceRow("chats", "a.jsonl:1001", str(tmp_path / "a.jsonl"), 1001, held_out=True)
    assert _place(Stretch(packed, 0, 1200, source)) == [
        "sft_tokens[chats] row 0, tokens 0–1,200",
        "chats/a.jsonl:1001 (held out)",
        "a.jsonl row 1,001",
    ]
    gone = SourceRow("chats", "a.jsonl:2", None, 2, held_out=False)
    assert _place(Stretch(packed, 3, 5, gone))[1:] == ["chats/a.jsonl:2", "not found as it was read row 2"]


def test_stores_of_a_run_in_words() -> None:
    store = {"asset": "pretrain_tokens", "partition": "web", "stream": "web_train", "build_key": "a" * 64, "manifest": "b" * 64}
    other = {**store, "asset": "sft_packed", "partition": "", "stream": "sft_packed"}
    hashes = f"(build {'a' * 12}…, manifest {'b' * 12}…)"
    assert trained_on({"stores": [store, other]}) == f"pretrain_tokens[web] web_train {hashes}, sft_packed {hashes}"
    assert trained_on({"stores": [{**other, "stream": ""}]}) == f"sft_packed {hashes}"


def test_the_order_of_losses() -> None:
    """No number first, then the highest; below zero, too, and no loss last."""
    losses = [None, -1.0, 0.0, math.nan, 2.0, math.inf, -math.inf]
    assert [str(loss) for loss in sorted(losses, key=rank_of)] == ["nan", "inf", "2.0", "0.0", "-1.0", "-inf", "None"]
