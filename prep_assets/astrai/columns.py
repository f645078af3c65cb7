"""What becomes of one record: arrays for each key of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from prep_assets.astrai.task import Task
from prep_assets.errors import Refused


@dataclass(frozen=True, slots=True)
class Cells:
    """One key of one record.

    Attributes:
        values: 1-D, all elements one after another.
        lengths: of each element, where the key holds a list (the responses of a group); `None` for a flat sequence.
    """

    values: npt.NDArray[Any]
    lengths: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """A token sequence and whether each token is trained: uint32[n] and uint8[n]."""

    ids: npt.NDArray[np.uint32]
    mask: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Row:
    """A record that is kept: its cells by key, and how many of its tokens were cut off at the end by ``max_seq_len``."""

    cells: Mapping[str, Cells]
    cut: int


class Builder(Protocol):
    """Tokenizes and masks records."""

    def build(self, payloads: Sequence[Mapping[str, Any]]) -> list[Row | Refused]:
        """One result for each record, in order."""
        ...


def row_of(task: Task, outputs: Mapping[str, Tokens | list[Tokens] | npt.NDArray[np.float32]]) -> Row:
    """The cells of a record, each sequence cut to ``max_seq_len``; outputs in the order of the sources."""
    limit = task.pipeline.preprocessing.max_seq_len
    cells: dict[str, Cells] = {}
    cut = 0
    for key, output in outputs.items():
        if isinstance(output, np.ndarray):
            cells[key] = Cells(output)
            continue
        parts = output if isinstance(output, list) else [output]
        cut += sum(max(0, len(part.ids) - limit) for part in parts)
        lengths = tuple(min(limit, len(part.ids)) for part in parts) if isinstance(output, list) else None
        cells[key] = Cells(np.concatenate([part.ids[:limit] for part in parts]), lengths)
        mask_key = task.mask_key(key)
        if mask_key in task.columns:
            cells[mask_key] = Cells(np.concatenate([part.mask[:limit] for part in parts]), lengths)
    return Row(cells, cut)
