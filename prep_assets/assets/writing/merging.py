"""The stores of domains as one: lines end to end, or shuffled; the tokens of lines in the order of the lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt

from prep_assets.assets.commands import build_command
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.message_rows import UNTEMPLATED, form_of, strings_as_messages
from prep_assets.disk.arrays import numbers
from prep_assets.disk.columns import at, made, order, stretches, where, zeros
from prep_assets.errors import ConfigError, StoreError
from prep_assets.stores.joining import append_records
from prep_assets.stores.lines import Lines, LinesWriter, open_lines
from prep_assets.stores.published import Published, open_published
from prep_assets.stores.tokens import RecordWriter, TokenStore, open_tokens

Ints = npt.NDArray[np.int64]


BY_DOMAIN = "_by_domain"
"""Ends the name of an asset with a store for each domain; what stands before it is the asset that merges them."""


def by_domain(asset: str) -> str:
    """The asset whose stores another one merges."""
    return f"{asset}{BY_DOMAIN}"


def parts_of(workspace: Workspace, asset: str, names: Iterable[str]) -> dict[str, Published]:
    """The stores of domains, sorted as `names` are.

    Raises:
        StoreError: one is missing; the message has the command that builds it.
    """
    return {name: open_published(workspace.stores, asset, name, remedy=build_command(asset, name)) for name in names}


def merge_lines(parts: Mapping[str, Published], payload: Path, files: Mapping[str, int | None]) -> dict[str, int]:
    """Write the files of all domains as one each, of one form: messages where a domain has messages.

    Args:
        files: name of a file → the seed of its order; `None`: that of the domains. A file that none of the domains has is left out.

    Returns:
        How many lines each file has.

    Raises:
        ConfigError: some domains have messages, others strings that no message can say.
    """
    names, mixed = tuple(parts), _mixed_forms(parts)
    counts = {}
    with ExitStack() as stack:
        for file, seed in files.items():
            having = [(number, each) for number, each in enumerate(parts.values()) if (each.directory / f"{file}.jsonl").is_file()]
            if parts and not having:
                continue
            writer = stack.enter_context(LinesWriter(payload, file, names, shuffle_seed=seed))
            for number, part in having:
                _append(writer, open_lines(part.directory, file), number, as_messages=mixed)
            counts[file] = len(writer)
    return counts


def _append(writer: LinesWriter, lines: Lines, number: int, *, as_messages: bool) -> None:
    origins = zip(numbers(lines.index["file"]), numbers(lines.index["row"]), strict=True)
    for line, (file, row) in zip(lines.written(), origins, strict=True):
        if as_messages and isinstance((content := json.loads(line))["prompt"], str):
            writer.append(strings_as_messages(content), source=number, file=file, at=row)
        else:
            writer.append_line(line, source=number, file=file, at=row)


def _mixed_forms(parts: Mapping[str, Published]) -> bool:
    """Whether some domains hold strings and others messages."""
    forms = {name: form_of(part.directory) for name, part in parts.items() if part.manifest.counts["kept"]}
    if len(set(forms.values())) < 2:
        return False
    stuck = [name for name, form in forms.items() if form == "text" and parts[name].manifest.counts.get(UNTEMPLATED)]
    if stuck:
        rich = ", ".join(name for name, form in forms.items() if form == "messages")
        raise ConfigError(
            f"messages are in {rich}, and prompts and completions that no message can say in {', '.join(stuck)}: no one file can hold both. "
            f"Set form: text, which refuses rows of {rich}, or let the schema of {', '.join(stuck)} give user and assistant turns"
        )
    return True


def merge_tokens(workspace: Workspace, stream: str, parts: Mapping[str, Published], lines: tuple[str, str], writer: RecordWriter) -> None:
    """Write the tokens of all domains as one stream, in the order of the merged lines.

    Args:
        parts: the stores of the domains' tokens.
        lines: the asset of the merged lines, and the file.
    """
    asset, file = lines
    merged = open_lines(open_published(workspace.stores, asset, remedy=build_command(asset)).directory, file)
    files = {name: open_lines(part.directory, file) for name, part in parts_of(workspace, by_domain(asset), parts).items()}
    having = {name: part for name, part in parts.items() if (part.directory / f"{stream}.index").is_dir()}
    tokens = {name: open_tokens(part.directory, stream) for name, part in having.items()}
    found = _records(merged, files, tokens)
    append_records(writer, list(tokens.values()), *found)


def _records(merged: Lines, lines: Mapping[str, Lines], tokens: Mapping[str, TokenStore]) -> tuple[Ints, Ints, Ints]:
    """Of each record, in the order of the merged lines: the number of its stream, its number there, and its line. Not every line was tokenized."""
    # of each merged line: 1 + the number of its record, and its stream
    numbered, of = zeros(len(merged)), zeros(len(merged), np.int32)
    for number, (name, stream) in enumerate(tokens.items()):
        mine, places, record = merged.of(merged.sources.index(name)), lines[name].places, zeros(len(lines[name]))
        for part in stretches(len(stream)):
            record[stream.row[part]] = np.arange(part.start, part.stop) + 1
        # both files hold the same lines, in two orders
        here, by_place, line = merged.places, order(at(merged.places, mine)), order(places)
        for part in stretches(max(len(mine), len(line))):
            row = mine[by_place[part]]
            if not np.array_equal(here[row], places[line[part]]):
                raise StoreError(f"{merged.path}: it does not hold the {len(line):,} lines of {lines[name].path}. Build it again")
            numbered[row], of[row] = record[line[part]], number
    row = where(made(len(merged), lambda part: numbered[part] > 0, bool))
    return made(len(row), lambda part: of[row[part]]), made(len(row), lambda part: numbered[row[part]] - 1), row
