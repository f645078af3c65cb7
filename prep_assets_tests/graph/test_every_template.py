"""Chats that people have and templates were not made for, with every template: each row is kept and every check holds, or it is refused with a reason.
No store is blocked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets.text.load_template import named_templates
from prep_assets_tests.graph.every_template import OWN, outcome, tokenizer, trl

BLANKS = ("", "  ", "\n", " \n", "\t")
SHIPPED = {**OWN, **named_templates()}


def said(*turns: str) -> dict[str, Any]:
    """A chat; a turn is the first letter of its role and its text."""
    roles = {"u": "user", "a": "assistant", "s": "system"}
    return {"messages": [{"role": roles[turn[0]], "content": turn[1:]} for turn in turns]}


def chats() -> Iterator[dict[str, Any]]:
    """Two answers in a row, and answers with white space at their edges; enough of each form that it is learned, and some that are looked for."""
    for blank in BLANKS:
        answer = f"a{blank}pad it.{blank}"
        for question in ("uHi", "uWhat is it, please?"):
            yield said(question, f"a{blank}pad it.")
            yield said(question, answer, answer)
        yield said("u  Well ", f"aOne.{blank}", "uAnd?", answer)
        yield said("uHi", "aOne.", f"a{blank}Two.", "uAnd?", "aThree.")
        yield said("sSaid.", "uHi", answer, f"a{blank}pad", "uplease", f"aOne{blank}")


@pytest.fixture(scope="module", params=("bytes", "first"))
def tokens(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer(request.param, tmp_path_factory.mktemp("tokenizers") / request.param)


@pytest.fixture(scope="module", params=("always", "prepended"))
def spacing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer(request.param, tmp_path_factory.mktemp("tokenizers") / request.param)


def blocked(folder: Path, templates: Mapping[str, str], tokens: Path, **options: Any) -> dict[str, str]:
    """What is wrong with the store of each template."""
    rows = list(chats())
    found = {}
    for number, (name, source) in enumerate(templates.items()):
        try:
            outcome(folder / str(number), source, tokens, rows, **options)
        except PrepAssetsError as error:
            if f"all {len(rows)} records were refused" not in str(error):  # some of TRL's write no stop
                found[name] = str(error)
    return found


def test_shipped_templates_and_some_that_look_back(tmp_path: Path, tokens: Path) -> None:
    assert not blocked(tmp_path, SHIPPED, tokens)


def test_published_templates(tmp_path: Path, tokens: Path, real_data: Path) -> None:
    templates = {name: source for name, source in trl(real_data).items() if tokens.name != "bytes" or not name.endswith("_training")}
    assert not blocked(tmp_path, templates, tokens)


def test_tokenizers_that_put_spaces(tmp_path: Path, spacing: Path) -> None:
    """A space of the tokenizer's own after a control token is none of the template's."""
    assert not blocked(tmp_path, OWN, spacing)
    assert not blocked(tmp_path / "headers", {"chatml": SHIPPED["chatml"]}, spacing, train_headers=True)


def test_texts_that_nothing_but_a_space_parts(tmp_path: Path, tokens: Path) -> None:
    assert not blocked(tmp_path, {"spaces": "{% for m in messages %}{{ m.content + ' ' }}{% endfor %}"}, tokens, train_on_eos="none")


@pytest.mark.soak
@pytest.mark.parametrize(
    "options", [{"train_on_eos": "none"}, {"train_on_eos": "all", "mask_default": "train"}, {"train_turns": "last"}], ids=str
)
def test_under_other_policies(tmp_path: Path, tokens: Path, options: dict[str, Any]) -> None:
    assert not blocked(tmp_path, SHIPPED, tokens, **options)


@pytest.mark.soak
def test_with_headers(tmp_path: Path, tokens: Path) -> None:
    """Of templates that write one before an answer is generated, and whose renders grow by turns."""
    named = ("chatml", "gemma", "glm4", "llama3", "qwen", "vicuna")
    assert not blocked(tmp_path, {name: SHIPPED[name] for name in named}, tokens, train_headers=True)
