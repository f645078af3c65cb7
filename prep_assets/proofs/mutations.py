"""What a mutation is: a corruption that a check must catch. Ours are in `prep_assets.extensions.selftest.mutations`.

Each names the check that must catch it, and changes one or two records in a copy of the user's own rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

Change = Callable[..., Any]
"""What is corrupted (rows, lines, a table), the index of the row to corrupt, and further arguments of the kind of store → the corrupted copy, or
`None` where that row is not suitable."""


class Mutation(Struct, frozen=True):
    """One way to corrupt a store.

    Attributes:
        name: what was done.
        caught_by: the check that must fail.
        change: the function that corrupts.
    """

    name: str
    caught_by: str
    change: Change
