"""Map-style data sets over stores: windows, lines, packed rows, pairs and groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import index
from pathlib import Path
from typing import Any, ClassVar, overload

import numpy as np
import numpy.typing as npt
import torch
from msgspec import Struct
from torch import Tensor, from_numpy
from torch.utils.data import Dataset

from prep_assets.errors import ConfigError, StoreError, nearest
from prep_assets.extensions.training.collate import IGNORE, padded
from prep_assets.extensions.training.opening import Format, Keys, OpenStore, hold, index_in, load, local_path, payload_folders
from prep_assets.pipeline.workspace import build_command
from prep_assets.stores.arrays import spread
from prep_assets.stores.files import free_bytes
from prep_assets.stores.guards import Guards, Verify, bare
from prep_assets.stores.manifest import MANIFEST, Manifest
from prep_assets.stores.packed import POSITIONS
from prep_assets.stores.shards import ATTENTION
from prep_assets.stores.table import open_table

# Arrays read in parallel, verified against the manifest with one lookup per range.

STRETCH = 16
"""log2 of the number of elements verified at a time."""


class GuardedArrays:
    """Arrays of one length that are read at the same ranges: one lookup tells whether a range of all of them was verified.

    Attributes:
        bare: the arrays without guards, to be read after `check`.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.bare = tuple(map(bare, arrays))
        self._guarded = [array for array, unguarded in zip(arrays, self.bare, strict=True) if array is not unguarded]
        stretches = (min(map(len, arrays)) >> STRETCH) + 1
        self._seen = bytearray(stretches) if self._guarded else bytearray(b"\1" * stretches)

    def check(self, begin: int, end: int) -> None:
        """Verify the stretches that hold elements ``begin … end - 1``.

        Raises:
            StoreError: an array differs from the manifest.
        """
        first, last, seen = begin >> STRETCH, (end - 1) >> STRETCH, self._seen
        if seen[first] and seen[last] and last - first < 2:
            return
        for stretch in range(first, last + 1):
            if not seen[stretch]:
                for array in self._guarded:
                    array[stretch << STRETCH : (stretch + 1) << STRETCH]
                seen[stretch] = 1


# Stores in shared memory.

SHARED = Path("/dev/shm")
"""Linux's shared memory. Writing more than fits kills the process with a signal."""


class SharedArray:
    """A flat array in torch's shared memory, which worker processes map instead of copying."""

    def __init__(self, array: Any) -> None:
        self._tensor = torch.from_numpy(np.array(array[:]))
        self._tensor.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def _array(self) -> npt.NDArray[Any]:
        return self._tensor.numpy()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of its elements."""
        return self._array.dtype

    def __len__(self) -> int:
        return len(self._tensor)

    def __getitem__(self, span: slice) -> npt.NDArray[Any]:
        return self._array[span]


class SharedStore(OpenStore):
    """A store of `SharedArray`s; it is pickled with its arrays, not as its path."""

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedStore, (self.path, self.format, self.data, self.chosen, self.folders)


def in_shared_memory(store: OpenStore) -> OpenStore:
    """Return the store with all arrays copied into shared memory.

    Raises:
        ConfigError: the store has values other than arrays (text), which cannot be shared; or it does not fit in shared memory.
    """
    if store.data.objects:
        raise ConfigError(
            f"{store.path}: {', '.join(store.data.objects)} are not arrays and cannot be in shared memory; open with keys=[…]"
        )
    needed = sum(len(array) * np.dtype(array.dtype).itemsize for array in store.data.arrays.values())
    if SHARED.is_dir() and needed > (free := free_bytes(SHARED)):
        raise ConfigError(
            f"{store.path}: its arrays have {needed >> 20:,} MiB, and {free >> 20:,} MiB of shared memory are free at {SHARED}. Open it without "
            "share_memory: files that are memory-mapped are shared already"
        )
    data = replace(store.data, arrays={key: SharedArray(array) for key, array in store.data.arrays.items()})
    return SharedStore(store.path, store.format, data, store.chosen, store.folders)


# Windows of a token stream. Arrays are looked up once per data set, so a window costs only a copy of its numbers and its tensors.

BLOCK = 1 << 16


class SequenceDataset(Dataset[dict[str, Tensor]]):
    """Windows of one token stream, for pretraining.

    Item: ``input_ids`` int64[W], tokens ``begin … end - 1``; ``target_ids`` int64[W], the next tokens: shifted by one. Both are views
    of one copy of W + 1 tokens that the item owns, not the store; a batch holds copies.
    """

    required: ClassVar[tuple[str, ...]] = ("sequence",)
    optional: ClassVar[tuple[str, ...]] = ()

    def __init__(self, store: OpenStore, window_size: int, stride: int | None = None, offset: int = 0) -> None:
        store.require(self.required)
        if "loss_mask" in store.keys and "loss_mask" not in self.required:
            raise ConfigError(
                f"{store.path} has a loss_mask, and these windows would train every token. Use train_type 'sft', or leave the mask out on "
                "purpose: load(path, keys=['sequence'])"
            )
        self.store, self.windows = store, store.windows(window_size, stride, offset)
        self._count, self._stride, self._offset, self._span = len(self.windows), self.windows.stride, offset, window_size + 1
        self._guards = GuardedArrays([store.array(key) for key in (*self.required, *(key for key in self.optional if key in store.keys))])
        self._arrays = self._guards.bare

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.store, self.windows.window_size, self.windows.stride, self.windows.offset)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        begin = self._begin(i)
        self._guards.check(begin, begin + self._span)
        tokens = self._arrays[0][begin : begin + self._span].astype(np.int64)
        return {"input_ids": from_numpy(tokens[:-1]), "target_ids": from_numpy(tokens[1:])}

    def get_index(self, i: int) -> tuple[int, int]:
        """Begin and end of the inputs of window `i`, in tokens.

        Raises:
            IndexError: the window does not exist.
        """
        return self.windows[i]

    @overload
    def fetch(self, begin: int, end: int, keys: str) -> Tensor: ...
    @overload
    def fetch(self, begin: int, end: int, keys: Keys) -> dict[str, Tensor]: ...
    def fetch(self, begin: int, end: int, keys: str | Keys) -> Tensor | dict[str, Tensor]:
        """Tokens ``begin … end - 1`` of one key or several, across shards: copies, in the store's type.

        Raises:
            OutOfBounds: (a `ValueError`) not ``0 <= begin <= end <= length``.
            MissingKey: (a `KeyError`) no such key.
        """
        if isinstance(keys, str):
            return from_numpy(np.array(self.store.fetch(begin, end, keys)))
        return {key: self.fetch(begin, end, key) for key in keys}

    def _begin(self, i: int) -> int:
        i = index(i)
        return i * self._stride + self._offset if 0 <= i < self._count else self.windows[i][0]


class SftDataset(SequenceDataset):
    """Windows of a token stream with a loss mask.

    Item: as `SequenceDataset`, ``loss_mask`` bool[W], shifted like the targets (float32 where the store has floating-point weights), and
    ``position_ids`` int64[W] of the inputs. A target at position 0 begins a document and would be predicted from another one, so it is not
    in the loss. If the store has one, also ``attention_mask`` bool[W] of the inputs, false where a token is not attended.

    Raises:
        StoreError: all positions are 0.
    """

    required: ClassVar[tuple[str, ...]] = ("sequence", "loss_mask", "position_ids")
    optional: ClassVar[tuple[str, ...]] = ("attention_mask",)

    def __init__(self, store: OpenStore, window_size: int, stride: int | None = None, offset: int = 0) -> None:
        super().__init__(store, window_size, stride, offset)
        positions = store.array("position_ids")
        # meaningful position ids are non-zero within the first block, so only that one is read
        if len(positions) > 1 and not any(np.any(positions[start : start + BLOCK]) for start in range(0, len(positions), BLOCK)):
            raise StoreError(
                f"{store.path}: position_ids are 0 at each of {len(positions):,} tokens, so that none would be trained: a token at 0 begins a "
                "document. Write them so that they begin at 0 in each document only"
            )

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        begin = self._begin(i)
        end = begin + self._span
        self._guards.check(begin, end)
        sequence, loss_mask, position_ids, *attention = self._arrays
        tokens, positions = sequence[begin:end].astype(np.int64), position_ids[begin:end]
        item = {
            "input_ids": from_numpy(tokens[:-1]),
            "target_ids": from_numpy(tokens[1:]),
            "loss_mask": from_numpy(_mask_document_starts(loss_mask[begin + 1 : end], positions[1:])),
            "position_ids": from_numpy(positions[:-1].astype(np.int64)),
        }
        return item | {"attention_mask": from_numpy(attention[0][begin : end - 1] != 0)} if attention else item


def _mask_document_starts(mask: npt.NDArray[Any], positions: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The mask with 0 at the first token of each document: bool, or float32 for weights."""
    trained = np.logical_and(mask, positions)
    return np.where(trained, mask, 0).astype(np.float32) if mask.dtype.kind == "f" else trained


# Data sets over JSON lines: preference pairs, contrastive rows and RL prompts, with the tokens of prompts if stored.
#
#     RowDataset("stores/preferences")                          {"prompt": …, "chosen": …, "rejected": …}
#     RowDataset("stores/rl_prompts", "rl_prompts_test")        {"prompt": …, "gold": …}
#     PromptDataset("stores/rl_tokens", "stores/rl_prompts")    the same, and input_ids
#
# An empty data set raises on construction: a loop over it would wait forever.


class RowDataset(Dataset[dict[str, Any]]):
    """The rows of a JSONL store or file, each read from disk on access.

    Args:
        path: a file, or a published store of lines.
        name: which file of the store, without its suffix; by default the one that is not held out.

    Raises:
        StoreError: the file does not exist or is empty.
    """

    def __init__(self, path: Path | str, name: str | None = None) -> None:
        found = local_path(path)
        self.store = load(found if found.is_file() else _find(found, name, "file of lines", ".jsonl", _is_trained), "jsonl")
        if not self.store.num_records:
            raise StoreError(f"{self.store.path} has no row")

    def __len__(self) -> int:
        return self.store.num_records

    def __getitem__(self, i: int) -> dict[str, Any]:
        row = self.store.fetch_record(i, self.store.keys)
        return {key: value for key, value in row.items() if value is not None}


class ContrastiveDataset(Dataset[dict[str, str]]):
    """Contrastive rows for embedding models: one item for each positive of a query, ``{"anchor", "positive", "negative_1", …}``.

    Args:
        path: the published store `contrastive` of a domain.
        negatives: number of negatives of each item, the first ones of its row.
        name: which file of the store, as in `RowDataset`.

    Raises:
        StoreError: no such store, a row with too few negatives, or a row without a positive (texts to embed).
    """

    def __init__(self, path: Path | str, negatives: int = 0, name: str | None = None) -> None:
        self.rows, self.negatives = RowDataset(path, name), negatives
        counts = np.zeros(len(self.rows), np.int64)
        for number in range(len(self.rows)):
            row = self.rows[number]
            if len(row.get("negatives", ())) < negatives or not row.get("positives"):
                raise StoreError(
                    f"{self.rows.store.path} line {number + 1:,} has {len(row.get('positives', ()))} positive and {len(row.get('negatives', ()))} "
                    f"negative texts; each row needs one positive and {negatives} negatives"
                )
            counts[number] = len(row["positives"])
        self._ends = np.cumsum(counts)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, i: int) -> dict[str, str]:
        i = index_in(i, len(self), "item")
        number = int(np.searchsorted(self._ends, i, "right"))
        row = self.rows[number]
        negatives = {f"negative_{rank}": text for rank, text in enumerate(row["negatives"][: self.negatives], 1)} if self.negatives else {}
        return {"anchor": row["query"], "positive": row["positives"][i - int(self._ends[number])], **negatives}


class PromptDataset(Dataset[dict[str, Any]]):
    """Prompts for rollouts: the fields of `RowDataset`, and ``input_ids`` int64[P], which end where the model continues.

    Args:
        tokens: the published store `rl_tokens`.
        rows: the store that `tokens` was made from: `rl_prompts`, or `arithmetic_prompts` for the arithmetic curriculum.

    Raises:
        StoreError: no such store, or `tokens` was made from other rows.
    """

    def __init__(self, tokens: Path | str, rows: Path | str) -> None:
        self.rows = RowDataset(rows)
        name = "arithmetic" if self.rows.store.path.stem == "arithmetic_prompts" else "prompts"
        (folder,) = payload_folders(local_path(tokens))
        data = next((path for path in (folder / f"{name}.h5", folder / name) if path.exists()), None)
        if data is None:
            raise StoreError(f"{tokens} has no stream {name!r}; it needs the published store rl_tokens")
        self.store = load(data)
        made_from = Manifest.read(folder).recipe["prompts"]
        manifest = Manifest.read(self.rows.store.path.parent)
        if made_from.get(manifest.asset) != manifest.content_hash:
            raise StoreError(f"{folder} was not made from the prompts in {self.rows.store.path.parent}. Build rl_tokens again")
        self._row = np.load(folder / f"{name}.index" / "row.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self._row)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"input_ids": long(self.store.fetch_record(i, "sequence")), **self.rows[int(self._row[i])]}


class PadPrompts(Struct, frozen=True):
    """Left-pads ``input_ids``, so that all prompts of a batch end at its last position.

    Batch: ``input_ids, attention_mask`` int64[B, L], the mask 1 on tokens; every other field of the items as a list, `None` for items without it.
    """

    pad_id: int = 0

    def __call__(self, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
        prompts: list[Tensor] = [item["input_ids"] for item in items]
        names = sorted({name for item in items for name in item} - {"input_ids"})
        return {
            "input_ids": padded(prompts, self.pad_id, left=True),
            "attention_mask": padded([torch.ones_like(row) for row in prompts], 0, left=True),
            **{name: [item.get(name) for item in items] for name in names},
        }


def _find(path: Path, name: str | None, what: str, suffix: str, default: Callable[[str], bool]) -> Path:
    """The one file or folder of the stores below a path that has a suffix, and the name if one is given; otherwise a default one.

    Raises:
        StoreError: there is none, or several.
    """
    if not (folders := payload_folders(path)):
        asset = path.parent.name if path.name == "current" else path.name
        raise StoreError(f"{path}: there is no store. Where it is the place of an asset, build it with:\n  {build_command(asset)}")
    found = [each for folder in folders for each in sorted(folder.glob(f"*{suffix}")) if not each.name.startswith(".")]
    chosen = [each for each in found if (default(each.stem) if name is None else each.stem == name)]
    if len({each.parent for each in chosen}) > 1:
        candidates = ", ".join(str(each.with_suffix("")) for each in chosen)
        raise StoreError(f"{path}: several stores have a {what} {name or ''}: {candidates}. Open one of these stores")
    if len(chosen) != 1:
        names = [each.stem for each in found]
        problem = f"no one {what}" if name is None else f"no {what} {name!r}{nearest(name, names)}"
        raise StoreError(f"{path}: {problem}; found {', '.join(names) or 'none'}. Give the name of one of them")
    return chosen[0]


def _is_trained(stem: str) -> bool:
    """Whether a file has the lines that a store is read for by default."""
    return not stem.endswith("_test") and stem not in ("unpaired", "ranked")


def long(array: npt.NDArray[Any]) -> Tensor:
    """Return an int64 tensor; a copy, so that writes to it do not reach the store."""
    return torch.from_numpy(array.astype(np.int64))


def loss_weights(array: npt.NDArray[Any]) -> Tensor:
    """Return a bool tensor, or float32 if the store's weights are floating-point: all items of a store have one type."""
    return torch.from_numpy(array.astype(np.float32) if array.dtype.kind == "f" else array != 0)


# Rows of a packed table as training items.


def labels_of(tokens: Tensor, weights: npt.NDArray[Any], label: str) -> Tensor:
    """int64[n]: the tokens that are trained, -100 elsewhere.

    Raises:
        StoreError: loss weights other than 0 and 1, which labels cannot express; `label` names their place.
    """
    if weights.dtype.kind == "f" and not np.isin(weights, (0, 1)).all():
        raise StoreError(f"{label}: loss weights that are neither 0 nor 1 have no labels; read loss_mask with load")
    return torch.where(from_numpy(weights != 0), tokens, IGNORE)


class PackedDataset(Dataset[dict[str, Tensor]]):
    """The rows of a packed table, padding included.

    Item, for a row of L tokens with k documents:

    * ``input_ids`` int64[L].
    * ``labels`` int64[L], **unshifted**: -100 where the token is not trained, in the padding, and at the first token of each document.
    * ``position_ids`` int64[L], from 0 in each document, 0 in the padding.
    * ``attention_mask`` int64[L], 1 where a token is attended, 0 where it is not and in the padding; only if the table has one.
    * ``seq_lengths`` int64[k], tokens in each document; ``cu_seqlens`` int32[k + 1], their cumulative sums. Neither counts the padding.
    * ``cu_seqlens_padded`` int32[k + 1], where the places of each document end, the last at L; only with ``packing.align``. Each document then begins
      at a place that ranks can split, with padding behind it, in which positions go on.

    Args:
        path: folder of the table, e.g. ``stores/sft_packed`` or ``stores/sft_packed/current``.
        name: which table, if the folder has several, e.g. ``sft_dev_packed``.
        verify: as in `load`.

    Raises:
        StoreError: no table, or several and no name; no published version; an edited manifest; damaged data; loss weights other than 0
            and 1, which labels cannot express.
    """

    def __init__(self, path: Path | str, name: str | None = None, *, verify: Verify = "lazy") -> None:
        # resolves `current` to the version, so that a worker that opens it later reads the same rows
        self.place = _find(local_path(path), name, "packed table", ".documents", lambda _: True)
        self._guards = Guards(verify)
        hold(self._guards, self.place.parent)
        self._table, self._verify = open_table(self.place.parent, self.place.stem, guards=self._guards), verify
        manifest = self.place.parent / MANIFEST
        self._pad_id = Manifest.read(self.place.parent).recipe.get("pad_id", 0) if self._table.align > 1 and manifest.is_file() else 0

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(PackedDataset, verify=self._verify), (self.place.parent, self.place.stem)

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        table, pieces = self._table, self._table.pieces
        assert pieces is not None
        row, width = index_in(index(i), len(table), f"{self.place.parent}: row"), table.width
        span = slice(row * width, (row + 1) * width)
        # positions are computed, as only some formats store them
        values = {name: np.asarray(column.values[span]) for name, column in table.columns.items() if name != POSITIONS}
        part = pieces.of(row)
        lengths, offsets = np.array(pieces.fields["length"][part]), np.array(pieces.fields["row_offset"][part])
        borders, positions = np.append(offsets, offsets[-1] + lengths[-1]), np.zeros(width, np.int64)
        positions[: borders[-1]] = np.arange(borders[-1]) - np.repeat(offsets, lengths)
        with_padding = {}
        if table.align > 1:
            rooms, used = table.rooms(slice(row, row + 1)), int(borders[-1])
            places, ends = spread(lengths, rooms), np.cumsum(rooms)
            for name, row_values in values.items():
                laid_out = np.full(width, self._pad_id if name == "tokens" else 0, row_values.dtype)
                laid_out[places] = row_values[:used]
                values[name] = laid_out
            offsets = ends - rooms
            positions = np.arange(width) - np.repeat(offsets, rooms)
            with_padding = {"cu_seqlens_padded": from_numpy(np.append(0, ends).astype(np.int32))}
        tokens = long(values["tokens"])
        labels = labels_of(tokens, values["loss_mask"], f"{self.place.parent}, row {i}")
        labels[from_numpy(offsets)] = IGNORE
        item = {
            "input_ids": tokens,
            "labels": labels,
            POSITIONS: from_numpy(positions),
            "seq_lengths": from_numpy(lengths),
            "cu_seqlens": from_numpy(borders.astype(np.int32)),
            **with_padding,
        }
        return {**item, ATTENTION: long(values[ATTENTION])} if ATTENTION in values else item


# Map-style data sets over a store, with AstrAI's training types, keys and types.
#
#     seq    input_ids, target_ids                               windows of the token stream
#     sft    input_ids, target_ids, loss_mask, position_ids      windows of the token stream; attention_mask where it has one
#     dpo    chosen, rejected, chosen_mask, rejected_mask        records of any length
#     grpo   prompts, responses, masks, rewards                  records with groups of responses
#
# An index past the last item raises `IndexError`, so ``for item in dataset`` stops.


class _Records(Dataset[dict[str, Any]]):
    required: ClassVar[tuple[str, ...]]

    def __init__(self, store: OpenStore) -> None:
        store.require(self.required)
        if len(store.keys) and not store.num_records and not store.data.ends:
            raise StoreError(
                f"{store.path} does not say where its records end, so {', '.join(self.required)} cannot be separated; add `offsets`"
            )
        self.store = store

    def __len__(self) -> int:
        return self.store.num_records

    def _label(self, i: int) -> str:
        return f"{self.store.path}, record {i}"


class PairDataset(_Records):
    """Preference pairs of any length.

    Item: ``chosen, rejected`` int64[C], int64[R]; ``chosen_mask, rejected_mask`` bool, unshifted, true on the answer; ``margin`` float32[], if the store has
    margins.

    Raises:
        ConfigError: only some pairs have a margin.
    """

    required: ClassVar[tuple[str, ...]] = ("chosen", "rejected", "chosen_mask", "rejected_mask")

    def __init__(self, store: OpenStore) -> None:
        super().__init__(store)
        self._margins: npt.NDArray[np.float32] | None = None
        if "margin" in store.keys:
            values = store.array("margin") if "margin" in store.data.arrays else [store.fetch_record(i, "margin") for i in range(len(self))]
            self._margins = np.array(values[:], np.float32)
        if self._margins is not None and (lacking := int(np.isnan(self._margins).sum())):
            raise ConfigError(
                f"{store.path}: {lacking:,} of {len(self):,} pairs have no margin, and a reward model's loss takes one of every pair or of none. Give all "
                f"domains margins, or leave them out: PairDataset(load(path, keys={list(self.required)}))"
            )

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        record = self.store.fetch_record(i, self.required)
        for side in ("chosen", "rejected"):
            if len(record[side]) != len(record[f"{side}_mask"]):
                raise StoreError(f"{self._label(i)}: {side} has {len(record[side])} tokens, its mask {len(record[f'{side}_mask'])}")
        item = {key: (loss_weights if key.endswith("_mask") else long)(np.asarray(value)) for key, value in record.items()}
        return item if self._margins is None else {**item, "margin": torch.tensor(self._margins[i])}


class GroupDataset(_Records):
    """Prompts with groups of responses, scored beforehand.

    Item: ``prompts`` int64[P]; ``responses`` list of int64, ``masks`` list of bool, one per response; ``rewards`` float32[G]; of rows of
    agents' runs also ``runs`` int64[G], the run of each.
    The masks of a store may also be called ``responses_mask``, the default of AstrAI's pipelines.
    """

    required: ClassVar[tuple[str, ...]] = ("prompts", "responses", "rewards")

    def __init__(self, store: OpenStore) -> None:
        self._masks = "responses_mask" if "masks" not in store.keys and "responses_mask" in store.keys else "masks"
        store.require((*self.required, self._masks))
        super().__init__(store)

    def __getitem__(self, i: int) -> dict[str, Any]:
        record = self.store.fetch_record(i, (*self.required, self._masks))
        responses, masks = (self._nested(i, record[key], key) for key in ("responses", self._masks))
        rewards = torch.from_numpy(np.array(record["rewards"], np.float32))
        lengths = ([len(part) for part in responses], [len(part) for part in masks])
        if lengths[0] != lengths[1] or len(lengths[0]) != len(rewards):
            raise StoreError(f"{self._label(i)}: responses of {lengths[0]} tokens, masks of {lengths[1]}, {len(rewards)} rewards")
        tensors = {"responses": [long(part) for part in responses], "masks": [loss_weights(part) for part in masks]}
        runs = {"runs": long(np.asarray(self.store.fetch_record(i, ("runs",))["runs"]))} if "runs" in self.store.keys else {}
        return {"prompts": long(np.asarray(record["prompts"])), **tensors, "rewards": rewards, **runs}

    def _nested(self, i: int, value: Any, key: str) -> list[npt.NDArray[Any]]:
        if not isinstance(value, list):
            raise StoreError(f"{self._label(i)}: {key} is one flat list, and response boundaries are unknown; add `element_offsets`")
        return [np.asarray(part) for part in value]


class DatasetFactory:
    """Data sets by AstrAI's training types."""

    windowed: ClassVar[Mapping[str, type[SequenceDataset]]] = {"seq": SequenceDataset, "sft": SftDataset}
    records: ClassVar[Mapping[str, type[PairDataset] | type[GroupDataset]]] = {"dpo": PairDataset, "grpo": GroupDataset}

    @classmethod
    def load(
        cls,
        train_type: str,
        load_path: Path | str,
        window_size: int | None = None,
        stride: int | None = None,
        storage_type: Format | None = None,
        *,
        offset: int = 0,
        share_memory: bool = False,
        verify: Verify = "lazy",
    ) -> SequenceDataset | PairDataset | GroupDataset:
        """Open a store as the data set of `train_type`.

        Args:
            train_type: ``seq``, ``sft``, ``dpo`` or ``grpo``.
            window_size: tokens in an item; needed for ``seq`` and ``sft``.
            stride: tokens from one window to the next; `window_size` by default.
            storage_type: overrides `detect_format`.
            offset: tokens before the first window. A random one below `stride` in each epoch cuts the text at other positions.
            verify: when data is compared with the manifest of the store, see `load`.
            share_memory: copy the arrays into shared memory for worker processes. Not needed for memory-mapped files.

        Raises:
            ConfigError: an unknown type, or a missing window size.
            MissingKey: (a `KeyError`) the store lacks a key; the message lists required and available ones.
        """
        known = (*cls.windowed, *cls.records)
        if train_type not in known:
            raise ConfigError(f"train_type {train_type!r} is not one of {', '.join(known)}{nearest(train_type, known)}")
        if train_type in cls.records and (window_size, stride, offset) != (None, None, 0):
            raise ConfigError(
                f"train_type {train_type!r} gives whole records: window_size, stride and offset have no effect. Leave them out"
            )
        if train_type in cls.windowed and window_size is None:
            raise ConfigError(f"train_type {train_type!r} needs window_size, the number of tokens in an item")
        store = load(load_path, storage_type, verify=verify)
        store = in_shared_memory(store) if share_memory else store
        if train_type in cls.windowed:
            assert window_size is not None
            return cls.windowed[train_type](store, window_size, stride, offset)
        return cls.records[train_type](store)
