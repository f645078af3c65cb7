"""What an asset is: its code version, columns and options, how its stores are built; `graph/` has one file for each family."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from prep_assets.caches import bounded_cache
from prep_assets.config.family import Chat, Family
from prep_assets.config.models import FAMILIES
from prep_assets.data.quarantine import Quarantine, Refusal, read_quarantine
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.pipeline.examples import reading_recipe
from prep_assets.pipeline.sources import domain_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Sample
from prep_assets.stores.manifest import Manifest, build_key, differences
from prep_assets.stores.published import Draft
from prep_assets.stores.tokens import TokenStore, open_tokens
from prep_assets.stores.version_folders import Published
from prep_assets.text.agreement import ComparedEngine
from prep_assets.text.engines import RoutedEngine
from prep_assets.text.vocabulary import Vocabulary
from prep_assets.workers.pool import rare_collections

if TYPE_CHECKING:
    from prep_assets.checks.of_stores import Kind, Reasons
    from prep_assets.checks.sources_again import Content, Part
    from prep_assets.graph.previews import Preview
    from prep_assets.proofs.second_reading import MessageFields
    from prep_assets.proofs.selection import Again

VERSIONS = {"raw": "3", "pretrain": "7", "sft": "8", "preference": "11", "rl": "7", "contrastive": "3", "export": "5"}
"""Code version of the assets of a family; of `raw` and `export`, those of all families. It counts up when the same input gives other bytes."""


# Columns of stores, as the web UI shows them: name, type, description.

SOURCE_COLUMNS = (
    ("name", "string", "Path within the domain, the same on every machine."),
    ("size", "int64", "Bytes as stored."),
    ("sha256", "string", "Content hash."),
    ("rows", "int64", "Rows, readable or not."),
)
TOKEN_COLUMNS = (("tokens", "int32[T]", "Token ids of all records, end to end."),)
MASKED_TOKEN_COLUMNS = (*TOKEN_COLUMNS, ("loss_mask", "uint8[T]", "Loss weight of each token: 1 is trained, 0 is not."))
PACKED_COLUMNS = (
    ("tokens", "int32[N, row_len]", "Token ids; padding at the end of a row."),
    ("loss_mask", "int8[N, row_len]", "1 where a token is trained."),
    ("documents", "table", "row, row_offset, length, source, record, start of each piece of a document."),
)
PAIR_COLUMNS = (
    ("prompt", "string", "What both answers reply to."),
    ("chosen", "string", "The preferred answer."),
    ("rejected", "string", "The other answer."),
)
CONTRAST_COLUMNS = (
    ("query", "string", "What is asked."),
    ("positives", "list of string", "Texts that belong to it."),
    ("negatives", "list of string", "Texts that do not."),
)
PROMPT_COLUMNS = (("prompt", "string", "The question."), ("gold", "float64", "The right answer."))
GROUP_COLUMNS = (
    ("prompts", "int32[P]", "Token ids of the prompt, ended by the generation prompt."),
    ("responses", "list of int32[R]", "Token ids of each response."),
    ("masks", "list of uint8[R]", "1 where a token of a response is trained."),
    ("rewards", "float32[G]", "The reward of each response."),
)


# Options of a family that several of its assets depend on.

PUBLISHED = ("tokenizer", "tokenizer_revision", "tokenizer_loader", "tokenizer_class")
TOKENIZER = (*PUBLISHED, "pad_vocab_to")
REASONING = ("reasoning", "reasoning_tags")
TEMPLATE = (*TOKENIZER, "template", "template_options", "training_template")
IMAGES = ("image_token", "image_patches", "image_tokens")


# A build: everything that decides a store's bytes, and the function that writes them.


class NeedsMore(Exception):
    """What was read needs more than the store that is being written can hold, so that it is written from the start again.

    Attributes:
        needed: what it needs, by name: see `Target.needed`.
    """

    def __init__(self, needed: Mapping[str, str]) -> None:
        super().__init__(needed)
        self.needed = needed


@dataclass(frozen=True, slots=True)
class Target:
    """A store that is being written.

    Attributes:
        workspace, asset, partition: which store it is.
        payload: its folder.
        needed: what its rows need beyond the plain form: arrays of tokens with their dtypes, or ``{"form": "messages"}`` of lines.
    """

    workspace: Workspace
    asset: Asset
    partition: str
    payload: Path
    needed: Mapping[str, str] = field(default_factory=dict)

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
        """Stems of the files of its token streams, those of ``dev`` only where anything is held out."""
        held_out = holds_out(self.family, [self.partition] if self.partition else ())
        return [stem for name, stem in self.asset.stems(self.partition).items() if name != "dev" or held_out]


def holds_out(family: Family, domains: Iterable[str]) -> bool:
    """Whether anything of some domains may be held out."""
    return bool(getattr(family, "test_fraction", 0) > 0 or any(domain_of(family, name).test_files for name in domains))


@dataclass(frozen=True, slots=True)
class Build:
    """How to make one store.

    Attributes:
        asset, workspace, partition: which store it is, and the options of this run.
        recipe: everything that can change its bytes, as JSON.
        plain_recipe: the recipe without the options of this run.
    """

    asset: Asset
    workspace: Workspace
    partition: str
    recipe: dict[str, Any]
    plain_recipe: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The build key."""
        return build_key(self.recipe)

    @property
    def overrides(self) -> tuple[str, ...]:
        """What this run's options change in the recipe, e.g. ``packing.row_len``; nothing where the file says the same."""
        return differences(self.plain_recipe, self.recipe)

    def propose(self, *, draft: bool = False, again: bool = False) -> Published:
        """Write and audit; or find that the store is already there. It is not current before `place.accept` makes it so."""
        place = self.workspace.place(self.asset.name, self.partition)
        try:
            with rare_collections():
                return place.propose(
                    self.key,
                    self._write,
                    config_key=build_key(self.plain_recipe),
                    recipe=self.recipe,
                    audit=lambda payload: self.asset.audit(Target(self.workspace, self.asset, self.partition, payload)),
                    options=self.workspace.overrides.get(self.asset.family, {}) if self.overrides else None,
                    draft=draft,
                    again=again,
                )
        except PrepAssetsError as error:
            raise type(error)(f"{place.label}: {error}") from error

    def _write(self, payload: Path, refused: Path) -> Draft:
        needed: dict[str, str] = {}
        while True:
            try:
                with Quarantine(refused) as quarantine:
                    draft = self.asset.write(Target(self.workspace, self.asset, self.partition, payload, needed), quarantine)
                    counts = {**draft.counts, "refused": quarantine.counts} if "read" in draft.counts else draft.counts
                break
            except NeedsMore as more:
                needed |= more.needed
                refused.unlink(missing_ok=True)
                for leftover in payload.iterdir():
                    shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        if counts.get("read") == 0 and not self.asset.may_be_empty(self.workspace, self.partition):
            raise PrepAssetsError("there is nothing to build from: what it reads holds no record. Add sources, or hold out a smaller share")
        if counts.get("read") and not counts.get("kept"):
            raise PrepAssetsError(all_refused(counts["read"], read_quarantine(refused)))
        return replace(draft, counts=counts)


def all_refused(read: int, refusals: Iterable[Refusal]) -> str:
    """The message where all records were refused: how many for which reason, and the first refusal of the most frequent one."""
    counts, first = Counter[str](), dict[str, Refusal]()
    for each in refusals:
        reason = f"{each.stage}/{each.reason}"
        counts[reason] += 1
        first.setdefault(reason, each)
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(counts.items()))
    message = f"all {read:,} records were refused ({reasons})."
    if not counts:
        return message
    example = first[(most := counts.most_common(1)[0][0])]
    which = f"The first one of {most}" if len(counts) > 1 else "The first one"
    return f"{message} {which}, {example.id}: {example.detail}"


# What an asset is. `graph/` has a file for each family, which lists its own in `ASSETS`; `prep_assets.graph.graph` collects them.

T = TypeVar("T")
Column = tuple[str, str, str]
"""Name, type and description of a column."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A part of a store that has a name.

    Attributes:
        kind: what it opens as: `TokenStore`, `PackedStore`, `Lines`, `Pairs` or `GroupStore`.
        stem: of its files, with ``{partition}`` for the domain; `None`: the store as a whole.
        masked: whether it is a token stream with a loss mask.
    """

    kind: type
    stem: str | None
    masked: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one asset.

    Attributes:
        name: what it is called in Dagster and on the command line.
        description: what holds when it passes.
        run: looks at a published store.
        derived: how the store is derived anew, where the check comes of that, see `Derivation`; all such checks come of one reading of its source.
    """

    name: str
    description: str
    run: Callable[[Store], Verdict]
    derived: Kind | None = None


@dataclass(frozen=True, slots=True)
class FromRows:
    """An asset whose records are rows of source files: what its proofs must know to read those a second time.

    Attributes:
        gives: the form that a schema makes of a row.
        judge: looks at rows again, and says why the asset refuses each; see `Reasons`.
        content: what decides whether a row is held out, where the store itself does not say.
        plain: whether a prompt of one user turn counts as its text, in whichever form the store has it.
    """

    gives: type
    judge: Callable[[Store], Reasons]
    content: Callable[[Store], Content]
    plain: bool = False


@dataclass(frozen=True, slots=True)
class FromLines:
    """An asset whose records are lines of JSONL stores of the same partition.

    Attributes:
        files: stream → the asset and the file whose lines it holds.
        again: looks at one line alone, and says why it is refused.
        columns: how lines are written that may be read into columns; `None` where none are.
    """

    files: Mapping[str, tuple[str, str]]
    again: Callable[[Store], Again]
    columns: MessageFields | None = None


@dataclass(frozen=True, slots=True)
class FromParts:
    """An asset that merges stores: its records are all of theirs.

    Attributes:
        assets: whose stores it merges; the first has one for each domain.
        lines: stream of tokens → the asset and the file of merged lines whose order it has. Others are one store's as they are.
    """

    assets: tuple[str, ...]
    lines: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def _all_domains(family: Any) -> Sequence[str]:
    return sorted(family.domains)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asset:
    """One node of the graph.

    Attributes:
        name: its asset key, and the folder of its stores.
        family: whose configuration it reads.
        description: Markdown; its first line is short.
        write: writes its payload, and refused records into quarantine → counts and metrics of what it wrote.
        audit: structural checks on what was written; raises to forbid publication.
        inputs: the assets whose stores it reads, each with its key in the recipe; without a key where others of them depend on it. Two with one key
            stand there by their names.
        depends: workspace and partition → what its recipe says beside its inputs; `None`: what its options say.
        partitioned: whether each domain is a partition.
        options: what of the family's configuration its recipe depends on, dotted, apart from what one domain says.
        checks: what must hold before a store of it is published.
        in_parts: whether those of them that derive the store anew are carried out in parts of a large store.
        preview: store, row, stream, tokens at most → a row of it; `None` where it has no rows.
        streams: its parts by name; the first is what is shown and exported where none is named.
        source: where its records come from; `None` where they are generated, or made of whole stores.
        domains: of the family's configuration, the domains that it reads.
        absent: why a configuration does not have it, empty where it has; `None`: every configuration of the family has it.
        may_be_empty: workspace and partition → whether a store for which nothing was read is sound.
        stage: what its recipe calls it, if not by its name.
        kind: icon in the web UI.
        columns: of its store, for the web UI.
    """

    name: str
    family: str
    description: str
    write: Callable[[Target, Quarantine], Draft]
    checks: tuple[Check, ...]
    audit: Callable[[Target], None] = lambda target: None
    inputs: tuple[tuple[str, Asset], ...] = ()
    depends: Callable[[Workspace, str], Mapping[str, Any]] | None = None
    in_parts: bool = False
    partitioned: bool = False
    options: tuple[str, ...] = ()
    preview: Callable[[Store, int, str | None, int], Preview | dict[str, Any]] | None = None
    streams: Mapping[str, Stream] = field(default_factory=dict)
    source: FromRows | FromLines | FromParts | None = None
    domains: Callable[[Any], Sequence[str]] = _all_domains
    absent: Callable[[Workspace], str] | None = None
    may_be_empty: Callable[[Workspace, str], bool] = lambda workspace, partition: False
    stage: str = ""
    kind: str = "numpy"
    columns: tuple[Column, ...] = ()

    @property
    def version(self) -> str:
        """Its code version."""
        return VERSIONS[self.stage or self.family]

    @property
    def upstream(self) -> tuple[str, ...]:
        """The assets whose stores it reads."""
        return tuple(above.name for _, above in self.inputs)

    def partitions(self, workspace: Workspace) -> tuple[str, ...]:
        """Its partitions, in the order of the configuration; ``("",)`` where it has none."""
        if not self.partitioned:
            return ("",)
        family = workspace.family(FAMILIES[self.family])
        read = set(self.domains(family))
        return tuple(name for name in family.domains if name in read)

    def stems(self, partition: str) -> dict[str, str]:
        """Stem of the files of each token stream, by its name."""
        streams = self.streams.items()
        return {name: stream.stem.format(partition=partition) for name, stream in streams if stream.kind is TokenStore and stream.stem}

    @property
    def parts(self) -> str:
        """The asset whose stores, one for each domain, it merges; empty where it merges none."""
        return self.source.assets[0] if isinstance(self.source, FromParts) else ""

    def recipe(self, workspace: Workspace, partition: str) -> dict[str, Any]:
        """Everything that can change the bytes of a store: inputs by content hash, options, versions."""
        family = workspace.family(FAMILIES[self.family])
        found: dict[str, Any] = {"stage": self.stage or self.name, "version": self.version}
        if isinstance(self.source, FromRows | FromLines) and partition:
            found["domain"] = partition
        if isinstance(self.source, FromRows):
            found |= reading_recipe(domain_of(family, partition), attended=self.source.gives is Sample)
        keys = [key for key, _ in self.inputs]
        for key, above in self.inputs:
            if not key:
                continue
            if above.partitioned and not self.partitioned:
                content: Any = {name: workspace.content(above.name, name) for name in self.domains(family)}
            else:
                content = workspace.content(above.name, partition if above.partitioned else "")
            found[key] = {**found.get(key, {}), above.name: content} if keys.count(key) > 1 else content
        more = option_recipe(workspace, family, self.options) if self.depends is None else self.depends(workspace, partition)
        return {**found, **more}

    def build(self, workspace: Workspace, partition: str) -> Build:
        """How to make one store."""
        return Build(self, workspace, partition, self.recipe(workspace, partition), self.recipe(workspace.plain, partition))


# What options say in a recipe.


def option_recipe(workspace: Workspace, family: Family, options: Sequence[str]) -> dict[str, Any]:
    """What a recipe says of options: of those of the tokenizer, the template and images what they lead to, of all others what they are.

    Of `preprocessing` in part its options stand by themselves.
    """
    found: dict[str, Any] = {}
    if "tokenizer" in options:
        found["tokenizer"] = tokenizer_recipe(workspace, family)
    if "template" in options and isinstance(family, Chat):
        found["template"] = workspace.template(family).hash
    if "image_tokens" in options and (rule := workspace.image_rule(family)):
        found["image_rule"] = rule.model_dump()
    plain = [option.partition(".") for option in options if option not in (*TEMPLATE, *IMAGES)]
    parts = {name: {part for whole, _, part in plain if whole == name} for name, *_ in plain}
    said = family.model_dump(include={name: True if "" in some else some for name, some in parts.items()})
    lifted = said.pop("preprocessing") if parts.get("preprocessing", {""}) - {""} else {}
    return {**found, **lifted, **said}


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


@dataclass(frozen=True, slots=True)
class Store:
    """A published store, with its asset and the workspace that it belongs to: what checks, previews and the selftest look at.

    Attributes:
        part: which of its records are looked at; `None`: all.
        kept: what the proof of one part leaves in this process for that of the next.
    """

    workspace: Workspace
    asset: Asset
    published: Published
    part: Part | None = None
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def manifest(self) -> Manifest:
        """What is written about it."""
        return self.published.manifest

    @property
    def recipe(self) -> Mapping[str, Any]:
        """What it was made from."""
        return self.manifest.recipe

    @property
    def partition(self) -> str:
        """Its domain; empty where it has none of its own."""
        return self.manifest.partition

    @property
    def directory(self) -> Path:
        """Where its files are."""
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
        """The domains that it is made from, in the order in which it numbers them."""
        return [self.partition] if self.partition else self.asset.domains(self.family)

    def holds(self, kind: type) -> bool:
        """Whether its asset has a stream of this kind."""
        return any(stream.kind is kind for stream in self.asset.streams.values())

    def streams(self) -> dict[str, TokenStore]:
        """The token streams that it has, by the stem of their files; of a part, its records in them."""
        if (part := self.part) is None:
            return token_streams(self.asset, self.published)
        whole = self.once("streams", lambda: token_streams(self.asset, self.published))
        return {name: part.records_of(stream) for name, stream in whole.items()}

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What is the same for all parts, made for the first of them."""
        if name not in self.kept:
            self.kept[name] = make()
        found: T = self.kept[name]
        return found

    def above(self, asset: str, partition: str = "") -> Published:
        """A store that this one is made from.

        Raises:
            StoreError: it is gone; the message has the command that builds it.
        """
        return self.workspace.built(asset, partition)

    def preview(self, row: int, *, stream: str | None = None, limit: int = 4096) -> Preview | dict[str, Any]:
        """A row: a `Preview` of tokens, or the JSON object of a line. Of each sequence at most `limit` tokens.

        Raises:
            ConfigError: there is no such row or stream, or the store has no rows to show.
        """
        if self.asset.preview is None:
            where = f"; look at the same ones in {self.recipe['from']}: prep-assets inspect {self.recipe['from']}"
            raise ConfigError(f"{self.asset.name} has rows in a trainer's format{where}" if "from" in self.recipe else "it has no rows")
        return self.asset.preview(self, row, stream, limit)


def token_streams(asset: Asset, published: Published) -> dict[str, TokenStore]:
    """The token streams that a store has, by the stem of their files."""
    stems = asset.stems(published.manifest.partition).values()
    return {stem: open_tokens(published.directory, stem) for stem in stems if (published.directory / f"{stem}.index").is_dir()}


# How many documents of a store are for the fast engine, and how many for the reference.
#
# A document is for the reference where a text of it is, by its characters alone (`RoutedEngine`): so the counts are the same whatever the size of blocks and
# the number of workers were, and of a store that was there already. They depend on the versions of both engines, which differ from machine to machine, so
# that no manifest holds them; they are counted when somebody looks.


def by_engine(store: Store, most: int) -> dict[str, int]:
    """Documents by the name of the engine; nothing of stores that have no token streams, or more than so many tokens."""
    streams = list(store.streams().values())
    documents = sum(map(len, streams))
    if not documents or sum(stream.tokens for stream in streams) > most:
        return {}
    engines = store.workspace.engines(store.family)
    # text after a control token has an engine of its own where a tokenizer begins only documents with a space
    each = [one.engine if isinstance(one, ComparedEngine) else one for one in dict.fromkeys((engines.first, engines.rest))]
    routed = [one for one in each if isinstance(one, RoutedEngine)]
    if len(routed) < len(each):
        return {engines.reference.name: documents}
    blocks = (texts for stream in streams for texts in _texts(stream, store.vocabulary))
    odd = sum(int(np.any([one.for_reference(texts) for one in routed], axis=0).sum()) for texts in blocks)
    return {engines.first.name: documents - odd, engines.reference.name: odd}


def _texts(stream: TokenStore, vocabulary: Vocabulary) -> Iterator[list[str]]:
    """The texts of a stream's documents, a line feed for each control token."""
    import pyarrow as pa

    control = set(vocabulary.control.values())
    table = pa.array([b"\n" if number in control else own for number, own in enumerate(vocabulary.token_bytes or ())], pa.large_binary())
    for records, tokens in stream.blocks():
        ids = np.asarray(stream.arrays["tokens"][tokens])
        found = table.take(pa.array(ids.astype(np.int64)))
        bounds, data = np.frombuffer(found.buffers()[1], np.int64), bytes(found.buffers()[2] or b"")
        ends = bounds[stream.ends[records] - tokens.start].tolist()
        yield [data[start:end].decode("utf-8", "ignore") for start, end in pairwise([0, *ends])]
