"""Cerebras Model Zoo's HDF5 files: ``output_chunk_0_<n>.h5`` with ``data`` int32 (N, rows, S), gzip, one sample per chunk.

    (N, 3, S)  input_ids, attention_mask, labels                                     documents
    (N, 5, S)  … and attention_span, position_ids                                    packed rows (variable sequence length)
    (N, 6, S)  chosen_ and rejected_ input_ids, attention_mask, labels               preference pairs
    (N, 5, S)  text_input_ids, loss_mask, labels, key_padding_mask, token_modality_idx     with images

With images there are three more data sets: ``img_path`` (N, max_num_img), ``has_img`` (N, 1), and ``img_data_loc`` (N, max_num_img, num_patches),
the positions of each image's tokens among the inputs. Unused image slots have the path ``None`` (a string) and position S.
``key_padding_mask`` is 1 in the padding and at tokens that are not attended, ``token_modality_idx`` is 1 at image tokens.

``attention_span`` counts the later tokens that attend to a token, so it is 0 at tokens that are not attended. Samples of single documents have no such row.

Labels are **shifted**: ``labels[i]`` is token i + 1. The row named attention_mask is a loss mask, shifted with the labels. The Model Zoo's own
preprocessing trains the last token of a document on the next document's first token in packed pretraining, and on padding in pairs; here it
never counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Int32s, Ints
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.blocks import Block, pair_blocks, row_blocks
from prep_assets.extensions.exports.readable import Options, Readable, Tokens, locate_row, starts_of
from prep_assets.extensions.exports.registry import Count, Progress, TokenId, exporter, reads
from prep_assets.proofs.tables import require_filled
from prep_assets.samples import IMAGE
from prep_assets.stores.h5 import new_h5
from prep_assets.stores.images import Images
from prep_assets.stores.table import PACKED, PAIRS, SIDES, TOKENS, Table
from prep_assets.stores.verification import write_json

FEATURES = ("input_ids", "attention_mask", "labels")
VARIABLE = (*FEATURES, "attention_span", "position_ids")
PREFERENCE = tuple(f"{side}_{name}" for side in SIDES for name in FEATURES)
MULTIMODAL = ("text_input_ids", "loss_mask", "labels", "key_padding_mask", "token_modality_idx")
NO_PATH = "None"
"""The Model Zoo's path of an unused image slot."""
_GPT = ("train_input:", "  data_processor: GptHDF5MapDataProcessor", '  data_dir: "{folder}"')


@exporter(
    "cerebras",
    *(PACKED, TOKENS, PAIRS),
    read_by="Cerebras Model Zoo",
    opens={
        "packed table": (*_GPT, "  use_vsl: true"),
        "token stream": _GPT,
        "pairs": ("train_input:", "  data_processor: DpoHDF5DataProcessor", '  data_dir: "{folder}"'),
    },
    images=(IMAGE,),
    attention=True,
    kind="hdf5",
    only={"max_seq_length": lambda schema, _: not schema.packed, "max_num_img": lambda schema, _: not schema.fits(PAIRS)},
)
def cerebras(
    source: Table,
    out: Path,
    progress: Progress,
    *,
    max_seq_length: Count | None = None,
    pad_id: TokenId = 0,
    samples_per_file: Count = 10_000,
    max_num_img: Count | None = None,
) -> None:
    """The form that fits the source, and ``data_params.json`` with its row names. `max_seq_length` is S; a packed table has its own.

    `max_num_img` is the number of image slots of a sample; `None`: the most images that a sample has.
    """
    width = source.width or max_seq_length
    if width is None:
        raise ConfigError("export 'cerebras' needs max_seq_length: samples have one length, shorter ones are padded, longer ones refused")
    features = PREFERENCE if source.schema.fits(PAIRS) else VARIABLE if source.width else FEATURES
    params: dict[str, Any] = {}
    if len(source.images):
        slots, patches = image_sizes(source.images, max_num_img)
        features, params = MULTIMODAL, {"dataset": {"is_multimodal": True, "max_num_img": slots, "num_patches": patches}}
        samples = multimodal_samples(source, width, slots, patches, pad_id, progress)
    elif max_num_img is not None:
        raise ConfigError(f"export 'cerebras', option 'max_num_img' = {max_num_img} has no effect: the source has no images. Leave it out")
    elif not source.width and source.has("attention"):
        raise ConfigError(
            "export 'cerebras': samples of single documents (input_ids, attention_mask, labels) cannot say which tokens are not attended. Export "
            "sft_packed, whose attention_span can, or to packed_parquet or hf_parquet"
        )
    else:
        samples = _samples(source, width, pad_id, progress)
    mask_rows = [index for index, name in enumerate(features) if name.endswith("attention_mask") or name == "loss_mask"]
    done = valid = 0
    with ExitStack() as opened:
        for arrays in samples:
            rest = arrays
            while count := len(rest["data"]):
                number, first = divmod(done, samples_per_file)
                size = min(samples_per_file, len(source) - number * samples_per_file)
                if not first:
                    opened.close()
                    file = opened.enter_context(new_h5(out / f"output_chunk_0_{number}.h5"))
                part = slice(first, min(first + count, size))
                taken = {name: values[: part.stop - first] for name, values in rest.items()}
                for name, values in taken.items():
                    _write_samples(file, name, values, part, size)
                if part.stop == size:
                    file.attrs["n_examples"] = size
                rest = {name: values[part.stop - first :] for name, values in rest.items()}
                done, valid = done + part.stop - first, valid + int(taken["data"][:, mask_rows].sum())
    params |= {"features": list(features), "post-process": {"loss_valid_tokens": valid, "n_examples": done}}
    write_json(out / "data_params.json", params, indent=2)


def _write_samples(file: Any, name: str, values: npt.NDArray[Any], part: slice, size: int) -> None:
    """Write some of the `size` samples of a data set, with one chunk per sample; object arrays become UTF-8 strings."""
    import h5py

    if name not in file:
        dtype = h5py.string_dtype() if values.dtype == object else values.dtype
        shape = (size, *values.shape[1:])
        file.create_dataset(name, shape, dtype, compression="gzip", chunks=(1, *values.shape[1:]), track_times=False)
    file[name][part] = values


def _samples(source: Table, width: int, pad_id: int, progress: Progress) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield blocks of samples without images: the array ``data``."""
    if source.schema.fits(PAIRS):
        for blocks in pair_blocks(source, progress):
            yield {"data": np.concatenate([whole_sequence_rows(block, width, pad_id) for block in blocks.values()], axis=1)}
        return
    for block in row_blocks(source, progress):
        table = shifted_rows(block, width, pad_id)
        if source.width:
            table = np.concatenate([table, span_and_position_rows(block, width)], axis=1)
        yield {"data": table}


def _is_input(block: Block, width: int) -> npt.NDArray[np.bool_]:
    """bool[R, width], true at inputs: every token of a row but the last."""
    is_input: npt.NDArray[np.bool_] = np.arange(width) < block.row_lengths[:, None] - 1
    return is_input


def shifted_rows(block: Block, width: int, pad_id: int) -> Int32s:
    """int32[R, 3, width]: every token of a row but the last, whether the next one is trained, and the next one."""
    tokens, next_trained = block.padded(block.tokens, width + 1, pad_id), block.padded(block.next_trained, width + 1, 0)
    used = _is_input(block, width)
    return np.stack([np.where(used, tokens[:, :-1], pad_id), next_trained[:, :-1], np.where(used, tokens[:, 1:], pad_id)], axis=1).astype(
        np.int32
    )


def whole_sequence_rows(block: Block, width: int, pad_id: int) -> Int32s:
    """int32[R, 3, width]: every token, whether the next one is trained, and the next one where it is trained."""
    tokens, next_trained = block.padded(block.tokens, width, pad_id), block.padded(block.next_trained, width, 0)
    next_tokens = np.concatenate([tokens[:, 1:], np.full((len(tokens), 1), pad_id)], axis=1)
    return np.stack([tokens, next_trained, np.where(next_trained, next_tokens, pad_id)], axis=1).astype(np.int32)


def span_and_position_rows(block: Block, width: int) -> Int32s:
    """int32[R, 2, width]: attention spans and position ids of the inputs, 0 in the padding.

    A span counts the later tokens that may attend to a token: it falls to 0 at the end of each document, is one less in the row's last document, whose
    last token is no input, and is 0 at tokens that are not attended.
    """
    lengths = block.document_lengths
    is_last = np.zeros(len(lengths), bool)
    is_last[np.cumsum(block.row_documents) - 1] = True
    spans = np.maximum(np.repeat(lengths - is_last, lengths) - 1 - block.position_ids, 0)
    attended = 1 if block.attended is None else block.attended
    extra = [block.padded(values, width + 1, 0)[:, :-1] for values in (spans * attended, block.position_ids)]
    return np.stack([np.where(_is_input(block, width), values, 0) for values in extra], axis=1).astype(np.int32)


def image_sizes(images: Images, max_num_img: int | None) -> tuple[int, int]:
    """The max_num_img and num_patches of a source.

    Raises:
        ConfigError: images of different numbers of tokens, or a row with more images than `max_num_img`.
    """
    lengths, images_per_row = np.unique(images.length), np.unique(images.record, return_counts=True)[1]
    if len(lengths) != 1:
        raise ConfigError(f"images have {', '.join(map(str, lengths.tolist()))} tokens; all of them need one num_patches")
    most = int(images_per_row.max())
    if max_num_img is not None and most > max_num_img:
        over = int((images_per_row > max_num_img).sum())
        raise ConfigError(f"{over:,} rows have more images than max_num_img {max_num_img}, the most has {most}. Raise it, or leave it out")
    return max_num_img or most, int(lengths[0])


def multimodal_samples(
    source: Table, width: int, slots: int, patches: int, pad_id: int, progress: Progress
) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Blocks of R samples: ``data`` int32[R, 5, S], and the arrays ``img_path``, ``has_img``, ``img_data_loc``.

    Raises:
        ConfigError: an image at the end of a row, whose last token is not an input.
    """
    for block in row_blocks(source, progress):
        image_arrays = _image_arrays(source.images, block, width, slots, patches)
        modality = np.zeros((len(block.row_lengths), width + 1), np.int32)
        modality[np.arange(len(modality))[:, None, None], image_arrays["img_data_loc"]] = 1
        padding = ~_is_input(block, width)
        if block.attended is not None:
            padding |= block.padded(block.attended, width + 1, 0)[:, :-1] == 0
        extra = np.stack([padding, modality[:, :-1]], axis=1).astype(np.int32)
        yield {"data": np.concatenate([shifted_rows(block, width, pad_id), extra], axis=1), **image_arrays}


def _image_arrays(images: Images, block: Block, width: int, slots: int, patches: int) -> dict[str, npt.NDArray[Any]]:
    """The image arrays of a block. Unused slots have position `width`, one past the inputs."""
    count = len(block.row_lengths)
    first = block.done - count
    span = images.of(first, block.done)
    row, start = np.asarray(images.record[span]) - first, np.asarray(images.start[span])
    if (at_end := np.flatnonzero(start + patches > block.row_lengths[row] - 1)).size:
        raise ConfigError(
            f"row {first + int(row[at_end[0]]):,} ends with an image, and the last token of a row is a label and no input. End it with text or a stop token"
        )
    first_tokens = (np.cumsum(block.row_lengths) - block.row_lengths)[row] + start
    tokens = block.tokens[first_tokens[:, None] + np.arange(patches)]
    if (mixed := np.flatnonzero((tokens != tokens[:, :1]).any(axis=1))).size:
        raise ConfigError(
            f"row {first + int(row[mixed[0]]):,}: tokens of {len(np.unique(tokens[mixed[0]]))} kinds stand for an image; this format has patches and "
            "nothing beside them"
        )
    slot = np.arange(len(row)) - np.searchsorted(row, row)
    location = np.full((count, slots, patches), width, np.int32)
    location[row, slot] = start[:, None] + np.arange(patches)
    path = np.full((count, slots), NO_PATH, object)
    path[row, slot] = paths = [image.path for image in images.references(np.arange(span.start, span.stop))]
    if NO_PATH in paths:
        raise ConfigError(f"an image is named {NO_PATH!r}, which stands for no image in this format. Rename it")
    return {"img_path": path, "has_img": np.bincount(row, minlength=count)[:, None] > 0, "img_data_loc": location}


ALL = 2000
"""Fewer samples are all read to count what is trained."""
UNKNOWN = -1
"""Attention of a token for which the format stores none."""


@reads("cerebras")
def read_cerebras(folder: Path, source: Table, options: Options) -> Readable:
    """Open a `cerebras` export with code independent of its writer."""
    import h5py

    files = [h5py.File(path, "r") for path in sorted(folder.glob("*.h5"), key=lambda path: int(path.stem.rpartition("_")[2]))]
    ends = np.cumsum([len(file["data"]) for file in files])
    require_filled([len(file["data"]) for file in files], options["samples_per_file"])
    params = json.loads((folder / "data_params.json").read_text("utf-8"))
    trained = [at for at, name in enumerate(params["features"]) if name == "loss_mask" or name.endswith("attention_mask")]
    said, counted = params["post-process"], {"n_examples": int(ends[-1])}
    if ends[-1] < ALL:
        counted["loss_valid_tokens"] = sum(int(file["data"][:, trained].sum()) for file in files)
    if (
        any(said[name] != count for name, count in counted.items())
        or [file.attrs["n_examples"] for file in files] != np.diff(ends, prepend=0).tolist()
    ):
        raise StoreError(f"data_params.json says {said}, the files have {counted}")
    if any(column.chunks != (1, *column.shape[1:]) for file in files for column in file.values()):
        raise StoreError("a column is not stored in a chunk for each sample")
    if "img_path" in files[0]:
        slots = options["max_num_img"] or np.unique(source.images.record, return_counts=True)[1].max()
        if params["dataset"]["max_num_img"] != slots or any(file["img_path"].shape[1] != slots for file in files):
            raise StoreError(f"samples have {params['dataset']} and images of shape {files[0]['img_path'].shape}, not {slots} places")
    pairs = source.schema.fits(PAIRS)
    rows = 6 if pairs else 5 if source.width or "img_path" in files[0] else 3

    def row(number: int) -> tuple[Tokens, ...]:
        part, index = locate_row(ends, number)
        sample = files[part]["data"][index].astype(np.int64)
        if len(sample) != rows:
            raise StoreError(f"{len(sample)} rows in a sample, {rows} are expected")
        if pairs:
            return _tokens_of_whole(*sample[:3]), _tokens_of_whole(*sample[3:])
        tokens = _tokens_of_shifted(sample[0], sample[1], sample[2], options["pad_id"])
        if "img_path" in files[part]:
            return (replace(tokens, images=_cerebras_images(files[part], index, sample), attended=np.append(1 - sample[3], UNKNOWN)),)
        return (replace(tokens, attended=_attended_from_spans(sample[3], sample[4])) if len(sample) > 3 else tokens,)

    width = source.width or options["max_seq_length"]
    return Readable(int(ends[-1]), row, width=width if pairs else width + 1)


def _attended_from_spans(spans: Ints, positions: Ints) -> Ints:
    """Attended tokens are those whose span reaches the end of their document. Not stored: a document's last input, to which no other token attends, and
    the row's last token, which is no input."""
    starts = np.append(starts_of(positions), len(positions))
    to_end = starts[np.searchsorted(starts, np.arange(len(positions)), "right")] - 1 - np.arange(len(positions))
    if (wrong := np.flatnonzero((spans != to_end) & (spans != 0))).size:
        raise StoreError(f"attention_span is {spans[wrong[0]]} at {wrong[0]}, {to_end[wrong[0]]} inputs before the end of its document")
    return np.append(np.where(to_end == 0, UNKNOWN, spans != 0), UNKNOWN)


def _cerebras_images(file: Any, index: int, sample: Ints) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The images of a sample, checked against its modality row."""
    slots = file["img_data_loc"][index].tolist()
    paths = [path.decode() for path in file["img_path"][index]]
    images = tuple((path, tuple(slot)) for path, slot in zip(paths, slots, strict=True) if path != "None")
    image_tokens = sorted(position for _, slot in images for position in slot)
    if np.flatnonzero(sample[4]).tolist() != image_tokens or bool(file["has_img"][index][0]) != bool(images):
        raise StoreError(f"img_data_loc says {image_tokens[:20]}, token_modality_idx {np.flatnonzero(sample[4])[:20].tolist()}")
    if any(position != sample.shape[1] for path, slot in zip(paths, slots, strict=True) if path == "None" for position in slot):
        raise StoreError("a place without an image is not the length of the sample")
    return images


def _tokens_of_shifted(inputs: Ints, mask: Ints, labels: Ints, pad_id: int) -> Tokens:
    """Restore a sequence from inputs without the last token and labels without the first."""
    differing = np.flatnonzero(inputs[1:] != labels[:-1])
    if len(differing) > 1 or (inputs[1:][differing] != pad_id).any():
        raise StoreError(f"labels are not the inputs moved by one: they differ at {differing[:5].tolist()}")
    return Tokens(np.append(inputs[0], labels), np.append(False, mask != 0))


def _tokens_of_whole(inputs: Ints, mask: Ints, labels: Ints) -> Tokens:
    """Restore a sequence from all its tokens, with labels only where the next token is trained."""
    counted = np.flatnonzero(mask)
    if (counted == len(inputs) - 1).any() or (labels[counted] != inputs[counted + 1]).any():
        raise StoreError("labels that count are not the next token")
    return Tokens(inputs, np.append(False, mask[:-1] != 0))
