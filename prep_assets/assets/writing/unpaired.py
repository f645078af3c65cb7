"""Unpaired preferences: one answer with a label, as KTO trains on them. They stand beside the pairs, in ``unpaired.jsonl``.

The form is TRL's: ``{prompt, completion, label}``. The file is there only where a domain gives labelled answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prep_assets.stores.lines import LinesWriter

UNPAIRED, UNPAIRED_TEST = "unpaired", "unpaired_test"


@dataclass(slots=True)
class UnpairedFiles:
    """The two files, opened when the first labelled answer comes.

    Attributes:
        payload, names, seed: the store's folder, its domains, and the seed of the training file's order; `None`: the order of the source.
    """

    payload: Path
    names: tuple[str, ...]
    seed: int | None
    stack: ExitStack
    _writers: dict[bool, LinesWriter] = field(default_factory=dict)

    def append(self, row: Mapping[str, Any], to_test: bool, **origin: int) -> None:
        """Append one row to the training or the held-out file."""
        if not self._writers:
            self._writers = {
                False: self.stack.enter_context(LinesWriter(self.payload, UNPAIRED, self.names, shuffle_seed=self.seed)),
                True: self.stack.enter_context(LinesWriter(self.payload, UNPAIRED_TEST, self.names)),
            }
        self._writers[to_test].append(row, **origin)

    @property
    def counts(self) -> dict[str, int]:
        """How many rows are in each file, for the manifest; nothing where there is none."""
        return {f"unpaired_{'test' if to_test else 'train'}": len(writer) for to_test, writer in self._writers.items()}
