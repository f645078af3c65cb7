"""Scored groups on their way to a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.stores.groups import FURTHER, OF_RUNS, PROMPTS, RESPONSES, REWARDS, STREAMS


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """A tokenized group.

    Attributes:
        prompt: its token ids, up to where a model continues.
        responses: token ids of each response, which continue the prompt.
        masks: loss mask of each response, 1 where a token is trained.
        rewards: float32[G].
        source, file, row: numbers of its domain, of the file in the domain, and of the row in the file.
        logprobs: of each response, float32 per token; `None` if the source has none.
        step_ends, step_rewards: of each response, as `FURTHER` says; `None` if it is judged as a whole.
        runs: int32[G, 2], as `OF_RUNS` says; `None` if each response is a run.
        retokenized: number of sampled responses whose ids change when they are decoded and encoded again; `None` where texts were tokenized.
    """

    prompt: npt.NDArray[Any]
    responses: tuple[npt.NDArray[Any], ...]
    masks: tuple[npt.NDArray[np.uint8], ...]
    rewards: npt.NDArray[np.float32]
    source: int
    file: int
    row: int
    logprobs: tuple[npt.NDArray[np.float32], ...] | None = None
    retokenized: int | None = None
    step_ends: tuple[npt.NDArray[np.uint8], ...] | None = None
    step_rewards: tuple[npt.NDArray[np.float32], ...] | None = None
    runs: npt.NDArray[np.int32] | None = None


def group_dtypes(ids: str, further: Iterable[str] = ()) -> dict[str, str]:
    """Dtypes of the columns of groups: those that all have, and those of `FURTHER` and `OF_RUNS` that are named."""
    dtypes = {PROMPTS: ids, RESPONSES: ids, "masks": "uint8", REWARDS: "float32"}
    return {**dtypes, **{name: FURTHER.get(name, "int32") for name in further}}


def group_columns(groups: Sequence[Scored]) -> tuple[Mapping[str, Any], Mapping[str, Any], Any, Any, Any]:
    """What a writer takes of groups, at least one: columns, lengths by stream, files, rows and domains."""
    joined: dict[str, Any] = {PROMPTS: [group.prompt for group in groups], REWARDS: [group.rewards for group in groups]}
    for name in (RESPONSES, "masks", *FURTHER):
        if getattr(groups[0], name) is not None:
            joined[name] = [array for group in groups for array in getattr(group, name)]
    for at, name in enumerate(OF_RUNS):
        joined |= {name: [group.runs[:, at] for group in groups if group.runs is not None]} if groups[0].runs is not None else {}
    lengths = {name: np.array([len(array) for array in joined[name]], np.int64) for name in STREAMS}
    origins = np.array([(group.file, group.row, group.source) for group in groups], np.int64).T
    return {name: np.concatenate(arrays) for name, arrays in joined.items()}, lengths, *origins
