"""A data set of a family: its files, and how their rows are read."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PrivateAttr

from prep_assets.config.base import MOST, MOST_DOMAINS, Model

DOMAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
RESERVED = ("current", "candidate", "draft", "damaged", "versions")
"""What stands in the folder of a store: a domain of that name would be taken for it."""


def can_name_a_domain(name: str) -> bool:
    """Whether a text may be the name of a domain, which becomes a folder and a partition key."""
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
    speaker_names: Literal["keep", "leave_out", "write"] = Field(
        default="keep",
        description="The `name` of a message, unless a tool's: keep gives it to the template, and refuses a row whose template does not show it; "
        "leave_out leaves it out, counted; write puts it in front of the text, `ann: …`.",
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
            "speaker_names": self.speaker_names if self.speaker_names != "keep" else None,
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
        """Digests of rows that are left out permanently, see `prep_assets.config.tombstones`."""
        return self._forgotten

    def forgetting(self, digests: frozenset[str]) -> Domain:
        """The domain without these rows."""
        copy = self.model_copy()
        copy._forgotten = digests
        return copy
