"""Engines give the reference's ids for ordinary text, each text goes to the one that its characters demand, and the gate lets no other through."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from prep_assets.stores import files as kept
from prep_assets.stores.table import open_stream
from prep_assets.text import engines, suspects
from prep_assets.text.engines import (
    BETWEEN,
    CUT,
    Engines,
    Finding,
    GigatokenEngine,
    ReferenceEngine,
    RoutedEngine,
    choose_engine,
    verdict_key,
)
from prep_assets.text.ids import Engine, Flat, digit_cuts, ordinary, remembered, sorted_json
from prep_assets.text.suspects import TRIED, edge_set, suspect_table, typed
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.effort import examples
from prep_assets_tests.graph.workspaces import build, jsonl, minimal, refusals, workspace_in
from prep_assets_tests.tokenization.loaded import TEXT_WITH_CONTROL, Loaded, Open, variant

ROOT = Path(__file__).resolve().parents[2]
FAST = ["shipped", "gpt2", "mistral_v3", "smollm"]
"""Tokenizers that gigatoken loads; SmolLM's after its form is changed."""


def lists(flat: Flat) -> list[list[int]]:
    return [flat.ids[low:high].tolist() for low, high in zip(flat.offsets[:-1], flat.offsets[1:], strict=True)]


@pytest.mark.parametrize("name", FAST)
@settings(max_examples=examples(60), deadline=None)
@given(texts=st.lists(TEXT_WITH_CONTROL, max_size=4))
def test_engines_agree_on_any_text(open_tokenizer: Open, name: str, texts: list[str]) -> None:
    """With the `tokenizers` library, called directly."""
    loaded = open_tokenizer(name)
    expected = loaded.ordinary(texts)
    assert isinstance(loaded.engines.first, RoutedEngine)
    for engine in (loaded.engines.first, loaded.engines.reference):
        found = engine.encode(texts)
        assert lists(found) == expected
        assert (found.ids.dtype.name, found.offsets.dtype.name) == ("uint32", "int64")


@pytest.mark.parametrize("name", FAST)
def test_fast_engines_are_chosen_where_they_agree(open_tokenizer: Open, name: str) -> None:
    loaded = open_tokenizer(name)
    assert isinstance(loaded.engines.first, RoutedEngine)
    assert isinstance(loaded.engines.rest, RoutedEngine)
    added = loaded.vocabulary.spec["added_tokens"]
    assert loaded.engines.verdict.startswith(f"gigatoken: equal to tokenizers on {len(edge_set()) + 4 * len(added):,} edge texts")


def test_typed_control_tokens_are_ordinary_text(tokenizer: Loaded) -> None:
    table = tokenizer.vocabulary.token_bytes
    assert table is not None
    control = set(tokenizer.vocabulary.control.values())
    for text in list(tokenizer.vocabulary.control)[:40]:
        for engine in (tokenizer.engines.first, tokenizer.engines.rest, tokenizer.engines.reference):
            ids = engine.encode([f"a{text}b"]).ids.tolist()
            assert control.isdisjoint(ids)
            assert b"".join(table[token] for token in ids).removeprefix(b" ") == f"a{text}b".encode()


@pytest.mark.parametrize("name", FAST)
def test_long_texts_have_the_ids_of_short_ones_also_in_two_threads_at_once(open_tokenizer: Open, name: str) -> None:
    """The fast engine gives up Python's lock for them."""
    loaded = open_tokenizer(name)
    batches = [[f"{number} {text} " * 900 for text in ("Hello there", f"a{BETWEEN}b", "é👍中文", "")] for number in range(6)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(loaded.engines.first.encode, batches))
    assert list(map(lists, found)) == list(map(loaded.ordinary, batches))


@pytest.mark.parametrize("name", FAST)
def test_texts_may_hold_the_marks_between_texts(open_tokenizer: Open, name: str) -> None:
    """The fast engine is given many texts as one; what stands between them may stand, or begin, in a text as well."""
    halves = ["\x01", "\x01\x03", "\x03\x02", "\x02 7", "\x04\u300042", BETWEEN, CUT, f"a{BETWEEN}", f"{CUT}1 {BETWEEN}{BETWEEN}", ""]
    loaded, texts = open_tokenizer(name), [f"{one}{two}" for one in ("", " ", "9") for two in halves]
    for batch in (texts, texts[::-1], [BETWEEN], [CUT, CUT], [text for text in texts if BETWEEN not in text and CUT not in text]):
        assert lists(loaded.engines.first.encode(batch)) == loaded.ordinary(batch)


def test_text_after_a_control_token_has_no_space_in_front(open_tokenizer: Open) -> None:
    loaded = open_tokenizer("mistral_v3")
    vocab = loaded.vocabulary.spec["model"]["vocab"]
    assert loaded.engines.first.encode(["Hello"]).ids.tolist() == [vocab["▁Hello"]]
    assert loaded.engines.rest.encode(["Hello"]).ids.tolist() == [vocab["Hello"]]


def test_a_renewed_engine_goes_on_as_before(shipped: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cache is thrown away now and then."""
    engine = GigatokenEngine(shipped.vocabulary.spec)
    first = engine._tokenizer
    monkeypatch.setattr(GigatokenEngine, "RENEW_AFTER", 10)
    texts = ["Hello there", "What is 2 + 2?", "é👍"]
    assert [engine.encode([text]).ids.tolist() for text in texts] == shipped.ordinary(texts)
    assert engine._tokenizer is not first


def test_an_engine_that_has_met_many_words_forgets_them_in_a_pause(shipped: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stayed in memory while a store was checked."""
    fast = GigatokenEngine(shipped.vocabulary.spec)
    routed = RoutedEngine(fast, shipped.engines.reference, np.zeros(0x110000, bool), composes=False)
    engines = replace(shipped.engines, first=routed, rest=routed)
    met = engines.first.encode(["Hello there"]).ids.tolist()
    engines.pause()
    assert fast._tokenizer is not None
    monkeypatch.setattr(GigatokenEngine, "IDLE_AFTER", 10)
    engines.pause()
    assert fast._tokenizer is None
    assert engines.first.encode(["Hello there"]).ids.tolist() == met


def test_character_spans_are_those_of_the_text(shipped: Loaded) -> None:
    ids, spans = shipped.engines.reference.char_spans("Hello  world\n")
    assert ids == shipped.ordinary(["Hello  world\n"])[0]
    assert "".join("Hello  world\n"[start:end] for start, end in spans) == "Hello  world\n"


# a reference around a model that is open


@pytest.mark.parametrize("name", FAST)
def test_a_reference_around_an_open_model_is_the_one_that_is_read(open_tokenizer: Open, name: str) -> None:
    """Also with added tokens of all kinds between the special ones."""
    own = open_tokenizer(name).vocabulary
    flags = {"single_word": False, "lstrip": True, "rstrip": False}
    more = [{"content": f"<more {n}>", "special": n % 2 == 0, "normalized": n < 2, **flags} for n in range(4)]
    added = [*own.spec["added_tokens"], *({"id": own.size + n, **token} for n, token in enumerate(more))]
    for vocabulary in (own, variant(own, added_tokens=added).with_control(["<more 3>"])):
        chosen = choose_engine(vocabulary, reference_only=True)
        for engine in {chosen.reference, chosen.rest_reference}:
            assert isinstance(engine, ReferenceEngine)
            read = ReferenceEngine(engine._spec)
            assert engine._tokenizer.to_str() == read._tokenizer.to_str()
            texts = (*edge_set(), *typed(token["content"] for token in vocabulary.spec["added_tokens"][-8:]))
            assert lists(engine.encode(texts)) == lists(read.encode(texts))


def test_a_model_whose_entries_are_hidden_is_read() -> None:
    from tokenizers import Tokenizer, models

    backend = Tokenizer(models.WordLevel(vocab={"[UNK]": 0, "a": 1, "</s>": 2}, unk_token="[UNK]"))
    backend.add_special_tokens(["</s>"])
    assert choose_engine(Vocabulary("words", backend, {}, None)).reference.encode(["</s>", "a"]).ids.tolist() == [0, 1]


# the gate


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The gate, which remembers nothing and tries few code points."""
    monkeypatch.setenv("PREP_ASSETS_CACHE", "")
    monkeypatch.setattr(suspects, "TRIED", ((0, 0x2000),))
    return monkeypatch


def altered(change: Callable[[Flat], Flat]) -> type[GigatokenEngine]:
    class Altered(GigatokenEngine):
        def encode(self, texts: Sequence[str]) -> Flat:
            return change(super().encode(texts))

    return Altered


def one_id(flat: Flat) -> Flat:
    ids = flat.ids.copy()
    ids[-1] += 1
    return Flat(ids, flat.offsets)


def one_border(flat: Flat) -> Flat:
    """The same ids, but one of them is counted to the text before."""
    offsets = flat.offsets.copy()
    offsets[len(offsets) // 2] += len(offsets) > 2
    return Flat(flat.ids, offsets)


def one_less(flat: Flat) -> Flat:
    return Flat(flat.ids[:-1], np.minimum(flat.offsets, len(flat.ids) - 1))


@pytest.mark.parametrize("change", [one_id, one_border, one_less])
def test_an_engine_that_differs_is_refused(shipped: Loaded, gate: pytest.MonkeyPatch, change: Callable[[Flat], Flat]) -> None:
    gate.setattr(engines, "GigatokenEngine", altered(change))
    chosen = choose_engine(shipped.vocabulary)
    assert isinstance(chosen.first, ReferenceEngine)
    assert chosen.rest is chosen.first
    assert chosen.verdict.startswith("tokenizers: gigatoken differs on the edge set, first at ")
    if change is not one_border:
        last = (*edge_set(), *typed(token["content"] for token in shipped.vocabulary.spec["added_tokens"]))[-1]
        assert chosen.verdict.endswith(repr(last))


def test_an_engine_that_differs_after_control_tokens_is_refused_there(open_tokenizer: Open, gate: pytest.MonkeyPatch) -> None:
    class Altered(GigatokenEngine):
        def __init__(self, spec: dict[str, Any]) -> None:
            super().__init__(spec)
            self.alters = spec["pre_tokenizer"]["prepend_scheme"] == "never"

        def encode(self, texts: Sequence[str]) -> Flat:
            return one_id(super().encode(texts)) if self.alters else super().encode(texts)

    gate.setattr(engines, "GigatokenEngine", Altered)
    chosen = choose_engine(open_tokenizer("mistral_v3").vocabulary)
    assert isinstance(chosen.first, RoutedEngine)
    assert isinstance(chosen.rest, ReferenceEngine)
    assert "gigatoken differs on the edge set" in chosen.verdict


def test_an_engine_that_fails_is_not_used(shipped: Loaded, gate: pytest.MonkeyPatch) -> None:
    def fails(flat: Flat) -> Flat:
        raise RuntimeError("no such byte")

    gate.setattr(engines, "GigatokenEngine", altered(fails))
    chosen = choose_engine(shipped.vocabulary)
    assert isinstance(chosen.first, ReferenceEngine)
    assert "RuntimeError: no such byte" in chosen.verdict


def test_a_tokenizer_that_gigatoken_cannot_load(open_tokenizer: Open) -> None:
    spec = open_tokenizer("gpt2").vocabulary.spec
    unknown = variant(
        open_tokenizer("gpt2").vocabulary,
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, spec["pre_tokenizer"]]},
    )
    chosen = choose_engine(unknown)
    assert isinstance(chosen.first, ReferenceEngine)
    assert chosen.verdict.startswith("tokenizers: gigatoken cannot load this tokenizer (RuntimeError")


def test_a_model_that_gigatoken_does_not_have() -> None:
    from tokenizers import Tokenizer, models

    pieces = Vocabulary("pieces", Tokenizer(models.WordPiece(vocab={"[UNK]": 0, "a": 1}, unk_token="[UNK]")), {}, None)
    chosen: Engine = choose_engine(pieces).first
    assert isinstance(chosen, ReferenceEngine)
    assert (
        choose_engine(pieces).verdict == "tokenizers: gigatoken cannot load this tokenizer (ValueError: gigatoken has no WordPiece model)"
    )


def test_the_reference_on_request(shipped: Loaded) -> None:
    chosen = choose_engine(shipped.vocabulary, reference_only=True)
    assert isinstance(chosen.first, ReferenceEngine)
    assert chosen.verdict == "reference only, as configured"


def test_a_normalizing_tokenizer_is_gated_too(shipped: Loaded) -> None:
    """Whichever engine is chosen, its ids are those of the library."""
    normalizing = variant(shipped.vocabulary, normalizer={"type": "NFC"})
    texts = ["e\u0301", "é", "\u212b", "Hello"]
    expected = [normalizing.backend.encode(text, add_special_tokens=False).ids for text in texts]
    assert lists(choose_engine(normalizing).first.encode(texts)) == expected


# the edge set


def test_the_edge_set_is_text_and_the_same_everywhere() -> None:
    """In another process, with another hash seed."""
    code = (
        "from prep_assets.text.suspects import edge_set; from hashlib import sha256; print(sha256(repr(edge_set()).encode()).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == sha256(repr(edge_set()).encode()).hexdigest()
    assert len("".join(edge_set()).encode()) > 100_000


# Each text goes to the fast engine or to the reference, and nobody can tell from the ids.

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KINDS = ["gpt2", "smollm", "mistral_v3", "qwen-like", "llama3-like"]

NASTY = [
    *(
        *("e\u0301", "\u0301", "a\u0323\u0307", "\u0315\u0334", "\u1100\u1161\u11a8", "\uac01", "\u212b", "\u0344", "\ufb01"),
        *("\u0958", "\u0f73"),
    ),
    *(
        *("\u200d", "\ufe0f", "\U0001f469\u200d\U0001f680", "\U0001fae8", "\ud7ff", "\ue000", "\ufffd", "\ufdd0", "\U0010fffe"),
        *("\u0378", "\U000113c0"),
    ),
    *(
        *("\U00016100", "\U00016d40", "\U00011de0", "\U00016ff4", "\u0881", "\u0e81", "\u1ac1", "\x04", "\x7f", "\x85", "\xa0"),
        *("\u3000", "\u2028"),
    ),
    *(
        *("1", "12", "123456", "\u00bd", "\u00b2\u00b3", "\u0661\u0662", "\uff11\uff12", "\u2160", " 1", "  1", "\n1", "\n\n 12"),
        *("\t\t3", " \u00bd", "x\u00bd"),
    ),
    *(" ", "  ", "\n", "\r\n", "\n\n\n", "\t", "'s", "'\u017f", "'ll", "the", " and", "\u4e2d\u6587", "<|endoftext|>", "<s>"),
]
NASTY_TEXT = st.lists(st.sampled_from(NASTY) | st.characters(codec="utf-8"), max_size=12).map("".join)


@pytest.fixture(scope="module", params=KINDS)
def of_kind(request: pytest.FixtureRequest, open_tokenizer: Open) -> Engines:
    """The two that are not at hand are GPT-2's vocabulary with the published pattern and normalizer."""
    if "-" not in request.param:
        return open_tokenizer(request.param).engines
    gpt2 = open_tokenizer("gpt2").vocabulary
    split = {
        "type": "Split",
        "pattern": {"Regex": QWEN if request.param.startswith("qwen") else LLAMA3},
        "behavior": "Isolated",
        "invert": False,
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    normalizer = {"type": "NFC"} if request.param.startswith("qwen") else None
    return choose_engine(variant(gpt2, normalizer=normalizer, pre_tokenizer={"type": "Sequence", "pretokenizers": [split, byte_level]}))


@settings(max_examples=examples(120))
@given(texts=st.lists(NASTY_TEXT, max_size=6))
@example(texts=["", "a", "e\u0301", "", "\u00e9", "\U0001fae8"])
def test_ids_are_the_references(of_kind: Engines, texts: list[str]) -> None:
    assert isinstance(of_kind.first, RoutedEngine) and isinstance(of_kind.rest, RoutedEngine)
    for engine, reference in ((of_kind.first, of_kind.reference), (of_kind.rest, of_kind.rest_reference)):
        found, expected = engine.encode(texts), reference.encode(texts)
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.offsets.tolist() == expected.offsets.tolist()


def test_plain_text_is_for_the_fast_engine(of_kind: Engines) -> None:
    texts = [
        "Hello, world! 1 + 1 = 2",
        "caf\u00e9 na\u00efve",
        "\u4e2d\u6587\u3002 \u043f\u0440\u0438\u0432\u0435\u0442",
        "",
        "\uac01\uc790 \U0001f44d",
    ]
    assert isinstance(of_kind.first, RoutedEngine)
    assert of_kind.first.needs_reference([*texts, "\U000f0000"]).tolist() == [False] * len(texts) + [True]


def test_texts_that_are_not_composed_are_for_the_reference(shipped: Loaded) -> None:
    composing = choose_engine(variant(shipped.vocabulary, normalizer={"type": "NFC"})).first
    assert isinstance(composing, RoutedEngine)
    texts = ["e\u0301", "\u00e9", "q\u0301", "\u212b", "\u1100\u1161", "\uac00", "plain", "a\u0315\u0334"]
    assert composing.needs_reference(texts).tolist() == [not unicodedata.is_normalized("NFC", text) for text in texts]


@settings(max_examples=examples(60))
@given(texts=st.lists(st.text(), min_size=1, max_size=5))
def test_the_check_for_composition_skips_only_composed_text(shipped_composing: RoutedEngine, texts: list[str]) -> None:
    whole = [text for text, odd in zip(texts, shipped_composing.needs_reference(texts), strict=True) if not odd]
    assert all(unicodedata.is_normalized("NFC", text) for text in whole)


@pytest.fixture(scope="module")
def shipped_composing(shipped: Loaded) -> RoutedEngine:
    engine = choose_engine(variant(shipped.vocabulary, normalizer={"type": "NFC"})).first
    assert isinstance(engine, RoutedEngine)
    return engine


def test_what_is_not_tried_is_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "TRIED", TRIED)
    table = suspect_table(((65, 67),))
    tried = np.zeros(0x110000, bool)
    for first, end in TRIED:
        tried[first:end] = True
    assert table[65:67].all() and not table[67:0xD800].any() and table[~tried].all()
    assigned = [point for point in range(0x110000) if unicodedata.category(chr(point)) not in ("Cn", "Cs", "Co")]
    assert tried[assigned].all(), f"Unicode {unicodedata.unidata_version} has characters beyond TRIED"


def test_digits_are_cut_where_white_space_could_join() -> None:
    text = "a 1b  2 c\n\n3 d4 \u00e95 6"
    cuts = digit_cuts(np.frombuffer(text.encode(), np.uint8))
    assert [text.encode()[at : at + 1] for at in cuts] == [b"2", b"3", b"5"]


# What was found about engines is kept on disk, under a key of all that it depends on.

FOUND = Finding(True, "equal", ((0x301, 0x303), (0x1FAE8, 0x1FAE9)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path))
    return tmp_path / engines.KEPT.kind


def test_what_was_kept_is_found(folder: Path) -> None:
    asked: list[str] = []

    def found(key: str) -> Finding:
        return remembered(engines.KEPT, key, Finding, lambda: asked.append(key) or FOUND)

    assert found("a") == found("a") == FOUND == found("b")
    assert asked == ["a", "b"] == sorted(path.name for path in folder.iterdir())


def test_the_key_has_all_that_ids_depend_on(shipped: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = shipped.vocabulary.spec
    keys = {verdict_key(changed, "x") for changed in (spec, {**spec, "normalizer": {"type": "NFC"}}, {**spec, "added_tokens": []})}
    keys |= {verdict_key(spec, "y"), verdict_key({**spec, "post_processor": None}, "x")}
    assert len(keys) == 4
    monkeypatch.setattr(kept, "installed_version", lambda package: "another")
    assert verdict_key(spec, "x") not in keys


def test_a_second_process_compares_nothing(shipped: Loaded, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "TRIED", ((0, 0x400),))
    first = choose_engine(shipped.vocabulary)
    monkeypatch.delattr(engines, "_compare_engines")
    second = choose_engine(shipped.vocabulary)
    texts = ["Hello", "\u4e2d", "1 2"]
    assert second.verdict == first.verdict and second.first.encode(texts).ids.tolist() == first.first.encode(texts).ids.tolist()
    assert isinstance(second.first, RoutedEngine) and second.first.needs_reference(texts).tolist() == [False, True, False]


# A control token that somebody typed is text, also for models that look words up in their vocabulary.

SPECIAL = ("<pad>", "</s>", "<unk>", "<s>")
LETTERS = (*"abcdefghijklmnopqrstuvwxyz.<>/", "the", "▁", "▁the", "▁a")
ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def spec_of(model: dict[str, Any], pre_tokenizer: dict[str, Any], decoder: dict[str, Any] | None) -> dict[str, Any]:
    added = [{"id": number, "content": token, **ADDED} for number, token in enumerate(SPECIAL)]
    parts = {"truncation": None, "padding": None, "normalizer": None, "post_processor": None}
    return {"version": "1.0", **parts, "added_tokens": added, "pre_tokenizer": pre_tokenizer, "decoder": decoder, "model": model}


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
IDS = {word: number for number, word in enumerate((*SPECIAL, *LETTERS))}
UNIGRAM = spec_of(
    {
        "type": "Unigram",
        "unk_id": 2,
        "byte_fallback": False,
        "vocab": [[word, 0.0 if word in SPECIAL else -len(word) - 2.0] for word in IDS],
    },
    METASPACE,
    METASPACE,
)
WORD_LEVEL = spec_of({"type": "WordLevel", "vocab": IDS, "unk_token": "<unk>"}, {"type": "WhitespaceSplit"}, None)


def vocabulary_of(spec: dict[str, Any]) -> Vocabulary:
    return Vocabulary("toy", Tokenizer.from_str(json.dumps(spec)), {"eos_token": "</s>", "pad_token": "<pad>"}, None)


@pytest.mark.parametrize("spec", [UNIGRAM, WORD_LEVEL], ids=["Unigram", "WordLevel"])
@pytest.mark.parametrize("token", SPECIAL)
def test_a_typed_control_token_is_text(spec: dict[str, Any], token: str) -> None:
    """The library's own way to leave special tokens alone finds them in the vocabulary: the fault that this is about."""
    vocabulary = vocabulary_of(spec)
    vocabulary.backend.encode_special_tokens = True
    assert IDS[token] in vocabulary.backend.encode(f"the {token} a", add_special_tokens=False).ids
    ids = choose_engine(vocabulary).first.encode([f"the {token} a"]).ids.tolist()
    structural = set(vocabulary.control.values()) - {IDS["<unk>"]}
    assert structural.isdisjoint(ids)
    if spec is UNIGRAM:
        assert ids == [IDS["▁the"], IDS["▁"], *(IDS[char] for char in token), IDS["▁a"]]
        assert vocabulary.decode(ids) == f" the {token} a"


@pytest.mark.parametrize("spec", [UNIGRAM, WORD_LEVEL], ids=["Unigram", "WordLevel"])
def test_other_text_keeps_its_ids(spec: dict[str, Any]) -> None:
    texts = ["the a the", "", "abc the. Ω a", "the" * 5]
    vocabulary = vocabulary_of(spec)
    expected = [each.ids for each in vocabulary.backend.encode_batch(texts, add_special_tokens=False)]
    found = choose_engine(vocabulary).first.encode(texts)
    assert [ids.tolist() for ids in np.split(found.ids, found.offsets[1:-1])] == expected
    assert vocabulary.unknown_id == IDS["<unk>"]


BYTES = {
    **UNIGRAM,
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, METASPACE]},
    "model": {
        **UNIGRAM["model"],
        "byte_fallback": True,
        "vocab": [*UNIGRAM["model"]["vocab"], *([f"<0x{byte:02X}>", -20.0] for byte in range(256)), *([char, -5.0] for char in "0A")],
    },
}


@pytest.mark.parametrize("text", ["a <0x0A> a", "<0x0A>", "<<0x00><0xA0>>", "<0x0a> Ω\n<0x0A", "é<0xFF"])
def test_a_typed_byte_is_text(text: str) -> None:
    """`<0x0A>` in a text became a line break, which every check passed: the library finds the piece for a byte in the vocabulary."""
    vocabulary = vocabulary_of(BYTES)
    ids = choose_engine(vocabulary).first.encode([text]).ids.tolist()
    assert vocabulary.decode(ids) == f" {text}"
    assert "<0x0A>" not in text or vocabulary.decode(vocabulary.backend.encode(text, add_special_tokens=False).ids) != f" {text}"


def test_what_needs_no_change_has_none() -> None:
    spec = spec_of({"type": "BPE", "vocab": IDS, "merges": [], "unk_token": None}, METASPACE, None)
    assert ordinary(spec) == spec and vocabulary_of(spec).unknown_id is None


def tokenizer_in(folder: Path) -> Path:
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(UNIGRAM))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "pad_token": "<pad>"}))
    return folder


def test_pretraining_ends_documents_where_they_end(tmp_path: Path) -> None:
    """A typed ``</s>`` ended the document in the stream, and what followed began another one. What has no piece refuses its document."""
    source = jsonl(tmp_path / "docs.jsonl", [{"text": "the </s> a <s> the"}, {"text": "the Ω a"}])
    domain = {"docs": {"files": [str(source)], "schema": "text"}}
    workspace = workspace_in(
        tmp_path / "work", minimal("pretrain", domain, tokenizer=str(tokenizer_in(tmp_path / "unigram")), test_fraction=0)
    )
    build(workspace, "pretrain_raw", "docs")
    published = build(workspace, "pretrain_tokens", "docs")
    ids = open_stream(published.directory, "docs_train").record(0, "tokens").tolist()
    assert ids.count(IDS["</s>"]) == 1 and ids[-1] == IDS["</s>"] and IDS["<s>"] not in ids
    assert [(refusal.id, refusal.reason) for refusal in refusals(published)] == [("docs.jsonl:2", "lossy_tokenizer")]


# Quick JSON is the standard library's to the letter.

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=5) | st.sampled_from(["\x7f", "\u2028", "</s>", '"\\\b\f\n\r\t\x1f'])
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats() | st.sampled_from([1e16, 1e-5, 0.1, True])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4)
)
LARGE = st.dictionaries(TEXTS, st.integers(0, 1 << 24), max_size=6) | st.lists(TEXTS | st.lists(TEXTS, max_size=3), max_size=6)


@given(VALUES | LARGE | st.dictionaries(TEXTS, LARGE, max_size=3))
def test_it_is_what_the_standard_library_writes(value: Any) -> None:
    assert sorted_json(value) == json.dumps(value, sort_keys=True, ensure_ascii=False)
