"""The two ways in which data work ends early.

`Refused` is about **one record**: the record goes to quarantine with its id, stage, reason and payload, and the build goes on.
`PrepAssetsError` is about **the build**: it stops, and says what is wrong, where, with which numbers, and how to fix it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from typing import Any


class PrepAssetsError(Exception):
    """A build that cannot go on. The message says what, where, the numbers and the remedy, and no credentials, wherever it came from."""

    def __init__(self, message: object = "") -> None:
        super().__init__(without_secrets(str(message)))


class ConfigError(PrepAssetsError):
    """A configuration that means nothing, or contradicts itself."""


class SourceError(PrepAssetsError):
    """A source file that is missing, empty, cut short or changed under our feet."""


class SourceUnavailable(SourceError):
    """A source whose server does not answer now. Another attempt may succeed; Dagster makes two."""


class TemplateError(PrepAssetsError):
    """A chat template that cannot be rendered, or that cannot support what the configuration asks of it."""


class StoreError(PrepAssetsError):
    """A store that is missing, half-written, altered, or not what its manifest says."""


class CheckFailed(PrepAssetsError):
    """A quality check that does not hold on the data."""


class Refused(Exception):
    """One record that is not used.

    Attributes:
        reason: a short slug that is counted, e.g. ``missing_field``.
        detail: what exactly is wrong with this record, for a person.
        stage: where on its way the record was refused; the caller fills it in when it is empty.
    """

    def __init__(self, reason: str, detail: str, *, stage: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.stage = stage

    def __reduce__(self) -> tuple[Any, ...]:
        """It travels between processes as its parts."""
        return partial(Refused, stage=self.stage), (self.reason, self.detail)


_SECRET = re.compile(r"SECRET|TOKEN(?!IZER)|PASSWORD|CREDENTIAL|ACCESS_KEY|SAS|ACCOUNT_KEY", re.IGNORECASE)
"""In names of variables whose values are secret."""
SHORTEST = 8
"""Characters of such a value; a shorter one may be a word of any message."""
_USER = re.compile(r"\b((?:https?|s?ftps?|s3a?|gs|smtps?|webdavs?|hdfs|smb)://)[^/@\s'\"]*@")
_QUERY = re.compile(r"\b(https?://[^\s?#'\"]+)[?#][^\s'\"]*")


def without_secrets(text: str) -> str:
    """A text without names and passwords in addresses, without what follows ``?`` in those of the web, and without secrets of the environment."""
    if "://" in text:
        text = _QUERY.sub(r"\1", _USER.sub(r"\1", text))
    secrets = {value for name, value in os.environ.items() if len(value) >= SHORTEST and _SECRET.search(name)}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text


def nearest(word: str, allowed: Iterable[str]) -> str:
    """A hint such as ``; did you mean 'messages'?``, or an empty string where nothing allowed is near `word`."""
    found = get_close_matches(word, [str(name) for name in allowed], n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""
