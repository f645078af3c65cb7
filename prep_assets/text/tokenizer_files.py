"""Files of tokenizers: ``tokenizer.json``, SentencePiece, tiktoken, Tekken, plain files, and the configurations next to them."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.caches import bounded_cache
from prep_assets.config.loading import yaml_values
from prep_assets.errors import ConfigError, PrepAssetsError, not_installed
from prep_assets.stores.files import loads
from prep_assets.text.ids import ALPHABET, HIDDEN, Flat

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


# Byte-pair encodings given as ranks of byte strings, converted to a ``tokenizer.json``: tiktoken's rank files (``NAME.tiktoken``), which lack the pattern
# and the special tokens, and Mistral's Tekken.
#
# tiktoken splits a text by a regular expression, takes a piece that is a token as it is, and else merges the two neighbours whose joined bytes have the
# lowest rank, the leftmost first. `tokenizers` does the same with ``ignore_merges`` and a list of merges, by rank of the merged token: every split of each
# token into two tokens.

_GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
_END = "<|endoftext|>"
_FIM = {"<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260}
KNOWN: Mapping[str, Mapping[str, Any]] = {
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": {"pattern": _GPT2, "special_tokens": {_END: 50256}},
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": {"pattern": _GPT2, "special_tokens": {_END: 50256}},
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": {
        "pattern": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
        "special_tokens": {_END: 100257, **_FIM, "<|endofprompt|>": 100276},
    },
}
"""Pattern and special tokens of OpenAI's r50k_base, p50k_base and cl100k_base, by the sha256 of the rank file."""


Spec = tuple[dict[str, Any], dict[str, str]]
"""A ``tokenizer.json`` without parts that are default, and the names and texts of special tokens."""
Encode = Callable[[Sequence[str]], list[list[int]]]


def _convert_ranks(path: Path) -> Spec:
    config = _rank_file_config(path)
    special = {str(text): int(number) for text, number in config.get("special_tokens", {}).items()}
    names = {name: text for name, text in config.items() if name.endswith("_token") and isinstance(text, str)}
    return from_ranks(_read_ranks(path), config["pattern"], special), names


def _rank_file_config(path: Path) -> Mapping[str, Any]:
    """The pattern and the special tokens of a rank file, from a JSON or YAML file of the same name or from `KNOWN`."""
    for suffix in (".json", ".yaml"):
        if path.with_suffix(suffix).is_file():
            config = yaml_values(path.with_suffix(suffix).read_text("utf-8"), path.with_suffix(suffix))
            if isinstance(config.get("pattern"), str):
                return config
    if known := KNOWN.get(hashlib.sha256(path.read_bytes()).hexdigest()):
        return {**known, "eos_token": _END}
    raise ConfigError(
        f"{path} holds ranks only. Write its pattern and special tokens into {path.with_suffix('.json').name}: "
        '{"pattern": "…", "special_tokens": {"<|endoftext|>": 100257}, "eos_token": "<|endoftext|>"}'
    )


def _read_ranks(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines() if line.strip())
    try:
        return {base64.b64decode(token): int(rank) for token, rank in lines}
    except ValueError as error:
        raise ConfigError(f"{path}: a line is not the base64 form of a token and its rank: {error}") from error


def _tiktoken_encode(path: Path) -> Encode:
    import tiktoken

    encoding = tiktoken.Encoding(
        path.stem, pat_str=_rank_file_config(path)["pattern"], mergeable_ranks=_read_ranks(path), special_tokens={}
    )
    return lambda texts: [encoding.encode_ordinary(text) for text in texts]


def _convert_tekken(path: Path) -> Spec:
    spec = loads(path.read_bytes())
    config = spec["config"]
    reserved = int(config["default_num_special_tokens"])
    if reserved > MOST_IDS:  # before naming each of them
        raise ConfigError(f"{path}: default_num_special_tokens is {reserved:,}; ids are below {MOST_IDS:,}. Is it what was meant?")
    special_tokens = spec.get("special_tokens")
    if special_tokens is None:  # files of 2024 lack them; the library has them
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        special_tokens = Tekkenizer.DEPRECATED_SPECIAL_TOKENS
    special = {f"<SPECIAL_{number}>": number for number in range(len(special_tokens), reserved)}
    special |= {token["token_str"]: int(token["rank"]) for token in special_tokens}
    size = int(config["default_vocab_size"]) - reserved
    ranks = {base64.b64decode(token["token_bytes"]): int(token["rank"]) + reserved for token in spec["vocab"][:size]}
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return from_ranks(ranks, config["pattern"], special), {name: text for name, text in names.items() if text in special}


def _mistral_encode(path: Path) -> Encode:
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    tokenizer = Tekkenizer.from_file(path)
    return lambda texts: [tokenizer.encode(text, bos=False, eos=False) for text in texts]


_POSSESSIVE = re.compile(r"(\\p\{\w+\}|\\[a-zA-Z]|\[(?:[^\]\\]|\\.)*\])(\{\d*,?\d*\})\+")
"""``x{1,3}+``: possessive for tiktoken's engine; Oniguruma reads it as a repetition of ``x{1,3}``."""


def from_ranks(ranks: Mapping[bytes, int], pattern: str, special: Mapping[str, int]) -> dict[str, Any]:
    """Build a ``tokenizer.json`` from the ranks of byte-level BPE.

    Args:
        ranks: bytes of each token → its id; lower ids are merged first.
        pattern: the regular expression that splits words.
        special: texts of special tokens → ids.
    """
    token_texts, merges = {token: "".join(map(ALPHABET.__getitem__, token)) for token in sorted(ranks, key=ranks.__getitem__)}, []
    for token in token_texts:
        splits = ((token[:at], token[at:]) for at in range(1, len(token)))
        pairs = [(ranks[left], ranks[right], left, right) for left, right in splits if left in ranks and right in ranks]
        merges += [[token_texts[left], token_texts[right]] for *_, left, right in sorted(pairs)]
    split = {"type": "Split", "pattern": {"Regex": _POSSESSIVE.sub(r"(?>\1\2)", pattern)}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    vocab = {**{text: ranks[token] for token, text in token_texts.items()}, **special}
    return {
        "added_tokens": _added_tokens(special),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "decoder": byte_level,
        "model": {"type": "BPE", "ignore_merges": True, "vocab": vocab, "merges": merges},
    }


def _added_tokens(special: Mapping[str, int]) -> list[dict[str, Any]]:
    """``added_tokens`` of a ``tokenizer.json``: special tokens, matched verbatim, in the order of their ids."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": special[text], "content": text, **flags} for text in sorted(special, key=special.__getitem__)]


# A SentencePiece ``.model`` converted to a ``tokenizer.json``.
#
# The library normalizes a text, prepends ``▁`` and replaces spaces by it, and merges neighbours by the scores of the merged pieces. `tokenizers` does the
# same with a normalizer and with merges in the order of these scores. Models with user-defined pieces, which follow other rules of matching, are not
# supported.
#
# With a Unigram model the two may choose different pieces if splits score nearly the same (one sums scores as float32, the other as float64), and they
# normalize some characters differently. So the library itself tokenizes; the converted model names and decodes ids.

_UNIGRAM, _BPE = 1, 2
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5


def _convert_sentencepiece(path: Path) -> Spec:
    from transformers.utils import sentencepiece_model_pb2_new as proto

    model = proto.ModelProto.FromString(path.read_bytes())
    trainer, pieces, normal = model.trainer_spec, list(model.pieces), model.normalizer_spec
    if trainer.model_type not in (_UNIGRAM, _BPE):
        kind = {3: "word", 4: "char"}.get(trainer.model_type, trainer.model_type)
        raise ConfigError(f"{path} is a SentencePiece model of the kind {kind}; BPE and Unigram alone are read. Use its tokenizer.json")
    user_defined = [piece.piece for piece in pieces if piece.type == _USER_DEFINED]
    if user_defined:
        raise ConfigError(
            f"{path} has {len(user_defined)} user-defined pieces such as {user_defined[0]!r}; use the tokenizer.json that is published with it"
        )
    normalizers: list[dict[str, Any]] = []
    if normal.precompiled_charsmap:
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(normal.precompiled_charsmap).decode()})
    if normal.remove_extra_whitespaces:
        normalizers.append({"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""})
        normalizers.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    if normal.add_dummy_prefix:
        normalizers.append({"type": "Prepend", "prepend": "▁"})
    normalizers.append({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if normal.add_dummy_prefix else []
    spaces = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    spec = {
        "added_tokens": _added_tokens({piece.piece: number for number, piece in enumerate(pieces) if piece.type in (_CONTROL, _UNKNOWN)}),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "decoder": {"type": "Sequence", "decoders": [spaces, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": (_unigram_model if trainer.model_type == _UNIGRAM else _bpe_model)(trainer, pieces),
    }
    ids = {"unk_token": trainer.unk_id, "bos_token": trainer.bos_id, "eos_token": trainer.eos_id, "pad_token": trainer.pad_id}
    return spec, {name: pieces[number].piece for name, number in ids.items() if 0 <= number < len(pieces)}


def _bpe_model(trainer: Any, pieces: list[Any]) -> dict[str, Any]:
    """A BPE model with merges by descending score of the merged piece."""
    ids = {piece.piece: number for number, piece in enumerate(pieces)}
    usable = {piece.piece: piece.score for piece in pieces if piece.type == _NORMAL}
    merges = []
    for text in sorted(usable, key=lambda text: (-usable[text], ids[text])):
        splits = ((text[:at], text[at:]) for at in range(1, len(text)))
        merges += [[left, right] for left, right in splits if left in usable and right in usable]
    unknown = {"unk_token": pieces[trainer.unk_id].piece, "fuse_unk": True, "byte_fallback": trainer.byte_fallback}
    return {"type": "BPE", **unknown, "vocab": ids, "merges": merges}


def _unigram_model(trainer: Any, pieces: list[Any]) -> dict[str, Any]:
    entries = [[HIDDEN + piece.piece if piece.type == _UNUSED else piece.piece, piece.score] for piece in pieces]
    return {"type": "Unigram", "unk_id": trainer.unk_id, "vocab": entries, "byte_fallback": trainer.byte_fallback}


def _sentencepiece_encode(path: Path) -> Encode:
    processor = sentencepiece_processor(path.read_bytes())
    return lambda texts: [list(processor.encode(text)) for text in texts]


@bounded_cache("SentencePiece models", 4)
def sentencepiece_processor(model: bytes) -> Any:
    """Open a SentencePiece model."""
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_proto=model)


class UnigramEngine:
    """The `sentencepiece` library with a Unigram model: its ids and their places in the text."""

    name = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        self._library = sentencepiece_processor(model)

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        return Flat.of(self._library.Encode(list(texts), num_threads=1) if texts else [])

    def char_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of one text and the character span ``(start, end)`` of each; a token inside a character has the span of that character.

        Raises:
            ConfigError: the pieces do not add up to the normalized text.
        """
        ids: list[int] = self._library.Encode(text)
        pieces = zip(ids, self._library.Encode(text, out_type=str), strict=True)
        lengths = [1 if self._library.IsByte(number) else len(piece.encode()) for number, piece in pieces]
        normal, offsets = self._library.Normalize(text, with_offsets=True)
        ends, char_ends = (
            np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]) for counts in (lengths, [len(char.encode()) for char in normal])
        )
        if ends[-1] != char_ends[-1]:
            raise ConfigError(f"sentencepiece splits {text[:60]!r} into pieces of {ends[-1]:,} bytes, and makes {char_ends[-1]:,} of it")
        first = np.searchsorted(char_ends, ends[:-1], "right") - 1
        char_offsets = np.array(offsets, np.int64)
        return ids, list(zip(char_offsets[first].tolist(), char_offsets[np.searchsorted(char_ends, ends[1:])].tolist(), strict=True))


# Vocabularies in plain files, converted to a ``tokenizer.json``.
#
# vocab.txt                   WordPiece, as published with BERT: one token per line, its id is the line number
# vocab.json and merges.txt   byte-level BPE, as published with GPT-2: ids, and the merges in order
#
# Megatron's files have a prefix (``bert-large-uncased-vocab.txt``, ``gpt2-merges.txt``). None of them says how text is split: it is split as for BERT and
# GPT-2, and a folder whose ``tokenizer_config.json`` names the class of another tokenizer is an error.

_BERT = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
_GPT2_SPECIAL_TOKENS = {"eos_token": "<|endoftext|>"}


def _read_settings(path: Path, expected: str) -> Mapping[str, Any]:
    """Read ``tokenizer_config.json``.

    Raises:
        ConfigError: it names another tokenizer class than `expected`.
    """
    settings = read_object(path.parent / "tokenizer_config.json")
    tokenizer_class = settings.get("tokenizer_class") or expected
    if tokenizer_class.removesuffix("Fast") != expected:
        raise ConfigError(f"{path} belongs to a {tokenizer_class}, which may split text otherwise than {expected}. Use its tokenizer.json")
    return settings


def _convert_wordpiece(path: Path) -> Spec:
    settings = _read_settings(path, "BertTokenizer")
    if not isinstance(settings.get("do_lower_case"), bool):
        raise ConfigError(
            f'{path} does not say whether text is lowercased. Write {{"do_lower_case": true}} (BertWordPieceLowerCase) or false '
            "(BertWordPieceCase) into tokenizer_config.json beside it"
        )
    vocab = {line: number for number, line in enumerate(path.read_text("utf-8").removesuffix("\n").split("\n"))}
    names = {**{name: text for name, text in _BERT.items() if text in vocab}, **special_tokens(path.parent)}
    chinese, accents = settings.get("tokenize_chinese_chars", True), settings.get("strip_accents")
    normalizer = {"clean_text": True, "handle_chinese_chars": chinese, "strip_accents": accents, "lowercase": settings["do_lower_case"]}
    model = {"unk_token": names.get("unk_token", _BERT["unk_token"]), "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    spec = {
        "normalizer": {"type": "BertNormalizer", **normalizer},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
    }
    return _with_special_tokens(path, spec, {"type": "WordPiece", **model}, vocab, names), names


def _bert_encode(path: Path) -> Encode:
    from transformers import BertTokenizer

    settings = _read_settings(path, "BertTokenizer")
    options = {name: settings[name] for name in ("do_lower_case", "strip_accents", "tokenize_chinese_chars") if name in settings}
    return _backend_encode(BertTokenizer(vocab=str(path), **options))


def _convert_merges(path: Path) -> Spec:
    settings, vocab_path = _read_settings(path, "GPT2Tokenizer"), _vocab_path(path)
    vocab = dict(read_object(vocab_path))
    lines = [line for line in path.read_text("utf-8").split("\n") if line and not line.startswith("#version")]
    merges = [line.split(" ") for line in lines]
    if wrong := next((line for line, pair in zip(lines, merges, strict=True) if len(pair) != 2 or "".join(pair) not in vocab), None):
        raise ConfigError(
            f"{path}: {wrong[:60]!r} merges no two tokens into one of {vocab_path.name}. The two files do not belong together"
        )
    names = {**{name: text for name, text in _GPT2_SPECIAL_TOKENS.items() if text in vocab}, **special_tokens(path.parent)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    prefix = {"add_prefix_space": bool(settings.get("add_prefix_space", False))}
    spec = {"pre_tokenizer": {**byte_level, **prefix}, "decoder": byte_level}
    return _with_special_tokens(path, spec, {"type": "BPE", "merges": merges}, vocab, names), names


def _gpt2_encode(path: Path) -> Encode:
    from transformers import GPT2Tokenizer

    prefix = _read_settings(path, "GPT2Tokenizer").get("add_prefix_space", False)
    return _backend_encode(GPT2Tokenizer(vocab=str(_vocab_path(path)), merges=str(path), add_prefix_space=prefix))


def _backend_encode(tokenizer: Any) -> Encode:
    """The encode function of a tokenizer of transformers, for ordinary text."""
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    return lambda texts: [encoding.ids for encoding in backend.encode_batch(list(texts), add_special_tokens=False)]


def _vocab_path(path: Path) -> Path:
    vocab_path = path.with_name(path.name.removesuffix("merges.txt") + "vocab.json")
    if not vocab_path.is_file():
        raise ConfigError(f"{path} holds merges only, and there is no {vocab_path.name} beside it, which has the ids")
    return vocab_path


def _with_special_tokens(
    path: Path, spec: dict[str, Any], model: dict[str, Any], vocab: dict[str, int], names: Mapping[str, str]
) -> dict[str, Any]:
    """`spec` with the model and the special tokens, whose ids come from the vocabulary or from ``added_tokens.json``."""
    ids = {**read_object(path.parent / "added_tokens.json"), **vocab}
    missing = sorted({text for text in names.values() if text not in ids})
    if missing:
        raise ConfigError(
            f"{path}: tokenizer_config.json names {', '.join(missing)}, without an id in the vocabulary or in added_tokens.json"
        )
    special = {text: int(ids[text]) for text in names.values()}
    return {**spec, "added_tokens": _added_tokens(special), "model": {**model, "vocab": {**vocab, **special}}}


# Tokenizers published in files other than ``tokenizer.json``.
#
# Each is converted to a ``tokenizer.json``, and the ids are compared on the edge set with those of the library that the file was made for. An inexact
# conversion is an error.

KINDS: Mapping[str, tuple[Callable[[Path], Spec], str, Callable[[Path], Encode]]] = {
    "tekken*.json": (_convert_tekken, "mistral-common", _mistral_encode),
    "*.tiktoken": (_convert_ranks, "tiktoken", _tiktoken_encode),
    "*.model": (_convert_sentencepiece, "sentencepiece", _sentencepiece_encode),
    "*vocab.txt": (_convert_wordpiece, "transformers", _bert_encode),
    "*merges.txt": (_convert_merges, "transformers", _gpt2_encode),
}
"""File name pattern → converter, package that reads such files, and the encode function of that package."""


def convertible_file(folder: Path) -> Path | None:
    """The convertible tokenizer file of a folder without ``tokenizer.json``, or `None`.

    Raises:
        ConfigError: there are several.
    """
    paths = [path for pattern in KINDS for path in sorted(folder.glob(pattern))]
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise ConfigError(f"{folder} holds several tokenizers: {names}. Name the file instead of the folder")
    return paths[0] if paths else None


def convert(path: Path) -> Spec:
    """Convert a published file to a ``tokenizer.json``.

    Raises:
        ConfigError: the kind is unknown, it has no exact counterpart, or it lacks settings.
    """
    for pattern, (converter, _, _) in KINDS.items():
        if path.match(pattern):
            return converter(path)
    kinds = "a SentencePiece .model, a .tiktoken file, a tekken.json, a vocab.txt or a merges.txt"
    raise ConfigError(f"{path}: a tokenizer is a tokenizer.json, {kinds}")


def library_of(path: Path) -> tuple[str, Callable[[Path], Encode]]:
    """The package that a file was made for, and its function that opens the file."""
    return next((package, open_encoder) for pattern, (_, package, open_encoder) in KINDS.items() if path.match(pattern))
