"""What a pipeline configuration of either dialect asks for, in one form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from prep_assets.astrai.config import (
    AnyPipeline,
    PositionIds,
    Section,
    SectionsInput,
    SectionsOutput,
    SectionsPipeline,
    SectionsPreprocessing,
    Source,
    TypedPipeline,
)
from prep_assets.errors import ConfigError, nearest

SEQUENCE, LOSS_MASK, POSITION_IDS = "sequence", "loss_mask", "position_ids"
Kind = Literal["ids", "mask", "values", "positions"]
_DTYPES_OF: Mapping[Kind, tuple[str, ...]] = {
    "ids": ("int8", "uint8", "int16", "int32", "int64"),
    "mask": ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"),
    "values": ("float16", "float32", "float64"),
    "positions": ("int8", "uint8", "int16", "int32", "int64"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One key of the output: what it holds, and the numpy name of its type."""

    kind: Kind
    dtype: str


@dataclass(frozen=True, slots=True)
class Task:
    """A pipeline, whichever dialect it was written in.

    Attributes:
        pipeline: it in the sections dialect.
        typed: it was written in the typed one, where a blank field is encoded all the same and a text has to be a string.
        is_text: pretraining: nothing is masked and nothing is templated.
        deduplicate: whether the configuration asks for it.
        sources: what makes each output, by its key; ``sequence`` alone where there is one token stream.
        columns: the keys of the store in the order of its ``meta.json``.
    """

    pipeline: SectionsPipeline
    typed: bool
    is_text: bool
    deduplicate: bool
    sources: Mapping[str, Source]
    columns: Mapping[str, Column]

    @property
    def single(self) -> bool:
        """One token stream; else several outputs a record, kept apart by offsets."""
        return self.pipeline.input.sources is None

    @property
    def has_mask(self) -> bool:
        """Whether any output has a loss mask."""
        return any(column.kind == "mask" for column in self.columns.values())

    @property
    def is_binned(self) -> bool:
        """Whether records are packed into bins of `max_packed_len`."""
        return self.pipeline.preprocessing.packing_strategy != "simple"

    @property
    def primary(self) -> str:
        """The output whose tokens count towards a shard: the first one that is a flat sequence, else the first that is tokenized."""
        tokenized = [key for key, source in self.sources.items() if not source.is_value]
        return next((key for key in tokenized if not self.sources[key].list_field), tokenized[0])

    def mask_key(self, key: str) -> str:
        """Where the loss mask of an output goes."""
        return LOSS_MASK if self.single else self.sources[key].mask_key or f"{key}_mask"

    def trains(self, action: str, role: str) -> bool:
        """Whether a section's action trains a message of this role."""
        return (self.pipeline.mask.get(role, self.pipeline.mask_default) if action == "$role" else action) == "train"


def task_of(pipeline: AnyPipeline, *, position_ids: PositionIds | None = None) -> Task:
    """The task that a pipeline describes; `position_ids` replaces its ``position_ids_mode``.

    Raises:
        ConfigError: two outputs of one name, position ids for separate records, or a dtype that its key cannot have.
    """
    if isinstance(pipeline, TypedPipeline):
        form, is_text, deduplicate = in_sections(pipeline), pipeline.input.type == "text", pipeline.preprocessing.deduplicate
    else:
        form, sections, deduplicate = pipeline, pipeline.input.sections, False
        is_text = sections is not None and all(section.action == "train" and not section.template for section in sections)
    if position_ids is not None:
        form = form.model_copy(update={"output": form.output.model_copy(update={"position_ids_mode": position_ids})})
    sources = form.input.sources or {SEQUENCE: Source(sections=form.input.sections or ())}
    task = Task(form, isinstance(pipeline, TypedPipeline), is_text, deduplicate, sources, {})
    return replace(task, columns=_columns(task, position_ids))


def in_sections(pipeline: TypedPipeline) -> SectionsPipeline:
    """The same pipeline in the sections dialect; deduplication, which that one lacks, is left out."""
    steps = pipeline.preprocessing
    same = steps.model_dump(exclude={"deduplicate", "max_items"})
    return SectionsPipeline(
        mask=pipeline.mask,
        mask_default=pipeline.mask_default,
        input=SectionsInput(sections=_typed_sections(pipeline)),
        preprocessing=SectionsPreprocessing(**same, max_items=steps.max_items or None, max_packed_len=steps.max_seq_len),
        output=SectionsOutput(**pipeline.output.model_dump(), position_ids_mode="none"),
    )


def _typed_sections(pipeline: TypedPipeline) -> tuple[Section, ...]:
    fields = pipeline.input
    if fields.type == "chat":
        return (Section(field=fields.messages_key, action="$role", template=True),)
    if fields.type == "text":
        return (Section(field=fields.text_key, action="train"),)
    parts = (("prompt", fields.prompt_key), ("response", fields.response_key))
    return tuple(
        Section(field=field, action=pipeline.mask.get(part, pipeline.mask_default), add_special_tokens=part == "prompt")
        for part, field in parts
    )


def _columns(task: Task, position_ids: PositionIds | None) -> dict[str, Column]:
    """Keys in AstrAI's newest order: each output, then its mask; position ids last."""
    dtype = "int64" if task.typed else "int32"
    listed: list[tuple[str, Column]] = []
    for key, source in task.sources.items():
        listed.append((key, Column("values", "float32") if source.is_value else Column("ids", dtype)))
        # padding of bins must never be trained, so that packed text has a mask as well
        if not source.is_value and (not task.is_text or task.is_binned):
            listed.append((task.mask_key(key), Column("mask", dtype)))
    if task.single and task.pipeline.output.position_ids_mode != "none":
        listed.append((POSITION_IDS, Column("positions", dtype)))
    elif position_ids not in (None, "none"):
        raise ConfigError(f"position ids {position_ids!r} mean nothing with sources: each record is a sequence of its own")
    names = [key for key, _ in listed]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two outputs are called {name!r}: give one of them another key or mask_key. Outputs: {', '.join(names)}")
    columns = dict(listed)
    for key, dtype in task.pipeline.output.dtype.items():
        if key not in columns:
            said = nearest(key, columns) or "."
            raise ConfigError(f"output.dtype names {key!r}, which is not an output{said} Outputs: {', '.join(columns)}")
        allowed = _DTYPES_OF[columns[key].kind]
        if dtype not in allowed:
            raise ConfigError(f"output.dtype.{key} cannot be {dtype}: it would not hold the values. Possible: {', '.join(allowed)}")
        columns[key] = replace(columns[key], dtype=dtype)
    return columns
