"""The columns of AstrAI's stores: tokens and loss masks of records, built in this process or by workers."""

from __future__ import annotations

import pickle
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.config.family import Domain
from prep_assets.config.mask import MaskPolicy
from prep_assets.data import tables
from prep_assets.data.addresses import is_remote
from prep_assets.data.blocks import Unreadable
from prep_assets.data.files import SourceFile
from prep_assets.data.tables import Cut, line_cuts, table_cuts
from prep_assets.errors import ConfigError, Refused, TemplateError
from prep_assets.extensions.preprocess.astrai import Section, Source, Task
from prep_assets.extensions.preprocess.sections import chat_turns, plain_text, plain_turn
from prep_assets.pipeline.examples import Reading, Stretch, converter, shards_of
from prep_assets.pipeline.source_files import Progress
from prep_assets.pipeline.sources import Pinned, Router
from prep_assets.samples import Record, Sample, Turn
from prep_assets.schemas.fields import as_list, as_mapping, as_number, as_text, needed, peek, unread, value_at, whole, wrong_type
from prep_assets.schemas.reader import Account
from prep_assets.text.encode import Encoder
from prep_assets.text.engines import choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.render import render
from prep_assets.text.spans import Rendered
from prep_assets.text.template import ChatTemplate, bind
from prep_assets.text.vocabulary import Vocabulary
from prep_assets.workers.pool import Pool
from prep_assets.workers.shards import Counts, Plan

# Tokens and masks, by AstrAI's algorithm (``--masking astrai``) or by the spans of this package (``--masking spans``).
#
# AstrAI: a chat is one beginning-of-text token, never trained, then each message **rendered and encoded separately**; the whole rendered message,
# with its header, has the mask of its role. An instruction is two separately encoded fields, a text is one:
#
#     chat          <bos> [system span] [user span] [assistant span] …       mask 0 | by role
#     instruction   encode(prompt, with special tokens) encode(response)     mask of prompt | mask of response
#     text          encode(text, with special tokens)                        no mask
#
# Source of the algorithm: AstrAI's preprocessing documentation, "Mask Algorithm".
#
# Spans: one render of the whole conversation, one tokenization. Templates see the whole conversation and the texts of the special tokens; only contents
# and the stop token of a trained turn are trained, never a header; a control token typed into the content is plain text; records without a trained
# token are rejected.

# Records to arrays by key. Builders differ in how texts become tokens and masks.

Text = TypeVar("Text")
"""A builder's representation of a sequence before tokenization."""


Tokens = tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]
"""Token ids and loss mask of a sequence: integers[n] and uint8[n]."""


@dataclass(frozen=True, slots=True)
class Row:
    """The arrays of a valid record.

    Attributes:
        cells: key → arrays: one for each element of a list (the responses of a group), otherwise a single one.
        cut: tokens that ``max_seq_len`` cut off at the end.
        dropped: fields that were ignored, see `Account.note`.
        unread: non-empty fields that no section and no template read, with their values.
    """

    cells: Mapping[str, list[npt.NDArray[Any]]]
    cut: int
    dropped: tuple[str, ...] = ()
    unread: tuple[tuple[str, Any], ...] = ()


class Builder(ABC, Generic[Text]):
    """Tokenizes and masks records.

    Attributes:
        ignore: fields that are removed before a record is read.
    """

    def __init__(self, task: Task, ignore: Sequence[str] = ()) -> None:
        self.task = task
        self._account = Account(ignore)

    def build(self, payloads: Sequence[Mapping[str, Any]]) -> list[Row | Refused]:
        """One result for each record, in order."""
        views = [self._account.view(payload) for payload in payloads]
        plans = [self._plan_outputs(view) for view in views]
        outputs = [item for plan in plans if not isinstance(plan, Refused) for item in plan.items()]
        encoded = iter(self.encode([(key, text) for key, texts in outputs if isinstance(texts, list) for text in texts]))
        results: list[Row | Refused] = []
        for plan, view in zip(plans, views, strict=True):
            row = plan if isinstance(plan, Refused) else self._assemble_row(plan, encoded)
            if isinstance(row, Row):
                unread_fields = tuple((path, whole(value)) for path, value in unread(view))
                row = replace(row, dropped=tuple(sorted(view.book.dropped)), unread=unread_fields)
            results.append(row)
        return results

    @abstractmethod
    def sequence(self, source: Source, row: Mapping[str, Any]) -> Text:
        """Return the text of a flat output of a record."""

    @abstractmethod
    def element(self, section: Section, value: object, location: str) -> Text:
        """Return the text of one list element."""

    @abstractmethod
    def encode(self, texts: Sequence[tuple[str, Text]]) -> list[Tokens | Refused]:
        """Tokenize (output key, text) pairs; one result for each, in order."""

    def validate_masks(self, row: Row) -> Row | Refused:
        """Return `row`, or a rejection if its masks train nothing."""
        return row

    def _plan_outputs(self, row: Mapping[str, Any]) -> dict[str, list[Text] | npt.NDArray[np.float32]] | Refused:
        try:
            require_equal_groups(self.task, row)
            return {key: self._plan_output(source, row) for key, source in self.task.sources.items()}
        except Refused as rejection:
            rejection.stage = rejection.stage or "schema"
            return rejection

    def _plan_output(self, source: Source, row: Mapping[str, Any]) -> list[Text] | npt.NDArray[np.float32]:
        section = source.sections[0]
        if source.is_value:
            return values_at(row, section.field)
        if not source.list_field:
            return [self.sequence(source, row)]
        elements = as_list(value_at(row, section.field), section.field)
        return [self.element(section, element, f"{section.field}[{i}]") for i, element in enumerate(elements)]

    def _assemble_row(self, plan: Mapping[str, list[Text] | npt.NDArray[np.float32]], encoded: Iterator[Tokens | Refused]) -> Row | Refused:
        """Assemble the cells of a record, each sequence cut to ``max_seq_len``, from the next results of `encoded`."""
        limit, cut = self.task.pipeline.preprocessing.max_seq_len, 0
        cells: dict[str, list[npt.NDArray[Any]]] = {}
        rejection: Refused | None = None
        for key, planned in plan.items():
            if isinstance(planned, np.ndarray):
                cells[key] = [planned]
                continue
            # consume all results of this record, even after a rejection: those of the next record follow
            results = [next(encoded) for _ in planned]
            rejection = rejection or next((result for result in results if isinstance(result, Refused)), None)
            parts = [result for result in results if not isinstance(result, Refused)]
            cut += sum(max(0, len(ids) - limit) for ids, _ in parts)
            cells[key] = [ids[:limit] for ids, _ in parts]
            if (mask_key := self.task.mask_key(key)) in self.task.columns:
                cells[mask_key] = [mask[:limit] for _, mask in parts]
        return rejection or self.validate_masks(Row(cells, cut))


def messages_at(value: object, location: str) -> Sequence[Mapping[str, Any]]:
    """Check a list of messages, each with a role and either content or tool calls. Null is an empty list."""
    messages = [as_mapping(message, f"{location}[{i}]") for i, message in enumerate([] if value is None else as_list(value, location))]
    for i, message in enumerate(messages):
        as_text(value_at(message, "role", f"{location}[{i}]"), f"{location}[{i}].role")
        content = message.get("content")
        if not isinstance(content, str) and not (content is None and peek(message, "tool_calls")):
            wrong_type(content, f"{location}[{i}].content", "a string, or null beside tool_calls")
    return messages


def values_at(row: Mapping[str, Any], field: str) -> npt.NDArray[np.float32]:
    """Return the number or list of numbers in `field` as float32[n]. Rejects values that are not finite in float32."""
    value = value_at(row, field)
    numbers: Sequence[Any] = value if isinstance(value, list) else [value]
    exact = np.array([as_number(number, f"{field}[{i}]") for i, number in enumerate(numbers)], np.float64)
    with np.errstate(over="ignore"):
        values = exact.astype(np.float32)
    if not np.isfinite(values).all():
        raise Refused("out_of_range", f"{field!r} is {value}, which is not finite as float32", stage="schema")
    return values


def require_equal_groups(task: Task, row: Mapping[str, Any]) -> None:
    """Reject a record whose lists differ in length: each response needs one reward."""
    lists = {
        section.field: source for source in task.sources.values() for section in source.sections if source.list_field or source.is_value
    }
    if not any(source.list_field for source in lists.values()):
        return
    sizes = {
        field: 1 if source.is_value and not isinstance(value_at(row, field), list) else len(as_list(value_at(row, field), field))
        for field, source in lists.items()
    }
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        raise Refused("length_mismatch", f"the lists of one group differ in length or are empty: {sizes}", stage="schema")


def require_length(task: Task, texts: Sequence[str]) -> None:
    """Reject a document outside ``min_chars … max_chars`` (inclusive), in code points over all sections."""
    length, steps = sum(map(len, texts)), task.pipeline.preprocessing
    if not steps.min_chars <= length <= steps.max_chars:
        reason = "too_short" if length < steps.min_chars else "too_long"
        raise Refused(reason, f"{length:,} characters; min_chars is {steps.min_chars:,}, max_chars {steps.max_chars:,}", stage="schema")


def empty_record(source: Source, row: Mapping[str, Any]) -> Refused:
    """The rejection of a record without text in any field of `source`."""
    fields = ", ".join(repr(section.field) for section in source.sections)
    return Refused(
        "empty", f"no text under {fields}; the record has {', '.join(map(repr, row)) or 'no fields, ignored ones aside'}", stage="schema"
    )


class _Piece(Struct, frozen=True):
    """Text that is encoded separately: with or without special tokens, trained or not."""

    text: str
    special: bool
    train: bool


class AstraiBuilder(Builder[list[_Piece]]):
    """Tokens and masks by the algorithm of AstrAI's documentation: pieces are encoded one by one and concatenated."""

    def __init__(self, task: Task, vocabulary: Vocabulary, ignore: Sequence[str] = ()) -> None:
        super().__init__(task, ignore)
        self._backend = vocabulary.encoder
        self._template = MessageTemplate(vocabulary) if any(source.is_templated for source in task.sources.values()) else None
        bos = vocabulary.special.get("bos_token")
        self._bos = [] if bos is None else [vocabulary.backend.token_to_id(bos)]

    def sequence(self, source: Source, row: Mapping[str, Any]) -> list[_Piece]:
        pieces: list[_Piece] = []
        for section in source.sections:
            if section.template:
                pieces += self._messages(row.get(section.field), section, section.field)
            else:
                pieces += self._text(row, section, first=not pieces)
        if not any(piece.text.strip() for piece in pieces):
            raise empty_record(source, row)
        if self.task.is_text:
            require_length(self.task, [piece.text for piece in pieces])
        return pieces

    def element(self, section: Section, value: object, location: str) -> list[_Piece]:
        """A separate sequence, without special tokens."""
        if section.template:
            return self._messages(value, section, location)
        return [_Piece(needed(plain_text(value, location), "empty_answer", location), False, section.action == "train")]

    def _messages(self, value: object, section: Section, location: str) -> list[_Piece]:
        assert self._template is not None
        render, trains = self._template.render, self.task.trains
        return [_Piece(render(message), False, trains(section.action, message["role"])) for message in messages_at(value, location)]

    def _text(self, row: Mapping[str, Any], section: Section, *, first: bool) -> list[_Piece]:
        must_be_string = self.task.typed and self.task.is_text
        text = as_text(value_at(row, section.field), section.field) if must_be_string else plain_text(row.get(section.field), section.field)
        if not text.strip() and not self.task.typed:
            return []
        special = first if section.add_special_tokens is None else section.add_special_tokens
        return [_Piece(text, special, section.action == "train")]

    def encode(self, texts: Sequence[tuple[str, list[_Piece]]]) -> list[Tokens | Refused]:
        encoded: dict[tuple[str, bool], list[int]] = {}
        for special in (False, True):
            unique_texts = list(dict.fromkeys(piece.text for _, pieces in texts for piece in pieces if piece.special is special))
            encodings = self._backend.encode_batch_fast(unique_texts, add_special_tokens=special)
            encoded.update({(text, special): encoding.ids for text, encoding in zip(unique_texts, encodings, strict=True)})
        return [self._tokens(key, pieces, encoded) for key, pieces in texts]

    def _tokens(self, key: str, pieces: list[_Piece], encoded: Mapping[tuple[str, bool], list[int]]) -> Tokens | Refused:
        source = self.task.sources[key]
        has_bos = source.is_templated and not source.list_field
        ids = list(self._bos) if has_bos else []
        mask = [0] * len(ids)
        for piece in pieces:
            piece_ids = encoded[piece.text, piece.special]
            ids += piece_ids
            mask += [int(piece.train)] * len(piece_ids)
        shortest = 2 if has_bos else 1
        if len(ids) < shortest:
            return Refused("empty", f"{key!r} comes to {len(ids)} tokens, at least {shortest} are needed", stage="tokenize")
        return np.array(ids, np.uint32), np.array(mask, np.uint8)


class MessageTemplate:
    """A tokenizer's chat template, for one message at a time, in a sandbox.

    AstrAI compiles templates with plain ``jinja2.Template``: without ``trim_blocks`` and ``lstrip_blocks``, which transformers sets, and with
    no variables but ``messages`` and ``add_generation_prompt``; ``bos_token`` and ``eos_token`` are undefined and render empty. So a
    template may render differently than in transformers; here it renders as in AstrAI.

    Raises:
        TemplateError: the tokenizer has no chat template, or an invalid one.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        from jinja2 import TemplateSyntaxError

        if vocabulary.chat_template is None:
            raise TemplateError(f"tokenizer {vocabulary.name} has no chat_template in its tokenizer_config.json; chats need one")
        try:
            self._template = _environment().from_string(vocabulary.chat_template)
        except TemplateSyntaxError as error:
            raise TemplateError(f"the chat template of {vocabulary.name}, line {error.lineno}: {error.message}") from error

    def render(self, message: Mapping[str, Any]) -> str:
        """Render a conversation of this single message, without a generation prompt.

        Raises:
            Refused: the template raises an error.
        """
        from jinja2 import TemplateError as JinjaError

        try:
            return str(self._template.render(messages=[message], add_generation_prompt=False))
        except (JinjaError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise Refused("template_refuses", f"a {message.get('role')} message alone: {error}", stage="render") from error


def _environment() -> Any:
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Transformers' ``{% generation %}``, which marks answers and renders nothing itself."""

        tags = {"generation"}  # noqa: RUF012  (jinja reads it from the class)

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            body: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return body

    return ImmutableSandboxedEnvironment(extensions=[Generation])


class SpansBuilder(Builder[Rendered]):
    """Tokens and masks by the spans of one render.

    Raises:
        ConfigError: a source mixes templated and plain sections.
    """

    def __init__(self, task: Task, vocabulary: Vocabulary, ignore: Sequence[str] = ()) -> None:
        super().__init__(task, ignore)
        for key, source in task.sources.items():
            if source.is_templated and not all(section.template for section in source.sections):
                raise ConfigError(
                    f"{key}: --masking spans renders a record once, so all its sections have template true, or none. See --masking astrai"
                )
        templated = any(source.is_templated for source in task.sources.values())
        # plain fields need no template; a completion ends with the end-of-text token
        self._template = load_template("tokenizer", vocabulary) if templated else ChatTemplate("none", "", vocabulary.special)
        vocabulary = bind(vocabulary, self._template)
        policy = MaskPolicy(mask=dict(task.pipeline.mask), mask_default=task.pipeline.mask_default)
        self._encoder = Encoder(vocabulary, choose_engine(vocabulary), policy, trains=False)

    def sequence(self, source: Source, row: Mapping[str, Any]) -> Rendered:
        turns: list[Turn] = []
        for section in source.sections:
            if section.template:
                turns += chat_turns(value_at(row, section.field), section.field, section.action)
            elif (text := plain_text(row.get(section.field), section.field)).strip():
                turns.append(plain_turn(text, section.action))
        if not turns:
            raise empty_record(source, row)
        return render(Sample(tuple(turns)), self._template)

    def element(self, section: Section, value: object, location: str) -> Rendered:
        if section.template:
            turns = chat_turns(value, location, section.action)
        else:
            turns = (plain_turn(needed(plain_text(value, location), "empty_answer", location), section.action),)
        return render(Sample(turns), self._template)

    def encode(self, texts: Sequence[tuple[str, Rendered]]) -> list[Tokens | Refused]:
        encoded = self._encoder.encode([rendered for _, rendered in texts])
        results: dict[int, Tokens | Refused] = dict(encoded.refused)
        for i, position in enumerate(encoded.kept):
            span = slice(int(encoded.offsets[i]), int(encoded.offsets[i + 1]))
            results[int(position)] = _tokens(encoded.ids[span], encoded.loss[span])
        return [results[position] for position in range(len(texts))]

    def validate_masks(self, row: Row) -> Row | Refused:
        """Return `row`, or a rejection if a trainable output has no trained token within ``max_seq_len``."""
        for key, source in self.task.sources.items():
            can_train = any(section.action in ("train", "$role") for section in source.sections)
            if can_train and not source.is_value and not any(mask.any() for mask in row.cells[self.task.mask_key(key)]):
                limit = self.task.pipeline.preprocessing.max_seq_len
                return Refused("nothing_to_train", f"{key!r} has no trained token among its first {limit:,}", stage="tokenize")
        return row


def _tokens(ids: Any, loss: Any) -> Tokens | Refused:
    fractional = loss[(loss != 0) & (loss != 1)]
    if len(fractional):
        return Refused("fractional_weight", f"a message has loss weight {fractional[0]:g}; AstrAI's mask knows 0 and 1", stage="tokenize")
    return ids, loss.astype(np.uint8)


# Rows of the source files with their tokens and masks, in order: built in this process, or by workers in shards.
#
# Only per-row work is done here. Duplicates, ``max_items``, domains and output shards depend on all rows and are decided by the consumer of these
# batches, in the order of the files, so that no byte depends on the number of workers.

MIN_SHARDS = 4
"""With fewer shards, starting workers takes longer than the work."""
_BATCHES_FILE = "built.pickle"
_READ_SIZE = 1 << 20


Batch = tuple[SourceFile, Sequence[Record | Unreadable], Callable[[Sequence[int]], Iterable[Row | Refused]]]
"""A file, consecutive rows of it, and a function that builds the records at the given indices of these rows."""


@dataclass(frozen=True)
class Job:
    """The source files and how they are tokenized; pickled for worker processes.

    Attributes:
        sources: the files, in reading order.
        by_spans: whether masks come from spans, as in the graph.
        ignore: fields that are removed before a record is read.
    """

    task: Task
    vocabulary: Any
    by_spans: bool
    sources: Pinned
    ignore: tuple[str, ...] = ()

    @cached_property
    def builder(self) -> Builder[Any]:
        """The builder of this process; it is not pickled."""
        return (SpansBuilder if self.by_spans else AstraiBuilder)(self.task, self.vocabulary, self.ignore)

    def reading(self, stretches: Sequence[Stretch] | None = None, progress: Progress | None = None) -> Reading:
        """The core's reading loop over the files, or over some stretches of them."""
        domain = Domain(files=tuple(file.url for file in self.sources.files), schema="sections")
        # the converter is never called: builders read the rows by the pipeline's sections
        reader = converter(domain, Sample)
        return Reading("", domain, Router(None, ""), self.sources, reader, progress=progress, stretches=stretches)

    def batches(self, reading: Reading) -> Iterator[Batch]:
        """Yield all rows of a reading in batches."""
        size = self.task.pipeline.preprocessing.batch_size
        for block in reading.rows(_READ_SIZE):
            for start in range(0, len(block.rows), size):
                rows = block.rows[start : start + size]
                yield block.file, rows, partial(self._build, rows)
            reading.advance("preprocess", block.size)

    def _build(self, rows: Sequence[Record | Unreadable], indices: Sequence[int]) -> list[Row | Refused]:
        return self.builder.build([row.payload for index in indices if isinstance(row := rows[index], Record)])


def batches_by_workers(job: Job, pool: Pool, folder: Path, reading: Reading) -> Generator[Batch, None, None]:
    """Yield all rows, built by the workers of a pool, or in this process if there are few shards.

    Args:
        folder: for temporary files; it must not exist, and is deleted at the end.
        reading: of all rows, in this process.
    """
    sharded_job = replace(job, sources=replace(job.sources, cuts=tuple(_cuts(file) for file in job.sources.files)))
    shards = shards_of(sharded_job.sources) if pool.size > 1 else []
    if len(shards) < MIN_SHARDS:
        yield from job.batches(reading)
        return
    folder.mkdir()
    try:
        for result in pool.run_shards(Plan(shards, folder), partial(_build_shard, job=sharded_job)):
            with (result.folder / _BATCHES_FILE).open("rb") as file:
                while file.peek(1):
                    source, rows, built = pickle.load(file)
                    yield source, rows, partial(map, built.__getitem__)
            shutil.rmtree(result.folder)
            reading.advance("preprocess", result.shard.size)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build_shard(task: Sequence[Stretch], folder: Path, *, job: Job) -> Counts:
    """Build one shard: pickle every batch with its results, one after the other, into a file."""
    with (folder / _BATCHES_FILE).open("wb") as file:
        for source, rows, build in job.batches(job.reading(task)):
            indices = [index for index, row in enumerate(rows) if isinstance(row, Record)]
            pickle.dump((source, rows, dict(zip(indices, build(indices), strict=True))), file)
    return {}


def _cuts(file: SourceFile) -> tuple[Cut, ...]:
    """The cuts of a file into shards; none for remote lines, which would be downloaded twice."""
    if file.format in tables.TABLES:
        return tuple(table_cuts(file, tables.SHARD_BYTES))
    return tuple(line_cuts(file, tables.SHARD_BYTES)) if file.format in tables.LINES and not is_remote(file.url) else ()
