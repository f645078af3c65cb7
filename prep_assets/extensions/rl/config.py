"""The configuration of prompts and scored groups: `rl.yaml`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from prep_assets.config.base import MOST, MOST_SEED, Model
from prep_assets.config.family import Chat
from prep_assets.config.models import RowFormOption
from prep_assets.samples import Group, Prompt


class Arithmetic(Model):
    """The arithmetic curriculum."""

    n: int = Field(default=5000, ge=1, le=100_000_000)
    """Number of questions."""
    largest: int = Field(default=20, ge=1, le=MOST)
    """Largest operand."""
    seed: int = Field(ge=-MOST_SEED, le=MOST_SEED, default=0)
    """Seed of the generator."""
    levels: tuple[str, ...] | None = None
    """Named levels in order. null: train-llm-from-scratch's one level."""
    unique: bool = False
    """Never ask the same question twice."""


class Rl(Chat):
    """`configs/rl.yaml`: prompts with a verifiable answer."""

    form_of_rows: ClassVar[type] = Prompt
    code_version: ClassVar[str] = "17"
    stages: ClassVar[tuple[str, ...]] = ("pair", "prompt", "group")

    form: RowFormOption = "auto"
    """text: strings, rejecting other rows; messages: {role, content} with reasoning, tool calls and tools; auto: strings if all rows fit, else messages."""

    test_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of prompts held out, by hash."""
    arithmetic: Arithmetic = Arithmetic()

    def form_of(self, name: str) -> type:
        """A `Group`, if the schema of the domain gives that and no `Prompt`. A user's function is imported for it."""
        from prep_assets.own_code import own_code_gives
        from prep_assets.schemas.registry import schema_named

        schema = self.domains[name].schema_name
        if ":" in schema:
            return Group if own_code_gives(schema, Group) else Prompt
        known = schema_named(schema)
        groups = known is not None and known.can_give(Group) and not known.can_give(Prompt)
        return Group if groups and schema != "group_kto" else Prompt  # whose labels are for preferences alone


def group_domains(family: Rl) -> tuple[str, ...]:
    """Domains of scored groups, sorted: `rl_groups` reads them."""
    return tuple(sorted(name for name in family.domains if family.form_of(name) is Group))


def prompt_domains(family: Rl) -> tuple[str, ...]:
    """All other domains, sorted: `rl_prompts` reads them, and raises on a schema that gives no `Prompt`."""
    return tuple(sorted(set(family.domains) - set(group_domains(family))))
