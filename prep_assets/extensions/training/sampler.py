"""A distributed sampler that can resume after any batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import Sampler

from prep_assets.errors import ConfigError, PrepAssetsError


class ResumableDistributedSampler(Sampler[int]):
    """Indices of one rank, epoch by epoch, in an order that depends on the seed and the epoch alone.

    The order of an epoch is ``torch.randperm(n)`` with a generator of ``seed + epoch`` (or 0 … n - 1), the same as AstrAI's. Rank r of R
    takes elements r, r + R, … of what remains. So a position is one number, valid for any number of ranks: the samples of this epoch that all
    ranks have consumed in total.

    Workers prefetch batches, so more samples are handed out than trained. Only `consume` advances the position::

        for batch in loader:
            train(batch)
            sampler.consume()

    Args:
        data_source: only its length is used.
        start_epoch, start_iter: where to begin; `start_iter` counts samples of one rank.
        drop_last: drop the last n % R samples; otherwise the epoch's first samples are repeated until all ranks have equally many.
        pad: false, for evaluation: repeat no sample, so each comes exactly once and some ranks have one more. Rank 0 has the most, so save
            its state (see `state_dict`).
        rank, world_size: default to those of `torch.distributed` (and `process_group`); 0 and 1 if it is not initialized.
        batch_size: samples in a batch of one rank, for `consume`.

    Raises:
        ConfigError: arguments that contradict each other.
    """

    def __init__(
        self,
        data_source: Sized,
        start_epoch: int = 0,
        start_iter: int = 0,
        seed: int = 42,
        drop_last: bool = False,
        shuffle: bool = True,
        process_group: Any = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        batch_size: int = 1,
        pad: bool = True,
    ) -> None:
        self.n, self.epoch, self.seed = len(data_source), start_epoch, seed
        self.drop_last, self.shuffle, self.pad, self.batch_size = drop_last, shuffle, pad, batch_size
        self.rank, self.world_size = resolve_rank(rank, world_size, process_group)
        self._consumed = start_iter * self.world_size
        self._tracked = self._exhausted = False
        self._handed_out = 0
        if batch_size < 1 or start_epoch < 0 or start_iter < 0 or self._consumed > self.n + self.world_size:
            raise ConfigError(
                f"batch_size {batch_size}, start_epoch {start_epoch}, start_iter {start_iter}: an epoch has {self.n:,} samples for "
                f"{self.world_size} ranks"
            )
        self._roll_over()

    def __iter__(self) -> Iterator[int]:
        self._next_pass()
        epoch = self.epoch
        indices = self._indices()
        self._handed_out = len(indices)
        yield from indices
        self._exhausted = self.epoch == epoch

    def __len__(self) -> int:
        """Samples that this rank gets in the next pass."""
        remaining = self.n if self._finished() else self.n - self._consumed
        if self.drop_last:
            return remaining // self.world_size
        return -(-remaining // self.world_size) if self.pad else len(range(self.rank, remaining, self.world_size))

    def consume(self, batches: int = 1) -> None:
        """Count `batches` as trained, on all ranks. The last batch of an epoch, full or not, starts the next epoch."""
        self._tracked = True
        self._consumed += batches * self.batch_size * self.world_size
        self._roll_over()

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of `epoch`; if it is the current one, keep the position."""
        if epoch != self.epoch:
            self.epoch, self._consumed, self._exhausted = epoch, 0, False

    def state_dict(self) -> dict[str, Any]:
        """The position, for a checkpoint; equal on all ranks that have consumed equally many batches.

        With ``pad=False`` a rank may have one batch less in an epoch than rank 0, and is then behind it at the end of that epoch. Save the state of
        rank 0: it is right for all ranks. A rank without a sample in a pass, and so without a `consume`, is at the next epoch.

        Raises:
            PrepAssetsError: a whole pass was made without `consume`, so the position is unknown.
        """
        uncounted = self._exhausted and not self._tracked
        if uncounted and self._handed_out:
            raise PrepAssetsError("the position is not known: call sampler.consume() after each batch that was trained")
        epoch, consumed = (self.epoch + 1, 0) if uncounted else (self.epoch, self._consumed)
        return {"epoch": epoch, "consumed": consumed, "seed": self.seed, "shuffle": self.shuffle, "n": self.n}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint; the number of ranks and the batch size may have changed.

        Raises:
            ConfigError: the checkpoint has another order: number of samples, seed or shuffle differ.
        """
        current = {"seed": self.seed, "shuffle": self.shuffle, "n": self.n}
        changed = {name: (state[name], value) for name, value in current.items() if state[name] != value}
        if changed:
            differences = ", ".join(f"{name} was {before}, is {now}" for name, (before, now) in changed.items())
            raise ConfigError(
                f"this checkpoint is of another order of samples: {differences}. Start a new epoch with set_epoch, or use the same"
            )
        self.epoch, self._consumed, self._exhausted = state["epoch"], state["consumed"], False
        self._roll_over()

    def _indices(self) -> list[int]:
        order = self._order()
        remaining = order[self._consumed :]
        if self.drop_last:
            remaining = remaining[: len(remaining) // self.world_size * self.world_size]
        elif self.pad and len(remaining):
            missing = -len(remaining) % self.world_size
            remaining = torch.cat([remaining, order.repeat(-(-missing // self.n) if missing else 0)[:missing]])
        indices: list[int] = remaining[self.rank :: self.world_size].tolist()
        return indices

    def _order(self) -> torch.Tensor:
        if not self.shuffle:
            return torch.arange(self.n)
        return torch.randperm(self.n, generator=torch.Generator().manual_seed(self.seed + self.epoch))

    def _next_pass(self) -> None:
        if self._finished():
            self.epoch, self._consumed = self.epoch + 1, 0
        self._exhausted = False

    def _finished(self) -> bool:
        """Whether the next pass is the next epoch: this one was handed out, and no full batch of it is known to be untrained."""
        untrained = self._tracked and self.n - self._consumed >= self.batch_size * self.world_size
        return self._exhausted and not untrained

    def _roll_over(self) -> None:
        """Start the next epoch if this one has no samples left."""
        least = self.world_size if self.drop_last else 1
        if self._consumed and self.n - self._consumed < least:
            self.epoch, self._consumed, self._exhausted = self.epoch + 1, 0, False


def resolve_rank(rank: int | None, world_size: int | None, group: Any) -> tuple[int, int]:
    if (rank is None) != (world_size is None):
        raise ConfigError(f"rank {rank} and world_size {world_size} are given together or not at all")
    if rank is None or world_size is None:
        initialized = dist.is_available() and dist.is_initialized()
        rank, world_size = (dist.get_rank(group), dist.get_world_size(group)) if initialized else (0, 1)
    if not 0 <= rank < world_size:
        raise ConfigError(f"rank {rank} is not one of {world_size}")
    return rank, world_size
