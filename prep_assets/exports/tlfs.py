"""train-llm-from-scratch's files: HDF5 for pretraining and SFT, JSONL for preferences and RL.

The loss mask is unshifted: its trainer takes ``tokens[:, 1:]`` as labels and ``loss_mask[:, 1:]`` with them. Attention crosses documents
there, so no first token of a document is trained from the one before it: the mask leaves it out.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.errors import ConfigError, StoreError
from prep_assets.exports.blocks import rows
from prep_assets.exports.readable import Options, Readable, Source, Tokens, cut, refuse_lost_mask
from prep_assets.exports.registry import FileName, Progress, TokenId, exporter
from prep_assets.stores.h5 import FixedH5
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore, PackedWriter
from prep_assets.stores.tokens import TokenStore
from prep_assets.stores.verification import WrittenFile

READ_BY = "train-llm-from-scratch"
LINES = {
    "Lines": ("import json", 'rows = [json.loads(line) for line in open("{folder}/{file}.jsonl")]', 'rows[0]["prompt"]'),
    "": ("import h5py", 'file = h5py.File("{folder}/{file}.h5")', 'file["tokens"]'),
}


FORMS: tuple[Mapping[str, Any], ...] = ({"prompt": str, "chosen": str, "rejected": str}, {"prompt": str, "gold": int | float})
"""Fields and types of a line: of preferences, of RL prompts."""


@exporter(
    "tlfs",
    PackedStore,
    TokenStore,
    Lines,
    kind="hdf5",
    keeps_borders=False,
    keeps_mask=lambda _: False,
    only={"pad_id": lambda kind, _: kind is PackedStore},
)
def tlfs(
    source: PackedStore | TokenStore | Lines, out: Path, progress: Progress, *, name: FileName | None = None, pad_id: TokenId = 0
) -> None:
    """``pile_train.h5`` of a token stream, ``sft_packed.h5`` of a packed table, a JSONL file of lines; `name` is the file's, without ending.

    `pad_id` fills rows that are not full.
    """
    if isinstance(source, Lines):
        _copy(source, out / f"{name or source.path.stem}.jsonl")
        progress(len(source), len(source))
    elif isinstance(source, TokenStore):
        refuse_lost_mask(source, "tlfs")
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
    with FixedH5(path, {"tokens": ((source.tokens,), "int32")}, libver="v108") as file:
        at = 0
        for block in rows(source):
            file.write("tokens", at, block.ids("int32"))
            at += len(block.tokens)
            progress(block.done, len(source))


def _copy(source: Lines, path: Path) -> None:
    form: Mapping[str, Any] = {}
    for line, row in enumerate(source, 1):
        form = form or _form(row, source.path)
        wrong = next((key for key, kind in form.items() if not isinstance(row.get(key), kind) or isinstance(row[key], bool)), None)
        if wrong is not None:
            raise ConfigError(f"{source.path} line {line:,}: {_complaint(row, wrong, form)}")
    with source.guards.open(source.path) as there, WrittenFile(path) as copy:
        shutil.copyfileobj(there, copy)


def _form(row: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    found = next((form for form in FORMS if set(form) <= set(row)), None)
    if found is None:
        raise ConfigError(f"{path} has the fields {sorted(row)}; train-llm-from-scratch reads prompt, chosen, rejected or prompt, gold")
    return found


def _complaint(row: Mapping[str, Any], key: str, form: Mapping[str, Any]) -> str:
    if key not in row:
        return f"the fields {sorted(row)}; train-llm-from-scratch reads {', '.join(form)}, as in line 1"
    if key == "gold":
        return (
            f"the gold {row[key]!r:.80}; train-llm-from-scratch compares numbers. Export to verl, or keep the sources with such golds apart"
        )
    if isinstance(row[key], list):
        return f"train-llm-from-scratch reads {key} as text, these are messages. Build with form: text"
    return f"train-llm-from-scratch reads {key} as text, this is {row[key]!r:.80}"


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    if isinstance(source, Lines):
        path = folder / f"{options['name'] or source.path.stem}.jsonl"
        with path.open("rb") as file:
            ends = np.cumsum([len(line) for line in file])
        return Readable(len(ends), lambda number: json.loads(_line(path, int(ends[number - 1]) if number else 0)))
    import h5py

    packed = isinstance(source, PackedStore)
    file = h5py.File(folder / f"{options['name'] or ('sft_packed' if packed else 'pile_train')}.h5", "r")
    if packed:
        tokens, mask = file["tokens"], file["loss_mask"]
        return Readable(len(tokens), lambda number: (Tokens(tokens[number].astype(np.int64), mask[number] != 0),))
    assert isinstance(source, TokenStore)
    if len(file["tokens"]) != source.tokens:
        raise StoreError(f"{len(file['tokens']):,} tokens, the store has {source.tokens:,}")
    return Readable(len(source), cut(file["tokens"], None, source))


def _line(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.readline()
