"""A vocabulary whose tokens are spelled out, for proofs of rows that can be read."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.derive import Derived, Expected
from prep_assets.proofs.mask import UNWEIGHED, Conversation, Left


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


def record(
    name: str,
    ids: Any,
    mask: Any = UNWEIGHED,
    expected: Sequence[Expected] = (),
    text: str = "",
    controls: Any = (),
    typed: int = 0,
    **left: Any,
) -> Conversation:
    """A record, and what its source leaves, spelled out."""
    return Conversation(name, ids, mask, Left(Derived(text, tuple(expected), controls, typed, ()), tuple(expected), **left))
