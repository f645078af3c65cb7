"""``domains: auto``: a domain for each value of `domain_key`, instead of the entry that says so.

A domain that was found equals one that is written by hand with that `domain_value`: its stores have the same bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from prep_assets.assets.reading.routing import MISSING, addresses, value_of
from prep_assets.assets.remembered import keep
from prep_assets.assets.workspace import Workspace
from prep_assets.config.meaning import faults
from prep_assets.config.models import Domain, Family, can_name_a_domain
from prep_assets.errors import ConfigError, PrepAssetsError, SourceError, SourceUnavailable
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.pin import Pin
from prep_assets.records.read import read_blocks
from prep_assets.samples import Record
from prep_assets.stores.manifest import digest

F = TypeVar("F", bound=Family)
DEFAULT = "__default__"
"""The domain of rows that hold nothing there, as AstrAI calls it."""
MADE = {"domains": None, "max_domains": Domain.model_fields["max_domains"].default}
LONGEST = 1000
"""Characters of a value that names a domain."""


def with_found_domains(workspace: Workspace, family: F, where: str) -> F:
    """A family that finds domains, with those that its files name. A workspace that does not look takes what was found last, as far as that
    means something: else the family stays as it is, and whoever looks says what is wrong.

    Raises:
        ConfigError: values that cannot be told apart or are too many, or options that name an unknown domain; begins with `where`.
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
    counts = sum((Counter(each) for each in files), Counter[str]())
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


Counts = Mapping[str, int]
"""Value → how many rows hold it."""


def values_of(workspace: Workspace, domain: Domain, taken: Collection[str]) -> list[Counts] | None:
    """The values in each file. Where files cannot be read, or the workspace does not look at them: those that were found
    last; `None` where they never were.

    Args:
        taken: values that do not count among `max_domains`.

    Raises:
        ConfigError: more values than `max_domains`, or a value that can name no domain.
        SourceError: a file cannot be read, and nothing was found before.
    """
    known = _known(memory := _memory(workspace, domain))
    if not workspace.looks:
        return None if known is None else [counts for _, counts in known.values()]
    try:
        found = _look(workspace, domain, known or {}, taken)
    except SourceError:
        if known is None:
            raise
        found = known  # the build of a domain says what is wrong with its files
    if found != known:
        keep(memory, found)
    return [counts for _, counts in found.values()]


def _memory(workspace: Workspace, domain: Domain) -> Path:
    read = [str(workspace.configs.absolute()), domain.files, domain.test_files, domain.format, domain.txt, domain.domain_key]
    return workspace.stores / ".hashes" / f"values-{digest(read)[:20]}.json"


def _known(memory: Path) -> dict[str, tuple[str, dict[str, int]]] | None:
    """What was found last: hash of a file's address, which may hold a password or a signature → hash of its content, and its values."""
    try:
        return msgspec.json.decode(memory.read_bytes(), type=dict[str, tuple[str, dict[str, int]]])
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _look(
    workspace: Workspace, domain: Domain, known: Mapping[str, tuple[str, dict[str, int]]], taken: Collection[str]
) -> dict[str, tuple[str, dict[str, int]]]:
    found = {}
    for files in (workspace.files(domain), workspace.test_files(domain)):
        for file, pin in zip(files, workspace.pins(files), strict=True):
            sha256, counts = known.get(address := digest(file.url), ("", {}))
            found[address] = (pin.sha256, counts if sha256 == pin.sha256 else _count(workspace, domain, file, pin, taken))
    return found


def _count(workspace: Workspace, domain: Domain, file: SourceFile, pin: Pin, taken: Collection[str]) -> dict[str, int]:
    key, counts = str(domain.domain_key), Counter[str]()
    for block in read_blocks(replace(file, blocks=pin.blocks), 0, txt=domain.txt):
        counts.update(_value(file, record, key) for record in block.records)
        refuse_too_many(domain, counts, taken)
        if workspace.progress:
            workspace.progress(f"look for domains in {file.name}", block.bytes_read, file.size)
    return dict(sorted(counts.items()))


def _value(file: SourceFile, record: Record, key: str) -> str:
    """Raises:
    ConfigError: the row holds something that can name no domain.
    """
    given, value = record.payload.get(key), value_of(record.payload, key)
    if isinstance(given, list | Mapping):
        wrong = f"a list or an object, {value!r:.80}"
    elif given == MISSING:
        wrong = f"the text {MISSING!r}, which is what rows without a value are called"
    elif len(value) > LONGEST:
        wrong = f"{len(value):,} characters, {value!r:.80}…"
    else:
        return value
    raise ConfigError(f"{key!r} of {record_id(file, record.row)} holds {wrong}. Name another field, or fix the row")


def refuse_too_many(domain: Domain, counts: Counts, taken: Collection[str]) -> None:
    """Stop where there are more values than `max_domains`.

    Raises:
        ConfigError: names the most frequent ones.
    """
    most = Counter({value: count for value, count in counts.items() if value not in taken})
    if len(most) > domain.max_domains:
        shown = ", ".join(f"{value!r:.80} ({count:,} rows)" for value, count in most.most_common(10))
        raise ConfigError(
            f"{domain.domain_key!r} holds {len(most):,} values or more, and max_domains is {domain.max_domains:,}. The most frequent so far: "
            f"{shown}. Name a field that tells fewer domains apart, or raise max_domains"
        )
