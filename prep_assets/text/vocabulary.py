"""A tokenizer: its ids, control tokens, hash and bytes; how it is opened; the tokens around a document."""

from __future__ import annotations

import hashlib
import json
import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets import plugins
from prep_assets.errors import ConfigError
from prep_assets.stores.files import Kept, key_of
from prep_assets.text.ids import ALPHABET, Encoding, composes, sorted_json, steps_of
from prep_assets.text.tokenizer_files import (
    DEFAULT,
    FALLBACK_CACHED_WORDS,
    MOST_IDS,
    as_config_error,
    chat_templates,
    check_patterns,
    check_size,
    convertible_file,
    format_of,
    limit_word_cache,
    special_tokens,
)

# What is known of a ``tokenizer.json`` that was opened before: a command that builds nothing need not open it again, which takes most of its time.

_KNOWN = Kept("known tokenizers", 256)
"""Cache of `Known`, and of hashes."""


class Known(Struct, frozen=True):
    """What a file says, apart from the entries of its model, and what was found sound about it.

    Attributes:
        digest: sha256 of the file.
        frame: its spec without them, see `Vocabulary.frame`.
        size: one more than the largest id.
    """

    digest: str
    frame: dict[str, Any]
    size: int


class _OpenedLater:
    """A `tokenizers.Tokenizer` that is opened when something is first asked of it."""

    def __init__(self, open_now: Callable[[], Any]) -> None:
        vars(self)["_open"] = open_now

    def __getattr__(self, name: str) -> Any:
        if name == "_opened":
            if (open_now := vars(self).get("_open")) is not None:
                vars(self)["_opened"] = open_now()
            vars(self).pop("_open", None)  # with the file that it holds
            return vars(self)["_opened"]
        return getattr(self._opened, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._opened, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._opened,)


def _itself(opened: Any) -> Any:
    """What another process has of an `_OpenedLater`."""
    return opened


@cache
def _code() -> str:
    """The hash of the code that decides what is known of a file."""
    return hashlib.sha256(
        b"".join((Path(__file__).parent / f"{name}.py").read_bytes() for name in ("vocabulary", "ids", "tokenizer_files"))
    ).hexdigest()


# A tokenizer as the other rooms see it: its ids, control tokens, content hash, and the bytes of each id.


@dataclass(frozen=True)
class Vocabulary:
    """A loaded tokenizer.

    Attributes:
        name: its path or hub id, for messages only; never part of a build's identity.
        backend: the `tokenizers.Tokenizer`, the reference for ids.
        special: names and texts of the special tokens (``eos_token`` …), as chat templates see them.
        chat_template: the Jinja template of the tokenizer, or `None`.
        templates: its templates by name, if it has several; then `chat_template` is `None`.
        file: name of the file that it was read from.
        written: added tokens that a chat template writes: control tokens, whether or not they are marked special.
        encoding: what encodes in place of `backend`, which then has the names and bytes of ids alone.
        known: what was found when its file was opened before.
    """

    name: str
    backend: Any
    special: dict[str, str]
    chat_template: str | None
    templates: Mapping[str, str] = field(default_factory=dict)
    file: str = "tokenizer.json"
    written: tuple[str, ...] = ()
    encoding: Encoding | None = None
    known: Known | None = None

    def with_control(self, written: Iterable[str]) -> Vocabulary:
        """This tokenizer with further added tokens as control tokens."""
        not_special = {token["content"] for token in self.frame["added_tokens"] if not token["special"]}
        added = not_special.intersection(written)
        return replace(self, written=tuple(sorted({*self.written, *added}))) if added else self

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The parsed ``tokenizer.json`` of the tokenizer in memory. All control tokens are marked special in it, so that encoding ordinary text has
        one rule: special tokens are text."""
        loaded: dict[str, Any] = msgspec.json.decode(self.backend.to_str()) if self.encoding is None else self.encoding.spec(self.backend)
        return self._with_written(loaded)

    def _with_written(self, spec: dict[str, Any]) -> dict[str, Any]:
        added = [{**token, "special": token["special"] | (token["content"] in self.written)} for token in spec["added_tokens"]]
        return {**spec, "added_tokens": added}

    @cached_property
    def frame(self) -> dict[str, Any]:
        """`spec` without the entries of its model."""
        return without_entries(self.spec) if self.known is None else self._with_written(self.known.frame)

    @cached_property
    def hash(self) -> str:
        """sha256 of everything that decides ids and renders: ``tokenizer.json``, special tokens, chat template."""
        if self.known is None:
            return self._hash_now()
        decides = (self.special, self.chat_template, dict(self.templates), self.written)
        key = key_of("hash", self.known.digest, _code(), *decides)
        if (kept := _KNOWN.find(key)) is not None:
            return kept.decode()
        found = self._hash_now()
        _KNOWN.keep(key, found.encode())
        return found

    def _hash_now(self) -> str:
        parts = [self.spec, self.special, self.chat_template, *([dict(self.templates)] if self.templates else [])]
        parts += [self.encoding.digest] if self.encoding is not None and self.encoding.digest else []
        return hashlib.sha256(f"[{', '.join(map(sorted_json, parts))}]".encode()).hexdigest()

    @property
    def encoder(self) -> Any:
        """`backend`, for encoding whole texts.

        Raises:
            ConfigError: its ids are not those of the tokenizer.
        """
        if self.encoding is not None:
            raise ConfigError(
                f"tokenizer {self.name} is {self.encoding.what}; pretraining and chats take it, this takes its tokenizer.json"
            )
        return self.backend

    @cached_property
    def size(self) -> int:
        """One more than the largest id."""
        if self.known is not None:
            return self.known.size
        vocab = self.spec["model"].get("vocab")
        if not isinstance(vocab, dict):  # Unigram pieces are a list, whose index is the id
            vocab = self.backend.get_vocab(with_added_tokens=True)
        return 1 + int(max((*vocab.values(), *(token["id"] for token in self.spec["added_tokens"]))))

    @cached_property
    def control(self) -> dict[str, int]:
        """Control tokens: text → id of the added tokens that are marked special or that the template of the family writes."""
        return {token["content"]: token["id"] for token in self.frame["added_tokens"] if token["special"]}

    @cached_property
    def eos_id(self) -> int:
        """Id of the end-of-text token.

        Raises:
            ConfigError: the tokenizer declares none.
        """
        return self._id_of("eos_token")

    @cached_property
    def bos_id(self) -> int:
        """Id of the begin-of-text token.

        Raises:
            ConfigError: the tokenizer declares none.
        """
        return self._id_of("bos_token")

    @cached_property
    def unknown_id(self) -> int | None:
        """The id of text that is not in the vocabulary; `None` if the model has none."""
        model = self.spec["model"]
        unknown = model.get("unk_id") if model["type"] == "Unigram" else model["vocab"].get(model.get("unk_token") or "")
        return None if unknown is None else int(unknown)

    @cached_property
    def pad_id(self) -> int:
        """Id of unused positions: the padding token, else the end-of-text token. Padding is never trained."""
        return self._id_of("pad_token") if "pad_token" in self.special else self.eos_id

    def _id_of(self, name: str) -> int:
        text = self.special.get(name)
        added = {token["content"]: token["id"] for token in self.frame["added_tokens"]}  # which come first in the library as well
        token_id = None if text is None else added[text] if text in added else self.backend.token_to_id(text)
        if token_id is None:
            raise ConfigError(f"tokenizer {self.name} has no {name}; set it in its tokenizer_config.json")
        return int(token_id)

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...] | None:
        """The UTF-8 bytes of each id, in the `normalized` text; `None` if ids do not stand for fixed bytes (WordPiece, normalizers that do more
        than compose)."""
        model, decoder = self.spec["model"], {step["type"] for step in steps_of(self.spec.get("decoder"))}
        exact = model["type"] == "BPE" if self.encoding is None else self.encoding.exact
        if not exact or self.composes is None or decoder.isdisjoint(("ByteLevel", "ByteFallback")):
            return None
        table, decode = [b""] * self.size, _byte_level_bytes if "ByteLevel" in decoder else _byte_fallback_bytes
        for number, text in zip(model["vocab"].values(), decode(list(model["vocab"])), strict=True):
            table[number] = text
        for token in self.spec["added_tokens"]:
            table[token["id"]] = token["content"].encode()
        return tuple(table)

    @cached_property
    def byte_lengths(self) -> npt.NDArray[np.int64] | None:
        """Length in bytes of each of `token_bytes`, int64[size], or `None`."""
        if self.token_bytes is None:
            return None
        return np.fromiter(map(len, self.token_bytes), np.int64, self.size)

    @cached_property
    def composes(self) -> bool | None:
        """Whether it composes text (NFC) before tokenizing; `None` if its normalizer does more than that."""
        return composes(self.frame.get("normalizer"))

    def is_normal(self, text: str) -> bool:
        """Whether the normalizer certainly leaves `text` unchanged, as a composing one does with most texts."""
        return self.composes is False or (self.composes is True and unicodedata.is_normalized("NFC", text))

    def normalized(self, text: str) -> str:
        """The text after normalization, before tokenization."""
        if self.encoding is not None:
            return self.encoding.normalized(text)
        return text if self.is_normal(text) else str(self.backend.normalizer.normalize_str(text))

    @cached_property
    def prefix_space(self) -> Literal["never", "first", "always"]:
        """When a space that is not in the text is put in front of it: SentencePiece's ``add_dummy_prefix``."""
        steps = (step for step in steps_of(self.frame.get("pre_tokenizer")) if step["type"] == "Metaspace")
        return next((step.get("prepend_scheme", "always") for step in steps), "never")

    def decode(self, ids: npt.ArrayLike) -> str:
        """The text of `ids`, control tokens included, from the decoder of the reference tokenizer."""
        return self.decode_batch([np.asarray(ids).tolist()])[0]

    def decode_batch(self, lists: Sequence[Sequence[int]]) -> list[str]:
        """`decode` of several lists of ids.

        A control token is prepended and its text removed, because SentencePiece decoders drop a leading space. Control tokens whose text the
        decoder would change, such as ``<｜end▁of▁sentence｜>`` with its ``▁``, are written verbatim.
        """
        if not self._misdecoded or all(self._misdecoded.keys().isdisjoint(ids) for ids in lists):
            return self._decode_lists(lists)
        parts = [_split_at(ids, self._misdecoded) for ids in lists]
        decoded = iter(self._decode_lists([stretch for stretches in parts for stretch, _ in stretches]))
        return ["".join(next(decoded) + self._misdecoded.get(token, "") for _, token in stretches) for stretches in parts]

    @cached_property
    def _guard(self) -> tuple[str, int] | None:
        """Text and id of a control token that the decoder writes verbatim."""
        return next(
            (token for token in self.control.items() if self.backend.decode([token[1]], skip_special_tokens=False) == token[0]), None
        )

    @cached_property
    def _misdecoded(self) -> dict[int, str]:
        """Id → text of the control tokens that the decoder would change."""
        decoded_texts = self._decode_lists([[number] for number in self.control.values()])
        return {number: text for (text, number), decoded in zip(self.control.items(), decoded_texts, strict=True) if decoded != text}

    def _decode_lists(self, lists: Sequence[Sequence[int]]) -> list[str]:
        if self._guard is None:
            return [str(text) for text in self.backend.decode_batch([list(ids) for ids in lists], skip_special_tokens=False)]
        guard_text, token = self._guard
        return [
            str(decoded).removeprefix(guard_text)
            for decoded in self.backend.decode_batch([[token, *ids] for ids in lists], skip_special_tokens=False)
        ]


def _split_at(ids: Sequence[int], tokens: Mapping[int, str]) -> list[tuple[list[int], int]]:
    """The stretches of `ids` between `tokens`, each with the token after it; -1 after the last."""
    ends = [at for at, token in enumerate(ids) if token in tokens]
    bounds = zip([0, *(end + 1 for end in ends)], [*ends, len(ids)], strict=True)
    return [(list(ids[low:high]), int(ids[high]) if high < len(ids) else -1) for low, high in bounds]


_BYTES = np.full(512, -1, np.int16)
"""Code point → byte of the byte-level alphabet; -1 for other characters. The last entry stands for all later code points."""
_BYTES[[ord(char) for char in ALPHABET]] = np.arange(256)


def _byte_level_bytes(texts: list[str]) -> list[bytes]:
    """The bytes of texts in the byte-level alphabet, one byte per character.

    Raises:
        UnicodeEncodeError: a character is not in the alphabet.
    """
    joined, ends = "".join(texts), accumulate(map(len, texts), initial=0)
    codes = _BYTES[np.minimum(np.frombuffer(joined.encode("utf-32-le"), np.uint32), len(_BYTES) - 1)]
    if (codes < 0).any():
        at = int(np.argmax(codes < 0))
        raise UnicodeEncodeError("byte-level", joined, at, at + 1, "the alphabet of bytes does not have it")
    data = codes.astype(np.uint8).tobytes()
    return [data[start:end] for start, end in pairwise(ends)]


def _byte_fallback_bytes(texts: list[str]) -> list[bytes]:
    """The bytes of texts: the byte of ``<0x0A>``, else the UTF-8 bytes with spaces for ``▁``."""
    are_bytes = [len(text) == 6 and text.startswith("<0x") and text.endswith(">") for text in texts]
    return [
        bytes([int(text[3:5], 16)]) if is_byte else text.replace("▁", " ").encode() for text, is_byte in zip(texts, are_bytes, strict=True)
    ]


# The tokens around a document in a pretraining stream: the begin-of-text token if the base model had it, the end-of-text token unless `append_eod` is false.
#
# auto     as the tokenizer's post-processor does: whether ``encode("x", add_special_tokens=True)`` begins with ``bos_token``
# true     every document begins with ``bos_token``
# false    none does

Bos = Literal["auto", "true", "false"]
_N = TypeVar("_N", np.uint32, np.float32)


class Ends(Struct, frozen=True):
    """The ids around every document: `bos` and `eos`, each `None` if it is not written."""

    bos: int | None
    eos: int | None

    @property
    def count(self) -> int:
        """Number of ids around a document."""
        return (self.bos is not None) + (self.eos is not None)

    def around(self, ids: npt.NDArray[np.uint32], lengths: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Concatenated ids of texts with `bos` and `eos` around each, and the new lengths."""
        return self._insert_ends(
            ids, lengths, np.uint32(self.bos or 0), np.full(len(lengths), self.eos or 0, np.uint32)
        ), lengths + self.count

    def weights_around(
        self, weights: npt.NDArray[np.float32], lengths: npt.NDArray[np.int64], last: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Concatenated loss weights of texts, with 1 for each `bos` and `last` of each text for its `eos`."""
        return self._insert_ends(weights, lengths, np.float32(1), last)

    def _insert_ends(self, values: npt.NDArray[_N], lengths: npt.NDArray[np.int64], first: _N, last: npt.NDArray[_N]) -> npt.NDArray[_N]:
        """Concatenated values of texts with `first` before and `last` after each, as far as `bos` and `eos` are set."""
        out_lengths = lengths + self.count
        ends = np.cumsum(out_lengths)
        out: npt.NDArray[_N] = np.empty(len(values) + self.count * len(lengths), values.dtype)
        is_text = np.ones(len(out), bool)
        if self.eos is not None:
            is_text[ends - 1] = False
            out[ends - 1] = last
        if self.bos is not None:
            is_text[ends - out_lengths] = False
            out[ends - out_lengths] = first
        out[is_text] = values
        return out


def ends_of(vocabulary: Vocabulary, bos: Bos, append_eod: bool = True) -> Ends:
    """The ids around documents that `bos` and `append_eod` mean for a tokenizer.

    Raises:
        ConfigError: it lacks the token, or ``auto`` is ambiguous because its post-processor writes other tokens in front of a text.
    """
    eos = vocabulary.eos_id if append_eod else None
    if bos == "false":
        return Ends(None, eos)
    if bos == "true":
        return Ends(vocabulary.bos_id, eos)
    if vocabulary.file != "tokenizer.json" and "bos_token" in vocabulary.special:
        raise ConfigError(
            f"bos: {vocabulary.file} of tokenizer {vocabulary.name} does not say whether texts begin with its bos_token "
            f"{vocabulary.special['bos_token']!r}. Say it: bos: true where the base model had it, else false"
        )
    plain, processed = (vocabulary.backend.encode("x", add_special_tokens=with_special).ids for with_special in (False, True))
    prefix = processed[: next(at for at in range(len(processed) + 1) if processed[at : at + len(plain)] == plain)]
    if prefix and prefix != [vocabulary.bos_id]:
        texts = [vocabulary.backend.id_to_token(number) for number in prefix]
        raise ConfigError(
            f"bos: tokenizer {vocabulary.name} writes {texts} in front of a text, which is not its bos_token alone. Say whether documents "
            "begin with bos_token: bos: true or false"
        )
    return Ends(prefix[0] if prefix else None, eos)


# Opening a tokenizer. The reference is the published file itself; the files next to it give names and templates.
#
# Some published files are known to be wrong and raise an error: they open and decode, but split words where the model never saw them split. They are
# recognized by their fault, not by their hash: the fault comes from a converter, so many files have it, and each copy that was saved again has another hash.
#
# Tekken with the default pattern: files of Mistral's Tekken vocabulary that were converted with the pattern of GPT-4 or Llama 3 (transformers pull request
# 42131; the discussion of Mistral-Small-3.1). ``eBay``, ``pH`` and ``NaOH`` are split otherwise than in training. transformers warns in its log.

Loader = Literal["file", "transformers"]

FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json", "vocab.json", "merges.txt"),
    *("chat_template.*", "additional_chat_templates/*", "*.model", "*.tiktoken", "tekken.json"),
    *("preprocessor_config.json", "processor_config.json"),
)
"""Files to fetch from a hub repository."""


def load_vocabulary(tokenizer: str, *, base: Path | None = None, revision: str | None = None, loader: Loader = "file") -> Vocabulary:
    """Open a tokenizer in a local directory (relative to `base`) or a hub repository.

    Args:
        loader: ``file``: ``tokenizer.json`` as it is; ``transformers``: what `AutoTokenizer` loads from the folder.

    Raises:
        ConfigError: no tokenizer that opens, or a file that is known to be wrong.
    """
    folder = folder_of(tokenizer, base=base, revision=revision)
    return from_transformers(tokenizer, folder) if loader == "transformers" else from_file(tokenizer, folder)


def folder_of(tokenizer: str, *, base: Path | None = None, revision: str | None = None) -> Path:
    """The folder of a tokenizer, or its file if a file is named; a hub repository is fetched or taken from the cache.

    Raises:
        ConfigError: neither a local path nor a hub repository.
    """
    local = (base or Path.cwd()) / tokenizer
    if local.exists():
        return local
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(tokenizer, revision=revision, allow_patterns=list(FILES)))
    except (OSError, ValueError) as error:
        raise ConfigError(f"tokenizer {tokenizer!r}: neither the directory {local} nor a hub repository that opens: {error}") from error


def published_file(location: Path) -> Path:
    """The file that defines a tokenizer: `location` itself, else the ``tokenizer.json`` of the folder, else a file that can be converted.

    Raises:
        ConfigError: there is none, or several.
    """
    if location.is_file():
        return location
    path = location / "tokenizer.json"
    convertible = None if path.is_file() else convertible_file(location)
    if convertible is None and not path.is_file():
        listing = ", ".join(sorted(file.name for file in location.iterdir())) or "nothing"
        raise ConfigError(
            f"no tokenizer.json in {location}, which holds {listing}. Name the folder of a published tokenizer, or set "
            "tokenizer_loader: transformers to take what AutoTokenizer makes of these files"
        )
    return convertible or path


def from_file(name: str, location: Path) -> Vocabulary:
    """Open the published file of a folder, or a named file. Other files than ``tokenizer.json`` are converted; `agreement` proves that.

    Raises:
        ConfigError: there is none, it does not open, or it is known to be wrong.
    """
    from tokenizers import Tokenizer

    path = check_size(published_file(location))
    if is_tokenizer_json(path):
        return _from_json(name, path)
    with as_config_error(f"{path} {_UNREADABLE}"):
        format = format_of(path)
        spec, names = format.convert(path)
        backend, encoding = Tokenizer.from_str(json.dumps(spec)), format.encoding(path, spec)
    check_patterns(path, backend)
    vocabulary = _make_vocabulary(name, path, backend, {**names, **special_tokens(path.parent)}, chat_templates(path.parent))
    return vocabulary if encoding is None else replace(vocabulary, encoding=encoding)


_UNREADABLE = "is not a tokenizer that the tokenizers library reads"


def _from_json(name: str, path: Path) -> Vocabulary:
    """Open a ``tokenizer.json``; later, and only if it is needed, where the same file was opened and found sound before."""
    with as_config_error(f"{path} {_UNREADABLE}"):
        content = path.read_bytes()
    key = key_of("file", digest := hashlib.sha256(content).hexdigest(), _code())

    def open_now() -> Any:
        from tokenizers import Tokenizer

        with as_config_error(f"{path} {_UNREADABLE}"):
            return Tokenizer.from_buffer(content)

    special, templates = special_tokens(path.parent), chat_templates(path.parent)
    if (kept := _KNOWN.find(key)) is not None:
        vocabulary = in_memory(name, _OpenedLater(lambda: _ready(open_now())), special, templates, path.name)
        return replace(vocabulary, known=msgspec.json.decode(kept, type=Known))
    backend = open_now()
    check_patterns(path, backend)
    vocabulary = _make_vocabulary(name, path, backend, special, templates)
    known = Known(digest, without_entries(vocabulary.spec), vocabulary.size)
    _KNOWN.keep(key, msgspec.json.encode(known))
    return replace(vocabulary, known=known)


def without_entries(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A spec without the entries of its model."""
    return {**spec, "model": {name: value for name, value in spec["model"].items() if name not in ("vocab", "merges")}}


def is_tokenizer_json(path: Path) -> bool:
    """Whether a file is a ``tokenizer.json`` and not a Tekken file."""
    return path.suffix == ".json" and not path.name.startswith("tekken")


def from_transformers(name: str, folder: Path) -> Vocabulary:
    """Open a folder with `transformers.AutoTokenizer`. Code in the folder is never run, and nothing is prompted for.

    Raises:
        ConfigError: transformers does not open the folder, or has no fast (Rust) backend for it.
    """
    # suppress the advice to install torch, which tokenizers do not need
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer

    folder = folder.parent if folder.is_file() else folder
    for file in (file for pattern in FILES for file in folder.glob(pattern)):
        check_size(file)
    with as_config_error(f"tokenizer {name!r}: transformers does not open {folder}"):
        # tokenizer classes raise arbitrary errors on files that they do not understand
        loaded = AutoTokenizer.from_pretrained(str(folder), use_fast=True, trust_remote_code=False, local_files_only=True)
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise ConfigError(f"tokenizer {name!r} has no fast backend (tokenizer.json); convert it with transformers first")
    check_patterns(folder, backend)
    special = {name: str(text) for name, text in loaded.special_tokens_map.items() if isinstance(text, str)}
    template = loaded.chat_template
    return _make_vocabulary(
        name, folder / "tokenizer.json", backend, special, {DEFAULT: template} if isinstance(template, str) else dict(template or {})
    )


_LOADERS: dict[str, Callable[[str, Path, str, Path], Vocabulary]] = {}


def register_loader(name: str, load: Callable[[str, Path, str, Path], Vocabulary]) -> None:
    """Add a value of `tokenizer_loader` that runs code.

    Args:
        load: name and folder of the tokenizer, `tokenizer_class`, folder of cached verdicts → tokenizer.
    """
    _LOADERS[name] = load


def loader(name: str) -> Callable[[str, Path, str, Path], Vocabulary]:
    """The function of a `register_loader`."""
    plugins.load_all("tokenizers")
    return _LOADERS[name]


def _ready(backend: Any) -> Any:
    """A tokenizer that neither cuts nor pads texts."""
    limit_word_cache(backend, FALLBACK_CACHED_WORDS)
    backend.no_truncation()
    backend.no_padding()
    return backend


def _make_vocabulary(name: str, path: Path, backend: Any, special: dict[str, str], templates: dict[str, str]) -> Vocabulary:
    _ready(backend)
    if (largest := _largest_id(backend)) >= MOST_IDS:  # before tables with an entry per id are made
        raise ConfigError(f"{path}: the largest id is {largest:,}; ids are below {MOST_IDS:,}. Is it what was meant?")
    vocabulary = in_memory(name, backend, special, templates, path.name)
    check_known_faults(vocabulary, path)
    return vocabulary


def in_memory(name: str, backend: Any, special: dict[str, str], templates: dict[str, str], file: str) -> Vocabulary:
    """A tokenizer from its `tokenizers.Tokenizer`, and what the files next to it say."""
    single_template = templates.get(DEFAULT) if len(templates) < 2 else None
    return Vocabulary(name, backend, special, single_template, templates={} if single_template else templates, file=file)


def _largest_id(backend: Any) -> int:
    count: int = backend.get_vocab_size()
    if None not in map(backend.id_to_token, range(count)):  # ids are contiguous
        return count - 1
    return max(backend.get_vocab().values(), default=-1)


_TEKKEN_PREFIX = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]")
_TEKKEN_SIZE = 131_072
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
"""Start of the default patterns. Tekken's pattern does not split contractions, and distinguishes upper and lower case."""


def check_known_faults(vocabulary: Vocabulary, path: Path) -> None:
    """Raise if a tokenizer is known to be wrong.

    Raises:
        ConfigError: with the fault, and what to use instead.
    """
    added = {token["id"]: token["content"] for token in vocabulary.spec["added_tokens"]}
    is_tekken = vocabulary.size == _TEKKEN_SIZE and all(added.get(number) == text for number, text in enumerate(_TEKKEN_PREFIX))
    patterns = [step.get("pattern", {}).get("Regex") or "" for step in steps_of(vocabulary.spec.get("pre_tokenizer"))]
    if is_tekken and any(_CONTRACTIONS in pattern for pattern in patterns):
        raise ConfigError(
            f"tokenizer {vocabulary.name!r}: {path} has Mistral's Tekken vocabulary and the pattern of another tokenizer "
            f"({_CONTRACTIONS}…), as a faulty conversion wrote it: words such as eBay and NaOH get other ids than in training "
            "(huggingface/transformers pull request 42131). Use the model's own tekken.json, or a tokenizer.json that was published after the fix"
        )
