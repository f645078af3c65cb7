"""Checks that are carried out in parts of a store say word for word what they say of the whole, whoever proves which part."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from prep_assets.checks import of_documents as pretrain
from prep_assets.checks import relations, selection
from prep_assets.checks import sources_again as parts
from prep_assets.checks.sources_again import parts_of
from prep_assets.data import tables as cuts
from prep_assets.data.tables import line_cuts, table_cuts
from prep_assets.engine import execute as checking
from prep_assets.graph.graph import EVERY, store_of
from prep_assets.pipeline.asset import END, StorePart
from prep_assets.pipeline.sources import Pinned, pinned
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.version_folders import Published
from prep_assets.workers.pool import Pool
from prep_assets.workers.shards import Plan, ShardResult, Work, carry_out
from prep_assets_tests.conftest import zstd
from prep_assets_tests.effort import SOAK
from prep_assets_tests.graph.pictures import TOKEN, pictures_in, tokenizer_in
from prep_assets_tests.graph.shard_inputs import chats, hidden
from prep_assets_tests.graph.workspaces import domain, jsonl, minimal, unchecked, workspace_in
from prep_assets_tests.proofs.conftest import spoilable
from prep_assets_tests.proofs.corruption import Mutation
from prep_assets_tests.proofs.spoiling import MUTATIONS, spoiled
from prep_assets_tests.workers.works import die_amid

CUT = [name for name, asset in EVERY.items() if asset.in_parts]
SIZE = 6000
SIZES = (1, 3) if SOAK else (3,)
"""Numbers of workers that carry out the parts."""


class Workers(Pool):
    """So many workers in this process, who take the shards in turns, the last worker first. What one of them keeps no other sees.

    Attributes:
        plans: those that they were given.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.plans: list[Plan] = []

    def runner(self, *_: Any, **__: Any) -> Workers:
        return self

    def run_shards(self, plan: Plan, work: Work) -> Generator[ShardResult, None, None]:
        self.plans.append(plan)
        works = [pickle.loads(pickle.dumps(work)) for _ in range(self.size)]
        for shard in plan.shards:
            result = carry_out(pickle.loads(pickle.dumps(shard)), works[-1 - shard.number % self.size], plan.about)
            yield pickle.loads(pickle.dumps(result))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources are cut at every so many bytes, whatever is pinned, and no store is small."""
    monkeypatch.setattr(relations, "SMALL", 0)
    monkeypatch.setattr(selection, "SMALL", 0)

    cut_at = {**dict.fromkeys(cuts.LINES, line_cuts), **dict.fromkeys(cuts.TABLES, table_cuts)}

    def cut(*args: Any) -> Pinned:
        found = pinned(*args)
        files = (*found.files, *found.test_files)
        return replace(found, cuts=tuple(tuple(cut_at[file.format](file, SIZE)) if file.format in cut_at else () for file in files))

    monkeypatch.setattr(cuts, "SHARD_BYTES", SIZE)
    monkeypatch.setattr(parts, "pinned", cut)
    monkeypatch.setattr(checking, "LARGE", 0)


def in_parts(workspace: Workspace, published: Published, size: int) -> tuple[dict[str, Verdict], list[Plan]]:
    """All verdicts on a store by so many workers, and the plans that these were given."""
    with Workers(size) as workers:
        asset = EVERY[published.manifest.asset]
        return dict(checking.verdicts_of(replace(workspace, pool=workers), asset, published, asset.checks)), workers.plans


def whole(workspace: Workspace, published: Published) -> dict[str, Verdict]:
    """The same of a process without workers."""
    asset = EVERY[published.manifest.asset]
    return dict(checking.verdicts_of(workspace, asset, published, asset.checks))


IN_CUT = [each for each in MUTATIONS if each.asset in CUT]
FIRST = {(each.asset, each.check): each for each in reversed(IN_CUT)}
"""One corruption for each check of each asset; `make test` tries those."""


@pytest.mark.parametrize(
    "mutation",
    [each if FIRST[each.asset, each.check] is each else pytest.param(each, marks=pytest.mark.soak) for each in IN_CUT],
    ids=lambda m: f"{m.asset}-{m.check}-{m.name}".replace(" ", "_"),
)
def test_a_corruption_is_told_as_of_the_whole_store(pristine: Workspace, tmp_path: Path, mutation: Mutation) -> None:
    """In `make test` every third one by a single worker."""
    workspace, published = spoiled(pristine, tmp_path, mutation)
    expected = whole(workspace, published)
    assert not expected[mutation.check].passed
    for size in SIZES if MUTATIONS.index(mutation) % 3 else (1,):
        assert in_parts(workspace, published, size)[0] == expected


def test_sound_stores_are_proven_in_parts_alone(pristine: Workspace) -> None:
    for asset in CUT:
        for partition in EVERY[asset].partitions(pristine):
            published = pristine.published(asset, partition)
            assert published is not None
            expected = whole(pristine, published)
            for size in SIZES:
                found, plans = in_parts(pristine, published, size)
                assert found == expected and list(found) == list(expected) and all(verdict.passed for verdict in found.values())
                several = sum(not isinstance(shard.task, list) for shard in plans[0].shards)
                assert len(plans) == 1 and (several > 2 or partition not in ("chats", "gsm8k"))


def made(folder: Path, limit: int | None, stored: Callable[[Path], Path] = lambda path: path, **options: Any) -> Workspace:
    """Stores of three files with records in common, some of which are no JSON, and one of them held out; `stored` puts a file into another form.
    This process builds them: workers take longer to start."""
    said = dict(chats(folder / "data"))
    said["sft"] |= {"workers": 1, **options}
    read = said["sft"]["domains"]["chats"]
    read |= {key: [str(stored(Path(path))) for path in read[key]] for key in ("files", "test_files")} | {"max_items": limit}
    workspace = workspace_in(folder, said)
    for asset in ("sft_raw", "sft_template", "sft_tokens"):
        unchecked(workspace, EVERY[asset], *EVERY[asset].partitions(workspace)[:1])
    return workspace


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return made(tmp_path_factory.mktemp("chats"), None)


def compressed(path: Path) -> Path:
    packed = path.with_suffix(".jsonl.zst")
    packed.write_bytes(b"".join(map(zstd.compress, path.read_bytes().splitlines(keepends=True))))
    return packed


def arrow(path: Path) -> Path:
    table = path.with_suffix(".arrow")
    with pa.ipc.new_file(table, _table(path).schema) as file:
        file.write_table(_table(path), 20)
    return table


def parquet(path: Path) -> Path:
    table = path.with_suffix(".parquet")
    pq.write_table(_table(path), table, row_group_size=20)
    return table


def _table(path: Path) -> pa.Table:
    return pa.Table.from_pylist([json.loads(line) for line in path.read_text("utf-8").splitlines() if line != "no json"])


@pytest.mark.parametrize("stored", [*(pytest.param(each, marks=pytest.mark.soak) for each in (compressed, arrow)), parquet])
def test_every_form_that_can_be_cut_is_proven_in_parts(tmp_path: Path, stored: Callable[[Path], Path]) -> None:
    workspace = made(tmp_path, None, stored)
    published = workspace.published("sft_tokens", "chats")
    assert published is not None
    expected = whole(workspace, published)
    assert all(verdict.passed for verdict in expected.values())
    for size in SIZES:
        found, plans = in_parts(workspace, published, size)
        assert found == expected and len(plans) == 1 and len(plans[0].shards) > 4


def test_a_domain_that_is_limited_is_proven_as_a_whole(tmp_path: Path) -> None:
    workspace = made(tmp_path, 270)
    published = workspace.published("sft_tokens", "chats")
    assert published is not None
    found, plans = in_parts(workspace, published, 2)
    assert found == whole(workspace, published) and len(plans) == 1 and len(plans[0].shards) < 6
    assert plans[0].shards[-1].task == ["mask_alignment", "tokenization_identity", "teacher", "selection", "source_texts"], (
        "their counts up to a fault are those of one reading"
    )


def test_answers_that_are_records_of_their_own_are_proven_in_parts(tmp_path: Path) -> None:
    workspace = made(tmp_path, None, expand="turns", template="qwen3", preprocessing={"max_seq_len": 400, "deduplicate": False})
    published = workspace.published("sft_tokens", "chats")
    assert published is not None
    found, plans = in_parts(workspace, published, 2)
    assert found == whole(workspace, published) and len(plans) == 1 and len(plans[0].shards) > 8
    assert all(verdict.passed for verdict in found.values())


def test_chats_of_which_a_part_is_not_attended_are_proven_in_parts(tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path, {"sft": {**hidden(tmp_path / "data")["sft"], "workers": 1}})
    for asset in ("sft_raw", "sft_template", "sft_tokens"):
        unchecked(workspace, EVERY[asset], *EVERY[asset].partitions(workspace)[:1])
    published = workspace.published("sft_tokens", "hidden")
    assert published is not None
    found, plans = in_parts(workspace, published, 2)
    assert found == whole(workspace, published) and len(plans) == 1 and len(plans[0].shards) > 8
    assert all(verdict.passed for verdict in found.values()) and found["mask_alignment"].numbers["unattended_tokens"] > 400


WORDS = [f"Document {n}: {'many words and ' * (n % 40)} an end." for n in range(120)]
DOCUMENTS: dict[str, list[dict[str, Any]]] = {
    "text": [{"text": text} for text in WORDS],
    "semantic": [
        {
            "semantic_data_array": [
                {
                    "content": [{"a": text}, {"b": " This is trained."}],
                    "semantic_loss_weight": [n % 2, 1],
                    "semantic_attention_mask": [int(n % 4 != 0), 1],
                }
            ]
        }
        for n, text in enumerate(WORDS)
    ],
    "interleaved": [{"images": [None, "1.png"], "texts": [text, None]} for text in WORDS],
}


@pytest.mark.parametrize("schema", [each if each == "semantic" else pytest.param(each, marks=pytest.mark.soak) for each in DOCUMENTS])
def test_documents_are_proven_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: str) -> None:
    """The reference tokenizes the same ones of them, whoever proves which part."""
    images = {"image_dir": str(pictures_in(tmp_path, "1.png"))} if schema == "interleaved" else {}
    read = domain(jsonl(tmp_path / "rows.jsonl", DOCUMENTS[schema]), schema, **images)
    options = {"image_token": TOKEN, "tokenizer": tokenizer_in(tmp_path)} if images else {}
    workspace = workspace_in(tmp_path, minimal("pretrain", {"docs": read}, test_fraction=0.1, workers=1, **options))
    for asset in ("pretrain_raw", "pretrain_tokens"):
        unchecked(workspace, EVERY[asset], "docs")
    published = workspace.published("pretrain_tokens", "docs")
    assert published is not None
    for first, size in ((0, 3), (3000, 1)):
        monkeypatch.setattr(pretrain, "FIRST", first)
        expected = whole(workspace, published)
        assert all(verdict.passed for verdict in expected.values())
        by_reference = expected["tokenization_identity"].numbers.get("texts_by_reference", 0)
        assert (by_reference > 20) == (first > 0 and schema != "interleaved") and by_reference < len(WORDS)
        found, plans = in_parts(workspace, published, size)
        assert found == expected and list(found) == list(expected) and len(plans) == 1 and len(plans[0].shards) > 6


def test_a_row_that_came_in_another_part_is_a_duplicate(shared: Workspace) -> None:
    published = shared.published("sft_tokens", "chats")
    assert published is not None
    expected = whole(shared, published)
    assert expected["selection"].numbers["duplicates"] > 100
    for size in SIZES:
        found, plans = in_parts(shared, published, size)
        assert found == expected and len(plans) == 1 and len(plans[0].shards) > 8


class Mortal(Pool):
    """Workers in processes of their own, of whom the first one that is given a part is killed."""

    def __init__(self, marks: Path) -> None:
        super().__init__(2)
        self.marks = marks

    def runner(self, *_: Any, **__: Any) -> Mortal:
        return self

    def run_shards(self, plan: Plan, work: Work) -> Generator[ShardResult, None, None]:
        return super().run_shards(plan, partial(die_amid, kind=StorePart, work=work, marks=self.marks))


@pytest.mark.soak
def test_a_worker_that_is_killed_amid_a_part_changes_no_verdict(shared: Workspace, tmp_path: Path) -> None:
    published = shared.published("sft_tokens", "chats")
    assert published is not None
    asset = EVERY["sft_tokens"]
    with Mortal(tmp_path) as pool:
        found = dict(checking.verdicts_of(replace(shared, pool=pool), asset, published, asset.checks))
        assert pool.effort.lost == 1
    assert found == whole(shared, published)


def test_every_record_and_row_belongs_to_one_part(shared: Workspace) -> None:
    published = shared.published("sft_tokens", "chats")
    assert published is not None
    store = store_of(shared, published)
    tasks = [shard.task for shard in parts_of(store)]
    assert (tasks[0].begin, tasks[-1].end) == (0, END)
    assert all(one.end == other.begin for one, other in pairwise(tasks))
    for stream in store.streams().values():
        for spoil in (lambda row: row, lambda row: row[::-1], lambda row: row * 0 - 5, lambda row: row + (1 << 50)):
            wrong = replace(stream, origins=structs.replace(stream.origins, row=spoil(np.asarray(stream.origins.row))))
            found = [task.records_of(wrong) for task in tasks]
            assert np.array_equal(np.concatenate([each.origins.row for each in found]), wrong.origins.row)
            assert np.array_equal(np.concatenate([each.lengths for each in found]), wrong.lengths)
            ids = [each.columns["tokens"].read(slice(0, len(each)))[0] for each in found if len(each)]
            assert np.array_equal(np.concatenate(ids), wrong.columns["tokens"].values[:])


def _foreign(refused: list[dict[str, Any]]) -> None:
    refused.append({**refused[0], "id": "nowhere.jsonl:4"})


def _behind(refused: list[dict[str, Any]]) -> None:
    refused.append({**refused[0], "id": "a.jsonl:100001"})


def _one_twice(refused: list[dict[str, Any]]) -> None:
    refused.append(refused[len(refused) // 2])


def _lost(refused: list[dict[str, Any]]) -> None:
    del refused[len(refused) // 2]


def _duplicates_without_reason(refused: list[dict[str, Any]]) -> None:
    wanted = [each for each in refused if each["reason"] == "duplicate"][-1]
    wanted |= {"stage": "tokenize", "reason": "too_long"}


def _new_as_duplicate(refused: list[dict[str, Any]]) -> None:
    """Of rows that were refused for their length one that had not come before."""
    wanted = [each for each in refused if each["reason"] == "too_long"][-1]
    wanted |= {"stage": "deduplicate", "reason": "duplicate"}


@pytest.mark.parametrize(
    "spoil",
    [
        *(_foreign, _new_as_duplicate),
        *(pytest.param(each, marks=pytest.mark.soak) for each in (_behind, _one_twice, _lost, _duplicates_without_reason)),
    ],
)
def test_what_a_quarantine_says_wrongly_is_told_as_of_the_whole_store(
    shared: Workspace, tmp_path: Path, spoil: Callable[[list[dict[str, Any]]], None]
) -> None:
    workspace = spoilable(shared, tmp_path, "sft_tokens")
    published = workspace.published("sft_tokens", "chats")
    assert published is not None and published.quarantine is not None
    refused = [json.loads(line) for line in published.quarantine.read_text("utf-8").splitlines()]
    spoil(refused)
    jsonl(published.quarantine, refused)
    expected = whole(workspace, published)
    assert not expected["selection"].passed and expected["mask_alignment"].passed
    for size in SIZES:
        assert in_parts(workspace, published, size)[0] == expected
