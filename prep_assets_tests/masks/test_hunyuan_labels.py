"""Labels of `HunyuanInstructionHandler`, as MindSpeed-LLM publishes it (`mindspeed_llm/tasks/preprocess/data_handler.py`, May 2025 and August 2026 alike).

It renders by the tokenizer's own template, whose answers stand between ``<|extra_0|>`` and ``<|eos|>``, and labels by looking for these two ids: from the
n-th of the one to the n-th of the other, both included. Nothing is shifted there; the trainer shifts.
"""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from prep_assets.samples import ASSISTANT, SYSTEM, USER, Sample, turn
from prep_assets.text.engines import choose_engine
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary, load_vocabulary
from prep_assets_tests.masks.bound import SHIPPED, Bound, assert_proven, with_options

BEGIN, ASKS, ANSWERS, END = "<|startoftext|>", "<|extra_4|>", "<|extra_0|>", "<|eos|>"
SOURCE = """
{%- for m in messages -%}
  {%- if m.role == 'system' -%}{{- '<|startoftext|>' + m.content + '<|extra_4|>' -}}
  {%- elif m.role == 'assistant' -%}{{- m.content + '<|eos|>' -}}
  {%- else -%}{{- '' if loop.previtem is defined and loop.previtem.role == 'system' else '<|startoftext|>' -}}{{- m.content + '<|extra_0|>' -}}
  {%- endif -%}
{%- endfor -%}
""".strip()


@pytest.fixture(scope="module")
def hunyuan() -> Bound:
    opened = load_vocabulary(str(SHIPPED))
    backend = Tokenizer.from_str(opened.backend.to_str())
    backend.add_special_tokens([BEGIN, ASKS, ANSWERS, END])
    vocabulary = Vocabulary("hunyuan", backend, {"eos_token": END}, None)
    return Bound(vocabulary, choose_engine(opened), ChatTemplate("own", SOURCE, vocabulary.special, {}, tuple(sorted(vocabulary.control))))


def theirs(ids: list[int], vocabulary: Vocabulary) -> list[bool]:
    """Which ids they label."""
    starts, ends = ([at for at, token in enumerate(ids) if token == vocabulary.control[text]] for text in (ANSWERS, END))
    labelled = [False] * len(ids)
    for start, end in zip(starts, ends, strict=False):
        labelled[start : end + 1] = [True] * len(labelled[start : end + 1])
    return labelled


def shown(ids: list[int], chosen: list[bool], vocabulary: Vocabulary) -> str:
    """What is trained in brackets."""
    found = "".join(
        f"[{vocabulary.decode([token])}]" if trained else vocabulary.decode([token]) for token, trained in zip(ids, chosen, strict=True)
    )
    return found.replace("][", "")


ROUND = Sample((turn(SYSTEM, "Be kind."), turn(USER, "Hi"), turn(ASSISTANT, "Hello!")))
ROUNDS = Sample((*ROUND.turns, turn(USER, "Bye"), turn(ASSISTANT, "See you."), turn(USER, "And?"), turn(ASSISTANT, " Well.")))
BARE = Sample(ROUND.turns[1:])
GOLDEN = {
    "one round": (ROUND, f"{BEGIN}Be kind.{ASKS}Hi[{ANSWERS}Hello!{END}]"),
    "more": (
        ROUNDS,
        f"{BEGIN}Be kind.{ASKS}Hi[{ANSWERS}Hello!{END}]{BEGIN}Bye[{ANSWERS}See you.{END}]{BEGIN}And?[{ANSWERS} Well.{END}]",
    ),
    "no system": (BARE, f"{BEGIN}Hi[{ANSWERS}Hello!{END}]"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_headers_are_labelled(hunyuan: Bound, name: str) -> None:
    """``train_headers: true`` gives their labels. Without it a model is not taught ``<|extra_0|>``, which every prompt ends with."""
    sample, golden = GOLDEN[name]
    with_headers, without = (assert_proven(hunyuan, [sample], with_options(train_headers=each)) for each in (True, False))
    ids = with_headers.ids(0).tolist()
    ours = [(outcome.loss(0) != 0).tolist() for outcome in (with_headers, without)]
    labelled = theirs(ids, hunyuan.vocabulary)
    assert shown(ids, labelled, hunyuan.vocabulary) == golden
    assert ours[0] == labelled
    assert without.ids(0).tolist() == ids
    header = hunyuan.vocabulary.control[ANSWERS]
    assert ours[1] == [trained and token != header for token, trained in zip(ids, labelled, strict=True)]


def test_a_typed_stop_moves_their_labels_and_none_of_ours(hunyuan: Bound) -> None:
    """Theirs is a control token, so that the first answer is taken to end before it begins, and nothing is labelled."""
    sample = Sample((turn(USER, f"What is {END}?"), turn(ASSISTANT, "A stop.")))
    ids = hunyuan.vocabulary.backend.encode(f"{BEGIN}What is {END}?{ANSWERS}A stop.{END}", add_special_tokens=False).ids
    assert not any(theirs(ids, hunyuan.vocabulary))
    ours = assert_proven(hunyuan, [sample], with_options(train_headers=True))
    trained = (ours.loss(0) != 0).tolist()
    assert shown(ours.ids(0).tolist(), trained, hunyuan.vocabulary) == f"{BEGIN}What is {END}?[{ANSWERS}A stop.{END}]"
