"""Fill-in-the-middle: whatever is cut, the parts are the document, and nothing else than seed and record decides where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import ConfigError, Refused
from prep_assets.proofs.documents import parts_in_order
from prep_assets.text.documents import Cut, FillInTheMiddle, cut_of, sentinels_of
from prep_assets.text.engines import choose_engine
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.tokenization.loaded import NAMES, TEXT_WITH_CONTROL, Loaded, variant

TOKENS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
Make = Callable[..., FillInTheMiddle]


def with_sentinels(vocabulary: Vocabulary, *, special: bool = True, **changes: object) -> Vocabulary:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    added = [{"id": vocabulary.size + number, "content": text, **flags} for number, text in enumerate(TOKENS)]
    return variant(vocabulary, added_tokens=[*vocabulary.spec["added_tokens"], *added], **changes)


@pytest.fixture(scope="module", params=NAMES)
def make(request: pytest.FixtureRequest, open_tokenizer: Callable[[str], Loaded]) -> Make:
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
def test_the_parts_are_the_document_byte_for_byte(data: st.DataObject, make: Make) -> None:
    texts = data.draw(st.lists(TEXT_WITH_CONTROL, max_size=6))
    records = [f"a.jsonl:{data.draw(st.integers(0, 10**6))}" for _ in texts]
    rates = st.floats(0, 1)
    fim = make(data.draw(rates), data.draw(rates), data.draw(st.integers(0, 3)))
    whole = listed(make(rate=0.0), texts, records)
    for text, ids, ordinary in zip(texts, listed(fim, texts, records), whole, strict=True):
        if document(ordinary, fim).strip() != text.encode().strip():
            continue  # the tokenizer has no token for some character, and the build refuses the record (lossy_tokenizer)
        found, is_cut = document(ids, fim), fim.sentinels.prefix in ids
        # SentencePiece puts a space in front of a document that begins with a word; of a part, never
        allowed = {text.encode()} if is_cut or fim.vocabulary.prefix_space == "never" else {text.encode(), b" " + text.encode()}
        assert found in allowed
        assert int(fim.byte_lengths()[ids].sum()) == len(found)


@given(texts=st.lists(TEXT_WITH_CONTROL, max_size=6))
def test_a_rate_of_nothing_is_ordinary_tokenization(texts: list[str], make: Make) -> None:
    fim = make(rate=0.0)
    plain, cut = fim.engines.first.encode(texts), fim.encode(texts, [f"a:{i}" for i in range(len(texts))])
    assert np.array_equal(plain.ids, cut.ids)
    assert np.array_equal(plain.offsets, cut.offsets)


def test_tokens_depend_on_seed_and_record_and_on_nothing_else(make: Make) -> None:
    texts = [f"def f{i}(x):\n    return x + {i}\n" * 3 for i in range(60)]
    records = [f"code.jsonl:{i}" for i in range(60)]
    whole = listed(make(rate=0.5), texts, records)
    assert whole == [listed(make(rate=0.5), [text], [record])[0] for text, record in zip(texts, records, strict=True)]
    np.random.seed(1)  # nobody else's generator has a say
    assert whole[::-1] == listed(make(rate=0.5), texts[::-1], records[::-1])
    assert whole != listed(make(rate=0.5, seed=1), texts, records)
    assert whole != listed(make(rate=0.5), texts, [f"other.jsonl:{i}" for i in range(60)])


@pytest.mark.parametrize("suffix_first", [False, True])
def test_both_orders_by_hand(shipped: Loaded, suffix_first: bool) -> None:
    vocabulary = with_sentinels(shipped.vocabulary)
    prefix, suffix, middle = (vocabulary.backend.token_to_id(text) for text in TOKENS)
    fim = FillInTheMiddle(vocabulary, choose_engine(vocabulary), sentinels_of(vocabulary, *TOKENS), 1.0, float(suffix_first), 3)
    text, record = "The answer is 12, isn't it?", "a.jsonl:7"
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
