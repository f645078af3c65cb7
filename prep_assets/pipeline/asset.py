"""Assets: code versions, columns, options, recipes and builds. `graph/` declares them, one file per family."""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field, structs

from prep_assets.config.base import options_of_media
from prep_assets.config.family import Chat, Family
from prep_assets.config.models import FAMILIES
from prep_assets.data.quarantine import Quarantine, Refusal, read_quarantine
from prep_assets.data.recognize import of_row
from prep_assets.errors import ConfigError, PrepAssetsError, Refused, SourceError, StoreError
from prep_assets.pipeline.examples import AnyExample, Item, Stretch, reading_recipe
from prep_assets.pipeline.media import record_files
from prep_assets.pipeline.sources import SOURCES, domain_of, read_sources
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.proofs.accounting import places
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Sample
from prep_assets.stores.files import installed_version
from prep_assets.stores.guards import Guards, load_json
from prep_assets.stores.manifest import Manifest, build_key, differences
from prep_assets.stores.published import Draft, Place
from prep_assets.stores.table import TOKENS, Schema, Table, open_stream, open_table, stream_names
from prep_assets.stores.version_folders import Published
from prep_assets.text.encode import Encoder
from prep_assets.text.spans import Rendered
from prep_assets.text.vocabulary import Vocabulary

VERSIONS = {"raw": "4", "export": "6", "quality": "2", "leaks": "4"}
"""Code version of the stages that all families have, 1 where none is given. Raised when bytes change. A family says that of its own assets."""


# Columns of stores for the web UI: name, type, description.

SOURCE_COLUMNS = (
    ("name", "string", "Path within the domain, the same on every machine."),
    ("size", "int64", "Bytes as stored."),
    ("sha256", "string", "Content hash."),
    ("rows", "int64", "Rows, readable or not."),
)
VERDICT_COLUMNS = (
    ("file", "int32", "Number of the record's file, training files first."),
    ("row", "int64", "Its row."),
    ("dropped", "string", "Why a quality step drops it; null: it is kept."),
    ("detail", "string", "The same with numbers, and the step."),
)
LEAK_COLUMNS = (
    *VERDICT_COLUMNS[:2],
    ("detail", "string", "How much of which held-out text it holds."),
    ("record", "string", "Id of the held-out text that it shares most with."),
    ("shared", "int64", "Words, or paragraphs, that it shares with that text."),
)
BLEND_COLUMNS = (
    ("domain", "uint16[N]", "Which domain comes next."),
    ("item", "uint32[N]", "Which window, or record, of it."),
)
TOKEN_COLUMNS = (("tokens", "int32[T]", "Token ids of all records, end to end."),)
MASKED_TOKEN_COLUMNS = (*TOKEN_COLUMNS, ("loss_mask", "uint8[T]", "Loss weight of each token: 1 is trained, 0 is not."))
PACKED_COLUMNS = (
    ("tokens", "int32[N, row_len]", "Token ids; padding at the end of a row."),
    ("loss_mask", "int8[N, row_len]", "1 where a token is trained."),
    ("documents", "table", "row, row_offset, length, source, record, start of each piece of a document."),
)


# Options that several assets of a family depend on.

PUBLISHED = ("tokenizer", "tokenizer_revision", "tokenizer_loader", "tokenizer_class")
TOKENIZER = (*PUBLISHED, "pad_vocab_to")
REASONING = ("reasoning", "reasoning_tags")
TYPED = (*REASONING, "calls")
"""What is read in the text of answers before a template renders them."""
TEMPLATE = (*TOKENIZER, "template", "template_options", "training_template")
MEDIA = {family: tuple(options_of_media(family).model_fields) for family in ("pretrain", "sft")}
"""Of files in records, by family."""


# Builds: everything that decides a store's bytes, and the function that writes them.


class NeedsMore(Exception):
    """The data needs more than the store being written can hold, so it is written again from the start.

    Attributes:
        needed: the needs by name, see `Target.needed`.
    """

    def __init__(self, needed: Mapping[str, Any]) -> None:
        super().__init__(needed)
        self.needed = needed


class Target(Struct, frozen=True):
    """A store that is being written.

    Attributes:
        workspace, asset, partition: its place.
        payload: its folder.
        needed: needs beyond the plain form: extra arrays per token with their dtypes; for lines ``{"form": "messages"}``, and ``contradicting``, digests of
            what the lines to reject are about.
    """

    workspace: Workspace
    asset: Asset
    partition: str
    payload: Path
    needed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> Any:
        """The family's configuration."""
        return self.workspace.family(FAMILIES[self.asset.family])

    @property
    def vocabulary(self) -> Vocabulary:
        """The family's tokenizer."""
        return self.workspace.vocabulary(self.family)

    @property
    def stems(self) -> list[str]:
        """File stems of its token streams; ``dev`` only if anything is held out."""
        held_out = holds_out(self.family, [self.partition] if self.partition else ())
        return [stem for name, stem in self.asset.stems(self.partition).items() if name != "dev" or held_out]


def holds_out(family: Family, domains: Iterable[str]) -> bool:
    """Whether records of these domains may be held out."""
    return bool(family.of_some("test_fraction") > 0 or any(domain_of(family, name).test_files for name in domains))


class Build(Struct, frozen=True):
    """The build of one store.

    Attributes:
        asset, workspace, partition: its place, and the options of this run.
        recipe: everything that can change its bytes, as JSON.
        plain_recipe: the recipe without the options of this run.
    """

    asset: Asset
    workspace: Workspace
    partition: str
    recipe: dict[str, Any]
    plain_recipe: Mapping[str, Any]

    @property
    def overrides(self) -> tuple[str, ...]:
        """Keys of the recipe that this run's options change, e.g. ``packing.row_len``."""
        return () if self.recipe is self.plain_recipe else differences(self.plain_recipe, self.recipe)

    @property
    def place(self) -> Place:
        """Where its versions are."""
        return self.workspace.place(self.asset.name, self.partition)

    def propose(self, *, draft: bool = False, again: bool = False) -> Published:
        """Write the store, or reuse an existing one. It becomes current only by `place.accept`."""
        try:
            return self.place.propose(
                build_key(self.recipe),
                self._write,
                config_key=build_key(self.plain_recipe),
                recipe=self.recipe,
                options=self.workspace.overrides.get(self.asset.family, {}) if self.overrides else None,
                draft=draft,
                again=again,
            )
        except PrepAssetsError as error:
            raise type(error)(f"{self.place.label}: {error}") from error

    def _write(self, payload: Path, refused: Path) -> Draft:
        needed: dict[str, Any] = {}
        # another process may have built what this build reads since its key was made
        workspace = self.workspace.expecting(self.asset.contents(self.partition, self.recipe))
        while True:
            try:
                with Quarantine(refused) as quarantine:
                    draft = self.asset.write(Target(workspace, self.asset, self.partition, payload, needed), quarantine)
                    counts = {**draft.counts, "refused": quarantine.counts} if "read" in draft.counts else draft.counts
                break
            except NeedsMore as error:
                needed |= error.needed
                refused.unlink(missing_ok=True)
                for leftover in payload.iterdir():
                    shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        if counts.get("read") == 0 and not self.asset.may_be_empty(self.workspace, self.partition):
            raise PrepAssetsError("there is nothing to build from: what it reads holds no record. Add sources, or hold out a smaller share")
        template = getattr(workspace.family(FAMILIES[self.asset.family]), "template", None)
        if "read" in counts and (fault := disagreement(counts["read"], counts["refused"], refused, str(template or ""))):
            raise PrepAssetsError(fault)
        if counts["refused"].get(RENDERERS_DIFFER) if "read" in counts else 0:
            quality = getattr(workspace.family(FAMILIES[self.asset.family]), "quality", None)
            if fault := differing_renders(counts["read"], counts["refused"], refused, getattr(quality, "max_refused", {})):
                raise PrepAssetsError(fault)
        if counts.get("read") and not counts.get("kept"):
            raise PrepAssetsError(all_refused(counts["read"], read_quarantine(refused)))
        if self.asset.stage == "raw" or (isinstance(self.asset.source, FromRows) and counts.get("refused")):
            raw = f"{self.asset.family}_raw"
            sources = load_json(payload / SOURCES, Guards()) if self.asset.stage else read_sources(workspace.built(raw, self.partition))
            domain = domain_of(workspace.family(FAMILIES[self.asset.family]), self.partition)
            require_a_row_of_each(sources, counts["refused"], refused, shared=domain.domain_key is not None, whole=domain.txt == "file")
        return replace(draft, counts=counts, checks=self.asset.promises)


DERIVATIONS_DIFFER = "derivations_differ"
"""The reason of a record of which two derivations give different loss masks."""
DIFFERING = 1000
"""One in so many such records is a fault of the record, more are a fault of the build."""


def disagreement(read: int, refused: Mapping[str, int], quarantine: Path, template: str = "") -> str:
    """Return the error message if two derivations of loss masks differ in more than one record in `DIFFERING`: what each says of the first; else ``""``.

    Args:
        template: its name; where it is a function of the user's, ``encoder:package.module:function``, its code is the likeliest cause.
    """
    count = sum(count for reason, count in refused.items() if reason.endswith(f"/{DERIVATIONS_DIFFER}"))
    if count * DIFFERING <= read:
        return ""
    first = next(refusal for refusal in read_quarantine(quarantine) if refusal.reason == DERIVATIONS_DIFFER)
    if template.count(":") > 1:
        return (
            f"two independent derivations of the loss mask differ in {count:,} of {read:,} records: nothing is built. The first one, {first.id}: "
            f"{first.detail}. The likeliest cause is the code of {template}: with generation_prompt its text of the messages before an answer must "
            "begin its text of the chat, and the answer must follow. Compare the two for this record, and add it to its GOLDEN chats"
        )
    return (
        f"two independent derivations of the loss mask differ in {count:,} of {read:,} records, which is a fault of prep-assets, not of the records: nothing "
        f"is built. The first one, {first.id}: {first.detail}. Please report it with this record and the chat template"
    )


RENDERERS_DIFFER = "render/renderers_differ"
"""Stage and reason of a record that two implementations of a chat format write differently."""


def differing_renders(read: int, refused: Mapping[str, int], quarantine: Path, allowed: Mapping[str, float]) -> str:
    """Return the error message if two implementations of a chat format differ in more than one record in `DIFFERING`; ``""`` if the configuration says how
    many may be `allowed`, which a check then holds the store to."""
    count = refused[RENDERERS_DIFFER]
    if RENDERERS_DIFFER in allowed or count * DIFFERING <= read:
        return ""
    first = next(refusal for refusal in read_quarantine(quarantine) if RENDERERS_DIFFER.endswith(f"/{refusal.reason}"))
    return (
        f"two implementations of the chat format differ in {count:,} of {read:,} records, so one of them is wrong: nothing is built. The first one, "
        f"{first.id}: {first.detail}; or, to reject such rows, set quality.max_refused: {{{RENDERERS_DIFFER}: {-(-count * 1000 // read) / 1000:g}}}"
    )


_ASKED_FOR = ("records/filtered_by_where", "records/forgotten", "deduplicate/", "decontaminate/", "quality/", "leaks/")
"""Beginnings of the reasons that a configuration asks for: what it does not want, duplicates, and what verdicts drop."""
MANY = 0.1
"""The share of refused records from which on a build says why."""


def many_refused(counts: Mapping[str, Any]) -> str:
    """Say how many records were refused for which reasons, if they are a tenth or more; ``""`` if fewer. Filters do not count."""
    reasons = {reason: count for reason, count in counts.get("refused", {}).items() if not reason.startswith(_ASKED_FOR[:2])}
    refused, read = sum(reasons.values()), counts.get("read", 0)
    if not refused or refused < MANY * read:
        return ""
    listed = ", ".join(f"{reason} {count:,}" for reason, count in sorted(reasons.items(), key=lambda entry: -entry[1]))
    return f"{refused:,} of {read:,} records ({refused / read:.0%}) are refused: {listed}"


def require_a_row_of_each(
    sources: Mapping[str, Any], refused: Mapping[str, int], quarantine: Path, *, shared: bool, whole: bool = False
) -> None:
    """Raise for a file of which every row was rejected, unless the configuration asked for it, or it is one record alone.

    Args:
        sources: the content of the raw store.
        refused: records by reason.
        shared: whether other domains read rows of the same files. Rows that cannot be read belong to all of them.
        whole: whether each file is one record, so that one that is cut is a record that cannot be read.

    Raises:
        SourceError: names the file, the reasons and, if its rows show it, what the file is.
    """
    rows = {entry["name"]: entry["rows"] for role in ("files", "test_files") for entry in sources[role]}
    wrong = {reason for reason in refused if not reason.startswith(_ASKED_FOR)}
    if sum(refused[reason] for reason in wrong) < min(rows.values(), default=1):
        return
    left, reasons, first = Counter(rows), defaultdict[str, Counter[str]](Counter), dict[str, Refusal]()
    for refusal in read_quarantine(quarantine):
        name, reason = refusal.id.rpartition(":")[0], f"{refusal.stage}/{refusal.reason}"
        left[name] -= 1
        if reason in wrong:
            reasons[name][reason] += 1
            first.setdefault(name, refusal)
    for name, counted in reasons.items():
        found = of_row(first[name].payload, rows[name]) if first[name].stage == "records" else None
        by_reading = first[name].stage == "records"
        if left[name] or (shared and by_reading and not found) or (counted.total() == 1 and (whole or not by_reading)):
            continue
        listed = ", ".join(f"{reason} {count:,}" for reason, count in counted.most_common())
        what, remedy = found or (f"the first one, {first[name].id}: {first[name].detail}", "Correct the file, or leave it out")
        raise SourceError(f"{name}: none of its {rows[name]:,} rows can be used ({listed}); {'it ' if found else ''}{what}. {remedy}")


def all_refused(read: int, refusals: Iterable[Refusal]) -> str:
    """The error message if all records were rejected: counts by reason, and the first record of the most frequent one."""
    counts, first = Counter[str](), dict[str, Refusal]()
    for refusal in refusals:
        reason = f"{refusal.stage}/{refusal.reason}"
        counts[reason] += 1
        first.setdefault(reason, refusal)
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(counts.items()))
    message = f"all {read:,} records were refused ({reasons})."
    if not counts:
        return message
    example = first[(reason_of_most := counts.most_common(1)[0][0])]
    if example.stage == "records" and (found := of_row(example.payload, read)):
        return f"{message} {example.id.rpartition(':')[0]} {found[0]}. {found[1]}"
    subject = f"The first one of {reason_of_most}" if len(counts) > 1 else "The first one"
    return f"{message} {subject}, {example.id}: {example.detail}"


# Declarations of assets. Each file in `graph/` lists those of a family in `ASSETS`; `prep_assets.graph.graph` collects them.

T = TypeVar("T")
Column = tuple[str, str, str]
"""Name, type and description of a column."""


class Stream(Struct, frozen=True):
    """A named part of a store.

    Attributes:
        schema: of the table that it opens as.
        stem: file stem, with ``{partition}`` for the domain; `None`: the whole store.
        masked: whether it is a token stream with a loss mask.
        held_out: whether it has the lines that are held out, beside a stream of those to train on.
        column: lines that have it stand here; empty: those that stand in no other stream.
        several: whether a row may give several of its lines.
    """

    schema: Schema
    stem: str | None
    masked: bool = False
    held_out: bool = False
    column: str = ""
    several: bool = False

    @property
    def counted(self) -> str:
        """The count of its lines in a manifest: ``train`` or ``test``, with the name of its file for lines told by a column."""
        split = "test" if self.held_out else "train"
        return f"{str(self.stem).removesuffix('_test')}_{split}" if self.column else split


# What an asset is given by other files: the lines of its rows, what encodes lines, and why its rows are rejected.

RowForm = Literal["text", "messages"]
Line = Callable[[RowForm], Mapping[str, Any] | list[dict[str, Any]]]
"""Gives the line of an example in a form, or several lines, or raises `Refused`."""
LineOf = Callable[[AnyExample], tuple[AnyExample, Line]]
"""The content of an item → the example as it is written, with reasoning read, and its line; or raises `Refused`."""
Reasons = Callable[[Sequence[Item]], Sequence[str]]
"""Items → why the family rejects each, ``stage/reason: detail``; ``""`` for none."""


class Contradiction(Struct, frozen=True):
    """What several lines of a domain may say of one thing, such as the label of an answer: none stands beside one that says otherwise.

    Attributes:
        columns: where a line says it; all other columns are what it is about.
        said: line → what it says, as it is compared; `None`: nothing.
        rejection: line → why it is rejected where another one says otherwise.
    """

    columns: tuple[str, ...]
    said: Callable[[Mapping[str, Any]], str | None]
    rejection: Callable[[Mapping[str, Any]], Refused]


Content = Callable[[Mapping[str, Any]], bytes]
"""Fields of a row → the bytes whose hash decides whether it is held out."""


class LineEncoder(Protocol):
    """Tokenizes lines of one form."""

    def encode(
        self, batch: Sequence[dict[str, Any]], first: int, quarantine: Quarantine, *, name: str
    ) -> tuple[Sequence[int], Sequence[tuple[Mapping[str, npt.NDArray[Any]], npt.NDArray[np.int64], int]]]:
        """Tokenize lines of the file `name`. Returns the indices of the kept lines, and per stream its arrays, record lengths and the number of truncated
        tokens. Rejected lines are in quarantine."""

    def rendered(self, line: Mapping[str, Any], stream: str) -> tuple[Encoder, Rendered]:
        """A line as it is tokenized in a stream, and what tokenizes it; or raises `Refused`."""


class Corruptions(Struct, frozen=True, eq=False):
    """What checks must catch: the rows that they judge (`by_stream`: those of each stream), the `Mutation`s of a list of the first of them, and how each check
    judges them."""

    rows: Callable[[Store], Iterable[Any]]
    mutations: tuple[Any, ...]
    judges: Mapping[str, Callable[[Any], Verdict]]
    by_stream: bool = False


class Check(Struct, frozen=True):
    """A check of one asset.

    Attributes:
        name: its name in Dagster and on the command line.
        description: what holds when it passes.
        run: gives the verdict on a published store.
        derived: how the store is derived a second time, for checks that do so, see `Derivation`; all of them share one reading of its source.
        corruptions: what a check of another package must catch; ours are those of their asset, or in `prep_assets.extensions.selftest.mutations`.
    """

    name: str
    description: str
    run: Callable[[Store], Verdict]
    derived: Callable[[Store], Any] | None = None
    corruptions: Corruptions | None = None


class Shown(Struct, frozen=True):
    """A sequence of a record, as it is explained token by token: a render, which says why each token is trained.

    Attributes:
        encoder, rendered: what tokenizes it, and its text.
        continues: whether its first tokens are those of the first sequence of the record, which it leaves out.
    """

    encoder: Encoder
    rendered: Rendered
    continues: bool = False


class Given(Struct, frozen=True):
    """A sequence of ids that the source has.

    Attributes:
        ids: the ids.
        whys: of each, whether it is trained, why, and whose it is.
    """

    ids: Sequence[int]
    whys: Sequence[tuple[bool, str, str]]


Sequences = Callable[[Item], Sequence[Shown | Given]]
"""An item → its sequences, in the order of the store; or raises `Refused`."""
Conversations = Callable[[Mapping[str, Any]], Sequence[tuple[Sample, bool]]]
"""Fields of a row, or a line → what a template renders of it, and whether each ends with the generation prompt; raises where it cannot tell."""


class FromRows(Struct, frozen=True):
    """The source of an asset made from rows of source files, with what its proofs need to read them a second time.

    Attributes:
        gives: the form that a schema makes of a row.
        judge: derives a second time why the asset rejects rows; see `Reasons`.
        content: the content that decides whether a row is held out, where the store does not hold it.
        plain: whether a prompt of one user turn is compared as text, whatever form the store has.
        line: workspace → what makes lines of examples, for a store of lines.
        lists: columns of such lines whose lengths are counted.
        counts: what else is counted: count → how much of it a line has.
        uncounted: what is counted of examples, and stands in no line: count → how much of it an example has.
        contradiction: what no two lines may say of one thing.
        rendered: store → what a template renders of a row, to judge rejected rows; `None`: nothing.
        sequences: workspace and domain → the sequences of a record.
        oracles: stage, or stage and reason → store → what derives such a rejection again from reason and row, as `checks.rejections` says.
    """

    gives: type
    judge: Callable[[Store], Reasons]
    content: Callable[[Store], Content]
    plain: bool = False
    line: Callable[[Workspace], LineOf] | None = None
    lists: tuple[str, ...] = ()
    counts: Mapping[str, Callable[[Mapping[str, Any]], int]] = field(default_factory=dict)
    uncounted: Mapping[str, Callable[[AnyExample], int]] = field(default_factory=dict)
    contradiction: Contradiction | None = None
    rendered: Callable[[Store], Conversations] | None = None
    sequences: Callable[[Workspace, str], Sequences] | None = None
    oracles: Mapping[str, Callable[[Store], Callable[[str, Mapping[str, Any]], str | None]]] = field(default_factory=dict)


class FromLines(Struct, frozen=True):
    """The source of an asset made from lines of JSONL stores of the same partition.

    Attributes:
        files: stream → the asset and the file whose lines it holds.
        encoder: workspace → what tokenizes the lines.
        gives: what a line is: a `Pair` or a `Prompt`.
        rendered: as of `FromRows`, of a line.
    """

    files: Mapping[str, tuple[str, str]]
    encoder: Callable[[Workspace], LineEncoder]
    gives: type
    rendered: Callable[[Store], Conversations] | None = None


class Generated(Struct, frozen=True):
    """The source of an asset whose lines are made from options.

    Attributes:
        lines: workspace → the lines, in order.
    """

    lines: Callable[[Workspace], Iterator[Mapping[str, Any]]]


class FromParts(Struct, frozen=True):
    """The source of an asset that merges stores.

    Attributes:
        assets: the assets whose stores it merges; the first has one per domain.
        lines: token stream → the asset and the file of merged lines whose order it follows. Other streams are copied from one store.
        counts: of lines, beside those of files: what is counted of the parts.
    """

    assets: tuple[str, ...]
    lines: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    counts: tuple[str, ...] = ()


def _all_domains(family: Any) -> Sequence[str]:
    return sorted(family.domains)


class Asset(Struct, frozen=True, kw_only=True, eq=False):
    """One node of the graph.

    Attributes:
        name: its asset key, and the folder of its stores.
        family: the family whose configuration it reads.
        description: Markdown; its first line is short.
        write: writes the payload, and rejected records into quarantine → counts and metrics.
        inputs: (key in the recipe, asset) for the assets whose stores it reads; the key is empty for one that other inputs depend on. Assets with the same
            key are listed by name.
        depends: workspace and partition → the recipe apart from its inputs; `None`: taken from `options`.
        partitioned: whether each domain is a partition.
        options: options of the family, dotted, that its recipe depends on, apart from those of domains.
        checks: what must hold before a store of it is published.
        promises: what a manifest says that they prove.
        in_parts: whether checks that derive the store a second time run on parts of a large store.
        streams: its parts by name; the first is the default for exports.
        source: where its records come from; `None` if they are made from whole stores.
        domains: the family's configuration → the domains that it reads.
        absent: why a configuration does not have it, empty if it does; `None`: every configuration of the family has it.
        reads: further assets whose stores it reads, in all their partitions; `depends` has their contents.
        before: workspace and partition → other partitions of the same asset that it reads; none of them reads this one.
        feeds: whether the bytes of what reads it depend on it; `None`: they do. Where they do not, it only decides whether they are built.
        may_be_empty: workspace and partition → whether a store without records is valid.
        stage: its name in the recipe, if another.
        kind: icon in the web UI.
        columns: columns of its store, for the web UI.
        corruptions: what its own checks must catch; `prep-assets selftest` tries it.
        added: what other packages add to it → package, version and hash of the code. Part of the recipe.
    """

    name: str
    family: str
    description: str
    write: Callable[[Target, Quarantine], Draft]
    checks: tuple[Check, ...]
    promises: tuple[str, ...] = ()
    inputs: tuple[tuple[str, Asset], ...] = ()
    depends: Callable[[Workspace, str], Mapping[str, Any]] | None = None
    in_parts: bool = False
    partitioned: bool = False
    options: tuple[str, ...] = ()
    streams: Mapping[str, Stream] = field(default_factory=dict)
    source: FromRows | FromLines | FromParts | Generated | None = None
    domains: Callable[[Any], Sequence[str]] = _all_domains
    absent: Callable[[Workspace], str] | None = None
    reads: Callable[[Workspace], Sequence[str]] = lambda workspace: ()
    before: Callable[[Workspace, str], Sequence[str]] = lambda workspace, partition: ()
    feeds: Callable[[Workspace], bool] | None = None
    may_be_empty: Callable[[Workspace, str], bool] = lambda workspace, partition: False
    stage: str = ""
    kind: str = "numpy"
    columns: tuple[Column, ...] = ()
    corruptions: tuple[Corruptions, ...] = ()
    added: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """Its code version."""
        return VERSIONS.get(self.stage, "1") if self.stage else FAMILIES[self.family].code_version

    def upstream(self, workspace: Workspace) -> tuple[str, ...]:
        """The assets whose stores it reads, of those that the configuration has."""
        return (*(above.name for _, above in self.inputs_in(workspace)), *self.reads(workspace))

    def made_of(self, recipe: Mapping[str, Any]) -> tuple[str, ...]:
        """The assets whose stores a store of this recipe was made from."""
        return tuple(above.name for key, above in self.inputs if not key or key in recipe)

    def inputs_in(self, workspace: Workspace) -> tuple[tuple[str, Asset], ...]:
        """Its `inputs`, of those that the configuration has."""
        return tuple(entry for entry in self.inputs if not (entry[1].absent and entry[1].absent(workspace)))

    def partitions(self, workspace: Workspace) -> tuple[str, ...]:
        """Its partitions, in the order of the configuration; ``("",)`` if it is not partitioned."""
        if not self.partitioned:
            return ("",)
        family = workspace.family(FAMILIES[self.family])
        read = set(self.domains(family))
        return tuple(name for name in family.domains if name in read)

    def stems(self, partition: str) -> dict[str, str]:
        """Token stream → file stem."""
        streams = self.streams.items()
        return {name: stream.stem.format(partition=partition) for name, stream in streams if stream.schema.fits(TOKENS) and stream.stem}

    def schema_of(self, stem: str, partition: str) -> Schema:
        """The schema that it declares for files of a stem; of undeclared ones, tokens."""
        named = (stream for stream in self.streams.values() if stream.stem and stream.stem.format(partition=partition) == stem)
        return next((stream.schema for stream in named), TOKENS)

    def holds(self, schema: Schema) -> bool:
        """Whether it has a stream that fits a schema."""
        return any(stream.schema.fits(schema) for stream in self.streams.values())

    @property
    def parts(self) -> str:
        """The asset whose stores per domain it merges; empty if it merges none."""
        return self.source.assets[0] if isinstance(self.source, FromParts) else ""

    def recipe(self, workspace: Workspace, partition: str) -> dict[str, Any]:
        """Everything that can change a store's bytes: inputs by content hash, options, versions."""
        family = workspace.family(FAMILIES[self.family])
        recipe: dict[str, Any] = {"stage": self.stage or self.name, "version": self.version}
        if self.added:
            recipe["added"] = dict(self.added)
        if isinstance(self.source, FromRows | FromLines) and partition:
            recipe["domain"] = partition
        if isinstance(self.source, FromRows):
            recipe |= reading_recipe(domain_of(family, partition), attended=self.source.gives is Sample)
        inputs = self.inputs_in(workspace)
        keys = [key for key, _ in inputs]
        for key, above in inputs:
            if not key or (above.feeds and not above.feeds(workspace)):
                continue
            if above.partitioned and not self.partitioned:
                content: Any = {name: workspace.content(above.name, name) for name in self.domains(family)}
            else:
                content = workspace.content(above.name, partition if above.partitioned else "")
            recipe[key] = {**recipe.get(key, {}), above.name: content} if keys.count(key) > 1 else content
        if self.depends is not None:
            return {**recipe, **self.depends(workspace, partition)}
        return {**recipe, **workspace.once(("options of", self.name), lambda: option_recipe(workspace, family, self.options))}

    def contents(self, partition: str, recipe: Mapping[str, Any]) -> dict[tuple[str, str], str]:
        """Asset and partition → content hash, of the stores that a recipe names as its inputs."""
        inputs = [(key, above) for key, above in self.inputs if key in recipe]
        keys, contents = [key for key, _ in inputs], dict[tuple[str, str], str]()
        for key, above in inputs:
            content = recipe[key].get(above.name) if keys.count(key) > 1 else recipe[key]
            by_partition = content if isinstance(content, Mapping) else {partition if above.partitioned else "": content}
            contents |= {(above.name, name): each for name, each in by_partition.items() if each is not None}
        return contents

    def build(self, workspace: Workspace, partition: str) -> Build:
        """The build of one store."""
        recipe = self.recipe(workspace, partition)
        return Build(self, workspace, partition, recipe, self.recipe(workspace.plain, partition) if workspace.overrides else recipe)


# Options in recipes.


def option_recipe(workspace: Workspace, family: Family, options: Sequence[str]) -> dict[str, Any]:
    """The options of a recipe: tokenizer, template and image options by what they resolve to, all others by value.

    Single options of `preprocessing` are lifted to the top level.
    """
    recipe: dict[str, Any] = {}
    if "tokenizer" in options:
        recipe["tokenizer"] = tokenizer_recipe(workspace, family)
    if "template" in options and isinstance(family, Chat):
        recipe["template"] = workspace.template(family).hash
    resolved = {*TEMPLATE, *chain.from_iterable(MEDIA.values())}
    recipe |= record_files()(workspace, family).recipe() if {*options} & resolved - {*TEMPLATE} else {}
    plain = [option.partition(".") for option in options if option not in resolved]
    parts = {name: {part for whole, _, part in plain if whole == name} for name, *_ in plain}
    values = family.model_dump(include={name: True if "" in fields else fields for name, fields in parts.items()})
    lifted = values.pop("preprocessing") if parts.get("preprocessing", {""}) - {""} else {}
    return {**recipe, **lifted, **values}


def tokenizer_recipe(workspace: Workspace, family: Family) -> dict[str, Any]:
    """What token ids depend on: the tokenizer's hash and loader, the engine, and the version of `tokenizers`."""
    loader = "file" if family.tokenizer_loader == "auto" else family.tokenizer_loader
    vocabulary = workspace.vocabulary(family)
    padded = {} if family.pad_vocab_to is None else {"pad_vocab_to": vocabulary_size(family, vocabulary)}
    # WordPiece and Unigram versions: typed control tokens (or 2: byte tokens) are text, and unknown characters reject their record
    model = vocabulary.frame["model"]
    pieces = {"pieces": 2 if model.get("byte_fallback") else 1} if model["type"] != "BPE" else {}
    return {
        "sha256": vocabulary.hash,
        "loader": loader,
        "tokenizers": installed_version("tokenizers"),
        "engine": family.engine,
        **padded,
        **pieces,
    }


def vocabulary_size(family: Family, vocabulary: Vocabulary) -> int:
    """Number of ids of the model: the tokenizer's size, or more if `pad_vocab_to` is set.

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


END = 1 << 62
"""Greater than the place of any row."""


class StorePart(Struct, frozen=True):
    """Consecutive rows of a domain.

    Attributes:
        stretches: of the files of the domain.
        begin, end: places of the first row and of the first one after the part, see `places`; 0 and `END` at the ends of the domain.
    """

    stretches: tuple[Stretch, ...]
    begin: int
    end: int

    def rows_end(self, stretch: Stretch) -> int | None:
        """Return the number of the row after a stretch; `None` where it reaches the end of its file."""
        return None if stretch.part.stop is None else self.end & ((1 << 40) - 1)

    def records_of(self, table: Table) -> Table:
        """Return the records of a stream that come from this part, with the images of all. Even out of order, each record belongs to exactly one
        part."""
        file, row = table.origins.file, table.origins.row

        def first(place: int) -> int:
            return bisect_left(range(len(table)), place, key=lambda at: int(places(file[at], row[at])))

        return table.some(slice(first(self.begin) if self.begin else 0, len(table) if self.end == END else first(self.end)))


class Store(Struct, frozen=True):
    """A published store with its asset and workspace: the input of checks and the selftest.

    Attributes:
        part: the records to look at; `None`: all.
        kept: results that the proofs of several parts, and the checks of one run, share in one process, by name.
    """

    workspace: Workspace
    asset: Asset
    published: Published
    part: StorePart | None = None
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def manifest(self) -> Manifest:
        """Its manifest."""
        return self.published.manifest

    @property
    def recipe(self) -> Mapping[str, Any]:
        """Its recipe."""
        return self.manifest.recipe

    @property
    def partition(self) -> str:
        """Its domain; empty if its asset is not partitioned."""
        return self.manifest.partition

    @property
    def directory(self) -> Path:
        """The folder of its files."""
        return self.published.directory

    @property
    def family(self) -> Family:
        """The configuration that it was made from."""
        return self.workspace.family(FAMILIES[self.asset.family])

    @property
    def vocabulary(self) -> Vocabulary:
        """Its family's tokenizer."""
        return self.workspace.vocabulary(self.family)

    @property
    def raw(self) -> str:
        """The asset that pins the sources of its family."""
        return f"{self.asset.family}_raw"

    @property
    def domains(self) -> Sequence[str]:
        """The domains that it is made from, in the order of their numbers in the store."""
        return [self.partition] if self.partition else self.asset.domains(self.family)

    def holds(self, schema: Schema) -> bool:
        """Whether its asset has a stream that fits a schema."""
        return self.asset.holds(schema)

    def streams(self) -> dict[str, Table]:
        """Its streams, see `open_streams`; only the records of `part` if one is set."""
        whole, part = self.once("streams", lambda: open_streams(self.asset, self.published)), self.part
        return whole if part is None or not self.holds(TOKENS) else {name: part.records_of(table) for name, table in whole.items()}

    def lines_of(self, stem: str) -> Table:
        """One of its files of lines.

        Raises:
            StoreError: it is missing.
        """
        found = self.streams().get(stem)
        return open_stream(self.directory, stem) if found is None else found

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Compute a value for the first part or check, and share it with all later ones."""
        if name not in self.kept:
            self.kept[name] = make()
        shared: T = self.kept[name]
        return shared

    def above(self, asset: str, partition: str = "", content: str | None = None) -> Published:
        """A store that this one is made from.

        Args:
            content: the content hash that it had then; `None`: any.

        Raises:
            StoreError: it is gone, or was built again since; the message has the command that helps.
        """
        found = self.workspace.built(asset, partition)
        if content not in (None, found.manifest.content_hash):
            again = build_command(self.asset.name, self.partition)
            raise StoreError(f"{found.manifest.label} was built again since. Build {self.manifest.label} again: {again}")
        return found


def open_streams(asset: Asset, published: Published) -> dict[str, Table]:
    """The streams of a store by file stem, in the order of its asset, others alphabetically; of groups by split. None for raw stores and exports."""
    folder, partition = published.directory, published.manifest.partition
    declared, by_turns = [*asset.stems(partition).values()], published.manifest.recipe.get("expand") == "turns"
    several = {stream.stem for stream in asset.streams.values() if stream.several}
    tables = dict[str, Table]()
    for name in sorted(stream_names(folder) if asset.streams else (), key=lambda name: declared.index(name) if name in declared else 0):
        table = open_table(folder, name, partition, schema=asset.schema_of(name, partition))
        tables[name] = replace(table, origins=structs.replace(table.origins, several=by_turns or name in several))
    return tables
