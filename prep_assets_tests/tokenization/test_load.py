"""The tokenizer is the published file: what opens it, what stands beside it, its limits, and where transformers reads it otherwise."""

from __future__ import annotations

import ast
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tokenizers import Tokenizer

import prep_assets
from prep_assets.errors import ConfigError, TemplateError
from prep_assets.stores.files import Kept
from prep_assets.text import agreement as agreements
from prep_assets.text.agreement import agreement, compare, compared, in_a_new_process, refuse_disagreement
from prep_assets.text.engines import choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.suspects import edge_set
from prep_assets.text.tokenizer_files import MOST_BYTES, MOST_IDS, as_config_error
from prep_assets.text.vocabulary import Vocabulary, check_known_faults, folder_of, from_file, from_transformers, load_vocabulary
from prep_assets_tests.graph.workspaces import CONFIGS, build, domain, jsonl, minimal, workspace_in

APART = agreements._compare_in_new_process
DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}]}
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEFAULT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def folder(at: Path, *, config: dict[str, Any] | None = None, spec: dict[str, Any] | None = None) -> Path:
    """A copy of the shipped tokenizer with other parts."""
    made = Path(shutil.copytree(CONFIGS / "tokenizer", at))
    for name, changes in (("tokenizer_config.json", config or {}), ("tokenizer.json", spec or {})):
        path = made / name
        fields = {**json.loads(path.read_text("utf-8")), **changes}
        path.write_text(json.dumps({key: value for key, value in fields.items() if key not in changes or value is not None}), "utf-8")
    return made


def digits(at: Path, **config: Any) -> Path:
    """A tokenizer that splits digits, and whose class in transformers 5 forgets it: SmolLM in small."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    split = {"type": "Sequence", "pretokenizers": [DIGITS["pretokenizers"][0], byte_level]}
    return folder(at, spec={"pre_tokenizer": split}, config={"tokenizer_class": "GPT2Tokenizer", **config})


def test_ids_are_those_of_the_published_file(tmp_path: Path) -> None:
    """Audit W14: the pre-tokenizer of the file was replaced by that of a class."""
    made = digits(tmp_path / "a")
    published = Tokenizer.from_file(str(made / "tokenizer.json"))
    texts = ["The year 1984 and 2023.", *edge_set()[:500]]
    assert any(
        ours.ids != theirs.ids
        for ours, theirs in zip(published.encode_batch(texts), from_transformers("a", made).backend.encode_batch(texts), strict=True)
    )
    found = choose_engine(load_vocabulary(str(made))).first.encode(texts)
    published.encode_special_tokens = True
    expected = [each.ids for each in published.encode_batch(texts, add_special_tokens=False)]
    assert [ids.tolist() for ids in np.split(found.ids, found.offsets[1:-1])] == expected


@pytest.mark.parametrize("name", ["gpt2", "smollm", "mistral_v3"])
def test_real_ids_are_those_of_the_published_files(real_data: Path, name: str) -> None:
    made = real_data / "tokenizers" / name
    published = Tokenizer.from_file(str(made / "tokenizer.json"))
    texts = ["In 2023 it was 1,984.5 %.", *edge_set()]
    ours = load_vocabulary(str(made)).backend.encode_batch(texts, add_special_tokens=False)
    assert [each.ids for each in ours] == [each.ids for each in published.encode_batch(texts, add_special_tokens=False)]


def test_a_build_stops_where_transformers_reads_the_folder_otherwise(tmp_path: Path) -> None:
    made = digits(tmp_path / "a")
    source = jsonl(tmp_path / "rows.jsonl", [{"text": "In 1984."}])
    workspace = workspace_in(tmp_path / "ws", minimal("pretrain", {"docs": domain(source, "text")}, tokenizer=str(made)))
    with pytest.raises(
        ConfigError, match=r"replaces its pre_tokenizer, .*tokenizer\.json gives \[.*transformers \[.*tokenizer_loader: file"
    ):
        build(workspace, "pretrain_raw", "docs")
        build(workspace, "pretrain_tokens", "docs")
    chosen: dict[str, list[int]] = {}
    for loader in ("file", "transformers"):
        options = minimal("pretrain", {"docs": domain(source, "text")}, tokenizer=str(made), tokenizer_loader=loader)
        workspace = workspace_in(tmp_path / loader, options)
        build(workspace, "pretrain_raw", "docs")
        published = build(workspace, "pretrain_tokens", "docs")
        assert published.manifest.recipe["tokenizer"]["loader"] == loader
        chosen[loader] = [published.manifest.counts["tokens"]]
    assert chosen["file"] > chosen["transformers"]


def test_equal_definitions_need_no_comparison(tmp_path: Path) -> None:
    made = folder(tmp_path / "a")
    found = agreement(from_file("a", made), made)
    assert found.same and not found.fault and "same definition" in found.verdict


def test_the_verdict_is_kept_for_these_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, cache = folder(tmp_path / "a"), Kept(str(tmp_path / "cache"), 4)
    first = agreement(from_file("a", made), made, cache)

    def never(*args: object) -> str:
        raise AssertionError("opened again")

    monkeypatch.setattr(agreements, "_compare_in_new_process", never)
    assert agreement(from_file("a", made), made, cache) == first
    (made / "special_tokens_map.json").write_text('{"unk_token": "<|pad|>"}')
    with pytest.raises(AssertionError, match="opened again"):
        agreement(from_file("a", made), made, cache)


def test_a_damaged_verdict_is_made_again(tmp_path: Path) -> None:
    made, cache = folder(tmp_path / "a"), Kept(str(tmp_path / "cache"), 4)
    first = agreement(from_file("a", made), made, cache)
    for path in (tmp_path / "cache").iterdir():
        path.write_text("{")
    assert agreement(from_file("a", made), made, cache) == first


def test_other_names_are_a_difference(tmp_path: Path) -> None:
    """transformers gives GPT-2's class an end-of-text token that no file names."""
    made = folder(tmp_path / "a", config={"tokenizer_class": "GPT2Tokenizer", "eos_token": None})
    with pytest.raises(ConfigError, match=r"its eos_token is None by its files and '<\|endoftext\|>' by transformers"):
        refuse_disagreement(from_file("a", made), made)


def test_code_in_the_folder_is_not_run_and_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = folder(tmp_path / "a", config={"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}})
    (made / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Own: ...\n")

    def asked(*args: object) -> str:
        raise AssertionError("asked on the terminal")

    monkeypatch.setattr("builtins.input", asked)
    for found in (compare(from_file("a", made), made), agreement(from_file("a", made), made)):
        assert not found.fault and not (tmp_path / "ran").exists()


def test_whatever_transformers_opens_runs_no_code_and_asks_nothing() -> None:
    """Left out, `trust_remote_code` is a question on the terminal; only `tokenizer_loader: code` allows code to run."""
    found = {}
    for path in sorted(Path(prep_assets.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))) if "from_pretrained" in path.read_text("utf-8") else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "from_pretrained":
                trusted = [each.value for each in node.keywords if each.arg == "trust_remote_code"]
                found[f"{path.name}:{node.lineno}"] = [each.value for each in trusted if isinstance(each, ast.Constant)]
    assert len(found) >= 2 and all(said == [False] for said in found.values()), found


def test_a_sample_of_the_data_is_compared(tmp_path: Path) -> None:
    """Two definitions that agree on the edge set may differ on a text of the data."""
    one = from_file("a", folder(tmp_path / "a"))
    rare = "zxqv" * 3
    other = from_file("b", folder(tmp_path / "b", spec={"normalizer": {"type": "Replace", "pattern": {"String": rare}, "content": "z"}}))
    engines = compared(choose_engine(one), one, other)
    assert engines.rest is engines.first
    plain = choose_engine(one).first.encode(["a", "b"])
    assert np.array_equal(engines.first.encode(["a", "b"]).ids, plain.ids)
    with pytest.raises(ConfigError, match="other ids to a text of this data, 'the zxqvzxqvzxqv'"):
        engines.first.encode(["a", f"the {rare}", "b"])


# what stands beside it


@pytest.mark.parametrize(
    "several", [[{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}], {"default": "D", "rag": "R"}]
)
def test_of_several_chat_templates_one_is_named(tmp_path: Path, several: Any) -> None:
    found = from_file("a", folder(tmp_path / "a", config={"chat_template": several}))
    assert load_template("tokenizer:rag", found).source == "R"
    with pytest.raises(TemplateError, match=r"several chat templates: default, rag\. Name one, e\.g\. template: tokenizer:default"):
        load_template("tokenizer", found)
    with pytest.raises(TemplateError, match=r"no chat template 'rug'; did you mean 'rag'\?"):
        load_template("tokenizer:rug", found)


def test_a_single_template_in_a_list_needs_no_name(tmp_path: Path) -> None:
    found = from_file("a", folder(tmp_path / "a", config={"chat_template": [{"name": "default", "template": "D"}]}))
    assert load_template("tokenizer", found).source == load_template("tokenizer:default", found).source == "D"


def test_files_of_templates(tmp_path: Path) -> None:
    made = folder(tmp_path / "a", config={"chat_template": None})
    assert from_file("a", made).chat_template is None
    (made / "chat_template.json").write_text('{"chat_template": "J"}')
    assert from_file("a", made).chat_template == "J"
    (made / "chat_template.jinja").write_text("F")
    assert from_file("a", made).chat_template == from_transformers("a", made).chat_template == "F"
    (made / "additional_chat_templates").mkdir()
    (made / "additional_chat_templates" / "rag.jinja").write_text("R")
    assert load_template("tokenizer:rag", from_file("a", made)).source == "R"


def test_names_are_completed_by_the_map(tmp_path: Path) -> None:
    made = folder(
        tmp_path / "a",
        config={"pad_token": None, "eos_token": {"content": "<|im_end|>"}, "extra_special_tokens": {"image_token": "<|pad|>"}},
    )
    (made / "special_tokens_map.json").write_text('{"pad_token": {"content": "<|pad|>"}, "eos_token": "<|endoftext|>"}')
    special = from_file("a", made).special
    assert (special["pad_token"], special["eos_token"], special["image_token"]) == ("<|pad|>", "<|im_end|>", "<|pad|>")


def test_a_configuration_that_is_not_json_is_named(tmp_path: Path) -> None:
    made = folder(tmp_path / "a")
    (made / "tokenizer_config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"tokenizer_config\.json is not JSON"):
        from_file("a", made)


def test_a_folder_without_the_file_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"no tokenizer\.json in .*, which holds vocab\.json\..*tokenizer_loader: transformers"):
        load_vocabulary(str(tmp_path))


def test_a_repository_is_fetched_at_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def download(repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((repository, revision))
        assert "tokenizer.json" in allow_patterns
        return str(CONFIGS / "tokenizer")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert folder_of("owner/name", base=tmp_path, revision="c0ffee") == CONFIGS / "tokenizer"
    assert asked == [("owner/name", "c0ffee")]


# files that are known to be wrong


def tekken(pattern: str) -> Vocabulary:
    """A tokenizer that is Tekken's by its size and first tokens."""
    spec = json.loads((CONFIGS / "tokenizer" / "tokenizer.json").read_text("utf-8"))
    first = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]"]
    alphabet = sorted(text for text in spec["model"]["vocab"] if len(text) == 1)
    filler = [f"<SPECIAL_{number}>" for number in range(131_072 - len(first) - len(alphabet))]
    vocabulary = {text: number for number, text in enumerate([*first, *alphabet, *filler])}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    made = {
        **spec,
        "added_tokens": [{"id": number, "content": text, **flags} for number, text in enumerate(first)],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "model": {**spec["model"], "vocab": vocabulary, "merges": []},
    }
    return Vocabulary("mistral", Tokenizer.from_str(json.dumps(made)), {}, None)


def test_tekken_with_the_pattern_of_another_tokenizer_is_refused() -> None:
    """Hugging Face discussion 84 of Mistral-Small-3.1: `eBay` and `NaOH` came out in other pieces than in training."""
    with pytest.raises(ConfigError, match="Tekken vocabulary and the pattern of another tokenizer"):
        check_known_faults(tekken(DEFAULT), Path("a"))
    check_known_faults(tekken(TEKKEN), Path("a"))


# A tokenizer's files have limits: their size, and patterns that blow up.

SHIPPED = json.loads((CONFIGS / "tokenizer" / "tokenizer.json").read_text("utf-8"))


def _write(folder: Path, **changed: Any) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps({**SHIPPED, **changed}), "utf-8")
    return folder


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, name: str) -> None:
    _write(tmp_path)
    with (tmp_path / name).open("ab") as file:
        os.truncate(file.fileno(), MOST_BYTES + 1)
    with pytest.raises(ConfigError, match=rf"{name} has 268,435,457 bytes; a file of a tokenizer may have 268,435,456"):
        from_file("huge", tmp_path)
    with pytest.raises(ConfigError, match=rf"{name} has 268,435,457 bytes"):
        from_transformers("huge", tmp_path)


def test_weights_beside_a_tokenizer_may_have_any_size(tmp_path: Path) -> None:
    _write(tmp_path)
    with (tmp_path / "model.safetensors").open("wb") as file:
        os.truncate(file.fileno(), MOST_BYTES + 1)
    assert from_transformers("beside", tmp_path).size == from_file("beside", tmp_path).size


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(\w+\s?)+$", r"(a|aa)+$"])
def test_a_pattern_that_blows_up_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str], pattern: str) -> None:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    with pytest.raises(ConfigError, match=r"tokenizer.json: this tokenizer does not encode .*retry-limit-in-match"):
        from_file("slow", _write(tmp_path, pre_tokenizer=split))
    assert capfd.readouterr().err == ""


def test_a_tokenizer_that_cannot_read_a_text_is_refused(tmp_path: Path) -> None:
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9, "vocab": {"a": 0}}
    with pytest.raises(ConfigError, match=r"does not encode .*Missing \[UNK\] token"):
        from_file("partial", _write(tmp_path, model=model, added_tokens=[], pre_tokenizer=None, decoder=None))


def test_only_errors_become_words() -> None:
    with pytest.raises(KeyboardInterrupt), as_config_error("x"):
        raise KeyboardInterrupt
    with pytest.raises(ConfigError, match=r"^x: KeyError: 'a'$"), as_config_error("x"):
        raise KeyError("a")


@pytest.mark.parametrize("far", [MOST_IDS, (1 << 32) - 1])
def test_an_id_beyond_every_vocabulary_is_refused(tmp_path: Path, far: int) -> None:
    """At once: the library writes out a place for each id that is missing, which took a minute and eight gigabytes."""
    end = {"id": far, "content": "</s>", "special": True, **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)}
    model = {**SHIPPED["model"], "vocab": {**SHIPPED["model"]["vocab"], "</s>": end["id"]}}
    with patch.object(Vocabulary, "spec", None), pytest.raises(ConfigError, match=rf"the largest id is {far:,}; ids are below 16,777,216"):
        from_file("far", _write(tmp_path, model=model, added_tokens=[end]))


LEFT = """
import sys
from pathlib import Path
sys.path.append(sys.argv[2])
from prep_assets.text.vocabulary import from_file
from harness.tokenizers import memory
words = [f"x{number:b}" for number in range(10_000)]
def used():
    backend = from_file("one", Path(sys.argv[1])).backend
    for word in words:
        backend.encode(word)
used()
before = memory("VmRSS")
for _ in range(10):
    used()
print(memory("VmRSS") - before)
"""


def test_little_is_left_of_a_tokenizer_that_is_gone() -> None:
    """The library itself leaves 5 MiB of these words for each."""
    command = [sys.executable, "-c", LEFT, str(CONFIGS / "tokenizer"), str(CONFIGS.parent / "tools")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert int(said) < 25 << 20


# Work in a process of its own: it gives a line, or says why not, and this process keeps nothing of it.

TOKENIZER = CONFIGS / "tokenizer"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    code = (
        "import os, sys\n"
        "def joined(*texts):\n    print('noise')\n    return os.environ.get('SEED', '') + '+'.join(texts) + sys.stdin.read()\n"
        "def failing():\n    raise ValueError('what went wrong')\n"
        "def ended():\n    os._exit(7)\n"
    )
    (tmp_path / "of_this_test.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "of_this_test"


def test_it_gives_the_last_line(module: str) -> None:
    assert in_a_new_process(module, "joined", "a b", "ü'\"", SEED="s") == "sa b+ü'\""


@pytest.mark.parametrize(("function", "says"), [("failing", "ValueError: what went wrong"), ("ended", "it ended with 7")])
def test_what_fails_there_says_why(module: str, function: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        in_a_new_process(module, function)


def test_a_comparison_that_fails_names_the_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: str) -> str:
        raise ConfigError("ImportError: no such thing")

    monkeypatch.setattr(agreements, "_compare_in_new_process", APART)
    monkeypatch.setattr(agreements, "in_a_new_process", failing)
    with pytest.raises(
        ConfigError, match=r"tokenizer 'own' cannot be compared with what transformers makes of .*: ImportError: no such thing"
    ):
        agreement(from_file("own", TOKENIZER), TOKENIZER)


@pytest.mark.soak
def test_a_comparison_apart_finds_the_same_and_imports_nothing_here() -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom prep_assets.text.agreement import agreement\n"
        "from prep_assets.text.vocabulary import from_file\nfolder = Path(sys.argv[1])\n"
        "print(repr(agreement(from_file('own', folder), folder)), {'torch', 'transformers'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", script, str(TOKENIZER)], check=True, capture_output=True, text=True).stdout.strip()
    assert said == f"{compare(from_file('own', TOKENIZER), TOKENIZER)!r} set()"


def test_a_file_that_was_opened_before_is_opened_when_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "cache"))
    made = folder(tmp_path / "a")
    first, opened = from_file("a", made), list[str]()
    monkeypatch.setattr(
        Tokenizer, "from_buffer", staticmethod(lambda content: opened.append("now") or Tokenizer.from_str(content.decode()))
    )
    later, published = from_file("b", made), Tokenizer.from_file(str(made / "tokenizer.json"))
    written = tuple(token["content"] for token in json.loads(published.to_str())["added_tokens"] if not token["special"])
    assert first.hash == Vocabulary("c", published, first.special, first.chat_template, templates=first.templates).hash
    same = ("hash", "size", "control", "eos_id", "pad_id", "composes", "prefix_space")
    assert {name: getattr(later, name) for name in same} == {name: getattr(first, name) for name in same}
    assert later.frame == {
        **first.spec,
        "model": {name: each for name, each in first.spec["model"].items() if name not in ("vocab", "merges")},
    }
    assert not opened
    # with tokens that a template writes, the hash is another one, worked out once
    assert later.with_control(written).hash == first.with_control(written).hash
    text = "Naïve 12,345 wörds <|im_end|>"
    assert later.backend.encode(text).ids == published.encode(text).ids
    assert later.spec == first.spec and opened == ["now"]


def test_a_file_that_changes_is_another_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "cache"))
    made = folder(tmp_path / "a")
    first, waiting = from_file("a", made), from_file("a", made)
    (made / "tokenizer.json").write_text(
        json.dumps({**json.loads((made / "tokenizer.json").read_text("utf-8")), "normalizer": {"type": "NFC"}})
    )
    assert from_file("a", made).hash != first.hash and from_file("a", made).composes and not first.composes
    assert waiting.spec == first.spec  # that of the file as it was read


@pytest.mark.parametrize("data", [b"", b"{", b'{"digest": "", "frame": {}, "size": 1}'])
def test_a_damaged_entry_of_the_cache_counts_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "cache"))
    made = folder(tmp_path / "a")
    first = from_file("a", made)
    for entry in (tmp_path / "cache" / "known tokenizers").iterdir():
        entry.write_bytes(data)
    assert from_file("a", made).frame == first.frame


def test_a_tokenizer_that_is_not_opened_yet_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are given vocabularies."""
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "cache"))
    made = folder(tmp_path / "a")
    first, later = from_file("a", made), from_file("a", made)
    for vocabulary in (later, first):
        assert pickle.loads(pickle.dumps(vocabulary)).backend.encode("Naïve").ids == first.backend.encode("Naïve").ids
