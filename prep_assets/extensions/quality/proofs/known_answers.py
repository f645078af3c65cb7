"""Answers, golds, pairs and calls with the verdicts that quality steps must give, like the texts of `known_verdicts`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prep_assets.extensions.quality.proofs.known_verdicts import SENTENCES, Known, chat
from prep_assets.samples import ASSISTANT, TEXT, TOOL_CALL, USER, Pair, Prompt, Region, Sample, Turn, turn

_EQUAL = (
    "18|18.0", "1/2|0.5", "50%|0.5", "0.5|50%", "1/2|50%", "1,234|1234", "7/2|3 1/2", r"\frac{1}{2}|0.5", "5 m|5 meters", "2 m|2", "-3|−3", "1000|1e3",
    "24|2 dozen", "x+1|1+x", "(3, 4)|(3,4)", "B|Option B", r"1/3|0.\overline{3}", "12|€12", "€12|12 euros", "101_2|101_2", "4 m^2|4 square meters", "7|≈7",
    r"5|5 \text{ cm}", "1000000|1 million", "a tie|A  tie.", "10-20|10 - 20",
)  # fmt: skip
_DIFFERENT = (
    "18|19", "34|(3,4)", "-10|10-20", "5 m|5 km", "101_2|101", "12:30|1230", r"\frac{1}{2}|\frac{1}{3}", "x+1|x-1", "7/2|31/2", "€12|$12",
    "12|1.2", "24|2 hundred", "1/3|0.3", "B|Option C", "3|-3",
)  # fmt: skip
"""A gold and an answer, that are equal or not as mathematics."""


def _rl_golds() -> Iterator[Known]:
    pairs = [pair.split("|") for pair in (*_EQUAL, *_DIFFERENT)]
    golds = tuple(Prompt((turn(USER, f"Sum {number}?"),), gold) for number, (gold, _) in enumerate(pairs))
    forms = (r"It is \boxed{1}, no: \boxed{%s}.", "#### 1\n#### %s", "#### 1\n<answer>%s</answer>")
    chats = [chat(f"sum  {number}?", forms[number % 3] % answer) for number, (_, answer) in enumerate(pairs)]
    chats += [chat("Sum 0?", "#### 18", "Sum 1?", "#### 0.6"), chat("Sum 0?", "I do not know."), chat("Another?", "#### 19")]
    wrong = (*range(len(_EQUAL), len(pairs)), len(pairs))
    yield Known({}, tuple(chats), dict.fromkeys(wrong, "answer_is_not_the_gold"), golds=golds)


_PROGRAM = "def add(a, b):\n    return a + b"
_SUM = {"inputs": ["1 2", "3 4"], "outputs": ["3", "7.0"]}
_REJECTED = "gold_rejected: the gold does not pass its tests: test {}"
_GOLDS: tuple[tuple[str, str, Any, str], ...] = (
    ("math", r"\frac{1}{2}", None, ""),
    ("math", "a half, of course", None, ""),
    ("math_bare", r"$\frac{1}{2}$", None, ""),
    ("math_bare", "a half, of course", None, "gold_rejected: the verifier math_bare gives its own gold of 17 characters no reward"),
    ("number", "7", None, ""),
    ("nobody", "7", None, "unknown_verifier"),
    ("code", _PROGRAM, ["assert add(1, 2) == 3"], ""),
    ("code", f"Sure:\n```python\n{_PROGRAM}\n```", {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}, ""),
    ("code", _PROGRAM, ["assert add(1, 2) == 3", "assert add(1, 2) == 4"], _REJECTED.format("2 of 2 raises AssertionError")),
    ("code", "print(sum(map(int, input().split())))", _SUM, ""),
    ("code", "print(3)", _SUM, _REJECTED.format("2 of 2 prints something else")),
    ("code", "raise SystemExit(3)", _SUM, _REJECTED.format("1 of 2 ends with status 3")),
    ("code", "", ["assert 0"], ""),
    ("code", _PROGRAM, None, "bad_arguments"),
    ("rubric", "", [{"criterion": "It is polite.", "points": 1}], ""),
    ("rubric", "", [], "bad_arguments"),
)
"""Verifier, gold, what the verifier is told, and what is wrong."""
IFEVAL: Mapping[str, tuple[Mapping[str, Any], str, str]] = {
    "keywords:existence": ({"keywords": ["red", "fox"]}, "A Red fox.", "A red dog."),
    "keywords:frequency": ({"keyword": "fox", "frequency": 2, "relation": "at least"}, "Fox and fox.", "A fox."),
    "keywords:forbidden_words": ({"forbidden_words": ["fox"]}, "Foxes run.", "A Fox runs."),
    "keywords:letter_frequency": ({"letter": "o", "let_frequency": 2, "let_relation": "less than"}, "One.", "Oo."),
    "length_constraints:number_paragraphs": ({"num_paragraphs": 2}, "One.\n***\nTwo.", "One.\n***\nTwo.\n***\nThree."),
    "length_constraints:number_words": ({"num_words": 3, "relation": "at least"}, "One two three.", "One two."),
    "length_constraints:nth_paragraph_first_word": (
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"}, "First.\n\nThen, it went.", "Then.\n\nFirst.",
    ),
    "detectable_content:number_placeholders": ({"num_placeholders": 2}, "[name] of [place]", "[name]"),
    "detectable_content:postscript": ({"postscript_marker": "P.S."}, "Bye.\nP. S. Write.", "Bye."),
    "detectable_format:number_bullet_lists": ({"num_bullets": 2}, "* one\n- two", "* one\n- two\n- three"),
    "detectable_format:constrained_response": ({}, "My answer is maybe.", "Maybe."),
    "detectable_format:number_highlighted_sections": ({"num_highlights": 2}, "*one* and *two*", "*one* and two"),
    "detectable_format:multiple_sections": ({"section_spliter": "Part", "num_sections": 2}, "Part 1\nA.\nPart 2\nB.", "Part 1\nA."),
    "detectable_format:json_format": ({}, '```json\n{"a": 1}\n```', "{a: 1}"),
    "detectable_format:title": ({}, "<<A title>>\nText.", "<<>> Text."),
    "combination:two_responses": ({}, "One.******Two.", "One.******One."),
    "combination:repeat_prompt": ({"prompt_to_repeat": "Who is it?"}, "who is it? Me.", "Me. Who is it?"),
    "startend:end_checker": ({"end_phrase": "That is all."}, 'So be it. That is ALL."', "That is all. Bye."),
    "startend:quotation": ({}, '"Yes."', '"Yes.'),
    "punctuation:no_comma": ({}, "One and two.", "One, two."),
}  # fmt: skip
"""Name of a constraint → its arguments, a text that keeps it, and one that does not."""


def _verified_golds() -> Iterator[Known]:
    golds = [*_GOLDS]
    for name, (arguments, *texts) in IFEVAL.items():
        told = {"instruction_id_list": [name], "kwargs": [arguments]}
        golds += [
            ("ifeval", text, told, wrong) for text, wrong in zip(texts, ("", f"gold_rejected: the gold does not keep {name}"), strict=True)
        ]
    prompts = (
        Prompt((turn(USER, "Q"),), gold, verifier, arguments=json.dumps(told) if told is not None else "")
        for verifier, gold, told, _ in golds
    )
    yield Known({"code_seconds": 20.0}, tuple(prompts), {at: wrong for at, (*_, wrong) in enumerate(golds) if wrong})


def _pair(question: str, chosen: str, rejected: str) -> Pair:
    return Pair((turn(USER, question),), (turn(ASSISTANT, chosen),), (turn(ASSISTANT, rejected),))


def _pair_answers() -> Iterator[Known]:
    right, refusal = "The Nile.", "I'm sorry, but I cannot help."
    sides = ((right, refusal), (refusal, right), (refusal, refusal[:-1]), (SENTENCES[0], SENTENCES[1]), (f"As said, {refusal}", right))
    pairs = tuple(_pair("Name a river.", *each) for each in sides)
    yield Known(
        {}, pairs, {1: "chosen_refuses", 2: "answers_alike"}, {"longer": [len(chosen) - len(rejected) for chosen, rejected in sides]}
    )
    letters = ("abcdefghijklmnopqrs", "abcdefghijklmnopqrstu")
    alike = tuple(_pair("Name letters.", f"{text}!", f"{text}?") for text in ("abcdefghijklmnopqr", letters[0]))
    yield Known({}, alike, {1: "answers_alike: 95% of the characters are common, likeness is 95%"})  # of 19 characters, and of 20
    long = tuple(_pair("Name letters.", *each) for each in (("a" * 20, "b" * 10), ("a" * 10, "b" * 21), ("a" * 21, "b" * 10)))
    yield Known({"longest_ratio": 2.0}, long, dict.fromkeys((1, 2), "lengths_differ"))


def _swapped_labels() -> Iterator[Known]:
    good = [_pair(f"What is {number}?", f"It is the number {number}, clearly.", f"No idea about {number}!") for number in range(60)]
    swapped = [Pair(pair.prompt, pair.rejected, pair.chosen) for pair in (good[3], good[40])]
    yield Known({}, (*good[:20], swapped[0], *good[20:], swapped[1]), dict.fromkeys((20, 61), "swapped_labels"))
    yield Known({}, (*good[:48], swapped[0]), {})  # too few to learn from
    yield Known({}, doubtful_pairs(), {}, {"probability": [int(thousandths) / 1000 for thousandths in _DOUBT.split()]})


_DOUBT = (
    "109 57 54 102 61 54 107 62 57 99 59 57 101 59 58 102 64 57 103 64 61 110 62 55 100 55 61 102 59 65 114 56 60 100 59 65 105 56 59 100 64 59 96 60 62 "
    "104 55 59 95 59 64 97 57 61 95 60 52 87 55 61"
)
"""How probable it is in thousandths that the labels of each of `doubtful_pairs` are swapped, by a slow computation in a test."""


def doubtful_pairs() -> tuple[Pair, ...]:
    """Pairs of which a third is labelled the other way round, so that nothing is sure."""
    words = " ".join(SENTENCES).split()
    said = [" ".join(words[(7 * number * at + 17 * (at - 1)) % len(words)] for at in range(1, 5)) for number in range(89)]
    ends = (" clearly so.", " no idea.")
    return tuple(
        _pair(f"What is {number}?", said[number] + ends[number % 3 == 0], said[number + 29] + ends[number % 3 > 0]) for number in range(60)
    )


def _tool_calls() -> Iterator[Known]:
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    tools = tuple({"type": "function", "function": {"name": name, **of}} for name, of in (("add", {"parameters": parameters}), ("now", {})))
    calls = {
        '{"name":"add","arguments":{"x":2}}': "",
        '{"name":"now","arguments":{}}': "",
        '{"name":"ad","arguments":{"x":2}}': "unknown_tool: call 2 is of none of the 2 tools on offer",
        '{"name":"add","arguments":{}}': "wrong_arguments: call 2: required",
        '{"name":"add","arguments":{"x":"two"}}': "wrong_arguments: call 2: properties.x.type",
        '{"name":"add","arguments":{"x":2,"y":3}}': "wrong_arguments: call 2: it has 1 arguments that the tool does not know",
    }
    right = [Region(TEXT, "I see."), Region(TOOL_CALL, next(iter(calls)))]
    turns = [(turn(USER, "2?"), Turn(ASSISTANT, (*right, Region(TOOL_CALL, call)))) for call in calls]
    samples = [Sample(each, tools=tools) for each in turns] + [Sample(turns[2])]
    yield Known({}, tuple(samples), {at: wrong for at, wrong in enumerate(calls.values()) if wrong})


KNOWN_ANSWERS: dict[str, Callable[[], Iterator[Known]]] = {
    "rl_golds": _rl_golds,
    "verified_golds": _verified_golds,
    "pair_answers": _pair_answers,
    "swapped_labels": _swapped_labels,
    "tool_calls": _tool_calls,
}
"""By name of the step."""
