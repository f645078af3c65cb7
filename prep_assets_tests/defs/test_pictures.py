"""A row of tokens in Markdown and SVG, whatever is in the tokens."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.assets.previews import Preview
from prep_assets.defs.pictures import SVG_TOKENS, diff_block, picture
from prep_assets_tests.effort import examples

HOSTILE = [
    "<script>alert(1)</script>",
    "\"quoted\" & 'single'",
    "</text></svg>",
    "]]>",
    "&lt;",
    "\x00\x01\x0b\x1b[31m\x7f",
    "\ud800",
    "￾￿",
    "\u2028\u2029\x85",
    "\u202edetrever",
    "```\n# out of the block\n```",
    "~~~",
    "\r\n\t",
    "👩‍👩‍👧",
    "",
]
SVG = "{http://www.w3.org/2000/svg}"


def preview(tokens: list[str], weights: list[float] | None = None, starts: tuple[int, ...] = (0,), title: str = "row 0") -> Preview:
    shown = tuple(weights) if weights is not None else tuple(float(i % 2) for i in range(len(tokens)))
    return Preview(title, tuple(tokens), shown, tuple(range(len(tokens))), tuple((at, "a record") for at in starts))


def block(markdown: str) -> list[str]:
    """The lines of the one fenced block that ends the text; what is before it is one line."""
    found = re.fullmatch(r"[^\n\r]*\n\n```diff\n(.*)\n```", markdown, re.DOTALL)
    assert found, markdown
    assert "```" not in found[1] and "\r" not in found[1]
    return found[1].split("\n")


def svg(markdown: str) -> ElementTree.Element:
    encoded = re.fullmatch(r"[^\n]*\n\n!\[row\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert encoded, markdown
    return ElementTree.fromstring(base64.b64decode(encoded[1]))


def test_trained_tokens_are_on_green_lines_and_masked_ones_are_not() -> None:
    shown = diff_block(preview(["<s>", "Hi", " there", "!", "</s>"], [0, 0, 1, 1, 0]))
    assert block(shown) == ["  <s>Hi", "+  there!", "  </s>"]


def test_a_document_begins_on_a_line_of_its_own() -> None:
    assert block(diff_block(preview(["a", "b", "c", "d"], [1, 1, 1, 0], starts=(0, 2)))) == ["+ ab", "+ c", "  d"]


def test_without_a_mask_nothing_is_green() -> None:
    assert block(diff_block(preview(["a", "b"], []))) == ["  ab"]


def test_white_space_and_control_characters_can_be_seen() -> None:
    assert block(diff_block(preview(["a", "\tb\r", "\x00\x1b", "\x85\u202e", "`\n"], [1] * 5))) == ["+ a⇥b␍␀␛⟨85⟩⟨202e⟩ˋ⏎"]


def test_a_line_ends_where_that_of_the_text_does_and_where_it_grows_long() -> None:
    assert block(diff_block(preview(["a", "\n", "b", "\n\n", "c"], [1] * 5))) == ["+ a⏎", "+ b⏎⏎", "+ c"]
    assert block(diff_block(preview(["word "] * 20, [0] * 20))) == ["  " + "word " * 8, "  " + "word " * 8, "  " + "word " * 4]


def test_a_wrong_token_is_on_a_red_line_of_its_own() -> None:
    shown = preview(["a", "b", "c", "d"], [1, 1, 1, 0])
    assert block(diff_block(shown, 1)) == ["+ a", "- b", "+ c", "  d"]
    boxes = [element.get("fill") for element in svg(picture(shown, 1)).iter(f"{SVG}rect") if element.get("rx")]
    assert boxes[0] == boxes[2] and len(set(boxes)) == 3


def test_a_long_row_is_cut_to_what_the_page_shows_inline() -> None:
    shown = diff_block(preview(["token "] * 4096))
    assert 800 < len(shown) < 1000
    assert block(shown)[-1] == "  …"


def test_one_long_token_and_a_long_title_stay_inline_too() -> None:
    assert len(diff_block(preview(["short", "x" * 5000], title="t" * 5000))) < 1000


@pytest.mark.parametrize("title", ["`a` ```", "two\nlines\n```", "expected </think>, found <b>"])
def test_a_title_stays_one_line_of_text(title: str) -> None:
    line = diff_block(preview(["a"], title=title)).split("\n\n```diff")[0]
    assert "\n" not in line and "`" not in line
    assert not re.search(r"(?<!\\)<", line)
    assert picture(preview(["a"], title=title)).count("\n") == 2


@pytest.mark.parametrize("token", HOSTILE)
def test_hostile_tokens(token: str) -> None:
    shown = preview(["before", token, "after"])
    assert len(diff_block(shown)) < 1000
    assert len(block(diff_block(shown))) == 3
    drawn = svg(picture(shown))
    texts = [element.text or "" for element in drawn.iter(f"{SVG}text")]
    assert texts[0] == "before" and texts[2] == "after" and len(texts) == 3
    assert {element.tag for element in drawn.iter()} == {f"{SVG}{name}" for name in ("svg", "rect", "text")}
    if token.isascii() and token.isprintable() and "`" not in token:
        assert texts[1] == token


@given(st.lists(st.text(max_size=30), max_size=60), st.data())
@settings(max_examples=examples(80), deadline=None)
def test_any_tokens_give_a_closed_block_and_a_valid_picture(tokens: list[str], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=len(tokens), max_size=len(tokens)))
    shown = preview(tokens, weights)
    assert len(diff_block(shown)) < 1000
    block(diff_block(shown))
    assert len(list(svg(picture(shown)).iter(f"{SVG}text"))) == len(tokens)


def test_the_picture_colours_each_token_by_its_weight_and_marks_documents() -> None:
    drawn = svg(picture(preview(["a", "b", "c"], [0, 1, 1], starts=(0, 2))))
    boxes = [element for element in drawn.iter(f"{SVG}rect") if element.get("rx")]
    bars = [element for element in drawn.iter(f"{SVG}rect") if not element.get("rx")]
    assert boxes[1].get("fill") == boxes[2].get("fill") != boxes[0].get("fill")
    assert len(bars) == 2


def test_the_picture_of_a_long_row_is_cut_and_says_so() -> None:
    shown = picture(preview(["x"] * (SVG_TOKENS + 1)))
    assert f"(first {SVG_TOKENS})" in shown
    assert len(list(svg(shown).iter(f"{SVG}text"))) == SVG_TOKENS
    assert len(shown) < 150_000
