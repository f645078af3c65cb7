"""Labels of `HunyuanInstructionHandler`, as MindSpeed-LLM publishes it (`mindspeed_llm/tasks/preprocess/data_handler.py`, May 2025 and August 2026 alike).

It renders by the tokenizer's own template, whose answers stand between ``<|extra_0|>`` and ``<|eos|>``, and labels by looking for these two ids: from the
n-th of the one to the n-th of the other, both included. Nothing is shifted there; the trainer shifts.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from prep_assets.config.mask import MaskPolicy
from prep_assets.samples import ASSISTANT, SYSTEM, USER, Sample, turn
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets.text.encode import Encoder
from prep_assets.text.engines import choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.render import render
from prep_assets.text.template import ChatTemplate, bind
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
    "more": (ROUNDS, f"{BEGIN}Be kind.{ASKS}Hi[{ANSWERS}Hello!{END}]{BEGIN}Bye[{ANSWERS}See you.{END}]{BEGIN}And?[{ANSWERS} Well.{END}]"),
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


# -- ModelLink's two handlers for MOSS rows, one schema, which the template tells apart; and its handlers with Alpaca's text --------------

MOSS_USER, MOSS_ASSISTANT, MOSS_END = "<reserved_106>", "<reserved_107>", "<|endoftext|>"
"""Baichuan's tokens 195 and 196, by their names."""
ROW = {
    "chat": {
        "turn_1": {"Human": "<|Human|>: What is 12 * 12?<eoh>\n", "MOSS": "<|MOSS|>: It is 144.<eom>\n"},
        "turn_2": {"Human": "<|Human|>: And then?\nSay it.<eoh>\n", "MOSS": "<|MOSS|>: 再见。\n\n145 comes then.<eom>\n"},
        "turn_3": {"Human": "<|Human|>:  Thanks <eoh>\n", "MOSS": "<|MOSS|>: Bye!<eom>\n"},
    }
}
INSTRUCTIONS = (
    "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately "
    "completes the request. Please note that you need to think through your response logically and step by step."
)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """The shipped tokenizer with Baichuan's two tokens."""
    folder = tmp_path_factory.mktemp("baichuan") / "tokenizer"
    shutil.copytree(SHIPPED, folder)
    spec = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    last = max(*(token["id"] for token in spec["added_tokens"]), *spec["model"]["vocab"].values())
    spec["added_tokens"] += [
        {**spec["added_tokens"][0], "id": last + n, "content": text} for n, text in enumerate((MOSS_USER, MOSS_ASSISTANT), 1)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False), "utf-8")
    return load_vocabulary(str(folder))


def cleaned(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Questions and answers, freed of the markers as both handlers do."""
    return [
        (
            turn["Human"].replace("<eoh>", "").replace("<|Human|>: ", "").strip(),
            turn["MOSS"].replace("<|MOSS|>:", "").replace("<eom>", "").strip(),
        )
        for turn in row["chat"].values()
    ]


def plain(vocabulary: Vocabulary, text: str) -> list[int]:
    vocabulary.backend.encode_special_tokens = True
    return list(vocabulary.backend.encode(text, add_special_tokens=False).ids)


def ours(
    vocabulary: Vocabulary, handler: str, template: ChatTemplate, row: dict[str, Any] = ROW, policy: MaskPolicy | None = None
) -> tuple[list[int], list[int]]:
    """Ids, and -100 where nothing is trained."""
    sample = apply(convert_with(handler, gives=Sample), row)
    assert isinstance(sample, Sample)
    bound = bind(vocabulary, template)
    encoded = Encoder(bound, choose_engine(bound, reference_only=True), policy or MaskPolicy()).encode([render(sample, template)])
    assert not encoded.refused
    return encoded.ids.tolist(), np.where(encoded.loss > 0, encoded.ids.astype(np.int64), -100).tolist()


def test_multi_turn_has_baichuans_tokens_around_every_question(vocabulary: Vocabulary) -> None:
    """Ids and labels as the handler makes them, but for the label where a next question begins: there it trains the end of text, which its input
    never shows; here the token that stands there ends the answer."""
    user, assistant, end = (vocabulary.backend.token_to_id(text) for text in (MOSS_USER, MOSS_ASSISTANT, MOSS_END))
    ids: list[int] = []
    labels: list[int] = []
    for question, answer in cleaned(ROW):
        asked, said = plain(vocabulary, question), plain(vocabulary, answer)
        ids += [user, *asked, assistant, *said]
        labels += [user if labels else -100, *[-100] * len(asked), -100, *said]
    template = load_template("prompt_type:baichuan2", vocabulary, options={"end_with_eos": "last"})
    assert ours(vocabulary, "MOSSMultiTurnHandler", template) == ([*ids, end], [*labels, end])
    every = ours(vocabulary, "MOSSMultiTurnHandler", load_template("prompt_type:baichuan2", vocabulary))
    assert [token for token in every[0] if token != end] == ids
    assert every[1].count(end) == 3  # where the handler trains an end of text, the text has one


def test_instruction_has_alpacas_text_and_every_answer_once(vocabulary: Vocabulary) -> None:
    """The handler stores a sequence for every answer, each with all rounds before it. Here each sequence is a beginning of the one sample, and
    what they train, one answer each, is what it trains. The line break after an answer is trained with the end of text after it."""
    text = f"\n{INSTRUCTIONS}\n"
    template = load_template("alpaca", vocabulary, options={"end_with_eos": False})
    ids, labels = ours(vocabulary, "MOSSInstructionHandler", template)
    trained = [-100] * len(ids)
    for question, answer in cleaned(ROW):
        prompt = f"{text}### Instruction:\n{question}\n### Response:\n"
        text = f"{prompt}{answer}\n"
        sequence, before = plain(vocabulary, text), plain(vocabulary, prompt)
        assert ids[: len(sequence)] == sequence and sequence[: len(before)] == before
        trained[len(before) : len(sequence) - 1] = sequence[len(before) : -1]
    assert labels == trained
    ended = ours(vocabulary, "MOSSInstructionHandler", load_template("alpaca", vocabulary))[1]
    stops = [*plain(vocabulary, "\n"), vocabulary.eos_id]
    answers = [[*plain(vocabulary, f"\n{answer}")[1:], *stops] for _, answer in cleaned(ROW)]
    assert [token for token in ended if token != -100] == [token for answer in answers for token in answer]


BELLE = {"instruction": "Human:Hi\nAssistant:Hello!\nHuman:再见\nAssistant:", "input": "", "output": "再见。"}
CODE = {"code_with_problem": "Add.\n\n```python\npass\n```", "code_only": "def add(a, b): ...", "explanation_only": "It adds."}


@pytest.mark.parametrize(
    ("handler", "row", "rounds"),
    [
        ("GeneralInstructionHandler", {"instruction": "Add.", "input": "2 and 2", "output": "4"}, [("Add.\n2 and 2", "4")]),
        ("BelleMultiTurnInstructionHandler", BELLE, [("Hi", "Hello!"), ("再见", "再见。")]),
        ("LeetcodePythonInstructionHandler", CODE, [("Add.", "def add(a, b): ...\nIt adds.")]),
    ],
)
def test_the_last_answer_is_trained_with_the_end_of_text(
    vocabulary: Vocabulary, handler: str, row: dict[str, Any], rounds: list[tuple[str, str]]
) -> None:
    """With ``--append-eod`` the handlers mask everything up to the last ``### Response:`` and its line break."""
    text = f"\n{INSTRUCTIONS}\n"
    for question, answer in rounds:
        prompt = f"{text}### Instruction:\n{question}\n### Response:\n"
        text = f"{prompt}{answer}\n"
    ids, before = [*plain(vocabulary, text), vocabulary.eos_id], len(plain(vocabulary, prompt))
    template = load_template("alpaca", vocabulary, options={"end_with_eos": "last"})
    assert ours(vocabulary, handler, template, row, MaskPolicy(train_turns="last")) == (ids, [-100] * before + ids[before:])


def test_real_conversations(real_data: Path, vocabulary: Vocabulary) -> None:
    """Every published row that has answers comes out of both handlers with the same questions and answers."""
    with (real_data / "moss" / "conversations.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line, _ in zip(file, range(20), strict=False)]
    template = load_template("prompt_type:baichuan2", vocabulary, options={"end_with_eos": "last"})
    for row in rows:
        ids, labels = ours(vocabulary, "MOSSMultiTurnHandler", template, {"chat": row["chat"]})
        stop = vocabulary.backend.token_to_id(MOSS_USER)
        answers = [[*plain(vocabulary, answer), stop] for _, answer in cleaned(row)]
        assert [token for token in labels if token != -100] == [*[token for answer in answers for token in answer][:-1], ids[-1]]
