"""Arrow: columns from blocks, lines as Parquet, and folders as ``datasets.Dataset.save_to_disk`` writes them.

The folder is written without the `datasets` package: ``data-00000-of-00001.arrow`` … (Arrow streams), ``state.json``, ``dataset_info.json``.
Features are left out of ``dataset_info.json``, so that every version of `datasets` derives them from the Arrow schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError
from prep_assets.extensions.exports.registry import Progress
from prep_assets.stores.manifest import digest, file_hash
from prep_assets.stores.table import Table
from prep_assets.stores.verification import WrittenFile, rename, write_json
from prep_assets.workers.pool import require_memory

SHARD_BYTES = 500_000_000
_JSON_FORMAT: dict[str, Any] = {"indent": 2, "sort_keys": True}
ROW_GROUP = 1000
"""Rows of a row group of Parquet."""


def ragged(values: npt.NDArray[Any], lengths: npt.NDArray[np.int64], dtype: str) -> Any:
    """An Arrow list column: `values` cut into lists of `lengths`, elements of `dtype`."""
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(np.asarray(values).astype(dtype)))


def save_parquet(path: Path, rows: Rows, source: Table, progress: Progress) -> None:
    """Write rows derived from lines as one Parquet file."""
    import pyarrow.parquet as pq

    assert source.path is not None
    schema, done = require_storable(schema_of(rows, source.path)), 0
    with WrittenFile(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in tables(rows, schema):
            writer.write_table(table)
            done += len(table)
            progress(min(done, len(source)), len(source))


def write_parquet_files(tables: Iterable[Any], rows_per_file: int, name: Callable[[int], Path], row_group: int = ROW_GROUP) -> list[Path]:
    """Write tables of one schema as files of `rows_per_file` rows, the last one shorter. Memory holds one group of `row_group` rows and one table."""
    import pyarrow.parquet as pq

    paths: list[Path] = []
    done = 0
    with ExitStack() as stack:
        for group in _row_groups(tables, rows_per_file, row_group):
            if done % rows_per_file == 0:
                stack.close()
                paths.append(name(len(paths)))
                file = stack.enter_context(WrittenFile(paths[-1]))
                writer = stack.enter_context(pq.ParquetWriter(file, require_storable(group.schema), compression="zstd"))
            writer.write_table(group, row_group_size=row_group)
            done += len(group)
    return paths


def _row_groups(tables: Iterable[Any], rows_per_file: int, row_group: int) -> Iterator[Any]:
    """Yield the rows of all tables in groups of at most `row_group`, none of which spans two files."""
    import pyarrow as pa

    pending, done = None, 0
    for table in tables:
        pending = table if pending is None else pa.concat_tables([pending, table])
        group_rows = min(row_group, rows_per_file)
        needed = 3 * group_rows * pending.nbytes // max(1, len(pending))
        require_memory(needed, f"a row group of {group_rows:,} rows of Parquet", "Lower rows_per_file, or pack to shorter rows")
        while len(pending) >= (limit := min(row_group, rows_per_file - done % rows_per_file)):
            yield pending.slice(0, limit)
            pending, done = pending.slice(limit), done + limit
    if pending is not None and len(pending):
        yield pending


def add_shard_counts(paths: list[Path]) -> list[Path]:
    """Rename files, once all are written, to names with their count: ``train-00000.parquet`` → ``…-of-00002.parquet``."""
    return [rename(path, path.with_name(f"{path.stem}-of-{len(paths):05d}{path.suffix}")) for path in paths]


def save_to_disk(folder: Path, tables: Iterable[Any], split: str) -> None:
    """Write Arrow tables of one schema as the shards of one data set."""
    import pyarrow as pa

    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    with ExitStack() as stack:
        file = None
        for table in tables:
            if file is None or file.tell() > SHARD_BYTES:
                stack.close()
                paths.append(folder / f"data-{len(paths):05d}.arrow")
                file = stack.enter_context(WrittenFile(paths[-1]))
                writer = stack.enter_context(pa.ipc.new_stream(file, table.schema))
            writer.write_table(table)
    shards = add_shard_counts(paths)
    state: dict[str, Any] = {
        "_data_files": [{"filename": path.name} for path in shards],
        "_fingerprint": digest([file_hash(path) for path in shards])[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }
    write_json(folder / "state.json", state, **_JSON_FORMAT)
    write_json(folder / "dataset_info.json", {"citation": "", "description": "", "homepage": "", "license": ""}, **_JSON_FORMAT)


def save_splits(folder: Path, tables: Iterable[Any], split: str) -> None:
    """Write one split of a ``datasets.DatasetDict``."""
    save_to_disk(folder / split, tables, split)
    write_json(folder / "dataset_dict.json", {"splits": [split]}, **_JSON_FORMAT)


def require_storable(schema: Any) -> Any:
    """Return the schema, if Parquet can hold it.

    Raises:
        ConfigError: an object without a key in any line, which Parquet cannot hold.
    """
    pending = [(field.name, field.type) for field in schema]
    for name, kind in pending:
        if kind.num_fields == 0 and str(kind).startswith("struct"):
            raise ConfigError(
                f"{name!r} is an object without keys in every line, which Parquet cannot hold. Leave it out of the sources, or export to hf_arrow"
            )
        pending += [(f"{name}.{kind.field(index).name}", kind.field(index).type) for index in range(kind.num_fields)]
    return schema


# The one schema of JSON lines as Arrow tables.
#
# Lines of one file need not have equal keys: only some rows have ``tools`` or ``verifier``. So a first pass over all lines collects the
# schema, and missing keys become null. Values are never converted to another kind.

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
