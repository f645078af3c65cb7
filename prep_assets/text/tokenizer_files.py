"""Files of tokenizers: ``tokenizer.json``, SentencePiece, tiktoken, Tekken, plain files, and what stands beside them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.stores.files import loads
from prep_assets.text.ids import ALPHABET, HIDDEN, Flat

# Limits for the files of a tokenizer, which are foreign and read by native code.
#
# Native code cannot be interrupted, so what it is given is bounded instead: the size of each file, before it is opened; and each pattern is tried
# on texts at which patterns blow up. The library ends such a search after ten million steps with a panic; that, and any other, becomes an error in
# words.

MOST_BYTES = 256 << 20
"""Of one file of a tokenizer: eight times the largest that is known (a vocabulary of 262,144 tokens has 33 MB)."""
MOST_IDS = 1 << 24
"""A vocabulary is written out with a place for each id up to the largest. The largest that are known have 262,144."""
WORDS_BESIDE, WORDS_IN_CHARGE = 2048, 10_000
"""Words that the library remembers of a tokenizer, in each of its threads: where another engine encodes most texts, and where it encodes all."""
_RUN = 48
PROBES = tuple(
    f"{start}{unit * _RUN}{end}"
    for unit in ("a", "A", "1", " ", "\n", "'s", "é", "中", "_", "a ", "aA", "1.")
    for start, end in (("", "!"), ("x", "\0"))
)
"""A long run that nearly matches, and what it does not go on with: where a pattern can take a run apart in many ways, it tries them all here."""


def checked_size(path: Path) -> Path:
    """The file, if it is not too large.

    Raises:
        ConfigError: it is.
    """
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ConfigError(
            f"{path} has {size:,} bytes; a file of a tokenizer may have {MOST_BYTES:,}. Is it what was meant? Copy the published file again"
        )
    return path


@contextmanager
def in_words(what: str) -> Iterator[None]:
    """Errors of the library, panics too, as errors that say `what` was done.

    Raises:
        ConfigError: what happens inside.
    """
    try:
        yield
    except PrepAssetsError:
        raise
    except BaseException as error:  # the library raises bare Exception, and a panic is a BaseException
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        kind = "" if type(error) is Exception else f"{type(error).__name__}: "
        raise ConfigError(f"{what}: {kind}{str(error)[:300]}") from error


def remember_words(backend: Any, most: int) -> None:
    """Bound what the library remembers of a tokenizer. It keeps those words when the tokenizer is gone, some 300 bytes each, until the thread ends."""
    if (resize := getattr(backend.model, "_resize_cache", None)) is not None:  # not in tokenizers 0.21.0
        resize(most)


def try_out(path: Path, backend: Any) -> None:
    """Encode what patterns blow up at.

    Raises:
        ConfigError: one does, or the tokenizer encodes nothing.
    """
    remember_words(backend, WORDS_BESIDE)
    for probe in PROBES:
        with in_words(f"{path}: this tokenizer does not encode {probe[:12]!r}… ({len(probe)} characters). Use one that reads any text"):
            backend.encode(probe, add_special_tokens=False)


# What stands beside a published tokenizer: names of special tokens and chat templates, as `transformers` reads them.
#
#     tokenizer_config.json       bos_token, eos_token, …; chat_template: one, or several by name
#     special_tokens_map.json     names that the configuration leaves out
#     chat_template.jinja         the template, before that of the configuration
#     additional_chat_templates/  further ones by name
#     chat_template.json          the template of a processor, where there is no other

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
DEFAULT = "default"


def read_object(path: Path) -> Mapping[str, Any]:
    """A file that holds a JSON object; empty where there is none.

    Raises:
        ConfigError: it holds something else.
    """
    if not path.is_file():
        return {}
    try:
        found = loads(checked_size(path).read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path} holds {type(found).__name__}, needs an object")
    return found


def special_tokens(folder: Path) -> dict[str, str]:
    """Names and texts of special tokens, such as ``eos_token``; also those that one model alone has (``image_token``)."""
    found: dict[str, str] = {}
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        config = read_object(folder / file)
        own = [config.get(key) for key in ("extra_special_tokens", "model_specific_special_tokens")]
        for names in (config, *(each for each in own if isinstance(each, Mapping))):
            for name, token in names.items():
                text = token.get("content") if isinstance(token, Mapping) else token
                if isinstance(text, str) and (name in NAMES or names is not config):
                    found.setdefault(name, text)
    return found


def chat_templates(folder: Path) -> dict[str, str]:
    """Chat templates by name; one without a name is ``default``."""
    found = templates_by_name(read_object(folder / "tokenizer_config.json").get("chat_template"))
    beside = folder / "chat_template.jinja"
    if beside.is_file():
        found[DEFAULT] = read_text(beside)
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.name.removesuffix(".jinja")] = read_text(path)
    return found or templates_by_name(read_object(folder / "chat_template.json").get("chat_template"))


def read_text(path: Path) -> str:
    """A template.

    Raises:
        ConfigError: it is too large, or no UTF-8.
    """
    try:
        return checked_size(path).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8 ({error.reason}); save the template as UTF-8") from error


def templates_by_name(value: Any) -> dict[str, str]:
    """One template, a list of ``{name, template}``, or a mapping of names to templates."""
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, list):
        pairs = [(each.get("name"), each.get("template")) for each in value if isinstance(each, Mapping)]
    else:
        pairs = [*value.items()] if isinstance(value, Mapping) else []
    return {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}


# Byte-pair encodings given as ranks of byte strings, as a ``tokenizer.json``: tiktoken's rank files (``NAME.tiktoken``), with the pattern and the special
# tokens that such a file leaves out, and Mistral's Tekken.
#
# tiktoken splits a text by a regular expression, takes a piece that is a token as it is, and else merges the two neighbours whose joined bytes have the
# lowest rank, the leftmost first. `tokenizers` does the same with a list of merges in the order of the ranks of what they make, each token with every split
# into two tokens, and with ``ignore_merges``.

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
"""What OpenAI's r50k_base, p50k_base and cl100k_base leave out, by the sha256 of the rank file."""


Spec = tuple[dict[str, Any], dict[str, str]]
"""A ``tokenizer.json`` without the parts that have their defaults, and the names and texts of special tokens."""
Encode = Callable[[Sequence[str]], list[list[int]]]


def _rank_file(path: Path) -> Spec:
    config = _beside(path)
    special = {str(text): int(number) for text, number in config.get("special_tokens", {}).items()}
    names = {name: text for name, text in config.items() if name.endswith("_token") and isinstance(text, str)}
    return from_ranks(_ranks(path), config["pattern"], special), names


def _beside(path: Path) -> Mapping[str, Any]:
    """What a rank file does not say: the pattern and the special tokens, in a JSON or YAML file of its name."""
    for suffix in (".json", ".yaml"):
        if path.with_suffix(suffix).is_file():
            import yaml

            config = yaml.safe_load(path.with_suffix(suffix).read_text("utf-8"))
            if isinstance(config, Mapping) and isinstance(config.get("pattern"), str):
                return config
    if known := KNOWN.get(hashlib.sha256(path.read_bytes()).hexdigest()):
        return {**known, "eos_token": _END}
    raise ConfigError(
        f"{path} holds ranks only. Write its pattern and special tokens into {path.with_suffix('.json').name}: "
        '{"pattern": "…", "special_tokens": {"<|endoftext|>": 100257}, "eos_token": "<|endoftext|>"}'
    )


def _ranks(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines() if line.strip())
    try:
        return {base64.b64decode(token): int(rank) for token, rank in lines}
    except ValueError as error:
        raise ConfigError(f"{path}: a line is not the base64 form of a token and its rank: {error}") from error


def _by_tiktoken(path: Path) -> Encode:
    import tiktoken

    encoding = tiktoken.Encoding(path.stem, pat_str=_beside(path)["pattern"], mergeable_ranks=_ranks(path), special_tokens={})
    return lambda texts: [encoding.encode_ordinary(text) for text in texts]


def _tekken(path: Path) -> Spec:
    spec = loads(path.read_bytes())
    config = spec["config"]
    reserved = int(config["default_num_special_tokens"])
    if reserved > MOST_IDS:  # before each is given a name
        raise ConfigError(f"{path}: default_num_special_tokens is {reserved:,}; ids are below {MOST_IDS:,}. Is it what was meant?")
    listed = spec.get("special_tokens")
    if listed is None:  # files of 2024 leave them to the library
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        listed = Tekkenizer.DEPRECATED_SPECIAL_TOKENS
    special = {f"<SPECIAL_{number}>": number for number in range(len(listed), reserved)}
    special |= {token["token_str"]: int(token["rank"]) for token in listed}
    size = int(config["default_vocab_size"]) - reserved
    ranks = {base64.b64decode(token["token_bytes"]): int(token["rank"]) + reserved for token in spec["vocab"][:size]}
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return from_ranks(ranks, config["pattern"], special), {name: text for name, text in names.items() if text in special}


def _by_mistral(path: Path) -> Encode:
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    opened = Tekkenizer.from_file(path)
    return lambda texts: [opened.encode(text, bos=False, eos=False) for text in texts]


_POSSESSIVE = re.compile(r"(\\p\{\w+\}|\\[a-zA-Z]|\[(?:[^\]\\]|\\.)*\])(\{\d*,?\d*\})\+")
"""``x{1,3}+``: possessive for tiktoken's engine; Oniguruma reads it as a repetition of the whole."""


def from_ranks(ranks: Mapping[bytes, int], pattern: str, special: Mapping[str, int]) -> dict[str, Any]:
    """A ``tokenizer.json``.

    Args:
        ranks: bytes of each token → its id; a lower one is merged first.
        pattern: the regular expression that splits words.
        special: texts of special tokens → ids.
    """
    spelled, merges = {token: "".join(map(ALPHABET.__getitem__, token)) for token in sorted(ranks, key=ranks.__getitem__)}, []
    for token in spelled:
        splits = ((token[:at], token[at:]) for at in range(1, len(token)))
        pairs = [(ranks[left], ranks[right], left, right) for left, right in splits if left in ranks and right in ranks]
        merges += [[spelled[left], spelled[right]] for *_, left, right in sorted(pairs)]
    split = {"type": "Split", "pattern": {"Regex": _POSSESSIVE.sub(r"(?>\1\2)", pattern)}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    vocab = {**{text: ranks[token] for token, text in spelled.items()}, **special}
    return {
        "added_tokens": _special(special),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "decoder": byte_level,
        "model": {"type": "BPE", "ignore_merges": True, "vocab": vocab, "merges": merges},
    }


def _special(special: Mapping[str, int]) -> list[dict[str, Any]]:
    """``added_tokens`` of a ``tokenizer.json``: special tokens, found as they are written, in the order of their ids."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": special[text], "content": text, **flags} for text in sorted(special, key=special.__getitem__)]


# A SentencePiece ``.model`` as a ``tokenizer.json``.
#
# The library normalizes a text, puts ``▁`` in front of it and for every space, and merges neighbours by the scores of what they make. `tokenizers` does the
# same with a normalizer and with merges in the order of these scores. Models with user-defined pieces, which are matched inside of texts by rules of their
# own, are refused.
#
# Of a Unigram model the two may pick other pieces of the same text where splits score nearly the same (one adds scores up as float32, the other as float64),
# and they normalize some characters otherwise. So the library itself tokenizes; what is converted has the names of ids and decodes them.

_UNIGRAM, _BPE = 1, 2
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5


def _sentencepiece(path: Path) -> Spec:
    from transformers.utils import sentencepiece_model_pb2_new as proto

    model = proto.ModelProto.FromString(path.read_bytes())
    trainer, pieces, normal = model.trainer_spec, list(model.pieces), model.normalizer_spec
    if trainer.model_type not in (_UNIGRAM, _BPE):
        kind = {3: "word", 4: "char"}.get(trainer.model_type, trainer.model_type)
        raise ConfigError(f"{path} is a SentencePiece model of the kind {kind}; BPE and Unigram alone are read. Use its tokenizer.json")
    own = [piece.piece for piece in pieces if piece.type == _USER_DEFINED]
    if own:
        raise ConfigError(f"{path} has {len(own)} user-defined pieces such as {own[0]!r}; use the tokenizer.json that is published with it")
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
        "added_tokens": _special({piece.piece: number for number, piece in enumerate(pieces) if piece.type in (_CONTROL, _UNKNOWN)}),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "decoder": {"type": "Sequence", "decoders": [spaces, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": (_unigram if trainer.model_type == _UNIGRAM else _bpe)(trainer, pieces),
    }
    ids = {"unk_token": trainer.unk_id, "bos_token": trainer.bos_id, "eos_token": trainer.eos_id, "pad_token": trainer.pad_id}
    return spec, {name: pieces[number].piece for name, number in ids.items() if 0 <= number < len(pieces)}


def _bpe(trainer: Any, pieces: list[Any]) -> dict[str, Any]:
    """The pair whose joined piece has the highest score is merged first, so merges stand in the order of these scores."""
    ids = {piece.piece: number for number, piece in enumerate(pieces)}
    usable = {piece.piece: piece.score for piece in pieces if piece.type == _NORMAL}
    merges = []
    for text in sorted(usable, key=lambda text: (-usable[text], ids[text])):
        splits = ((text[:at], text[at:]) for at in range(1, len(text)))
        merges += [[left, right] for left, right in splits if left in usable and right in usable]
    unknown = {"unk_token": pieces[trainer.unk_id].piece, "fuse_unk": True, "byte_fallback": trainer.byte_fallback}
    return {"type": "BPE", **unknown, "vocab": ids, "merges": merges}


def _unigram(trainer: Any, pieces: list[Any]) -> dict[str, Any]:
    entries = [[HIDDEN + piece.piece if piece.type == _UNUSED else piece.piece, piece.score] for piece in pieces]
    return {"type": "Unigram", "unk_id": trainer.unk_id, "vocab": entries, "byte_fallback": trainer.byte_fallback}


def _by_sentencepiece(path: Path) -> Encode:
    opened = sentencepiece_processor(path.read_bytes())
    return lambda texts: [list(opened.encode(text)) for text in texts]


@bounded_cache("SentencePiece models", 4)
def sentencepiece_processor(model: bytes) -> Any:
    """The library with a model."""
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_proto=model)


class UnigramEngine:
    """The `sentencepiece` library with a Unigram model: its ids, and where it says that they stand in the text."""

    name = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        self._library = sentencepiece_processor(model)

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        return Flat.of(self._library.Encode(list(texts), num_threads=1) if texts else [])

    def char_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of one text and the character span ``(start, end)`` of each; whole characters, where a token is a part of one.

        Raises:
            ConfigError: its pieces are not what it made of the text.
        """
        ids: list[int] = self._library.Encode(text)
        shown = zip(ids, self._library.Encode(text, out_type=str), strict=True)
        lengths = [1 if self._library.IsByte(number) else len(piece.encode()) for number, piece in shown]
        normal, offsets = self._library.Normalize(text, with_offsets=True)
        ends, borders = (
            np.concatenate([[0], np.cumsum(each, dtype=np.int64)]) for each in (lengths, [len(char.encode()) for char in normal])
        )
        if ends[-1] != borders[-1]:
            raise ConfigError(f"sentencepiece splits {text[:60]!r} into pieces of {ends[-1]:,} bytes, and makes {borders[-1]:,} of it")
        first = np.searchsorted(borders, ends[:-1], "right") - 1
        place = np.array(offsets, np.int64)
        return ids, list(zip(place[first].tolist(), place[np.searchsorted(borders, ends[1:])].tolist(), strict=True))


# Vocabularies in plain files as a ``tokenizer.json``.
#
# vocab.txt                   WordPiece, as BERT is published: a token a line, its id the number of the line vocab.json and merges.txt   byte-level BPE, as
# GPT-2 is published: ids, and the pairs that are merged in their order
#
# Megatron's files have a prefix (``bert-large-uncased-vocab.txt``, ``gpt2-merges.txt``). How text is split stands in none of them: BERT's and GPT-2's own
# ways are taken, and a folder whose ``tokenizer_config.json`` names another tokenizer's class is refused.

_BERT = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
_GPT2_SPECIAL_TOKENS = {"eos_token": "<|endoftext|>"}


def _settings(path: Path, own: str) -> Mapping[str, Any]:
    """What ``tokenizer_config.json`` says, if it is of that class."""
    settings = read_object(path.parent / "tokenizer_config.json")
    named = settings.get("tokenizer_class") or own
    if named.removesuffix("Fast") != own:
        raise ConfigError(f"{path} belongs to a {named}, which may split text otherwise than {own}. Use its tokenizer.json")
    return settings


def _wordpiece(path: Path) -> Spec:
    settings = _settings(path, "BertTokenizer")
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
    return _complete(path, spec, {"type": "WordPiece", **model}, vocab, names), names


def _by_bert(path: Path) -> Encode:
    from transformers import BertTokenizer

    settings = _settings(path, "BertTokenizer")
    own = {name: settings[name] for name in ("do_lower_case", "strip_accents", "tokenize_chinese_chars") if name in settings}
    return _by_backend(BertTokenizer(vocab=str(path), **own))


def _merges(path: Path) -> Spec:
    settings, place = _settings(path, "GPT2Tokenizer"), _vocabulary_of(path)
    vocab = dict(read_object(place))
    lines = [line for line in path.read_text("utf-8").split("\n") if line and not line.startswith("#version")]
    merges = [line.split(" ") for line in lines]
    if wrong := next((line for line, pair in zip(lines, merges, strict=True) if len(pair) != 2 or "".join(pair) not in vocab), None):
        raise ConfigError(f"{path}: {wrong[:60]!r} merges no two tokens into one of {place.name}. The two files do not belong together")
    names = {**{name: text for name, text in _GPT2_SPECIAL_TOKENS.items() if text in vocab}, **special_tokens(path.parent)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    prefix = {"add_prefix_space": bool(settings.get("add_prefix_space", False))}
    spec = {"pre_tokenizer": {**byte_level, **prefix}, "decoder": byte_level}
    return _complete(path, spec, {"type": "BPE", "merges": merges}, vocab, names), names


def _by_gpt2(path: Path) -> Encode:
    from transformers import GPT2Tokenizer

    prefix = _settings(path, "GPT2Tokenizer").get("add_prefix_space", False)
    return _by_backend(GPT2Tokenizer(vocab=str(_vocabulary_of(path)), merges=str(path), add_prefix_space=prefix))


def _by_backend(opened: Any) -> Encode:
    """How a class of transformers encodes ordinary text."""
    backend = opened.backend_tokenizer
    backend.encode_special_tokens = True
    return lambda texts: [each.ids for each in backend.encode_batch(list(texts), add_special_tokens=False)]


def _vocabulary_of(path: Path) -> Path:
    place = path.with_name(path.name.removesuffix("merges.txt") + "vocab.json")
    if not place.is_file():
        raise ConfigError(f"{path} holds merges only, and there is no {place.name} beside it, which has the ids")
    return place


def _complete(path: Path, spec: dict[str, Any], model: dict[str, Any], vocab: dict[str, int], names: Mapping[str, str]) -> dict[str, Any]:
    """With special tokens, which have the ids of the vocabulary, or of ``added_tokens.json``."""
    ids = {**read_object(path.parent / "added_tokens.json"), **vocab}
    missing = sorted({text for text in names.values() if text not in ids})
    if missing:
        raise ConfigError(
            f"{path}: tokenizer_config.json names {', '.join(missing)}, without an id in the vocabulary or in added_tokens.json"
        )
    special = {text: int(ids[text]) for text in names.values()}
    return {**spec, "added_tokens": _special(special), "model": {**model, "vocab": {**vocab, **special}}}


# Tokenizers that are published in other files than ``tokenizer.json``.
#
# Each is converted into a ``tokenizer.json``, and the ids are compared with those of the library that the file was made for, on the edge set. A file whose
# conversion is not exact is refused.

KINDS: Mapping[str, tuple[Callable[[Path], Spec], str, Callable[[Path], Encode]]] = {
    "tekken*.json": (_tekken, "mistral-common", _by_mistral),
    "*.tiktoken": (_rank_file, "tiktoken", _by_tiktoken),
    "*.model": (_sentencepiece, "sentencepiece", _by_sentencepiece),
    "*vocab.txt": (_wordpiece, "transformers", _by_bert),
    "*merges.txt": (_merges, "transformers", _by_gpt2),
}
"""The files of each kind, what converts them, the package that they were made for, and how that reads them."""


def other_file(folder: Path) -> Path | None:
    """The file of a folder without ``tokenizer.json`` that a tokenizer can be made of; `None` where there is none.

    Raises:
        ConfigError: there are several.
    """
    found = [path for pattern in KINDS for path in sorted(folder.glob(pattern))]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ConfigError(f"{folder} holds several tokenizers: {names}. Name the file instead of the folder")
    return found[0] if found else None


def convert(path: Path) -> Spec:
    """A published file as a ``tokenizer.json``.

    Raises:
        ConfigError: it is of no known kind, or has no exact counterpart, or says too little.
    """
    for pattern, (converted, _, _) in KINDS.items():
        if path.match(pattern):
            return converted(path)
    kinds = "a SentencePiece .model, a .tiktoken file, a tekken.json, a vocab.txt or a merges.txt"
    raise ConfigError(f"{path}: a tokenizer is a tokenizer.json, {kinds}")


def library_of(path: Path) -> tuple[str, Callable[[Path], Encode]]:
    """The package that a file was made for, and what opens it there."""
    return next((package, opened) for pattern, (_, package, opened) in KINDS.items() if path.match(pattern))
