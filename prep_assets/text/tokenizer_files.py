"""Files of tokenizers: ``tokenizer.json``, SentencePiece, tiktoken, Tekken, plain files, and the configurations next to them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from prep_assets import plugins
from prep_assets.errors import ConfigError, PrepAssetsError, not_installed
from prep_assets.stores.files import loads
from prep_assets.text.ids import Encoding

# Limits for the files of a tokenizer, which are untrusted and read by native code.
#
# Native code cannot be interrupted, so its input is bounded instead: the size of each file, before it is opened; and patterns are tried on texts that cause
# catastrophic backtracking. The library ends such a search after ten million steps with a panic; panics become errors with a message.

MOST_BYTES = 256 << 20
"""Maximum size of a tokenizer file: eight times the largest known one (a vocabulary of 262,144 tokens has 33 MB)."""
MOST_IDS = 1 << 24
"""Limit for ids, since tables have an entry for each id up to the largest. The largest known vocabularies have 262,144."""
FALLBACK_CACHED_WORDS, ENGINE_CACHED_WORDS = 2048, 10_000
"""Words that the library caches per tokenizer and thread: if another engine encodes most texts, and if it encodes all."""
_RUN = 48
PROBES = tuple(
    f"{start}{unit * _RUN}{end}"
    for unit in ("a", "A", "1", " ", "\n", "'s", "é", "中", "_", "a ", "aA", "1.")
    for start, end in (("", "!"), ("x", "\0"))
)
"""Long runs that nearly match, each with an end that does not: a pattern that can split a run in many ways tries them all."""


def check_size(path: Path) -> Path:
    """Return `path` if the file is not too large.

    Raises:
        ConfigError: it is too large.
    """
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ConfigError(
            f"{path} has {size:,} bytes; a file of a tokenizer may have {MOST_BYTES:,}. Is it what was meant? Copy the published file again"
        )
    return path


@contextmanager
def as_config_error(what: str) -> Iterator[None]:
    """Turn errors and panics of the library into a `ConfigError` that begins with `what`.

    Raises:
        ConfigError: the block raised.
    """
    try:
        yield
    except PrepAssetsError:
        raise
    except BaseException as error:  # the library raises bare Exception, and a panic is a BaseException
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if isinstance(error, ModuleNotFoundError) and (remedy := not_installed(error)):
            raise ConfigError(f"{what} by itself: {remedy}") from error
        kind = "" if type(error) is Exception else f"{type(error).__name__}: "
        raise ConfigError(f"{what}: {kind}{str(error)[:300]}") from error


def limit_word_cache(backend: Any, most: int) -> None:
    """Limit the words that the library caches for a tokenizer, some 300 bytes each. They outlive the tokenizer, until the thread ends."""
    if (resize := getattr(backend.model, "_resize_cache", None)) is not None:  # not in tokenizers 0.21.0
        resize(most)


def check_patterns(path: Path, backend: Any) -> None:
    """Encode the texts that cause backtracking.

    Raises:
        ConfigError: the tokenizer fails on one of them.
    """
    limit_word_cache(backend, FALLBACK_CACHED_WORDS)
    for probe in PROBES:
        what = f"{path}: this tokenizer does not encode {probe[:12]!r}… ({len(probe)} characters). Use one that reads any text"
        with as_config_error(what), without_panic_text():
            backend.encode(probe, add_special_tokens=False)


@contextmanager
def without_panic_text() -> Iterator[None]:
    """Keep what a panic of native code writes to the standard error of the process out of it: the error that it becomes says what is wrong."""
    with tempfile.TemporaryFile() as written:
        standard_error = os.dup(2)
        os.dup2(written.fileno(), 2)
        panics = False
        try:
            yield
        except BaseException as error:
            panics = type(error).__name__ == "PanicException"
            raise
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)
            written.seek(0)
            if not panics and (text := written.read()):
                os.write(2, text)


# Files next to a published tokenizer: names of special tokens and chat templates, as `transformers` reads them.
#
#     tokenizer_config.json       bos_token, eos_token, …; chat_template: one, or several by name
#     special_tokens_map.json     names missing from the configuration
#     chat_template.jinja         the template, preferred to that of the configuration
#     additional_chat_templates/  further ones by name
#     chat_template.json          the template of a processor, if there is no other

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
DEFAULT = "default"


def read_object(path: Path) -> Mapping[str, Any]:
    """Read a JSON file that holds an object; empty if the file is missing.

    Raises:
        ConfigError: it holds something else.
    """
    if not path.is_file():
        return {}
    try:
        content = loads(check_size(path).read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, Mapping):
        raise ConfigError(f"{path} holds {type(content).__name__}, needs an object")
    return content


def special_tokens(folder: Path) -> dict[str, str]:
    """Names and texts of special tokens, such as ``eos_token``; also model-specific ones (``image_token``)."""
    tokens: dict[str, str] = {}
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        config = read_object(folder / file)
        extra_names = [config.get(key) for key in ("extra_special_tokens", "model_specific_special_tokens")]
        for names in (config, *(extra for extra in extra_names if isinstance(extra, Mapping))):
            for name, token in names.items():
                text = token.get("content") if isinstance(token, Mapping) else token
                if isinstance(text, str) and (name in NAMES or names is not config):
                    tokens.setdefault(name, text)
    return tokens


def chat_templates(folder: Path) -> dict[str, str]:
    """Chat templates by name; an unnamed one is ``default``."""
    templates = templates_by_name(read_object(folder / "tokenizer_config.json").get("chat_template"))
    template_file = folder / "chat_template.jinja"
    if template_file.is_file():
        templates[DEFAULT] = read_text(template_file)
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[path.name.removesuffix(".jinja")] = read_text(path)
    return templates or templates_by_name(read_object(folder / "chat_template.json").get("chat_template"))


def read_text(path: Path) -> str:
    """Read a template file.

    Raises:
        ConfigError: it is too large, or not UTF-8.
    """
    try:
        return check_size(path).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8 ({error.reason}); save the template as UTF-8") from error


def templates_by_name(value: Any) -> dict[str, str]:
    """Templates by name, from one template, a list of ``{name, template}``, or a mapping."""
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, list):
        pairs = [(entry.get("name"), entry.get("template")) for entry in value if isinstance(entry, Mapping)]
    else:
        pairs = [*value.items()] if isinstance(value, Mapping) else []
    return {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}


# Tokenizers published in files other than ``tokenizer.json``: extensions register their formats.
#
# Each is converted to a ``tokenizer.json``, and the ids are compared on the edge set with those of the library that the file was made for. An inexact
# conversion is an error.

Spec = tuple[dict[str, Any], dict[str, str]]
"""A ``tokenizer.json`` without parts that are default, and the names and texts of special tokens."""
Encode = Callable[[Sequence[str]], list[list[int]]]


class FileFormat(Struct, frozen=True):
    """A kind of tokenizer files.

    Attributes:
        pattern: of file names.
        package: the package that such files were made for, to which ids are compared.
        convert: file → the equivalent ``tokenizer.json``, and its special tokens.
        open_encoder: file → the function of the package from texts to ids.
        encoding: file and ``tokenizer.json`` → what encodes in place of the library `tokenizers`, where the conversion is not exact.
    """

    pattern: str
    package: str
    convert: Callable[[Path], Spec]
    open_encoder: Callable[[Path], Encode]
    encoding: Callable[[Path, dict[str, Any]], Encoding | None] = lambda path, spec: None


_FORMATS: list[FileFormat] = []


def register_files(format: FileFormat) -> None:
    """Add a kind of files."""
    _FORMATS.append(format)


def formats() -> Sequence[FileFormat]:
    """All kinds of files."""
    plugins.load_all("tokenizers")
    return _FORMATS


def convertible_file(folder: Path) -> Path | None:
    """The convertible tokenizer file of a folder without ``tokenizer.json``, or `None`.

    Raises:
        ConfigError: there are several.
    """
    paths = [path for format in formats() for path in sorted(folder.glob(format.pattern))]
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise ConfigError(f"{folder} holds several tokenizers: {names}. Name the file instead of the folder")
    return paths[0] if paths else None


def format_of(path: Path) -> FileFormat:
    """The kind of a published file.

    Raises:
        ConfigError: it is unknown.
    """
    if (found := next((format for format in formats() if path.match(format.pattern)), None)) is None:
        patterns = ", ".join(format.pattern for format in formats())
        raise ConfigError(f"{path}: a tokenizer is a tokenizer.json, or one of {patterns}")
    return found


def added_tokens(special: Mapping[str, int]) -> list[dict[str, Any]]:
    """``added_tokens`` of a ``tokenizer.json``: special tokens, matched verbatim, in the order of their ids."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": special[text], "content": text, **flags} for text in sorted(special, key=special.__getitem__)]
