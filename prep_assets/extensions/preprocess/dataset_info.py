"""`prep-assets dataset-info`: LLaMA-Factory's ``dataset_info.json``, which ModelLink's `LlamaFactoryInstructionHandler` reads too, as domains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from prep_assets.cli import terminal
from prep_assets.errors import ConfigError, nearest
from prep_assets.extensions.preprocess.handlers import TAGS
from prep_assets.schemas.reader import in_one_line
from prep_assets.schemas.registry import convert_with
from prep_assets.stores.files import loads

ALPACA = ("prompt", "query", "response", "history", "system", "chosen", "rejected")
SHAREGPT = ("messages", "system", "tools", "images", "audios", "videos", "chosen", "rejected")


class Entry(BaseModel):
    """One data set of the file. `subset`, `folder` and `split` select inside a hub data set; a hub address selects files instead."""

    model_config = ConfigDict(extra="forbid", strict=True)

    file_name: str | None = None
    hf_hub_url: str | None = None
    ms_hub_url: str | None = None
    om_hub_url: str | None = None
    script_url: str | None = None
    cloud_file_name: str | None = None
    formatting: Literal["alpaca", "sharegpt", "openai"] = "alpaca"
    ranking: bool = False
    subset: str | None = None
    split: str = "train"
    folder: str | None = None
    num_samples: int | None = None
    columns: dict[str, str] = {}
    tags: dict[str, str] = {}


class Converted(Struct, frozen=True):
    """A domain converted from an entry.

    Attributes:
        family: the family whose configuration it belongs to.
        domain: the domain as a mapping for YAML.
        remarks: notes on what the user should know or add.
    """

    family: str
    domain: Mapping[str, Any]
    remarks: tuple[str, ...]


def read_dataset_info(text: str, where: str) -> Mapping[str, Entry]:
    """The entries of a ``dataset_info.json`` by name.

    Raises:
        ConfigError: it is not a valid file; the message names the entry and the key.
    """
    try:
        loads(text)  # pydantic keeps the last of two equal keys
        return TypeAdapter(dict[str, Entry]).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{where}: {'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}") from error
    except ValueError as error:
        raise ConfigError(f"{where}: the file: {error}") from error


def domain_of(name: str, entries: Mapping[str, Entry]) -> Converted:
    """The entry `name` as a domain, with the options that read its columns and tags.

    Raises:
        ConfigError: no such entry, one that a script loads, or columns that no schema of its kind has.
    """
    if name not in entries:
        raise ConfigError(f"no data set {name!r}{nearest(name, entries)} in dataset_info.json. It has: {', '.join(entries)}")
    entry = entries[name]
    files, remarks = _files(name, entry)
    schema, options = (_alpaca if entry.formatting == "alpaca" else _sharegpt)(name, entry)
    domain: dict[str, Any] = {"files": files, "schema": schema, **({"options": options} if options else {})}
    convert_with(schema, options)
    if {"images", "audios", "videos"} & entry.columns.keys():
        remarks.append("image_dir is the folder of images, audio and video, LLaMA-Factory's media_dir")
    if entry.num_samples is not None:
        domain["max_items"] = entry.num_samples
        remarks.append(f"num_samples: LLaMA-Factory draws {entry.num_samples} rows; max_items takes the first ones")
    return Converted("preference" if entry.ranking else "sft", domain, tuple(remarks))


def _files(name: str, entry: Entry) -> tuple[list[str], list[str]]:
    if entry.script_url or entry.cloud_file_name:
        raise ConfigError(f"data set {name!r} is loaded by {'a script' if entry.script_url else 'a cloud client'}; name its files yourself")
    if entry.file_name:
        return [entry.file_name], []
    if not entry.hf_hub_url:
        raise ConfigError(f"data set {name!r} has neither file_name nor hf_hub_url; download it, and name its files")
    selectors = [f"{key} {value!r}" for key, value in (("subset", entry.subset), ("folder", entry.folder), ("split", entry.split)) if value]
    remark = f"put the commit of the data set behind the @, and the files of {', '.join(selectors)} behind that"
    return [f"hub://{entry.hf_hub_url}@"], [remark]


def _alpaca(name: str, entry: Entry) -> tuple[str, dict[str, Any]]:
    columns = _columns(name, entry, (*ALPACA, "tools", "images", "videos", "audios", "kto_tag"))
    if entry.tags:
        raise ConfigError(f"data set {name!r}: tags belong to formatting sharegpt, it has alpaca")
    if unsupported := sorted({"tools", "images", "videos", "audios", "kto_tag"} & columns.keys()):
        raise ConfigError(f"data set {name!r}: Alpaca rows with {' and '.join(unsupported)} have no schema; write one of your own")
    handler = "AlpacaStylePairwiseHandler" if entry.ranking else "AlpacaStyleInstructionHandler"
    if not entry.ranking:
        columns = {key: column for key, column in columns.items() if key not in ("chosen", "rejected")}
    else:
        columns.pop("response", None)
    return handler, {"map_keys": columns} if columns else {}


def _sharegpt(name: str, entry: Entry) -> tuple[str, dict[str, Any]]:
    columns = _columns(name, entry, (*SHAREGPT, "kto_tag"))
    for tag in entry.tags:
        if tag not in TAGS:
            raise ConfigError(f"data set {name!r}: no tag {tag!r}{nearest(tag, TAGS) or '.'} Known: {', '.join(TAGS)}")
    openai = {"messages_key": "messages", "role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    defaults = {**openai, "observation_tag": "tool"} if entry.formatting == "openai" else {}
    label = columns.pop("kto_tag", None)
    if label is not None and label not in ("label", "kto_tag"):
        raise ConfigError(f"data set {name!r}: the label stands under {label!r}; a column called kto_tag or label is read")
    if not entry.ranking:
        columns = {key: column for key, column in columns.items() if key not in ("chosen", "rejected")}
    options = {**defaults, **{f"{key}_key": column for key, column in columns.items()}, **entry.tags}
    return ("sharegpt_pairwise" if entry.ranking else "sharegpt"), options


def _columns(name: str, entry: Entry, known: tuple[str, ...]) -> dict[str, str]:
    for column in entry.columns:
        if column not in known:
            raise ConfigError(f"data set {name!r}: no column {column!r}{nearest(column, known)} in formatting {entry.formatting}")
    return dict(entry.columns)


# The command.


def dataset_info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A dataset_info.json.")],
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="Data sets. Default: all.")] = None,
) -> None:
    if not file.is_file():
        raise ConfigError(f"no file {file}")
    entries = read_dataset_info(file.read_text("utf-8"), str(file))
    domains = {name: domain_of(name, entries) for name in names or entries}
    console = terminal.out()
    for family in sorted({domain.family for domain in domains.values()}):
        console.print(f"# {family}.yaml, files relative to it\ndomains:")
        for name, domain in domains.items():
            if domain.family == family:
                for remark in domain.remarks:
                    console.print(f"  # {remark}")
                console.print(f"  {name}: {in_one_line(domain.domain)}")
