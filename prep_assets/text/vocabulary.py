"""A tokenizer: its ids, control tokens, hash and bytes; how it is opened; what stands around a document."""

from __future__ import annotations

import hashlib
import json
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError
from prep_assets.text.ids import ALPHABET, composes, sorted_json, steps_of
from prep_assets.text.tokenizer_files import (
    DEFAULT,
    MOST_IDS,
    chat_templates,
    checked_size,
    convert,
    in_words,
    other_file,
    sentencepiece_processor,
    special_tokens,
    try_out,
)

if TYPE_CHECKING:
    from prep_assets.text.code_tokenizer import Code

# A tokenizer, as all other rooms see it: its ids, its control tokens, its content hash, and the bytes behind each id.

CODE = "Code"
"""The type of a model that is a class of the user's own."""


@dataclass(frozen=True)
class Vocabulary:
    """A loaded tokenizer.

    Attributes:
        name: the path or hub id it came from, for messages only; never part of a build's identity.
        backend: the `tokenizers.Tokenizer`, the reference for ids.
        special: names and texts of the special tokens (``eos_token`` …), as chat templates see them.
        chat_template: the tokenizer's own Jinja template, or `None`.
        templates: its own templates by name, where it has several; then `chat_template` is `None`.
        file: name of the file that it was read from.
        written: added tokens that a chat template writes: control tokens, whether or not they are marked special.
        code: the class that encodes, where no ``tokenizer.json`` says how; `backend` then has the names and the bytes of ids, and cannot encode.
        unigram: the SentencePiece model that encodes, see `UnigramEngine`; ids of `backend` may be others.
    """

    name: str
    backend: Any
    special: dict[str, str]
    chat_template: str | None
    templates: Mapping[str, str] = field(default_factory=dict)
    file: str = "tokenizer.json"
    written: tuple[str, ...] = ()
    code: Code | None = None
    unigram: bytes = b""

    def with_control(self, written: Iterable[str]) -> Vocabulary:
        """This tokenizer with further added tokens as control tokens."""
        plain = {token["content"] for token in self.spec["added_tokens"] if not token["special"]}
        more = plain.intersection(written)
        return replace(self, written=tuple(sorted({*self.written, *more}))) if more else self

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The parsed ``tokenizer.json`` of the tokenizer as it is in memory. Control tokens are marked special there, all of them, so that
        encoding ordinary text with it has one rule: special tokens are text."""
        loaded: dict[str, Any] = msgspec.json.decode(self.backend.to_str()) if self.code is None else self.code.spec(self.backend)
        for token in loaded["added_tokens"]:
            token["special"] |= token["content"] in self.written
        return loaded

    @cached_property
    def hash(self) -> str:
        """sha256 of everything that decides ids and renders: ``tokenizer.json``, special tokens, chat template."""
        parts = [self.spec, self.special, self.chat_template, *([dict(self.templates)] if self.templates else [])]
        parts += [hashlib.sha256(self.unigram).hexdigest()] if self.unigram else []
        return hashlib.sha256(f"[{', '.join(map(sorted_json, parts))}]".encode()).hexdigest()

    @property
    def encoder(self) -> Any:
        """`backend`, to encode whole texts with.

        Raises:
            ConfigError: it does not give the tokenizer's ids.
        """
        if self.unigram:
            raise ConfigError(
                f"tokenizer {self.name} is a SentencePiece Unigram model; pretraining and chats take it, this takes its tokenizer.json"
            )
        return self.backend

    @cached_property
    def size(self) -> int:
        """One more than the largest id."""
        own = self.spec["model"].get("vocab")
        if not isinstance(own, dict):  # of Unigram pieces the place is the id
            own = self.backend.get_vocab(with_added_tokens=True)
        return 1 + int(max((*own.values(), *(token["id"] for token in self.spec["added_tokens"]))))

    @cached_property
    def control(self) -> dict[str, int]:
        """Control tokens: text → id of every added token that is marked special, or that the family's template writes."""
        return {token["content"]: token["id"] for token in self.spec["added_tokens"] if token["special"]}

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
        """The id that the model gives what is not in its vocabulary; `None` where it has none."""
        model = self.spec["model"]
        found = model.get("unk_id") if model["type"] == "Unigram" else model["vocab"].get(model.get("unk_token") or "")
        return None if found is None else int(found)

    @cached_property
    def pad_id(self) -> int:
        """Id that fills unused positions: the padding token, else the end-of-text token. Padding is never trained."""
        return self._id_of("pad_token") if "pad_token" in self.special else self.eos_id

    def _id_of(self, which: str) -> int:
        text = self.special.get(which)
        found = None if text is None else self.backend.token_to_id(text)
        if found is None:
            raise ConfigError(f"tokenizer {self.name} has no {which}; set it in its tokenizer_config.json")
        return int(found)

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...] | None:
        """The UTF-8 bytes that each id stands for, or `None` where ids do not stand for fixed bytes (WordPiece, tokenizers that change text by
        more than composing it). They are those of the text as `normalized` gives it."""
        model, decoder = self.spec["model"], {step["type"] for step in steps_of(self.spec.get("decoder"))}
        if model["type"] not in ("BPE", CODE) or self.composes is None or decoder.isdisjoint(("ByteLevel", "ByteFallback")):
            return None
        table, decode = [b""] * self.size, _byte_level if "ByteLevel" in decoder else _byte_fallback
        for number, text in zip(model["vocab"].values(), decode(list(model["vocab"])), strict=True):
            table[number] = text
        for token in self.spec["added_tokens"]:
            table[token["id"]] = token["content"].encode()
        return tuple(table)

    @cached_property
    def byte_lengths(self) -> npt.NDArray[np.int64] | None:
        """Length in bytes of each id's text, shape (size,), or `None` as for `token_bytes`."""
        if self.token_bytes is None:
            return None
        return np.fromiter(map(len, self.token_bytes), np.int64, self.size)

    @cached_property
    def composes(self) -> bool | None:
        """Whether it composes text before it tokenizes (NFC); `None` where its normalizer does more than that."""
        return composes(self.spec.get("normalizer"))

    def is_normal(self, text: str) -> bool:
        """Whether the normalizer certainly leaves a text as it is, as it does most texts where it only composes."""
        return self.composes is False or (self.composes is True and unicodedata.is_normalized("NFC", text))

    def normalized(self, text: str) -> str:
        """What the tokenizer makes of a text before it tokenizes it."""
        if self.unigram:
            return str(sentencepiece_processor(self.unigram).Normalize(text)).replace("▁", " ")
        return text if self.is_normal(text) else str(self.backend.normalizer.normalize_str(text))

    @cached_property
    def prefix_space(self) -> Literal["never", "first", "always"]:
        """Where a space that is not in the text is put before its first word: SentencePiece's ``add_dummy_prefix``."""
        steps = (step for step in steps_of(self.spec.get("pre_tokenizer")) if step["type"] == "Metaspace")
        return next((step.get("prepend_scheme", "always") for step in steps), "never")

    def decode(self, ids: npt.ArrayLike) -> str:
        """The text of `ids` by the reference tokenizer's own decoder, control tokens shown."""
        return self.decode_batch([np.asarray(ids).tolist()])[0]

    def decode_batch(self, lists: Sequence[Sequence[int]]) -> list[str]:
        """`decode` of several lists of ids.

        A control token is put in front and its text taken off again, because SentencePiece decoders drop a leading space. Control tokens whose
        text the decoder would change, as it makes a space of the ``▁`` in ``<｜end▁of▁sentence｜>``, are written as they are.
        """
        if not self._respelled or all(self._respelled.keys().isdisjoint(ids) for ids in lists):
            return self._decoded(lists)
        parts = [_cut_at(ids, self._respelled) for ids in lists]
        decoded = iter(self._decoded([stretch for each in parts for stretch, _ in each]))
        return ["".join(next(decoded) + self._respelled.get(token, "") for _, token in each) for each in parts]

    @cached_property
    def _guard(self) -> tuple[str, int] | None:
        """A control token that the decoder writes as it is."""
        return next((each for each in self.control.items() if self.backend.decode([each[1]], skip_special_tokens=False) == each[0]), None)

    @cached_property
    def _respelled(self) -> dict[int, str]:
        """Id → text of the control tokens whose text the decoder would change."""
        found = self._decoded([[number] for number in self.control.values()])
        return {number: text for (text, number), shown in zip(self.control.items(), found, strict=True) if shown != text}

    def _decoded(self, lists: Sequence[Sequence[int]]) -> list[str]:
        if self._guard is None:
            return [str(text) for text in self.backend.decode_batch([list(ids) for ids in lists], skip_special_tokens=False)]
        text, token = self._guard
        return [
            str(found).removeprefix(text)
            for found in self.backend.decode_batch([[token, *ids] for ids in lists], skip_special_tokens=False)
        ]


def _cut_at(ids: Sequence[int], tokens: Mapping[int, str]) -> list[tuple[list[int], int]]:
    """The stretches between some tokens, each with the token after it; -1 after the last."""
    ends = [at for at, token in enumerate(ids) if token in tokens]
    bounds = zip([0, *(end + 1 for end in ends)], [*ends, len(ids)], strict=True)
    return [(list(ids[low:high]), int(ids[high]) if high < len(ids) else -1) for low, high in bounds]


_BYTES = np.full(512, -1, np.int16)
"""The byte of each character of the alphabet; -1 of all others, the last of which stands for what comes after it as well."""
_BYTES[[ord(char) for char in ALPHABET]] = np.arange(256)


def _byte_level(texts: list[str]) -> list[bytes]:
    """A byte for each character.

    Raises:
        UnicodeEncodeError: a character is not of the alphabet, so that it has none.
    """
    joined, ends = "".join(texts), accumulate(map(len, texts), initial=0)
    found = _BYTES[np.minimum(np.frombuffer(joined.encode("utf-32-le"), np.uint32), len(_BYTES) - 1)]
    if (found < 0).any():
        at = int(np.argmax(found < 0))
        raise UnicodeEncodeError("byte-level", joined, at, at + 1, "the alphabet of bytes does not have it")
    data = found.astype(np.uint8).tobytes()
    return [data[start:end] for start, end in pairwise(ends)]


def _byte_fallback(texts: list[str]) -> list[bytes]:
    """The byte that a text spells, as ``<0x0A>`` does, else its own, with spaces for ``▁``."""
    spells = [len(text) == 6 and text.startswith("<0x") and text.endswith(">") for text in texts]
    return [
        bytes([int(text[3:5], 16)]) if spelled else text.replace("▁", " ").encode() for text, spelled in zip(texts, spells, strict=True)
    ]


# What stands around a document in a pretraining stream: the begin-of-text token where the base model had it, the end-of-text token unless `append_eod` is
# false.
#
# auto     as the tokenizer's post-processor has it: whether ``encode("x", add_special_tokens=True)`` begins with ``bos_token`` true     every document begins
# with ``bos_token`` false    none does

Bos = Literal["auto", "true", "false"]
_N = TypeVar("_N", np.uint32, np.float32)


@dataclass(frozen=True, slots=True)
class Ends:
    """Ids around every document: `bos`, or `None` where it begins with its text, and `eos`, or `None` where it ends with it."""

    bos: int | None
    eos: int | None

    @property
    def count(self) -> int:
        """How many there are."""
        return (self.bos is not None) + (self.eos is not None)

    def around(self, ids: npt.NDArray[np.uint32], lengths: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """The ids of some texts, end to end, with these around each; and the length of each, they counted."""
        return self._put(ids, lengths, np.uint32(self.bos or 0), np.full(len(lengths), self.eos or 0, np.uint32)), lengths + self.count

    def weights_around(
        self, weights: npt.NDArray[np.float32], lengths: npt.NDArray[np.int64], last: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Loss weights of some texts, end to end, with those of what stands `around` them: 1 for `bos`, `last` of each text for `eos`."""
        return self._put(weights, lengths, np.float32(1), last)

    def _put(self, values: npt.NDArray[_N], lengths: npt.NDArray[np.int64], first: _N, last: npt.NDArray[_N]) -> npt.NDArray[_N]:
        """Values of some texts, end to end, with one in front of each and one behind each, where there is anything."""
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
    """What `bos` and `append_eod` mean for a tokenizer.

    Raises:
        ConfigError: it has no such token, or its post-processor writes something else in front of a text, so that ``auto`` has no answer.
    """
    end = vocabulary.eos_id if append_eod else None
    if bos == "false":
        return Ends(None, end)
    if bos == "true":
        return Ends(vocabulary.bos_id, end)
    if vocabulary.file != "tokenizer.json" and "bos_token" in vocabulary.special:
        raise ConfigError(
            f"bos: {vocabulary.file} of tokenizer {vocabulary.name} does not say whether texts begin with its bos_token "
            f"{vocabulary.special['bos_token']!r}. Say it: bos: true where the base model had it, else false"
        )
    plain, whole = (vocabulary.backend.encode("x", add_special_tokens=added).ids for added in (False, True))
    front = whole[: next(at for at in range(len(whole) + 1) if whole[at : at + len(plain)] == plain)]
    if front and front != [vocabulary.bos_id]:
        texts = [vocabulary.backend.id_to_token(number) for number in front]
        raise ConfigError(
            f"bos: tokenizer {vocabulary.name} writes {texts} in front of a text, which is not its bos_token alone. Say whether documents "
            "begin with bos_token: bos: true or false"
        )
    return Ends(front[0] if front else None, end)


# Opening a tokenizer. The reference is the published file itself; what stands beside it gives names and templates.
#
# Some published files are known to be wrong and are refused: they open, they decode, and they split words where the model never saw them split. They are
# recognized by their fault, not by their hash: a fault comes from a converter, so many files have it, and each copy that was saved again has another hash.
#
# Tekken with the default pattern: files of Mistral's Tekken vocabulary that were converted with the pattern of GPT-4 or Llama 3 (transformers pull request
# 42131; the discussion of Mistral-Small-3.1). ``eBay``, ``pH`` and ``NaOH`` come out in other pieces than in training. transformers warns in its log.

Loader = Literal["file", "transformers"]

FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json", "vocab.json", "merges.txt"),
    *("chat_template.*", "additional_chat_templates/*", "*.model", "*.tiktoken", "tekken.json"),
    *("preprocessor_config.json", "processor_config.json"),
)
"""What is fetched of a hub repository."""


def load_vocabulary(tokenizer: str, *, base: Path | None = None, revision: str | None = None, loader: Loader = "file") -> Vocabulary:
    """Open a tokenizer in a local directory (relative to `base`) or a hub repository.

    Args:
        loader: ``file``: ``tokenizer.json`` as it is; ``transformers``: what `AutoTokenizer` makes of the folder.

    Raises:
        ConfigError: nothing there that opens, or a file that is known to be wrong.
    """
    folder = folder_of(tokenizer, base=base, revision=revision)
    return from_transformers(tokenizer, folder) if loader == "transformers" else from_file(tokenizer, folder)


def folder_of(tokenizer: str, *, base: Path | None = None, revision: str | None = None) -> Path:
    """The folder of a tokenizer, or its file where one is named; a hub repository is fetched, or found in the cache.

    Raises:
        ConfigError: there is neither.
    """
    local = (base or Path.cwd()) / tokenizer
    if local.exists():
        return local
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(tokenizer, revision=revision, allow_patterns=list(FILES)))
    except (OSError, ValueError) as error:
        raise ConfigError(f"tokenizer {tokenizer!r}: neither the directory {local} nor a hub repository that opens: {error}") from error


def published_file(place: Path) -> Path:
    """The file that defines a tokenizer: the one that is named, else a folder's ``tokenizer.json``, else another that can be converted.

    Raises:
        ConfigError: there is none, or several.
    """
    if place.is_file():
        return place
    path = place / "tokenizer.json"
    other = None if path.is_file() else other_file(place)
    if other is None and not path.is_file():
        found = ", ".join(sorted(each.name for each in place.iterdir())) or "nothing"
        raise ConfigError(
            f"no tokenizer.json in {place}, which holds {found}. Name the folder of a published tokenizer, or set "
            "tokenizer_loader: transformers to take what AutoTokenizer makes of these files"
        )
    return other or path


def from_file(name: str, place: Path) -> Vocabulary:
    """The published file of a folder, or the one that is named. What is no ``tokenizer.json`` is converted; `agreement` proves it.

    Raises:
        ConfigError: there is none, it does not open, or it is known to be wrong.
    """
    from tokenizers import Tokenizer

    path = checked_size(published_file(place))
    names: dict[str, str] = {}
    unigram = b""
    with in_words(f"{path} is not a tokenizer that the tokenizers library reads"):
        if is_tokenizer_json(path):
            backend = Tokenizer.from_file(str(path))
        else:
            spec, names = convert(path)
            backend = Tokenizer.from_str(json.dumps(spec))
            unigram = path.read_bytes() if spec["model"]["type"] == "Unigram" else b""
    try_out(path, backend)
    found = _vocabulary(name, path, backend, {**names, **special_tokens(path.parent)}, chat_templates(path.parent))
    return replace(found, unigram=unigram) if unigram else found


def is_tokenizer_json(path: Path) -> bool:
    """Whether a file is a ``tokenizer.json`` and no Tekken."""
    return path.suffix == ".json" and not path.name.startswith("tekken")


def from_transformers(name: str, folder: Path) -> Vocabulary:
    """What `transformers.AutoTokenizer` makes of a folder. Code in the folder is never run, and no question is asked.

    Raises:
        ConfigError: it does not open the folder, or has no fast (Rust) backend for it.
    """
    # transformers advises to install torch, which tokenizers do not need
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer

    folder = folder.parent if folder.is_file() else folder
    for file in (file for pattern in FILES for file in folder.glob(pattern)):
        checked_size(file)
    with in_words(f"tokenizer {name!r}: transformers does not open {folder}"):
        # classes of tokenizers raise what they like on files that they do not understand
        loaded = AutoTokenizer.from_pretrained(str(folder), use_fast=True, trust_remote_code=False, local_files_only=True)
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise ConfigError(f"tokenizer {name!r} has no fast backend (tokenizer.json); convert it with transformers first")
    try_out(folder, backend)
    special = {name: str(text) for name, text in loaded.special_tokens_map.items() if isinstance(text, str)}
    template = loaded.chat_template
    return _vocabulary(
        name, folder / "tokenizer.json", backend, special, {DEFAULT: template} if isinstance(template, str) else dict(template or {})
    )


def _vocabulary(name: str, path: Path, backend: Any, special: dict[str, str], templates: dict[str, str]) -> Vocabulary:
    backend.no_truncation()
    backend.no_padding()
    only = templates.get(DEFAULT) if len(templates) < 2 else None
    if (largest := _largest_id(backend)) >= MOST_IDS:  # before its ids are written out, with a place for each
        raise ConfigError(f"{path}: the largest id is {largest:,}; ids are below {MOST_IDS:,}. Is it what was meant?")
    vocabulary = Vocabulary(name, backend, special, only, templates={} if only else templates, file=path.name)
    refuse_known_faults(vocabulary, path)
    return vocabulary


def _largest_id(backend: Any) -> int:
    count: int = backend.get_vocab_size()
    if None not in map(backend.id_to_token, range(count)):  # so many tokens, and each id below has one
        return count - 1
    return max(backend.get_vocab().values(), default=-1)


_TEKKEN_BEGINS = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]")
_TEKKEN_SIZE = 131_072
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
"""What the default patterns begin with. Tekken's own pattern splits no contractions; it tells upper from lower case."""


def refuse_known_faults(vocabulary: Vocabulary, path: Path) -> None:
    """Stop at a tokenizer that is known to be wrong.

    Raises:
        ConfigError: says what is wrong, and what to use.
    """
    added = {token["id"]: token["content"] for token in vocabulary.spec["added_tokens"]}
    is_tekken = vocabulary.size == _TEKKEN_SIZE and all(added.get(number) == text for number, text in enumerate(_TEKKEN_BEGINS))
    patterns = [step.get("pattern", {}).get("Regex") or "" for step in steps_of(vocabulary.spec.get("pre_tokenizer"))]
    if is_tekken and any(_CONTRACTIONS in pattern for pattern in patterns):
        raise ConfigError(
            f"tokenizer {vocabulary.name!r}: {path} has Mistral's Tekken vocabulary and the pattern of another tokenizer "
            f"({_CONTRACTIONS}…), as a faulty conversion wrote it: words such as eBay and NaOH get other ids than in training "
            "(huggingface/transformers pull request 42131). Use the model's own tekken.json, or a tokenizer.json that was published after the fix"
        )
