"""Engines give the reference's ids for ordinary text, and the gate lets no other through."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.text import engines, suspects
from prep_assets.text import engines as reference_engine
from prep_assets.text.engines import BETWEEN, CUT, GigatokenEngine, ReferenceEngine, RoutedEngine, choose_engine
from prep_assets.text.ids import Engine, Flat
from prep_assets.text.suspects import edge_set, typed
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.effort import examples
from prep_assets_tests.tokenization.loaded import TEXT_WITH_CONTROL, Loaded, variant

Open = Callable[[str], Loaded]
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
def test_engines_agree_on_the_edge_set(open_tokenizer: Open, name: str) -> None:
    loaded = open_tokenizer(name)
    assert lists(loaded.engines.first.encode(edge_set())) == loaded.ordinary(edge_set())


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


def test_nothing_in_nothing_out(tokenizer: Loaded) -> None:
    for engine in (tokenizer.engines.first, tokenizer.engines.rest, tokenizer.engines.reference):
        assert lists(engine.encode([])) == []
        assert lists(engine.encode([""])) == [[]]
        assert lists(engine.encode(["", "a", ""])) == [[], engine.encode(["a"]).ids.tolist(), []]


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


def test_a_model_that_is_open_is_not_read_again(shipped: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    encode = reference_engine.msgspec.json.encode
    monkeypatch.setattr(reference_engine.msgspec.json, "encode", lambda form: sizes.append(len(form["model"]["vocab"])) or encode(form))
    spec, backend = shipped.vocabulary.spec, shipped.vocabulary.backend
    _ = ReferenceEngine(spec, backend)._tokenizer
    assert sizes == [0]
    first, *others = spec["added_tokens"]
    moved = {**spec, "added_tokens": [{**first, "id": first["id"] + 7}, *others]}
    found, expected = ReferenceEngine(moved, backend), ReferenceEngine(spec)
    assert found._tokenizer.get_vocab() == expected._tokenizer.get_vocab()
    assert sizes[1:] == [0, len(spec["model"]["vocab"]), len(spec["model"]["vocab"])], "ids that do not fit: it is read whole"


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
