"""Scored groups on disk: prompts, responses, and a reward per response, as three streams (see `stores/tokens.py`).

    prompts     tokens               a record per group
    responses   tokens, loss_mask    a record per response, those of a group one after another; with `FURTHER` columns, where the source has them
    rewards     rewards, float32     a record per group, of one value per response: its ends say which group a response belongs to; `OF_RUNS` columns beside it,
                                     where responses are rows of agents' runs

``prompts.index`` also holds the domain of each group: ``source.npy``, an index into ``sources.json``. `open_store` reads the three streams as
AstrAI's keys prompts, responses, masks and rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.stores.arrays import Columns, batches
from prep_assets.stores.guards import Guards, load_array, load_json
from prep_assets.stores.tokens import StorageFormat, TokenStore, append_store, open_tokens, record_writer
from prep_assets.stores.verification import write_json

PROMPTS, RESPONSES, REWARDS = STREAMS = ("prompts", "responses", "rewards")
LOGPROBS, STEP_ENDS, STEP_REWARDS = "logprobs", "step_ends", "step_rewards"
FURTHER: Mapping[str, str] = {LOGPROBS: "float32", STEP_ENDS: "uint8", STEP_REWARDS: "float32"}
"""Columns that responses may have, and their dtypes: the log-probability of each token; 1 where a step ends, and its reward there, 0 elsewhere."""
OF_RUNS = RUNS, TURNS = ("runs", "turns")
"""Columns of rewards, int32: the number of a response's run in the group, and of its first call in the run."""
AT_ONCE = 1 << 20
"""Elements concatenated per write. A longer record is written alone, without a copy."""


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


class GroupWriter(AbstractContextManager["GroupWriter"]):
    """Writes groups. A context manager: after an exception the store has no index and cannot be opened."""

    def __init__(
        self,
        storage: StorageFormat,
        directory: Path,
        dtype: str,
        sources: Sequence[str],
        *,
        max_tokens_per_shard: int = 100_000_000,
        further: Sequence[str] = (),
    ) -> None:
        response_dtypes = {"tokens": dtype, "loss_mask": "uint8", **{name: FURTHER[name] for name in further if name in FURTHER}}
        self._of_runs = [name for name in OF_RUNS if name in further]
        reward_dtypes = {REWARDS: "float32", **dict.fromkeys(self._of_runs, "int32")}
        dtypes = {PROMPTS: {"tokens": dtype}, RESPONSES: response_dtypes, REWARDS: reward_dtypes}
        self._response_fields = {"tokens": "responses", "loss_mask": "masks", **{name: name for name in further if name in FURTHER}}
        directory.mkdir(parents=True, exist_ok=True)
        self._writers = {
            name: record_writer(storage, directory, name, stream_dtypes, max_tokens_per_shard=max_tokens_per_shard)
            for name, stream_dtypes in dtypes.items()
        }
        self._index, self._sources = directory / f"{PROMPTS}.index", list(sources)
        self._source = Columns(self._index, {"source": np.int32})
        self._stack = ExitStack()

    def __enter__(self) -> GroupWriter:
        for writer in self._writers.values():
            self._stack.enter_context(writer)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None:
            self._source.close()
        else:
            self._source.discard()
        self._stack.__exit__(kind, error, trace)
        if kind is None:
            write_json(self._index / "sources.json", self._sources)

    def append(self, groups: Sequence[Scored]) -> None:
        """Append groups."""
        if not groups:
            return
        sizes = np.array([len(group.responses) for group in groups], np.int64)
        files, rows = np.array([(group.file, group.row) for group in groups], np.int64).T
        responses = {key: [array for group in groups for array in getattr(group, name)] for key, name in self._response_fields.items()}
        prompts = [group.prompt for group in groups]
        self._write_stream(PROMPTS, {"tokens": prompts}, files, rows)
        self._write_stream(RESPONSES, responses, np.repeat(files, sizes), np.repeat(rows, sizes))
        of_runs = {name: [group.runs[:, at] for group in groups if group.runs is not None] for at, name in enumerate(self._of_runs)}
        self._write_stream(REWARDS, {REWARDS: [group.rewards for group in groups], **of_runs}, files, rows)
        self._source.append({"source": [group.source for group in groups]})

    def append_store(self, groups: GroupStore, source: int) -> None:
        """Append all groups of a store, as groups of domain number `source`."""
        for name, stream in ((PROMPTS, groups.prompts), (RESPONSES, groups.responses), (REWARDS, groups.rewards)):
            append_store(self._writers[name], stream)
        self._source.append({"source": np.full(len(groups), source)})

    def _write_stream(self, name: str, columns: dict[str, list[npt.NDArray[Any]]], files: Any, rows: Any) -> None:
        lengths = np.array([len(array) for array in next(iter(columns.values()))], np.int64)
        for records in batches(np.cumsum(lengths), AT_ONCE):
            single = records.stop == records.start + 1
            block = {key: arrays[records.start] if single else np.concatenate(arrays[records]) for key, arrays in columns.items()}
            self._writers[name].append(block, lengths[records], files[records], rows[records])


@dataclass(frozen=True)
class GroupStore:
    """Groups, opened for reading.

    Attributes:
        prompts, rewards: a record per group; a record of `rewards` has one value per response.
        responses: a record per response.
        source: int32[n], the domain of each group, an index into `sources`.
        sources: names of domains.
    """

    prompts: TokenStore
    responses: TokenStore
    rewards: TokenStore
    source: npt.NDArray[np.int32]
    sources: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.prompts)

    def responses_of(self, group: int) -> range:
        """Return the record numbers in `responses` of a group."""
        return range(int(self.rewards.ends[group - 1]) if group else 0, int(self.rewards.ends[group]))

    def conversation(self, group: int, response: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return token ids and loss mask of a prompt followed by one record of `responses`: two arrays of P + R; the prompt is masked."""
        prompt = self.prompts.record(group, "tokens")
        mask = self.responses.record(response, "loss_mask")
        ids = np.concatenate([prompt, self.responses.record(response, "tokens")])
        return ids, np.concatenate([np.zeros(len(prompt), mask.dtype), mask])


def holds_groups(directory: Path) -> bool:
    """Whether a folder holds groups."""
    return (directory / f"{REWARDS}.index").is_dir()


def open_groups(directory: Path, guards: Guards | None = None) -> GroupStore:
    """Open the groups in a folder.

    Raises:
        StoreError: there are none, or the three streams are inconsistent.
    """
    guards = guards or Guards()
    prompts, responses, rewards = (open_tokens(directory, name, guards) for name in STREAMS)
    if len(prompts) != len(rewards) or len(responses) != rewards.tokens:
        raise StoreError(
            f"{directory}: {len(prompts):,} prompts and {len(responses):,} responses, but {len(rewards):,} groups of {rewards.tokens:,} rewards"
        )
    ends = rewards.ends
    if (before := np.flatnonzero(np.diff(ends, prepend=0) < 0)).size:
        raise StoreError(f"{directory}: the responses of group {before[0]:,} end at {int(ends[before[0]]):,}, before they begin")
    index = directory / f"{PROMPTS}.index"
    source = np.asarray(load_array(index / "source.npy", guards))
    sources = tuple(load_json(index / "sources.json", guards))
    if len(source) != len(prompts) or (len(source) and not 0 <= int(source.min()) <= int(source.max()) < len(sources)):
        raise StoreError(f"{index}: {len(source):,} domain numbers of {len(prompts):,} groups, which must be below {len(sources)}")
    return GroupStore(prompts, responses, rewards, source, sources)
