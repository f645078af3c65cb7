"""Where things stand in renders, from the lengths of texts alone, is where they stand in the render that is derived of each chat by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prep_assets.proofs.plain_forms import BytesForm, PlainForm

FORM = PlainForm(
    frames=("<u>", "</u>é%", "</e>."),
    turns=(0, 1),
    strips=((False, False), (True, True)),
    keeps_edges=True,
    stretches=(((1, 6), (2, 4), 0.5, "</e>"),),
    controls=(((0, 0), (0, 3)), ((1, 0), (1, 4)), ((2, 0), (2, 4))),
    shortenable=(),
)
CONTROL = {"<u>": 1, "</u>": 2, "</e>": 3}


def test_two_renders() -> None:
    form = BytesForm.of(FORM, CONTROL)
    assert form is not None
    shown = [form.stripped(texts) for texts in (("ab", " c "), ("é", "中"))]
    assert shown == [[b"ab", b"c"], ["é".encode(), "中".encode()]]
    assert (form.written, form.frames.tolist()) == ((b"<u>", "</u>é%".encode(), b"</e>."), [3, 7, 5])
    assert form.stops == {"</e>"}
    base = np.array([0, 18, 38])
    placed = form.placed(np.array([0, 1]), np.array([[2, 1], [2, 3]]), base)
    items = placed.items[np.argsort(placed.items[:, 0])].tolist()
    assert items[:6] == [[0, 3, 1], [3, 5, -1], [5, 9, 2], [9, 13, -1], [13, 17, 3], [17, 18, -1]]
    assert items[6:] == [[18, 21, 1], [21, 23, -1], [23, 27, 2], [27, 33, -1], [33, 37, 3], [37, 38, -1]]
    assert placed.stretches.tolist() == [[0, 12, 17], [1, 12, 19]]
    assert placed.weights.tolist() == [0.5, 0.5]
    assert (placed.items.dtype, placed.stretches.dtype, placed.weights.dtype) == (np.int64, np.int64, np.float32)


def test_a_render_without_control_tokens_or_trained_text() -> None:
    form = BytesForm.of(replace(FORM, controls=(), stretches=()), CONTROL)
    assert form is not None and form.stops == frozenset()
    placed = form.placed(np.array([0]), np.array([[2, 1]]), np.array([0, 18]))
    assert placed.items.tolist() == [[0, 18, -1]] and placed.items.dtype == np.int64
    assert placed.stretches.tolist() == [] and placed.weights.tolist() == []


def test_a_render_without_texts() -> None:
    form = BytesForm.of(PlainForm(("<u>x",), (), (), True, (), (((0, 0), (0, 3)),), ()), CONTROL)
    assert form is not None and form.turns.dtype == np.int64 and form.stripped(()) == []
    placed = form.placed(np.array([0, 1]), np.zeros((2, 0), np.int64), np.array([0, 4, 8]))
    assert placed.items.tolist() == [[3, 4, -1], [7, 8, -1], [0, 3, 1], [4, 7, 1]]


def test_white_space_may_follow_the_stop_token() -> None:
    form = BytesForm.of(replace(FORM, frames=("<u>", "</u>é%", "</e>\n"), stretches=(((1, 6), (2, 5), 0.5, "</e>"),)), CONTROL)
    assert form is not None and form.stops == {"</e>"}
    assert form.placed(np.array([0]), np.array([[2, 1]]), np.array([0, 19])).stretches.tolist() == [[0, 12, 18]]


def test_texts_stand_in_the_order_of_the_render() -> None:
    form = BytesForm.of(replace(FORM, turns=(1, 0)), CONTROL)
    assert form is not None
    assert form.turns.tolist() == [1, 0] and form.stripped(["a", "b"]) == [b"b", b"a"]
    assert form.stripped([" a ", "b"]) == [b"b", b"a"] and form.stripped(["a", " b "]) == [b" b ", b"a"]


def test_forms_for_single_rows() -> None:
    assert BytesForm.of(replace(FORM, stretches=(((1, 7), (2, 4), 1.0, ""),)), CONTROL) is None, "it begins inside a text"
    assert BytesForm.of(replace(FORM, stretches=(((1, 6), (2, 5), 1.0, "</e>"),)), CONTROL) is None, "it ends with another token"
    assert BytesForm.of(FORM, {"<u>": 1, "</u>": 2}) is None, "a control token that the tokenizer does not have"
    assert BytesForm.of(replace(FORM, controls=(((0, 0), (1, 4)),)), CONTROL) is None, "a control token with a text in it"
