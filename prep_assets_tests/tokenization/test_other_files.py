"""Tokenizers in other files than `tokenizer.json`, each compared with the library that its file was made for."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from prep_assets.config.models import Pretrain
from prep_assets.errors import ConfigError
from prep_assets.extensions.tokenizers.rank_files import KNOWN
from prep_assets.pipeline.workspace import open_tokenizer
from prep_assets.text import tokenizer_files
from prep_assets.text.agreement import agreement, refuse_disagreement
from prep_assets.text.engines import choose_engine
from prep_assets.text.ids import ALPHABET
from prep_assets.text.suspects import edge_set
from prep_assets.text.tokenizer_files import FileFormat, added_tokens
from prep_assets.text.vocabulary import Vocabulary, ends_of, from_file
from prep_assets_tests.graph.workspaces import CONFIGS, SAMPLES, build_all, domain, jsonl, minimal, workspace_in

GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
CL100K = r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
SPECIAL = {"<|endoftext|>": 20_000, "<|fim|>": 20_003}


def ranks(spec: dict[str, Any]) -> dict[bytes, int]:
    """Bytes and ids of a byte-level vocabulary."""
    byte_of = {char: byte for byte, char in enumerate(ALPHABET)}
    added = {token["content"] for token in spec["added_tokens"]}
    return {bytes(byte_of[char] for char in text): rank for text, rank in spec["model"]["vocab"].items() if text not in added}


SHIPPED = ranks(json.loads((CONFIGS / "tokenizer" / "tokenizer.json").read_text("utf-8")))


def rank_file(folder: Path, found: dict[bytes, int] = SHIPPED, pattern: str = GPT2, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "toy.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in found.items()))
    said = {"pattern": pattern, "special_tokens": SPECIAL, "eos_token": "<|endoftext|>", **more}
    path.with_suffix(".json").write_text(json.dumps(said))
    return path


def words(count: int) -> list[str]:
    """Random joins of short strings over few letters, where merges meet most often."""
    draw = random.Random(7)
    return ["".join(draw.choices(["a", "aa", "b", "ab", " ", "  ", "the", "\n", "1", "22"], k=draw.randint(1, 30))) for _ in range(count)]


def ordinary(vocabulary: Vocabulary, texts: list[str]) -> list[list[int]]:
    vocabulary.backend.encode_special_tokens = True
    return [each.ids for each in vocabulary.backend.encode_batch(texts, add_special_tokens=False)]


# tiktoken


@pytest.mark.parametrize("pattern", [GPT2, CL100K])
def test_rank_files_give_tiktokens_ids(tmp_path: Path, pattern: str) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    path = rank_file(tmp_path, pattern=pattern)
    vocabulary = from_file("toy", tmp_path)
    assert agreement(vocabulary, tmp_path).verdict.startswith("tiktoken")
    own = tiktoken.Encoding("toy", pat_str=pattern, mergeable_ranks=SHIPPED, special_tokens=SPECIAL)
    texts = [*edge_set(), *words(3000)]
    assert ordinary(vocabulary, texts) == [own.encode_ordinary(text) for text in texts]
    assert (vocabulary.control, vocabulary.eos_id) == (SPECIAL, 20_000)
    ids = own.encode("a<|fim|>b", allowed_special="all")
    assert vocabulary.decode(ids) == "a<|fim|>b" and vocabulary.token_bytes is not None
    assert from_file("toy", path).hash == vocabulary.hash


def test_ranks_without_a_pattern_say_what_is_missing(tmp_path: Path) -> None:
    rank_file(tmp_path).with_suffix(".json").unlink()
    with pytest.raises(ConfigError, match=r"holds ranks only\. Write its pattern and special tokens into toy\.json"):
        from_file("toy", tmp_path)


def test_a_rank_file_that_is_none(tmp_path: Path) -> None:
    rank_file(tmp_path).write_text("not a rank file\n")
    with pytest.raises(ConfigError, match="a line is not the base64 form of a token and its rank"):
        from_file("toy", tmp_path)


def test_a_conversion_that_is_not_exact_is_refused(tmp_path: Path) -> None:
    """tiktoken leaves out what its pattern does not match; no `tokenizer.json` does."""
    pytest.importorskip("tiktoken")
    rank_file(tmp_path, pattern=r"\p{L}+|\p{N}+")
    family = Pretrain.model_validate(
        {"tokenizer": str(tmp_path), "tokenizer_loader": "file", "domains": {"a": {"files": ["a"], "schema": "text"}}}
    )
    with pytest.raises(ConfigError, match=r"cannot be converted exactly: .* by tiktoken\. Use the tokenizer\.json that is published"):
        open_tokenizer(family, tmp_path, tmp_path / "cache")


def test_without_its_library_nothing_proves_a_conversion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    rank_file(tmp_path)
    with pytest.raises(ConfigError, match="is compared with tiktoken, which is not installed"):
        agreement(from_file("toy", tmp_path), tmp_path)


# SentencePiece


def trained(folder: Path, kind: str, **options: Any) -> Path:
    sentencepiece = pytest.importorskip("sentencepiece")
    folder.mkdir(exist_ok=True)
    path = folder / "tokenizer.model"
    lines = [line for line in (SAMPLES / "notes.txt").read_text("utf-8").splitlines() if line.strip()]
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=file,
            **{"model_type": kind, "vocab_size": 600, "byte_fallback": True, "hard_vocab_limit": False, "minloglevel": 2, **options},
        )
    return path


PLAIN = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}


def test_a_model_of_whole_words_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, "word", byte_fallback=False)
    with pytest.raises(ConfigError, match="SentencePiece model of the kind word; BPE and Unigram alone are read"):
        from_file("toy", tmp_path)


UNIGRAM: dict[str, dict[str, Any]] = {
    "nmt_nfkc": {"byte_fallback": False},
    "nmt_nfkc, bytes": {},
    "identity, bytes": PLAIN,
    "no prefix": {**PLAIN, "add_dummy_prefix": False},
    "spaces end words": {"treat_whitespace_as_suffix": True},
}


@pytest.mark.parametrize("name", UNIGRAM)
def test_unigram_models_have_their_librarys_ids(tmp_path: Path, name: str) -> None:
    """`tokenizers` composes ``ẹ́`` where the library does not, and picks other pieces of long runs."""
    path = trained(tmp_path, "unigram", **UNIGRAM[name])
    import sentencepiece

    vocabulary = from_file("toy", tmp_path)
    refuse_disagreement(vocabulary, tmp_path)
    own, engines = sentencepiece.SentencePieceProcessor(model_file=str(path)), choose_engine(vocabulary)
    texts = [*edge_set(), *words(2000), "ẹ́ fine", "…" * 9000, "0" * 9000]
    flat = engines.first.encode(texts)
    ends = flat.offsets.tolist()
    assert [flat.ids[start:stop].tolist() for start, stop in pairwise(ends)] == [list(own.encode(text)) for text in texts]
    if "identity" in name or name == "no prefix":  # a piece is what stands in its place, or a byte of it
        for text in texts[::10]:
            ids, spans = engines.reference.char_spans(text)
            for number, piece, (start, stop) in zip(ids, own.encode(text, out_type=str), spans, strict=True):
                stands = text[start:stop].replace(" ", "▁")
                same = own.is_byte(number) and bytes([int(piece[3:5], 16)]) in stands.encode()
                assert same or piece in (stands, f"▁{stands}"), (text, piece, stands)
    with pytest.raises(ConfigError, match=r"SentencePiece Unigram model; pretraining and chats take it"):
        _ = vocabulary.encoder


def test_stores_of_a_unigram_model_pass_their_checks(tmp_path: Path) -> None:
    """Line breaks become spaces, and typed control tokens stay text."""
    from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in

    trained(tmp_path / "toy", "unigram")
    said = "Two\nlines:  ẹ́ ½ </s> <0x0A> ▁ end"
    chat = [{"role": "user", "content": said}, {"role": "assistant", "content": f"{said}\n\nDone."}]
    weighed = [{"content": [{"a": said}, {"b": " and more"}], "semantic_loss_weight": [0, 1]}]
    for family, schema, row, options in (
        ("pretrain", "text", {"text": said + "…" * 9000}, {"bos": True}),
        ("pretrain", "semantic", {"semantic_data_array": weighed}, {"bos": True}),
        ("sft", "messages", {"messages": [*chat, *chat]}, {"template": "plain"}),
    ):
        file = jsonl(tmp_path / f"{schema}.jsonl", [row])
        families = minimal(family, {"a": domain(file, schema)}, tokenizer=str(tmp_path / "toy"), **options)
        workspace = workspace_in(tmp_path / schema, families)
        build(workspace, f"{family}_raw", "a")
        published = build(workspace, f"{family}_tokens", "a")
        assert published.manifest.counts["kept"] == 1


@pytest.mark.parametrize("options", [PLAIN, {**PLAIN, "add_dummy_prefix": False}])
def test_sentencepiece_models_give_its_ids(tmp_path: Path, options: dict[str, Any]) -> None:
    path = trained(tmp_path, "bpe", **options)
    import sentencepiece

    vocabulary = from_file("toy", tmp_path)
    refuse_disagreement(vocabulary, tmp_path)
    own = sentencepiece.SentencePieceProcessor(model_file=str(path))
    texts = [*edge_set(), *words(2000)]
    assert ordinary(vocabulary, texts) == [list(own.encode(text)) for text in texts]
    assert vocabulary.special == {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    assert vocabulary.eos_id == own.eos_id()


def test_mistrals_model_gives_other_ids_than_the_file_beside_it(real_data: Path, tmp_path: Path) -> None:
    """Audit, section 5: `tokenizer.json` joins two spaces before a word otherwise than the `.model` that the model was trained with."""
    sentencepiece = pytest.importorskip("sentencepiece")
    from transformers.utils import sentencepiece_model_pb2_new as proto

    place = real_data / "tokenizers" / "mistral_v3"
    with pytest.raises(ConfigError, match=r"20 user-defined pieces such as '\[REFERENCE_DOC_"):
        from_file("mistral", place / "tokenizer.model")
    model = proto.ModelProto.FromString((place / "tokenizer.model").read_bytes())
    for piece in model.pieces:
        piece.type = 3 if piece.type == 4 else piece.type  # user-defined → control
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model.SerializeToString())
    vocabulary = from_file("mistral", path)
    refuse_disagreement(vocabulary, path)
    own = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert ordinary(vocabulary, ["a  b"]) == [list(own.encode("a  b"))] != ordinary(from_file("mistral", place), ["a  b"])


def test_begin_of_text_is_not_guessed(tmp_path: Path) -> None:
    trained(tmp_path, "bpe", **PLAIN)
    vocabulary = from_file("toy", tmp_path)
    with pytest.raises(ConfigError, match=r"bos: tokenizer\.model of tokenizer toy does not say whether"):
        ends_of(vocabulary, "auto")
    assert ends_of(vocabulary, "true").bos == vocabulary.bos_id


def test_of_several_files_one_is_named(tmp_path: Path) -> None:
    rank_file(tmp_path)
    (tmp_path / "tekken.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"several tokenizers: tekken\.json, toy\.tiktoken\. Name the file"):
        from_file("toy", tmp_path)


# Tekken


def tekken_file(folder: Path) -> Path:
    """The shipped vocabulary as Tekken has it: single bytes first, special tokens before all others."""
    ordered = sorted(SHIPPED, key=lambda token: (len(token) > 1, token[0] if len(token) == 1 else SHIPPED[token]))
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for rank, token in enumerate(ordered)]
    special = [
        {"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(("<unk>", "<s>", "</s>", "[INST]", "[/INST]"))
    ]
    config = {"pattern": GPT2, "num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) + 10, "default_num_special_tokens": 10}
    path = folder / "tekken.json"
    path.write_text(json.dumps({"config": {**config, "version": "v7"}, "vocab": vocab, "special_tokens": special}))
    return path


def test_tekken_is_tiktoken_behind_its_special_tokens(tmp_path: Path) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    said = json.loads(tekken_file(tmp_path).read_text("utf-8"))
    found = {base64.b64decode(token["token_bytes"]): token["rank"] for token in said["vocab"]}
    vocabulary = from_file("toy", tmp_path)
    own = tiktoken.Encoding("toy", pat_str=GPT2, mergeable_ranks=found, special_tokens={})
    texts = [*edge_set(), *words(2000)]
    assert ordinary(vocabulary, texts) == [[number + 10 for number in own.encode_ordinary(text)] for text in texts]
    assert vocabulary.special == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    assert (vocabulary.control["[INST]"], vocabulary.control["<SPECIAL_9>"], len(vocabulary.control)) == (3, 9, 10)


def test_more_reserved_tokens_than_ids_are_refused(tmp_path: Path) -> None:
    path = tekken_file(tmp_path)
    said = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**said, "config": {**said["config"], "default_num_special_tokens": 1 << 64}}), "utf-8")
    with pytest.raises(ConfigError, match=r"default_num_special_tokens is 18,446,744,073,709,551,616; ids are below 16,777,216"):
        from_file("toy", path)


def test_tekken_gives_the_ids_of_mistral_common(tmp_path: Path) -> None:
    pytest.importorskip("mistral_common")
    from mistral_common.tokens.tokenizers import tekken

    refuse_disagreement(from_file("toy", tekken_file(tmp_path)), tmp_path)
    folder = Path(tekken.__file__).resolve().parents[2] / "data"
    for path in sorted(folder.glob("tekken*.json")):
        found = agreement(from_file(path.name, path), path)
        assert not found.fault and found.verdict.startswith("mistral-common")


# Tokenizers in ``vocab.txt``, ``vocab.json`` with ``merges.txt``, and OpenAI's rank files, against the libraries and papers that define them.

BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[EOS]"]
LETTERS = [chr(code) for code in (*range(ord("!"), ord("~") + 1), *map(ord, "éàöß你好世界の한привет"))]
PIECES = ["the", "quick", "brown", "jump", "##s", "##ing", "##ed", "The", "FOX", "cafe", "café", "don", "1234", "http", "snake"]


def bert(folder: Path, *, lower: bool | None, **more: Any) -> Path:
    """A WordPiece vocabulary as BERT's is published."""
    folder.mkdir(exist_ok=True)
    path = folder / "vocab.txt"
    path.write_text("\n".join([*BERT_SPECIAL, *PIECES, "\u2028", *LETTERS, *(f"##{each}" for each in LETTERS)]) + "\n", "utf-8")
    settings = {"eos_token": "[EOS]", **({} if lower is None else {"do_lower_case": lower}), **more}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def gpt2(folder: Path, **settings: Any) -> Path:
    """The shipped tokenizer's vocabulary and merges as GPT-2's are published."""
    folder.mkdir(exist_ok=True)
    spec = json.loads((CONFIGS / "tokenizer" / "tokenizer.json").read_text("utf-8"))
    vocab = {**spec["model"]["vocab"], **{token["content"]: token["id"] for token in spec["added_tokens"]}}
    (folder / "vocab.json").write_text(json.dumps(vocab), "utf-8")
    path = folder / "merges.txt"
    merges = (each if isinstance(each, str) else " ".join(each) for each in spec["model"]["merges"])
    path.write_text("#version: 0.2\n" + "\n".join(merges) + "\n", "utf-8")
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


@pytest.mark.parametrize("lower", [True, False])
def test_wordpiece_gives_the_ids_of_berts_own_code(tmp_path: Path, lower: bool) -> None:
    """Against the Python code that BERT was published with, as transformers keeps it."""
    own = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    bert(tmp_path, lower=lower)
    vocabulary = from_file("toy", tmp_path)
    assert agreement(vocabulary, tmp_path).verdict.startswith("transformers")
    refuse_disagreement(vocabulary, tmp_path)
    with (tmp_path / "vocab.txt").open(encoding="utf-8") as file:
        known = {line.rstrip("\n"): number for number, line in enumerate(file)}
    words_of = own.BasicTokenizer(do_lower_case=lower)
    pieces_of = own.WordpieceTokenizer(known, "[UNK]")
    # Python's tables of Unicode and those of the library are of different years, so rare characters are left to the comparison above
    texts = [text for text in edge_set() if all(ord(char) < 0x250 for char in text) and "\x85" not in text]
    found = [[known[piece] for word in words_of.tokenize(text) for piece in pieces_of.tokenize(word)] for text in texts]
    assert len(texts) > 200 and ordinary(vocabulary, texts) == found
    assert (vocabulary.eos_id, vocabulary.pad_id, vocabulary.size) == (5, 0, 1 + max(known.values()))


def test_wordpiece_without_its_case_says_what_is_missing(tmp_path: Path) -> None:
    bert(tmp_path, lower=None)
    with pytest.raises(ConfigError, match=r"does not say whether text is lowercased\. Write .*do_lower_case.* into tokenizer_config\.json"):
        from_file("toy", tmp_path)


def test_vocabulary_and_merges_give_the_ids_of_their_tokenizer_json(tmp_path: Path) -> None:
    path = gpt2(tmp_path)
    vocabulary, published = from_file("toy", tmp_path), from_file("toy", CONFIGS / "tokenizer")
    refuse_disagreement(vocabulary, tmp_path)
    assert agreement(vocabulary, tmp_path).verdict.startswith("transformers")
    texts = [*edge_set(), *words(2000)]
    assert ordinary(vocabulary, texts) == ordinary(published, texts)
    assert vocabulary.eos_id == published.eos_id and vocabulary.token_bytes is not None
    named = path.rename(tmp_path / "toy-merges.txt")
    (tmp_path / "vocab.json").rename(tmp_path / "toy-vocab.json")
    assert from_file("toy", named).hash == vocabulary.hash


def test_the_vocabulary_and_merges_of_gpt2_give_tiktokens_ids(real_data: Path, tmp_path: Path) -> None:
    """And its ranks, written as OpenAI publishes them, are known as r50k_base."""
    tiktoken = pytest.importorskip("tiktoken")
    public = pytest.importorskip("tiktoken_ext.openai_public")
    source = real_data / "tokenizers" / "gpt2"
    for name in ("vocab.json", "merges.txt"):
        shutil.copyfile(source / name, tmp_path / name)
    vocabulary = from_file("gpt2", tmp_path)
    found = ranks(json.loads((source / "tokenizer.json").read_text("utf-8")))
    own = tiktoken.Encoding("r50k_base", pat_str=public.r50k_pat_str, mergeable_ranks=found, special_tokens={"<|endoftext|>": 50_256})
    texts = [*edge_set(), *words(1000)]
    expected = [own.encode_ordinary(text) for text in texts]
    assert ordinary(vocabulary, texts) == expected
    folder, published = tmp_path / "r50k", from_file("gpt2", source)
    folder.mkdir()
    (folder / "r50k_base.tiktoken").write_bytes(
        b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in sorted(found.items(), key=lambda each: each[1]))
    )
    r50k = from_file("r50k_base", folder)
    refuse_disagreement(r50k, folder)
    assert ordinary(r50k, texts) == expected == ordinary(published, texts)
    assert (r50k.eos_id, r50k.size) == (50_256, 50_257)


@pytest.mark.parametrize(("name", "digest"), list(zip(("r50k_base", "p50k_base", "cl100k_base"), KNOWN, strict=True)))
def test_known_rank_files_are_openais(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, digest: str) -> None:
    """What tiktoken itself says of each: the hash of its file, its special tokens, and the words its pattern gives."""
    tiktoken = pytest.importorskip("tiktoken")
    public = pytest.importorskip("tiktoken_ext.openai_public")
    asked: list[str] = []
    monkeypatch.setattr(public, "load_tiktoken_bpe", lambda url, expected_hash: asked.append(expected_hash) or {})
    said = getattr(public, name)()
    assert asked == [digest]
    assert said["special_tokens"] == KNOWN[digest]["special_tokens"]
    path = rank_file(tmp_path, pattern=KNOWN[digest]["pattern"])
    shipped = from_file("toy", path)
    found = ranks(json.loads((CONFIGS / "tokenizer" / "tokenizer.json").read_text("utf-8")))
    own = tiktoken.Encoding(name, pat_str=said["pat_str"], mergeable_ranks=found, special_tokens={})
    assert ordinary(shipped, list(edge_set())) == [own.encode_ordinary(text) for text in edge_set()]


def test_a_rank_file_without_its_settings_is_known_by_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = rank_file(tmp_path)
    path.with_suffix(".json").unlink()
    said = next(iter(KNOWN.values()))
    monkeypatch.setitem(KNOWN, hashlib.sha256(path.read_bytes()).hexdigest(), {**said, "special_tokens": {"<|endoftext|>": 20_000}})  # type: ignore[arg-type]
    assert from_file("toy", tmp_path).eos_id == 20_000


def opened(folder: Path) -> Vocabulary:
    return from_file("toy", folder)


def test_another_tokenizers_files_are_refused(tmp_path: Path) -> None:
    gpt2(tmp_path, tokenizer_class="Qwen2Tokenizer")
    with pytest.raises(ConfigError, match=r"belongs to a Qwen2Tokenizer, which may split text otherwise than GPT2Tokenizer"):
        opened(tmp_path)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    path = gpt2(tmp_path)
    path.write_text("#version: 0.2\nzq zq\n")
    with pytest.raises(ConfigError, match=r"'zq zq' merges no two tokens into one of vocab\.json"):
        opened(tmp_path)
    (tmp_path / "vocab.json").unlink()
    with pytest.raises(ConfigError, match=r"holds merges only, and there is no vocab\.json beside it"):
        opened(tmp_path)


def test_a_special_token_without_an_id_is_refused(tmp_path: Path) -> None:
    bert(tmp_path, lower=True, bos_token="[BOS]")
    with pytest.raises(ConfigError, match=r"tokenizer_config\.json names \[BOS\], without an id"):
        opened(tmp_path)
    (tmp_path / "added_tokens.json").write_text('{"[BOS]": 999}')
    assert opened(tmp_path).bos_id == 999


def test_documents_in_berts_tokens(tmp_path: Path) -> None:
    """A store of a WordPiece tokenizer is built and proven like any other; `bos` must be said."""
    bert(tmp_path / "bert", lower=True)
    rows = domain(jsonl(tmp_path / "rows.jsonl", [{"text": f"The quick brown fox jumps {n} times."} for n in range(8)]), "text")
    options = {**minimal("pretrain", {"d": rows}, bos=False)["pretrain"], "tokenizer": str(tmp_path / "bert")}
    workspace = workspace_in(tmp_path, {"pretrain": options})
    build_all(workspace, ["pretrain"])
    assert workspace.vocabulary(workspace.family(Pretrain)).file == "vocab.txt"


def test_another_package_adds_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its conversion is proven as ours are: one that gives other ids than its package stops."""

    def convert(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
        vocab = {char: number for number, char in enumerate(ALPHABET)} | {path.read_text("utf-8"): 256}
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        spec = {"model": {"type": "BPE", "vocab": vocab, "merges": []}, "pre_tokenizer": byte_level, "decoder": byte_level}
        return {**spec, "added_tokens": added_tokens({path.read_text("utf-8"): 256})}, {"eos_token": path.read_text("utf-8")}

    def reads(first: int) -> FileFormat:
        return FileFormat(
            "*.bytes", "numpy", convert, lambda path: lambda texts: [[first + byte for byte in text.encode()] for text in texts]
        )

    (tmp_path / "letters.bytes").write_text("<end>", "utf-8")
    for first, fault in ((0, ""), (1, "cannot be converted exactly")):
        monkeypatch.setattr(tokenizer_files, "_FORMATS", [*tokenizer_files.formats(), reads(first)])
        vocabulary = from_file("letters", tmp_path)
        assert choose_engine(vocabulary).first.encode(["né"]).ids.tolist() == [*"né".encode()]
        assert vocabulary.control == {"<end>": 256}
        assert vocabulary.eos_id == 256
        assert fault in agreement(vocabulary, tmp_path).fault
        assert bool(agreement(vocabulary, tmp_path).fault) == bool(fault)
        monkeypatch.undo()
