"""Scored groups on disk: prompts, responses, and a reward per response, as three streams (see `stores/shards.py`).

    prompts     tokens               a record per group
    responses   tokens, loss_mask    a record per response, those of a group one after another; with `FURTHER` columns, where the source has them
    rewards     rewards, float32     a record per group, of one value per response: its ends say which group a response belongs to; `OF_RUNS` columns beside it,
                                     where responses are rows of agents' runs

``prompts.index`` also holds the domain of each group: ``source.npy``, an index into ``sources.json``. `load` reads the three streams as
AstrAI's keys prompts, responses, masks and rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PROMPTS, RESPONSES, REWARDS = STREAMS = ("prompts", "responses", "rewards")
LOGPROBS, STEP_ENDS, STEP_REWARDS = "logprobs", "step_ends", "step_rewards"
FURTHER: Mapping[str, str] = {LOGPROBS: "float32", STEP_ENDS: "uint8", STEP_REWARDS: "float32"}
"""Columns that responses may have, and their dtypes: the log-probability of each token; 1 where a step ends, and its reward there, 0 elsewhere."""
OF_RUNS = RUNS, TURNS = ("runs", "turns")
"""Columns of rewards, int32: the number of a response's run in the group, and of its first call in the run."""
TEST = "test"
"""Folder of the groups that are held out."""


def holds_groups(directory: Path) -> bool:
    """Whether a folder holds groups."""
    return (directory / f"{REWARDS}.index").is_dir()


def splits(directory: Path) -> dict[str, Path]:
    """The folders of a store that hold groups: those to train on, then those held out, where any are."""
    test = directory / TEST
    return {"train": directory, **({TEST: test} if test.is_dir() else {})}
