"""train-llm-from-scratch's files: HDF5 for pretraining and SFT, JSONL for preferences and RL.

The loss mask is unshifted: its trainer takes ``tokens[:, 1:]`` as labels and ``loss_mask[:, 1:]`` with them. Attention crosses documents
there, so no first token of a document is trained from the one before it: the mask leaves it out.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from prep_assets.errors import ConfigError
from prep_assets.exports.blocks import rows
from prep_assets.exports.registry import Progress, exporter
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore, PackedWriter
from prep_assets.stores.tokens import TokenStore

FIELDS = ({"prompt", "chosen", "rejected"}, {"prompt", "gold"})


@exporter("tlfs", PackedStore, TokenStore, Lines)
def tlfs(source: PackedStore | TokenStore | Lines, out: Path, progress: Progress, *, name: str | None = None, pad_id: int = 0) -> None:
    """``pile_train.h5`` of a token stream, ``sft_packed.h5`` of a packed table, a JSONL file of lines; `name` is the file's, without ending.

    `pad_id` fills rows that are not full.
    """
    if isinstance(source, Lines):
        _copy(source, out / f"{name or source.path.stem}.jsonl")
        progress(len(source), len(source))
    elif isinstance(source, TokenStore):
        _stream(source, out / f"{name or 'pile_train'}.h5", progress)
    else:
        with PackedWriter("h5", out, name or "sft_packed", len(source), source.row_len) as table:
            for block in rows(source):
                tokens = block.padded(block.tokens, source.row_len, pad_id)
                mask = block.padded(block.trained.astype("int8"), source.row_len, 0)
                table.append({"tokens": tokens, "loss_mask": mask})
                progress(block.done, len(source))


def _stream(source: TokenStore, path: Path, progress: Progress) -> None:
    """In one piece, since the length is known: of a dataset in chunks HDF5 reads the whole chunk that a window is in."""
    import h5py

    with h5py.File(path, "w", libver="v108") as file:
        dataset = file.create_dataset("tokens", (source.tokens,), "int32", track_times=False)
        at = 0
        for block in rows(source):
            dataset[at : at + len(block.tokens)] = block.ids("int32")
            at += len(block.tokens)
            progress(block.done, len(source))


def _copy(source: Lines, path: Path) -> None:
    first = next(iter(source))
    if not any(fields <= set(first) for fields in FIELDS):
        raise ConfigError(
            f"{source.path} has the fields {sorted(first)}; train-llm-from-scratch reads prompt, chosen, rejected or prompt, gold"
        )
    if not isinstance(first["prompt"], str):
        raise ConfigError(f"{source.path}: train-llm-from-scratch reads prompts as text, these are messages. Build with form: text")
    shutil.copyfile(source.path, path)
