"""An export: lines with a term and its meaning as tab-separated values, and their reader, which is other code."""

import csv
from pathlib import Path

from prep_assets.extensions.exports.readable import Options, Readable
from prep_assets.extensions.exports.registry import Progress, exporter, reads
from prep_assets.stores.table import LINES, Table


@exporter("tsv", LINES, read_by="spreadsheets", opens={"": ("open {folder}/terms.tsv",)}, kind="csv")
def tsv(source: Table, out: Path, progress: Progress, *, header: bool = True) -> None:
    """`terms.tsv`: a line for each term."""
    with (out / "terms.tsv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerows([("term", "meaning")] if header else [])
        writer.writerows((line["term"], line["meaning"]) for line in source)
    progress(len(source), len(source))


@reads("tsv")
def read_tsv(folder: Path, source: Table, options: Options) -> Readable:
    """Its rows again."""
    with (folder / "terms.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))[int(options["header"]) :]
    return Readable(len(rows), lambda number: rows[number], expected=lambda line, number: [line["term"], line["meaning"]])
