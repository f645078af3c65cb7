"""A vocabulary whose tokens are spelled out, for proofs of rows that can be read."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt


def vocabulary(*tokens: str, control: Sequence[str] = ("<e>", "<s>"), **more: Any) -> Any:
    """Stands in for a `Vocabulary`: the number of a token is its place."""

    def decode(ids: Sequence[int]) -> str:
        return "".join(tokens[each] for each in ids)

    return SimpleNamespace(
        size=len(tokens),
        control={token: tokens.index(token) for token in control if token in tokens},
        decode=decode,
        decode_batch=lambda rows: [decode(ids) for ids in rows],
        backend=SimpleNamespace(normalizer=None),
        **{"token_bytes": None, "prefix_space": "never", "normalized": lambda text: text, **more},
    )


def numbers(*values: float) -> npt.NDArray[Any]:
    return np.array(values)
