"""Where images stand among tokens: each is a run of placeholder tokens, which is kept whole, cut away whole, or makes its example refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prep_assets.errors import Refused
from prep_assets.samples import Region

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The images of a batch of records, k of them, ascending by record and start.

    Attributes:
        record: int64[k], which record of the batch each belongs to.
        start: int64[k], place of its first token: in its record, or in the batch while that is not yet cut.
        length: int64[k], its tokens: one for each patch, and those that its processor writes between them.
        regions: what the record says of it.
    """

    record: Ints
    start: Ints
    length: Ints
    regions: tuple[Region, ...]

    def __len__(self) -> int:
        return len(self.regions)

    @property
    def paths(self) -> tuple[str, ...]:
        """Their paths or URLs."""
        return tuple(region.text for region in self.regions)

    def at(self, chosen: npt.NDArray[np.bool_]) -> Placed:
        """Only the chosen ones."""
        if chosen.all():
            return self
        regions = tuple(region for region, take in zip(self.regions, chosen.tolist(), strict=True) if take)
        return Placed(self.record[chosen], self.start[chosen], self.length[chosen], regions)

    def of(self, kept: npt.NDArray[np.bool_]) -> Placed:
        """Those of the records that are kept, bool[n], numbered among them."""
        here = self.at(kept[self.record])
        return Placed((np.cumsum(kept) - 1)[here.record], here.start, here.length, here.regions)


NOTHING = Placed(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), ())


def cut_through(images: Placed, chosen: npt.NDArray[np.bool_]) -> dict[int, Refused]:
    """The records of which truncation would leave a part of an image: the first such image of each.

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
