"""Parts of a family's configuration: domains, sections, options that exclude each other, and the base classes of families."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from math import lcm
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, field_validator, model_validator

from prep_assets import plugins
from prep_assets.config.base import (
    LONGEST,
    MOST,
    MOST_DOMAINS,
    MOST_EPOCHS,
    MOST_SEED,
    MOST_WORKERS,
    Model,
    NoOptions,
    Rule,
    apply_rule,
    options_of_media,
    younger,
)
from prep_assets.config.mask import MASK_RULES
from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT, PROMPT, SYSTEM, TOOL, USER, Sample, asked_of
from prep_assets.stores.lists import lists_of

# Domains: the data sets of a family, with their files and schemas.

DOMAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
RESERVED = ("current", "candidate", "draft", "damaged", "versions")
"""Names of folders inside a store, which no domain may have."""


def can_name_a_domain(name: str) -> bool:
    """Whether `name` is valid for a domain, which becomes a folder and a partition key."""
    return DOMAIN_NAME.fullmatch(name) is not None and ".." not in name and name not in RESERVED


def _domain_name(name: str) -> str:
    if not can_name_a_domain(name):
        raise ValueError(
            f"{name!r} cannot be a domain name: it becomes a folder and a partition key, so letters, digits, '_', '-' and '.' only, "
            f"no '..', at most 100 characters, and none of {', '.join(RESERVED)}"
        )
    return name


DomainName = Annotated[str, AfterValidator(_domain_name)]
Licence = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]*$", max_length=60)]
"""A lower-case identifier, as on the Hugging Face Hub."""


PrivateKind = Literal["email", "phone", "ip", "card", "iban", "national_id", "secret"]
"""A kind of private data, see `prep_assets.extensions.quality.redaction`."""


if TYPE_CHECKING:
    OfDomain = NoOptions
else:
    OfDomain = options_of_media("domain")


class Domain(OfDomain):
    """One data set."""

    files: tuple[str, ...] = Field(min_length=1)
    """Files, folders, globs or URLs, relative to this file."""
    schema_name: str = Field(alias="schema")
    """A schema's name, or 'package.module:function'."""
    options: dict[str, Any] = Field(default={})
    """Options of the schema."""
    test_files: tuple[str, ...] = ()
    """Held-out files."""
    format: str | None = None
    """File format, if not that of the suffix."""
    txt: Literal["line", "file"] = "line"
    """What one record of a .txt or .jsonl file is. A whole .jsonl file has the column lines, the objects of its lines."""
    domain_key: str | None = None
    """Field with the domain of a row."""
    domain_value: str | None = None
    """Value of `domain_key` in this domain's rows. null: its name."""
    domains: Literal["auto"] | None = None
    """auto: a domain for each value of `domain_key`, instead of this one."""
    max_domains: int = Field(default=100, ge=1, le=MOST_DOMAINS)
    """Most domains of `domains: auto`; more stop the build."""
    where: dict[str, Any] = Field(default={})
    """Only rows that match, e.g. {language: en}; others count as rejected."""
    max_items: int | None = Field(default=None, ge=1, le=MOST)
    """Use only so many records, the first that pass `where`."""
    ignore: tuple[str, ...] = ()
    """Fields to leave out, with dots for nested ones, e.g. [category, messages.score]; counted."""
    speaker_names: Literal["keep", "leave_out", "write"] = "keep"
    """The `name` of a message, unless a tool's: keep passes it to the template, which must show it; leave_out drops and counts it; write puts it before
    the text, `ann: …`."""
    redact: tuple[PrivateKind, ...] = ()
    """Private data to replace by placeholders such as <EMAIL_ADDRESS>, in every text of a row."""
    countries: tuple[Annotated[str, Field(pattern="^[A-Z]{2}$")], ...] | None = None
    """Countries whose phone numbers `redact` finds without +, e.g. [DE, US]. null: those of the row's language."""
    weigh: str | None = None
    """Your function 'package.module:function', from a Sample to the loss weights of its turns or regions."""
    tokenized_by: str | None = None
    """The tokenizer of token ids in rows, compared with the family's: its folder, relative to this file, or sha256:HEX of its tokenizer.json."""
    licence: Licence | None = None
    """Licence in the Hugging Face Hub's terms: mit, cc-by-4.0, other. null: unknown. Changes no byte."""
    licence_key: str | None = None
    """Field of a row that names its licence, with dots for nested ones, e.g. meta.license. null: all rows have `licence`. Changes no byte."""

    @property
    def reading(self) -> list[Any]:
        """The options that decide which examples the files give, for recipes. The content of the image folder is pinned with the files."""
        rows = [self.format, self.txt, self.where, self.max_items, self.domain_key, self.domain_value]
        extra_options = {
            "ignore": sorted(self.ignore),
            "forgotten": sorted(self._forgotten),
            "speaker_names": self.speaker_names if self.speaker_names != "keep" else None,
            "weigh": self.weigh,
            "tokenized_by": self.tokenized_by,
        }
        return [self.schema_name, self.options, *rows, *({name: value} for name, value in extra_options.items() if value)]

    def value(self, name: str) -> str:
        """The value of `domain_key` in the rows of this domain, called `name`."""
        return name if self.domain_value is None else self.domain_value

    _forgotten: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def forgotten(self) -> frozenset[str]:
        """Digests of permanently removed rows, see `prep_assets.config.loading`."""
        return self._forgotten

    def forgetting(self, digests: frozenset[str]) -> Domain:
        """A copy of the domain that leaves out the rows with these digests."""
        copy = self.model_copy()
        copy._forgotten = digests
        return copy


# Sections of several families: preprocessing, output, packing, exports, refresh, cluster.

StorageFormat = Literal["bin", "h5"]
EXPORT_NAME = re.compile(r"[A-Za-z0-9_]{1,60}")


def _export_name(name: str) -> str:
    if not EXPORT_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be an export's name: it becomes part of an asset key, so letters, digits and '_' only, at most 60"
        )
    return name


ExportName = Annotated[str, AfterValidator(_export_name)]


class Preprocessing(Model):
    """What happens to records on their way to tokens."""

    max_seq_len: int | None = Field(default=2048, ge=1, le=LONGEST)
    """Longest example in tokens; longer ones are rejected. null: no limit."""
    deduplicate: bool = True
    """Reject a record that equals an earlier one of its domain."""


class Fim(Model):
    """Fill-in-the-middle: a share of the documents is cut in three and written with the middle at the end."""

    rate: float = Field(default=0.0, ge=0, le=1)
    """Share of documents that are cut."""
    spm_rate: float = Field(default=0.5, ge=0, le=1)
    """Share of these in SPM order (end first); the others are PSM."""
    prefix_token: str = "<|fim_prefix|>"
    """The tokenizer's token before the beginning of the document."""
    suffix_token: str = "<|fim_suffix|>"
    """The one before its end."""
    middle_token: str = "<|fim_middle|>"
    """The one before its middle."""
    seed: int = Field(ge=-MOST_SEED, le=MOST_SEED, default=0)
    """Decides, with the record's id, whether and where to cut."""


class Documents(Preprocessing):
    """What happens to documents on their way to tokens: `preprocessing` of the pretrain family."""

    max_seq_len: int | None = Field(default=None, ge=1, le=LONGEST)
    """Longest document in tokens; longer ones are rejected. null: no limit."""
    min_chars: int = Field(default=1, ge=0, le=MOST)
    """Shortest document in characters."""
    max_chars: int | None = Field(default=None, ge=1, le=MOST)
    """Longest document in characters."""
    fim: Fim = younger(Fim())


class Decontaminate(Model):
    """Benchmarks that no record may hold a passage of."""

    files: tuple[str, ...] = ()
    """Files, folders, globs or URLs of benchmarks, relative to this file; every string in them counts."""
    words: int = Field(default=13, ge=8, le=1000)
    """Words of a passage; shorter texts, of 8 words or more, count whole."""


class Limits(Model):
    """What a metric may be."""

    min: float | None = Field(default=None, ge=-MOST, le=MOST)
    """Smallest value."""
    max: float | None = Field(default=None, ge=-MOST, le=MOST)
    """Largest value."""
    change: float | None = Field(default=None, ge=0, le=MOST)
    """Largest change against the last good build, as a share."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.min is None and self.max is None and self.change is None:
            raise ValueError("needs min, max or change")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}")
        return self


class Bound(Model):
    """The bounds of one metric."""

    warn: Limits | None = None
    """Limits outside of which the check warns."""
    block: Limits | None = None
    """Limits outside of which it fails, and nothing is published."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.warn is None and self.block is None:
            raise ValueError("needs warn or block")
        return self


class Quality(Model):
    """What is looked for in the texts of examples, see `prep_assets.extensions.quality`."""

    steps: dict[str, dict[str, Any]] = Field(default={})
    """Quality steps in order: a name or 'package.module:function', and options, among them action: drop (reject what it finds, the default), note (count
    it) or block (publish nothing)."""
    max_refused: dict[Annotated[str, Field(pattern=r"^(\*|[^/\s]+/[^/\s]+)$")], Annotated[float, Field(ge=0, le=1)]] = Field(default={})
    """Largest share of rejected records, by stage/reason, or * for all, e.g. {'*': 0.1, tokenize/too_long: 0.02}; beyond it nothing is published. Changes
    no byte."""
    bounds: dict[Annotated[str, Field(pattern=r"^\w+\.\S+$")], Bound] = Field(default={})
    """Bounds by asset.metric, e.g. {sft_tokens.tokens: {warn: {change: 0.1}, block: {min: 1000}}}. They change no byte."""
    licences: dict[Literal["allow"], Annotated[tuple[Licence, ...], Field(min_length=1)]] = Field(default={})
    """Licences that rows may have, by `licence_key` or `licence` of their domain, e.g. {allow: [mit, cc-by-4.0]}; with any other nothing is published.
    Changes no byte."""


class Output(Model):
    """How token stores are written."""

    storage_format: StorageFormat = "h5"
    """h5 (HDF5) or bin (memory-mapped files with a meta.json)."""
    dtype: Literal["auto", "uint16", "uint32", "int32", "int64"] = "int32"
    """Integer type of token ids. auto: the smallest that fits the vocabulary."""
    max_tokens_per_shard: int = Field(default=100_000_000, ge=1, le=MOST)
    """Most tokens in a shard of a bin store."""


class Align(Model):
    """How the trainer splits a row: each document takes places that it can split."""

    context_parallel: int = Field(default=1, ge=1, le=MOST_WORKERS)
    """Ranks that share a row (CP): with more than one, each document has a multiple of 2 × CP places."""
    tensor_parallel: int = Field(default=1, ge=1, le=MOST_WORKERS)
    """Ranks that share a layer (TP). It matters with sequence_parallel."""
    sequence_parallel: bool = False
    """Whether TP ranks share the places of a row too: a multiple of CP × TP places."""
    multiple_of: int = Field(default=1, ge=1, le=LONGEST)
    """A further multiple, such as NeMo-RL's make_sequence_length_divisible_by, or that of FP8."""

    def __repr__(self) -> str:
        return str(self.model_dump())

    @property
    def multiple(self) -> int:
        """The least number of places that all of it divides, by the rule of Megatron-Bridge (docs/training/packed-sequences.md)."""
        of_context = 2 * self.context_parallel if self.context_parallel > 1 else 1
        of_sequence = self.context_parallel * self.tensor_parallel if self.sequence_parallel and self.tensor_parallel > 1 else 1
        return lcm(of_context, of_sequence, self.multiple_of)


class Packing(Model):
    """How documents become rows of fixed length."""

    strategy: Literal["concat", "simple", "ffd", "bfd", "bfd_split"] = "concat"
    """How documents are placed in rows."""
    row_len: int = Field(default=1024, ge=2, le=LONGEST)
    """Tokens in a row."""
    seed: int = Field(ge=-MOST_SEED, le=MOST_SEED, default=42)
    """Seed of the shuffle over all domains."""
    shuffle: bool = True
    """Shuffle documents before packing. false: the order of domains and files."""
    tail: Literal["pad", "drop"] = "pad"
    """concat: pad the short last row, or drop it (counted)."""
    overlong: Literal["raise", "truncate", "drop", "split"] = "raise"
    """A document longer than a row, of simple, ffd and bfd."""
    weights: dict[str, Annotated[float, Field(ge=0, le=MOST)]] | None = None
    """Share of tokens by domain. null: everything once."""
    epochs: dict[str, Annotated[float, Field(ge=0, le=MOST_EPOCHS)]] | None = None
    """Passes over each domain; fractions take a part."""
    max_items: dict[str, Annotated[int, Field(ge=1, le=MOST)]] | None = None
    """Most records by domain."""
    buckets: tuple[Annotated[int, Field(ge=1, le=LONGEST)], ...] | None = younger(None)
    """Ascending lengths: documents up to the first, up to the second … never share a row."""
    align: Align | None = younger(None)
    """The trainer's topology: each document takes places that context and sequence parallelism can split. null: no padding between documents."""
    balance: int | None = younger(None, ge=2, le=MOST_WORKERS)
    """Ranks that train a row each at every step: rows of like work, the sum of squared lengths, stand together. null: the order of packing."""

    @property
    def multiple(self) -> int:
        """The places of each document are a multiple of it."""
        return 1 if self.align is None else self.align.multiple


Weights = dict[str, Annotated[float, Field(ge=0, le=MOST)]]
MOST_TOKENS = 10**15
"""Of the longest training."""


class Phase(Model):
    """A part of training."""

    tokens: int = Field(ge=1, le=MOST_TOKENS)
    """Its tokens."""
    weights: Weights
    """Share of tokens by domain."""


class Blend(Model):
    """In which order, and how often, a trainer sees the items of all domains."""

    weights: Weights | None = None
    """Share of tokens by domain. null: all of each."""
    tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    """Total tokens. null: until a domain has no item left for its share."""
    schedule: tuple[Phase, ...] | None = Field(default=None, min_length=1, max_length=1000)
    """Consecutive parts of training, instead of weights and tokens."""
    epochs: dict[str, Annotated[float, Field(ge=0, le=MOST_EPOCHS)]] | None = None
    """Most passes over each domain, by default 1; fractions take a part."""
    seed: int = Field(ge=-MOST_SEED, le=MOST_SEED, default=42)
    """Seed of the order."""
    shuffle: bool = True
    """Shuffle the items of a domain, anew for each pass."""

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        if self.schedule and (self.weights is not None or self.tokens is not None):
            raise ValueError("schedule sets weights and tokens itself. Remove the keys beside it")
        return self


class WindowBlend(Blend):
    """A blend of windows of documents."""

    window: int = Field(ge=1, le=LONGEST)
    """Predicted tokens of an item: the trainer's sequence length."""


class Export(Model):
    """Files for a trainer, kept as an asset of their own. What the names mean is checked in `prep_assets.extensions.exports.assets`."""

    source: str = Field(alias="from")
    """Asset of this family to export."""
    to: str
    """The format, e.g. hf_arrow; `prep-assets export --list` shows all."""
    stream: str | None = None
    """One of several streams of the asset. null: the training one."""
    options: dict[str, Any] = Field(default={})
    """Options of the format."""


class Refresh(Model):
    """When the family is rebuilt without anybody asking."""

    every: str = "0 3 * * *"
    """Cron expression of the schedule."""
    timezone: str = "UTC"
    """Time zone of the schedule."""
    fresh_for: float | None = Field(default=None, gt=0, le=24 * 366)
    """Hours after which the UI shows an asset that no run updated as stale. null: never."""


class Cluster(Model):
    """Where the workers of a family are, and how work is cut for them. It changes no byte."""

    kind: Literal["local", "ray"] = "local"
    """local: processes on this machine; ray: a Ray cluster whose nodes share configuration, sources and stores."""
    address: str = "auto"
    """Ray cluster: host:6379, ray://host:10001, or auto: RAY_ADDRESS, or this machine's."""
    shards: Annotated[int, Field(ge=1, le=MOST)] | Literal["auto"] = "auto"
    """About how many shards to cut a domain into, each of 4 MB of text or more. auto: at most 4,096."""


# Options that have no effect with the others: loading raises for them, because an ignored option is a broken promise.
#
# Only values other than the default count, so a configuration may spell out defaults.

ROLES = (SYSTEM, USER, ASSISTANT, TOOL, PROMPT, COMPLETION, DOCUMENT)
TAGS = {
    **dict.fromkeys(("developer",), SYSTEM),
    **dict.fromkeys(("human", "prompter"), USER),
    **dict.fromkeys(("gpt", "bot", "model", "ai", "chatbot"), ASSISTANT),
    **dict.fromkeys(("function", "observation", "ipython"), TOOL),
}
"""Role tags of data sets → roles."""

Stored = Literal["documents", "masked chats", "chats", "texts", "held out"]
TOKENS = ("documents", "masked chats")
"""What families store as tokens."""


def of_ids(schema: str) -> bool:
    """Whether rows of a schema say nothing without a tokenizer."""
    return schema == "tokenized" or lists_of(schema) is not None


RULES = (
    Rule(
        "cluster.address",
        lambda family: family.cluster.kind == "local",
        "local workers have no address. Leave it out, or set cluster.kind: ray",
    ),
    Rule(
        "tokenizer_class",
        lambda family: family.tokenizer_loader != "code",
        "its code would run, which nothing allows. Leave it out, or set tokenizer_loader: code",
    ),
    Rule(
        "tokenizer_loader",
        lambda family: family.tokenizer_loader == "code" and family.tokenizer_class is None,
        "there is no code to run. Set tokenizer_class",
    ),
    *(
        Rule(path, lambda family: family.tokenizer_class is not None, f"a tokenizer_class {why}. Leave one of the two out")
        for path, why in (
            ("tokenizer_revision", "is given a folder"),
            ("engine", "is the only engine"),
            ("preprocessing.fim.rate", "cannot be proven where documents are cut in three"),
            ("split_sentences", "cannot be proven for sentences"),
            ("image_token", "cannot be proven beside images"),
        )
    ),
    Rule(
        "tokenizer_class",
        lambda family: family.stores not in TOKENS,
        "only pretrain and sft take a tokenizer that is code. Leave it out",
    ),
    Rule(
        "packing.tail",
        lambda family: family.packing.strategy != "concat",
        "only 'concat' has one last row that is short; every row of another strategy may be. Leave tail out, or set strategy: concat",
    ),
    Rule(
        "packing.overlong",
        lambda family: family.packing.strategy in ("concat", "bfd_split"),
        "'concat' and 'bfd_split' cut documents that are longer than a row and keep every part. Leave overlong out, or choose simple, ffd or bfd",
    ),
    Rule(
        "packing.buckets",
        lambda family: family.packing.strategy in ("concat", "simple"),
        "'concat' and 'simple' keep the order of documents. Leave buckets out, or choose ffd, bfd or bfd_split",
    ),
    Rule(
        "packing.align",
        lambda family: family.packing.strategy == "concat",
        "'concat' cuts documents where rows end, wherever that is. Leave align out, or choose simple, ffd, bfd or bfd_split",
    ),
    Rule(
        "packing.balance",
        lambda family: family.packing.strategy == "simple",
        "'simple' keeps the order of documents, and rows of like work would stand together. Leave balance out, or choose ffd, bfd or bfd_split",
    ),
    Rule("packing.seed", lambda family: not family.packing.shuffle, "nothing is shuffled. Leave seed out, or set shuffle: true"),
    Rule("seed", lambda family: not family.shuffle, "nothing is shuffled. Leave seed out, or set shuffle: true"),
    Rule(
        "truncation",
        lambda family: family.preprocessing.max_seq_len is None,
        "max_seq_len is null, so no example is too long. Leave truncation out, or set preprocessing.max_seq_len",
    ),
    Rule(
        "truncation_keeps_stop",
        lambda family: family.truncation != "end",
        "only truncation: end cuts answers off at their end. Leave it out, or set truncation: end",
    ),
    Rule(
        "truncation_keeps",
        lambda family: family.truncation != "prompt",
        "only truncation: prompt shortens texts one by one. Leave it out, or set truncation: prompt",
    ),
    *MASK_RULES,
    Rule(
        "expand",
        lambda family: family.truncation == "end",
        "truncation: end would cut away the answers that examples are made for. Leave it out, or set truncation: turns, start or drop",
    ),
    *(
        Rule(
            f"preprocessing.fim.{name}",
            lambda family: not family.preprocessing.fim.rate,
            "fim.rate is 0, so no document is cut. Set fim.rate",
        )
        for name in ("spm_rate", "prefix_token", "suffix_token", "middle_token", "seed")
    ),
    Rule(
        "split_sentences",
        lambda family: family.preprocessing.fim.rate > 0,
        "fill-in-the-middle puts the end of a document before its middle, so sentences have no order. Leave one of the two out",
    ),
    Rule(
        "reasoning_tags",
        lambda family: family.reasoning == "inline",
        "reasoning: inline reads no tags. Leave them out, or set reasoning: auto",
    ),
    Rule("decontaminate.words", lambda family: not family.decontaminate.files, "no benchmark is looked for. Set decontaminate.files"),
    *(
        Rule(path, lambda family: family.stores in ("texts", "held out"), "its stores hold lines of text and no tokens. Leave it out")
        for path in ("output.storage_format", "output.dtype", "output.max_tokens_per_shard", "pad_vocab_to", "engine")
    ),
    *(
        Rule(
            path,
            lambda family: family.stores == "held out",
            "held-out data sets are pinned and searched for; nothing is made of them. Leave it out",
        )
        for path in (
            *("tokenizer", "tokenizer_revision", "tokenizer_loader", "tokenizer_class", "preprocessing.max_seq_len"),
            *("preprocessing.deduplicate", "decontaminate.files", "quality.steps", "quality.max_refused", "exports"),
        )
    ),
    Rule(
        "output.max_tokens_per_shard",
        # tokens of a domain are always `bin`, except in pretraining, where domains are not merged
        lambda family: family.output.storage_format == "h5" and not isinstance(family, Chat),
        "an h5 store is one file. Leave it out, or set storage_format: bin",
    ),
)
DOMAIN_RULES = (
    Rule("domain_value", lambda domain: domain.domain_key is None, "there is no domain_key whose value it could be. Set domain_key"),
    Rule("domain_value", lambda domain: domain.domains is not None, "domains: auto makes a domain of each value. Leave one of the two out"),
    Rule("domains", lambda domain: domain.domain_key is None, "there is no field whose values could be domains. Set domain_key"),
    Rule("max_domains", lambda domain: domain.domains is None, "only domains: auto makes domains. Leave it out, or set domains: auto"),
)


def faults(family: Any) -> Iterator[str]:
    """The faults of a family's options in combination: one line each, beginning with the option's path."""
    for rule in RULES:
        yield from apply_rule(family, rule, family)
    for name, domain in family.domains.items():
        for rule in DOMAIN_RULES:
            yield from apply_rule(domain, rule, domain, f"domains.{name}.")
        yield from (f"domains.{name}.{fault}" for fault in _faults_of_domain(family, domain))
    if (media := plugins.of_extension("media", "options")) is not None:
        yield from media.faults(family)
    if family.stores == "masked chats":
        yield from _unknown_roles(family)
        yield from _unknown_domains(family)
        yield from _rows_that_no_rank_can_split(family)


def _faults_of_domain(family: Any, domain: Any) -> Iterator[str]:
    """The faults of a domain's options for token ids, for weights of turns and for speaker names."""
    sft, schema, ids = family.stores == "masked chats", domain.schema_name, of_ids(domain.schema_name)
    if ids and not sft:
        yield f"schema: {schema} brings token ids, which only sft takes"
    elif ids and domain.tokenized_by is None:
        yield "tokenized_by: needed, because ids say nothing without the tokenizer that made them. Set it to its folder, or to sha256:HEX"
    if domain.redact and ids:
        yield f"redact: {', '.join(domain.redact)} cannot be replaced in token ids. Leave it out, or give the rows as text"
    if lists_of(schema) is not None and sft and family.expand == "turns":
        yield f"schema: {schema} has entries for the whole conversation, which expand: turns takes apart. Leave expand out"
    if domain.tokenized_by is not None and not (sft and (ids or schema == "nlg_read_hook" or ":" in schema)):
        yield f"tokenized_by: {domain.tokenized_by!r} has no effect here: no row brings token ids that are stored. Leave it out"
    if domain.tokenized_by is not None and family.tokenizer_class is not None:
        yield "tokenized_by: has no effect here: rows that bring ids are proven with a published tokenizer, and tokenizer_class is code"
    if domain.weigh is not None and (ids or family.stores not in TOKENS):
        yield f"weigh: {domain.weigh!r} has no effect here: the turns of samples are weighed, in pretrain and sft. Leave it out"
    if domain.speaker_names != "keep" and not isinstance(family, Chat):
        yield f"speaker_names: {domain.speaker_names!r} has no effect here: only messages have names. Leave it out"
    elif domain.speaker_names == "leave_out" and ":" in schema:
        yield f"speaker_names: leave_out cannot count the names that {schema!r} reads. Leave them out in that function"


def _unknown_roles(family: Any) -> Iterator[str]:
    """The faults of roles that no turn can have. A user's schema may give turns of any role, but one close to a known role is taken for a typo."""
    schema_roles: set[str] = set()
    for domain in family.domains.values():
        roles = domain.options.get("roles")
        schema_roles.update(map(str, roles.values()) if isinstance(roles, Mapping) else ())
    has_user_schema = any(":" in domain.schema_name for domain in family.domains.values())
    if SYSTEM in family.truncation_keeps:
        yield f"truncation_keeps.{SYSTEM}: has no effect here: system turns stay whole. Leave it out"
    for option, role in (*(("mask", role) for role in family.mask), *(("truncation_keeps", role) for role in family.truncation_keeps)):
        if role in ROLES or role in schema_roles:
            continue
        suggestion = TAGS.get(role) or next(iter(get_close_matches(role, ROLES, n=1, cutoff=0.75)), None)
        if suggestion or not has_user_schema:
            hint = f"did you mean {suggestion!r}? " if suggestion else ""
            yield f"{option}.{role}: no turn has this role; {hint}Roles: {', '.join(ROLES)}, and those that a schema's option `roles` names"


def _unknown_domains(family: Any) -> Iterator[str]:
    if family.finds_domains:
        return  # the domains are only known from the files
    for name in ("weights", "epochs", "max_items"):
        for domain in getattr(family.packing, name) or ():
            if domain not in family.domains:
                yield f"packing.{name}: names {domain!r}, which is not a domain. Domains: {', '.join(family.domains)}"


def _rows_that_no_rank_can_split(family: Any) -> Iterator[str]:
    row_len, multiple = family.packing.row_len, family.packing.multiple
    if row_len % multiple:
        near = " or ".join(f"{length:,}" for length in (row_len // multiple * multiple, (row_len // multiple + 1) * multiple) if length)
        yield f"packing.row_len: {row_len:,} is no multiple of {multiple:,}, which packing.align asks for: ranks could not split a row. Set it to {near}"


# The base classes of families: all of them, those whose records may have images, and those that render conversations.

Workers = Annotated[int, Field(ge=1, le=MOST_WORKERS)] | Literal["auto"]

REASONING_TAGS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),  # DeepSeek-R1, Qwen3, QwQ, GLM-4.5, Nemotron, SmolLM3
    ("<thinking>", "</thinking>"),  # Reflection, and answers in Anthropic's style
    ("<thought>", "</thought>"),  # EXAONE Deep
    ("<|begin_of_thought|>", "<|end_of_thought|>"),  # Sky-T1, Bespoke-Stratos, OpenThoughts
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A Reasoning
    ("[THINK]", "[/THINK]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi-VL
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
)
"""The tags that public models write around reasoning, opening and closing."""


WITHOUT: Mapping[str, Any] = {"test_fraction": 0.0, "shuffle": False, "form": "text"}
"""What holds in families that lack an option: nothing is held out by a hash or shuffled, and lines are strings."""


class Family(Model):
    """What all families have.

    Attributes:
        form_of_rows: what a row of its domains becomes; `object`: whatever its schema gives.
        stores: what it stores: tokens of documents or of chats with masks, or text: chats, texts without a template, or what nothing may be trained on.
        code_version: of its assets, raised when their bytes change.
        stages: stages at which only it rejects records.
    """

    form_of_rows: ClassVar[type] = Sample
    stores: ClassVar[Stored] = "texts"
    code_version: ClassVar[str] = "1"
    stages: ClassVar[tuple[str, ...]] = ()

    tokenizer: str
    """A directory relative to this file, or a hub id."""
    tokenizer_revision: str | None = None
    """Commit of the hub repository; needed for a hub id."""
    tokenizer_loader: Literal["auto", "file", "transformers", "code"] = "auto"
    """auto: the published tokenizer.json, or stop if AutoTokenizer gives other ids; file, transformers: one of the two; code: run tokenizer_class."""
    tokenizer_class: str | None = Field(default=None, pattern=r"^[\w.]+:\w+$")
    """Your class 'package.module:Class', given the folder `tokenizer`; needs tokenizer_loader: code."""
    pad_vocab_to: int | None = Field(default=None, ge=1, le=LONGEST)
    """Padded vocabulary size of the model, e.g. 50304 for GPT-2's 50,257 tokens, for the type of ids and exports. null: the tokenizer's."""
    domains: dict[DomainName, Domain] = Field(min_length=1)
    """Data sets by name; each is a partition."""
    preprocessing: Preprocessing = Preprocessing()
    decontaminate: Decontaminate = Decontaminate()
    quality: Quality = Quality()
    output: Output = Output()
    refresh: Refresh = Refresh()
    exports: dict[ExportName, Export] = Field(default={})
    """Files for trainers, by name: assets <family>_export_<name>."""
    on_missing: Literal["build", "fail"] = "build"
    """When something upstream is missing or stale: build it first, or stop and say how."""
    engine: Literal["auto", "reference"] = "auto"
    """auto: the fastest exact engine; reference: tokenizers."""
    workers: Workers = "auto"
    """Processes, on parts of a large store or each on a small domain. auto: as many as fit. Changes no byte."""
    cluster: Cluster = Cluster()
    licence: Licence | None = None
    """Licence of what is published. null: those of the domains. Changes no byte."""

    @property
    def finds_domains(self) -> bool:
        """Whether some of its domains are found in files (`domains: auto`)."""
        return any(domain.domains for domain in self.domains.values())

    @property
    def most_rows(self) -> int | None:
        """How many rows of each domain are used, the first; `None`: all."""
        return None

    def of_some(self, option: Literal["test_fraction", "shuffle", "form"]) -> Any:
        """The value of an option that only some families have, see `WITHOUT`."""
        return getattr(self, option, WITHOUT[option])

    def form_of(self, name: str) -> type:
        """What the rows of a domain become."""
        return self.form_of_rows

    @staticmethod
    def asked(example: Any) -> object:
        """What decides whether an example is held out, whatever form a file gives it: its prompt."""
        return asked_of(example)

    @model_validator(mode="after")
    def _every_option_means_something(self) -> Self:
        problems = list(faults(self))
        if problems:
            raise ValueError("\n  ".join(problems))
        return self


class Chat(Family):
    """What families that render conversations have."""

    stores: ClassVar[Stored] = "chats"
    template: str = "tokenizer"
    """tokenizer (its own; tokenizer:NAME of several), a shipped one, prompt_type:NAME, a .jinja file, or encoder:NAME: code."""
    template_options: dict[str, Any] = Field(default={})
    """Variables for the template, e.g. {enable_thinking: false}."""
    training_template: str | None = None
    """A .jinja file with {% generation %} tags, such as TRL's: a third derivation of masks where it renders the same. null: the template's own tags, if
    any."""
    reasoning: Literal["auto", "inline", "field"] = "auto"
    """A block such as <think>…</think> at the beginning of an answer: auto takes it for reasoning if the template writes reasoning; inline leaves it as
    text; field rejects it."""
    reasoning_tags: tuple[tuple[str, str], ...] = REASONING_TAGS
    """Opening and closing tags of such blocks."""
    calls: Literal["auto", "inline"] = "auto"
    """<tool_call>{"name": …, "arguments": …}</tool_call> at the end of an answer: auto takes it for a call if the template writes calls; inline leaves it as
    text."""

    @field_validator("reasoning_tags")
    @classmethod
    def _tags_that_differ(cls, tags: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        listed = [tag for pair in tags for tag in pair]
        if not all(tag.strip() == tag and tag for tag in listed) or len(set(listed)) != len(listed):
            raise ValueError(f"tags must be distinct texts without leading or trailing white space; they are {listed}")
        return tags
