"""``domains: auto``: a domain for each value of `domain_key`, in the place of the entry that says so.

A domain that was found is what it would be if somebody had written it with that `domain_value`: its stores have the same bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TypeVar

from prep_assets.assets.reading.routing import MISSING, addresses
from prep_assets.assets.reading.values import refuse_too_many, values_of
from prep_assets.assets.workspace import Workspace
from prep_assets.config.meaning import faults
from prep_assets.config.models import Domain, Family, can_name_a_domain
from prep_assets.errors import ConfigError, PrepAssetsError, SourceUnavailable

F = TypeVar("F", bound=Family)
DEFAULT = "__default__"
"""The domain of rows that hold nothing there, as AstrAI calls it."""
MADE = {"domains": None, "max_domains": Domain.model_fields["max_domains"].default}


def with_found_domains(workspace: Workspace, family: F, where: str) -> F:
    """A family that finds domains, with those that its files name. A workspace that does not look takes what was found last, as far as that
    means something: else the family stays as it is, and whoever looks says what is wrong.

    Raises:
        ConfigError: values that cannot be told apart or are too many, or options that name a domain that there is not; begins with `where`.
        SourceUnavailable: a file does not answer, and was never looked at.
    """
    try:
        return _resolved(workspace, family, where)
    except PrepAssetsError:
        if workspace.looks:
            raise
        return family


def _resolved(workspace: Workspace, family: F, where: str) -> F:
    found: dict[str, Domain] = {}
    for label, domain in family.domains.items():
        try:
            for name, each in _made(workspace, family, domain, label) if domain.domains else [(label, domain)]:
                _refuse_same_name(name, found)
                found[name] = each
        except SourceUnavailable:
            raise
        except PrepAssetsError as error:
            raise ConfigError(f"{where}:\n  domains.{label}: {error}") from error
    if not found:
        raise ConfigError(f"{where}:\n  domains: no file has a row that can be read")
    made = family.model_copy(update={"domains": found})
    if not made.finds_domains and (wrong := list(faults(made))):
        raise ConfigError("\n".join([f"{where}:", *(f"  {each}" for each in wrong)]))
    return made


def _made(workspace: Workspace, family: Family, domain: Domain, label: str) -> Iterator[tuple[str, Domain]]:
    """Name and domain of each value."""
    others = {name: each for name, each in family.domains.items() if not each.domains and each.domain_key == domain.domain_key}
    read = addresses(workspace, (*domain.files, *domain.test_files)) if others else frozenset()
    taken = {each.value(name) for name, each in others.items() if read & addresses(workspace, (*each.files, *each.test_files))}
    files = values_of(workspace, domain, taken)
    if files is None:
        yield label, domain
        return
    counts = sum((Counter(each) for each in files.values()), Counter[str]())
    refuse_too_many(domain, counts, taken)
    for value in sorted(counts.keys() - taken):
        yield name_of(value), domain.model_copy(update={**MADE, "domain_value": value})


def name_of(value: str) -> str:
    """The name of a value's domain: the value, or what of it may stand in a name, with a hash of it."""
    if value == MISSING:
        return DEFAULT
    if can_name_a_domain(value):
        return value
    kept = re.sub(r"[^A-Za-z0-9]+", "-", value)[:60].strip("-") or "domain"
    return f"{kept}-{sha256(value.encode()).hexdigest()[:8]}"


def _refuse_same_name(name: str, found: Mapping[str, Domain]) -> None:
    same = next((other for other in found if other.casefold() == name.casefold()), None)
    if same is not None:
        raise ConfigError(
            f"the domain {name!r} is there already, as {same!r}; names must differ in more than capital letters, because they are folders. Write one "
            "of the two by hand under another name, with the same files and domain_key, and domain_value: the value as the rows have it"
        )
