"""Errors of records and of builds.

`Refused` rejects **one record**: it goes to quarantine with its id, stage, reason and payload, and the build goes on.
`PrepAssetsError` stops **the build**, and says what is wrong, where, with which numbers, and how to fix it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from typing import Any

EXTRAS = {
    **dict.fromkeys(("typer", "click", "rich"), "cli"),
    "dagster": "dagster",
    "torch": "train",
    "aiohttp": "http",
    **dict.fromkeys(("obstore", "s3fs"), "s3"),
    **dict.fromkeys(("google", "sentencepiece"), "sentencepiece"),
    "tiktoken": "tiktoken",
    "mistral_common": "mistral",
    "ray": "ray",
}
"""Package → the extra of prep-assets that installs it."""


def not_installed(error: ModuleNotFoundError) -> str:
    """Say which extra installs a missing package; ``""`` for a package of no extra."""
    extra = EXTRAS.get((error.name or "").partition(".")[0])
    return f"{error.name} is not installed. Install it with:\n  pip install 'prep-assets[{extra}]'" if extra else ""


class PrepAssetsError(Exception):
    """A build that cannot go on. The message says what, where, the numbers and the remedy; credentials are removed from it."""

    def __init__(self, message: object = "") -> None:
        super().__init__(without_secrets(str(message)))


class ConfigError(PrepAssetsError):
    """A configuration that is invalid or contradicts itself."""


class LoadersDiffer(ConfigError):
    """A tokenizer that transformers reads differently from its published file, while `tokenizer_loader` chooses neither."""


class SourceError(PrepAssetsError):
    """A source file that is missing, empty, cut short or changed during the build."""


class SourceUnavailable(SourceError):
    """A source whose server does not answer now. A retry may succeed; Dagster makes two."""


class TemplateError(PrepAssetsError):
    """A chat template that cannot be rendered, or does not support the configuration."""


class StoreError(PrepAssetsError):
    """A store that is missing, half-written, altered, or differs from its manifest."""


class CheckFailed(PrepAssetsError):
    """A quality check that fails on the data."""


class Refused(Exception):
    """The rejection of one record.

    Attributes:
        reason: a short counted slug, e.g. ``missing_field``.
        detail: what exactly is wrong with this record, for a person.
        stage: the stage that rejected the record; the caller fills it in when it is empty.
    """

    def __init__(self, reason: str, detail: str, *, stage: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.stage = stage

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by its three parts, which `Exception` would not restore."""
        return partial(Refused, stage=self.stage), (self.reason, self.detail)


_SECRET = re.compile(r"SECRET|TOKEN(?!IZER)|PASSWORD|CREDENTIAL|ACCESS_KEY|SAS|ACCOUNT_KEY", re.IGNORECASE)
"""Matches names of environment variables with secret values."""
SHORTEST = 8
"""Fewest characters of a secret that is removed; a shorter one may be a word of any message."""
_USER = re.compile(r"\b((?:https?|s?ftps?|s3a?|gs|smtps?|webdavs?|hdfs|smb)://)[^/@\s'\"]*@")
_QUERY = re.compile(r"\b(https?://[^\s?#'\"]+)[?#][^\s'\"]*")


def without_secrets(text: str) -> str:
    """`text` without users and passwords in URLs, without queries and fragments of web addresses, and without secrets of the environment."""
    if "://" in text:
        text = _QUERY.sub(r"\1", _USER.sub(r"\1", text))
    secrets = {value for name, value in os.environ.items() if len(value) >= SHORTEST and _SECRET.search(name)}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text


def error_text(error: Exception) -> str:
    """Return the first lines of a library's error, without credentials."""
    return without_secrets(" ".join(str(error).split("\n\nDebug source")[0].split())[:500])


def require_known(subject: str, word: object, known: Iterable[str], listed: str = "There are") -> None:
    """Raises:
    ConfigError: `word` is none of the known ones; the message names the nearest, and lists them all.
    """
    if word not in (names := [*known]):
        raise ConfigError(f"{subject} {word!r}{nearest(word, names) or '.'} {listed}: {', '.join(names)}")


def require_number(what: str, number: int, of: str, count: int) -> None:
    """Raises:
    ConfigError: there are not so many.
    """
    if not 0 <= number < count:
        raise ConfigError(f"{what} {number:,} of {of}: there are {count:,}, numbered from 0")


def nearest(word: object, allowed: Iterable[str]) -> str:
    """A hint such as ``; did you mean 'messages'?``, or an empty string if no allowed word is near `word`, or it is not text."""
    matches = get_close_matches(word, [str(name) for name in allowed], n=1, cutoff=0.6) if isinstance(word, str) else ()
    return f"; did you mean {matches[0]!r}?" if matches else ""
