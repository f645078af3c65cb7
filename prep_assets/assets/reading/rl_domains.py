"""Which asset reads which domain of the RL family: what the schema gives decides."""

from __future__ import annotations

from prep_assets.assets.configured import GROUP_SCHEMAS
from prep_assets.config.models import Domain, Rl
from prep_assets.samples import Group


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
