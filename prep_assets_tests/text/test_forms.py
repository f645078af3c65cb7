"""Forms: found in renders of invented texts, and where things stand in the renders of many chats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from prep_assets.samples import ASSISTANT, TOOL_CALL, USER, PlainChat, Region, Sample, Turn, turn
from prep_assets.text import forms
from prep_assets.text.chats import ChatColumns, Kind, Outline, outlined
from prep_assets.text.forms import CompiledForm, FormCache, Layout, Listed, layout_of, quoted, render_forms
from prep_assets.text.spans import Prompt
from prep_assets_tests.corpus.chats import TOOLS

Texts = tuple[str, ...]
ROLES = (USER, ASSISTANT)


def shape(*turns: Turn) -> Outline:
    chat = outlined(Sample(turns or (turn(USER, "Hi"),), TOOLS))
    assert chat is not None
    return chat.form


def writing(write: str, **how: Any) -> Callable[[Texts], str]:
    """What a template writes of one tool and one text: `T` stands for the tool, `X` for the text, `Q` for it within quotes, `N` for its name."""

    def render(texts: Texts) -> str:
        tool, text = texts
        shown = {"T": json.dumps(json.loads(tool), ensure_ascii=False, **how), "X": text, "Q": json.dumps(text)[1:-1], "N": text[:9]}
        return re.sub("[TXQN]", lambda found: shown[found[0]], write)

    return render


def found_in(kind: Kind, write: Callable[[Texts], str], *, spaced: bool = False) -> Layout:
    """The form, which gives the render of the first invented texts."""
    form = layout_of(kind, spaced, write)
    assert form is not None
    assert form.text(form.shown(form.invented[0])) == write(form.invented[0])
    return form


def test_texts_are_in_the_order_of_the_render_and_may_be_quoted() -> None:
    form = found_in(shape(), writing('"Q" T'))
    assert form.order == (1, 0) and form.ways == (quoted, None)
    assert form.shown(["{}", 'a"b\né']) == ['a\\"b\\né', "{}"]
    assert quoted("a") == "a"


@pytest.mark.parametrize("write", ["X", "T X T", "T X X", "T X N", "T N"])
def test_what_is_missing_or_twice_is_not_certain(write: str) -> None:
    assert layout_of(shape(), False, writing(write)) is None


CALL = Turn(ASSISTANT, (Region(TOOL_CALL, json.dumps({"name": "get", "arguments": {"city": "Rome"}})),))


def one_by_one(write: str, after: str = "") -> Callable[[Texts], str]:
    """What a template writes that lists arguments in this way, after the tool and the name of the call; `after`: `N` stands for what begins all names."""

    def render(texts: Texts) -> str:
        tool, name, arguments = texts
        listed = "; ".join(write.replace("K", key).replace("V", str(value)) for key, value in json.loads(arguments).items())
        return f"{tool}|{name}|({listed}){after.replace('N', next(iter(json.loads(arguments)))[:9])}"

    return render


def test_arguments_that_are_listed() -> None:
    form = found_in(shape(CALL), one_by_one("K=V"))
    assert form.order == (0, 1, 2) and form.frames == ("", "|", "|(", ")") and form.lists
    way = form.ways[2]
    assert isinstance(way, Listed) and (way.between, way.joint) == ("=", "; ")
    assert form.shown(["{}", "get", '{"city": "Rome", "days": 3}']) == ["{}", "get", "city=Rome; days=3"]
    assert form.holds(["{}", " get", '{"city": "Rome"}']) and not form.holds(["{}", "get", '{"city": " Rome"}'])
    other = found_in(shape(CALL), lambda texts: "|".join(texts))
    assert not other.lists and other.holds(["{}", "get", '{"city": " Rome"}'])


@pytest.mark.parametrize(("write", "after"), [("V", ""), ("K=V!K", ""), ("K=V, V", ""), ("K=V", "N")])
def test_arguments_listed_in_no_known_way_are_not_certain(write: str, after: str) -> None:
    assert layout_of(shape(CALL), False, one_by_one(write, after)) is None


def test_tools_are_never_taken_for_listed_arguments() -> None:
    def render(texts: Texts) -> str:
        return "; ".join(f"{name}={value}" for name, value in json.loads(texts[0]).items()) + " ".join(texts[1:])

    assert layout_of(shape(CALL), False, render) is None


@pytest.mark.parametrize("way", [None, str.strip, str.lstrip, str.rstrip])
def test_what_becomes_of_white_space(way: Callable[[str], str] | None) -> None:
    def write(texts: Texts) -> str:
        return "".join(f"<{number}>\n{way(text) if way else text}</>" for number, text in enumerate(texts))

    form = found_in(ROLES, write, spaced=True)
    assert form.ways == (way, way) and form.frames == ("<0>\n", "</><1>\n", "</>")
    assert [form.text(form.shown(texts)) for texts in form.invented] == [write(texts) for texts in form.invented]
    assert {text[at] for text, _ in form.invented for at in (0, -1)} >= {"\n", " ", "\t"}
    bare = found_in(ROLES, write)
    assert bare.ways == (None, None) and all(text == text.strip() for texts in bare.invented for text in texts)


def test_places_amid_a_text_have_none() -> None:
    form = Layout(("<", "|é", ">"), (0, 1), (None, None), (("ab", "c"), ("x", "y")))
    assert list(map(form.mover(["", "wxyz"]), range(8))) == [0, 1, -1, 1, 2, 3, 7, 8]
    gaps, after = form.in_bytes([0, 1, 3, 4, 5, 6, 7])
    assert (gaps.tolist(), after.tolist()) == ([0, 0, 1, 1, 1, 2, 2], [0, 1, 0, 1, 3, 0, 1])


# -- renders of many chats, laid out ----------------------------------------------------------------------------------------------------

FORM = Layout(("<u>", "</u>é%", "</e>."), (0, 1), (None, str.strip), (("Q", "W"),))
ASKS = Layout(("<u>", "."), (0,), (None,), (("Q",),))


def located(form: Layout, *controls: tuple[int, int, int], steps: Any = ((0, 0.0),), prompts: Any = ()) -> CompiledForm[str]:
    return CompiledForm.of(form, form.text(form.invented[0]), controls, steps, prompts)


BOTH = located(FORM, (0, 3, 1), (4, 8, 2), (11, 15, 3), steps=((0, 0.0), (10, 0.5), (15, 0.0)), prompts=((3, 4, USER),))
ONE = located(ASKS, steps=((0, 1.0), (5, 0.0)))


def laid(*chats: tuple[CompiledForm[str], Texts]) -> Any:
    columns = ChatColumns.of([PlainChat((USER,) * len(texts), texts) for _, texts in chats])
    listed = [BOTH, ONE]
    form = np.array([listed.index(each) for each, _ in chats])
    return render_forms(columns, listed, form)


def test_two_renders() -> None:
    found = laid((BOTH, ("ab", " c ")), (BOTH, ("é", "中")))
    assert found.data.decode() == "<u>ab</u>é%c</e>.<u>é</u>é%中</e>."
    assert found.starts.tolist() == [0, 18, 38] and found.text(1) == "<u>é</u>é%中</e>."
    items = np.stack([found.item_starts, found.item_ends, found.items], axis=1)
    assert items[:6].tolist() == [[0, 3, 1], [3, 5, -1], [5, 9, 2], [9, 13, -1], [13, 17, 3], [17, 18, -1]]
    assert items[6:].tolist() == [[18, 21, 1], [21, 23, -1], [23, 27, 2], [27, 33, -1], [33, 37, 3], [37, 38, -1]]
    assert found.breaks.tolist() == [0, 12, 17, 18, 30, 37] and found.weights.tolist() == [0, 0.5, 0] * 2
    assert found.prompts == {0: [Prompt(3, 5, USER)], 1: [Prompt(21, 23, USER)]}
    assert (items.dtype, found.breaks.dtype, found.weights.dtype) == (np.int64, np.int64, np.float32)


# -- what is learned --------------------------------------------------------------------------------------------------------------------


def test_forms_are_learned_of_chats_that_come_often() -> None:
    asked: list[tuple[Kind, bool]] = []

    def learn(kind: Kind, spaced: bool) -> CompiledForm[str] | None:
        asked.append((kind, spaced))
        return BOTH if kind == ROLES else None

    learned, other = FormCache(learn, plain_at_once=False), FormCache(learn, plain_at_once=True)
    assert [learned.of(ROLES, False, count) for count in (1, 1, 1, 0)] == [None, None, BOTH, BOTH]
    assert learned.of(ROLES, True) is BOTH and learned.of((USER,), False, 2) is None
    assert asked == [(ROLES, False), (ROLES, True)]
    assert learned.of((USER,), False, at_once=True) is None and len(asked) == 3
    assert learned.of((USER,), False, at_once=True) is None and len(asked) == 3, "what has no form is known as well"
    assert other.of(ROLES, False) is BOTH and other.of(shape(), False, 2) is None and len(asked) == 4


def test_what_is_learned_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    learn = Mock(return_value=BOTH)
    learned = FormCache[str](learn, plain_at_once=True)
    monkeypatch.setattr(forms, "MOST_KNOWN", 2)
    for roles in (ROLES, (USER,), ROLES):
        learned.of(roles, False)
    assert learn.call_count == 3, "a third kind makes it forget all others"
    monkeypatch.setattr(forms, "MOST_KNOWN", 10)
    monkeypatch.setattr(forms, "MOST_TEXTS", 4)
    learned.of((USER,), True)
    learned.of((USER,), False)
    assert learn.call_count == 5
    learned.of(ROLES, False)
    assert learn.call_count == 6
