"""What of a configuration is checked when it is opened, beyond the file itself: every domain's schema, its options, and the form that it gives."""

from __future__ import annotations

from collections.abc import Iterator

from prep_assets.config.models import Contrastive, Domain, Family, Preference, Rl
from prep_assets.errors import ConfigError
from prep_assets.samples import Contrast, Group, Pair, Prompt, Sample
from prep_assets.schemas.registry import convert_with

GROUP_SCHEMAS = frozenset({"group", "sections"})
"""Schemas that give a `Group` and no `Prompt`."""


def check_domains(family: Family, where: str) -> None:
    """Stop at an unknown schema or option, or at a schema that does not give what the family needs.

    Functions of the user's own are not imported here: looking at the graph does not run their code.

    Raises:
        ConfigError: all of these at once, each with its key.
    """
    faults = list(_faults(family))
    if faults:
        raise ConfigError("\n".join([f"{where}:", *faults]))


def _faults(family: Family) -> Iterator[str]:
    for name, domain in family.domains.items():
        if ":" in domain.schema_name:
            continue
        try:
            convert_with(domain.schema_name, domain.options, gives=_needed(family, domain), or_labels=isinstance(family, Preference))
        except ConfigError as error:
            yield f"  domains.{name}: {error}"


def _needed(family: Family, domain: Domain) -> type:
    if isinstance(family, Rl):
        return Group if domain.schema_name in GROUP_SCHEMAS else Prompt
    if isinstance(family, Contrastive):
        return Contrast
    return Pair if isinstance(family, Preference) else Sample


def group_domains(family: Rl) -> tuple[str, ...]:
    """Domains of scored groups, sorted: `rl_groups` reads them."""
    return tuple(sorted(name for name, domain in family.domains.items() if _gives_groups(domain)))


def prompt_domains(family: Rl) -> tuple[str, ...]:
    """All other domains, sorted: `rl_prompts` reads them, and stops at a schema that gives no `Prompt`."""
    return tuple(sorted(set(family.domains) - set(group_domains(family))))


def _gives_groups(domain: Domain) -> bool:
    if ":" not in domain.schema_name:
        return domain.schema_name in GROUP_SCHEMAS
    from prep_assets.schemas.registry import own_code_gives

    return own_code_gives(domain.schema_name, Group)
