"""Arrow: columns from blocks, JSON lines as tables of one schema, and folders as ``datasets.Dataset.save_to_disk`` writes them.

The folder is written without the `datasets` package: ``data-00000-of-00001.arrow`` … (Arrow streams), ``state.json``, ``dataset_info.json``.
Features are left out of ``dataset_info.json``, so that every version of `datasets` derives them from the Arrow schema.

Lines of one file need not have equal keys: ``tools`` or ``verifier`` stand only where a row has them. So every line is looked at once before
the first is written, and a key that a row lacks is null there. A value is never turned into one of another kind.
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
from prep_assets.exports.registry import Progress
from prep_assets.stores.lines import Lines
from prep_assets.stores.manifest import digest, file_hash
from prep_assets.stores.verification import WrittenFile, rename, write_json
from prep_assets.workers.pool import require_memory

SHARD_BYTES = 500_000_000
_FORM: dict[str, Any] = {"indent": 2, "sort_keys": True}
BATCH = 10_000
"""Lines that are in memory at a time."""
ROW_GROUP = 1000
"""Rows of a row group of Parquet."""
_KINDS = ((bool, "true or false"), (int | float, "a number"), (str, "text"), (list, "a list"), (object, "an object"))
Rows = Callable[[], Iterable[dict[str, Any]]]


def ragged(values: npt.NDArray[Any], lengths: npt.NDArray[np.int64], dtype: str) -> Any:
    """An Arrow list column: `values` cut into lists of `lengths`, elements of `dtype`."""
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(np.asarray(values).astype(dtype)))


def save_parquet(file: Path, rows: Rows, source: Lines, progress: Progress) -> None:
    """Write rows made of lines as one file of Parquet."""
    import pyarrow.parquet as pq

    schema, done = storable(schema_of(rows, source.path)), 0
    with WrittenFile(file) as written, pq.ParquetWriter(written, schema, compression="zstd") as writer:
        for table in tables(rows, schema):
            writer.write_table(table)
            done += len(table)
            progress(min(done, len(source)), len(source))


def parquet_files(tables: Iterable[Any], rows_per_file: int, name: Callable[[int], Path]) -> list[Path]:
    """Write tables of one schema as files of exactly so many rows, the last of what is left. Memory holds a row group and a table."""
    import pyarrow.parquet as pq

    written: list[Path] = []
    done = 0
    with ExitStack() as opened:
        for group in _groups(tables, rows_per_file):
            if done % rows_per_file == 0:
                opened.close()
                written.append(name(len(written)))
                file = opened.enter_context(WrittenFile(written[-1]))
                writer = opened.enter_context(pq.ParquetWriter(file, storable(group.schema), compression="zstd"))
            writer.write_table(group, row_group_size=ROW_GROUP)
            done += len(group)
    return written


def _groups(tables: Iterable[Any], rows_per_file: int) -> Iterator[Any]:
    """The rows of all tables in groups of at most `ROW_GROUP`, of which none is in two files."""
    import pyarrow as pa

    waiting, done = None, 0
    for table in tables:
        waiting = table if waiting is None else pa.concat_tables([waiting, table])
        group = min(ROW_GROUP, rows_per_file)
        needed = 3 * group * waiting.nbytes // max(1, len(waiting))
        require_memory(needed, f"a row group of {group:,} rows of Parquet", "Lower rows_per_file, or pack to shorter rows")
        while len(waiting) >= (most := min(ROW_GROUP, rows_per_file - done % rows_per_file)):
            yield waiting.slice(0, most)
            waiting, done = waiting.slice(most), done + most
    if waiting is not None and len(waiting):
        yield waiting


def numbered(paths: list[Path]) -> list[Path]:
    """Rename files, once all of them are written, so that each name says how many there are: ``train-00000.parquet`` → ``…-of-00002.parquet``."""
    return [rename(path, path.with_name(f"{path.stem}-of-{len(paths):05d}{path.suffix}")) for path in paths]


def save_to_disk(folder: Path, tables: Iterable[Any], split: str) -> None:
    """Write Arrow tables of one schema as the shards of one data set."""
    import pyarrow as pa

    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with ExitStack() as opened:
        file = None
        for table in tables:
            if file is None or file.tell() > SHARD_BYTES:
                opened.close()
                written.append(folder / f"data-{len(written):05d}.arrow")
                file = opened.enter_context(WrittenFile(written[-1]))
                writer = opened.enter_context(pa.ipc.new_stream(file, table.schema))
            writer.write_table(table)
    named = numbered(written)
    state: dict[str, Any] = {
        "_data_files": [{"filename": path.name} for path in named],
        "_fingerprint": digest([file_hash(path) for path in named])[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }
    write_json(folder / "state.json", state, **_FORM)
    write_json(folder / "dataset_info.json", {"citation": "", "description": "", "homepage": "", "license": ""}, **_FORM)


def save_splits(folder: Path, tables: Iterable[Any], split: str) -> None:
    """Write one split of a ``datasets.DatasetDict``."""
    save_to_disk(folder / split, tables, split)
    write_json(folder / "dataset_dict.json", {"splits": [split]}, **_FORM)


def tables(rows: Rows, schema: Any) -> Iterator[Any]:
    """Tables of at most `BATCH` rows, by a schema of `schema_of`."""
    import pyarrow as pa

    for batch in _batches(rows()):
        yield pa.Table.from_pylist(batch, schema)


def storable(schema: Any) -> Any:
    """The schema itself, which Parquet can hold.

    Raises:
        ConfigError: an object that has no key in any line, which Parquet cannot hold.
    """
    waiting = [(field.name, field.type) for field in schema]
    for name, kind in waiting:
        if kind.num_fields == 0 and str(kind).startswith("struct"):
            raise ConfigError(
                f"{name!r} is an object without keys in every line, which Parquet cannot hold. Leave it out of the sources, or export to hf_arrow"
            )
        waiting += [(f"{name}.{kind.field(at).name}", kind.field(at).type) for at in range(kind.num_fields)]
    return schema


def schema_of(rows: Rows, path: Path) -> Any:
    """The schema of rows, looked at once. Columns stand in the order in which they first appear.

    Args:
        rows: gives the same rows each time that it is called.
        path: the file that they are of, for messages.

    Raises:
        ConfigError: a column that is of two kinds, or a value that Arrow cannot hold.
    """
    import pyarrow as pa

    kinds: dict[str, tuple[str, int]] = {}
    schema, first = pa.schema([]), 1
    for batch in _batches(rows()):
        for line, row in enumerate(batch, first):
            _check_weights(row, line, path)
            _note(row, "", line, kinds, path)
        names = dict.fromkeys(key for row in batch for key in row)
        try:
            found = pa.schema([(name, pa.array([row.get(name) for row in batch]).type) for name in names])
            schema = pa.unify_schemas([schema, found], promote_options="permissive")
            # whole numbers among fractions: those that a double cannot hold are found here, before anything is written
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
    ConfigError: a message of the line has a loss weight, which no trainer reads from text: all of the message would be trained.
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


def _note(value: Any, place: str, line: int, kinds: dict[str, tuple[str, int]], path: Path) -> None:
    """Note the kind of a value and of everything in it, and the line where each kind first stood."""
    if value is None:
        return
    kind = next(name for types, name in _KINDS if isinstance(value, types))
    if place.endswith("function.arguments") and isinstance(value, dict):
        # a column would give every call the arguments of all others, as null, and a template writes those
        kind = f"an object with {', '.join(sorted(value)) or 'no key'}"
    before, at = kinds.setdefault(place, (kind, line))
    if before != kind:
        raise ConfigError(
            f"{path}: {place!r} is {before} in line {at:,} and {kind} in line {line:,}, but a column holds one kind. "
            "Give all sources of this file one form and build it again, or give the trainer the JSONL file"
        )
    if isinstance(value, dict):
        for key, inner in value.items():
            _note(inner, f"{place}.{key}" if place else key, line, kinds, path)
    elif isinstance(value, list):
        for inner in value:
            _note(inner, f"{place}[]", line, kinds, path)


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    lines = iter(rows)
    while batch := list(islice(lines, BATCH)):
        yield batch
