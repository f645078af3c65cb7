"""What families have in common: all of them, those whose records may hold images, and those that render conversations."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from prep_assets.config.base import LONGEST, MOST_PATCHES, MOST_WORKERS, Model
from prep_assets.config.domain import Domain, DomainName, Licence
from prep_assets.config.image_rules import ImageTokens
from prep_assets.config.meaning import faults
from prep_assets.config.sections import Cluster, Decontaminate, Export, ExportName, Output, Preprocessing, Refresh

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
        description="How many processes work at a time, on the parts of a large store or each on a small domain; "
        "auto: as many as there are processors, and memory for. It changes no byte.",
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


class Chat(Family):
    """What families that render conversations have."""

    template: str = Field(
        default="tokenizer",
        description="tokenizer (its own chat template; tokenizer:NAME where it has several), a shipped one, prompt_type:NAME, or a path to a .jinja file.",
    )
    template_options: dict[str, Any] = Field(default={}, description="Further variables for the template, e.g. {enable_thinking: false}.")
    training_template: str | None = Field(
        default=None,
        description="A .jinja file: the template with {% generation %} tags, as TRL keeps it for most model families. Wherever it renders the same, what it "
        "marks is a third derivation of masks. null: tags of the template's own, if it has any.",
    )
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
