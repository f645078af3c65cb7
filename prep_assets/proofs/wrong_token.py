"""Where a mask is wrong: the first token that should be trained and is not, or is and should not be."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from prep_assets.tokenization.vocabulary import Vocabulary

Run = tuple[int, int]
BROKEN = "\ufffd"
"""What a decoder shows for a part of a character, which truncation leaves at an end of a row."""


def first_wrong(
    ids: npt.NDArray[np.integer], runs: Sequence[Run], decoded: Sequence[str], expected: Sequence[str], vocabulary: Vocabulary
) -> int:
    """The token at which the trained runs of a row part from the texts that its source trains; -1 where that cannot be told.

    Args:
        runs: start and end of each trained run.
        decoded: the text of each.
        expected: the texts that must be trained.
    """
    texts, wanted = [each.strip(BROKEN) for each in decoded], [each.strip(BROKEN) for each in expected]
    foreign = next((at for at, text in enumerate(texts) if text not in wanted), None)
    if foreign is None:  # a text is not trained at all: where it stands is not known here
        return -1
    lacking = next((each for each, text in zip(expected, wanted, strict=True) if text not in texts), None)
    return runs[foreign][0] if lacking is None else _in_run(ids, runs[foreign], decoded[foreign], lacking, vocabulary)


def _in_run(ids: npt.NDArray[np.integer], run: Run, found: str, wanted: str, vocabulary: Vocabulary) -> int:
    start, end = run
    if found in wanted:  # the run is too short, at its beginning or at its end
        return start - 1 if not wanted.startswith(found) else min(end, len(ids) - 1)
    same = next((at for at, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), min(len(found), len(wanted)))
    ends = [len(vocabulary.decode(ids[start : at + 1].tolist())) for at in range(start, end)]
    return start + bisect_left(ends, same + 1)
