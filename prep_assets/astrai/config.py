"""AstrAI's pipeline JSON, both dialects, as frozen models that refuse what means nothing.

AstrAI had two configuration languages, and no version of it reads both:

    typed      ``input.type`` is chat, instruction or text, with ``*_key`` fields; ``preprocessing.deduplicate``
    sections   ``input.sections`` or ``input.sources``; packing, dtypes, position ids

`load_pipeline` tells which one a file is in. AstrAI itself ignores keys that it does not know, so that a file of the other dialect gives an empty
output there; here it is an error that names the nearest key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from prep_assets.config.loading import parse
from prep_assets.disk.strict_json import loads
from prep_assets.errors import ConfigError, nearest

MaskAction = Literal["train", "mask"]
SectionAction = Literal["train", "mask", "$role", "value"]
Dtype = Literal["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
PositionIds = Literal["none", "doc_reset", "continuous"]
FieldName = Annotated[str, Field(min_length=1)]
OutputKey = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
"""Names of outputs become names of files."""


class _Part(BaseModel):
    """Frozen; no unknown key, and no value of another type that would have to be converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TypedInput(_Part):
    """``input`` of the typed dialect: what kind of record, and where its fields are."""

    type: Literal["chat", "instruction", "text"] = "chat"
    messages_key: FieldName = "messages"
    prompt_key: FieldName = "prompt"
    response_key: FieldName = "response"
    text_key: FieldName = "text"


class Section(_Part):
    """One field of a record, and whether its tokens are trained."""

    field: FieldName
    action: SectionAction
    template: bool = False
    add_special_tokens: bool | None = None

    @model_validator(mode="after")
    def _roles_need_messages(self) -> Section:
        if self.action == "$role" and not self.template:
            raise ValueError("action '$role' needs template true: only messages have roles. Use 'train' or 'mask' for a text field")
        if self.template and self.add_special_tokens:
            raise ValueError("add_special_tokens means nothing with template true: the template writes the special tokens")
        return self


# not strict, so that an array is taken for a tuple; its elements are strict again
Sections = Annotated[tuple[Section, ...], Field(min_length=1, strict=False)]


class Source(_Part):
    """One output of a record with several."""

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
    def _values_and_lists_stand_alone(self) -> Source:
        if any(section.action == "value" for section in self.sections) and (
            len(self.sections) > 1 or self.list_field or self.mask_key or self.sections[0].template
        ):
            raise ValueError("action 'value' copies numbers: one section, without template, list_field or mask_key")
        if self.list_field and len(self.sections) > 1:
            raise ValueError(f"list_field needs one section, found {len(self.sections)}: elements of two lists do not make a sequence")
        return self


class SectionsInput(_Part):
    """``input`` of the sections dialect: one output, or several."""

    sections: Sections | None = None
    sources: Annotated[dict[OutputKey, Source], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_or_several(self) -> SectionsInput:
        if (self.sections is None) == (self.sources is None):
            raise ValueError("needs either sections (one output) or sources (several)")
        if any(section.action == "value" for section in self.sections or ()):
            raise ValueError("action 'value' is for sources: it copies numbers such as rewards, which one token stream has no place for")
        if self.sources and all(source.is_value for source in self.sources.values()):
            raise ValueError("every source has action 'value': nothing is tokenized")
        return self


class _Preprocessing(_Part):
    max_seq_len: int = Field(default=2048, ge=1)
    min_chars: int = Field(default=50, ge=0)
    max_chars: int = Field(default=2_000_000, ge=1)

    @model_validator(mode="after")
    def _some_length_is_kept(self) -> _Preprocessing:
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


class TypedOutput(_Part):
    """``output`` of the typed dialect."""

    domain_key: FieldName | None = None
    storage_format: Literal["bin", "h5"] = "bin"
    max_tokens_per_shard: int = Field(default=100_000_000, ge=1)


class SectionsOutput(TypedOutput):
    """``output`` of the sections dialect."""

    dtype: dict[str, Dtype] = {}
    position_ids_mode: PositionIds = "doc_reset"


class _Pipeline(_Part):
    version: Literal[1] = 1
    mask: dict[str, MaskAction] = {}
    mask_default: MaskAction = "mask"


class TypedPipeline(_Pipeline):
    """A whole configuration of the typed dialect."""

    input: TypedInput = TypedInput()
    preprocessing: TypedPreprocessing = TypedPreprocessing()
    output: TypedOutput = TypedOutput()

    @model_validator(mode="after")
    def _mask_names_what_there_is(self) -> TypedPipeline:
        fields = ("prompt", "response") if self.input.type == "instruction" else ()
        for name in self.mask if self.input.type != "chat" else ():
            if name not in fields:
                allowed = f"the mask of an instruction names {' and '.join(fields)}" if fields else "every token of a text is trained"
                raise ValueError(f"mask.{name} means nothing: {allowed}{nearest(name, fields)}")
        return self


class SectionsPipeline(_Pipeline):
    """A whole configuration of the sections dialect."""

    input: SectionsInput
    preprocessing: SectionsPreprocessing = SectionsPreprocessing()
    output: SectionsOutput = SectionsOutput()

    @model_validator(mode="after")
    def _sources_are_records(self) -> SectionsPipeline:
        if self.input.sources is None:
            return self
        if self.preprocessing.packing_strategy != "simple":
            raise ValueError(f"packing_strategy {self.preprocessing.packing_strategy!r} means nothing with sources: records stay apart")
        if self.output.position_ids_mode == "continuous":  # doc_reset is the default, which AstrAI writes out
            raise ValueError("position_ids_mode continuous means nothing with sources: each record is a sequence of its own. Leave it out")
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
        ConfigError: no such file, no JSON, or every fault of it with its key path, what is allowed there and the nearest spelling.
    """
    try:
        values = loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the pipeline configuration {path}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    return parse_pipeline(values, str(path))


def parse_pipeline(values: Any, where: str) -> AnyPipeline:
    """Validate parsed JSON; `where` names it in errors. Raises as `load_pipeline`."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: a pipeline is an object with input, mask, preprocessing and output; found {type(values).__name__}")
    found: AnyPipeline = parse(_dialect(values, where), values, where)
    return found


def _dialect(values: Mapping[str, Any], where: str) -> type[TypedPipeline] | type[SectionsPipeline]:
    typed, sections = _found(values, _ONLY_TYPED), _found(values, _ONLY_SECTIONS)
    if typed and sections:
        raise ConfigError(
            f"{where} mixes AstrAI's two dialects: {', '.join(typed)} with {', '.join(sections)}. Write the input as sections "
            "(a chat is [{'field': 'messages', 'action': '$role', 'template': true}]) and ask for deduplication with --dedup exact; "
            "or keep input.type and leave the others out"
        )
    return SectionsPipeline if sections else TypedPipeline


def _found(values: Mapping[str, Any], only: Mapping[str, set[str]]) -> list[str]:
    return [f"{part}.{key}" for part, keys in only.items() if isinstance(values.get(part), Mapping) for key in values[part] if key in keys]
