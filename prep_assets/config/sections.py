"""Sections that several families have: preprocessing, output, packing, exports, refresh, cluster."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from prep_assets.config.base import LONGEST, MOST, MOST_EPOCHS, MOST_SEED, Model

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
    """Where the workers of a family are, and how work is cut for them. It changes no byte."""

    kind: Literal["local", "ray"] = Field(
        default="local",
        description="local: processes on this machine; ray: tasks on a Ray cluster whose nodes share configuration, sources and stores.",
    )
    address: str = Field(
        default="auto",
        description="Of the Ray cluster: host:6379, ray://host:10001, or auto: RAY_ADDRESS, or the one this machine belongs to.",
    )
    shards: Annotated[int, Field(ge=1, le=MOST)] | Literal["auto"] = Field(
        default="auto",
        description="Into about how many shards a domain is cut, for local workers as well, each of 4 MB of text or more; auto: 4,096 at most.",
    )
