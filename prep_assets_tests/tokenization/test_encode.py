"""Ids and loss weights: worked out by the byte, in batches, and against the projects that define them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from prep_assets.config.mask import MaskPolicy
from prep_assets.samples import ASSISTANT, COMPLETION, PROMPT, TEXT, USER, Region, Sample, Turn, document, turn
from prep_assets.text.encode import Encoded, Encoder
from prep_assets.text.engines import Engines, choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.render import render
from prep_assets.text.spans import Rendered
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.effort import examples
from prep_assets_tests.tokenization.loaded import NO_NONCHARACTERS, TEXT_WITH_CONTROL, WORDS, Chat, Loaded, Open, chats, variant
from prep_assets_tests.tokenization.loaded import TEXT as ANY_TEXT

Weighted = tuple[str, float]
"""Text, and the loss weight that each of its bytes has."""

TRAINED = MaskPolicy(mask={"assistant": "train", "completion": "train", "document": "train"})


@dataclass(frozen=True)
class Expected:
    """One example. `border` says that a token lies half inside a trained region, so that there is no right weight for it."""

    ids: list[int]
    loss: list[float]
    border: bool


def expected(loaded: Loaded, parts: Sequence[Weighted | tuple[int, float]]) -> Expected:
    """Tokens of text, cut at control tokens (given by their id), for a tokenizer whose ids stand for bytes."""
    ids: list[int] = []
    loss: list[float] = []
    border = False
    segment: list[Weighted] = []
    for part in [*parts, None]:
        if part is not None and isinstance(part[0], str):
            segment.append((part[0], part[1]))
            continue
        (tokens,) = loaded.ordinary(["".join(text for text, _ in segment)])
        weights = [weight for text, weight in segment for _ in text.encode()]
        for token, (weight, mixed) in zip(tokens, _weigh(loaded.vocabulary, tokens, segment, weights), strict=True):
            ids.append(token)
            loss.append(weight)
            border = border or mixed
        segment = []
        if part is not None and isinstance(part[0], int):
            ids.append(part[0])
            loss.append(part[1])
    return Expected(ids, loss, border)


def _weigh(
    vocabulary: Vocabulary, tokens: Sequence[int], segment: Sequence[Weighted], weights: Sequence[float]
) -> list[tuple[float, bool]]:
    """Weight of each token, and whether its bytes do not agree on one."""
    data = "".join(text for text, _ in segment).encode()
    table = vocabulary.token_bytes
    assert table is not None
    assert b"".join(table[token] for token in tokens) == data
    found, at = [], 0
    for token in tokens:
        own = weights[at : at + len(table[token])]
        untrained = next((i for i, weight in enumerate(own) if weight), len(own))
        white_space_first = not data[at : at + untrained].decode(errors="replace").strip()
        rest = set(own[untrained:])
        # a trained text that ends with white space, of which other tokens are left, stands before one that is not trained
        trained = next((i for i, weight in enumerate(own) if weight != own[0]), len(own))
        is_end = bool(found) and found[-1][0] == own[0] > 0 and not data[at : at + trained].decode(errors="replace").strip()
        fits = (white_space_first and len(rest) == 1) or (is_end and set(own[trained:]) == {0.0})
        found.append((own[-1], len(set(own)) > 1 and not fits))
        at += len(own)
    return found


def chatml(loaded: Loaded, chat: Chat, *, trained: Sequence[str] = ("assistant",), stop: bool = True) -> Expected:
    """A chat in ChatML: control tokens around every turn, whatever is typed in its content."""
    control = loaded.vocabulary.control
    parts: list[Weighted | tuple[int, float]] = []
    for role, content in chat:
        weight = float(role in trained and bool(content.strip()))
        parts += [
            (control["<|im_start|>"], 0.0),
            (f"{role}\n", 0.0),
            (content, weight),
            (control["<|im_end|>"], weight * stop),
            ("\n", 0.0),
        ]
    return expected(loaded, parts)


# Loss weights by the byte, control tokens that content imitates, and tokenizers whose ids are no bytes.

CONTROL = ["shipped", "smollm"]
"""Tokenizers with ChatML's control tokens."""


def sample_of(chat: Chat) -> Sample:
    return Sample(tuple(turn(role, content) for role, content in chat))


def encode_chatml(loaded: Loaded, chat: Chat, policy: MaskPolicy | None = None) -> Encoded:
    rendered = render(sample_of(chat), load_template("chatml", loaded.vocabulary))
    return Encoder(loaded.vocabulary, loaded.engines, policy or TRAINED, trains=False).encode([rendered])


def assert_is(found: Encoded, wanted: Expected) -> None:
    if wanted.border:
        assert [refusal.reason for _, refusal in found.refused] == ["mask_border_inside_token"]
    else:
        assert found.refused == ()
        assert found.ids.tolist() == wanted.ids
        assert found.loss.tolist() == wanted.loss


# chats


@settings(max_examples=examples(120), deadline=None)
@given(chat=chats(TEXT_WITH_CONTROL))
@example(chat=[("user", "<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>"), ("assistant", "No")])
@example(chat=[("user", "Hi"), ("assistant", "<|im_end|>")])
@example(chat=[("user", "Hi"), ("assistant", "<|im_end|><|im_start|>user\nHi<|im_end|>\n")])
@example(chat=[("user", "\n"), ("assistant", "\n\nHello\n")])
def test_control_tokens_are_the_templates_alone(shipped: Loaded, chat: Chat) -> None:
    """Whatever is typed: as many control tokens as the template wrote, and the weights of each byte as if nothing were special."""
    found = encode_chatml(shipped, chat)
    assert_is(found, chatml(shipped, chat))
    control = set(shipped.vocabulary.control.values())
    assert sum(token in control for token in found.ids.tolist()) == 2 * len(chat) * len(found.kept)


@settings(max_examples=examples(60), deadline=None)
@given(chat=chats(TEXT_WITH_CONTROL), trained=st.sets(st.sampled_from(["system", "user", "assistant"])), stop=st.booleans())
def test_policies(shipped: Loaded, chat: Chat, trained: set[str], stop: bool) -> None:
    policy = MaskPolicy(mask=dict.fromkeys(sorted(trained), "train"), train_on_eos="turn" if stop else "none")
    assert_is(encode_chatml(shipped, chat, policy), chatml(shipped, chat, trained=sorted(trained), stop=stop))


@pytest.mark.parametrize("name", CONTROL)
def test_a_typed_control_token_trains_as_text(open_tokenizer: Open, name: str) -> None:
    loaded = open_tokenizer(name)
    found = encode_chatml(loaded, [("user", "How does a turn end?"), ("assistant", "With <|im_end|>, so.")])
    trained = found.ids[found.loss != 0].tolist()
    assert loaded.vocabulary.decode(trained) == "With <|im_end|>, so.<|im_end|>"
    assert [token for token in trained if token in loaded.vocabulary.control.values()] == trained[-1:]


# regions of any weight

WEIGHT = st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])
FULL_WORDS = [word for word in WORDS if word.strip()]
REGION_TEXT = st.sampled_from(FULL_WORDS) | st.text(NO_NONCHARACTERS, max_size=4).filter(str.strip)
REGIONS = st.lists(st.tuples(REGION_TEXT, WEIGHT), min_size=1, max_size=4)


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(REGIONS, min_size=1, max_size=3), st.sampled_from(["turn", "none"]))
def test_regions_keep_their_weights(shipped: Loaded, turns: list[list[tuple[str, float | None]]], eos: str) -> None:
    """A stop token has the weight of the region before it."""
    control = shipped.vocabulary.control
    sample = Sample(tuple(Turn(ASSISTANT, tuple(Region(TEXT, text, weight) for text, weight in regions)) for regions in turns))
    parts: list[tuple[str, float] | tuple[int, float]] = []
    for regions in turns:
        weighted = [(text, 1.0 if weight is None else weight) for text, weight in regions]
        stop = weighted[-1][1] if eos == "turn" else 0.0
        parts += [(control["<|im_start|>"], 0.0), ("assistant\n", 0.0), *weighted, (control["<|im_end|>"], stop), ("\n", 0.0)]
    rendered = render(sample, load_template("chatml", shipped.vocabulary))
    policy = MaskPolicy(train_on_eos="turn" if eos == "turn" else "none")
    found = Encoder(shipped.vocabulary, shipped.engines, policy, trains=False).encode([rendered])
    assert_is(found, expected(shipped, parts))


# prompts with completions, and documents


@settings(max_examples=examples(120), deadline=None)
@given(
    st.lists(st.sampled_from([word for word in WORDS if word]) | st.text(NO_NONCHARACTERS, min_size=1, max_size=4), min_size=2, max_size=6)
)
@example(["Hel", "lo"])
@example([" ", " ", " ", "0 ", " "])
@example([" ", "t", "he"])
@example(["Question: ", "4"])
def test_borders_without_control_tokens(shipped: Loaded, texts: list[str]) -> None:
    """A token that lies across a border is refused, but for white space in front of an answer, also where a whole answer is inside it."""
    roles = [PROMPT if number % 2 == 0 else COMPLETION for number in range(len(texts))]
    sample = Sample(tuple(turn(role, text) for role, text in zip(roles, texts, strict=True)))
    found = Encoder(shipped.vocabulary, shipped.engines, TRAINED, trains=False).encode([render(sample, None)])
    assert_is(found, expected(shipped, [(text, float(role == COMPLETION)) for role, text in zip(roles, texts, strict=True)]))


def test_white_space_before_an_answer_is_trained_with_its_first_word(shipped: Loaded) -> None:
    template = ChatTemplate(
        "own", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}<|endoftext|>", shipped.vocabulary.special
    )
    rendered = render(sample_of([("user", "the"), ("assistant", "the")]), template)
    found = Encoder(shipped.vocabulary, shipped.engines, TRAINED).encode([rendered])
    assert len(shipped.ordinary([" the"])[0]) == 1
    assert shipped.vocabulary.decode(found.ids[found.loss != 0]) == " the\n<|endoftext|>"


def test_the_stop_token_of_one_turn_is_not_that_of_the_next(shipped: Loaded) -> None:
    """Where only white space that somebody else wrote stands between an answer and a control token."""
    template = ChatTemplate("own", "{% for m in messages %}{{ m.content }}\n{% endfor %}<|endoftext|>", shipped.vocabulary.special)
    rendered = render(sample_of([("assistant", "the"), ("user", "the")]), template)
    found = Encoder(shipped.vocabulary, shipped.engines, TRAINED).encode([rendered])
    assert shipped.vocabulary.decode(found.ids[found.loss != 0]) == "the"


# tokenizers whose ids do not stand for bytes


NFC = {"type": "NFC"}
CHANGING = {"type": "Sequence", "normalizers": [NFC, {"type": "Replace", "pattern": {"String": "\ue123\ue123"}, "content": ""}]}


def normalizing(loaded: Loaded, **changes: object) -> Callable[[list[Rendered], MaskPolicy], Encoded]:
    """The same tokenizer with a normalizer in front that may change more than how characters are composed: all spans come from the library's
    offsets."""
    vocabulary: Vocabulary = variant(loaded.vocabulary, normalizer=CHANGING, **changes)
    assert vocabulary.byte_lengths is None
    engines = choose_engine(vocabulary)
    return lambda batch, policy: Encoder(vocabulary, engines, policy, trains=False).encode(batch)


@pytest.fixture(scope="module")
def shipped_normalizing(shipped: Loaded) -> Callable[[list[Rendered], MaskPolicy], Encoded]:
    trimming = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return normalizing(shipped, post_processor=trimming)


@pytest.fixture(scope="module")
def mistral_normalizing(open_tokenizer: Open) -> Callable[[list[Rendered], MaskPolicy], Encoded]:
    return normalizing(open_tokenizer("mistral_v3"))


COMPOSED = [word for word in WORDS if word not in ("e\u0301", "▁")]
COMPOSED_TEXT = st.lists(st.sampled_from(COMPOSED), max_size=5).map("".join)


def plain_text(texts: list[str]) -> Rendered:
    return render(Sample(tuple(turn(PROMPT if i % 2 == 0 else COMPLETION, text) for i, text in enumerate(texts))), None)


@settings(max_examples=examples(80), deadline=None)
@given(chat=chats(COMPOSED_TEXT), texts=st.lists(COMPOSED_TEXT, min_size=1, max_size=3), eos=st.sampled_from(["turn", "none"]))
@example(chat=[("user", "👍"), ("assistant", "👍")], texts=["👍", "👍", "中文"], eos="none")
def test_offsets_give_the_weights_that_bytes_give(
    shipped: Loaded, shipped_normalizing: Callable[[list[Rendered], MaskPolicy], Encoded], chat: Chat, texts: list[str], eos: str
) -> None:
    """For text that the normalization leaves alone both ways must agree, also where a character is split over tokens."""
    policy = MaskPolicy(train_on_eos="turn" if eos == "turn" else "none")
    batch = [render(sample_of(chat), load_template("chatml", shipped.vocabulary)), plain_text(texts)]
    by_bytes = Encoder(shipped.vocabulary, shipped.engines, policy, trains=False).encode(batch)
    by_offsets = shipped_normalizing(batch, policy)
    assert by_offsets.ids.tolist() == by_bytes.ids.tolist()
    assert by_offsets.loss.tolist() == by_bytes.loss.tolist()
    assert by_offsets.kept.tolist() == by_bytes.kept.tolist()


@settings(max_examples=examples(80), deadline=None)
@given(chat=chats(COMPOSED_TEXT), texts=st.lists(COMPOSED_TEXT, min_size=1, max_size=3))
def test_offsets_follow_a_space_that_only_a_documents_start_has(
    open_tokenizer: Open, mistral_normalizing: Callable[[list[Rendered], MaskPolicy], Encoded], chat: Chat, texts: list[str]
) -> None:
    loaded = open_tokenizer("mistral_v3")
    template = replace(load_template("plain", loaded.vocabulary), source="{% for m in messages %}{{ m.content }}</s>{% endfor %}")
    batch = [render(sample_of(chat), template), plain_text(texts)]
    by_bytes = Encoder(loaded.vocabulary, loaded.engines, TRAINED, trains=False).encode(batch)
    by_offsets = mistral_normalizing(batch, TRAINED)
    assert by_offsets.ids.tolist() == by_bytes.ids.tolist()
    assert by_offsets.loss.tolist() == by_bytes.loss.tolist()


@settings(max_examples=examples(80), deadline=None)
@given(chat=chats(ANY_TEXT), texts=st.lists(ANY_TEXT, min_size=1, max_size=3))
@example(chat=[("user", "e\u0301"), ("assistant", "cafe\u0301 e\u0323\u0301 ok")], texts=["caf\u00e9", "e\u0301"])
def test_only_texts_that_are_not_composed_need_offsets(
    shipped: Loaded, shipped_normalizing: Callable[[list[Rendered], MaskPolicy], Encoded], chat: Chat, texts: list[str]
) -> None:
    """A tokenizer that composes has its table of bytes; text that it changes has the library's offsets."""
    composing = variant(shipped.vocabulary, normalizer=NFC)
    assert composing.byte_lengths is not None
    batch = [render(sample_of(chat), load_template("chatml", shipped.vocabulary)), plain_text(texts)]
    found = Encoder(composing, choose_engine(composing), TRAINED, trains=False).encode(batch)
    by_offsets = shipped_normalizing(batch, TRAINED)
    assert (found.ids.tolist(), found.loss.tolist()) == (by_offsets.ids.tolist(), by_offsets.loss.tolist())
    assert found.kept.tolist() == by_offsets.kept.tolist()


def test_normalized_characters_are_trained(shipped_normalizing: Callable[[list[Rendered], MaskPolicy], Encoded], shipped: Loaded) -> None:
    """``e`` and an accent are two characters of the text and one of what is tokenized."""
    rendered = render(sample_of([("user", "e\u0301"), ("assistant", "caf" + "e\u0301")]), load_template("chatml", shipped.vocabulary))
    found = shipped_normalizing([rendered], TRAINED)
    assert shipped.vocabulary.decode(found.ids[found.loss != 0]) == "café<|im_end|>"


# A batch is its examples, one after the other, and each refusal says which example and why.

KINDS = ["shipped", "smollm", "mistral_v3", "normalizing"]


@pytest.fixture(scope="module", params=KINDS)
def tools(request: pytest.FixtureRequest, open_tokenizer: Open) -> tuple[Vocabulary, Engines]:
    if request.param == "normalizing":
        vocabulary = variant(open_tokenizer("shipped").vocabulary, normalizer={"type": "NFC"})
        return vocabulary, choose_engine(vocabulary)
    loaded = open_tokenizer(request.param)
    return loaded.vocabulary, loaded.engines


TURNS = st.lists(TEXT_WITH_CONTROL, max_size=3).map(
    lambda texts: Sample(tuple(turn(PROMPT if i % 2 == 0 else COMPLETION, text) for i, text in enumerate(texts)) or document("").turns)
)
CHATS = chats(TEXT_WITH_CONTROL).map(lambda chat: Sample(tuple(turn(role, content) for role, content in chat)))
EXAMPLES = st.lists(TURNS | CHATS | TEXT_WITH_CONTROL.map(document), max_size=6)


def rendered(samples: Sequence[Sample], template: ChatTemplate) -> list[Rendered]:
    return [render(sample, template if sample.turns[0].role in ("system", "user") else None) for sample in samples]


@settings(max_examples=examples(60), deadline=None)
@given(samples=EXAMPLES, limit=st.none() | st.integers(1, 60), trains=st.booleans())
@example(
    samples=[Sample((turn(PROMPT, "a"), turn(COMPLETION, "▁"))), Sample((turn(PROMPT, "Hi"), turn(COMPLETION, "\x04")))] * 2,
    limit=None,
    trains=True,
)
@example(samples=[document(""), document("a"), document("")], limit=None, trains=False)
def test_a_batch_is_its_examples_one_after_the_other(
    tools: tuple[Vocabulary, Engines], samples: list[Sample], limit: int | None, trains: bool
) -> None:
    vocabulary, engines = tools
    encoder = Encoder(vocabulary, engines, TRAINED, max_seq_len=limit, trains=trains)
    batch = rendered(samples, load_template("chatml", vocabulary))
    whole, alone = encoder.encode(batch), [encoder.encode([one]) for one in batch]
    assert whole.ids.tolist() == [token for one in alone for token in one.ids.tolist()]
    assert whole.loss.tolist() == [weight for one in alone for weight in one.loss.tolist()]
    assert np.diff(whole.offsets).tolist() == [length for one in alone for length in np.diff(one.offsets).tolist()]
    assert whole.kept.tolist() == [position for position, one in enumerate(alone) if len(one.kept)]
    refused = [(position, *_said(refusal)) for position, one in enumerate(alone) for _, refusal in one.refused]
    assert [(position, *_said(refusal)) for position, refusal in whole.refused] == refused
    assert sorted([*whole.kept.tolist(), *(position for position, _ in whole.refused)]) == list(range(len(batch)))


def _said(refusal: Exception) -> tuple[str, str, str]:
    return refusal.reason, refusal.detail, refusal.stage  # type: ignore[attr-defined]


# each reason, on purpose


def cut_word(loaded: Loaded) -> tuple[str, str, str]:
    """A word that is one token, in three parts."""
    table = loaded.vocabulary.token_bytes
    assert table is not None
    word = next(
        text.decode() for text in table if len(text) >= 5 and text.isalpha() and loaded.ordinary([text.decode()]) == [[table.index(text)]]
    )
    return word[:1], word[1:3], word[3:]


def parts(*texts: str) -> Sample:
    return Sample(tuple(turn(PROMPT if i % 2 == 0 else COMPLETION, text) for i, text in enumerate(texts)))


def test_every_reason_in_one_batch(open_tokenizer: Open) -> None:
    """smollm has no token for U+0004, so its text cannot be given back."""
    loaded = open_tokenizer("smollm")
    first, middle, last = cut_word(loaded)
    good, bad_half, inside = parts("Q:\n", "A"), parts(first, middle + last), parts(first, middle, last)
    untrained = Sample((Turn(USER, (Region(TEXT, "Hi"),)),))
    samples = [good, document("word " * 50), untrained, document("a\x04b"), bad_half, inside, good, document(""), good]
    batch = rendered(samples, load_template("chatml", loaded.vocabulary))
    found = Encoder(loaded.vocabulary, loaded.engines, TRAINED, max_seq_len=20).encode(batch)
    assert [(position, refusal.reason, refusal.stage) for position, refusal in found.refused] == [
        (1, "too_long", "tokenize"),
        (2, "nothing_to_train", "tokenize"),
        (3, "lossy_tokenizer", "tokenize"),
        (4, "mask_border_inside_token", "tokenize"),
        (5, "mask_border_inside_token", "tokenize"),
        (7, "nothing_to_train", "tokenize"),
    ]
    details = {position: refusal.detail for position, refusal in found.refused}
    (long,) = loaded.ordinary(["word " * 50])
    assert details[1] == f"{len(long)} tokens, max_seq_len is 20"
    assert all(repr(first + middle + last) in details[position] for position in (4, 5))
    (tokens,) = loaded.ordinary(["Q:\nA"])
    assert found.kept.tolist() == [0, 6, 8]
    assert found.ids.tolist() == tokens * 3
    assert found.offsets.tolist() == [0, len(tokens), 2 * len(tokens), 3 * len(tokens)]
    assert found.loss.tolist() == [*[0.0] * (len(tokens) - 1), 1.0] * 3


@pytest.mark.parametrize("length", [1, 7, 19, 20])
def test_an_example_of_just_the_limit_is_kept(shipped: Loaded, length: int) -> None:
    text = "a" + " a" * 19
    (tokens,) = shipped.ordinary([text])
    assert len(tokens) == 20
    encoder = Encoder(shipped.vocabulary, shipped.engines, TRAINED, max_seq_len=length)
    found = encoder.encode([render(document(text), None)])
    assert [refusal.reason for _, refusal in found.refused] == ([] if length == 20 else ["too_long"])


@pytest.mark.parametrize("text", ["a▁b", "▁", "▁▁ Hello"])
def test_sentencepiece_loses_its_own_space_character(open_tokenizer: Open, text: str) -> None:
    loaded = open_tokenizer("mistral_v3")
    assert loaded.vocabulary.decode(loaded.engines.rest.encode([text]).ids) != text
    found = Encoder(loaded.vocabulary, loaded.engines, TRAINED).encode([render(document(text), None)])
    assert [refusal.reason for _, refusal in found.refused] == ["lossy_tokenizer"]


def test_a_lossy_example_does_not_touch_the_next(open_tokenizer: Open) -> None:
    """Its tokens are three bytes short of its text, and its end is trained."""
    loaded = open_tokenizer("mistral_v3")
    batch = [render(parts("Hi", " a▁"), None), render(parts("Hello there.", "\nYes"), None)]
    found = Encoder(loaded.vocabulary, loaded.engines, TRAINED).encode(batch)
    assert [(position, refusal.reason) for position, refusal in found.refused] == [(0, "lossy_tokenizer")]
    assert found.kept.tolist() == [1]
    assert loaded.vocabulary.decode(found.ids[found.loss != 0]) == "\nYes"


# Ids and masks against the projects that define them: train-llm-from-scratch and transformers.

END_OF_TEXT = 50256


def encode(loaded: Loaded, template: str, batch: Iterable[Chat], **options: Any) -> Encoded:
    chosen = load_template(template, loaded.vocabulary)
    encoder = Encoder(loaded.vocabulary, loaded.engines, TRAINED, **options)
    return encoder.encode([render(Sample(tuple(turn(role, content) for role, content in chat)), chosen) for chat in batch])


# train-llm-from-scratch


def test_golden_vector_of_train_llm_from_scratch(open_tokenizer: Open) -> None:
    found = encode(open_tokenizer("gpt2"), "plain", [[("user", "What is 2+2?"), ("assistant", "<answer>4</answer>")]])
    question = [27, 91, 7220, 91, 29, 198, 2061, 318, 362, 10, 17, 30, 50256]
    answer = [27, 91, 562, 10167, 91, 29, 198, 27, 41484, 29, 19, 3556, 41484, 29, 50256]
    assert found.ids.tolist() == question + answer
    assert found.loss.tolist() == [0] * 20 + [1] * 8
    assert (found.offsets.tolist(), found.kept.tolist(), found.refused) == ([0, 28], [0], ())
    assert (found.ids.dtype.name, found.loss.dtype.name, found.offsets.dtype.name) == ("uint32", "float32", "int64")


def gsm8k(path: Path) -> list[Chat]:
    """The project's own reading of GSM8K: the notes out, the reasoning and the final answer each in a tag."""
    listed: list[Chat] = []
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        answer = re.sub(r"<<[^>]*>>", "", row["answer"]).strip()
        reasoning, final = answer.rsplit("####", 1)
        completion = f"<think>{reasoning.strip()}</think><answer>{final.strip()}</answer>"
        listed.append([("user", row["question"].strip()), ("assistant", completion)])
    return listed


def test_every_gsm8k_row_is_encoded_as_train_llm_from_scratch_does(open_tokenizer: Open, real_data: Path) -> None:
    loaded, rows = open_tokenizer("gpt2"), gsm8k(real_data / "gsm8k" / "train.jsonl")
    assert len(rows) == 7473
    found = encode(loaded, "plain", rows)
    assert found.kept.tolist() == list(range(7473))
    headers = dict(zip(("user", "assistant"), loaded.ordinary(["<|user|>\n", "<|assistant|>\n"]), strict=True))
    contents = iter(loaded.ordinary(content for chat in rows for _, content in chat))
    ids: list[int] = []
    mask: list[int] = []
    lengths = []
    for chat in rows:
        before = len(ids)
        for role, _ in chat:
            words = next(contents)
            ids += [*headers[role], *words, END_OF_TEXT]
            mask += [*[0] * len(headers[role]), *[int(role == "assistant")] * (len(words) + 1)]
        lengths.append(len(ids) - before)
    assert found.ids.tolist() == ids
    assert found.loss.tolist() == mask
    assert np.diff(found.offsets).tolist() == lengths


# transformers


def templates(loaded: Loaded) -> list[str]:
    return ["plain", "chatml", *(["tokenizer"] if loaded.vocabulary.chat_template else [])]


@settings(max_examples=examples(60), deadline=None)
@given(chat=chats(ANY_TEXT))
def test_ids_are_those_of_apply_chat_template(tokenizer: Loaded, chat: Chat) -> None:
    """For chats in which nobody typed a control token; there transformers would take it for one."""
    assume(not any(text in content for _, content in chat for text in tokenizer.vocabulary.control))
    for name in templates(tokenizer):
        found = encode(tokenizer, name, [chat], trains=False)
        listed = [{"role": role, "content": content} for role, content in chat]
        source = load_template(name, tokenizer.vocabulary).source
        ids = tokenizer.transformers.apply_chat_template(listed, chat_template=source, tokenize=True, return_dict=False)
        if found.refused:
            reason = found.refused[0][1].reason
            assert reason in ("lossy_tokenizer", "mask_border_inside_token")
            if reason == "lossy_tokenizer":
                assert (
                    tokenizer.vocabulary.decode(ids).strip()
                    != tokenizer.transformers.apply_chat_template(listed, chat_template=source, tokenize=False).strip()
                )
        else:
            assert found.ids.tolist() == ids


@settings(max_examples=examples(100), deadline=None)
@given(chat=chats(ANY_TEXT, rounds=3))
def test_masks_are_those_of_return_assistant_tokens_mask(shipped: Loaded, chat: Chat) -> None:
    """The shipped template says with ``{% generation %}`` what an assistant generates. An answer without a word is not trained here."""
    assume(all(content.strip() for role, content in chat if role == "assistant"))
    assume(not any(text in content for _, content in chat for text in shipped.vocabulary.control))
    found = encode(shipped, "tokenizer", [chat])
    reference = shipped.transformers.apply_chat_template(
        [{"role": role, "content": content} for role, content in chat], tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    assert not found.refused
    assert found.ids.tolist() == reference["input_ids"]
    assert found.loss.tolist() == reference["assistant_masks"]
