"""From a step to its rows: noise that was planted comes first, on any number of ranks and over a resume."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from prep_assets.errors import ConfigError, PrepAssetsError, StoreError
from prep_assets.extensions.recall.command import lift
from prep_assets.extensions.recall.command import make as make_recall
from prep_assets.extensions.steps.record import Run, attempts_in, rank_file
from prep_assets.extensions.steps.rows import Items, StepRow, step_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import Result
from prep_assets.stores.published import Place
from prep_assets.training import PackedDataset, RowRecord
from prep_assets_tests.explain.conftest import Command
from prep_assets_tests.extensions.steps.conftest import GLOBAL_BATCH, NOISE, STEPS, Train, noisy
from prep_assets_tests.graph.workspaces import all_unchecked, jsonl, minimal, workspace_in


def rows_of(workspace: Workspace, run: Path, step: int) -> list[tuple[str, float]]:
    """Record and loss of what a step saw, in the order of the answer."""
    return [(name_of(row), row.seen.loss or 0.0) for row in step_of(workspace, run, step).rows]


def name_of(row: StepRow) -> str:
    [stretch] = row.stretches
    assert stretch.source is not None
    return stretch.source.id


def answers(workspace: Workspace, run: Path) -> list[list[tuple[str, float]]]:
    return [rows_of(workspace, run, step) for step in range(1, STEPS + 1)]


def equal(found: list[list[tuple[str, float]]], expected: list[list[tuple[str, float]]]) -> None:
    """The same rows in each step, with losses that differ by no more than sums in another order."""
    assert [sorted(name for name, _ in step) for step in found] == [sorted(name for name, _ in step) for step in expected]
    for one, other in zip(found, expected, strict=True):
        assert [loss for _, loss in one] == pytest.approx([loss for _, loss in other], rel=1e-4)


def test_planted_noise_is_the_top_of_its_steps(packed: Workspace, train: Train, tmp_path: Path) -> None:
    """The same answers for one rank, two and four, and over a kill after a checkpoint that is resumed by other ranks."""
    train(tmp_path / "one", 1)
    expected = answers(packed, tmp_path / "one")
    met = list[str]()
    for step in expected:
        noise = [name for name, _ in step if noisy(int(name.rpartition(":")[2]) - 1)]
        assert noise == [name for name, _ in step[: len(noise)]]
        met += noise
    assert len(met) >= NOISE and len(set(met)) == NOISE
    for ranks in (2, 4):
        train(tmp_path / f"{ranks}", ranks)
        equal(answers(packed, tmp_path / f"{ranks}"), expected)
    for before, after in ((1, 1), (4, 2), (1, 4)):
        run = tmp_path / f"{before} then {after}"
        state = train(run, before, until=6)
        train(run, before, until=9, state=state, attempt="killed after step 9")
        train(run, after, state=state, attempt="resumed")
        equal(answers(packed, run), expected)
        assert Run(run).steps == [range(1, 7), range(7, 7), range(7, STEPS + 1)]


def test_rows_are_those_of_the_sampler_and_documents_those_of_the_table(packed: Workspace, train: Train, tmp_path: Path) -> None:
    """Independent of the record: torch's permutation of the sampler's seed, and the pieces of `trace`."""
    from prep_assets import trace

    train(tmp_path / "run", 2, until=2)
    count = len(PackedDataset(packed.stores / "sft_packed"))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(3)).tolist()
    for step in (1, 2):
        items = order[(step - 1) * GLOBAL_BATCH : step * GLOBAL_BATCH]
        found = step_of(packed, tmp_path / "run", step)
        assert {row.seen.item for row in found.rows} == set(items)
        for item in items:
            pieces = trace(packed, "sft_packed", item).pieces
            expected = {(piece.piece.start, piece.piece.end, piece.source and piece.source.id) for piece in pieces}
            mine = [row for row in found.rows if row.seen.item == item]
            assert {(row.stretches[0].start, row.stretches[0].end, name_of(row)) for row in mine} == expected
            assert {row.seen.rank for row in mine} == {items.index(item) % 2}


def test_losses_are_means_of_each_document(packed: Workspace, base: Any, train: Train, tmp_path: Path) -> None:
    """Each document run through the model alone, before the first step."""
    from prep_assets import trace
    from prep_assets_tests.extensions.steps.conftest import Bigrams

    train(tmp_path / "run", 1, until=1)
    model = Bigrams()
    model.load_state_dict(base)
    total = weight = 0.0
    found = step_of(packed, tmp_path / "run", 1)
    for row in found.rows:
        [stretch] = row.stretches
        whole = trace(packed, "sft_packed", row.seen.item).row
        part = slice(stretch.start, stretch.end)
        ids, weights = torch.tensor(whole.ids[part]), whole.weights
        assert weights is not None
        labels = torch.where(torch.tensor(weights[part]) > 0, ids, -100)
        with torch.no_grad():
            losses, trained = model.losses({"input_ids": ids[None], "labels": labels[None]})
        assert row.seen.tokens == int(trained.sum())
        assert row.seen.loss == pytest.approx(float(losses[trained].mean()), rel=1e-5)
        total, weight = total + float(losses[trained].sum()), weight + int(trained.sum())
    assert found.loss == pytest.approx(total / weight, rel=1e-5)


# What may become of a record, and what is said of it.


@pytest.fixture
def two(train: Train, tmp_path: Path) -> Path:
    """A record of two ranks, with a resume after step 2."""
    state = train(tmp_path / "run", 2, until=2)
    train(tmp_path / "run", 2, until=4, state=state, attempt="second")
    return tmp_path / "run"


def edit(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def test_a_lost_file_of_a_rank(packed: Workspace, two: Path) -> None:
    rank_file(two, 1).unlink()
    with pytest.raises(StoreError, match=r"rank-00001.jsonl is missing. Step 3 was trained on 2 ranks, after step 2"):
        step_of(packed, two, 3)
    with pytest.raises(StoreError, match=r"rank-00001.jsonl is missing"):
        [*Run(two).all_seen()]


def test_a_lost_file_of_the_first_rank(two: Path) -> None:
    rank_file(two, 0).unlink()
    with pytest.raises(StoreError, match=r"rank-00000.jsonl is missing or empty, and other ranks recorded"):
        Run(two)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], 3),  # doubled
        (lambda lines: [lines[0], *lines[2:]], 2),  # lost
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 2),  # moved
        (lambda lines: [*lines[:2], lines[2].replace(b'"step": 2', b'"step": 3'), *lines[3:]], 3),  # shifted
        (lambda lines: [*lines[:1], lines[1].replace(b"[[", b"[[1", 1), *lines[2:]], 2),  # another row
        (lambda lines: [lines[0].replace(b'"ranks": 2', b'"ranks": 1'), *lines[1:]], 1),
    ],
)
def test_a_line_that_is_not_where_it_was_written(packed: Workspace, two: Path, change: Any, line: int) -> None:
    for rank in (0, 1):
        copy = two.parent / f"{rank}"
        shutil.copytree(two, copy)
        edit(rank_file(copy, rank), change)
        with pytest.raises(
            StoreError, match=rf"rank-0000{rank}.jsonl, line {line}: its sum is not that of its text and the lines before it"
        ):
            step_of(packed, copy, 3)


def test_a_loop_that_counts_a_step_twice_or_skips_one_is_stopped(packed: Workspace, tmp_path: Path) -> None:
    record = RowRecord(tmp_path / "run", PackedDataset(packed.stores / "sft_packed"))
    with pytest.raises(ConfigError, match=r"nothing is recorded before record\.begin"):
        record.step(1)
    record.begin()
    record.step(1)
    for wrong in (1, 3):
        with pytest.raises(ConfigError, match=rf"step {wrong} comes after step 1\. Count each step once"):
            record.step(wrong)
    record.step(2)


def test_a_file_of_another_run(packed: Workspace, train: Train, two: Path, tmp_path: Path) -> None:
    state = train(tmp_path / "other", 2, until=2, attempt="of another run")
    assert state["step"] == 2
    shutil.copy(rank_file(tmp_path / "other", 1), rank_file(two, 1))
    said = r"rank-00001.jsonl has steps 1 to 2 of an attempt of which rank-00000.jsonl has nothing: a file was cut, or is of another run"
    with pytest.raises(StoreError, match=said):
        step_of(packed, two, 1)
    edit(rank_file(two, 1), lambda lines: lines[:1])
    with pytest.raises(StoreError, match=r"rank-00001.jsonl has nothing of this attempt, so it is of another run, or was cut. Step 1 was"):
        step_of(packed, two, 1)
    shutil.copy(rank_file(two, 0), rank_file(two, 1))
    with pytest.raises(StoreError, match=r"rank-00001.jsonl is the file of rank 0: a file was cut, or is of another run"):
        step_of(packed, two, 1)


def test_ranks_that_do_not_agree(packed: Workspace, tmp_path: Path) -> None:
    for rank, ranks in ((0, 2), (1, 4)):
        record = RowRecord(tmp_path / "run", PackedDataset(packed.stores / "sft_packed"), rank=rank, world_size=ranks)
        record.begin(attempt="first")
        record.step(1)
        record.close()
    with pytest.raises(
        StoreError, match=r"rank-00001\.jsonl and rank 0 do not agree on ranks: 4 and 2\. Step 1 was trained on 2 ranks, after step 0\. Res"
    ):
        step_of(packed, tmp_path / "run", 1)


def test_a_file_of_another_rank_as_that_of_the_first(packed: Workspace, two: Path) -> None:
    shutil.copy(rank_file(two, 1), rank_file(two, 0))
    with pytest.raises(StoreError, match=r"rank-00000.jsonl is the file of rank 1"):
        step_of(packed, two, 1)


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        # head, 1, 2, head, 3, 4
        (1, r"rank-00001.jsonl has steps 1 to 2, and rank-00000.jsonl ends at step 0"),
        (3, r"rank-00001.jsonl has steps 3 to 4 of an attempt of which rank-00000.jsonl has nothing"),
        (4, r"rank-00001.jsonl has steps 3 to 4, and rank-00000.jsonl ends at step 2"),
    ],
)
def test_a_first_rank_that_was_cut(packed: Workspace, two: Path, kept: int, said: str) -> None:
    """It says which attempts there are: without the last one, steps that were thrown away would count."""
    edit(rank_file(two, 0), lambda lines: lines[:kept])
    for step in (1, None):
        with pytest.raises(StoreError, match=said):
            step_of(packed, two, step) if step else [*Run(two).all_seen()]


def test_a_first_rank_that_was_killed_before_the_others(packed: Workspace, train: Train, two: Path) -> None:
    """One line less, or a resume that it has not begun, is no damage; nor is more where a resume threw it away."""
    path = rank_file(two, 0)
    path.write_bytes(path.read_bytes()[:-20])
    assert [step for step, *_ in Run(two).all_seen()] == [1, 2, 3]
    state = train(two.parent / "again", 2, until=1)
    train(two, 2, until=3, state=state, attempt="third")
    assert [step for step, *_ in Run(two).all_seen()] == [1, 2, 3] and Run(two).steps == [range(1, 2), range(3, 2), range(2, 4)]
    record = RowRecord(two, PackedDataset(packed.stores / "sft_packed"), rank=1, world_size=2)
    record.begin(after=3, attempt="killed before rank 0 began")
    record.close()
    assert [step for step, *_ in Run(two).all_seen()] == [1, 2, 3]


def test_a_name_of_an_attempt_that_is_given_again(packed: Workspace, two: Path) -> None:
    """A job that is queued again has the id that it had, and two attempts of one name would be mixed."""
    for rank in (0, 1):
        record, before = (
            RowRecord(two, PackedDataset(packed.stores / "sft_packed"), rank=rank, world_size=2),
            rank_file(two, rank).read_bytes(),
        )
        with pytest.raises(
            ConfigError, match=rf"rank-0000{rank}.jsonl has an attempt 'second' already. Give each start and each resume a name"
        ):
            record.begin(after=4, attempt="second")
        assert rank_file(two, rank).read_bytes() == before


def test_a_torn_last_line_counts_as_not_written(packed: Workspace, train: Train, two: Path) -> None:
    path = rank_file(two, 1)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StoreError, match=r"rank-00001.jsonl ends at step 3: the run was stopped there, or the file was cut. Step 4 was"):
        step_of(packed, two, 4)
    assert [step for step, *_ in Run(two).all_seen()] == [1, 2, 3]
    # the process begins again from the checkpoint of step 2, and the torn line is cut off
    state = train(two.parent / "again", 2, until=2)
    train(two, 2, until=5, state=state, attempt="third")
    assert [step for step, *_ in Run(two).all_seen()] == [1, 2, 3, 4, 5]
    assert Run(two).steps == [range(1, 3), range(3, 3), range(3, 6)]
    assert len(attempts_in(path)) == 3


def test_a_rank_that_ends_long_before_the_others_was_cut(packed: Workspace, two: Path) -> None:
    edit(rank_file(two, 1), lambda lines: lines[:-2])
    with pytest.raises(StoreError, match=r"rank-00001.jsonl ends at step 2: the run was stopped there"):
        [*Run(two).all_seen()]


def test_a_step_that_was_thrown_away(packed: Workspace, train: Train, tmp_path: Path) -> None:
    state = train(tmp_path / "run", 1, until=2)
    train(tmp_path / "run", 1, until=6, state=state, attempt="killed")
    train(tmp_path / "run", 1, until=4, state=state, attempt="now")
    with pytest.raises(ConfigError, match=r"no step 5: it was trained once, and a later resume .* Steps that it has: 1 to 2, 3 to 4"):
        step_of(packed, tmp_path / "run", 5)
    with pytest.raises(ConfigError, match=r"no step 0. Steps that it has"):
        step_of(packed, tmp_path / "run", 0)


def pruned(place: Place) -> None:
    """Delete its old versions, though this process has them open."""
    for name in place.unused():
        shutil.rmtree(place.backend.versions / name)


def afresh(workspace: Workspace) -> Workspace:
    """It with the configuration as it is now."""
    return Workspace(workspace.configs, workspace.stores)


def one_step(workspace: Workspace, run: Path, dataset: Any = None, store: Path | None = None) -> Callable[[], list[tuple[Any, ...]]]:
    """Record a step that sees all items; what is answered of it in a workspace."""
    dataset = PackedDataset(workspace.stores / "sft_packed") if dataset is None else dataset
    record = RowRecord(run, dataset, store)
    record.begin()
    record.step(1, torch.tensor([[item, 0, 1] for item in range(len(dataset))]), torch.arange(len(dataset)) / 4 + 1)
    record.close()
    return lambda: [
        (row.seen.item, each.place, each.start, each.end, each.source and each.source.id, each.source and each.source.url)
        for row in step_of(afresh(workspace), run, 1).rows
        for each in row.stretches
    ]


@pytest.fixture
def few(tmp_path: Path) -> Workspace:
    """Eight chats in two files, packed into rows of some of them, and exported."""
    chats = [
        {"messages": [{"role": "user", "content": f"Number {n}?"}, {"role": "assistant", "content": "Yes. " * (n + 1)}]} for n in range(8)
    ]
    both = {
        "files": [str(jsonl(tmp_path / f"{name}.jsonl", part)) for name, part in (("a", chats[:4]), ("b", chats[4:]))],
        "schema": "messages",
    }
    export = {"trl": {"from": "sft_packed", "to": "hf_arrow", "options": {"layout": "trl"}}}
    options = {"packing": {"row_len": 96}, "test_fraction": 0, "exports": export}
    return all_unchecked(workspace_in(tmp_path / "few", minimal("sft", {"chats": both}, **options)))


def test_a_store_that_was_built_again(few: Workspace, tmp_path: Path, run: Command) -> None:
    """The rows of a record are those of the version that it was trained on, and of what that was made from, which are kept until they are pruned."""
    packed, exported = one_step(few, tmp_path / "run"), one_step(few, tmp_path / "export", store=few.stores / "sft_export_trl")
    before, exported_before = packed(), exported()
    assert {source for *_, source, _ in before} == {f"{name}.jsonl:{row}" for name in "ab" for row in range(1, 5)}
    elsewhere = Workspace(tmp_path / "elsewhere", few.stores)
    with pytest.raises(PrepAssetsError, match=r"(?s)elsewhere.*\nBy number alone: --untraced"):
        step_of(elsewhere, tmp_path / "run", 1)
    config = few.configs / "sft.yaml"
    config.write_text(config.read_text("utf-8").replace("row_len: 96", "row_len: 128"), "utf-8")
    assert packed() == before and step_of(afresh(few), tmp_path / "run", 1).old == []  # what is stale is not yet another
    for rows in (128, 160):
        config.write_text(config.read_text("utf-8").replace("row_len: 128", f"row_len: {rows}"), "utf-8")
        all_unchecked(afresh(few))
        assert packed() == before and exported() == exported_before
    [old] = step_of(afresh(few), tmp_path / "run", 1).old
    assert old.removeprefix("sft_packed ") in few.place("sft_packed").unused()
    shown = run(afresh(few), "step", tmp_path / "run", 1).output
    assert f"{old}: it was built again since, and these are the rows of that version" in shown.replace("\n", " ") and "trace" not in shown
    # a row before the others: each has another number in the file, and its content stands in no file any more
    path = tmp_path / "b.jsonl"
    path.write_bytes((tmp_path / "a.jsonl").read_bytes().splitlines(keepends=True)[0].replace(b"Yes", b"No") + path.read_bytes())
    now = [(*each, None if source and source.startswith("b") else url) for *each, source, url in before for each in ([*each, source],)]
    assert packed() == now
    all_unchecked(afresh(few))
    assert packed() == now and exported()[0][:-1] == exported_before[0][:-1]
    assert "b.jsonl:1" in (shown := run(afresh(few), "step", tmp_path / "run", 1).output) and "not found as it was read" in shown
    path.unlink()
    assert packed() == [(*each, None) for *each, _ in before]
    pruned(few.place("sft_tokens", "chats"))
    with pytest.raises(
        StoreError, match=r"(?s)sft_packed was made from sft_tokens\[chats\] \w{12}, which is not kept.*until prep-assets prune"
    ):
        step_of(few, tmp_path / "run", 1)
    pruned(few.place("sft_packed"))
    with pytest.raises(StoreError, match=r"(?s)run was trained on sft_packed \w{12}, which is not kept any more\. .*--untraced"):
        step_of(few, tmp_path / "run", 1)
    assert [(row.seen.item, row.stretches) for row in step_of(None, tmp_path / "run", 1).rows][-1] == (0, ())


def test_a_domain_that_is_not_configured_any_more(few: Workspace, tmp_path: Path) -> None:
    packed, config = one_step(few, tmp_path / "run"), few.configs / "sft.yaml"
    before = packed()
    config.write_text(config.read_text("utf-8").replace("chats:", "talks:"), "utf-8")
    assert packed() == [(*each, None) for *each, _ in before]


def test_versions_that_are_not_what_a_run_read(few: Workspace, tmp_path: Path) -> None:
    """Other bytes, and what is recalled or damaged."""
    packed, place = one_step(few, tmp_path / "run"), few.place("sft_packed")
    before, version = packed(), place.pointers.current
    head = Run(tmp_path / "run").main[0].head
    other = {**head, "stores": [{**head["stores"][0], "manifest": "0" * 64}]}
    with pytest.raises(StoreError, match="which is not kept"):
        Items(few, tmp_path / "run", other)
    Items(few, tmp_path / "run", head)
    with pytest.raises(
        StoreError, match=rf"the data set had 7 items, its stores have {len(before and PackedDataset(few.stores / 'sft_packed'))} rows"
    ):
        Items(few, tmp_path / "run", {**head, "items": 7})
    make_recall(few.stores, "asset=sft_packed")
    with pytest.raises(StoreError, match="is recalled, so nothing reads it: recall 1"):
        step_of(few, tmp_path / "run", 1)
    lift(few.stores, 1)
    assert packed() == before
    place.set_aside(place.backend.published(version), {"file_hashes": Result(False, "a byte")})
    with pytest.raises(StoreError, match="is damaged, so nothing reads it: a byte"):
        step_of(few, tmp_path / "run", 1)


def test_a_resume_on_another_store(few: Workspace, tmp_path: Path) -> None:
    one_step(few, tmp_path / "run")
    config = few.configs / "sft.yaml"
    config.write_text(config.read_text("utf-8").replace("row_len: 96", "row_len: 128"), "utf-8")
    all_unchecked(afresh(few))
    other = RowRecord(tmp_path / "run", PackedDataset(few.stores / "sft_packed"))
    with pytest.raises(ConfigError, match=r"step 1 was trained on sft_packed \(build .*, and now it is sft_packed \(build"):
        other.begin(after=1)
    other.begin()  # another run in the same folder makes the first one void
    with pytest.raises(ConfigError, match=r"no step 1: it was trained once"):
        step_of(few, tmp_path / "run", 1)


def with_sums(lines: list[bytes]) -> list[bytes]:
    """The lines with their sums made again, by the definition: xxh3 of all text before and of the line."""
    from xxhash import xxh3_64_hexdigest

    made, before = list[bytes](), ""
    for line in lines:
        body = line.decode().rpartition(', "sum": "')[0] + "}"
        before = xxh3_64_hexdigest((before + body).encode())
        made.append(f'{body[:-1]}, "sum": "{before}"}}\n'.encode())
    return made


def test_steps_that_do_not_follow_each_other_are_found_without_their_sums(packed: Workspace, two: Path) -> None:
    edit(rank_file(two, 1), with_sums)
    assert step_of(packed, two, 3).loss is not None
    shift = lambda lines: with_sums([line.replace(b'"step": 2,', b'"step": 3,') for line in lines])  # noqa: E731
    for change, said in (
        (shift, "line 3: it is of step 3, and step 2 comes next"),
        (lambda lines: with_sums(lines[1:]), "no start of a run is before it"),
    ):
        copy = two.parent / said[:6]
        shutil.copytree(two, copy)
        edit(rank_file(copy, 1), change)
        with pytest.raises(StoreError, match=said):
            step_of(packed, copy, 3)
