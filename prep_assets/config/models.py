"""Typed models of `configs/{pretrain,sft,preference,rl}.yaml`.

One file describes one family. Every model is frozen and refuses unknown keys; every field has a description, which is what the launchpad
and the reference page of the documentation show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, field_validator, model_validator

from prep_assets.config.base import LONGEST, MOST, MOST_DOMAINS, MOST_EPOCHS, MOST_PATCHES, MOST_SEED, MOST_WORKERS, Model
from prep_assets.config.image_rules import ImageTokens
from prep_assets.config.meaning import faults
from prep_assets.config.reasoning_tags import REASONING_TAGS

StorageFormat = Literal["bin", "h5"]
DOMAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
EXPORT_NAME = re.compile(r"[A-Za-z0-9_]{1,60}")


def can_name_a_domain(name: str) -> bool:
    """Whether a text may be the name of a domain, which becomes a folder and a partition key."""
    return DOMAIN_NAME.fullmatch(name) is not None and ".." not in name


def _domain_name(name: str) -> str:
    if not can_name_a_domain(name):
        raise ValueError(
            f"{name!r} cannot be a domain name: it becomes a folder and a partition key, so letters, digits, '_', '-' and '.' only, "
            "no '..', at most 100 characters"
        )
    return name


def _export_name(name: str) -> str:
    if not EXPORT_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be an export's name: it becomes part of an asset key, so letters, digits and '_' only, at most 60"
        )
    return name


DomainName = Annotated[str, AfterValidator(_domain_name)]
ExportName = Annotated[str, AfterValidator(_export_name)]
Action = Literal["train", "mask"]
Workers = Annotated[int, Field(ge=1, le=MOST_WORKERS)] | Literal["auto"]
Bos = Annotated[Literal["auto", "true", "false"], BeforeValidator(lambda value: str(value).lower() if isinstance(value, bool) else value)]
"""YAML's true and false are meant by their words."""
Licence = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]*$", max_length=60)]
"""An identifier in small letters, as the Hugging Face Hub writes them."""


class Domain(Model):
    """One data set."""

    files: tuple[str, ...] = Field(description="Files, folders, globs or URLs, relative to this config file.", min_length=1)
    schema_name: str = Field(alias="schema", description="How a row becomes an example: a schema's name, or 'package.module:function'.")
    options: dict[str, Any] = Field(default={}, description="Options of the schema.")
    test_files: tuple[str, ...] = Field(default=(), description="Files that are held out for testing.")
    format: str | None = Field(default=None, description="File format, where the file's name does not say it.")
    txt: Literal["line", "file"] = Field(default="line", description="Whether a line or a whole .txt file is one document.")
    domain_key: str | None = Field(default=None, description="A field that says which domain a row of a shared source belongs to.")
    domain_value: str | None = Field(default=None, description="What `domain_key` holds in this domain's rows; null: the domain's name.")
    domains: Literal["auto"] | None = Field(
        default=None, description="auto: a domain for each value that `domain_key` holds in these files, in the place of this one."
    )
    max_domains: int = Field(
        default=100, ge=1, le=MOST_DOMAINS, description="Most domains that `domains: auto` makes; more stop the build."
    )
    image_dir: str | None = Field(
        default=None,
        description="Folder of the images, relative to this config file; paths in the data are relative to it. null: only URLs are accepted.",
    )
    where: dict[str, Any] = Field(default={}, description="Only rows that match, e.g. {language: en}; others are counted as refused.")
    max_items: int | None = Field(
        default=None, ge=1, le=MOST, description="Use at most this many records, the first ones that pass `where`."
    )
    ignore: tuple[str, ...] = Field(
        default=(),
        description="Fields that are left out before a row is read, dotted inside others, e.g. [category, messages.score]; they are counted.",
    )

    weigh: str | None = Field(
        default=None,
        description="A function 'package.module:function' of your own, from the Sample of a row to the loss weights of its turns or regions.",
    )
    tokenized_by: str | None = Field(
        default=None,
        description="Which tokenizer made the token ids that rows bring: its folder, relative to this config file, or sha256:HEX of its "
        "tokenizer.json. It is compared with the family's.",
    )
    licence: Licence | None = Field(
        default=None, description="Its licence, as the Hugging Face Hub calls it: mit, cc-by-4.0, other. null: unknown. It changes no byte."
    )

    @property
    def reading(self) -> list[Any]:
        """What decides which examples its files give, for recipes. What is in the folder of images is pinned with the files."""
        rows = [self.format, self.txt, self.where, self.max_items, self.domain_key, self.domain_value]
        further = {
            "ignore": sorted(self.ignore),
            "forgotten": sorted(self._forgotten),
            "weigh": self.weigh,
            "tokenized_by": self.tokenized_by,
        }
        return [self.schema_name, self.options, *rows, *({name: value} for name, value in further.items() if value)]

    def value(self, name: str) -> str:
        """What `domain_key` holds in the rows of this domain, called `name`."""
        return name if self.domain_value is None else self.domain_value

    _forgotten: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def forgotten(self) -> frozenset[str]:
        """Digests of rows that are left out for ever, see `prep_assets.config.tombstones`."""
        return self._forgotten

    def forgetting(self, digests: frozenset[str]) -> Domain:
        """The domain without these rows."""
        copy = self.model_copy()
        copy._forgotten = digests
        return copy


class Preprocessing(Model):
    """What happens to records on their way to tokens."""

    max_seq_len: int | None = Field(
        default=2048, ge=1, le=LONGEST, description="Longest example in tokens; a longer one is refused and counted. null: no limit."
    )
    deduplicate: bool = Field(default=True, description="Refuse a record that equals an earlier one of its domain in every field.")


class Fim(Model):
    """Fill-in-the-middle: a share of the documents is cut in three and written with the middle at the end."""

    rate: float = Field(default=0.0, ge=0, le=1, description="Share of documents that are cut; 0: none.")
    spm_rate: float = Field(
        default=0.5, ge=0, le=1, description="Share of cut documents whose end is written first (SPM); the others are PSM."
    )
    prefix_token: str = Field(default="<|fim_prefix|>", description="The tokenizer's token before the beginning of the document.")
    suffix_token: str = Field(default="<|fim_suffix|>", description="The one before its end.")
    middle_token: str = Field(default="<|fim_middle|>", description="The one before its middle.")
    seed: int = Field(ge=-MOST_SEED, le=MOST_SEED, default=0, description="With the id of a record, decides whether and where it is cut.")


class Documents(Preprocessing):
    """What happens to documents on their way to tokens: `preprocessing` of the pretrain family."""

    max_seq_len: int | None = Field(
        default=None, ge=1, le=LONGEST, description="Longest document in tokens; a longer one is refused and counted. null: no limit."
    )
    min_chars: int = Field(default=1, ge=0, le=MOST, description="Shortest document in characters.")
    max_chars: int | None = Field(default=None, ge=1, le=MOST, description="Longest document in characters.")
    fim: Fim = Fim()


class Decontaminate(Model):
    """Benchmarks that no record may hold a passage of."""

    files: tuple[str, ...] = Field(
        default=(), description="Files, folders, globs or URLs of benchmarks, relative to this config file; every string in them counts."
    )
    words: int = Field(
        default=13, ge=8, le=1000, description="Words of a passage; a shorter text of a benchmark, of 8 words or more, counts whole."
    )


class Output(Model):
    """How token stores are written."""

    storage_format: StorageFormat = Field(default="h5", description="h5 (HDF5) or bin (memory-mapped files with a meta.json).")
    dtype: Literal["auto", "uint16", "uint32", "int32", "int64"] = Field(
        default="int32", description="Integer type of token ids; auto is the smallest that holds the vocabulary."
    )
    max_tokens_per_shard: int = Field(
        default=100_000_000, ge=1, le=MOST, description="Most tokens in one shard of a bin store; a packed table's shards hold whole rows."
    )


class Packing(Model):
    """How documents become rows of fixed length."""

    strategy: Literal["concat", "simple", "ffd", "bfd", "bfd_split"] = Field(
        default="concat", description="How documents are placed in rows."
    )
    row_len: int = Field(default=1024, ge=2, le=LONGEST, description="Tokens in a row.")
    seed: int = Field(ge=-MOST_SEED, le=MOST_SEED, default=42, description="Seed of the shuffle over all domains.")
    shuffle: bool = Field(default=True, description="Shuffle documents before packing; false keeps domains and files in order.")
    tail: Literal["pad", "drop"] = Field(default="pad", description="concat: pad the last short row, or leave its tokens out (counted).")
    overlong: Literal["raise", "truncate", "drop", "split"] = Field(
        default="raise", description="A document longer than a row, of simple, ffd and bfd."
    )
    weights: dict[str, Annotated[float, Field(ge=0, le=MOST)]] | None = Field(
        default=None, description="Share of tokens of each domain in the mixture; null: everything once."
    )
    epochs: dict[str, Annotated[float, Field(ge=0, le=MOST_EPOCHS)]] | None = Field(
        default=None, description="How often each domain is used; fractions take a part."
    )
    max_items: dict[str, Annotated[int, Field(ge=1, le=MOST)]] | None = Field(
        default=None, description="Most records of each domain in the mixture."
    )


class Export(Model):
    """Files for a trainer, kept as an asset of their own. What the names mean is checked in `prep_assets.assets.exports`."""

    source: str = Field(alias="from", description="The asset that is exported, one of this family.")
    to: str = Field(description="The format, e.g. hf_arrow; `prep-assets export --list` shows all.")
    stream: str | None = Field(default=None, description="Which stream or file of the asset, where it has several; null: the training one.")
    options: dict[str, Any] = Field(default={}, description="Options of the format.")


class Refresh(Model):
    """When the family is rebuilt without anybody asking."""

    every: str = Field(default="0 3 * * *", description="Cron expression of the schedule.")
    timezone: str = Field(default="UTC", description="Time zone of the schedule.")
    fresh_for: float | None = Field(
        default=None,
        gt=0,
        le=24 * 366,
        description="Hours after which the UI shows an asset that no run has brought up to date as stale. null: never.",
    )


class Cluster(Model):
    """Where the workers of a family are. It changes no byte."""

    kind: Literal["local", "ray"] = Field(
        default="local",
        description="local: processes on this machine; ray: tasks on a Ray cluster whose nodes share configuration, sources and stores.",
    )
    address: str = Field(
        default="auto",
        description="Of the Ray cluster: host:6379, ray://host:10001, or auto: RAY_ADDRESS, or the one this machine belongs to.",
    )


class Family(Model):
    """What all families have."""

    tokenizer: str = Field(description="A directory relative to this config file, or a hub id.")
    tokenizer_revision: str | None = Field(default=None, description="Commit of the hub repository; needed for a hub id.")
    tokenizer_loader: Literal["auto", "file", "transformers", "code"] = Field(
        default="auto",
        description="auto: the published tokenizer.json, and stop where AutoTokenizer gives other ids; file, transformers: one of the two; code: run "
        "tokenizer_class.",
    )
    tokenizer_class: str | None = Field(
        default=None,
        pattern=r"^[\w.]+:\w+$",
        description="A class 'package.module:Class' of your own that tokenizes, given the folder `tokenizer`; tokenizer_loader: code allows it to run.",
    )
    pad_vocab_to: int | None = Field(
        default=None,
        ge=1,
        le=LONGEST,
        description="Vocabulary size of the model where it is padded, e.g. 50304 for GPT-2's 50,257 tokens; the type of ids and exports go by it. "
        "null: the tokenizer's.",
    )
    domains: dict[DomainName, Domain] = Field(description="The data sets, by name. Each is a partition.", min_length=1)
    preprocessing: Preprocessing = Preprocessing()
    decontaminate: Decontaminate = Decontaminate()
    output: Output = Output()
    refresh: Refresh = Refresh()
    exports: dict[ExportName, Export] = Field(
        default={}, description="Files for trainers, by name: each is an asset <family>_export_<name>."
    )
    on_missing: Literal["build", "fail"] = Field(
        default="build", description="When what an asset is made from is missing or out of date: build it first, or stop and say how."
    )
    engine: Literal["auto", "reference"] = Field(
        default="auto", description="auto: the fastest engine that is exact; reference: tokenizers."
    )
    workers: Workers = Field(
        default="auto",
        description="How many processes work on a store at a time; auto: as many as there are processors, and memory for. It changes no byte.",
    )
    cluster: Cluster = Cluster()
    licence: Licence | None = Field(
        default=None, description="Licence of what is published of the family. null: those of its domains. It changes no byte."
    )

    @property
    def finds_domains(self) -> bool:
        """Whether some of its domains are found in files."""
        return any(domain.domains for domain in self.domains.values())

    @model_validator(mode="after")
    def _every_option_means_something(self) -> Self:
        found = list(faults(self))
        if found:
            raise ValueError("\n  ".join(found))
        return self


class Images(Model):
    """What families have whose records may hold images."""

    image_token: str | None = Field(
        default=None, description="Control token of the tokenizer that stands for an image; null: records with images are refused."
    )
    image_patches: int = Field(default=1, ge=1, le=MOST_PATCHES, description="How many of these tokens stand for one image.")
    image_tokens: ImageTokens | None = Field(
        default=None,
        description="The rule of the model's processor for how many tokens stand for an image, by its resolution, e.g. {rule: processor}: as the "
        "preprocessor_config.json beside the tokenizer says. null: image_patches.",
    )


class Pretrain(Images, Family):
    """`configs/pretrain.yaml`: documents → flat token streams."""

    test_fraction: float = Field(
        default=0.0, ge=0, lt=1, description="Share of documents held out for the dev stream, by hash of their text."
    )
    preprocessing: Documents = Documents()
    append_eod: bool = Field(
        default=True,
        description="Whether documents end with the end-of-text token. false: ids do not say where a document ends, so trainers that read windows "
        "take two for one, and exports that keep no borders are refused.",
    )
    split_sentences: str | None = Field(
        default=None,
        description="Language of nltk's Punkt model, e.g. english: documents are cut into sentences, each is tokenized for itself, and their borders "
        "are kept. null: whole documents.",
    )
    bos: Bos = Field(
        default="auto", description="Whether documents begin with the begin-of-text token; auto: where the tokenizer itself writes it."
    )


Form = Literal["auto", "text", "messages"]
FORM: Form = Field(
    default="auto",
    description="text: prompts and answers are strings, and rows that do not fit are refused; messages: lists of {role, content}, with reasoning, "
    "tool calls and tools; auto: strings where all rows of a store fit in them, else messages.",
)


class Chat(Family):
    """What families that render conversations have."""

    template: str = Field(
        default="tokenizer",
        description="tokenizer (its own chat template; tokenizer:NAME where it has several), a shipped one, prompt_type:NAME, or a path to a .jinja file.",
    )
    template_options: dict[str, Any] = Field(default={}, description="Further variables for the template, e.g. {enable_thinking: false}.")
    reasoning: Literal["auto", "inline", "field"] = Field(
        default="auto",
        description="A block such as <think>…</think> at the beginning of an answer's text: auto reads it as reasoning where the template writes "
        "reasoning; inline leaves it as text; field refuses it.",
    )
    reasoning_tags: tuple[tuple[str, str], ...] = Field(
        default=REASONING_TAGS, description="Opening and closing tag of each spelling of such a block."
    )

    @field_validator("reasoning_tags")
    @classmethod
    def _tags_that_differ(cls, tags: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        listed = [tag for pair in tags for tag in pair]
        if not all(tag.strip() == tag and tag for tag in listed) or len(set(listed)) != len(listed):
            raise ValueError(f"each tag must be a text of its own without white space at its ends; they are {listed}")
        return tags


class Keep(Model):
    """What `truncation: prompt` leaves of each untrained text of a role."""

    part: Literal["start", "end"] = Field(default="start", description="Which part of the text stays: its start, or its end.")
    least: int = Field(
        default=1,
        ge=1,
        le=LONGEST,
        description="Tokens of the text that stay at least, Cerebras' max_turn_length; a text that has fewer stays whole.",
    )


class Sft(Images, Chat):
    """`configs/sft.yaml`: instructions and chats → tokens with a loss mask → packed rows."""

    mask: dict[str, Action] = Field(default={"assistant": "train", "completion": "train"}, description="What is trained, by role.")
    mask_default: Action = Field(default="mask", description="What happens to a role that `mask` does not list.")
    train_on_eos: Literal["turn", "last", "all", "none"] = Field(
        default="turn", description="Which stop tokens are trained: after trained turns, after the last of them, after every turn, or none."
    )
    train_turns: Literal["all", "last"] = Field(default="all", description="Train all turns that `mask` says, or only the last of them.")
    expand: Literal["none", "turns"] = Field(
        default="none",
        description="turns: a record whose reasoning the template leaves out of history becomes one example for each answer, history as the model "
        "sees it.",
    )
    train_thinking: bool = Field(default=True, description="Train reasoning inside a trained turn.")
    train_tool_calls: bool = Field(default=True, description="Train tool calls inside a trained turn.")
    train_headers: bool = Field(default=False, description="Train what the template writes before a trained turn, e.g. its role header.")
    special_in_content: Literal["text", "strip", "refuse", "allow"] = Field(
        default="text",
        description="A control token that is typed in content: encode it as plain text, take it out, refuse the record, or let it be the token.",
    )
    truncation: Literal["drop", "start", "end", "turns", "prompt"] = Field(
        default="drop",
        description="An example longer than max_seq_len: refuse it, cut its start or end, drop its oldest rounds, or shorten its prompts.",
    )
    truncation_keeps_stop: bool = Field(
        default=False, description="Where `end` cuts an answer off, end it with the stop token all the same."
    )
    truncation_keeps: dict[str, Keep] = Field(
        default={}, description="What `prompt` leaves of the untrained texts of a role; of the others: their start, one token at least."
    )
    packing: Packing = Packing()
    test_fraction: float = Field(default=0.0, ge=0, lt=1, description="Share of records that go to sft_dev_packed, by hash of the record.")


class Preference(Chat):
    """`configs/preference.yaml`: preference pairs."""

    max_per_source: int | None = Field(
        default=None, ge=1, le=MOST, description="Use at most this many records of each domain, the first ones."
    )
    test_fraction: float = Field(default=0.05, ge=0, lt=1, description="Share of prompts held out, by hash of the prompt.")
    seed: int = Field(ge=-MOST_SEED, le=MOST_SEED, default=0, description="Seed of the shuffle of the training file.")
    shuffle: bool = Field(default=True, description="Shuffle the training file.")
    truncation: Literal["drop", "end"] = Field(
        default="drop",
        description="A side of a pair longer than max_seq_len: refuse the pair, or cut the side's end off; refused where no answer is left, or "
        "both are left equal.",
    )
    form: Form = FORM


class Arithmetic(Model):
    """The arithmetic curriculum."""

    n: int = Field(default=5000, ge=1, le=100_000_000, description="Number of questions.")
    largest: int = Field(default=20, ge=1, le=MOST, description="Largest operand.")
    seed: int = Field(ge=-MOST_SEED, le=MOST_SEED, default=0, description="Seed of the generator.")
    levels: tuple[str, ...] | None = Field(default=None, description="Named levels in order; null: train-llm-from-scratch's one level.")
    unique: bool = Field(default=False, description="Never ask the same question twice.")


class Rl(Chat):
    """`configs/rl.yaml`: prompts with a verifiable answer."""

    form: Form = FORM

    test_fraction: float = Field(default=0.0, ge=0, lt=1, description="Share of prompts held out, by hash of the prompt.")
    arithmetic: Arithmetic = Arithmetic()


class Contrasts(Preprocessing):
    """What happens to contrastive rows: `preprocessing` of the contrastive family."""

    max_seq_len: int | None = Field(
        default=None,
        ge=1,
        description="Longest text in tokens of the embedding model, its special tokens counted; a row with a longer one is refused. null: no limit.",
    )


class Contrastive(Family):
    """`configs/contrastive.yaml`: queries with positive and negative texts, for embedding models."""

    preprocessing: Contrasts = Contrasts()
    test_fraction: float = Field(default=0.0, ge=0, lt=1, description="Share of queries held out, by hash of the query.")


FAMILIES: Mapping[str, type[Family]] = {
    "pretrain": Pretrain,
    "sft": Sft,
    "preference": Preference,
    "rl": Rl,
    "contrastive": Contrastive,
}
