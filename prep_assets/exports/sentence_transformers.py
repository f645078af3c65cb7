"""Parquet for sentence-transformers: ``anchor, positive``, then ``negative``, or ``negative_1`` to ``negative_n``; one row for each positive of a query."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from prep_assets.errors import ConfigError, StoreError
from prep_assets.exports.arrow import save_parquet
from prep_assets.exports.readable import Options, Readable, Source, parquet
from prep_assets.exports.registry import FileName, Progress, exporter
from prep_assets.stores.lines import Lines

READ_BY = "sentence-transformers"
LINES = {
    "": (
        "from datasets import load_dataset",
        'dataset = load_dataset("parquet", data_files="{folder}/{split}.parquet", split="train")',
        "SentenceTransformerTrainer(model=model, train_dataset=dataset, loss=MultipleNegativesRankingLoss(model))",
    )
}


BESIDE = ("instruction", "positive_scores", "negative_scores")
"""Fields of a row that have no column here."""


@exporter("sentence_transformers", Lines, kind="parquet")
def sentence_transformers(
    source: Lines,
    out: Path,
    progress: Progress,
    *,
    negatives: Annotated[int, Field(ge=0)] | None = None,
    leave_out: list[str] = [],  # noqa: B006  (it is only read)
    split: FileName = "train",
) -> None:
    """``<split>.parquet`` of contrastive rows: an anchor, one positive, and as many negatives in every row.

    `negatives` is how many of a row's negatives are written, the first ones; it is needed where rows have several numbers of them. A row with fewer stops
    the export. `leave_out` names what of the rows may be lost: ``instruction``, ``positive_scores``, ``negative_scores``.
    """
    if strange := sorted(set(leave_out) - set(BESIDE)):
        raise ConfigError(f"export 'sentence_transformers', option 'leave_out': {strange[0]!r} is none of {', '.join(BESIDE)}")
    count = _count(source, negatives, leave_out)

    def rows() -> Iterator[dict[str, Any]]:
        names = ["negative"] if count == 1 else [f"negative_{number}" for number in range(1, count + 1)]
        for row in source:
            for positive in row["positives"]:
                yield {"anchor": row["query"], "positive": positive, **dict(zip(names, row["negatives"], strict=False))}

    save_parquet(out / f"{split}.parquet", rows, source, progress)


def _count(source: Lines, negatives: int | None, leave_out: list[str]) -> int:
    """How many negatives every row has.

    Raises:
        ConfigError: a line is not a contrastive row, has too few negatives, or has a field without a column.
    """
    count = negatives
    for line, row in enumerate(source, 1):
        where = f"{source.path} line {line:,}"
        if "positives" not in row:
            raise ConfigError(
                f"{where} has the fields {sorted(row)}; sentence-transformers trains on rows of the asset contrastive, which have query, positives and "
                "negatives. Texts that are only to be embedded go to hf_arrow"
            )
        lost = [name for name in BESIDE if name in row and name not in leave_out]
        if lost:
            raise ConfigError(
                f"{where} has {lost[0]!r}, for which there is no column: give it to the trainer (prompts=…), and list it in leave_out; or export to "
                "flag_embedding"
            )
        found = len(row["negatives"])
        if count is None:
            count = found
        if found < count or (negatives is None and found != count):
            raise ConfigError(
                f"{where} has {found} negatives, others have {count}, and every row needs as many. Set negatives: {min(found, count)}"
            )
    return count or 0


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them: the rows of one query are one row here."""
    table = parquet([folder / f"{options['split']}.parquet"])
    assert isinstance(source, Lines)
    ends = list(accumulate(len(row["positives"]) for row in source))
    if table.column_names[:2] != ["anchor", "positive"] or not ends or len(table) != ends[-1]:
        raise StoreError(f"{len(table):,} rows of {table.column_names}, the store has {ends[-1] if ends else 0:,} positives")

    def row(number: int) -> list[list[str]]:
        start = ends[number - 1] if number else 0
        return [list(each.values()) for each in table.slice(start, ends[number] - start).to_pylist()]

    def expected(line: dict[str, Any], number: int) -> list[list[str]]:
        return [[line["query"], positive, *line["negatives"][: len(table.column_names) - 2]] for positive in line["positives"]]

    return Readable(len(ends), row, expected=expected)
