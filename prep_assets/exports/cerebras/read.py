"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.exports.readable import Ints, Options, Readable, Tokens
from prep_assets.exports.source import Pairs, Source

OPEN = -1
"""The attention of a token of which the format does not say any."""


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    import h5py

    files = [h5py.File(path, "r") for path in sorted(folder.glob("*.h5"), key=lambda path: int(path.stem.rpartition("_")[2]))]
    ends = np.cumsum([len(file["data"]) for file in files])

    def row(number: int) -> tuple[Tokens, ...]:
        which = int(np.searchsorted(ends, number, "right"))
        at = number - (int(ends[which - 1]) if which else 0)
        sample = files[which]["data"][at].astype(np.int64)
        if isinstance(source, Pairs):
            return _whole_inputs(*sample[:3]), _whole_inputs(*sample[3:])
        read = _inputs_and_next(sample[0], sample[1], sample[2], options["pad_id"])
        if "img_path" in files[which]:
            return (replace(read, images=_cerebras_images(files[which], at, sample), attended=np.append(1 - sample[3], OPEN)),)
        return (replace(read, attended=_by_spans(sample[3], sample[4])) if len(sample) > 3 else read,)

    return Readable(int(ends[-1]), row)


def _by_spans(spans: Ints, positions: Ints) -> Ints:
    """Which tokens are attended: those whose span reaches to the end of their document. Of its last input, to which no other attends, nothing is said,
    nor of the row's last token, which is none."""
    begins = np.append(np.flatnonzero(positions == 0), len(positions))
    left = begins[np.searchsorted(begins, np.arange(len(positions)), "right")] - 1 - np.arange(len(positions))
    if (wrong := np.flatnonzero((spans != left) & (spans != 0))).size:
        raise StoreError(f"attention_span is {spans[wrong[0]]} at {wrong[0]}, {left[wrong[0]]} inputs before the end of its document")
    return np.append(np.where(left == 0, OPEN, spans != 0), OPEN)


def _cerebras_images(file: Any, at: int, sample: Ints) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The images of a sample, which its rows about padding and modality must not contradict."""
    places = file["img_data_loc"][at].tolist()
    paths = [path.decode() for path in file["img_path"][at]]
    found = tuple((path, tuple(here)) for path, here in zip(paths, places, strict=True) if path != "None")
    on_images = sorted(place for _, here in found for place in here)
    if np.flatnonzero(sample[4]).tolist() != on_images or bool(file["has_img"][at][0]) != bool(found):
        raise StoreError(f"img_data_loc says {on_images[:20]}, token_modality_idx {np.flatnonzero(sample[4])[:20].tolist()}")
    if any(place != sample.shape[1] for path, here in zip(paths, places, strict=True) if path == "None" for place in here):
        raise StoreError("a place without an image is not the length of the sample")
    return found


def _inputs_and_next(inputs: Ints, mask: Ints, labels: Ints, pad_id: int) -> Tokens:
    """A sequence whose inputs lack the last token and whose labels lack the first."""
    differ = np.flatnonzero(inputs[1:] != labels[:-1])
    if len(differ) > 1 or (inputs[1:][differ] != pad_id).any():
        raise StoreError(f"labels are not the inputs moved by one: they differ at {differ[:5].tolist()}")
    return Tokens(np.append(inputs[0], labels), np.append(False, mask != 0))


def _whole_inputs(inputs: Ints, mask: Ints, labels: Ints) -> Tokens:
    """A sequence with all its tokens, and the next one as label where that is trained."""
    at = np.flatnonzero(mask)
    if (at == len(inputs) - 1).any() or (labels[at] != inputs[at + 1]).any():
        raise StoreError("labels that count are not the next token")
    return Tokens(inputs, np.append(False, mask[:-1] != 0))
