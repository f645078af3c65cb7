"""Typed models of `configs/{pretrain,sft,eval}.yaml`.

One file describes one family. All models are frozen and raise for unknown keys. The launchpad and the reference page of the documentation show the
descriptions of fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from prep_assets import plugins
from prep_assets.config.base import LONGEST, Model, NoOptions, options_of_media, younger
from prep_assets.config.family import Blend, Chat, Documents, Family, Packing, Stored, WindowBlend
from prep_assets.config.mask import MaskPolicy

Bos = Annotated[
    Literal["auto", "true", "false"],
    BeforeValidator(lambda value: str(value).lower() if isinstance(value, bool) else value),
    WithJsonSchema({"enum": ["auto", "true", "false", True, False]}),
]
"""Accepts YAML's true and false as the words."""


if TYPE_CHECKING:
    OfPretrain = NoOptions
    OfSft = NoOptions
else:
    OfPretrain, OfSft = options_of_media("pretrain"), options_of_media("sft")


class Pretrain(OfPretrain, Family):
    """`configs/pretrain.yaml`: documents → flat token streams."""

    stores: ClassVar[Stored] = "documents"
    code_version: ClassVar[str] = "8"
    test_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of documents held out for the dev stream, by hash."""
    preprocessing: Documents = Documents()
    blend: WindowBlend | None = None
    """Order of the windows of all domains: pretrain_blend."""
    append_eod: bool = younger(True)
    """End documents with the end-of-text token. false: windows run into the next document, and exports without borders are errors."""
    split_sentences: str | None = None
    """Language of nltk's Punkt, e.g. english: tokenize sentences one by one, and keep their borders. null: whole documents."""
    bos: Bos = "auto"
    """Begin documents with the begin-of-text token. auto: if the tokenizer writes it."""


RowFormOption = Literal["auto", "text", "messages"]


class Keep(Model):
    """What `truncation: prompt` leaves of each untrained text of a role."""

    part: Literal["start", "end"] = "start"
    """Which part of the text stays."""
    least: int = Field(default=1, ge=1, le=LONGEST)
    """Fewest tokens that stay (Cerebras' max_turn_length); shorter texts stay whole."""


class Sft(MaskPolicy, OfSft, Chat):
    """`configs/sft.yaml`: instructions and chats → tokens with a loss mask → packed rows."""

    stores: ClassVar[Stored] = "masked chats"
    code_version: ClassVar[str] = "16"
    expand: Literal["none", "turns"] = "none"
    """turns: one example for each answer, if the template leaves reasoning out of history or would train an answer behind a prompt that no server sends."""
    special_in_content: Literal["text", "strip", "refuse", "allow"] = "text"
    """A control token typed in content: encode it as text, remove it, reject the record, or let it be the token."""
    truncation: Literal["drop", "start", "end", "turns", "prompt"] = "drop"
    """An example longer than max_seq_len: reject it, cut its start or end, drop its oldest rounds, or shorten its prompts."""
    truncation_keeps_stop: bool = False
    """End an answer that `end` cuts with the stop token."""
    truncation_keeps: dict[str, Keep] = Field(default={})
    """What `prompt` leaves of untrained texts, by role. Default: their start, one token at least."""
    packing: Packing = Packing()
    blend: Blend | None = None
    """Order of the conversations of all domains: sft_blend."""
    test_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of records held out in sft_dev_packed, by hash."""


class Eval(Family):
    """`configs/eval.yaml`: held-out data sets, such as benchmarks, that no other family may train on."""

    form_of_rows: ClassVar[type] = object
    stores: ClassVar[Stored] = "held out"
    code_version: ClassVar[str] = "4"
    tokenizer: str = ""
    """Leave it out: nothing is tokenized."""
    rules: tuple[Literal["gpt3", "open_r1", "open_instruct", "dolma", "answers"], ...] = Field(default=("gpt3",), min_length=1)
    """Rules by which an example contains a held-out text; one is enough."""
    policy: Literal["block", "drop", "report"] = "block"
    """An example with a held-out text: publish nothing made of its domain, reject it, or count and keep it."""
    splits: bool = True
    """Also search for what other domains hold out, by test_files or test_fraction."""


_KNOWN: Mapping[str, type[Family]] = {"pretrain": Pretrain, "sft": Sft, "eval": Eval}
"""Families of the kernel, whose configuration is known without their module."""


class _Families(Mapping[str, type[Family]]):
    """By name: the module of the entry point has the model of the configuration as `CONFIG`, and the family's `ASSETS`."""

    def __getitem__(self, name: str) -> type[Family]:
        model: type[Family] = _KNOWN[name] if name in _KNOWN else plugins.part_of(plugins.entries("families")[name], "CONFIG")
        return model

    def __iter__(self) -> Iterator[str]:
        return iter(plugins.entries("families"))

    def __len__(self) -> int:
        return len(plugins.entries("families"))


FAMILIES: Mapping[str, type[Family]] = _Families()
"""Name → configuration of every family: those of this package, then those of others."""


TRAINED = tuple(name for name in plugins.ours("families") if name != "eval")
"""The families of this package that something is trained on."""


def family_name(kind: type[Family]) -> str:
    """The name of a family, after its configuration file."""
    return next(name for name, model in FAMILIES.items() if model is kind)
