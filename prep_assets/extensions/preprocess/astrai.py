"""AstrAI's pipeline JSON: models of both dialects, one task for either, and migration to a configuration of the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from prep_assets.config.loading import parse
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError, nearest
from prep_assets.samples import ASSISTANT, SYSTEM, TOOL, USER
from prep_assets.schemas.registry import convert_with
from prep_assets.stores.files import loads

# Both dialects of AstrAI's pipeline JSON as frozen, strict models.
#
# AstrAI had two configuration languages, and no version of it reads both:
#
#     typed      ``input.type`` is chat, instruction or text, with ``*_key`` fields; ``preprocessing.deduplicate``
#     sections   ``input.sections`` or ``input.sources``; packing, dtypes, position ids
#
# `load_pipeline` detects the dialect. AstrAI ignores unknown keys, so a file of the other dialect gives an empty output there; here unknown keys
# are errors that name the nearest key.

CHAT_ROLES = (SYSTEM, USER, ASSISTANT, TOOL)
MaskAction = Literal["train", "mask"]
SectionAction = Literal["train", "mask", "$role", "value"]
Dtype = Literal["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
PositionIds = Literal["none", "doc_reset", "continuous"]
FieldName = Annotated[str, Field(min_length=1)]
OutputKey = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
"""The name of an output, which becomes the name of a file."""


class _StrictModel(BaseModel):
    """Frozen; rejects unknown keys and values that need conversion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TypedInput(_StrictModel):
    """``input`` of the typed dialect: the kind of record and the names of its fields."""

    type: Literal["chat", "instruction", "text"] = "chat"
    messages_key: FieldName = "messages"
    prompt_key: FieldName = "prompt"
    response_key: FieldName = "response"
    text_key: FieldName = "text"

    @field_validator("type", mode="before")
    @classmethod
    def _check_type(cls, type: Any) -> Any:
        if type not in (known := ("chat", "instruction", "text")):
            own = "A builder of your own is a domain's schema in the graph: `schema: module:Class`, with `tokenized_by`"
            raise ValueError(f"none of {', '.join(known)}{nearest(str(type), known) or '.'} {own}")
        return type


class Section(_StrictModel):
    """One field of a record, and whether its tokens are trained."""

    field: FieldName
    action: SectionAction
    template: bool = False
    add_special_tokens: bool | None = None

    @model_validator(mode="after")
    def _check_role_sections(self) -> Section:
        if self.action == "$role" and not self.template:
            raise ValueError("action '$role' needs template true: only messages have roles. Use 'train' or 'mask' for a text field")
        if self.template and self.add_special_tokens:
            raise ValueError("add_special_tokens has no effect with template true: the template writes the special tokens")
        return self


# not strict, so that a JSON array validates as a tuple; its elements are strict
Sections = Annotated[tuple[Section, ...], Field(min_length=1, strict=False)]


class Source(_StrictModel):
    """One of several outputs of a record."""

    sections: Sections
    list_field: bool = False
    mask_key: OutputKey | None = None

    @property
    def is_value(self) -> bool:
        """Whether the numbers of a field are copied, not tokenized."""
        return self.sections[0].action == "value"

    @property
    def is_templated(self) -> bool:
        """Whether a section goes through the chat template."""
        return any(section.template for section in self.sections)

    @model_validator(mode="after")
    def _check_values_and_lists(self) -> Source:
        if any(section.action == "value" for section in self.sections) and (
            len(self.sections) > 1 or self.list_field or self.mask_key or self.sections[0].template
        ):
            raise ValueError("action 'value' copies numbers: one section, without template, list_field or mask_key")
        if self.list_field and len(self.sections) > 1:
            raise ValueError(f"list_field needs one section, found {len(self.sections)}: elements of two lists do not make a sequence")
        return self


class SectionsInput(_StrictModel):
    """``input`` of the sections dialect: one output, or several."""

    sections: Sections | None = None
    sources: Annotated[dict[OutputKey, Source], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check_outputs(self) -> SectionsInput:
        if (self.sections is None) == (self.sources is None):
            raise ValueError("needs either sections (one output) or sources (several)")
        if any(section.action == "value" for section in self.sections or ()):
            raise ValueError("action 'value' is for sources: it copies numbers such as rewards, which one token stream has no place for")
        if self.sources and all(source.is_value for source in self.sources.values()):
            raise ValueError("every source has action 'value': nothing is tokenized")
        return self


class _Preprocessing(_StrictModel):
    max_seq_len: int = Field(default=2048, ge=1)
    min_chars: int = Field(default=50, ge=0)
    max_chars: int = Field(default=2_000_000, ge=1)

    @model_validator(mode="after")
    def _check_length_bounds(self) -> _Preprocessing:
        if self.min_chars > self.max_chars:
            raise ValueError(f"min_chars {self.min_chars:,} is over max_chars {self.max_chars:,}: no text is kept")
        return self


class TypedPreprocessing(_Preprocessing):
    """``preprocessing`` of the typed dialect; `max_items` null or 0 means all."""

    deduplicate: bool = True
    max_items: int | None = Field(default=None, ge=0)


class SectionsPreprocessing(_Preprocessing):
    """``preprocessing`` of the sections dialect."""

    max_items: int | None = Field(default=None, ge=1)
    batch_size: int = Field(default=256, ge=1)
    packing_strategy: Literal["simple", "bfd", "bfd_split"] = "simple"
    max_packed_len: int = Field(default=8192, ge=1)
    truncation_mode: Literal["keep_start", "keep_end"] = "keep_start"


class TypedOutput(_StrictModel):
    """``output`` of the typed dialect."""

    domain_key: FieldName | None = None
    storage_format: Literal["bin", "h5"] = "bin"
    max_tokens_per_shard: int = Field(default=100_000_000, ge=1)


class SectionsOutput(TypedOutput):
    """``output`` of the sections dialect."""

    dtype: dict[str, Dtype] = {}
    position_ids_mode: PositionIds = "doc_reset"


class _Pipeline(_StrictModel):
    version: Literal[1] = 1
    mask: dict[str, MaskAction] = {}
    mask_default: MaskAction = "mask"


class TypedPipeline(_Pipeline):
    """A whole configuration of the typed dialect."""

    input: TypedInput = TypedInput()
    preprocessing: TypedPreprocessing = TypedPreprocessing()
    output: TypedOutput = TypedOutput()

    @model_validator(mode="after")
    def _check_mask_names(self) -> TypedPipeline:
        fields = ("prompt", "response") if self.input.type == "instruction" else ()
        for name in self.mask if self.input.type != "chat" else ():
            if name not in fields:
                allowed = f"the mask of an instruction names {' and '.join(fields)}" if fields else "every token of a text is trained"
                raise ValueError(f"mask.{name} has no effect: {allowed}{nearest(name, fields)}")
        for name in self.mask if self.input.type == "chat" else ():
            if name not in CHAT_ROLES and (meant := nearest(name, CHAT_ROLES)):
                raise ValueError(f"mask.{name}: no message has this role{meant}")
        return self


class SectionsPipeline(_Pipeline):
    """A whole configuration of the sections dialect."""

    input: SectionsInput
    preprocessing: SectionsPreprocessing = SectionsPreprocessing()
    output: SectionsOutput = SectionsOutput()

    @model_validator(mode="after")
    def _check_sources(self) -> SectionsPipeline:
        if self.input.sources is None:
            return self
        if self.preprocessing.packing_strategy != "simple":
            raise ValueError(f"packing_strategy {self.preprocessing.packing_strategy!r} has no effect with sources: records stay apart")
        if self.output.position_ids_mode == "continuous":  # doc_reset is the default, which AstrAI writes out
            raise ValueError("position_ids_mode continuous has no effect with sources: each record is its own sequence. Leave it out")
        return self


AnyPipeline = TypedPipeline | SectionsPipeline


_ONLY_TYPED = {"input": set(TypedInput.model_fields), "preprocessing": {"deduplicate"}}
_ONLY_SECTIONS = {
    "input": set(SectionsInput.model_fields),
    "preprocessing": set(SectionsPreprocessing.model_fields) - set(TypedPreprocessing.model_fields),
    "output": set(SectionsOutput.model_fields) - set(TypedOutput.model_fields),
}


def load_pipeline(path: Path) -> AnyPipeline:
    """Read a pipeline JSON.

    Raises:
        ConfigError: no such file, invalid JSON, or invalid values: each with its key path, the allowed values and the nearest spelling.
    """
    try:
        values = loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the pipeline configuration {path}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    return parse_pipeline(values, str(path))


def parse_pipeline(values: Any, location: str) -> AnyPipeline:
    """Validate parsed JSON; `location` names it in errors. Raises as `load_pipeline`."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{location}: a pipeline is an object with input, mask, preprocessing and output; found {type(values).__name__}")
    pipeline: AnyPipeline = parse(_dialect(values, location), values, location)
    return pipeline


def _dialect(values: Mapping[str, Any], location: str) -> type[TypedPipeline] | type[SectionsPipeline]:
    typed, sections = _dialect_keys(values, _ONLY_TYPED), _dialect_keys(values, _ONLY_SECTIONS)
    if typed and sections:
        raise ConfigError(
            f"{location} mixes AstrAI's two dialects: {', '.join(typed)} with {', '.join(sections)}. Write the input as sections "
            "(a chat is [{'field': 'messages', 'action': '$role', 'template': true}]) and ask for deduplication with --dedup exact; "
            "or keep input.type and leave the others out"
        )
    return SectionsPipeline if sections else TypedPipeline


def _dialect_keys(values: Mapping[str, Any], only: Mapping[str, set[str]]) -> list[str]:
    return [f"{part}.{key}" for part, keys in only.items() if isinstance(values.get(part), Mapping) for key in values[part] if key in keys]


# The task of a pipeline, independent of its dialect.

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
    """One key of the output: the kind of its values and the NumPy name of its dtype."""

    kind: Kind
    dtype: str


@dataclass(frozen=True, slots=True)
class Task:
    """A pipeline of either dialect.

    Attributes:
        pipeline: in the sections dialect.
        typed: whether it was written in the typed dialect, where blank fields are encoded too and texts must be strings.
        is_text: pretraining: no loss mask and no chat template.
        deduplicate: whether the configuration asks for it.
        sources: output key → its source; only ``sequence`` for a single token stream.
        columns: output key → column, in the order of ``meta.json``.
    """

    pipeline: SectionsPipeline
    typed: bool
    is_text: bool
    deduplicate: bool
    sources: Mapping[str, Source]
    columns: Mapping[str, Column]

    @property
    def single(self) -> bool:
        """Whether there is one token stream; otherwise records have several outputs, with offsets."""
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
        """The output whose tokens count towards the shard size: the first flat sequence, else the first tokenized output."""
        tokenized = [key for key, source in self.sources.items() if not source.is_value]
        return next((key for key in tokenized if not self.sources[key].list_field), tokenized[0])

    def mask_key(self, key: str) -> str:
        """The key of an output's loss mask."""
        return LOSS_MASK if self.single else self.sources[key].mask_key or f"{key}_mask"

    def trains(self, action: str, role: str) -> bool:
        """Whether a section's action trains a message of this role."""
        return (self.pipeline.mask.get(role, self.pipeline.mask_default) if action == "$role" else action) == "train"


def task_of(pipeline: AnyPipeline, *, position_ids: PositionIds | None = None) -> Task:
    """Return the task of a pipeline; `position_ids` overrides its ``position_ids_mode``.

    Raises:
        ConfigError: two outputs with one name, position ids for separate records, or a dtype that does not fit its key.
    """
    if isinstance(pipeline, TypedPipeline):
        converted, is_text, deduplicate = to_sections_dialect(pipeline), pipeline.input.type == "text", pipeline.preprocessing.deduplicate
    else:
        converted, sections, deduplicate = pipeline, pipeline.input.sections, False
        is_text = sections is not None and all(section.action == "train" and not section.template for section in sections)
    if position_ids is not None:
        converted = converted.model_copy(update={"output": converted.output.model_copy(update={"position_ids_mode": position_ids})})
    sources = converted.input.sources or {SEQUENCE: Source(sections=converted.input.sections or ())}
    task = Task(converted, isinstance(pipeline, TypedPipeline), is_text, deduplicate, sources, {})
    return replace(task, columns=_columns(task, position_ids))


def to_sections_dialect(pipeline: TypedPipeline) -> SectionsPipeline:
    """Convert to the sections dialect, without deduplication, which that dialect lacks."""
    steps = pipeline.preprocessing
    shared = steps.model_dump(exclude={"deduplicate", "max_items"})
    return SectionsPipeline(
        mask=pipeline.mask,
        mask_default=pipeline.mask_default,
        input=SectionsInput(sections=_typed_sections(pipeline)),
        preprocessing=SectionsPreprocessing(**shared, max_items=steps.max_items or None, max_packed_len=steps.max_seq_len),
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
    """Columns in AstrAI's latest order: each output, then its mask; position ids last."""
    dtype = "int64" if task.typed else "int32"
    entries: list[tuple[str, Column]] = []
    for key, source in task.sources.items():
        entries.append((key, Column("values", "float32") if source.is_value else Column("ids", dtype)))
        # padding of bins must never be trained, so packed text has a mask too
        if not source.is_value and (not task.is_text or task.is_binned):
            entries.append((task.mask_key(key), Column("mask", dtype)))
    if task.single and task.pipeline.output.position_ids_mode != "none":
        entries.append((POSITION_IDS, Column("positions", dtype)))
    elif position_ids not in (None, "none"):
        raise ConfigError(f"position ids {position_ids!r} have no effect with sources: each record is its own sequence")
    names = [key for key, _ in entries]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two outputs are called {name!r}: give one of them another key or mask_key. Outputs: {', '.join(names)}")
    columns = dict(entries)
    for key, dtype in task.pipeline.output.dtype.items():
        if key not in columns:
            suggestion = nearest(key, columns) or "."
            raise ConfigError(f"output.dtype names {key!r}, which is not an output{suggestion} Outputs: {', '.join(columns)}")
        allowed = _DTYPES_OF[columns[key].kind]
        if dtype not in allowed:
            raise ConfigError(f"output.dtype.{key} cannot be {dtype}: it would not hold the values. Possible: {', '.join(allowed)}")
        columns[key] = replace(columns[key], dtype=dtype)
    return columns


# Migration of a pipeline to a configuration of the asset graph: YAML, with comments on the differences.

_GROUP = ["prompts", "responses", "rewards"]
_PACKED = {"simple": "concat", "bfd": "bfd", "bfd_split": "bfd_split"}


def migrate_pipeline(pipeline: AnyPipeline, name: str, *, files: Sequence[str], tokenizer: str, domain: str) -> str:
    """Return the text of a valid ``pretrain.yaml``, ``sft.yaml``, ``preference.yaml`` or ``rl.yaml``.

    Args:
        name: of the pipeline file, for the first comment.
        files, tokenizer, domain: values that a pipeline JSON lacks; see `Domain.files` and `Family.tokenizer`.

    Raises:
        ConfigError: no family fits, or the sections are no valid examples.
    """
    task = task_of(pipeline)
    family = _family(task)
    schema, options = _schema(task, family)
    convert_with(schema, options)
    source: dict[str, Any] = {"files": list(files), "schema": schema, **({"options": options} if options else {})}
    output: dict[str, Any] = {}
    values: dict[str, Any] = {"tokenizer": tokenizer, "domains": {domain: source}, "output": output}
    fill = {"pretrain": _pretrain, "sft": _sft, "preference": _preference, "rl": _rl}[family]
    notes = [*_domain(task, source), *_output(task, family, output), *fill(task, values)]
    parse(FAMILIES[family], values, f"the configuration migrated from {name}")
    body = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)
    diffs = [f"# - {note}" for note in notes]
    return "\n".join([f"# configs/{family}.yaml, from {name} by prep-assets migrate.", body + "# Not the same as in AstrAI:", *diffs, ""])


def _family(task: Task) -> str:
    if task.single:
        return "pretrain" if task.is_text else "sft"
    if sorted(task.sources) == ["chosen", "rejected"]:
        return "preference"
    if sorted(task.sources) == _GROUP:
        return "rl"
    raise ConfigError(
        f"sources {', '.join(task.sources)} cannot be migrated: the graph's families hold documents, chats, pairs (chosen, rejected) and "
        "groups (prompts, responses, rewards). prep-assets preprocess runs this pipeline as it is"
    )


def _schema(task: Task, family: str) -> tuple[str, dict[str, Any]]:
    """The schema that reads the same records, with its options."""
    sections = task.pipeline.input.sections or ()
    if task.single and len(sections) == 1 and sections[0].template and sections[0].action == "$role":
        return "messages", {"messages_key": sections[0].field}
    bounds = task.pipeline.preprocessing.model_dump(include={"min_chars", "max_chars"})
    if task.is_text and len(sections) == 1:
        return "text", {"text_key": sections[0].field, **bounds}
    if task.single and [(section.action, section.template) for section in sections] == [("mask", False), ("train", False)]:
        return "instruction", {"prompt_key": sections[0].field, "response_key": sections[1].field}
    keep = {"field", "action", "template"}
    if task.single:
        section_fields = [section.model_dump(include=keep) for section in sections]
        return "sections", {"sections": section_fields, **(bounds if task.is_text else {})}
    if family == "rl" and task.sources["prompts"].is_templated:
        return "group", _group_fields(task)
    outputs: dict[str, dict[str, Any]] = {
        key: {"sections": [section.model_dump(include=keep) for section in source.sections]} for key, source in task.sources.items()
    }
    if family == "rl":
        if any(source.is_templated for source in task.sources.values()):
            raise ConfigError(
                "responses with a template after prompts without one cannot be migrated: a conversation is rendered, or it is not"
            )
        outputs["responses"]["list_field"] = True
    return "sections", {"sources": outputs}


def _group_fields(task: Task) -> dict[str, Any]:
    options = {}
    for key, option in zip(_GROUP, ("prompt_key", "responses_key", "rewards_key"), strict=True):
        sections = task.sources[key].sections
        if len(sections) != 1:
            raise ConfigError(f"{key} of {len(sections)} sections cannot be migrated where prompts have a template: a prompt is one field")
        options[option] = sections[0].field
    return options


def _domain(task: Task, source: dict[str, Any]) -> Iterator[str]:
    """Fill in the domain and yield the differences from AstrAI."""
    if any(section.add_special_tokens is not None for section in task.pipeline.input.sections or ()):
        yield "add_special_tokens: the template, or the end-of-text token after a completion, decides about special tokens"
    key, limit = task.pipeline.output.domain_key, task.pipeline.preprocessing.max_items
    if key is not None:
        source.update(domains="auto", domain_key=key)
        yield "domain_key: AstrAI puts values other than text into __default__; here a number is the domain of its text, and a list stops the build"
    if limit is not None:
        source["max_items"] = limit
        scope = " of each domain" if key is not None else ""
        yield f"max_items counts the records{scope} that are read; AstrAI counts those that are kept"
    if task.deduplicate:
        yield "deduplicate compares whole records of one domain; AstrAI their first 200 characters, over all domains"


def _output(task: Task, family: str, values: dict[str, Any]) -> Iterator[str]:
    output = task.pipeline.output
    dtype = task.columns[task.primary].dtype
    if dtype not in ("int32", "int64"):
        yield f"output.dtype: ids are int32, not {dtype}"
        dtype = "int32"
    for key in output.dtype:
        if key != task.primary:
            yield f"output.dtype.{key}: masks and position ids have fixed types"
    # an h5 store is one file, except the tokens of SFT, which are always `bin`
    shards = {"max_tokens_per_shard": output.max_tokens_per_shard} if output.storage_format == "bin" or family == "sft" else {}
    values.update(storage_format=output.storage_format, dtype=dtype, **shards)


def _pretrain(task: Task, values: dict[str, Any]) -> Iterator[str]:
    steps = task.pipeline.preprocessing
    values["preprocessing"] = {"max_seq_len": None, "deduplicate": task.deduplicate}
    yield f"max_seq_len {steps.max_seq_len}: documents stay whole in the token stream; AstrAI cuts them off there"
    yield "each document ends with the end-of-text token; AstrAI adds what the tokenizer's post-processor adds"
    if task.is_binned:
        yield f"packing_strategy {steps.packing_strategy}: the stream is not packed; its trainer reads windows of it"
    if task.pipeline.output.position_ids_mode != "none":
        yield "position_ids: not stored with a stream of documents"


def _sft(task: Task, values: dict[str, Any]) -> Iterator[str]:
    steps = task.pipeline.preprocessing
    templated = task.sources[task.primary].is_templated
    if templated:
        values.update(template="tokenizer", mask=dict(task.pipeline.mask), mask_default=task.pipeline.mask_default, train_headers=True)
        yield "the conversation is rendered once, as transformers does, so there is no beginning-of-text token but the template's own"
        yield "train_headers trains the role headers as AstrAI does, with white space before them, not behind the stop. Leave it out to train answers only"
    else:
        # the turns of the schema: a prompt, and a completion that ends with the end-of-text token
        values.update(mask={"prompt": "mask", "completion": "train"}, mask_default="mask")
    values["preprocessing"] = {"max_seq_len": steps.max_seq_len, "deduplicate": task.deduplicate}
    values["truncation"] = "end"
    packing: dict[str, Any] = {"strategy": _PACKED[steps.packing_strategy], "row_len": max(2, steps.max_packed_len), "shuffle": False}
    if steps.packing_strategy == "bfd":
        packing["overlong"] = "truncate"
    values["packing"] = packing
    yield "records without a trained token are refused; AstrAI keeps them"
    yield "sft_packed holds rows of packing.row_len tokens: set it to the trainer's window. AstrAI writes one flat stream"
    if steps.truncation_mode == "keep_end":
        yield "truncation_mode keep_end: a document longer than a row keeps its start"
    if task.pipeline.output.position_ids_mode == "continuous":
        yield "position_ids_mode continuous: position ids begin at 0 in each document"


def _preference(task: Task, values: dict[str, Any]) -> Iterator[str]:
    steps = task.pipeline.preprocessing
    values["preprocessing"] = {"max_seq_len": steps.max_seq_len, "deduplicate": task.deduplicate}
    values.update(template="tokenizer", form="messages", shuffle=False, test_fraction=0.0)
    yield "the prompt that both sides share is stored once; only the answers are trained, whatever mask says of other roles"
    yield "a pair that is longer than max_seq_len is refused; AstrAI cuts it off there"


def _rl(task: Task, values: dict[str, Any]) -> Iterator[str]:
    steps = task.pipeline.preprocessing
    values["preprocessing"] = {"max_seq_len": steps.max_seq_len, "deduplicate": task.deduplicate}
    values.update(template="tokenizer", test_fraction=0.0)
    yield "a response ends with the token that ends a turn, or the text, and that token is trained; AstrAI writes the text alone"
    if task.sources["prompts"].is_templated:
        yield "a prompt ends with the generation prompt, and a response is rendered after it as the assistant's turn"
    yield "a group of which one response does not fit in max_seq_len, with its prompt, is refused; AstrAI cuts responses off there"
    yield "responses are trained, whatever mask says; rewards are float32"
