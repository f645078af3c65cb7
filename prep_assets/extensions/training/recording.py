"""What a training loop writes down: the items that each step saw, with the loss of each.

record = RowRecord("runs/a", dataset)
record.begin(after=step)                       # 0, or the step of the checkpoint
loader = DataLoader(record.numbered, batch_size=8, sampler=sampler, collate_fn=record.collate(PaddingFree()))
for step, batch in enumerate(loader, step + 1):
    rows = batch.pop(ROWS)
    losses = cross_entropy(…, reduction="none")
    …
    record.step(step, rows, losses, trained=labels != -100)
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from prep_assets.errors import ConfigError
from prep_assets.extensions.steps.record import Writer
from prep_assets.extensions.training.blends import BlendDataset
from prep_assets.extensions.training.collate import document_lengths, tokens_of
from prep_assets.extensions.training.items import ContrastiveDataset, PackedDataset, RowDataset, SequenceDataset
from prep_assets.extensions.training.opening import OpenStore, folder_of_manifest, index_in, local_path, payload_folders
from prep_assets.extensions.training.sampler import resolve_rank
from prep_assets.stores.groups import RESPONSES, holds_groups
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.table import Table, holds_pairs, open_table, stream_names

ROWS = "rows"
"""Key of a batch: int64[p, 3], for each document of its items the number of the item, of the document in it, and its tokens."""
_ITEM = "__item__"
REMEDY = "Name the store that they were exported from: store='data/stores/sft_packed'"
ORDER = "Record all rows, in the order of the store: neither filtered, shuffled nor packed again"
COMPARED = 5
"""Items that are compared with the rows of a store before a run begins."""


class RowRecord:
    """Records which items of a data set each step sees, one file a rank; `prep-assets step` reads it.

    Args:
        run: the folder of the record, one for each run.
        dataset: gives the items, as mappings: a data set of ours, or any other with the rows of a store in its order.
        store: the published store whose rows the items are; of our data sets it is known.
        rank, world_size: by default those of `torch.distributed`; 0 and 1 if it is not initialized.

    Raises:
        ConfigError: items that are no rows of a published store, or not in its order.
        StoreError: no such store.
    """

    def __init__(
        self, run: Path | str, dataset: Any, store: Path | str | None = None, *, rank: int | None = None, world_size: int | None = None
    ) -> None:
        if not isinstance(dataset, Sized):
            raise ConfigError(f"items of a {type(dataset).__name__} have no numbers, as it is streamed. Give a data set with random access")
        if isinstance(dataset, Numbered):
            raise ConfigError("these items are numbered already: one record a run, and record_rows once a trainer")
        stores, compared = _stores(dataset, store)
        self.run, self._ranks = Path(run), (rank, world_size)
        self.numbered = Numbered(dataset, compared if store is not None else None)
        windows = dataset.windows if isinstance(dataset, SequenceDataset) else None
        window = None if windows is None else (windows.window_size, windows.stride, windows.offset)
        self._head = {"items": len(dataset), "window": window, "stores": stores}
        self._writer: Writer | None = None
        self._rows, self._losses = list[list[Any]](), list[float]()

    def begin(self, after: int = 0, *, attempt: str = "") -> None:
        """Begin, or resume from the checkpoint of a step: what was recorded of later steps counts no more.

        Args:
            attempt: a name that all ranks share and no other attempt has; ranks of `torch.distributed` agree on one by themselves.

        Raises:
            ConfigError: the run was trained on another store, another process records into the same file, or ranks cannot agree on a name.
            StoreError: the record is damaged.
        """
        rank, ranks = resolve_rank(*self._ranks, None)
        names = [attempt or secrets.token_hex(8)]
        if ranks > 1 and not attempt:
            if self._ranks[0] is not None:
                raise ConfigError("ranks that were given cannot agree on a name of this attempt: begin(after, attempt=…) on all")
            dist.broadcast_object_list(names)
        self.close()
        self._rows, self._losses = [], []
        self._writer = Writer(self.run, {"attempt": names[0], "after": after, "rank": rank, "ranks": ranks, **self._head})

    def collate(self, collate_fn: Callable[[Any], Any] = default_collate) -> Collate:
        """A collator that adds `ROWS` to the batch of another one."""
        return Collate(collate_fn)

    def see(self, rows: Tensor, losses: Tensor | float | None = None, trained: Tensor | None = None) -> None:
        """Count a batch to the next step: each batch of a step where gradients are accumulated.

        Args:
            rows: `ROWS` of the batch.
            losses: of tokens: [B, L], or [1, T] where items stand end to end, or without the first label of each row, as a shift by one leaves them; of
                items: [n]; or one for all.
            trained: which losses of tokens count, bool or 0 and 1, of the same shape, such as ``labels != -100``.

        Raises:
            ConfigError: shapes that do not fit together; a trained token where no document is.
        """
        if getattr(rows, "shape", ())[1:] != (3,):
            raise ConfigError("rows are those of the batch, int64[documents, 3]: rows = batch.pop(ROWS)")
        items = rows.tolist()
        first = [at for at, (_, piece, _) in enumerate(items) if not piece]
        if not isinstance(losses, Tensor) or not losses.dim():
            self._rows += [[items[at][0], None, None, None] for at in first]
            self._losses += [] if losses is None else [float(losses)]
        elif trained is not None:
            self._rows += _by_document(items, first, losses, trained)
        elif losses.shape == (len(first),):
            self._rows += [[items[at][0], None, mean, None] for at, mean in zip(first, losses.tolist(), strict=True)]
        else:
            raise ConfigError(f"losses of shape {list(losses.shape)} for {len(first)} items: give one for each, or say which are trained")

    def step(self, step: int, rows: Tensor | None = None, losses: Tensor | float | None = None, trained: Tensor | None = None) -> None:
        """Record a step, with a last batch as `see` takes it; all its loop has to do where no gradients are accumulated.

        Raises:
            ConfigError: it is not the step after the last one; `begin` was not called.
        """
        if self._writer is None:
            raise ConfigError("nothing is recorded before record.begin(after=…): 0, or the step of the checkpoint")
        if rows is not None:
            self.see(rows, losses, trained)
        kinds = {"tokens" if tokens is not None else "items" if mean is not None else "" for _, _, mean, tokens in self._rows}
        if len(kinds) > 1:
            raise ConfigError(f"step {step:,}: its batches have losses of different kinds: give all those of tokens, or all those of items")
        self._writer.step(step, self._rows, sum(self._losses) / len(self._losses) if self._losses else None)
        self._rows, self._losses = [], []

    def sync(self) -> None:
        """Wait until the disk has all steps. Call it before a checkpoint is saved: a loss of power then leaves no hole before it."""
        if self._writer is not None:
            self._writer.sync()

    def close(self) -> None:
        """Let another process record into the folder; what is recorded stays."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


_opened = cache(open_table)  # once in each process that fetches items


class Numbered(Dataset[Any]):
    """The items of a data set with their numbers, each compared with its row of a stream, in the folder of a store, where one is given.

    Raises:
        ConfigError: an item is no mapping, or not the row with its number.
    """

    def __init__(self, dataset: Any, stream: Stream | None = None) -> None:
        self.dataset, self.stream = dataset, stream

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int) -> dict[str, Any]:
        i = index_in(int(i), len(self), "item")
        item = self.dataset[i]
        if not isinstance(item, Mapping):
            raise ConfigError(f"items of {type(self.dataset).__name__} are {type(item).__name__}s, which have no place for a number")
        # lines are text that data sets may have changed here and there, such as fields without a value
        if self.stream and (table := _opened(*self.stream)).path is None and not _is_row(table, i, item):
            raise ConfigError(f"item {i:,} of this {type(self.dataset).__name__} is not row {i:,} of {self.stream[0]}. {ORDER}")
        return {**item, _ITEM: i}


class Collate:
    """A collator whose batches say which items they hold; batches of other data sets pass as they are."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, items: Sequence[Any]) -> Any:
        if not (isinstance(items[0], Mapping) and _ITEM in items[0]):
            return self.collate(items)
        batch = self.collate([{key: value for key, value in item.items() if key != _ITEM} for item in items])
        if not isinstance(batch, Mapping) or ROWS in batch:
            raise ConfigError(f"a batch needs to be a mapping without {ROWS!r} to say which rows it holds; this is {type(batch).__name__}")
        rows = [(item[_ITEM], piece, size) for item in items for piece, size in enumerate(_lengths(item))]
        batch[ROWS] = torch.tensor(rows, dtype=torch.int64)  # type: ignore[index]
        return batch


def _lengths(item: Mapping[str, Any]) -> list[int]:
    """Places of each document of an item; 0 of an item without tokens of its own, such as a pair."""
    if "cu_seqlens_padded" in item or ("seq_lengths" not in item and isinstance(item.get("position_ids"), Tensor)):
        return [int(size) for size in document_lengths(dict(item))]
    return [int(size) for size in item.get("seq_lengths", (len(item.get("input_ids", ())),))]


def _by_document(items: Sequence[Sequence[int]], first: Sequence[int], losses: Tensor, trained: Tensor) -> list[list[Any]]:
    """Item, document, mean loss and trained tokens of each document of a batch, from the losses of its tokens."""
    if losses.shape != trained.shape:
        raise ConfigError(f"losses of shape {list(losses.shape)}, trained of shape {list(trained.shape)}: give both of the same tokens")
    if not ((trained == 0) | (trained == 1)).all():
        raise ConfigError("trained has other values than 0 and 1. Say which tokens are trained: labels != -100, or loss_mask != 0")
    table, kept = (np.atleast_2d(each.numpy()) for each in (losses.detach().cpu().double(), trained.detach().cpu() != 0))
    lines = np.zeros(len(items), int) if len(table) == 1 else np.searchsorted(first, np.arange(len(items)), "right") - 1
    sizes = np.bincount(lines, [size for *_, size in items]).astype(int)
    # flattened rows with padding are no documents end to end: all after the first padding would be another's
    end_to_end = len(table) == 1 and len(first) > 1 and table.shape[1] <= sizes[0]
    if table.shape[1] < sizes.max() - 1 or not (len(table) == len(first) or end_to_end):
        raise ConfigError(
            f"losses of shape {list(losses.shape)} for {len(first)} items of {sum(size for *_, size in items):,} tokens, up to {sizes.max():,} a row: give "
            "those of [items, tokens], or of [1, tokens] where items stand end to end without padding. If you flattened them: losses.view_as(labels)"
        )
    found, ends = list[list[Any]](), [0] * len(table)
    for (item, piece, size), line in zip(items, lines.tolist(), strict=True):
        # a shift by one moves the loss of a document's first label to the one before, and first labels are not trained
        part = slice(ends[line], ends[line] + size)
        ends[line] += size
        chosen = table[line, part][kept[line, part]]
        found.append([item, piece, float(chosen.mean()) if len(chosen) else None, len(chosen)])
    for line, end in enumerate(ends):
        if outside := int(kept[line, end:].sum()):
            raise ConfigError(
                f"{outside:,} trained tokens are behind the {end:,} of item {items[first[line]][0]:,}: rows begin at the left, padding is behind them"
            )
    return found


# Which rows of which stores the items of a data set are.


Stream = tuple[Path, str | None]
"""Folder and name of a stream; no name of pairs and groups."""


def _stores(dataset: Any, store: Path | str | None) -> tuple[list[dict[str, Any]], Stream | None]:
    """The stores that a data set reads, as the record names them: asset, partition, stream, build key and hash of the manifest; and the stream whose rows
    are its items, if they can be compared.

    Raises:
        ConfigError: its items are not the rows of published stores, in their order.
    """
    if isinstance(dataset, ContrastiveDataset):
        raise ConfigError("items of ContrastiveDataset are positives, several of a row: give a RowDataset to a collator")
    if store is not None:
        paths = payload_folders(local_path(store))
    elif isinstance(dataset, BlendDataset):
        paths = [dataset.folder]
    elif isinstance(dataset, PackedDataset):
        paths = [dataset.place]
    elif isinstance(opened := getattr(dataset, "store", None), OpenStore):
        paths = [opened.path] if isinstance(dataset, RowDataset) else [*opened.folders]
    else:
        raise ConfigError(f"which store are the rows of a {type(dataset).__name__} of? {REMEDY}")
    named = [_named(path, dataset, alone=len(paths) == 1) for path in paths]
    return [store for store, _ in named], named[0][1]


def _named(path: Path, dataset: Any, *, alone: bool) -> tuple[dict[str, Any], Stream | None]:
    if (folder := folder_of_manifest(path)) is None:
        raise ConfigError(f"{path} is no published store, so nothing says what its rows are made of. {REMEDY}")
    manifest = Manifest.read(folder)
    streams = [path.relative_to(folder).with_suffix("").as_posix()] if path != folder else stream_names(folder)
    if compared := "blend" not in manifest.recipe and not isinstance(dataset, SequenceDataset) and alone and bool(streams):
        streams = [_stream_of(folder, streams, dataset)]
    names = {"asset": manifest.asset, "partition": manifest.partition, "stream": streams[0] if len(streams) == 1 else ""}
    hashes = {"build_key": manifest.build_key, "manifest": manifest.content_hash}
    return {**names, **hashes}, (folder, streams[0] or None) if compared else None


def _stream_of(folder: Path, streams: Sequence[str], dataset: Any) -> str:
    """The stream of a store whose rows are the items of a data set."""
    whole = stream_names(folder) == [*streams] and (holds_groups(folder) or holds_pairs(folder))
    tables = {"": open_table(folder)} if whole else {name: open_table(folder, name) for name in streams}
    said = list[str]()
    for name, table in tables.items():
        rows = sorted({at * (len(table) - 1) // (COMPARED - 1) for at in range(COMPARED if len(table) else 0)})
        if len(table) != len(dataset):
            said.append(f"{name or 'it'} has {len(table):,} rows")
        elif (row := next((row for row in rows if not _is_row(table, row, dataset[row])), None)) is not None:
            said.append(f"row {row:,} of {name or 'it'} is not item {row:,}")
        else:
            return name
    raise ConfigError(
        f"the {len(dataset):,} items of this {type(dataset).__name__} are not the rows of {folder.parent.parent}: {'; '.join(said)}. {ORDER}"
    )


def _is_row(table: Table, number: int, item: Any) -> bool:
    """Whether nothing that an item and a row both have differs.

    Raises:
        ConfigError: they have nothing in common.
    """
    if table.path is not None:
        [row] = table.objects([number])
    else:
        sequences = [(name, ids) for name, ids, _ in table.sequences(number) if name != RESPONSES]
        named = {key: ids for name, ids in sequences for key in (name, f"{name}_ids")}
        row = named if len(table.has("ids")) > 1 else {"input_ids": sequences[0][1]}
    given = {**item, "input_ids": tokens_of(item)} if "cu_seqlens_padded" in item else item
    if not (both := row.keys() & given.keys()):
        raise ConfigError(f"items have {', '.join(map(str, given))}, rows have {', '.join(row)}: nothing says whose row an item is")
    if table.path is None:
        return all(np.array_equal(np.asarray(given[key])[: len(row[key])], row[key]) for key in both)
    texts = [(row[key], given[key]) for key in both]
    # trainers append the end of text
    return all(given.startswith(said) if isinstance(given, str) and isinstance(said, str) else said == given for said, given in texts)
