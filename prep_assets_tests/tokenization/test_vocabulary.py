"""Tokenizers as the other rooms see them: ids and bytes, classes of one's own, fill-in-the-middle."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.config.models import Pretrain
from prep_assets.engine import Statuses
from prep_assets.errors import ConfigError, PrepAssetsError, Refused
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.extensions.tokenizers import user_class
from prep_assets.extensions.tokenizers.user_class import load_class
from prep_assets.graph.graph import ASSETS
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.documents import parts_in_order
from prep_assets.stores.table import open_stream
from prep_assets.text.documents import Cut, FillInTheMiddle, cut_of, sentinels_of
from prep_assets.text.engines import choose_engine
from prep_assets.text.vocabulary import Vocabulary, load_vocabulary
from prep_assets_tests.docs.pages import DOCS, blocks
from prep_assets_tests.effort import examples
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, refusals, workspace_in
from prep_assets_tests.tokenization.loaded import BYTE_LEVEL, CONFIGS, NAMES, TEXT, TEXT_WITH_CONTROL, Loaded, variant

# Ids, control tokens, the bytes behind ids, and what a tokenizer's identity is.


Open = Callable[[str], Loaded]


def specification(loaded: Loaded) -> Any:
    return json.loads((loaded.directory / "tokenizer.json").read_text("utf-8"))


def test_ids_are_those_of_tokenizer_json(tokenizer: Loaded) -> None:
    spec = specification(tokenizer)
    ids = [*spec["model"]["vocab"].values(), *(token["id"] for token in spec["added_tokens"])]
    assert tokenizer.vocabulary.size == max(ids) + 1
    assert tokenizer.vocabulary.control == {token["content"]: token["id"] for token in spec["added_tokens"] if token["special"]}


@pytest.mark.parametrize(
    ("name", "size", "eos", "pad"),
    [("shipped", 4096, 0, 3), ("gpt2", 50257, 50256, 50256), ("smollm", 49154, 0, 49152), ("mistral_v3", 32768, 2, 2)],
)
def test_known_tokenizers(open_tokenizer: Open, name: str, size: int, eos: int, pad: int) -> None:
    vocabulary = open_tokenizer(name).vocabulary
    assert (vocabulary.size, vocabulary.eos_id, vocabulary.pad_id) == (size, eos, pad)


def test_ids_with_a_hole() -> None:
    from tokenizers import Tokenizer, models

    vocabulary = Vocabulary("holes", Tokenizer(models.BPE(vocab={"a": 0, "b": 9}, merges=[])), {}, None)
    assert vocabulary.size == 10


def test_a_missing_end_of_text_token_is_named(shipped: Loaded) -> None:
    bare = replace(shipped.vocabulary, special={})
    with pytest.raises(ConfigError, match=r"has no eos_token; set it in its tokenizer_config\.json"):
        _ = bare.eos_id
    with pytest.raises(ConfigError, match="has no eos_token"):
        _ = bare.pad_id


# the bytes behind ids


@pytest.mark.parametrize("name", BYTE_LEVEL)
@settings(max_examples=examples(60), deadline=None)
@given(text=TEXT_WITH_CONTROL)
def test_byte_level_ids_are_bytes(open_tokenizer: Open, name: str, text: str) -> None:
    loaded = open_tokenizer(name)
    table = loaded.vocabulary.token_bytes
    assert table is not None
    known = {content for content in table if len(content) == 1}  # smollm has no token for some bytes
    expected = b"".join(byte for byte in (bytes([number]) for number in text.encode()) if byte in known)
    assert b"".join(table[token] for token in loaded.ordinary([text])[0]) == expected
    assert name == "smollm" or expected == text.encode()


@settings(max_examples=examples(60), deadline=None)
@given(TEXT_WITH_CONTROL)
def test_sentencepiece_ids_are_bytes(open_tokenizer: Open, text: str) -> None:
    """With the space in front, and byte fallback for what is not in the vocabulary; `▁` is the one character that is lost."""
    loaded = open_tokenizer("mistral_v3")
    table = loaded.vocabulary.token_bytes
    assert table is not None
    spaced = text.replace("▁", " ")
    expected = spaced if not spaced or spaced.startswith(" ") else f" {spaced}"
    assert b"".join(table[token] for token in loaded.ordinary([text])[0]) == expected.encode()


def test_byte_lengths_and_control_tokens(tokenizer: Loaded) -> None:
    vocabulary = tokenizer.vocabulary
    table, lengths = vocabulary.token_bytes, vocabulary.byte_lengths
    assert table is not None
    assert lengths is not None
    assert lengths.tolist() == [len(content) for content in table]
    assert all(table[number] == text.encode() for text, number in vocabulary.control.items())


def test_ids_that_are_no_fixed_bytes_have_no_table(shipped: Loaded) -> None:
    from tokenizers import Tokenizer, models

    assert variant(shipped.vocabulary, normalizer={"type": "Lowercase"}).byte_lengths is None
    pieces = Vocabulary("pieces", Tokenizer(models.WordPiece(vocab={"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]")), {}, None)
    assert (pieces.token_bytes, pieces.byte_lengths) == (None, None)


@pytest.mark.parametrize(
    "normalizer", [{"type": "NFC"}, {"type": "Sequence", "normalizers": [{"type": "NFC"}]}, {"type": "Sequence", "normalizers": []}]
)
def test_a_normalizer_that_leaves_most_text_alone_keeps_the_table(shipped: Loaded, normalizer: dict[str, Any]) -> None:
    changed = variant(shipped.vocabulary, normalizer=normalizer)
    assert changed.token_bytes == shipped.vocabulary.token_bytes
    composed = "NFC" in str(normalizer)
    assert changed.is_normal("caf\u00e9") and changed.is_normal("cafe\u0301") == (not composed)
    assert changed.normalized("cafe\u0301") == ("caf\u00e9" if composed else "cafe\u0301")


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
def test_prefix_space_is_metaspaces_scheme(shipped: Loaded, scheme: str) -> None:
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    assert variant(shipped.vocabulary, pre_tokenizer=metaspace).prefix_space == scheme
    nested = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, metaspace]}
    assert variant(shipped.vocabulary, pre_tokenizer=nested).prefix_space == scheme


# decoding


@settings(max_examples=examples(60), deadline=None)
@given(TEXT)
def test_decoding_gives_the_text_back(open_tokenizer: Open, text: str) -> None:
    for name in ("shipped", "gpt2", "mistral_v3"):
        loaded = open_tokenizer(name)
        flat = loaded.engines.rest.encode([text])
        assert loaded.vocabulary.decode(flat.ids) == (text.replace("▁", " ") if name == "mistral_v3" else text)


def test_decoding_keeps_leading_spaces(tokenizer: Loaded) -> None:
    """Also of a piece from the middle of a text, where SentencePiece's own decoder drops the space."""
    texts = [" Hello", "  Hello", "Hello", " ", "   ", "\nHi", ""]
    lists = [tokenizer.engines.rest.encode([text]).ids.tolist() for text in texts]
    assert tokenizer.vocabulary.decode_batch(lists) == texts
    assert [tokenizer.vocabulary.decode(ids) for ids in lists] == texts


def test_decoding_shows_control_tokens(tokenizer: Loaded) -> None:
    for text, number in tokenizer.vocabulary.control.items():
        assert tokenizer.vocabulary.decode([number]) == text
        assert tokenizer.vocabulary.decode([number, number]) == text * 2


def test_decoding_without_control_tokens() -> None:
    from tokenizers import Tokenizer, decoders, models

    backend = Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    assert Vocabulary("bare", backend, {}, None).decode_batch([[0, 1], [], [1]]) == ["ab", "", "b"]


# identity


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CONFIGS / "tokenizer", tmp_path / "a folder with another name"))


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    fields = json.loads(path.read_text("utf-8"))
    change(fields)
    path.write_text(json.dumps(fields), "utf-8")


def test_the_hash_is_of_the_content_not_of_the_place(shipped: Loaded, copied: Path) -> None:
    edit(copied / "tokenizer.json", lambda spec: None)  # other white space
    assert load_vocabulary(str(copied)).hash == shipped.vocabulary.hash
    assert load_vocabulary(copied.name, base=copied.parent).hash == shipped.vocabulary.hash


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("tokenizer.json", lambda spec: spec["model"]["merges"].pop()),
        ("tokenizer.json", lambda spec: spec["pre_tokenizer"].update(add_prefix_space=True)),
        ("tokenizer.json", lambda spec: spec["added_tokens"][2].update(special=False)),
        ("tokenizer_config.json", lambda config: config.update(chat_template="{{ messages }}")),
        ("tokenizer_config.json", lambda config: config.update(eos_token="<|im_end|>")),
    ],
)
def test_the_hash_changes_with_the_content(shipped: Loaded, copied: Path, file: str, change: Callable[[dict[str, Any]], None]) -> None:
    edit(copied / file, change)
    assert load_vocabulary(str(copied)).hash != shipped.vocabulary.hash


def test_special_tokens_and_template_are_read(shipped: Loaded) -> None:
    special = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|pad|>"}
    assert {name: shipped.vocabulary.special[name] for name in special} == special
    config = json.loads((CONFIGS / "tokenizer" / "tokenizer_config.json").read_text("utf-8"))
    assert shipped.vocabulary.chat_template == config["chat_template"]


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no tokenizer\.json in .*, which holds nothing"):
        load_vocabulary(".", base=tmp_path)


def test_a_control_token_is_decoded_as_it_is_written() -> None:
    """A SentencePiece decoder makes a space of every ``▁``, also in DeepSeek's stop token, so that a trained text seemed to lack it."""
    from tokenizers import Tokenizer, decoders, models

    stop, letters = "<｜end▁of▁sentence｜>", ["<unk>", "▁", "a", "b", "▁a"]
    backend = Tokenizer(models.BPE({each: number for number, each in enumerate(letters)}, [("▁", "a")], unk_token="<unk>"))
    backend.add_special_tokens([stop, "<unk>"])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    found = Vocabulary("toy", backend, {"eos_token": stop}, None)
    end = found.control[stop]
    assert backend.decode([4, end], skip_special_tokens=False) == "a<｜end of sentence｜>"
    assert found.decode_batch([[4, 3, end, 4, end, end], [], [end], [3, 2]]) == [f" ab{stop} a{stop}{stop}", "", stop, "ba"]


def test_a_byte_level_entry_of_other_characters_has_no_bytes(shipped: Loaded) -> None:
    model = shipped.vocabulary.spec["model"]
    for other in ("中", " ", "a\uffff"):
        strange = variant(shipped.vocabulary, model={**model, "vocab": {**model["vocab"], other: len(model["vocab"]) + 99}})
        with pytest.raises(UnicodeEncodeError, match="alphabet"):
            _ = strange.token_bytes


# Tokenizers that are somebody's class: what is proven of them, what is refused, and that stores hold just what their own encoding gives.


WORLD = next(block for block in blocks(DOCS / "tokenizers.md", "python") if "class World" in block)
"""The longest-match tokenizer of the page."""
WORDS = ("the", " the", "ing", "What", " is", " of", "It", "\n\n", "<|", "|>", "é", "中文", "<|us", "er|>")
LISTED = [*(bytes([byte]) for byte in range(256) if byte != 0xF4), *map(str.encode, WORDS)]
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """`make(name, *changes)`: a module with the class, some lines of it changed, and the folder that it is given."""
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    made: list[str] = []

    def write(name: str, *changes: tuple[str, str]) -> Path:
        source = WORLD
        for old, new in changes:
            assert old in source
            source = source.replace(old, new)
        folder = tmp_path / "tokenizer"
        for each in (tmp_path / "code", folder):
            each.mkdir(exist_ok=True)
        (tmp_path / "code" / f"{name}.py").write_text(source, "utf-8")
        (folder / "words.txt").write_text("\n".join(word.hex() for word in LISTED), "utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE}), "utf-8")
        made.append(name)
        return folder

    yield write
    for name in made:
        sys.modules.pop(name, None)
        user_class._LOADED.pop(f"{name}:World", None)


def greedy(words: list[bytes], text: str) -> list[bytes]:
    """The longest of the words at each place, the obvious way."""
    data, found = text.encode(), []
    while data:
        found.append(max((word for word in words if data.startswith(word)), key=len))
        data = data[len(found[-1]) :]
    return found


CHATS = [
    *(
        {"messages": [{"role": "user", "content": f"What is {n}?"}, {"role": "assistant", "content": f"It is {n}, é 中文."}]}
        for n in range(4)
    ),
    {"messages": [{"role": "user", "content": "Type <|end|> and <|user|>."}, {"role": "assistant", "content": "I did the thing."}]},
    {"messages": [{"role": "user", "content": "What is the sum of " + "the " * 40}, {"role": "assistant", "content": "Nothing."}]},
    {"messages": [{"role": "user", "content": "A rare one: \U00100000"}, {"role": "assistant", "content": "No."}]},
]
DOCUMENTS = [{"text": f"The thing of {n}: é, 中文,\n\nthe end <|end|>."} for n in range(5)] + [{"text": "A rare one: \U00100000"}]
CODE = {"tokenizer_loader": "code", "tokenizer_class": "trie_a:World"}


def test_stores_hold_its_own_encoding(make: Callable[..., Path], tmp_path: Path) -> None:
    """Documents and chats by the longest match, control tokens from the template alone, masks on the answers; each check holds and finds what is spoiled."""
    folder = make("trie_a")
    families = {
        **minimal("pretrain", {"d": domain(jsonl(tmp_path / "d.jsonl", DOCUMENTS), "text")}, **CODE),
        **minimal(
            "sft",
            {"c": domain(jsonl(tmp_path / "c.jsonl", CHATS), "messages")},
            preprocessing={"max_seq_len": 55},
            truncation="prompt",
            truncation_keeps={"user": {"part": "end", "least": 8}},
            packing={"row_len": 128},
            **CODE,
        ),
    }
    for options in families.values():
        options["tokenizer"] = str(folder)
    workspace = workspace_in(tmp_path, families)
    stores = {}
    for asset, name in (("pretrain_tokens", "d"), ("sft_tokens", "c")):
        build(workspace, asset.partition("_")[0] + "_raw", name)
        stores[asset] = build(workspace, asset, name)
        assert {each.reason for each in refusals(stores[asset])} == {"lossy_tokenizer"}
        assert all(trial.passed for trial in selftest(workspace, stores[asset]))
    build(workspace, "sft_packed")
    number = {word: at for at, word in enumerate(LISTED, 10)}
    stream = open_stream(stores["pretrain_tokens"].directory, "d_train")
    for at, row in enumerate(stream.origins.row.tolist()):
        assert stream.record(at, "tokens").tolist() == [*(number[word] for word in greedy(LISTED, DOCUMENTS[row]["text"])), 0]
    stream = open_stream(stores["sft_tokens"].directory, "train")
    assert stream.origins.row.tolist() == [0, 1, 2, 3, 4, 5]
    for at in range(5):
        expected = [
            (token, int(role == 2 and token != 2))
            for role, message in enumerate(CHATS[at]["messages"], 1)
            for token in (role, *(number[word] for word in greedy(LISTED, message["content"])), 0)
        ]
        assert list(zip(stream.record(at, "tokens").tolist(), stream.record(at, "loss_mask").tolist(), strict=True)) == expected
    assert len(stream.record(5, "tokens")) == 55
    [kept] = (workspace.stores / ".hashes").glob("code-*.txt")
    assert kept.read_text("utf-8").startswith("trie_a:World: its own encoding; ")
    _other_code(workspace, make)


def _other_code(workspace: Workspace, make: Callable[..., Path]) -> None:
    """Stores are stale in a new process; a process that has loaded the class says so instead of building with what it has."""
    assert Statuses(workspace).at(ASSETS["pretrain_tokens"], "d").state == "current"
    make("trie_a", ("        return found", "        return found[:]"))
    with pytest.raises(ConfigError, match="its code has changed since this process loaded it"):
        Workspace(workspace.configs, workspace.stores).vocabulary(workspace.family(Pretrain))
    user_class._LOADED.clear()
    sys.modules.pop("trie_a", None)
    again = Workspace(workspace.configs, workspace.stores)
    assert Statuses(again).at(ASSETS["pretrain_tokens"], "d").state == "stale"
    assert len(list((workspace.stores / ".hashes").glob("code-*.txt"))) == 2


FAST = """
from pathlib import Path
from tokenizers import Tokenizer
from prep_assets.text.ids import ALPHABET

class Wrapped:
    def __init__(self, folder):
        self.inner = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.inner.encode_special_tokens = True
        self.back = {char: byte for byte, char in enumerate(ALPHABET)}
        self.special = {token.content: number for number, token in self.inner.get_added_tokens_decoder().items()}

    def tokens(self):
        return {n: bytes(self.back[c] for c in text) for text, n in self.inner.get_vocab().items() if text not in self.special}

    def control(self):
        return self.special

    def encode(self, text):
        return self.inner.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.inner.decode(ids, skip_special_tokens=False)
"""


def test_a_published_tokenizer_as_a_class_gives_the_same_tokens_and_masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrapped.py").write_text(FAST, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    chats = [row for row in CHATS if "rare" not in str(row)]
    found = []
    for number, options in enumerate(
        ({"tokenizer_loader": "file", "engine": "reference"}, {"tokenizer_loader": "code", "tokenizer_class": "wrapped:Wrapped"})
    ):
        rows = domain(jsonl(tmp_path / f"{number}.jsonl", chats), "messages")
        workspace = workspace_in(tmp_path / str(number), minimal("sft", {"c": rows}, **options))
        build(workspace, "sft_raw", "c")
        stream = open_stream(build(workspace, "sft_tokens", "c").directory, "train")
        found.append([np.asarray(stream.columns[key].values[:]).tolist() for key in ("tokens", "loss_mask")])
    assert found[0] == found[1]
    sys.modules.pop("wrapped", None)
    user_class._LOADED.pop("wrapped:Wrapped", None)


ENCODE = ("        data, at", "        {}\n        data, at")
FAULTS: Mapping[str, tuple[list[tuple[str, str]], str]] = {
    "stateful": ([(ENCODE[0], ENCODE[1].format("self.longest = max(1, self.longest - 1)"))], "is asked after other texts"),
    "seeded": ([("        self.words =", "        lines.sort(key=hash)\n        self.words =")], "a new process gives other tokens"),
    "shared": (
        [
            ("class World:", "class World:\n    made = [0]"),
            ("        self.words =", "        self.made[0] += 1\n        self.words ="),
            ("enumerate(lines, 10)", "enumerate(lines, 10 + self.made[0])"),
        ],
        "two instances have other tokens",
    ),
    "decodes": ([(".decode()", ".decode().lower()")], "has ids that stand for it, and decode gives"),
    "typed": (
        [(ENCODE[0], ENCODE[1].format('if text == "<|end|>": return [0]'))],
        r"gives id 0, the control token '<\|end\|>', which none of",
    ),
    "unknown": ([("if own else []", "if own else [9999]")], "gives id 9999, which none of its"),
    "raises": ([(ENCODE[0], ENCODE[1].format("text.encode('ascii')"))], r"encode\(.* raises UnicodeEncodeError"),
    "blind": ([("        return found", "        return []")], "the tokens of none of"),
    "twice": ([('{"<|end|>": 0,', '{"<|end|>": 10,')], "each needs its own"),
    "tableless": ([("def tokens", "def other")], "gives no tables of its tokens: AttributeError"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_class_that_cannot_be_proven_stops_before_a_record_is_read(make: Callable[..., Path], name: str) -> None:
    changes, says = FAULTS[name]
    folder = make(name, *changes)
    with pytest.raises(ConfigError, match=says):
        load_class("t", folder, f"{name}:World", folder.parent)


def test_a_class_is_not_loaded_where_nothing_allows_it(make: Callable[..., Path], tmp_path: Path) -> None:
    make("trie_d", ("class World", 'raise RuntimeError("it ran")\n\n\nclass World'))
    for options in ({"tokenizer_class": "trie_d:World"}, {"tokenizer_loader": "code"}):
        with pytest.raises(PrepAssetsError, match="has no effect here"):
            workspace_in(tmp_path, minimal("pretrain", {"d": domain("d.jsonl", "text")}, **options)).family(Pretrain)
    assert "trie_d" not in sys.modules


def test_what_is_not_there_is_said(make: Callable[..., Path], tmp_path: Path) -> None:
    folder = make("trie_e")
    for path, place, says in (
        ("nowhere:World", folder, "no module nowhere with a source file is importable from here. Put its folder on PYTHONPATH"),
        ("trie_e:World", tmp_path / "none", "needs a folder as tokenizer, and there is none at"),
        ("trie_e:Word", folder, "module 'trie_e' has no attribute 'Word'"),
    ):
        with pytest.raises(ConfigError, match=says):
            load_class("t", place, path, tmp_path)


# Fill-in-the-middle: whatever is cut, the parts are the document, and nothing else than seed and record decides where.


TOKENS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
Make = Callable[..., FillInTheMiddle]


def with_sentinels(vocabulary: Vocabulary, *, special: bool = True, **changes: object) -> Vocabulary:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    added = [{"id": vocabulary.size + number, "content": text, **flags} for number, text in enumerate(TOKENS)]
    return variant(vocabulary, added_tokens=[*vocabulary.spec["added_tokens"], *added], **changes)


@pytest.fixture(scope="module", params=NAMES)
def make_of_fill_in_the_middle(request: pytest.FixtureRequest, open_tokenizer: Callable[[str], Loaded]) -> Make:
    """`make(rate=…, spm_rate=…, seed=…)` for each tokenizer in turn."""
    vocabulary = with_sentinels(open_tokenizer(request.param).vocabulary)
    engines = choose_engine(vocabulary)
    sentinels = sentinels_of(vocabulary, *TOKENS)
    return lambda rate=1.0, spm_rate=0.5, seed=0: FillInTheMiddle(vocabulary, engines, sentinels, rate, spm_rate, seed)


def listed(fim: FillInTheMiddle, texts: list[str], records: list[str]) -> list[list[int]]:
    flat = fim.encode(texts, records)
    return [flat.ids[a:b].tolist() for a, b in zip(flat.offsets, flat.offsets[1:], strict=False)]


def document(ids: list[int], fim: FillInTheMiddle) -> bytes:
    """The document behind some ids, by hand: the bytes of each token, the three parts told apart by where the sentinels stand."""
    prefix, suffix, middle = fim.sentinels.prefix, fim.sentinels.suffix, fim.sentinels.middle
    table = fim.vocabulary.token_bytes
    assert table is not None
    if prefix not in ids:
        assert suffix not in ids
        assert middle not in ids
        return b"".join(table[token] for token in ids)
    assert [ids.count(one) for one in (prefix, suffix, middle)] == [1, 1, 1]
    assert ids[0] == prefix
    head, rest = ids[1 : ids.index(suffix)], ids[ids.index(suffix) + 1 :]
    tail, body = rest[: rest.index(middle)], rest[rest.index(middle) + 1 :]
    return b"".join(table[token] for token in (*head, *body, *tail))


@given(data=st.data())
def test_the_parts_are_the_document_byte_for_byte(data: st.DataObject, make_of_fill_in_the_middle: Make) -> None:
    texts = data.draw(st.lists(TEXT_WITH_CONTROL, max_size=6))
    records = [f"a.jsonl:{data.draw(st.integers(0, 10**6))}" for _ in texts]
    rates = st.floats(0, 1)
    fim = make_of_fill_in_the_middle(data.draw(rates), data.draw(rates), data.draw(st.integers(0, 3)))
    whole = listed(make_of_fill_in_the_middle(rate=0.0), texts, records)
    for text, ids, ordinary in zip(texts, listed(fim, texts, records), whole, strict=True):
        if document(ordinary, fim).strip() != text.encode().strip():
            continue  # the tokenizer has no token for some character, and the build refuses the record (lossy_tokenizer)
        found, is_cut = document(ids, fim), fim.sentinels.prefix in ids
        # SentencePiece puts a space in front of a document that begins with a word; of a part, never
        allowed = {text.encode()} if is_cut or fim.vocabulary.prefix_space == "never" else {text.encode(), b" " + text.encode()}
        assert found in allowed
        assert int(fim.byte_lengths()[ids].sum()) == len(found)


@given(texts=st.lists(TEXT_WITH_CONTROL, max_size=6))
def test_a_rate_of_nothing_is_ordinary_tokenization(texts: list[str], make_of_fill_in_the_middle: Make) -> None:
    fim = make_of_fill_in_the_middle(rate=0.0)
    plain, cut = fim.engines.first.encode(texts), fim.encode(texts, [f"a:{i}" for i in range(len(texts))])
    assert np.array_equal(plain.ids, cut.ids)
    assert np.array_equal(plain.offsets, cut.offsets)


def test_tokens_depend_on_seed_and_record_and_on_nothing_else(make_of_fill_in_the_middle: Make) -> None:
    texts = [f"def f{i}(x):\n    return x + {i}\n" * 3 for i in range(60)]
    records = [f"code.jsonl:{i}" for i in range(60)]
    whole = listed(make_of_fill_in_the_middle(rate=0.5), texts, records)
    assert whole == [listed(make_of_fill_in_the_middle(rate=0.5), [text], [record])[0] for text, record in zip(texts, records, strict=True)]
    np.random.seed(1)  # nobody else's generator has a say
    assert whole[::-1] == listed(make_of_fill_in_the_middle(rate=0.5), texts[::-1], records[::-1])
    assert whole != listed(make_of_fill_in_the_middle(rate=0.5, seed=1), texts, records)
    assert whole != listed(make_of_fill_in_the_middle(rate=0.5), texts, [f"other.jsonl:{i}" for i in range(60)])


@pytest.mark.parametrize("suffix_first", [False, True])
def test_both_orders_by_hand(shipped: Loaded, suffix_first: bool) -> None:
    vocabulary = with_sentinels(shipped.vocabulary)
    prefix, suffix, middle = (vocabulary.backend.token_to_id(text) for text in TOKENS)
    fim = FillInTheMiddle(vocabulary, choose_engine(vocabulary), sentinels_of(vocabulary, *TOKENS), 1.0, float(suffix_first), 3)
    text, record = "The answer is 12, isn't it?", "a.jsonl:8"
    cut = cut_of(record, len(text), rate=1.0, spm_rate=float(suffix_first), seed=3)
    assert cut is not None
    assert cut.suffix_first is suffix_first
    head, body, tail = shipped.ordinary([text[: cut.start], text[cut.start : cut.end], text[cut.end :]])
    expected = [prefix, suffix, *tail, middle, *head, *body] if suffix_first else [prefix, *head, suffix, *tail, middle, *body]
    assert listed(fim, [text], [record]) == [expected]


def test_shares_and_places_are_uniform() -> None:
    cuts = [cut_of(f"r:{i}", 9, rate=0.6, spm_rate=0.25, seed=0) for i in range(20_000)]
    made = [cut for cut in cuts if cut is not None]
    assert len(made) / 20_000 == pytest.approx(0.6, abs=0.02)
    assert sum(cut.suffix_first for cut in made) / len(made) == pytest.approx(0.25, abs=0.02)
    # two places of ten each: the pair (a, a) has probability 1/100, (a, b) with a < b twice that
    seen = Counter((cut.start, cut.end) for cut in made)
    assert len(seen) == 55
    for (start, end), count in seen.items():
        assert count / len(made) == pytest.approx(0.01 if start == end else 0.02, abs=0.006)


def test_parts_join_to_the_text() -> None:
    assert Cut(2, 5, False).parts("abcdefg") == ("ab", "cde", "fg")
    assert cut_of("a", 0, rate=1.0, spm_rate=0.0, seed=0) == Cut(0, 0, False)


def test_the_tokens_must_be_there_and_differ(shipped: Loaded) -> None:
    vocabulary = with_sentinels(shipped.vocabulary)
    with pytest.raises(ConfigError, match=r"fim\.middle_token: .*no added token '<\|fim_midle\|>'; did you mean '<\|fim_middle\|>'"):
        sentinels_of(vocabulary, TOKENS[0], TOKENS[1], "<|fim_midle|>")
    with pytest.raises(ConfigError, match="four different tokens"):
        sentinels_of(vocabulary, TOKENS[0], TOKENS[1], TOKENS[1])
    with pytest.raises(ConfigError, match="four different tokens"):
        sentinels_of(vocabulary, TOKENS[0], TOKENS[1], "<|endoftext|>")


def test_a_tokenizer_that_changes_parts_is_refused(shipped: Loaded) -> None:
    with pytest.raises(ConfigError, match="does not give the parts of a document back"):
        sentinels_of(with_sentinels(shipped.vocabulary, normalizer={"type": "Lowercase"}), *TOKENS)
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
    with pytest.raises(ConfigError, match="does not give the parts of a document back"):
        sentinels_of(with_sentinels(shipped.vocabulary, pre_tokenizer=metaspace), *TOKENS)


@pytest.mark.parametrize("special", [True, False])
def test_a_sentinel_that_is_typed_never_becomes_the_token(shipped: Loaded, special: bool) -> None:
    vocabulary = with_sentinels(shipped.vocabulary, special=special)
    fim = FillInTheMiddle(vocabulary, choose_engine(vocabulary), sentinels_of(vocabulary, *TOKENS), 1.0, 0.5, 0)
    text = "a <|fim_middle|> typed by somebody"
    if special:
        fim.check(text)
        assert listed(fim, [text], ["a:0"])[0].count(fim.sentinels.middle) == 1
    else:
        with pytest.raises(Refused, match="control_token_in_content"):
            fim.check(text)
        fim.check("<|im_start|> is no sentinel")


@pytest.mark.parametrize("ids", [[5, 1, 2, 3], [1, 3, 2], [1, 2], [1, 2, 3, 2], [2, 1, 3]])
def test_a_document_that_is_not_cut_in_three_is_noticed(ids: list[int]) -> None:
    with pytest.raises(ValueError, match="sentinels"):
        parts_in_order(ids, {"prefix": 1, "suffix": 2, "middle": 3})
