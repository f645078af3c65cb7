"""Items of every data set of ours, as a record names them and `step` finds them again."""

from __future__ import annotations

import json
import math
import multiprocessing
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from prep_assets import trace
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.steps.record import Run, rank_file
from prep_assets.extensions.steps.rows import Stretch, step_of
from prep_assets.graph.graph import EVERY
from prep_assets.pipeline.workspace import Workspace
from prep_assets.training import (
    ROWS,
    BlendDataset,
    DatasetFactory,
    PackedDataset,
    Pad,
    PaddingFree,
    RowDataset,
    RowRecord,
)
from prep_assets_tests.explain.conftest import Command
from prep_assets_tests.graph.workspaces import all_unchecked, domain, jsonl, make, minimal, workspace_in


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Documents and chats of two domains each, blended, with pairs and prompts."""
    folder = tmp_path_factory.mktemp("every")
    chats = {
        name: domain(
            jsonl(
                folder / f"{name}.jsonl",
                [
                    {
                        "messages": [
                            {"role": "user", "content": f"{name} {n}?"},
                            {"role": "assistant", "content": f"{n}." + " Yes." * (n % 3)},
                        ]
                    }
                    for n in range(7)
                ],
            ),
            "messages",
        )
        for name in ("one", "two")
    }
    texts = {
        name: domain(jsonl(folder / f"{name}_docs.jsonl", [{"text": f"{name} text, number {n}. " * (1 + n % 4)} for n in range(9)]), "text")
        for name in ("web", "code")
    }
    pairs = [{"prompt": f"P {n}?", "chosen": f"Good {n}.", "rejected": "Bad."} for n in range(6)]
    return all_unchecked(
        workspace_in(
            folder,
            {
                **minimal("pretrain", texts, test_fraction=0, blend={"window": 16}),
                **minimal("sft", chats, test_fraction=0, blend={"seed": 5}, exports={"trl": {"from": "sft_packed", "to": "hf_arrow"}}),
                **minimal("preference", {"pairs": domain(jsonl(folder / "pairs.jsonl", pairs), "preference")}, test_fraction=0),
            },
        )
    )


def seen_items(
    workspace: Workspace, folder: Path, dataset: Any, collate: Any, store: Path | None = None, losses: Any = None
) -> list[tuple[Any, tuple[Stretch, ...]]]:
    """Item by item of one step that sees all of a data set, in order."""
    record = RowRecord(folder, dataset, store)
    record.begin()
    [batch] = DataLoader(record.numbered, len(dataset), collate_fn=record.collate(collate) if collate else record.collate())
    rows = batch.pop(ROWS)
    record.step(1, rows, *(losses(batch) if losses else ()))
    record.close()
    return [(row.seen, row.stretches) for row in step_of(workspace, folder, 1).rows]


def whole(workspace: Workspace, asset: str, partition: str | None, row: int, stream: str | None = None) -> list[tuple[int, int, str]]:
    """Tokens and source of each piece of a stored row, by `trace`."""
    pieces = trace(workspace, asset, row, partition=partition, stream=stream).pieces
    return [(each.piece.start, each.piece.end, f"{each.source.domain}/{each.source.id}") for each in pieces if each.source]


def said(stretches: tuple[Stretch, ...]) -> list[tuple[int, int, str]]:
    return [(each.start, each.end, f"{each.source.domain}/{each.source.id}") for each in stretches if each.source]


def test_conversations_of_a_blend(every: Workspace, tmp_path: Path) -> None:
    data = BlendDataset(every.stores / "sft_blend")
    found = seen_items(every, tmp_path / "run", data, Pad())
    assert [seen.item for seen, _ in found] == list(range(14))
    for seen, stretches in found:
        name, record = data.origin(seen.item)
        assert said(stretches) == whole(every, "sft_tokens", name, record)
        assert [each.place.asset for each in stretches] == ["sft_tokens"]


def test_windows_of_a_blend(every: Workspace, tmp_path: Path) -> None:
    """Each token of a window is in the stretch of the record that it is a token of."""
    data = BlendDataset(every.stores / "pretrain_blend")
    found = seen_items(every, tmp_path / "run", data, None)
    assert len(found) == len(data) > 10
    for seen, stretches in found:
        tokens = [
            int(token)
            for each in stretches
            for token in trace(every, "pretrain_tokens", each.place.row, partition=each.place.partition).row.ids[each.start : each.end]
        ]
        assert tokens == data[seen.item]["input_ids"].tolist()
        assert {each.place.partition for each in stretches} == {data.origin(seen.item)[0]}
    assert any(len(stretches) > 1 for _, stretches in found)


@pytest.mark.parametrize("stride", [16, 5])
def test_windows_of_a_stream(every: Workspace, tmp_path: Path, stride: int) -> None:
    """Over the stores of two domains, which `load` joins; a window may have the end of one and the beginning of the other."""
    data = DatasetFactory.load("seq", every.stores / "pretrain_tokens", 16, stride, offset=3)
    found = seen_items(every, tmp_path / "run", data, None)
    both = 0
    for seen, stretches in found:
        tokens = [
            int(token)
            for each in stretches
            for token in trace(every, "pretrain_tokens", each.place.row, partition=each.place.partition).row.ids[each.start : each.end]
        ]
        assert tokens == data[seen.item]["input_ids"].tolist()
        both += len({each.place.partition for each in stretches}) == 2
    assert len(found) == len(data) and (both or stride == 16)


def test_windows_with_masks_have_a_loss_for_each_document(every: Workspace, tmp_path: Path) -> None:
    data = DatasetFactory.load("sft", every.stores / "sft_tokens", 24)
    place = torch.arange(24).expand(len(data), 24).double()
    found = seen_items(every, tmp_path / "run", data, None, losses=lambda batch: (place, torch.ones_like(place)))
    for seen, stretches in found:
        [stretch] = stretches
        documents = [at for at, position in enumerate(data[seen.item]["position_ids"].tolist()) if position == 0 and at]
        borders = [0, *documents, 24]
        first, last = borders[seen.piece], borders[seen.piece + 1]
        assert stretch.end - stretch.start == seen.tokens == last - first
        assert seen.loss == pytest.approx(np.arange(first, last).mean())


@pytest.mark.parametrize(("size", "stride", "offset"), [(70, 70, 0), (100, 37, 17), (95, 96, 0), (200, 150, 5)])
def test_windows_of_packed_rows(packed: Workspace, tmp_path: Path, size: int, stride: int, offset: int) -> None:
    """Only the documents that a window has tokens of, each with these tokens, and padding is of none: by the rows of `trace`, padding end to end with them."""
    data = DatasetFactory.load("sft", packed.stores / "sft_packed", size, stride, offset=offset)
    count, width = len(PackedDataset(packed.stores / "sft_packed")), 96
    places = np.full(count * width, "", object)
    for row in range(count):
        for start, end, source in whole(packed, "sft_packed", None, row):
            places[row * width + start : row * width + end] = source
    assert "" in places
    record = RowRecord(tmp_path / "run", data)
    record.begin()
    items = [*range(6), *range(len(data) - 6, len(data))]
    rows = record.collate()([record.numbered[at] for at in items])[ROWS]
    record.step(1, rows, torch.arange(12.0))
    record.close()
    found = step_of(packed, tmp_path / "run", 1).rows
    assert sorted(row.seen.item for row in found) == items
    for row in found:
        begin = row.seen.item * stride + offset
        mine = np.full(len(places), "", object)
        for stretch, (start, end, source) in zip(row.stretches, said(row.stretches), strict=True):
            mine[stretch.place.row * width + start : stretch.place.row * width + end] = source
        assert mine[begin : begin + size].tolist() == places[begin : begin + size].tolist()
        assert not any(mine[:begin]) and not any(mine[begin + size :])


def test_lines_pairs_and_exports(every: Workspace, tmp_path: Path) -> None:
    lines = RowDataset(every.stores / "preferences")
    for seen, stretches in seen_items(every, tmp_path / "lines", lines, None):
        [stretch] = stretches
        assert stretch.source is not None and stretch.source.row == int(re.findall(r"\d+", lines[seen.item]["prompt"])[0]) + 1
    pairs = DatasetFactory.load("dpo", every.stores / "preference_tokens")
    for seen, stretches in seen_items(every, tmp_path / "pairs", pairs, lambda items: {"count": len(items)}):
        assert {name for *_, name in said(stretches)} == {name for *_, name in whole(every, "preference_tokens", None, seen.item)}
    packed = PackedDataset(every.stores / "sft_packed")
    for seen, stretches in seen_items(every, tmp_path / "export", packed, PaddingFree(), store=every.stores / "sft_export_trl"):
        assert said(stretches) == whole(every, "sft_export_trl", None, seen.item)


def test_groups_of_several_domains(tmp_path: Path) -> None:
    """Those of a domain are copied from a store that nothing else leads to."""
    rows = {
        name: [{"prompt": f"{name} {n}?", "responses": ["Yes.", f"No, {n}."], "rewards": [1.0, 0.0]} for n in range(3)]
        for name in ("one", "two")
    }
    domains = {name: domain(jsonl(tmp_path / f"{name}.jsonl", each), "group") for name, each in rows.items()}
    workspace = all_unchecked(workspace_in(tmp_path / "w", minimal("rl", domains, test_fraction=0)))
    groups = DatasetFactory.load("grpo", workspace.stores / "rl_groups")
    for seen, stretches in seen_items(workspace, tmp_path / "run", groups, lambda items: {"count": len(items)}):
        assert {name for *_, name in said(stretches)} == {name for *_, name in whole(workspace, "rl_groups", None, seen.item)} and stretches


def test_items_of_several_stores(tmp_path: Path, run: Command) -> None:
    """Pairs of two domains, one after the other; the advice names the store of the first that is listed."""
    rows = {name: [{"prompt": f"{name} {n}?", "chosen": f"Good {n}.", "rejected": "Bad."} for n in range(3)] for name in ("one", "two")}
    domains = {name: domain(jsonl(tmp_path / f"{name}.jsonl", each), "preference") for name, each in rows.items()}
    workspace = all_unchecked(workspace_in(tmp_path / "w", minimal("preference", domains, test_fraction=0)))
    pairs = DatasetFactory.load("dpo", workspace.stores / "preference_tokens_by_domain")
    found = seen_items(workspace, tmp_path / "run", pairs, lambda items: {"count": len(items)}, losses=lambda batch: (torch.arange(6.0),))
    places = [{(each.place.partition, each.place.row, each.source and each.source.id) for each in stretches} for _, stretches in found]
    by_item = {seen.item: place for (seen, _), place in zip(found, places, strict=True)}
    for item in range(6):
        [(name, row, source)] = by_item[item]
        assert (name, row) == (("one", "two")[item // 3], item % 3)
        assert source == next(iter({each.rpartition("/")[2] for *_, each in whole(workspace, "preference_tokens_by_domain", name, row)}))
    shown = run(workspace, "step", tmp_path / "run", 1).output
    assert "prep-assets trace preference_tokens_by_domain -p two" in shown and "--row 2" in shown


def test_prompts_that_were_generated_have_no_source(tmp_path: Path, run: Command) -> None:
    rows = [{"prompt": f"{n}?", "answer": f"{n}"} for n in range(3)]
    prompt = {"files": [str(jsonl(tmp_path / "p.jsonl", rows))], "schema": "rl_prompt"}
    workspace = workspace_in(tmp_path / "w", minimal("rl", {"asked": prompt}, test_fraction=0, arithmetic={"n": 5}))
    make(workspace, EVERY["arithmetic_prompts"])
    prompts = RowDataset(workspace.stores / "arithmetic_prompts")
    found = seen_items(workspace, tmp_path / "run", prompts, lambda items: {"count": len(items)})
    assert [[(each.place.row, each.source) for each in stretches] for _, stretches in found] == [
        [(row, None)] for row in range(len(prompts))
    ]
    assert "arithmetic_prompts row 0" in (shown := run(workspace, "step", tmp_path / "run", 1).output) and "generated" in shown


def test_items_with_other_documents_than_their_row(packed: Workspace, tmp_path: Path) -> None:
    """As of a loop whose collator took the padding of documents for documents."""
    count = len(whole(packed, "sft_packed", None, 2))
    record = RowRecord(tmp_path / "run", PackedDataset(packed.stores / "sft_packed"))
    record.begin()
    record.step(1, torch.tensor([[2, piece, 1] for piece in range(count + 1)]), torch.ones(1, count + 1), torch.ones(1, count + 1))
    record.close()
    with pytest.raises(StoreError) as raised:
        step_of(packed, tmp_path / "run", 1)
    assert str(raised.value) == (
        f"{tmp_path / 'run'}: item 2 had {count + 1} documents in the loop, and has {count} in its store. Record items in the store's order, "
        "without padding between documents\nBy number alone: --untraced"
    )


def test_rows_that_are_held_out_say_so(tmp_path: Path, run: Command) -> None:
    """A loop that trains on them by mistake is seen."""
    chats = [{"messages": [{"role": "user", "content": f"Is it {n}?"}, {"role": "assistant", "content": f"It is {n}."}]} for n in range(8)]
    files = [str(jsonl(tmp_path / f"{name}.jsonl", part)) for name, part in (("train", chats[:5]), ("test", chats[5:]))]
    both = {"files": files[:1], "test_files": files[1:], "schema": "messages"}
    workspace = all_unchecked(workspace_in(tmp_path / "w", minimal("sft", {"chats": both}, packing={"row_len": 32})))
    data = PackedDataset(workspace.stores / "sft_packed", "sft_dev_packed")
    sources = [each.source for _, stretches in seen_items(workspace, tmp_path / "run", data, PaddingFree()) for each in stretches]
    assert {(each.id, each.held_out) for each in sources if each} == {(f"test.jsonl:{n}", True) for n in (1, 2, 3)}
    shown = run(workspace, "step", tmp_path / "run", 1).output
    assert "chats/test.jsonl:1 (held out)" in shown and "--stream sft_dev_packed --row" in shown


def test_losses_of_accumulated_batches_of_items_and_of_none(every: Workspace, tmp_path: Path) -> None:
    data = BlendDataset(every.stores / "sft_blend")
    record = RowRecord(tmp_path / "run", data)
    record.begin()
    first, second = (record.collate(Pad())([record.numbered[at] for at in items])[ROWS] for items in ((0, 1), (2, 3)))
    record.see(first, torch.tensor([2.0, 4.0]))
    record.step(1, second, torch.tensor([math.nan, math.inf]))
    record.see(first, 1.0)
    record.step(2, second, torch.tensor(2.0))
    record.step(3, first)
    found = Run(tmp_path / "run")
    assert [(row.item, row.loss) for row in found.seen(1)[0]][:2] == [(0, 2.0), (1, 4.0)]
    ranked = step_of(every, tmp_path / "run", 1, top=3)
    assert [row.seen.item for row in ranked.rows] == [2, 3, 1] and len(ranked.seen) == 4
    assert found.seen(2)[1] == 1.5 and {row.loss for row in found.seen(2)[0]} == {None}
    assert found.seen(3)[1] is None
    with pytest.raises(ConfigError, match=r"losses of shape \[3\] for 2 items: give one for each, or say which"):
        record.see(first, torch.ones(3))
    with pytest.raises(ConfigError, match=r"losses of shape \[2, 3\], trained of shape \[2, 2\]"):
        record.see(first, torch.ones(2, 3), torch.ones(2, 2))
    with pytest.raises(ConfigError, match=r"losses of shape \[2, 3\] for 2 items of \d+ tokens, up to \d+ a row"):
        record.see(first, torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(ConfigError, match=r"rows are those of the batch, int64\[documents, 3\]: rows = batch\.pop"):
        record.see(first.tolist(), 1.0)  # type: ignore[arg-type]


def test_batches_of_a_step_with_losses_of_different_kinds(every: Workspace, tmp_path: Path) -> None:
    """One number beside losses of tokens would be lost."""
    record = RowRecord(tmp_path / "run", BlendDataset(every.stores / "sft_blend"))
    batch = record.collate(Pad())([record.numbered[at] for at in (0, 1)])
    rows, labels = batch[ROWS], batch["labels"]
    tokens, items, one = (torch.ones(labels.shape), labels != -100), (torch.ones(2),), (1.0,)
    for first, second in ((tokens, one), (tokens, items), (items, one), (one, tokens), (tokens, ())):
        record.begin()
        record.see(rows, *first)
        with pytest.raises(ConfigError, match="step 1: its batches have losses of different kinds"):
            record.step(1, rows, *second)


def test_items_that_are_counted_from_the_end(every: Workspace, tmp_path: Path) -> None:
    record = RowRecord(tmp_path / "run", BlendDataset(every.stores / "sft_blend"))
    batch = record.collate(Pad())([record.numbered[at] for at in (-1, -14, 3)])
    assert batch[ROWS][:, 0].tolist() == [13, 0, 3]
    with pytest.raises(IndexError, match="item 14 of 14"):
        record.numbered[14]


def by_item(count: int, shape: torch.Size) -> torch.Tensor:
    """Losses of tokens: those of item ``i`` are all ``i + 1``."""
    return (torch.arange(float(count))[:, None] + 1).expand(shape)


def test_losses_of_a_padded_batch_that_was_flattened(every: Workspace, tmp_path: Path) -> None:
    """As `cross_entropy` takes them: with padding in them they are no items end to end; where all rows are full they are."""
    record = RowRecord(tmp_path / "run", BlendDataset(every.stores / "sft_blend"))
    record.begin()
    batch = record.collate(Pad())([record.numbered[at] for at in range(8)])
    rows, labels = batch.pop(ROWS), batch["labels"]
    losses, trained = by_item(8, labels.shape), labels != -100
    lengths = rows[:, 2].tolist()
    assert len(set(lengths)) > 1
    for given, kept in ((losses, trained), (losses[:, 1:], trained[:, 1:])):
        for shape in ((-1,), (1, -1)):
            with pytest.raises(
                ConfigError, match=rf"for 8 items of {sum(lengths)} tokens.* without padding\. If you flattened them: losses.view_as"
            ):
                record.see(rows, given.reshape(shape), kept.reshape(shape))
    # a row alone may have padding behind it, on one line or on none
    for at in range(8):
        record.see(rows[at : at + 1], losses[at], trained[at])
    record.step(1)
    record.step(2, rows, losses, trained)
    full = torch.cat([loss[:size] for loss, size in zip(losses, lengths, strict=True)])
    record.step(3, rows, full, torch.cat([kept[:size] for kept, size in zip(trained, lengths, strict=True)]))
    windows = DatasetFactory.load("sft", every.stores / "sft_tokens", 24)
    record.close()
    expected = [(at, at + 1.0, int((row != -100).sum())) for at, row in enumerate(labels)]
    for step in (1, 2, 3):
        assert [(row.item, row.loss, row.tokens) for row in Run(tmp_path / "run").seen(step)[0]] == expected
    record = RowRecord(tmp_path / "windows", windows)
    record.begin()
    batch = record.collate()([record.numbered[at] for at in range(3)])
    losses, kept = by_item(3, batch["loss_mask"].shape), batch["loss_mask"]
    record.step(1, batch[ROWS], losses.flatten(), kept.flatten())
    seen = Run(tmp_path / "windows").seen(1)[0]
    assert {(row.item, row.loss) for row in seen if row.tokens} == {(0, 1.0), (1, 2.0), (2, 3.0)}
    assert sum(row.tokens or 0 for row in seen) == int(kept.sum())


def test_trained_tokens_where_no_document_is(every: Workspace, tmp_path: Path) -> None:
    """Rows that are padded at the left, or that a collator sorted by length."""
    record = RowRecord(tmp_path / "run", BlendDataset(every.stores / "sft_blend"))
    record.begin()
    batch = record.collate(Pad())([record.numbered[at] for at in range(8)])
    rows, trained = batch[ROWS], batch["labels"] != -100
    lengths = rows[:, 2]
    width = trained.shape[1]
    left = torch.stack([row.roll(width - int(size)) for row, size in zip(trained, lengths, strict=True)])
    order = lengths.argsort(descending=True)
    assert order.tolist() != list(range(8))
    for wrong in (left, trained[order]):
        # the first line whose last trained token, of the end of its answer, is behind its item
        at = next(at for at in range(8) if wrong[at, lengths[at] :].any())
        outside, size = int(wrong[at, lengths[at] :].sum()), int(lengths[at])
        with pytest.raises(
            ConfigError, match=f"^{outside} trained tokens are behind the {size} of item {at}: rows begin at the left, padding is behind"
        ):
            record.see(rows, torch.ones(trained.shape), wrong)


def test_what_says_which_tokens_are_trained(every: Workspace, tmp_path: Path) -> None:
    """Labels are no mask: -100 is not 0."""
    record = RowRecord(tmp_path / "run", BlendDataset(every.stores / "sft_blend"))
    record.begin()
    batch = record.collate(Pad())([record.numbered[at] for at in range(2)])
    rows, labels = batch[ROWS], batch["labels"]
    losses = by_item(2, labels.shape)
    for wrong in (labels, (labels != -100) * 0.5):
        with pytest.raises(ConfigError, match=r"trained has other values than 0 and 1\. Say which tokens are trained: labels != -100"):
            record.see(rows, losses, wrong)
    for step, right in enumerate((labels != -100, (labels != -100).long(), (labels != -100).float()), 1):
        record.step(step, rows, losses, right)
        assert [row.loss for row in Run(tmp_path / "run").seen(step)[0]] == [1.0, 2.0]


def test_what_cannot_be_recorded_says_so(every: Workspace, tmp_path: Path) -> None:
    class Own(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> Any:
            return torch.tensor([i])

    for given, store, said_ in (
        (Own(), None, "which store are the rows of a Own of"),
        (Own(), tmp_path, "is no published store, so nothing says what its rows are made of"),
        (Own(), every.stores / "sft_packed", "the 3 items of this Own are not the rows of .*sft_packed: sft_packed has"),
        (iter([1]), None, "items of a list_iterator have no numbers"),
    ):
        with pytest.raises(ConfigError, match=said_):
            RowRecord(tmp_path / "run", given, store)
    data = PackedDataset(every.stores / "sft_packed")
    record = RowRecord(tmp_path / "run", data, rank=0, world_size=2)
    with pytest.raises(ConfigError, match="ranks that were given cannot agree on a name of this attempt"):
        record.begin()
    record.begin(attempt="a")
    other = RowRecord(tmp_path / "run", data)
    with pytest.raises(ConfigError, match=r"rank-00000.jsonl: another record writes into it. Close it"):
        other.begin()
    with pytest.raises(ConfigError, match="a batch needs to be a mapping without 'rows'"):
        record.collate(list)([record.numbered[0]])
    assert pickle.loads(pickle.dumps(record.collate(PaddingFree())))([data[0]]).keys() == PaddingFree()([data[0]]).keys()
    with pytest.raises(ConfigError, match="holds no record of a run"):
        Run(tmp_path / "empty")


def test_each_item_is_compared_with_its_row(every: Workspace, packed: Workspace, tmp_path: Path) -> None:
    """Two that were swapped among those that are not compared before the run begins; trainers append to rows."""
    tokens, lines = PackedDataset(packed.stores / "sft_packed"), RowDataset(every.stores / "preferences")
    items = [{"input_ids": [*item["input_ids"].tolist(), 0]} for item in (tokens[at] for at in range(len(tokens)))]
    record = RowRecord(tmp_path / "right", items, packed.stores / "sft_packed")
    assert [record.numbered[number]["__item__"] for number in range(64)] == [*range(64)]
    swapped = list(items)
    swapped[20:22] = swapped[20:22][::-1]
    numbered = pickle.loads(pickle.dumps(RowRecord(tmp_path / "wrong", swapped, packed.stores / "sft_packed").numbered))
    assert [number for number in range(64) if not fetched(numbered, number)] == [20, 21]
    ended = [{**line, "chosen": line["chosen"] + "<eos>", "margin": None} for line in lines]
    assert RowRecord(tmp_path / "right", ended, every.stores / "preferences").numbered[3]["__item__"] == 3
    with pytest.raises(
        ConfigError, match=r"the 6 items of this list are not the rows of .*preferences: row 0 of preferences is not item 0"
    ):
        RowRecord(tmp_path / "wrong", ended[::-1], every.stores / "preferences")
    for items, store in (([{"x": 1}] * 64, packed.stores / "sft_packed"), ([{"x": 1}] * 6, every.stores / "preferences")):
        with pytest.raises(ConfigError, match=r"items have x, rows have .*: nothing says whose row an item is"):
            RowRecord(tmp_path / "wrong", items, store)
    record = RowRecord(tmp_path / "right", tokens)
    with pytest.raises(ConfigError, match="these items are numbered already: one record a run, and record_rows once a trainer"):
        RowRecord(tmp_path / "right", record.numbered, packed.stores / "sft_packed")


def fetched(numbered: Any, number: int) -> bool:
    """Whether an item is its row."""
    try:
        numbered[number]
    except ConfigError as error:
        assert re.match(rf"item {number} of this list is not row {number} of .*sft_packed.* neither filtered, shuffled", str(error))
        return False
    return True


def of_rank(rank: int, ranks: int, address: str, folder: Path, store: Path) -> None:
    """One process of a group: what it sees of two steps."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    data = PackedDataset(store)
    record = RowRecord(folder, data)
    record.begin()
    for step in (1, 2):
        record.step(step, torch.tensor([[(step + rank) % len(data), 0, 4]]), float(rank))
    record.begin(after=1)
    record.step(2, torch.tensor([[0, 0, 4]]), 3.0)
    torch.distributed.destroy_process_group()


def test_processes_of_torch_distributed_agree(packed: Workspace, tmp_path: Path) -> None:
    """Each attempt has one name on all ranks."""
    fork = multiprocessing.get_context("fork")
    arguments = f"file://{tmp_path}/meet", tmp_path / "run", packed.stores / "sft_packed"
    processes = [fork.Process(target=of_rank, args=(rank, 2, *arguments)) for rank in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    heads = [[attempt.head["attempt"] for attempt in attempts] for attempts in Run(tmp_path / "run").ranks.values()]
    assert heads[0] == heads[1] and len(set(heads[0])) == 2
    assert Run(tmp_path / "run").seen(1)[1] == 0.5 and [row.item for row in Run(tmp_path / "run").seen(2)[0]] == [0, 0]


# The command.


@pytest.fixture
def recorded(packed: Workspace, tmp_path: Path) -> Path:
    record = RowRecord(tmp_path / "run", PackedDataset(packed.stores / "sft_packed"))
    record.begin()
    for step, loss in enumerate((1.0, 5.0, math.nan), 1):
        record.see(record.collate(PaddingFree())([record.numbered[step], record.numbered[step + 1]])[ROWS], torch.tensor([loss, 0.25]))
        record.step(step)
    record.close()
    return tmp_path / "run"


def test_the_command_lists_rows_with_their_sources(packed: Workspace, recorded: Path, run: Command) -> None:
    found = run(packed, "step", recorded, 2, "--top", 1)
    assert found.exit_code == 0 and "step 2 of" in found.output and "2 items, 1 rank, loss 2.6250" in found.output
    names = [name for *_, name in whole(packed, "sft_packed", None, 2)]
    assert all(name in found.output for name in names) and "1 more: --top 2" in found.output
    assert "prep-assets trace sft_packed --row 2" in found.output
    facts = json.loads(run(packed, "step", recorded, 3, "--json").output)
    assert [row["loss"] for row in facts["rows"]] == ["nan", 0.25] and facts["loss"] == "nan"
    sources = [stretch["source"] for row in facts["rows"] for stretch in row["stretches"]]
    assert [f"{source['domain']}/{source['id']}" for source in sources] == [
        name for row in (3, 4) for *_, name in whole(packed, "sft_packed", None, row)
    ]
    assert all(Path(source["url"]).name == source["id"].rpartition(":")[0] for source in sources)
    assert [row["stretches"] for row in json.loads(run(packed, "step", recorded, 3, "--json", "--untraced").output)["rows"]] == [[], []]


def test_rows_by_number_need_no_configuration(recorded: Path, tmp_path: Path, run: Command) -> None:
    elsewhere = Workspace(tmp_path / "no configs", tmp_path / "no stores")
    facts = json.loads(run(elsewhere, "step", recorded, 1, "--untraced", "--json").output)
    assert [row["item"] for row in facts["rows"]] == [1, 2]
    assert run(elsewhere, "step", recorded, 1).exit_code == 1


def test_the_command_says_which_steps_are_not_in_the_record(packed: Workspace, recorded: Path, run: Command) -> None:
    """Resumed from a checkpoint of a run that was recorded elsewhere."""
    assert json.loads(run(packed, "step", recorded, "--json").output)["missing"] == []
    record = RowRecord(recorded, PackedDataset(packed.stores / "sft_packed"))
    record.begin(after=7)
    record.step(8)
    record.close()
    facts = json.loads(run(packed, "step", recorded, "--json").output)
    assert facts["missing"] == [[4, 7]] and facts["steps"] == 4
    assert "nothing of steps 4 to 7 was recorded" in run(packed, "step", recorded).output


def test_the_command_lists_the_worst_steps(packed: Workspace, recorded: Path, run: Command) -> None:
    facts = json.loads(run(packed, "step", recorded, "--json").output)
    assert [each["step"] for each in facts["highest"]] == [3, 2, 1] and facts["steps"] == 3
    assert "3 steps, every line as it was written" in run(packed, "step", recorded).output
    with rank_file(recorded, 0).open("r+b") as file:
        file.seek(-60, 2)
        file.write(b"7")
    assert "its sum is not that of its text" in run(packed, "step", recorded).output
    assert run(packed, "step", recorded, 9).exit_code == 1
