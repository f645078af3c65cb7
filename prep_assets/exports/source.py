"""What can be exported, and how a folder is opened as one of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prep_assets.errors import ConfigError, StoreError, nearest
from prep_assets.stores.groups import STREAMS, GroupStore, open_groups
from prep_assets.stores.guards import Guards
from prep_assets.stores.lines import Lines, open_lines
from prep_assets.stores.packed import PackedStore, open_packed
from prep_assets.stores.published import Published
from prep_assets.stores.tokens import ATTENTION, TokenStore, open_tokens

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


def refuse_lost_mask(source: TokenStore, format: str) -> None:
    """Raises:
    ConfigError: the stream has tokens that are not trained.
    """
    if "loss_mask" not in source.arrays:
        return
    mask = source.arrays["loss_mask"]
    untrained = sum(int(np.count_nonzero(np.asarray(mask[at : at + BLOCK]) == 0)) for at in range(0, source.tokens, BLOCK))
    if untrained:
        raise lost_mask(format, f"this stream, in which {untrained:,} of {source.tokens:,} tokens are not trained")
