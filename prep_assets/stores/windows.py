"""Windows over the tokens of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from prep_assets.errors import ConfigError

if TYPE_CHECKING:
    from prep_assets.stores.open import Store

Keys = list[str] | tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows over the T tokens of a store from `offset` on: n = 0 if T <= W else (T - 1 - W) // S + 1, so that every window has a next token."""

    store: Store
    window_size: int
    stride: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.window_size < 1 or self.stride < 1 or self.offset < 0:
            raise ConfigError(
                f"window_size {self.window_size} and stride {self.stride} must be at least 1, offset {self.offset} at least 0"
            )

    def __len__(self) -> int:
        total = len(self.store) - self.offset
        return 0 if total <= self.window_size else (total - 1 - self.window_size) // self.stride + 1

    def __getitem__(self, i: int) -> tuple[int, int]:
        """Where window `i` begins and ends; from the end where negative.

        Raises:
            IndexError: there is no such window.
        """
        begin = index_in(i, len(self), f"{self.store.path}: window") * self.stride + self.offset
        return begin, begin + self.window_size

    def sample_window(self, i: int, keys: Keys) -> dict[str, npt.NDArray[Any]]:
        """Each key's tokens in window `i`: arrays of length `window_size`."""
        return self.store.fetch(*self[i], keys)


def index_in(i: int, count: int, what: str) -> int:
    """`i`, from the end where negative.

    Raises:
        IndexError: it is not one of `count`.
    """
    if not -count <= i < count:
        raise IndexError(f"{what} {i} of {count}")
    return i % count
