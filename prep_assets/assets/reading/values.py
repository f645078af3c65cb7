"""The values of a domain's `domain_key`: one pass over its files, remembered beside their hashes; a file is read again when it changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from prep_assets.assets.reading.routing import MISSING, value_of
from prep_assets.assets.remembered import keep
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Domain
from prep_assets.errors import ConfigError, SourceError
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.pin import Pin
from prep_assets.records.read import read_blocks
from prep_assets.samples import Record
from prep_assets.stores.manifest import digest

Counts = Mapping[str, int]
"""Value → how many rows hold it."""
LONGEST = 1000
"""Characters of a value that names a domain."""


def values_of(workspace: Workspace, domain: Domain, taken: Collection[str]) -> Mapping[str, Counts] | None:
    """The values in each file, by the file's address. Where files cannot be read, or the workspace does not look at them: those that were found
    last; `None` where they never were.

    Args:
        taken: values that do not count among `max_domains`.

    Raises:
        ConfigError: more values than `max_domains`, or a value that can name no domain.
        SourceError: a file cannot be read, and nothing was found before.
    """
    known = _known(memory := _memory(workspace, domain))
    if not workspace.looks:
        return None if known is None else {url: counts for url, (_, counts) in known.items()}
    try:
        found = _look(workspace, domain, known or {}, taken)
    except SourceError:
        if known is None:
            raise
        found = known  # the build of a domain says what is wrong with its files
    if found != known:
        keep(memory, found)
    return {url: counts for url, (_, counts) in found.items()}


def _memory(workspace: Workspace, domain: Domain) -> Path:
    read = [str(workspace.configs.absolute()), domain.files, domain.test_files, domain.format, domain.txt, domain.domain_key]
    return workspace.stores / ".hashes" / f"values-{digest(read)[:20]}.json"


def _known(memory: Path) -> dict[str, tuple[str, dict[str, int]]] | None:
    """What was found last: address of a file → hash of its content, and its values."""
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
            sha256, counts = known.get(file.url, ("", {}))
            found[file.url] = (pin.sha256, counts if sha256 == pin.sha256 else _count(workspace, domain, file, pin, taken))
    return found


def _count(workspace: Workspace, domain: Domain, file: SourceFile, pin: Pin, taken: Collection[str]) -> dict[str, int]:
    key, counts = str(domain.domain_key), Counter[str]()
    for block in read_blocks(replace(file, blocks=pin.blocks), 0, txt=domain.txt):
        counts.update(_value(file, record, key) for record in block.records)
        refuse_too_many(domain, counts, taken)
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
    raise ConfigError(f"{key!r} of {record_id(file, record.row)} holds {wrong}. Name another field, or mend the row")


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
