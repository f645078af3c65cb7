"""Renders taken apart: where each text stands, which white space is whose, and what cannot be taken apart."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs import rebuilt
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.proofs.rebuilt import Place, Rebuilder
from prep_assets.samples import TEXT, USER, Region, Sample, Turn
from prep_assets_tests.proofs.conversations import PLAIN, TRIMS, chat, marked, result, says, template, user
from prep_assets_tests.proofs.trained_conversations import ESCAPES, TRAINED

CHAT = chat(user("Hi"), says("~Hm.", "Hello."), user("Bye"))


@pytest.mark.parametrize(("source", "options", "sample", "more", "text", "counts"), TRAINED)
def test_what_is_trained(source: str, options: dict[str, Any], sample: Sample, more: dict[str, Any], text: str, counts: Any) -> None:
    given = dict(more)
    bound = template(source, image=given.pop("image", ""), eos=given.pop("eos", "<|end|>"))
    assert marked(derive(sample, MaskOptions(**options), bound, **given)) == text


def test_the_words_are_hexadecimal_in_letters() -> None:
    assert [rebuilt._word(number) for number in (0, 9, 10, 15, 16, 255)] == ["zqaqz", "zqjqz", "zqkqz", "zqpqz", "zqbaqz", "zqppqz"]
    assert rebuilt._places("a zqbaqz zqaqz zqxqz") == (Place(16, 2, 8), Place(0, 9, 14))
    assert rebuilt.MOST_KEPT == 512


def test_where_texts_stand() -> None:
    found = Rebuilder(template()).rebuild(CHAT)
    assert found.text == "<|s|>user\nHi<|e|>\n<|s|>assistant\n<think>Hm.</think>\nHello.<|e|>\n<|s|>user\nBye<|e|>\n"
    assert [found.text[place.start : place.end] for place in found.places] == ["Hi", "Hm.", "Hello.", "Bye"]
    assert [found.invented_text[place.start : place.end] for place in found.invented] == ["zqaqz", "zqbqz", "zqcqz", "zqdqz"]
    assert [place.slot for place in found.places] == [0, 1, 2, 3] and found.tagged is None and found.margins == {}
    assert found.beginning(1, prompted=True) == "<|s|>user\nzqaqz<|e|>\n<|s|>assistant\n"
    assert found.beginning(1, prompted=False) == "<|s|>user\nzqaqz<|e|>\n"


def test_a_beginning_that_the_template_refuses() -> None:
    source = "{%- if messages|length < 2 -%}{{- raise_exception('too few') -}}{%- endif -%}" + PLAIN.strip()
    found = Rebuilder(template(source)).rebuild(CHAT)
    assert found.beginning(1, prompted=True) is None and found.beginning(2, prompted=False) is not None


@pytest.mark.parametrize(
    ("source", "texts", "margins"),
    [
        (PLAIN, (" Hi \n", "x "), {0: (1, 2), 1: (0, 1)}),
        (TRIMS, (" Hi \n", "x "), {0: (0, 0), 1: (0, 0)}),
        (PLAIN, ("Hi", "x"), {}),
        (PLAIN.replace("+ m.content", "+ m.content + ' '"), ("Hi  ", "x"), {0: (0, 2), 1: (0, 0)}),
        (PLAIN.replace("thought + m.content", "thought + ' ' + m.content"), ("  Hi", "x"), {0: (2, 0), 1: (0, 0)}),
    ],
)
def test_white_space_of_the_texts_themselves(source: str, texts: tuple[str, str], margins: dict[int, tuple[int, int]]) -> None:
    assert Rebuilder(template(source)).rebuild(chat(user(texts[0]), says(texts[1]))).margins == margins


@pytest.mark.parametrize(
    ("source", "parts", "wanted"),
    [
        (PLAIN, (" Hi ",), {0: (1, 1)}),
        (PLAIN, ("  a ", " b \n"), {0: (2, 0), 1: (0, 2)}),
        (PLAIN, (" ", "\n a", "b ", " "), {1: (2, 0), 2: (0, 1)}),  # what a region of nothing but space has is not its neighbour's
        (PLAIN.replace("+ m.content", "+ m.content.lstrip('\\n')"), ("\n Hi ",), {0: (1, 1)}),
        (TRIMS, (" Hi ",), {0: (0, 0)}),
        (PLAIN.replace("+ m.content", "+ (m.content if m.role == 'user' or m.content[0] == ' ' else '')"), (" Hi ",), {0: (0, 0)}),
    ],
)
def test_white_space_of_the_regions_in_a_text(source: str, parts: tuple[str, ...], wanted: dict[int, tuple[int, int]]) -> None:
    found = Rebuilder(template(source)).rebuild(chat(user("Well?"), says(*parts)))
    assert {region: found.own_margins(1, region) for region in wanted} == wanted


@pytest.mark.parametrize(
    ("source", "parts", "blanks"),
    [
        (PLAIN, ("  Hi ",), 2),
        (PLAIN, ("Hi ",), 0),
        (PLAIN, ("  ", "Hi "), 0),
        (PLAIN, (" ", "\n a", "b "), 2),
        (TRIMS, ("  Hi ",), 0),
    ],
)
def test_a_text_begins_with_the_white_space_of_its_region(source: str, parts: tuple[str, ...], blanks: int) -> None:
    found = Rebuilder(template(source)).rebuild(chat(user("Well?"), says(*parts)))
    assert found.own_start(1) == found.invented[1].start - blanks


@pytest.mark.parametrize("prompted", [False, True])
def test_white_space_before_the_prompt_is_the_template_s(prompted: bool) -> None:
    source = "{%- for m in messages -%}{{- m.content -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- '\n\n' -}}{%- endif -%}"
    assert Rebuilder(template(source)).rebuild(chat(user("Hi ")), prompted=prompted).margins == {0: (0, 1)}


def test_the_clock_stands_still() -> None:
    assert Rebuilder(template("{{- strftime_now('%Y-%m-%d') -}}" + PLAIN.strip())).rebuild(CHAT).text.startswith("2024-07-26<|s|>")


def test_options_that_json_has_no_word_for() -> None:
    rebuilder = Rebuilder(template("{{- day -}}" + PLAIN.strip()))
    for day in (1, 2):
        found = rebuilder.rebuild(chat(*CHAT.turns, template_options={"day": date(2026, 1, day)}))
        assert found.invented_text.startswith(f"2026-01-0{day}<|s|>")


def test_the_same_shape_with_another_prompt_tools_or_options_is_rendered_anew() -> None:
    rebuilder = Rebuilder(
        template("{{- (tools or []) | length -}}{{- (documents or []) | length -}}{{- mode | default('') -}}" + PLAIN.strip())
    )
    first = rebuilder.rebuild(CHAT).text
    assert first.startswith("00<|s|>")
    assert rebuilder.rebuild(CHAT, prompted=True).text == first + "<|s|>assistant\n"
    tools = chat(*CHAT.turns, tools=({"name": "f"},))
    assert rebuilder.rebuild(tools).text.startswith("10<|s|>")
    assert rebuilder.rebuild(chat(*CHAT.turns, documents=({"title": "t"},))).text.startswith("01<|s|>")
    assert rebuilder.rebuild(chat(*CHAT.turns, template_options={"mode": "m"})).text.startswith("00m<|s|>")


def test_few_renders_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilt, "MOST_KEPT", 2)
    rebuilder = Rebuilder(template())
    for turns in range(1, 6):
        rebuilder.rebuild(chat(*[user("x")] * turns))
        assert 1 <= len(rebuilder._shapes) <= 2
    assert len(rebuilder._shapes) == 1


def test_tags_are_given() -> None:
    source = "{%- for m in messages -%}{{- '<|s|>' -}}{%- generation -%}{{- m.content -}}{%- endgeneration -%}{%- endfor -%}"
    found = Rebuilder(template(source)).rebuild(chat(user("Hi"), says("Hello.")), rendered="not looked at")
    assert found.tagged == ((5, 7), (12, 18))


@pytest.mark.parametrize(
    ("source", "sample", "says_why"),
    [
        (
            PLAIN.replace("+ m.content", "+ (m.content | upper)"),
            chat(user("Hi there")),
            "template own writes …'<|s|>user\\nHI THERE<|e|>\\n'… where another text in its place gives '<|s|>user\\nZQAQZ<|e|>\\n', "
            "so it depends on the content and nothing is proven",
        ),
        (
            PLAIN.replace("+ m.content", "+ (m.content if m.content != 'Hi' else 'Ho')"),
            chat(user("Hi")),
            "template own writes …'<|s|>user\\nHo<|e|>\\n'… where another text in its place gives 'Hi<|e|>\\n', "
            "so it depends on the content and nothing is proven",
        ),
        (
            "{%- if messages[0].content == 'Hi' -%}{{- 'x' -}}{%- endif -%}" + PLAIN.strip(),
            chat(user("Hi")),
            "template own writes …'x<|s|>user\\nHi<|e|>\\n'… where another text in its place gives '<|s|>user\\n', "
            "so it depends on the content and nothing is proven",
        ),
        (
            PLAIN.strip() + "{%- if messages[0].content == 'Hi' -%}{{- 'x' -}}{%- endif -%}",
            chat(user("Hi")),
            "template own writes …'<|s|>user\\nHi<|e|>\\nx'… where another text in its place gives '', "
            "so it depends on the content and nothing is proven",
        ),
        (
            "{{- messages[-1].content -}}",
            chat(user("Hi" * 40), says("Hello.")),
            f"template own does not show {'Hi' * 30!r} of turn 0",
        ),
        (
            "{%- if messages[0].content != 'zqaqz' -%}{{- 'x' -}}{%- endif -%}{{- 'b' + messages[0].content -}}" + "a" * 70,
            chat(user("Hi")),
            f"template own writes …'xbHi{'a' * 36}'… where another text in its place gives 'b', "
            "so it depends on the content and nothing is proven",
        ),
        (
            "z" * 30 + "{{- messages[0].content -}}{%- if messages[0].content != 'zqaqz' -%}{{- 'x' -}}{%- endif -%}" + "a" * 70,
            chat(user("Hi")),
            f"template own writes …'{'z' * 20}Hix{'a' * 37}'… where another text in its place gives 'Hi{'a' * 58}', "
            "so it depends on the content and nothing is proven",
        ),
        (
            "zqbqz{{- messages[0].content -}}",
            chat(user("Hi")),
            "template own writes …'zqbqzHi'… where another text in its place gives '', so it depends on the content and nothing is proven",
        ),
        (
            "zqcqz{{- messages[0].content -}}",
            chat(user("Hi")),
            "template own writes …'zqcqzHi'… where another text in its place gives '', so it depends on the content and nothing is proven",
        ),
        ("{{- raise_exception('never') -}}", chat(user("Hi")), "template own: never, so nothing is proven"),
    ],
)
def test_what_cannot_be_taken_apart(source: str, sample: Sample, says_why: str) -> None:
    with pytest.raises(CheckFailed) as raised:
        Rebuilder(template(source)).rebuild(sample)
    assert str(raised.value) == says_why


def test_reasoning_may_be_left_out_and_blanks_are_not_looked_for() -> None:
    source = PLAIN.replace("m.reasoning_content -%}", "m.reasoning_content and loop.last -%}")
    assert len(Rebuilder(template(source)).rebuild(CHAT).places) == 3
    assert len(Rebuilder(template("{{- messages[1].content -}}")).rebuild(chat(user(" "), says("x"))).places) == 1


def test_escapes() -> None:
    found = Rebuilder(template(ESCAPES)).rebuild(chat(user('é "q"'), says("x")))
    assert [found.text[place.start : place.end] for place in found.places] == ['é \\"q\\"', "x"]
    ascii_only = ESCAPES.replace("(m.content | tojson)", "(m.content | replace('é', '\\\\u00e9'))")
    again = Rebuilder(template(ascii_only)).rebuild(chat(user("é"), says("x")))
    assert [again.text[place.start : place.end] for place in again.places] == ["\\u00e9", "x"]


def test_a_text_that_is_shown_twice() -> None:
    source = "{%- for m in messages -%}{{- m.content + '/' + m.content + '<|e|>' -}}{%- endfor -%}"
    found = Rebuilder(template(source)).rebuild(chat(user("Hi"), result("x")))
    assert [(place.slot, found.text[place.start : place.end]) for place in found.places] == [(0, "Hi"), (0, "Hi"), (1, "x"), (1, "x")]


def test_dropped_regions_are_not_shown() -> None:
    turn = Turn(USER, (Region(TEXT, "gone", drop=True), Region(TEXT, "Hi")))
    assert "gone" not in Rebuilder(template()).rebuild(Sample((turn,))).text


MARKS = PLAIN.strip().replace(" + thought + m.content -}}", " -}}{%- generation -%}{{- thought + m.content -}}{%- endgeneration -%}")


def test_what_a_variant_marks_counts_where_it_renders_the_same() -> None:
    sample = chat(user("Hi"), says("Hello."))
    plain = template()
    for variant, tagged in (
        (MARKS, ((10, 12), (33, 39))),
        (MARKS.replace("'<|s|>'", "'<|s|> '"), None),
        ("{{- raise_exception('no') -}}", None),
        (PLAIN.strip(), None),
    ):
        bound = replace(plain, training=variant)
        found = Rebuilder(bound).rebuild(sample)
        assert (found.text, found.tagged) == (Rebuilder(plain).rebuild(sample).text, tagged)
        assert Rebuilder(bound).rebuild(sample, rendered=found.text).tagged == tagged
    prompted = Rebuilder(replace(plain, training=MARKS)).rebuild(sample, prompted=True)
    assert prompted.text.endswith("<|s|>assistant\n") and prompted.tagged == ((10, 12), (33, 39))


@pytest.mark.parametrize("dash", ["", "-", "+"])
def test_tags_are_known_however_they_are_written(dash: str) -> None:
    source = f"{{%{dash} generation {dash}%}}{{{{ messages[0].content }}}}{{%{dash} endgeneration {dash}%}}"
    assert Rebuilder(template(source)).rebuild(chat(user("Hi")), rendered="Hi").tagged == ((0, 2),)
