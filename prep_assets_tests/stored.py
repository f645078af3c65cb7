"""What is in stores, as tests ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.stores.groups import STREAMS
from prep_assets.stores.table import Table, open_stream, open_table


def packed_rows(table: Table, column: str = "tokens") -> npt.NDArray[Any]:
    """A column of a packed table, (N, row length) with padding."""
    return np.asarray(table.columns[column].values).reshape(-1, table.width)


class StoredGroups:
    """The groups of a folder: as a table, and the streams that they are made of, a record for each group or each response."""

    def __init__(self, folder: Path) -> None:
        self.table = open_table(folder)
        self.prompts, self.responses, self.rewards = (open_stream(folder, name) for name in STREAMS)

    def __len__(self) -> int:
        return len(self.table)

    def responses_of(self, group: int) -> range:
        """The numbers of a group's responses in their stream."""
        ends = [0, *self.rewards.columns["rewards"].ends.tolist()]
        return range(ends[group], ends[group + 1])

    def conversation(self, group: int, response: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Ids and loss mask of a prompt and one of the responses."""
        prompt, mask = self.prompts.record(group, "tokens"), self.responses.record(response, "loss_mask")
        ids = np.concatenate([prompt, self.responses.record(response, "tokens")])
        return ids, np.concatenate([np.zeros(len(prompt), mask.dtype), mask])
