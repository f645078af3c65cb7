"""The one schema of JSON lines as Arrow tables.

Lines of one file need not have equal keys: only some rows have ``tools`` or ``verifier``. So a first pass over all lines collects the
schema, and missing keys become null. Values are never converted to another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError

BATCH = 10_000
"""Lines in memory at a time."""
_KINDS = ((bool, "true or false"), (int | float, "a number"), (str, "text"), (list, "a list"), (object, "an object"))
Rows = Callable[[], Iterable[dict[str, Any]]]


def tables(rows: Rows, schema: Any) -> Iterator[Any]:
    """Yield the rows as tables of at most `BATCH` rows, with a schema from `schema_of`."""
    import pyarrow as pa

    for batch in _batches(rows()):
        yield pa.Table.from_pylist(batch, schema)


def schema_of(rows: Rows, path: Path) -> Any:
    """The schema of all rows, from one pass over them. Columns are in order of first appearance.

    Args:
        rows: returns the same rows on every call.
        path: the file of the rows, for messages.

    Raises:
        ConfigError: a column of two kinds, or a value that Arrow cannot hold.
    """
    import pyarrow as pa

    kinds: dict[str, tuple[str, int]] = {}
    schema, first = pa.schema([]), 1
    for batch in _batches(rows()):
        for line, row in enumerate(batch, first):
            _check_weights(row, line, path)
            _note_kinds(row, "", line, kinds, path)
        names = dict.fromkeys(key for row in batch for key in row)
        try:
            batch_schema = pa.schema([(name, pa.array([row.get(name) for row in batch]).type) for name in names])
            schema = pa.unify_schemas([schema, batch_schema], promote_options="permissive")
            # integers that became double: those that a double cannot hold fail here, before anything is written
            pa.Table.from_pylist(batch, schema)
        except (pa.ArrowException, OverflowError, UnicodeError) as error:
            raise ConfigError(
                f"{path}, lines {first:,} to {first + len(batch) - 1:,}: a value that no column can hold ({error})"
            ) from error
        first += len(batch)
    if not len(schema):
        raise ConfigError(f"{path}: no line has a field, so there are no columns")
    return schema


def _check_weights(row: dict[str, Any], line: int, path: Path) -> None:
    """Raises:
    ConfigError: a message has a loss weight, which no trainer reads from text: all of the message would be trained.
    """
    for key, value in row.items():
        for message in value if isinstance(value, list) else ():
            content = message.get("content") if isinstance(message, dict) else None
            parts = [message, *(content if isinstance(content, list) else ())]
            if any(isinstance(part, dict) and "loss_weight" in part for part in parts):
                raise ConfigError(
                    f"{path} line {line:,}: {key} has a loss_weight, which no trainer reads from text, and all of it would be trained. Export the "
                    "tokens (preference_tokens), which have a mask"
                )


def _note_kinds(value: Any, key_path: str, line: int, kinds: dict[str, tuple[str, int]], path: Path) -> None:
    """Record the kind of a value and of all values in it, with the first line of each; raise on a second kind."""
    if value is None:
        return
    kind = next(name for types, name in _KINDS if isinstance(value, types))
    if key_path.endswith("function.arguments") and isinstance(value, dict):
        # in a column every call would have the arguments of all calls, as null, and templates render them
        kind = f"an object with {', '.join(sorted(value)) or 'no key'}"
    known_kind, known_line = kinds.setdefault(key_path, (kind, line))
    if known_kind != kind:
        raise ConfigError(
            f"{path}: {key_path!r} is {known_kind} in line {known_line:,} and {kind} in line {line:,}, but a column holds one kind. "
            "Give all sources of this file one form and build it again, or give the trainer the JSONL file"
        )
    if isinstance(value, dict):
        for key, inner in value.items():
            _note_kinds(inner, f"{key_path}.{key}" if key_path else key, line, kinds, path)
    elif isinstance(value, list):
        for inner in value:
            _note_kinds(inner, f"{key_path}[]", line, kinds, path)


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    lines = iter(rows)
    while batch := list(islice(lines, BATCH)):
        yield batch
