"""What the contrastive family takes of a row: its form, and texts that fit in the embedding model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.contrast_rows import contrast_row
from prep_assets.config.models import Contrastive
from prep_assets.errors import Refused


class Judged:
    """Makes rows, and refuses those with a text that is longer than ``max_seq_len``: an embedding model would cut it in silence."""

    def __init__(self, workspace: Workspace) -> None:
        family = workspace.family(Contrastive)
        self._limit = family.preprocessing.max_seq_len
        self._backend = None if self._limit is None else workspace.vocabulary(family).backend

    def row(self, example: object) -> Mapping[str, Any]:
        """The row of an example.

        Raises:
            Refused: as `contrast_row` says; ``too_long``.
        """
        row = contrast_row(example)
        if self._limit is not None and self._backend is not None:
            instruction = row.get("instruction", "")
            texts = [instruction + row["query"], *row.get("positives", ()), *row.get("negatives", ())]
            longest = max(len(each.ids) for each in self._backend.encode_batch(texts, add_special_tokens=True))
            if longest > self._limit:
                raise Refused("too_long", f"a text of {longest:,} tokens, max_seq_len is {self._limit:,}", stage="contrast")
        return row
