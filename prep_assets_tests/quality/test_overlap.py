"""Rules for held-out texts, against obvious code by sets of words, and the functions that the rules come from."""

from __future__ import annotations

import html
import json
import re
import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from itertools import product
from typing import get_args
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.config.models import Eval
from prep_assets.extensions.leaks.overlap import RULES, Leak, Passages
from prep_assets.extensions.leaks.shown import longest_passage
from prep_assets.extensions.quality.steps import Examples
from prep_assets.extensions.quality.units import normalized, script, undisguised
from prep_assets.samples import Prompt, Sample, document, turn
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.cells import cells

WORDS = st.sampled_from(["a", "b", "İ", "ß", "don't", "…", "\n", " the the ", "12"])
LONG = st.lists(WORDS, max_size=40).map(" ".join)
LINES = st.lists(st.lists(st.sampled_from("abc"), min_size=11, max_size=15).map(" ".join), max_size=4).map("\n".join)


def of(texts: Sequence[str]) -> Examples:
    """Documents."""
    return Examples([f"r:{number}" for number in range(len(texts))], list(map(document, texts)))


def expected(name: str, data_sets: Sequence[Sequence[str]], training: str) -> dict[int, int]:
    """Number of a held-out text → shared units, by lists and sets, where it is a leak."""
    rule, found, number = RULES[name], {}, 0
    inside = rule.units("\n\n".join(dict.fromkeys((training, undisguised(training)))))
    for texts in data_sets:
        lengths = [len(rule.units(text)) for text in texts]
        size = {"gpt3": min(13, max(8, int(np.percentile(lengths, 5)))) if lengths else 13, "dolma": 1}.get(name, 8)
        known = {tuple(inside[at : at + size]) for at in range(len(inside) - size + 1)}
        for text in texts:
            units = rule.units(text)
            starts = [at for at in range(len(units) - size + 1) if tuple(units[at : at + size]) in known]
            shared = len({at + offset for at, offset in product(starts, range(size))})
            leaks = {"open_instruct": shared > len(units) / 2, "answers": shared >= len(units) - 2}.get(name, True)
            if shared and leaks:
                found[number] = shared
            number += 1
    return found


@pytest.mark.parametrize("name", RULES)
@given(st.data())
def test_leaks_are_those_of_the_obvious_code(name: str, data: st.DataObject) -> None:
    text = LINES if name == "dolma" else LONG
    sets = data.draw(st.lists(st.lists(text, max_size=3), max_size=3))
    held_out = [one for texts in sets for one in texts]
    training = data.draw(st.lists(st.one_of(text, st.lists(st.sampled_from([*held_out, "x"]), max_size=3).map("\n".join)), max_size=3))
    found = Passages.of(RULES[name], sets).leaks(of(training))
    for number, one in enumerate(training):
        leaks = found.get(number, [])
        assert {leak.text: leak.shared for leak in leaks} == expected(name, sets, one)
        assert leaks == sorted(leaks, key=lambda leak: (-leak.shared, leak.text))


@given(LONG)
def test_open_r1_compares_what_its_script_compares(text: str) -> None:
    """Its `normalize_string` and `word_ngrams`: lower case, and split at white space."""
    assert RULES["open_r1"].units(text) == " ".join(text.lower().strip().split()).split()


@given(st.text())
def test_units_stand_where_their_spans_say(text: str) -> None:
    for rule in RULES.values():
        plain = normalized(text)
        assert rule.units(text) == rule.units(plain) == [rule.fold(plain[start:end]) for start, end in rule.spans(plain)]


QUESTION = "Tara saves up for a new clarinet. She has $10 and it costs $90: how many old books at $5 each must she sell to buy it?"
ZH, JA = (
    "小明有三个苹果和五个梨，他又买了四个苹果，现在一共有多少个水果？",
    "太郎は毎日二キロ走り、花子はその三倍走ります。二人で一週間に何キロ走りますか。",
)
DISGUISES: dict[str, Callable[[str], str]] = {
    "zero width inside words": lambda text: text.replace("a", "a\u200b").replace("l", "\u2060l"),
    "zero width between words": lambda text: text.replace(" ", "\u200b"),
    "byte order mark": lambda text: text.replace(" ", " \ufeff"),
    "no-break spaces": lambda text: text.replace(" ", "\u00a0"),
    "entities": lambda text: html.escape(text).replace(" ", "&nbsp;").replace("l", "&#108;"),
    "entities twice": lambda text: text.replace(" ", "&amp;nbsp;"),
    "quoted": lambda text: "> " + text.replace(" a", "\n> > a"),
    "comment": lambda text: "    // " + text.replace(" a", "\n    // a"),
    "escaped": lambda text: text.replace(" ", "\\n"),
    "entities of zero width": lambda text: text.replace("a", "a&shy;").replace("o", "o&#8203;"),
    "entities without end": lambda text: text.replace(" ", "&nbsp "),
    "fillers and tag characters": lambda text: text.replace("a", "\u3164a").replace("o", "o\U000e0020\ufff9"),
    "tags": lambda text: f'<p class="q">{text.replace(" a", "<br/>a").replace(" s", " <b>s</b>").replace("n", "<wbr>n")}</p>',
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON in JSON": lambda text: json.dumps(json.dumps(text))[3:-3],
    "lines numbered between": lambda text: (
        "".join(f"\n{number:3}. {part}" for number, part in enumerate(textwrap.wrap(text, 20), 9)) + "\n"
    ),
    "steps counted between": lambda text: (
        "".join(f"\n\n**Step {number}:** {part}" for number, part in enumerate(textwrap.wrap(text, 20), 1)) + "\n\n"
    ),
    "lines of remarks between": lambda text: "".join(f"\nrem {part}" for part in textwrap.wrap(text, 20)) + "\n",
    "hyphens between lines": lambda text: re.sub("([a-z]{3})([a-z]{2})", "\\1-\n> \\2", text),
    "spaces between letters": lambda text: " ".join(text),
    "signs between letters": lambda text: " ".join(".".join(word) for word in text.split()),
    "letters of Cyrillic between": lambda text: text.translate(str.maketrans("aeocpxy", "\u0430\u0435\u043e\u0441\u0440\u0445\u0443")),
    "letters of Greek between, spread": lambda text: "\u2009".join(text.translate(str.maketrans("iov", "\u03b9\u03bf\u03bd"))),
    "address of a search": lambda text: quote(text, safe="?,.'"),
    "JSON of zero width": lambda text: text.replace("a", "a\\u200c").replace("o", "o%E2%80%8B"),
    "escapes of a string": lambda text: text.replace(" ", "\\x20").replace("é", "\\xe9"),
    "colours of a terminal": lambda text: text.replace(" a", " \x1b[1;31ma").replace(" s", " \\u001b[0ms"),
    "links between": lambda text: re.sub("(clarinet|books)", "[\\1](https://example.org/\\1?x=1)", text),
    "tags of reasoning": lambda text: text.replace(" a", "</step>\n<step>a").replace(" s", " <ruby>s"),
    "struck out": lambda text: "".join(f"{sign}\u0336" for sign in text),
    "lines of a tool numbered between": lambda text: (
        "".join(f"\n{at:6}→{part}" for at, part in enumerate(textwrap.wrap(text, 20), 9)) + "\n"
    ),
    "numbers in brackets between": lambda text: "".join(f"\n[{at}] {part}" for at, part in enumerate(textwrap.wrap(text, 20), 9)) + "\n",
    "lines of a search between": lambda text: (
        "".join(f"\nsrc/q.md:{at}:{part}" for at, part in enumerate(textwrap.wrap(text, 20), 9)) + "\n"
    ),
    "sections counted between": lambda text: "".join(f"\n2.1.{at}. {part}" for at, part in enumerate(textwrap.wrap(text, 20), 9)) + "\n",
    "verses between": lambda text: "".join(f"\nGen 1:{at} {part}" for at, part in enumerate(textwrap.wrap(text, 20), 9)) + "\n",
    "a name between lines": lambda text: "".join(f"\nquiz-bot: {part}" for part in textwrap.wrap(text, 20)) + "\n",
    "hyphens between lines of Windows": lambda text: re.sub("([a-z]{3})([a-z]{2})", "\\1-\r\n  \\2", text),
    "accents apart": lambda text: unicodedata.normalize("NFD", text),
}


@cells("name", DISGUISES)
@cells("rule", ["gpt3", "open_r1", "open_instruct", "answers"])
def test_what_editors_and_pages_put_between_words_hides_nothing(rule: str, name: str) -> None:
    text = QUESTION.replace("Tara", "Téa")
    disguised = f"Read this: {DISGUISES[name](text)} Done."
    assert disguised != f"Read this: {text} Done."
    passages = Passages.of(RULES[rule], [[text]])
    assert [*passages.leaks(of([f"Not {QUESTION[:30]}", disguised]))] == [1]
    if "between" not in name:
        start, end = longest_passage(RULES[rule], disguised, text)[0]
        assert RULES[rule].units(disguised[start:end]) == RULES[rule].units(text)


AR, HE = (
    "لدى أحمد ثلاث تفاحات وخمس كمثرى ثم اشترى أربع تفاحات أخرى من السوق القريب فكم عدد الفواكه التي لديه الآن",
    "לדני יש שלושה תפוחים וחמישה אגסים והוא קנה בשוק עוד ארבעה תפוחים אז כמה פירות יש לו עכשיו בסך הכול",
)


@pytest.mark.parametrize(
    ("text", "marks"), [(AR, "\u064e"), (AR, "\u0651\u064f"), (AR, "\u0640"), (AR, ""), (HE, "\u05b8"), (HE, "\u05bc\u05b4")], ids=ascii
)
def test_vowel_marks_hide_nothing(text: str, marks: str) -> None:
    """Nor the kashida, nor marks of letters that stand apart: of a benchmark without them, and of one that has them."""
    marked = unicodedata.normalize("NFD", "".join(sign + marks * (sign.isalpha() and at % 3 == 0) for at, sign in enumerate(text)))
    assert marked != text or text == HE
    for held, said in ((text, marked), (marked, text)):
        assert [*Passages.of(RULES["gpt3"], [[held]]).leaks(of([said[: len(said) // 3], f"Q: {said} A"]))] == [1]


TR = "Ilgaz ve İpek ışıklı şehirde kırk sıcak simit alıp yarısını kardeşlerine verirse akşam eve kaç simit kalır"


@pytest.mark.parametrize("said", [
    TR.replace("i", "İ").replace("ı", "I").upper(), TR.upper(), TR.casefold(), "\n".join(f"{at}. {part}" for at, part in enumerate(textwrap.wrap(TR, 30))),
])  # fmt: skip
def test_turkish_texts_are_found_in_either_case_and_behind_numbers(said: str) -> None:
    assert [*Passages.of(RULES["gpt3"], [[TR]]).leaks(of([TR[:40], said]))] == [1]


def test_stress_marks_hide_nothing() -> None:
    text = "старый крестьянин насчитал семнадцать яблок прежде чем медленно пойти домой к бабушке"
    assert [*Passages.of(RULES["gpt3"], [[text]]).leaks(of([text.replace("о", "о\u0301").replace("а", "а\u0300")]))] == [0]


def test_what_verifiers_are_told_is_searched_and_not_searched_for() -> None:
    told = " ".join(f'"argument{at}": null,' for at in range(20))
    first, other = (Prompt((turn("user", f"{QUESTION[:60]} {name}"),), "4", "ifeval", arguments=f"{{{told}}}") for name in ("one", "two"))
    held, training = (Examples(["r:1"], [example]) for example in (first, other))
    assert RULES["gpt3"].text(held.parts[0]) == f"{QUESTION[:60]} one\n\n4"
    assert [*Passages.of(RULES["gpt3"], [[told]]).leaks(training)] == [0]


def test_underscores_part_words() -> None:
    assert RULES["gpt3"].units("the _old_ snake_case") == ["the", "old", "snake", "case"]


@pytest.mark.parametrize("rule", ["gpt3", "open_r1", "open_instruct", "answers"])
@pytest.mark.parametrize("text", [ZH, JA])
def test_scripts_without_spaces_are_compared_by_characters(rule: str, text: str) -> None:
    passages = Passages.of(RULES[rule], [[text]])
    assert passages.sizes.tolist() == [13] and not passages.too_short.any()
    holds = [f"请回答下面的问题：{text}好的。", text.replace("，", "\n"), text[::-1], "请回答下面的问题：" + text[:9]]
    assert [*passages.leaks(of(holds))] == [0, 1]
    assert script(text) == 1 and script("สวัสดีครับทุกคน") == 2 and script(QUESTION) == script("Смотри") == script("한국어 문장") == 0


def test_a_solution_is_found_without_the_tags_and_notes_of_its_schema() -> None:
    solution = "She needs 90-10=<<90-10=80>>80 dollars more, so she must sell 80/5=<<80/5=16>>16 books.\n#### 16"
    row = convert_with("gsm8k", {})({"question": QUESTION, "answer": solution})
    assert isinstance(row, Sample)
    passages = Passages.of(RULES["answers"], [[RULES["answers"].text(Examples(["r:0"], [row]).parts[0])]])
    plain = re.sub("<<.*?>>", "", solution)
    holds = [solution, plain, plain.replace("#### 16", ""), plain.replace("#### 16", r"\boxed{16}"), f"<think>{plain}</think>"]
    assert [*passages.leaks(of([*holds, plain.partition(", so")[0], plain.replace("she", "he")]))] == [0, 1, 2, 3, 4]


def test_a_rule_searches_for_its_part_of_an_example() -> None:
    parts = [("system", "S"), ("user", "Q"), ("assistant", "A"), ("document", "D")]
    texts = {name: rule.text(parts).split() for name, rule in RULES.items()}
    whole, question = list("SQAD"), list("SQD")
    assert texts == {"gpt3": whole, "open_r1": question, "open_instruct": question, "dolma": whole, "answers": ["A"]}
    assert [*RULES] == [*get_args(get_args(Eval.model_fields["rules"].annotation)[0])]


def test_texts_that_do_not_count_and_texts_without_passages() -> None:
    text = " ".join(f"w{number}" for number in range(20))
    passages = Passages.of(RULES["open_r1"], [["too short"], [text, text]])
    assert passages.too_short.tolist() == [True, False, False]
    assert passages.leaks(of([text])) == {0: [Leak(1, 20), Leak(2, 20)]}
    assert passages.leaks(of([text]), np.array([True, False, True])) == {0: [Leak(2, 20)]}
    assert Passages.of(RULES["gpt3"], []).leaks(of([text])) == Passages.of(RULES["gpt3"], [[], [""]]).leaks(of([text, ""])) == {}


def test_the_longest_passage_is_shown_as_it_stands() -> None:
    left, right = "So: One  two, THREE four.", "one two three four five"
    (start, end), (from_, to) = longest_passage(RULES["gpt3"], left, right)
    assert (left[start:end], right[from_:to]) == ("One  two, THREE four", "one two three four")
    assert longest_passage(RULES["gpt3"], "a", "b") == ((0, 0), (0, 0))
