"""What writes token streams: of rows and of lines, in shards, and merged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from prep_assets.caches import bounded_cache
from prep_assets.config.base import ImageRule, tokens_around
from prep_assets.config.family import Family
from prep_assets.data import tables
from prep_assets.data.files import Part
from prep_assets.data.quarantine import Quarantine
from prep_assets.data.tables import LineCuts, parts, shard_size
from prep_assets.errors import ConfigError, StoreError
from prep_assets.pipeline.examples import (
    Elsewhere,
    Found,
    Noted,
    Pace,
    Reading,
    Source,
    Stretch,
    is_held_out,
    note_records,
    shards_of,
    without_duplicates,
)
from prep_assets.pipeline.lines import UNTEMPLATED, form_of, strings_as_messages
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.stores.arrays import at, made, numbers, order, stretches, where, zeros
from prep_assets.stores.bucket import bucket_of
from prep_assets.stores.bucket_backend import ShardDepot
from prep_assets.stores.guards import Guards
from prep_assets.stores.images import image_fault
from prep_assets.stores.lines import Lines, LinesWriter, open_lines
from prep_assets.stores.published import backend_of, open_published
from prep_assets.stores.tokens import (
    ATTENTION,
    RecordWriter,
    TokenStore,
    append_records,
    append_store,
    open_tokens,
    record_writer,
    unsigned,
)
from prep_assets.stores.version_folders import Published, staging, version_of
from prep_assets.text.vocabulary import Vocabulary
from prep_assets.workers.shards import Counts, Plan, Runner, Shard, ShardResult, Work, carried_out, key_of

# What all pipelines that write token streams share.

BLOCK = 1 << 20
"""Tokens in a block when a whole stream is read through."""


def tokenizer_recipe(workspace: Workspace, family: Family) -> dict[str, Any]:
    """What ids depend on: the tokenizer's content, which of its readings that is, and the version of the reference library."""
    loader = "file" if family.tokenizer_loader == "auto" else family.tokenizer_loader
    vocabulary = workspace.vocabulary(family)
    padded = {} if family.pad_vocab_to is None else {"pad_vocab_to": vocabulary_size(family, vocabulary)}
    # models of words and pieces: a typed control token, or 2, byte, is text, and what they do not know refuses its record
    model = vocabulary.spec["model"]
    pieces = {"pieces": 2 if model.get("byte_fallback") else 1} if model["type"] != "BPE" else {}
    return {"sha256": vocabulary.hash, "loader": loader, "tokenizers": _version("tokenizers"), "engine": family.engine, **padded, **pieces}


@bounded_cache("versions of packages", 16)
def _version(package: str) -> str:
    """Finding it reads through the folder of packages, and a run may ask for a thousand domains."""
    from importlib.metadata import version

    return version(package)


def vocabulary_size(family: Family, vocabulary: Vocabulary) -> int:
    """How many ids the model has: as many as the tokenizer, or more where the family's vocabulary is padded.

    Raises:
        ConfigError: the tokenizer has more.
    """
    if family.pad_vocab_to is None:
        return vocabulary.size
    if family.pad_vocab_to < vocabulary.size:
        raise ConfigError(
            f"pad_vocab_to: {family.pad_vocab_to:,} ids do not hold tokenizer {vocabulary.name}, whose highest id is {vocabulary.size - 1:,}. "
            f"Set it to {vocabulary.size:,} or more"
        )
    return family.pad_vocab_to


def ids_dtype(family: Family, vocabulary: Vocabulary) -> str:
    """The integer type that token ids are stored in.

    Raises:
        ConfigError: the configured type cannot hold the vocabulary.
    """
    size = vocabulary_size(family, vocabulary)
    if family.output.dtype == "auto":
        return "uint16" if size <= 1 << 16 else "uint32"
    if size - 1 > np.iinfo(family.output.dtype).max:
        raise ConfigError(
            f"output.dtype {family.output.dtype} holds ids up to {np.iinfo(family.output.dtype).max:,}, the vocabulary has {size:,}"
        )
    return family.output.dtype


class NeedsColumns(Exception):
    """Tokens have weights that the columns of a stream cannot hold, met while it was written.

    Attributes:
        dtypes: the masks that can, by name.
    """

    def __init__(self, dtypes: Mapping[str, str]) -> None:
        super().__init__(dtypes)
        self.dtypes = dtypes


def mask_columns(weights: npt.NDArray[np.float32], dtypes: Mapping[str, str]) -> dict[str, npt.NDArray[Any]]:
    """The ``loss_mask`` of weights of which each is a loss weight or `UNATTENDED`; and the ``attention_mask``, where `dtypes` names one.

    Raises:
        NeedsColumns: a weight is neither 0 nor 1, or a token is not attended, and `dtypes` has no place for that.
    """
    loss, attended = unsigned(weights)
    needed = dict(dtypes)
    if ((loss != 0) & (loss != 1)).any():
        needed["loss_mask"] = "float32"
    if not attended.all():
        needed[ATTENTION] = "uint8"
    if needed != dtypes:
        raise NeedsColumns(needed)
    columns = {"loss_mask": loss, ATTENTION: attended}
    return {name: columns[name].astype(dtype) for name, dtype in dtypes.items()}


def audit_stream(payload: Path, stream: str, vocabulary: Vocabulary, image: int | None = None, rule: ImageRule | None = None) -> TokenStore:
    """Structural checks on a token stream: parts fit together, records are not empty, ids are inside the vocabulary, images stand where the
    image token does.

    Args:
        image: id of the image token; `None` where there can be no images.
        rule: how many tokens an image has; `None`: nothing but the image token stands for one.

    Raises:
        StoreError: one of these does not hold.
    """
    store = open_tokens(payload, stream)
    lengths = store.lengths
    if len(lengths) and lengths.min() < 1:
        raise StoreError(f"{stream}: record {int(lengths.argmin()):,} has no tokens")
    tokens = store.arrays["tokens"]
    for part in stretches(len(tokens), BLOCK):
        block = np.asarray(tokens[part])
        if not 0 <= int(block.min()) <= int(block.max()) < vocabulary.size:
            raise StoreError(f"{stream}: token ids from {block.min()} to {block.max()}, the vocabulary has {vocabulary.size:,}")
    mixed = rule is not None and bool(tokens_around(rule))
    fault = None if image is None else image_fault(store.images, store.arrays, store.starts, lengths, image, mixed=mixed)
    if fault is not None:
        raise StoreError(
            f"{stream}: {fault}. Where the chat template writes the image token by itself, name another control token as image_token"
        )
    return store


# Token streams that are written by several processes: each shard is a small store of its own, and the stores are joined in the order of the plan. What comes
# out is what one process writes, to the byte.

FEWEST = 8
"""What has no more than so many times the text between two cuts is done sooner than workers start."""
_UNCUT = 1 << 62
QUARANTINE, _STREAMS = "quarantine.jsonl", "streams"
"""Names in the folder of a shard."""


class Encode(Protocol):
    """Reads, tokenizes and writes what a task names, and counts: numbers, or mappings of them, which add up over tasks. It travels to other
    processes."""

    def __call__(self, task: Any, writers: Sequence[RecordWriter], quarantine: Quarantine) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Streams:
    """The token streams of a store.

    Attributes:
        payload: its folder.
        dtypes: of the arrays of each, by name.
        writers: of each.
        quarantine: where refused records go.
    """

    payload: Path
    dtypes: Mapping[str, Mapping[str, str]]
    writers: Mapping[str, RecordWriter]
    quarantine: Quarantine


def joined(
    workspace: Workspace, kind: type[Family], doing: str, runner: Runner, shards: Sequence[Shard], encode: Encode, streams: Streams
) -> dict[str, Any]:
    """Encode all shards and write what they give. Counts are those of the whole.

    Args:
        kind: the family.
        doing: what progress is about.
    """
    total: dict[str, Any] = {}
    work = partial(_encode_shard, encode=encode, dtypes={name: dict(each) for name, each in streams.dtypes.items()})
    for result in told(workspace, doing, runner, shards, work, streams.payload, partial(opened, workspace.travelling(kind), kind)):
        guards = Guards.of_work(result.folder, result.files)
        for name, writer in streams.writers.items():
            append_store(writer, open_tokens(result.folder / _STREAMS, name, guards))
        take_quarantine(result, streams.quarantine)
        add(total, result.counts["encoded"])
    runner.effort.shards += len(shards)
    return total


def opened(workspace: Workspace, kind: type[Family]) -> None:
    """Open what a family is tokenized with."""
    workspace.engines(workspace.family(kind))


def take_quarantine(result: ShardResult, quarantine: Quarantine) -> None:
    """Write what a shard has refused."""
    if (refused := result.folder / QUARANTINE).exists():
        with Guards.of_work(result.folder, result.files).open(refused) as lines:
            quarantine.append(lines, result.counts["refused"])


def _encode_shard(task: Any, folder: Path, *, encode: Encode, dtypes: Mapping[str, Mapping[str, str]]) -> Counts:
    """The work of one shard."""
    place = folder / _STREAMS
    place.mkdir()
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(folder / QUARANTINE))
        writers = [
            stack.enter_context(record_writer("bin", place, name, each, max_tokens_per_shard=_UNCUT)) for name, each in dtypes.items()
        ]
        encoded = encode(task, writers, quarantine)
        return {"encoded": encoded, "refused": quarantine.counts}


def told(
    workspace: Workspace,
    doing: str,
    runner: Runner,
    shards: Sequence[Shard],
    work: Work,
    payload: Path,
    ready: Callable[[], object] | None = None,
) -> Iterator[ShardResult]:
    """The results, while progress is told of them."""
    place = staging(payload) / key_of(work)
    bucket = bucket_of(workspace.stores) if runner.elsewhere else None
    depot = ShardDepot(bucket.below(place.relative_to(workspace.stores).as_posix())) if bucket else None
    plan = Plan(shards, place, depot=depot, ready=ready)
    done, pace, total, before = 0, Pace(), plan.size, replace(runner.effort)
    for number, result in enumerate(carried_out(runner, plan, work), 1):
        yield result
        done += result.shard.size
        lost = f", {count} workers lost" if (count := runner.effort.since(before).lost) else ""
        if workspace.progress:
            workspace.progress(f"{doing}: {number:,} of {len(plan.shards):,} shards, {pace.text(done, total)}{lost}", done, total)


def add(total: dict[str, Any], counts: Mapping[str, Any]) -> None:
    """Add counts to others: numbers, or mappings of them."""
    for key, value in counts.items():
        if isinstance(value, Mapping):
            add(total.setdefault(key, {}), value)
        else:
            total[key] = total.get(key, 0) + value


# A domain's token streams in shards of its source files.


class EncodeRows(Protocol):
    """Reads, tokenizes and writes a domain, or a part of one; see `Encode`."""

    def __call__(
        self, workspace: Workspace, reading: Reading, writers: Sequence[RecordWriter], quarantine: Quarantine
    ) -> dict[str, Any]: ...


def encode_domain(source: Source, encode: EncodeRows, streams: Streams, *, busy: int = 1) -> dict[str, Any]:
    """Encode a domain, in shards where there are workers for them. Counts are those of the whole.

    Args:
        busy: how many processors `encode` keeps busy by itself.
    """
    workspace = source.workspace
    runner = workspace.runner(source.family, busy=busy)
    shards = shards_of(source.sources, source.family.cluster.shards) if runner else []
    if runner is None or len(shards) < 2 or sum(shard.size for shard in shards) < FEWEST * tables.SHARD_BYTES:
        return encode(workspace, source.reading(), list(streams.writers.values()), streams.quarantine)
    ready = _looked_over(source, runner, shards, streams.payload)
    part = partial(_encode_rows_part, source=source.travelling(), encode=encode)
    return joined(workspace, source.kind, f"tokenize {source.name}", runner, ready, part, streams)


def _encode_rows_part(
    task: tuple[Sequence[Stretch], Found], writers: Sequence[RecordWriter], quarantine: Quarantine, *, source: Source, encode: EncodeRows
) -> dict[str, Any]:
    stretches, found = task
    elsewhere = Elsewhere(found, (*source.sources.files, *source.sources.test_files))
    return encode(source.workspace, source.part(stretches, elsewhere, found.limit), writers, quarantine)


def _looked_over(source: Source, runner: Runner, shards: Sequence[Shard], payload: Path) -> list[Shard]:
    """The shards with what each must know of the others, which takes a first pass where duplicates are refused or records are limited."""
    if not source.family.preprocessing.deduplicate and source.max_items is None:
        return [replace(shard, task=(shard.task, Found())) for shard in shards]
    pool = source.workspace.pool
    known: Noted | None = pool.noted.pop((source.kind, source.name), None) if pool else None
    if known and (ready := known.of(source, shards)):
        return ready
    noted: list[ShardResult] = []
    work = partial(note_records, source=source.travelling())
    for some in _as_needed(source, runner, shards, noted):
        noted += told(source.workspace, f"compare records of {source.name}", runner, some, work, payload)
    return list(without_duplicates(source, noted))


def _as_needed(source: Source, runner: Runner, shards: Sequence[Shard], noted: list[ShardResult]) -> Iterator[Sequence[Shard]]:
    """All shards; of a domain that is limited those to train on a few at a time, until they hold enough, then those held out."""
    if source.max_items is None:
        yield shards
        return
    held_out = [shard for shard in shards if is_held_out(shard, source.sources)]
    training, step = shards[: len(shards) - len(held_out)], 2 * runner.size
    for first in range(0, len(training), step):
        if sum(each.counts["rows"] for each in noted) >= source.max_items:
            break
        yield training[first : first + step]
    yield held_out


# Token streams of the lines of a JSONL store, in shards of the file.

BATCH = 512
"""Lines that are encoded at a time. It changes nothing in a store."""
_READ = 1 << 20
Batch = tuple[int, list[dict[str, Any]]]
"""Number of a first line, and what it and those after it hold."""


class EncodeLines(Protocol):
    """Tokenizes and writes lines; see `Encode`."""

    def __call__(
        self, workspace: Workspace, batches: Iterator[Batch], writers: Sequence[RecordWriter], quarantine: Quarantine
    ) -> dict[str, Any]: ...


def encode_lines(workspace: Workspace, family: Family, doing: str, lines: Lines, encode: EncodeLines, streams: Streams) -> dict[str, Any]:
    """Encode a file, in shards where there are workers for them. Counts are those of the whole.

    Args:
        doing: what progress is about.
    """
    runner = workspace.runner(family)
    if runner is None or lines.path.stat().st_size < FEWEST * tables.SHARD_BYTES:
        batches = _told(workspace, doing, lines, _batches(lines, Part()))
        counts = encode(workspace, batches, list(streams.writers.values()), streams.quarantine)
        workspace.engines(family).pause()
        return counts
    travelling, root = replace(lines, index={}, guards=Guards()), workspace.stores.resolve()
    kept = version_of(lines.path) if runner.elsewhere and bucket_of(root) else None
    work = partial(
        _encode_lines_part,
        workspace=workspace.travelling(type(family)),
        lines=travelling,
        encode=encode,
        kept=kept.relative_to(root) if kept else None,
    )
    return joined(workspace, type(family), doing, runner, line_shards(lines, family.cluster.shards), work, streams)


def _encode_lines_part(
    task: Part,
    writers: Sequence[RecordWriter],
    quarantine: Quarantine,
    *,
    workspace: Workspace,
    lines: Lines,
    encode: EncodeLines,
    kept: Path | None,
) -> dict[str, Any]:
    """Args:
    kept: the version of a store in a bucket that the lines are of, below the folder of all; it is fetched here.
    """
    if kept is not None:
        version = backend_of(workspace.stores / kept.parent.parent).published(kept.name)
        lines = replace(lines, path=version.directory / lines.path.name)
    return encode(workspace, _batches(lines, task), writers, quarantine)


def line_shards(lines: Lines, count: int | Literal["auto"]) -> list[Shard]:
    """A file of lines, cut as sources are."""
    path = lines.path
    watch = LineCuts(shard_size(path.stat().st_size, count))
    with lines.guards.open(path) as file:
        while data := file.read(_READ):
            watch(data)
    return [
        Shard(number, f"{path.name} from line {part.row + 1:,}", (part.stop or watch.seen) - part.start, part)
        for number, part in enumerate(parts(watch.cuts))
    ]


def _batches(lines: Lines, part: Part) -> Iterator[Batch]:
    rows = lines.part(part.start, part.stop)
    first = part.row
    while batch := list(islice(rows, BATCH)):
        yield first, batch
        first += len(batch)


def _told(workspace: Workspace, doing: str, lines: Lines, batches: Iterator[Batch]) -> Iterator[Batch]:
    for first, batch in batches:
        yield first, batch
        if workspace.progress:
            workspace.progress(doing, first + len(batch), len(lines))


# The stores of domains as one: lines end to end, or shuffled; the tokens of lines in the order of the lines.

Ints = npt.NDArray[np.int64]


BY_DOMAIN = "_by_domain"
"""Ends the name of an asset with a store for each domain; what stands before it is the asset that merges them."""


def by_domain(asset: str) -> str:
    """The asset whose stores another one merges."""
    return f"{asset}{BY_DOMAIN}"


def parts_of(workspace: Workspace, asset: str, names: Iterable[str]) -> dict[str, Published]:
    """The stores of domains, sorted as `names` are.

    Raises:
        StoreError: one is missing; the message has the command that builds it.
    """
    return {name: open_published(workspace.stores, asset, name, remedy=build_command(asset, name)) for name in names}


def merge_lines(parts: Mapping[str, Published], payload: Path, files: Mapping[str, int | None]) -> dict[str, int]:
    """Write the files of all domains as one each, of one form: messages where a domain has messages.

    Args:
        files: name of a file → the seed of its order; `None`: that of the domains. A file that none of the domains has is left out.

    Returns:
        How many lines each file has.

    Raises:
        ConfigError: some domains have messages, others strings that no message can say.
    """
    names, mixed = tuple(parts), _mixed_forms(parts)
    counts = {}
    with ExitStack() as stack:
        for file, seed in files.items():
            having = [(number, each) for number, each in enumerate(parts.values()) if (each.directory / f"{file}.jsonl").is_file()]
            if parts and not having:
                continue
            writer = stack.enter_context(LinesWriter(payload, file, names, shuffle_seed=seed))
            for number, part in having:
                _append(writer, open_lines(part.directory, file), number, as_messages=mixed)
            counts[file] = len(writer)
    return counts


def _append(writer: LinesWriter, lines: Lines, number: int, *, as_messages: bool) -> None:
    origins = zip(numbers(lines.index["file"]), numbers(lines.index["row"]), strict=True)
    for line, (file, row) in zip(lines.written(), origins, strict=True):
        if as_messages and isinstance((content := json.loads(line))["prompt"], str):
            writer.append(strings_as_messages(content), source=number, file=file, at=row)
        else:
            writer.append_line(line, source=number, file=file, at=row)


def _mixed_forms(parts: Mapping[str, Published]) -> bool:
    """Whether some domains hold strings and others messages."""
    forms = {name: form_of(part.directory) for name, part in parts.items() if part.manifest.counts["kept"]}
    if len(set(forms.values())) < 2:
        return False
    stuck = [name for name, form in forms.items() if form == "text" and parts[name].manifest.counts.get(UNTEMPLATED)]
    if stuck:
        rich = ", ".join(name for name, form in forms.items() if form == "messages")
        raise ConfigError(
            f"messages are in {rich}, and prompts and completions that no message can say in {', '.join(stuck)}: no one file can hold both. "
            f"Set form: text, which refuses rows of {rich}, or let the schema of {', '.join(stuck)} give user and assistant turns"
        )
    return True


def merge_tokens(workspace: Workspace, stream: str, parts: Mapping[str, Published], lines: tuple[str, str], writer: RecordWriter) -> None:
    """Write the tokens of all domains as one stream, in the order of the merged lines.

    Args:
        parts: the stores of the domains' tokens.
        lines: the asset of the merged lines, and the file.
    """
    asset, file = lines
    merged = open_lines(open_published(workspace.stores, asset, remedy=build_command(asset)).directory, file)
    files = {name: open_lines(part.directory, file) for name, part in parts_of(workspace, by_domain(asset), parts).items()}
    having = {name: part for name, part in parts.items() if (part.directory / f"{stream}.index").is_dir()}
    tokens = {name: open_tokens(part.directory, stream) for name, part in having.items()}
    found = _records(merged, files, tokens)
    append_records(writer, list(tokens.values()), *found)


def _records(merged: Lines, lines: Mapping[str, Lines], tokens: Mapping[str, TokenStore]) -> tuple[Ints, Ints, Ints]:
    """Of each record, in the order of the merged lines: the number of its stream, its number there, and its line. Not every line was tokenized."""
    # of each merged line: 1 + the number of its record, and its stream
    numbered, of = zeros(len(merged)), zeros(len(merged), np.int32)
    for number, (name, stream) in enumerate(tokens.items()):
        mine, places, record = merged.of(merged.sources.index(name)), lines[name].places, zeros(len(lines[name]))
        for part in stretches(len(stream)):
            record[stream.row[part]] = np.arange(part.start, part.stop) + 1
        # both files hold the same lines, in two orders
        here, by_place, line = merged.places, order(at(merged.places, mine)), order(places)
        for part in stretches(max(len(mine), len(line))):
            row = mine[by_place[part]]
            if not np.array_equal(here[row], places[line[part]]):
                raise StoreError(f"{merged.path}: it does not hold the {len(line):,} lines of {lines[name].path}. Build it again")
            numbered[row], of[row] = record[line[part]], number
    row = where(made(len(merged), lambda part: numbered[part] > 0, bool))
    return made(len(row), lambda part: of[row[part]]), made(len(row), lambda part: numbered[row[part]] - 1), row
