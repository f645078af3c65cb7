"""Tokenizers in ``vocab.txt``, ``vocab.json`` with ``merges.txt``, and OpenAI's rank files, against the libraries and papers that define them."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from prep_assets.config.models import Pretrain
from prep_assets.errors import ConfigError
from prep_assets.text.agreement import agreement, refuse_disagreement
from prep_assets.text.suspects import edge_set
from prep_assets.text.tokenizer_files import KNOWN
from prep_assets.text.vocabulary import Vocabulary, from_file
from prep_assets_tests.graph.workspaces import CONFIGS, build_all, domain, failing, jsonl, minimal, workspace_in
from prep_assets_tests.tokenization.test_other_files import ordinary, rank_file, ranks, words

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[EOS]"]
LETTERS = [chr(code) for code in (*range(ord("!"), ord("~") + 1), *map(ord, "éàöß你好世界の한привет"))]
WORDS = ["the", "quick", "brown", "jump", "##s", "##ing", "##ed", "The", "FOX", "cafe", "café", "don", "1234", "http", "snake"]


def bert(folder: Path, *, lower: bool | None, **more: Any) -> Path:
    """A WordPiece vocabulary as BERT's is published."""
    folder.mkdir(exist_ok=True)
    path = folder / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *WORDS, "\u2028", *LETTERS, *(f"##{each}" for each in LETTERS)]) + "\n", "utf-8")
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
    published = workspace.published("pretrain_tokens", "d")
    assert published is not None and not failing(workspace, published)
    assert workspace.vocabulary(workspace.family(Pretrain)).file == "vocab.txt"
