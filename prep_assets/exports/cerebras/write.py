"""Cerebras Model Zoo's HDF5 files: ``output_chunk_0_<n>.h5`` with ``data`` int32 (N, rows, S), gzip, one sample a chunk.

    (N, 3, S)  input_ids, attention_mask, labels                                     documents
    (N, 5, S)  … and attention_span, position_ids                                    packed rows (variable sequence length)
    (N, 6, S)  chosen_ and rejected_ input_ids, attention_mask, labels               preference pairs
    (N, 5, S)  text_input_ids, loss_mask, labels, key_padding_mask, token_modality_idx     with images

With images there are three more data sets: ``img_path`` (N, max_num_img), ``has_img`` (N, 1), and ``img_data_loc`` (N, max_num_img, num_patches),
the places of each image's tokens among the inputs. Where a sample has fewer images a path is the string ``None`` and a place S.
``key_padding_mask`` is 1 in the padding, ``token_modality_idx`` 1 on tokens of images.

Labels are **shifted**: ``labels[i]`` is token i + 1. The row named attention_mask is a loss mask, shifted with the labels. Where the Model
Zoo's own preprocessing masks wrongly, the masks here are right: the last token of a document never counts (there: trained on the next
document's first token in packed pretraining, and on padding in pairs).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.h5 import new_h5
from prep_assets.disk.written import write_json
from prep_assets.errors import ConfigError
from prep_assets.exports.blocks import rows, sides
from prep_assets.exports.cerebras.images import MULTIMODAL, layout_of, multimodal_samples
from prep_assets.exports.cerebras.rows import Table, pair_side, shifted, spans_and_positions
from prep_assets.exports.options import Count, TokenId
from prep_assets.exports.registry import Progress, exporter
from prep_assets.exports.source import Pairs
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore

FEATURES = ("input_ids", "attention_mask", "labels")
PACKED = (*FEATURES, "attention_span", "position_ids")
Features = tuple[str, ...]
Samples = Iterator[tuple[Table, Mapping[str, Any]]]
PREFERENCE = tuple(f"{side}_{name}" for side in ("chosen", "rejected") for name in FEATURES)


@exporter(
    "cerebras",
    *(TokenStore, PackedStore, Pairs),
    images=True,
    kind="hdf5",
    only={"max_seq_length": lambda kind, _: kind is not PackedStore, "max_num_img": lambda kind, _: kind is not Pairs},
)
def cerebras(
    source: TokenStore | PackedStore | Pairs,
    out: Path,
    progress: Progress,
    *,
    max_seq_length: Count | None = None,
    pad_id: TokenId = 0,
    samples_per_file: Count = 10_000,
    max_num_img: Count | None = None,
) -> None:
    """The form that fits the source, and ``data_params.json`` with its row names. `max_seq_length` is S; a packed table has its own.

    `max_num_img`: most images of a sample; `None`: as many as the one with the most has.
    """
    width = source.row_len if isinstance(source, PackedStore) else max_seq_length
    if width is None:
        raise ConfigError("export 'cerebras' needs max_seq_length: samples have one length, shorter ones are padded, longer ones refused")
    samples, features, about = _form(source, width, pad_id, max_num_img)
    done = files = valid = 0
    for table, beside in samples:
        for first in range(0, len(table), samples_per_file):
            part = table[first : first + samples_per_file]
            with new_h5(out / f"output_chunk_0_{files}.h5") as file:
                _write(file, "data", part)
                for name, values in beside.items():
                    _write(file, name, values[first : first + samples_per_file])
                file.attrs["n_examples"] = len(part)
            done, files, valid = done + len(part), files + 1, valid + int(part[:, [features.index(n) for n in _masks(features)]].sum())
        progress(done, len(source))
    about |= {"features": list(features), "post-process": {"loss_valid_tokens": valid, "n_examples": done}}
    write_json(out / "data_params.json", about, indent=2)


def _form(
    source: TokenStore | PackedStore | Pairs, width: int, pad_id: int, max_num_img: int | None
) -> tuple[Samples, Features, dict[str, Any]]:
    """Blocks of samples with what stands beside them, the names of their rows, and what else ``data_params.json`` says."""
    if not isinstance(source, Pairs) and len(source.images):
        layout = layout_of(source.images, width, max_num_img)
        sizes = {"is_multimodal": True, "max_num_img": layout.images, "num_patches": layout.patches}
        return multimodal_samples(source, layout, pad_id), MULTIMODAL, {"dataset": sizes}
    if max_num_img is not None:
        raise ConfigError(f"export 'cerebras', option 'max_num_img' = {max_num_img} means nothing: the source has no images. Leave it out")
    features = PREFERENCE if isinstance(source, Pairs) else PACKED if isinstance(source, PackedStore) else FEATURES
    return ((table, {}) for table in _samples(source, width, pad_id)), features, {}


def _write(file: Any, name: str, values: npt.NDArray[Any]) -> None:
    """A data set of which each sample is a chunk of its own; objects are UTF-8 strings."""
    import h5py

    dtype = h5py.string_dtype() if values.dtype == object else values.dtype
    file.create_dataset(name, data=values, dtype=dtype, compression="gzip", chunks=(1, *values.shape[1:]), track_times=False)


def _masks(features: tuple[str, ...]) -> list[str]:
    return [name for name in features if name.endswith("attention_mask") or name == "loss_mask"]


def _samples(source: TokenStore | PackedStore | Pairs, width: int, pad_id: int) -> Iterator[Table]:
    if isinstance(source, Pairs):
        for both in sides(source):
            yield np.concatenate([pair_side(block, width, pad_id) for block in both], axis=1)
        return
    for block in rows(source):
        table = shifted(block, width, pad_id)
        if isinstance(source, PackedStore):
            table = np.concatenate([table, spans_and_positions(block, width)], axis=1)
        yield table
