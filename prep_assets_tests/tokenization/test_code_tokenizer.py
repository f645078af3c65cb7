"""Tokenizers that are somebody's class: what is proven of them, what is refused, and that stores hold just what their own encoding gives."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from prep_assets.config.models import Pretrain
from prep_assets.engine import Statuses
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.graph.graph import ASSETS
from prep_assets.graph.selftest import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.tokens import open_tokens
from prep_assets.text import code_tokenizer
from prep_assets.text.code_tokenizer import prove
from prep_assets_tests.docs.pages import DOCS, blocks
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, refusals, workspace_in

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
        code_tokenizer._LOADED.pop(f"{name}:World", None)


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
        assert not failing(workspace, stores[asset])
        assert {each.reason for each in refusals(stores[asset])} == {"lossy_tokenizer"}
        assert all(trial.passed for trial in selftest(workspace, stores[asset]))
    assert not failing(workspace, build(workspace, "sft_packed"))
    number = {word: at for at, word in enumerate(LISTED, 10)}
    stream = open_tokens(stores["pretrain_tokens"].directory, "d_train")
    for at, row in enumerate(stream.row.tolist()):
        assert stream.record(at, "tokens").tolist() == [*(number[word] for word in greedy(LISTED, DOCUMENTS[row]["text"])), 0]
    stream = open_tokens(stores["sft_tokens"].directory, "train")
    assert stream.row.tolist() == [0, 1, 2, 3, 4, 5]
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
    code_tokenizer._LOADED.clear()
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
        stream = open_tokens(build(workspace, "sft_tokens", "c").directory, "train")
        found.append([np.asarray(stream.arrays[key][:]).tolist() for key in ("tokens", "loss_mask")])
    assert found[0] == found[1]
    sys.modules.pop("wrapped", None)
    code_tokenizer._LOADED.pop("wrapped:Wrapped", None)


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
    "twice": ([('{"<|end|>": 0,', '{"<|end|>": 10,')], "each needs one of its own"),
    "tableless": ([("def tokens", "def other")], "gives no tables of its tokens: AttributeError"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_class_that_cannot_be_proven_stops_before_a_record_is_read(make: Callable[..., Path], name: str) -> None:
    changes, says = FAULTS[name]
    folder = make(name, *changes)
    with pytest.raises(ConfigError, match=says):
        vocabulary = code_tokenizer.from_code("t", folder, f"{name}:World")
        assert vocabulary.code is not None
        prove(vocabulary.code)


def test_a_class_is_not_loaded_where_nothing_allows_it(make: Callable[..., Path], tmp_path: Path) -> None:
    make("trie_d", ("class World", 'raise RuntimeError("it ran")\n\n\nclass World'))
    for options in ({"tokenizer_class": "trie_d:World"}, {"tokenizer_loader": "code"}):
        with pytest.raises(PrepAssetsError, match="means nothing here"):
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
            code_tokenizer.from_code("t", place, path)
