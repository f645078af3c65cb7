"""Truncation: which tokens of an example that is too long are left. An image is kept whole, cut away whole, or makes its example refused.

drop     none: the example is refused
end      the first max_seq_len tokens
start    the last max_seq_len tokens
prompt   everything but a part of the longest untrained texts (Cerebras Model Zoo's prompt-first shortening): system turns, reasoning, tool
         calls and what the template writes stay whole; refused where that is not enough
turns    whole rounds from the oldest, the system turn kept; needs a new render, so the pipeline does it (see `without_oldest_rounds`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from prep_assets.config.models import Keep
from prep_assets.errors import Refused
from prep_assets.samples import SYSTEM, USER, Sample
from prep_assets.tokenization.cuts import Ints, Placed, Prompt

Truncation = Literal["drop", "start", "end", "turns", "prompt"]
Bools = npt.NDArray[np.bool_]


def kept_tokens(length: int, limit: int, mode: Truncation, prompts: Sequence[Prompt], keeps: Mapping[str, Keep]) -> Bools | None:
    """Which tokens of an example stay, bool[length]; `None` where this mode cannot make it fit.

    Args:
        length: its tokens, more than `limit`.
        prompts: its untrained texts, by tokens.
        keeps: what is left of them, by role.
    """
    keep = np.ones(length, bool)
    if mode == "end":
        keep[limit:] = False
    elif mode == "start":
        keep[: length - limit] = False
    elif mode == "prompt":
        return _shorten(keep, length - limit, prompts, keeps)
    else:
        return None
    return keep


def _shorten(keep: Bools, excess: int, prompts: Sequence[Prompt], keeps: Mapping[str, Keep]) -> Bools | None:
    """Take `excess` tokens from the longest prompts, one after the other; each keeps what its role says."""
    for start, end, role in sorted(prompts, key=lambda prompt: (prompt.start - prompt.end, prompt.start)):
        own = keeps.get(role, Keep())
        taken = min(excess, end - start - own.least)
        if taken > 0:
            keep[slice(end - taken, end) if own.part == "start" else slice(start, start + taken)] = False
            excess -= taken
    return keep if excess == 0 else None


def rounds(sample: Sample) -> list[int]:
    """Where rounds of a conversation begin: turn numbers of user turns that follow something else than a user turn."""
    roles = [turn.role for turn in sample.turns]
    return [i for i, role in enumerate(roles) if role == USER and (i == 0 or roles[i - 1] != USER)]


def without_oldest_rounds(sample: Sample, count: int) -> Sample:
    """`sample` without its `count` oldest rounds; system turns before the first round stay."""
    begins = rounds(sample)
    first, cut = begins[0], begins[count]
    system = tuple(turn for turn in sample.turns[:first] if turn.role == SYSTEM)
    return replace(sample, turns=(*system, *sample.turns[cut:]))


def cut_through(images: Placed, chosen: npt.NDArray[np.bool_]) -> dict[int, Refused]:
    """The records in which truncation would leave a part of an image: the first such image of each.

    Args:
        images: with `start` counted through the batch.
        chosen: bool[T], which tokens of the batch stay.
    """
    left = _kept_before(chosen)
    kept = left[images.start + images.length] - left[images.start]
    faults: dict[int, Refused] = {}
    for number in np.flatnonzero((kept > 0) & (kept < images.length)):
        detail = f"truncation would leave {kept[number]:,} of the {images.length[number]:,} tokens of {images.regions[number].text[:200]!r}"
        faults.setdefault(int(images.record[number]), Refused("image_cut", detail, stage="tokenize"))
    return faults


def after_cut(images: Placed, chosen: npt.NDArray[np.bool_], keep: npt.NDArray[np.bool_], offsets: Ints) -> Placed:
    """The images that are left, numbered and placed within the records that are left.

    Args:
        chosen: bool[T], which tokens of the batch stay.
        keep: bool[n], which records stay.
        offsets: int64[n + 1], where records begin in the batch.
    """
    left, number = _kept_before(chosen), np.cumsum(keep) - 1
    here = Placed(number[images.record], left[images.start] - left[offsets[images.record]], images.length, images.regions)
    return here.at(keep[images.record] & chosen[images.start])


def _kept_before(chosen: npt.NDArray[np.bool_]) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(chosen)])
