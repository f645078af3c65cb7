"""What a file is that does not hold the rows that its name promises: a Git LFS pointer, a web page, one JSON value over many lines."""

from __future__ import annotations

import json
import re

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
MOST_OF_POINTER = 1024
"""Bytes of a Git LFS pointer at the most."""
POINTER = ("is a Git LFS pointer, not the data", "Fetch the data with `git lfs pull`")
_PAGE = ("is an HTML page, as servers send for an error or a log-in", "Download the data itself")
_LIST = ("is one JSON list, not one object a line", "Set `format: json`")
_SPREAD = (
    "is JSON over several lines, not one object a line",
    "Set `format: json` if it is one list or object, or write one object a line (`jq -c`)",
)
_SEVERAL = ("has several JSON objects on one line", "Write one object a line (`jq -c .`)")
_CR = ("ends its lines with CR alone, which no reader takes for a line end", "Convert it: tr '\\r' '\\n'")
_HTML = re.compile(rb"<(!doctype html|html)\b", re.IGNORECASE)
_decode = json.JSONDecoder().raw_decode


def recognized(head: bytes, format: str, *, whole: bool) -> tuple[str, str] | None:
    """Return what a file of lines is, and the remedy, if its beginning shows that its lines are no rows; otherwise `None`.

    Args:
        head: its first bytes, without a byte order mark.
        whole: whether they are all.
    """
    text = head.lstrip()
    first, newline, rest = text.partition(b"\n")
    opening, next_one = _HTML.match(text), _HTML.match(rest.lstrip())
    if opening and not (next_one and next_one[1].lower() == opening[1].lower()):  # a text file may have a page on each line
        return _PAGE
    if not newline and text.strip().count(b"\r") >= (1 if whole else 3):
        return _CR
    if format != "jsonl" or not (newline or whole):
        return None
    value, end = _first_value(first)
    if end is None:
        return _SPREAD if rest.strip() and (first.startswith(b"[") or first.rstrip()[-1:] in (b"{", b"[", b",")) else None
    of_objects = isinstance(value, list) and bool(value) and all(isinstance(element, dict) for element in value)
    return _LIST if of_objects and whole and not rest.strip() else None


def of_row(text: str, rows: int) -> tuple[str, str] | None:
    """Return what a file is of which none of its `rows` can be used, and the remedy, from the beginning of the first one."""
    row = text.strip().encode()
    if rows == 1 and row.startswith(b"["):
        return _LIST
    _, end = _first_value(row)
    return _SEVERAL if end is not None and row.decode()[end:].lstrip().startswith("{") else None


def _first_value(line: bytes) -> tuple[object, int | None]:
    """Return the first JSON value of a line, and where it ends; `None` if there is none."""
    try:
        return _decode(line.decode())
    except (ValueError, RecursionError):
        return None, None
