"""Whatever a template writes of a row is searched: found by rendering a row with an invented text in every field, one after the other."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jinja2
import numpy as np
import pytest

from prep_assets.errors import Refused
from prep_assets.extensions.leaks.overlap import RULES, Passages
from prep_assets.extensions.quality.golds import gold_answers
from prep_assets.extensions.quality.gopher import gopher_quality, gopher_repetition
from prep_assets.extensions.quality.languages import language
from prep_assets.extensions.quality.near_duplicates import near_duplicates
from prep_assets.extensions.quality.pairs import pair_answers
from prep_assets.extensions.quality.passages import repeated_passages
from prep_assets.extensions.quality.private_data import private_data
from prep_assets.extensions.quality.rl_golds import rl_golds
from prep_assets.extensions.quality.steps import CONTEXT, Examples, Step, configured_steps
from prep_assets.extensions.quality.swapped_labels import swapped_labels
from prep_assets.extensions.quality.tool_calls import tool_calls
from prep_assets.extensions.quality.verified_golds import verified_golds
from prep_assets.extensions.quality.web_pages import c4_quality, fineweb_quality
from prep_assets.samples import ASSISTANT, TEXT, THINKING, Contrast, Example, Group, Pair, Prompt, Region, Sample, Turn, turn
from prep_assets.schemas.registry import convert_with

ROW: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "question", "name": "speaker"},
        {
            "role": "assistant",
            "reasoning_content": "thought",
            "content": "saying",
            "tool_calls": [
                {"id": "call", "type": "function", "function": {"name": "look", "arguments": {"word": "asked", "deep": [{"more": "x"}]}}}
            ],
        },
        {"role": "tool", "content": "result", "tool_call_id": "call", "name": "look"},
        {"role": "assistant", "content": "answer"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "look",
                "description": "looks",
                "parameters": {
                    "type": "object",
                    "properties": {"word": {"type": "string", "description": "a", "enum": ["asked"]}, "deep": {}},
                },
            },
        }
    ],
    "documents": [{"title": "name", "text": "page", "meta": {"from": "where"}}],
    "chat_template_kwargs": {"note": "option"},
}
TEMPLATE = (
    "{{ tools | tojson }}{{ documents | tojson }}{{ note }}"
    "{% for m in messages %}{{ m.role }}:{{ m.name }}{{ m.reasoning_content }}{{ m.content }}"
    "{{ m.tool_calls | tojson if m.tool_calls }}{{ m.tool_call_id }}{% endfor %}"
)
HELD = "the grey mill by the river turned its old wheel for three hundred years, until the flood came: x\ny"
PRIVATE = "maria.lopez@correo.es"


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the texts of a row stand."""
    if isinstance(value, str):
        yield path
    else:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


def with_text(path: Sequence[Any], text: str) -> dict[str, Any]:
    """The row with another text at a place."""
    row: dict[str, Any] = copy.deepcopy(ROW)
    inside: Any = row
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = text
    return row


def planted(text: str) -> Iterator[tuple[str, Sample]]:
    """The samples of rows with a text at each place where a render shows what stands there, and the schema takes it."""
    template = jinja2.Environment().from_string(TEMPLATE)
    for path in places(ROW):
        shown = template.render(**(row := with_text(path, "inventedword")), **row["chat_template_kwargs"])
        if "inventedword" in shown:
            try:
                sample = convert_with("messages", {})(with_text(path, text))
            except Refused:  # roles, types and names are not free
                continue
            assert isinstance(sample, Sample)
            yield ".".join(map(str, path)), sample


def of_families(sample: Sample) -> list[Example]:
    """The sample as every kind of example that has its context."""
    turns = sample.turns
    context: dict[str, Any] = {"tools": sample.tools, "documents": sample.documents, "template_options": sample.template_options}
    return [
        sample,
        Pair(turns[:-1], turns[-1:], turns[-1:], **context),
        Prompt(turns, "4", **context),
        Group(turns[:-1], (turns[-1:],), (1.0,), **context),
    ]


def test_the_places_are_those_of_every_field() -> None:
    found = [path for path, _ in planted("text")]
    assert len(found) >= 20
    for field in (
        "messages.0.content",
        "tool_calls.0.function.arguments.deep.0.more",
        "description",
        "documents.0.meta.from",
        "kwargs.note",
    ):
        assert any(field in path for path in found)


@pytest.mark.parametrize("rule", ["gpt3", "open_r1", "open_instruct", "dolma"])
def test_leaks_are_found_wherever_a_render_shows_them(rule: str) -> None:
    passages = Passages.of(RULES[rule], [[HELD.replace("\ny", "")]])
    for path, sample in planted(HELD):
        examples = of_families(sample)
        assert [*passages.leaks(Examples([path] * len(examples), examples))] == [0, 1, 2, 3], path


def test_private_data_are_found_wherever_a_render_shows_them() -> None:
    for path, sample in planted(PRIVATE):
        examples = of_families(sample)
        assert [*private_data().judge(Examples([path] * len(examples), examples)).found] == [0, 1, 2, 3], path


LONG = [" ".join(f"w{number}x{word}" for word in range(80)) for number in range(2)]


def in_turns(path: str) -> bool:
    """Whether a place is of what a turn says, calls among it. Others are context, which rules about writing leave out."""
    return path.startswith("messages") and (path.endswith("function.name") or path.split(".")[-1] not in ("name", "id", "tool_call_id"))


def test_near_duplicates_tell_rows_apart_wherever_a_render_shows_them() -> None:
    """Two rows that differ in one place alone, whatever it is, are not alike; the same row twice is."""
    for (path, one), (_, other) in zip(planted(LONG[0]), planted(LONG[1]), strict=True):
        for pair, expected in (((one, other), []), ((one, one), [1])):
            for examples in zip(*map(of_families, pair), strict=True):
                step = near_duplicates()
                step.judge(Examples(["r:1", "r:2"], examples))
                assert [*step.finish(np.ones(2, np.bool_)).found] == expected, (path, type(examples[0]))


@pytest.mark.parametrize(
    ("make", "text", "reason"),
    [
        (c4_quality, "The old house by the river {x} stands there.", "c4_curly_bracket"),
        (partial(gopher_quality, min_words=1, min_word_length=1), "# " * 200, "gopher_symbols"),
        (gopher_repetition, "over and over again, my friend\n" * 40, "gopher_lines"),
        (fineweb_quality, "The old line ends right here, by the river, as always.\n" * 40, "fineweb_repeated"),
        (partial(language, keep=["en"], among=["ar", "en"]), "كان الطاحونة الرمادية بجانب النهر تدير عجلتها القديمة " * 9, "language"),
    ],
)
def test_rules_about_writing_judge_what_turns_say_wherever_that_is(make: Callable[..., Step], text: str, reason: str) -> None:
    """And nothing else: a text in a tool or a document changes no verdict."""
    plain = convert_with("messages", {})(ROW)
    assert isinstance(plain, Sample)
    step = make()
    before = step.judge(Examples(["r:1"], [plain])).found.get(0, ("", ""))
    told = set()
    for path, sample in planted(text):
        found = step.judge(Examples([path], [sample])).found.get(0, ("", ""))
        assert in_turns(path) or found == before, path
        assert not in_turns(path) or found[0] == reason != before[0], (path, found)
        told |= {path} if found != before else set()
    assert len(told) >= 8


def test_repeated_passages_are_found_wherever_a_turn_says_them() -> None:
    passage = " ".join(f"word{number}" for number in range(80))
    for path, sample in planted(passage):
        step = repeated_passages()
        step.judge(Examples(["r:1", "r:2"], [Sample((turn("document", passage),)), sample]))
        assert ([*step.finish(np.ones(2, np.bool_)).found] == [1]) is in_turns(path), path


def holds_the_mill(examples: Examples) -> list[str | None]:
    """A step of one's own."""
    return ["mill" if "grey mill" in text else None for text in examples.texts]


def knows_a_gold() -> Step:
    """The step that compares with the family rl, with the gold of the row's question."""
    step = rl_golds()
    step.learn([Prompt((turn("user", "question"),), "3/4")])
    return step


OF_ANSWERS = ("messages.2.", "messages.4.")
OTHERS: dict[str, tuple[Callable[[], Step], str, tuple[type, ...], Callable[[str], bool]]] = {
    "gold_answers": (gold_answers, "It is 3*4=<<3*4=13>>13.", (Sample, Prompt), lambda path: True),
    "rl_golds": (knows_a_gold, "<answer>0.76</answer>", (Sample,), lambda path: path.startswith(OF_ANSWERS) and in_turns(path)),
    "verified_golds": (verified_golds, "\\boxed{}", (Prompt,), lambda path: False),
    "tool_calls": (
        tool_calls,
        "look_up",
        (Sample, Pair, Prompt, Group),
        lambda path: path.endswith(("function.name", "arguments.word", "enum.0")),
    ),
    "a step of one's own": (
        configured_steps({f"{__name__}:holds_the_mill": {}}, Sample)[0].make,
        HELD,
        (Sample, Pair, Prompt, Group),
        lambda path: True,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_steps_look_at_whatever_they_judge_wherever_a_render_shows_it(name: str) -> None:
    """A verdict changes if the text stands in a place that the step judges, in every kind of example, and in no other place."""
    make, text, kinds, is_judged = OTHERS[name]
    judged = set()
    for path, sample in planted(text):
        examples = [each for each in of_families(sample) if isinstance(each, kinds)]
        found = make().judge(Examples([path] * len(examples), examples)).found
        assert [*found] == ([*range(len(examples))] if is_judged(path) else []), path
        judged |= {path} if found else set()
    assert len(judged) >= (0 if name == "verified_golds" else 2)


def pairs_with(path: Sequence[Any], chosen: str, rejected: str) -> Pair:
    """The row as a pair, whose answers are all turns after the question, with a text at a place of each."""
    samples = [convert_with("messages", {})(with_text(path, text)) for text in (chosen, rejected)]
    one, other = (sample.turns for sample in samples if isinstance(sample, Sample))
    return Pair(one[:2], one[2:], other[2:])


def test_pairs_are_judged_by_all_that_a_render_shows_of_their_answers() -> None:
    """Labels that are swapped are found wherever the answers differ; a refusal is what the last turn says, whatever it thinks before."""
    paths = [path for path in places(ROW) if path[0] == "messages" and path[1] >= 2 and in_turns(".".join(map(str, path)))]
    of_words = [path for path in paths if path[-1] in ("content", "reasoning_content", "word", "more")]
    assert len(of_words) == 6
    for path in of_words:
        pairs = [pairs_with(path, f"It is {number}, clearly.", f"No idea, {number}!") for number in range(60)]
        step = swapped_labels()
        step.judge(Examples([str(path)] * 61, [*pairs, pairs_with(path, "No idea, 7!", "It is 7, clearly.")]))
        assert [*step.finish(np.ones(61, np.bool_)).found] == [60], path
        found = pair_answers().judge(Examples([str(path)], [pairs_with(path, "I'm sorry, but I cannot help.", "It is a river.")])).found
        assert (found.get(0, ("",))[0] == "chosen_refuses") is (path == ("messages", 4, "content")), path
    thinking = Turn(ASSISTANT, (Region(THINKING, "The user wants a river."), Region(TEXT, "I'm sorry, but I cannot help.")))
    pair = Pair((turn("user", "Name a river."),), (thinking,), (turn(ASSISTANT, "The Nile."),))
    assert pair_answers().judge(Examples(["r:1"], [pair])).found[0][0] == "chosen_refuses"


def test_what_rules_about_writing_judge_has_no_tools_and_documents() -> None:
    [sample] = [sample for path, sample in planted(HELD) if path == "documents.0.text"]
    examples = Examples(["r:0", "r:1"], [sample, Contrast("query", ("p",), instruction=HELD)])
    assert all(HELD in text for text in examples.texts)
    assert not any(HELD in text for text in examples.said)
    assert {role for role, _ in examples.parts[0]} >= {*CONTEXT}
    assert examples.said[1] == "query\n\np"
    assert RULES["gpt3"].text(examples.parts[0]) == examples.said[0]


def test_calls_are_searched_without_the_escapes_of_json() -> None:
    [sample] = [sample for path, sample in planted('one\n"two" 三') if path.endswith("arguments.word")]
    assert 'one\n"two" 三' in Examples(["r:0"], [sample]).texts[0]
