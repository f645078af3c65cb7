"""Which format and compression a file's name stands for."""

from __future__ import annotations

from prep_assets.errors import ConfigError, nearest

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".txt": "txt",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}

SUFFIXES = f"{', '.join(FORMATS)}, each also with {', '.join(COMPRESSIONS)}"


def format_of(name: str) -> tuple[str | None, str | None]:
    """`(format, compression)` of a file called `name`; the format is `None` where the suffix says nothing."""
    stem = name.lower()
    compression = next((suffix for suffix in COMPRESSIONS if stem.endswith(suffix)), None)
    stem = stem.removesuffix(compression or "")
    format_suffix = next((suffix for suffix in FORMATS if stem.endswith(suffix)), "")
    return FORMATS.get(format_suffix), COMPRESSIONS.get(compression or "")


def check_format(format: str) -> str:
    """`format`, if it is one.

    Raises:
        ConfigError: no such format; the message names the known ones and the nearest match.
    """
    known = sorted(set(FORMATS.values()))
    if format not in known:
        raise ConfigError(f"no format {format!r}{nearest(format, known) or '.'} Known: {', '.join(known)}")
    return format
