"""The source files of a configuration: found, pinned, and searched for the domains that they hold."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from prep_assets.config.family import Domain, Family, can_name_a_domain, faults
from prep_assets.data.files import SourceFile, find, find_files, record_id
from prep_assets.data.pins import Pin, pin_files, pin_folder
from prep_assets.data.read import read_blocks
from prep_assets.errors import ConfigError, PrepAssetsError, SourceError, SourceUnavailable
from prep_assets.pipeline.media import record_files
from prep_assets.plugins import of_extension
from prep_assets.samples import Record
from prep_assets.stores.files import loads
from prep_assets.stores.manifest import digest

Progress = Callable[[str, int, int], None]
"""Called during long work: label (changing figures after a colon), amount done, total."""


class SourceFiles:
    """The part of a `Workspace` that finds source files, with their hashes cached next to the stores."""

    configs: Path
    stores: Path
    progress: Progress | None
    looks: bool

    def files(self, domain: Domain, *, fetch: bool = True) -> tuple[SourceFile, ...]:
        """The source files of a domain, sorted by name. `fetch`: see `find_files`."""
        return _redacting(domain, find_files(domain.files, self.configs, format=domain.format, fetch=fetch))

    def test_files(self, domain: Domain, *, fetch: bool = True) -> tuple[SourceFile, ...]:
        """The held-out source files of a domain, sorted by name; often none. Where one has the name of a training file, all stand in a folder ``test``: names
        are part of the ids of records."""
        if not domain.test_files:
            return ()
        found, taken = (
            find_files(domain.test_files, self.configs, format=domain.format, fetch=fetch),
            {f.name for f in self.files(domain, fetch=fetch)},
        )
        while not taken.isdisjoint(file.name for file in found):
            found = tuple(replace(file, name=f"test/{file.name}") for file in found)
        return _redacting(domain, found)

    def benchmarks(self, family: Family, *, fetch: bool = True) -> tuple[SourceFile, ...]:
        """The benchmark files of a family, sorted by name; often none. No record may hold a passage of them."""
        return find_files(family.decontaminate.files, self.configs, fetch=fetch) if family.decontaminate.files else ()

    def pins(self, files: tuple[SourceFile, ...]) -> tuple[Pin, ...]:
        """Content hashes of source files. A file that looks untouched since it was last hashed is not hashed again."""
        if not files:
            return ()
        known = self.remembered(files)
        pins = pin_files(files, known)
        if list(pins) != known:
            _keep(self._pin_cache(files), [{name: getattr(pin, name) for name in Pin.__struct_fields__} for pin in pins])
        return pins

    def remembered(self, files: tuple[SourceFile, ...]) -> list[Pin]:
        """The pins of source files from the cache on this machine, without looking at the files. Empty if the cache is missing or unreadable, because hashing
        again costs only time."""
        try:
            return [Pin(**entry) for entry in loads(self._pin_cache(files).read_bytes())]
        except (OSError, ValueError, TypeError):
            return []

    def _pin_cache(self, files: tuple[SourceFile, ...]) -> Path:
        return self.stores / ".hashes" / f"{digest([file.url for file in files])[:20]}.json"

    def media_folder(self, domain: Domain) -> Path | None:
        """The folder of the files that a domain's rows name; `None` if it has none."""
        return record_files().folder(self.configs, domain)

    def media_pin(self, domain: Domain) -> dict[str, str | int] | None:
        """The pin of this folder: number and size of its files, and a hash of their names and contents."""
        folder = self.media_folder(domain)
        if folder is None:
            return None
        return pin_folder(folder, self.stores / ".hashes" / f"images-{digest(str(folder.absolute()))[:20]}.jsonl").identity


def _redacting(domain: Domain, files: tuple[SourceFile, ...]) -> tuple[SourceFile, ...]:
    """The files of a domain, to be read without the private data that it replaces."""
    if not domain.redact:
        return files
    redactor = of_extension("redaction", "redactor")(domain.redact, domain.forgotten, domain.countries)
    return tuple(replace(file, redact=redactor) for file in files)


def _keep(cache: Path, content: Any) -> None:
    """Write a cache file atomically: sensors and runs use the same files at once. Where stores can only be read there is none, which costs only time."""
    temporary = cache.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(content), "utf-8")
        temporary.replace(cache)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def addresses(sources: SourceFiles, patterns: Sequence[str]) -> frozenset[str]:
    """The addresses of the files that match patterns; a pattern may match none."""
    urls: set[str] = set()
    for pattern in patterns:
        try:
            urls.update(file.url for file in find(pattern, sources.configs))
        except SourceUnavailable:
            raise  # an unreachable file may exist, and share rows
        except SourceError:
            continue  # missing files stop the build of the domain that names them, and no other
    return frozenset(urls)


MISSING = "(missing)"
"""What rows without a value are called."""


def value_of(payload: Mapping[str, Any], key: str) -> str:
    """The value of a row's `domain_key` field as text."""
    value = payload.get(key)
    return MISSING if value is None else str(value)


# ``domains: auto``: the entry is replaced by one domain per value of `domain_key`.
#
# A found domain equals one written by hand with that `domain_value`: its stores have the same bytes.

F = TypeVar("F", bound=Family)
DEFAULT = "__default__"
"""The domain of rows without a value, as AstrAI calls it."""
REPLACED = {"domains": None, "max_domains": Domain.model_fields["max_domains"].default}
LONGEST = 1000
"""Most characters of a value that names a domain."""


def with_found_domains(sources: SourceFiles, family: F, where: str) -> F:
    """Replace the ``auto`` domains of a family by those found in its files. Where `sources` does not look at files, the last values found count; if
    that fails, the family stays unresolved, and the next workspace that looks raises the error.

    Raises:
        ConfigError: values that cannot be told apart or are too many, or options that name an unknown domain; begins with `where`.
        SourceUnavailable: a file is unreachable, and its values are not cached.
    """
    try:
        return _resolved(sources, family, where)
    except PrepAssetsError:
        if sources.looks:
            raise
        return family


def _resolved(sources: SourceFiles, family: F, where: str) -> F:
    domains: dict[str, Domain] = {}
    for label, domain in family.domains.items():
        try:
            for name, member in _domains_by_value(sources, family, domain, label) if domain.domains else [(label, domain)]:
                _check_name_is_free(name, domains)
                domains[name] = member
        except SourceUnavailable:
            raise
        except PrepAssetsError as error:
            raise ConfigError(f"{where}:\n  domains.{label}: {error}") from error
    if not domains:
        raise ConfigError(f"{where}:\n  domains: no file has a row that can be read")
    resolved = family.model_copy(update={"domains": domains})
    if not resolved.finds_domains and (wrong := list(faults(resolved))):
        raise ConfigError("\n".join([f"{where}:", *(f"  {fault}" for fault in wrong)]))
    return resolved


def _domains_by_value(sources: SourceFiles, family: Family, domain: Domain, label: str) -> Iterator[tuple[str, Domain]]:
    """Yield name and domain for every value."""
    written_domains = {name: other for name, other in family.domains.items() if not other.domains and other.domain_key == domain.domain_key}
    read = addresses(sources, (*domain.files, *domain.test_files)) if written_domains else frozenset()
    taken = {other.value(name) for name, other in written_domains.items() if read & addresses(sources, (*other.files, *other.test_files))}
    files = values_of(sources, domain, taken)
    if files is None:
        yield label, domain
        return
    counts = sum((Counter(file_counts) for file_counts in files), Counter[str]())
    check_value_count(domain, counts, taken)
    for value in sorted(counts.keys() - taken):
        yield name_of(value), domain.model_copy(update={**REPLACED, "domain_value": value})


def name_of(value: str) -> str:
    """The name of a value's domain: the value itself, or its allowed characters and a hash."""
    if value == MISSING:
        return DEFAULT
    if can_name_a_domain(value):
        return value
    stem = re.sub(r"[^A-Za-z0-9]+", "-", value)[:60].strip("-") or "domain"
    return f"{stem}-{sha256(value.encode()).hexdigest()[:8]}"


def _check_name_is_free(name: str, domains: Mapping[str, Domain]) -> None:
    taken_name = next((existing for existing in domains if existing.casefold() == name.casefold()), None)
    if taken_name is not None:
        raise ConfigError(
            f"the domain {name!r} is there already, as {taken_name!r}; names must differ in more than capital letters, because they are folders. Write one "
            "of the two by hand under another name, with the same files and domain_key, and domain_value: the value as the rows have it"
        )


Counts = Mapping[str, int]
"""Value → how many rows hold it."""


def values_of(sources: SourceFiles, domain: Domain, taken: Collection[str]) -> list[Counts] | None:
    """The value counts of every file. If files cannot be read, or are not looked at, the cached ones; `None` if there are none.

    Args:
        taken: values that do not count towards `max_domains`.

    Raises:
        ConfigError: more values than `max_domains`, or a value that cannot name a domain.
        SourceError: a file cannot be read, and nothing is cached.
    """
    remembered = _load_values(path := _values_path(sources, domain))
    if not sources.looks:
        return None if remembered is None else [counts for _, counts in remembered.values()]
    try:
        current = _read_values(sources, domain, remembered or {}, taken)
    except SourceError:
        if remembered is None:
            raise
        current = remembered  # the build of a domain says what is wrong with its files
    if current != remembered:
        _keep(path, current)
    return [counts for _, counts in current.values()]


def _values_path(sources: SourceFiles, domain: Domain) -> Path:
    read = [str(sources.configs.absolute()), domain.files, domain.test_files, domain.format, domain.txt, domain.domain_key]
    return sources.stores / ".hashes" / f"values-{digest(read)[:20]}.json"


def _load_values(path: Path) -> dict[str, tuple[str, dict[str, int]]] | None:
    """The cached values: hash of a file's address → hash of its content, and value counts. Addresses are hashed because they may hold secrets."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, tuple[str, dict[str, int]]])
    except (OSError, msgspec.DecodeError):
        return None


def _read_values(
    sources: SourceFiles, domain: Domain, known: Mapping[str, tuple[str, dict[str, int]]], taken: Collection[str]
) -> dict[str, tuple[str, dict[str, int]]]:
    values = {}
    for files in (sources.files(domain), sources.test_files(domain)):
        for file, pin in zip(files, sources.pins(files), strict=True):
            sha256, counts = known.get(address := digest(file.url), ("", {}))
            values[address] = (pin.sha256, counts if sha256 == pin.sha256 else _count_values(sources, domain, file, pin, taken))
    return values


def _count_values(sources: SourceFiles, domain: Domain, file: SourceFile, pin: Pin, taken: Collection[str]) -> dict[str, int]:
    key, counts = str(domain.domain_key), Counter[str]()
    for block in read_blocks(replace(file, blocks=pin.blocks), 0, txt=domain.txt):
        counts.update(_domain_value(file, record, key) for record in block.records)
        check_value_count(domain, counts, taken)
        if sources.progress:
            sources.progress(f"look for domains in {file.name}", block.bytes_read, file.size)
    return dict(sorted(counts.items()))


def _domain_value(file: SourceFile, record: Record, key: str) -> str:
    """Raises:
    ConfigError: the row's value cannot name a domain.
    """
    content, value = record.payload.get(key), value_of(record.payload, key)
    if isinstance(content, list | Mapping):
        wrong = f"a list or an object, {value!r:.80}"
    elif content == MISSING:
        wrong = f"the text {MISSING!r}, which is what rows without a value are called"
    elif len(value) > LONGEST:
        wrong = f"{len(value):,} characters, {value!r:.80}…"
    else:
        return value
    raise ConfigError(f"{key!r} of {record_id(file, record.row)} holds {wrong}. Name another field, or fix the row")


def check_value_count(domain: Domain, counts: Counts, taken: Collection[str]) -> None:
    """Raise if there are more values than `max_domains`.

    Raises:
        ConfigError: names the most frequent values.
    """
    most = Counter({value: count for value, count in counts.items() if value not in taken})
    if len(most) > domain.max_domains:
        shown = ", ".join(f"{value!r:.80} ({count:,} rows)" for value, count in most.most_common(10))
        raise ConfigError(
            f"{domain.domain_key!r} holds {len(most):,} values or more, and max_domains is {domain.max_domains:,}. The most frequent so far: "
            f"{shown}. Name a field that tells fewer domains apart, or raise max_domains"
        )
