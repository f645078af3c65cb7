"""What can be exported, how it is opened, and what a row of an export says in one form for all formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError, StoreError, nearest
from prep_assets.stores.groups import STREAMS, GroupStore, open_groups
from prep_assets.stores.guards import Guards
from prep_assets.stores.lines import Lines, open_lines
from prep_assets.stores.packed import PackedStore, open_packed
from prep_assets.stores.tokens import ATTENTION, TokenStore, open_tokens
from prep_assets.stores.version_folders import Published

# What can be exported, and how a folder is opened as one of them.

SIDES = ("chosen", "rejected")
BLOCK = 1 << 24
REMEDIES = {"megatron": "Set the option layout: instruction"}


@dataclass(frozen=True)
class Pairs:
    """Tokenized preference pairs: record i of `chosen` and of `rejected` answer one prompt."""

    chosen: TokenStore
    rejected: TokenStore

    def __post_init__(self) -> None:
        if (
            not np.array_equal(self.chosen.row, self.rejected.row)
            or "loss_mask" not in self.chosen.arrays
            or "loss_mask" not in self.rejected.arrays
        ):
            raise StoreError(
                f"these are not pairs: {len(self.chosen):,} chosen and {len(self.rejected):,} rejected records, which must be of the same rows "
                "and have a loss_mask. Build the store again"
            )

    def __len__(self) -> int:
        return len(self.chosen)


Source = PackedStore | TokenStore | Pairs | GroupStore | Lines


def open_source(where: Published | Path | str, stream: str | None = None, guards: Guards | None = None) -> Source:
    """The packed table, token stream, pairs of streams, scored groups or lines in a store's folder.

    Args:
        where: the folder that has the payload, e.g. ``stores/sft_packed/current``.
        stream: which one, where the folder has several; of pairs and groups, the folder of those that are held out.
        guards: how what is read is compared with the manifest; each block when it is first read, where left out.

    Raises:
        StoreError: there is none, or several and `stream` does not say which.
    """
    folder = where.directory if isinstance(where, Published) else Path(where)
    tables, streams = _stems(folder, "documents"), _stems(folder, "index")
    names = sorted({*tables, *streams})
    if stream is None and set(names) == set(SIDES):
        return Pairs(*(open_tokens(folder, side, guards) for side in SIDES))
    if stream is not None and (folder / stream / f"{SIDES[0]}.index").is_dir():
        return Pairs(*(open_tokens(folder / stream, side, guards) for side in SIDES))
    if stream is None and set(names) == set(STREAMS):
        return open_groups(folder, guards)
    if stream is not None and (folder / stream / f"{STREAMS[0]}.index").is_dir():
        return open_groups(folder / stream, guards)
    if stream is None and len(names) != 1:
        found = f"several: {', '.join(names)}. Say which with stream=…" if names else "none of ours. Give the folder that has the payload"
        raise StoreError(f"{folder}: one token stream, table or JSONL file is exported at a time, found {found}")
    name = names[0] if stream is None else stream
    if name in tables:
        return open_packed(folder, name, guards)
    if name not in streams:
        raise StoreError(f"{folder} has no stream {name!r}{nearest(name, names) or '.'} It has: {', '.join(names) or 'none'}")
    return open_lines(folder, name, guards) if (folder / f"{name}.jsonl").is_file() else open_tokens(folder, name, guards)


def has_unattended(source: Source) -> bool:
    """Whether a source says of its tokens which are attended."""
    if isinstance(source, PackedStore):
        return source.attention_mask is not None
    return isinstance(source, TokenStore) and ATTENTION in source.arrays


def _stems(folder: Path, suffix: str) -> list[str]:
    return sorted(path.stem for path in folder.glob(f"*.{suffix}") if path.is_dir())


def lost_mask(format: str, what: str) -> ConfigError:
    """The error that says so. `what` has the mask."""
    remedy = REMEDIES.get(format, "Export a packed table, or to another format")
    return ConfigError(f"{format} would lose the loss mask of {what}, and every token would be trained. {remedy}")


def check_mask(source: TokenStore, format: str) -> None:
    """Raises:
    ConfigError: the stream has tokens that are not trained.
    """
    if "loss_mask" not in source.arrays:
        return
    mask = source.arrays["loss_mask"]
    untrained = sum(int(np.count_nonzero(np.asarray(mask[at : at + BLOCK]) == 0)) for at in range(0, source.tokens, BLOCK))
    if untrained:
        raise lost_mask(format, f"this stream, in which {untrained:,} of {source.tokens:,} tokens are not trained")


# What a row of an export says, in one form for all formats. The readers: `read` of each format.

Ints = npt.NDArray[np.int64]
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """A row.

    Attributes:
        tokens: int64[T], perhaps with padding at the end; or the rewards of a group, float32[G].
        trained: bool[T], whether a token is trained, at its own place; `None` where the format does not say.
        starts: where documents start in it; `None` where the format does not say. Padding may count as documents.
        attended: int8[T], 1 where a token is attended, 0 where not, -1 where the format leaves it open; `None` where it does not say.
        images: path of each image and the places of its tokens, `None` where the format does not say them; `None` as well where it has no images.
    """

    tokens: npt.NDArray[Any]
    trained: npt.NDArray[np.bool_] | None = None
    starts: Ints | None = None
    images: tuple[tuple[str, tuple[int, ...] | None], ...] | None = None
    attended: npt.NDArray[Any] | None = None


def without_nulls(value: Any) -> Any:
    """A JSON value whose objects have no keys that are null: in a column, a key that an object lacks and one that is null are the same."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _itself(line: dict[str, Any], number: int) -> Any:
    return line


@dataclass(frozen=True, slots=True, eq=False)
class Readable:
    """An export, opened.

    Attributes:
        count: number of its rows.
        row: what a row says: `Tokens` of one sequence, of both sides of a pair, or of a group's prompt, responses and rewards; of lines,
            anything comparable with `expected`.
        documents: whether its rows are the documents of a packed table.
        expected: what a line of the source, with its number, becomes in this format.
    """

    count: int
    row: Callable[[int], Any]
    documents: bool = False
    expected: Callable[[dict[str, Any], int], Any] = _itself


def labelled(tokens: Any, given: Any, starts: Ints | None = None) -> Tokens:
    """A row whose labels are its own tokens where they are trained, -100 elsewhere."""
    ids, labels = np.asarray(tokens, np.int64), np.asarray(given, np.int64)
    trained = labels != -100
    if len(ids) != len(labels) or (ids != labels)[trained].any():
        raise StoreError(f"{len(labels):,} labels of {len(ids):,} tokens are neither the token at their place nor -100")
    return Tokens(ids, trained, starts)


def ends_of(source: TokenStore | PackedStore) -> Ints:
    """int64[n], where each row of a source ends in a format that has its rows end to end, padding included."""
    return np.arange(1, len(source) + 1) * source.row_len if isinstance(source, PackedStore) else source.ends


def cut(tokens: Any, mask: Any, ends: Any) -> Callable[[int], tuple[Tokens]]:
    """Rows that stand end to end, and end where `ends` says."""

    def row(number: int) -> tuple[Tokens]:
        part = slice(int(ends[number - 1]) if number else 0, int(ends[number]))
        return (Tokens(np.asarray(tokens[part], np.int64), None if mask is None else np.asarray(mask[part]) != 0),)

    return row


def placed(ends: Ints, number: int) -> tuple[int, int]:
    """Which part a row is in, and where in it; `ends` is how many rows there are up to the end of each part."""
    part = int(np.searchsorted(ends, number, "right"))
    return part, number - (int(ends[part - 1]) if part else 0)


def parquet(files: list[Path]) -> Any:
    """Parquet files as one `pyarrow.Table`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])
