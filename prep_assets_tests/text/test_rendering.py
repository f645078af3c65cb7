"""Where contents stand in a render: texts, images and reasoning."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prep_assets.config.family import REASONING_TAGS
from prep_assets.errors import Refused
from prep_assets.proofs.second_reading import NoCall, read_again
from prep_assets.samples import (
    ASSISTANT,
    COMPLETION,
    DOCUMENT,
    IMAGE,
    PROMPT,
    SYSTEM,
    TEXT,
    THINKING,
    TOOL,
    TOOL_CALL,
    USER,
    Pair,
    Region,
    Sample,
    Turn,
    changed,
    turn,
)
from prep_assets.text.load_template import load_template
from prep_assets.text.render import InlineReasoning, render
from prep_assets.text.spans import Rendered
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.cells import cells
from prep_assets_tests.effort import examples

# Where contents stand in a render: against layouts written down in Python, and by search where contents are unique; reasoning in the text of answers.


Chat = list[tuple[str, str]]
"""Role and content of each turn."""
Pieces = list[tuple[str, int | None]]

EOS = "<|endoftext|>"


@dataclass(frozen=True)
class Layout:
    """A template twice.

    Attributes:
        jinja: its source.
        pieces: the same in Python.
        always: whether it keeps every content, at most without its outer white space, so that no chat may be refused.
    """

    jinja: str
    pieces: Callable[[Chat], Pieces]
    always: bool = True


def _each(write: Callable[[str, str, int], Pieces]) -> Callable[[Chat], Pieces]:
    return lambda chat: [piece for turn, (role, content) in enumerate(chat) for piece in write(role, content, turn)]


def _around(before: str, after: str, edit: Callable[[str], str] = str) -> Callable[[Chat], Pieces]:
    """Every content between two texts; ``{role}`` stands for the role."""
    return _each(lambda role, content, turn: [(before.format(role=role), None), (edit(content), turn), (after, None)])


def _loop(content: str, before: str = "[{{ m.role }}] ", after: str = "{{ '<end>\\n' }}") -> str:
    return "{% for m in messages %}" + before + "{{ " + content + " }}" + after + "{% endfor %}"


def _default_system(chat: Chat) -> Pieces:
    start: Pieces = [] if chat[0][0] == "system" else [("[system] You are kind.<end>\n", None)]
    return start + _around("[{role}] ", "<end>\n")(chat)


def _moved_system(chat: Chat) -> Pieces:
    """The system's text opens the first user turn."""
    pieces: Pieces = []
    system = chat[0][1] if chat[0][0] == "system" else None
    for turn, (role, content) in enumerate(chat):
        if role == "system":
            continue
        pieces.append((f"[{role}] ", None))
        if system is not None:
            pieces += [(system, 0), ("\n\n", None)]
            system = None
        pieces += [(content, turn), ("<end>\n", None)]
    return pieces


def _reversed(chat: Chat) -> Pieces:
    return [
        piece
        for turn, (role, content) in reversed(list(enumerate(chat)))
        for piece in [(f"[{role}] ", None), (content, turn), ("<end>\n", None)]
    ]


def _without_system(chat: Chat) -> Pieces:
    shown = [(role, "" if role == "system" else content) for role, content in chat]
    return _around("[{role}] ", "<end>\n")(shown)


MOVED = """{%- if messages[0].role == 'system' -%}{%- set system = messages[0].content + '\n\n' -%}{%- set rest = messages[1:] -%}
{%- else -%}{%- set system = '' -%}{%- set rest = messages -%}{%- endif -%}
{%- for m in rest -%}{{ '[' + m.role + '] ' + (system if loop.first else '') + m.content + '<end>\n' }}{%- endfor -%}"""

DEFAULT = "{% if messages[0].role != 'system' %}{{ '[system] You are kind.<end>\\n' }}{% endif %}" + _loop("m.content")

LAYOUTS = {
    "keeps": Layout(_loop("m.content"), _around("[{role}] ", "<end>\n")),
    "trims": Layout(_loop("m.content | trim"), _around("[{role}] ", "<end>\n", str.strip)),
    "trims on the left": Layout(_loop("m.content.lstrip()"), _around("[{role}] ", "<end>\n", str.lstrip)),
    "trims on the right": Layout(_loop("m.content.rstrip()"), _around("[{role}] ", "<end>\n", str.rstrip)),
    "trims new lines": Layout(_loop("m.content.strip('\\n')"), _around("[{role}] ", "<end>\n", lambda text: text.strip("\n"))),
    "writes white space around": Layout(
        _loop("m.content | trim", "{{ m.role + ':\\n ' }}", "{{ ' \\n\\n' }}<end>"), _around("{role}:\n ", " \n\n<end>", str.strip)
    ),
    "has a default system turn": Layout(DEFAULT, _default_system),
    "moves the system turn": Layout(MOVED, _moved_system, always=False),
    "writes backwards": Layout("{% for m in messages | reverse %}[{{ m.role }}] {{ m.content }}{{ '<end>\\n' }}{% endfor %}", _reversed),
    "has nothing between turns": Layout(_loop("m.content", "", ""), _around("", ""), always=False),
    "has a space between turns": Layout(_loop("m.content", "", " "), _around("", " "), always=False),
    "trims questions, nothing between turns": Layout(
        "{% for m in messages %}{{ m.content | trim if m.role == 'user' else m.content }}{% endfor %}",
        _each(lambda role, content, turn: [(content.strip() if role == "user" else content, turn)]),
        always=False,
    ),
    "shouts": Layout(_loop("m.content | upper"), _around("[{role}] ", "<end>\n", str.upper), always=False),
    "capitalizes": Layout(_loop("m.content | capitalize"), _around("[{role}] ", "<end>\n", str.capitalize), always=False),
    "cuts off": Layout(_loop("m.content[:6]"), _around("[{role}] ", "<end>\n", lambda text: text[:6]), always=False),
    "drops the system turn": Layout(_loop("m.content if m.role != 'system' else ''"), _without_system, always=False),
    "repeats": Layout(
        _loop("m.content + ' ' + m.content"),
        _each(lambda role, content, turn: [(f"[{role}] {content} {content}<end>\n", None)]),
        always=False,
    ),
    "tells contents apart": Layout(
        _loop("('!' if m.content == 'Hello' else '') + m.content"),
        _each(lambda role, content, turn: [(f"[{role}] " + "!" * (content == "Hello"), None), (content, turn), ("<end>\n", None)]),
        always=False,
    ),
}


def chatml(chat: Chat) -> Pieces:
    return _around("<|im_start|>{role}\n", "<|im_end|>\n")(chat)


def plain(chat: Chat) -> Pieces:
    return _around("<|{role}|>\n", EOS)(chat)


def text_of(pieces: Pieces) -> str:
    return "".join(text for text, _ in pieces)


def spans_of(pieces: Pieces) -> Iterator[tuple[int, int, int]]:
    """Turn, start and end of every content that is there."""
    at = 0
    for text, turn in pieces:
        if turn is not None and text:
            yield turn, at, at + len(text)
        at += len(text)


# Where contents stand in a render: against layouts written down in Python, and by search where contents are unique.

SPECIAL = {"bos_token": EOS, "eos_token": EOS, "pad_token": "<|pad|>"}
NOT_TEXT = ["\ufdd0", "\ufdef", "\ud83d", "\udc00"]
PIECES = [
    *(
        *("", " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u2003", "\x1c", "Hello", "Hello", "a", "A", "12", "é", "👍", "e\u0301"),
        *("中文", "ß", "ŉ"),
    ),
    *("<|im_start|>", "<|im_end|>", EOS, "<|user|>\n", "<|assistant|>\n", "<end>\n", "[user] ", "[INST]"),
    *("{{ x }}", "{% endfor %}", "{# #}", "{{ messages }}", "\\n", "'", '"', "&lt;", "<", "\ufffe", "\uffff", "\ufdcf", "\ufdf0"),
]
CHARACTERS = st.characters(codec="utf-8", exclude_characters="".join(map(chr, range(0xFDD0, 0xFDF0))))
CONTENT = st.lists(st.sampled_from(PIECES) | st.text(CHARACTERS, max_size=4), max_size=5).map("".join)


def _chat(content: st.SearchStrategy[str]) -> st.SearchStrategy[Chat]:
    first = st.lists(content.map(lambda text: (SYSTEM, text)), max_size=1)
    rounds = st.lists(st.tuples(content, content), min_size=1, max_size=3)
    return st.builds(lambda head, body: head + [turn for ask, answer in body for turn in ((USER, ask), (ASSISTANT, answer))], first, rounds)


CHAT = _chat(CONTENT)


def sample_of(chat: Chat) -> Sample:
    return Sample(tuple(turn(role, content) for role, content in chat))


def own(jinja: str) -> ChatTemplate:
    return ChatTemplate("own", jinja, SPECIAL)


def attempt(chat: Chat, template: ChatTemplate) -> Rendered | Refused:
    try:
        return render(sample_of(chat), template)
    except Refused as refusal:
        assert refusal.stage == "render"
        return refusal


def assert_is(rendered: Rendered, chat: Chat, pieces: Pieces) -> None:
    """The text is the layout's, and so is every span; a content of white space alone may go without one."""
    assert rendered.text == text_of(pieces)
    found = [(span.turn, span.start, span.end) for span in rendered.spans]
    expected = list(spans_of(pieces))
    assert set(found) <= set(expected)
    assert [where for where in expected if chat[where[0]][1].strip()] == [where for where in found if chat[where[0]][1].strip()]
    for span in rendered.spans:
        assert span.role == chat[span.turn][0]
        assert span.region.text == chat[span.turn][1]
        assert rendered.text[span.start : span.end].strip() == span.region.text.strip()


# arbitrary contents


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=examples(60), deadline=None)
@given(chat=CHAT)
@example(chat=[(USER, "a "), (ASSISTANT, " b")])
@example(chat=[(USER, "  "), (ASSISTANT, " b "), (USER, " "), (ASSISTANT, "c")])
@example(chat=[(SYSTEM, " s "), (USER, " u "), (ASSISTANT, " ")])
@example(chat=[(USER, "Hello"), (ASSISTANT, "Hello")])
@example(chat=[(USER, "a "), (ASSISTANT, " ")])
def test_own_templates_are_followed_exactly_or_refused(name: str, chat: Chat) -> None:
    layout = LAYOUTS[name]
    found = attempt(chat, own(layout.jinja))
    if isinstance(found, Refused):
        assert not layout.always, f"{found.reason}: {found.detail}"
        assert found.reason in ("template_rewrites_content", "template_drops_content")
    else:
        assert_is(found, chat, layout.pieces(chat))


@settings(max_examples=examples(60), deadline=None)
@given(CHAT)
def test_spans_do_not_overlap_and_content_is_theirs(chat: Chat) -> None:
    for layout in LAYOUTS.values():
        found = attempt(chat, own(layout.jinja))
        if isinstance(found, Refused):
            continue
        borders = [border for span in found.spans for border in (span.start, span.end)]
        assert borders == sorted(borders)
        inside = {at for span in found.spans for at in range(span.start, span.end)}
        assert {at for start, end in found.content for at in range(start, end)} <= inside
        assert all(found.text[at].isspace() for at in inside - {at for start, end in found.content for at in range(start, end)})


def test_an_innocent_chat_is_not_refused() -> None:
    """What may be refused is what a template does to a content, not the template."""
    chat = [(SYSTEM, "Be brief."), (USER, "What is 2+2?"), (ASSISTANT, "4")]
    refused = {"shouts", "capitalizes", "cuts off", "drops the system turn", "repeats"}
    assert {name for name, layout in LAYOUTS.items() if isinstance(attempt(chat, own(layout.jinja)), Refused)} == refused


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("shouts", "template_drops_content"),
        ("drops the system turn", "template_drops_content"),
        ("repeats", "template_drops_content"),
        ("cuts off", "template_rewrites_content"),
        ("tells contents apart", "template_rewrites_content"),
    ],
)
def test_a_template_that_changes_contents_is_refused(name: str, reason: str) -> None:
    found = attempt([(SYSTEM, "Hello there"), (USER, "Hello"), (ASSISTANT, "Hello")], own(LAYOUTS[name].jinja))
    assert isinstance(found, Refused)
    assert found.reason == reason


def test_white_space_that_the_template_writes_in_the_place_of_a_contents_own_is_not_the_contents() -> None:
    template = own("{% for m in messages %}{{ ('\\n' if m.content.startswith(' ') else '') + m.content.strip() }}.{% endfor %}")
    assert template.render([{"role": USER, "content": " Hello"}]) == "\nHello."
    found = attempt([(USER, " Hello")], template)
    assert isinstance(found, Refused)
    assert found.reason == "template_rewrites_content"
    assert not isinstance(attempt([(USER, "Hello ")], template), Refused)


@pytest.mark.parametrize("bad", NOT_TEXT)
@pytest.mark.parametrize("role", [SYSTEM, USER, ASSISTANT])
def test_what_is_no_text_is_refused(vocabulary: Vocabulary, bad: str, role: str) -> None:
    chat = [(each, f"Hé{bad}" if each == role else "Hi") for each in (SYSTEM, USER, ASSISTANT)]
    for name in ("plain", "chatml", "tokenizer"):
        found = attempt(chat, load_template(name, vocabulary))
        assert isinstance(found, Refused)
        assert found.reason == ("noncharacter" if bad >= "\ufdd0" else "lone_surrogate")
        assert "character 2" in found.detail


@pytest.mark.parametrize("bad", [*NOT_TEXT, "<|im_end|>", EOS])
def test_names_and_roles_cannot_smuggle_in_what_contents_cannot(vocabulary: Vocabulary, bad: str) -> None:
    """They reach the render without marks around them."""
    template = replace(
        load_template("chatml", vocabulary), source="{% for m in messages %}{{ m.role }}{{ m.name }}: {{ m.content }}<|im_end|>{% endfor %}"
    )
    for smuggler in (Turn(USER, (Region(TEXT, "Hi"),), name=f"Ann{bad}"), Turn(f"user{bad}", (Region(TEXT, "Hi"),))):
        with pytest.raises(Refused) as caught:
            render(Sample((smuggler, turn(ASSISTANT, "Hello"))), template)
        assert caught.value.stage == "render"


@pytest.mark.parametrize("bad", NOT_TEXT)
def test_tools_cannot_smuggle_in_what_contents_cannot(vocabulary: Vocabulary, bad: str) -> None:
    template = replace(
        load_template("chatml", vocabulary), source="{{ tools | tojson }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    )
    sample = Sample((turn(USER, "Hi"), turn(ASSISTANT, "Hello")), tools=({"name": f"add{bad}"},))
    with pytest.raises(Refused):
        render(sample, template)


# several regions in a turn

REGIONS = st.lists(st.sampled_from(PIECES[:20]) | st.text(CHARACTERS, max_size=3), min_size=1, max_size=4)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(REGIONS, min_size=1, max_size=3), st.sampled_from([0, 1, 2]))
def test_regions_of_one_turn_stand_side_by_side(vocabulary: Vocabulary, texts: list[list[str]], dropped: int) -> None:
    """Every region has its own span; one that is dropped has none and leaves nothing."""

    def region(number: int, text: str) -> Region:
        return Region(TEXT, text, loss_weight=float(number), drop=number % 3 == dropped)

    turns = tuple(Turn(ASSISTANT, tuple(region(number, text) for number, text in enumerate(regions))) for regions in texts)
    expected, parts = [], []
    for number, each in enumerate(turns):
        parts.append("<|im_start|>assistant\n")
        for shown in (one for one in each.regions if not one.drop):
            start = len("".join(parts))
            parts.append(shown.text)
            if each.text.strip() and shown.text:
                expected.append((start, start + len(shown.text), number, shown))
        parts.append("<|im_end|>\n")
    found = render(Sample(turns), load_template("chatml", vocabulary))
    assert found.text == "".join(parts)
    spans = [(span.start, span.end, span.turn, span.region) for span in found.spans]
    assert [span for span in spans if span[3].text.strip()] == [span for span in expected if span[3].text.strip()]
    assert all(span in expected or turns[span[2]].text.isspace() for span in spans)


# turns that no template renders


@given(st.lists(st.text(CHARACTERS, max_size=5), min_size=1, max_size=4))
def test_a_prompt_and_its_completion_are_joined(texts: list[str]) -> None:
    turns = tuple(turn(PROMPT if number % 2 == 0 else COMPLETION, text) for number, text in enumerate(texts))
    found = render(Sample(turns), None)
    assert found.text == "".join(texts)
    assert "".join(found.text[span.start : span.end] for span in found.spans) == "".join(texts)
    assert [found.text[span.start : span.end] for span in found.spans if span.region.text] == [text for text in texts if text]


def test_chat_roles_need_a_template() -> None:
    with pytest.raises(Refused, match=r"needs_template: .*use the schema text, or put chats into sft"):
        render(sample_of([(USER, "Hi")]), None)


@pytest.mark.parametrize(
    ("beside", "said"),
    [({"tools": ({"name": "add"},)}, "tools"), ({"documents": ({"text": "d"},)}, "documents"), ({"template_options": {"a": 1}}, "kwargs")],
)
def test_text_without_a_template_refuses_what_only_a_template_shows(beside: dict[str, Any], said: str) -> None:
    """Tools of a row of prompt and completion vanished."""
    with pytest.raises(Refused, match=f"needs_template: .*{said}"):
        render(changed(sample_of([(PROMPT, "Hi"), (COMPLETION, "Hello")]), **beside), None)


def test_a_template_refuses_roles_it_does_not_know(vocabulary: Vocabulary) -> None:
    with pytest.raises(Refused, match=r"template_refuses: template plain: .*not 'tool'"):
        render(sample_of([(USER, "Hi"), ("tool", "4")]), load_template("plain", vocabulary))


# Images in renders: their placeholder stands for them, never their path, and where it stands is known.


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
SPECIAL_IMAGES = {"eos_token": "<eos>"}


def template(image: str, source: str = CHATML) -> ChatTemplate:
    return ChatTemplate("own", source, SPECIAL_IMAGES, {}, ("<|im_start|>", "<|im_end|>", "<img>", "<eos>"), image=image)


def picture(path: str = "a/1.png", **more) -> Region:
    return Region(IMAGE, path, **more)


def text(words: str, **more) -> Region:
    return Region(TEXT, words, **more)


@pytest.mark.parametrize("patches", [1, 3])
@pytest.mark.parametrize(
    "sample",
    [
        Sample((Turn(PROMPT, (picture(),)), Turn(COMPLETION, (text("A dog."),)))),
        Sample((Turn(DOCUMENT, (text("Left"), picture(), text("right"))),)),
        Sample((Turn(PROMPT, (picture(), text("What?", drop=True))), Turn(COMPLETION, (text("It."), picture("b.png"))))),
        Sample((Turn(USER, (text("Who? "), picture())), Turn(ASSISTANT, (text("Kane."),)))),
        Sample((Turn(USER, (picture(), picture("b.png"), text(" Who?"))), Turn(ASSISTANT, (picture("c.png"), text("Kane."))))),
    ],
)
def test_the_placeholder_stands_where_the_image_stood_and_the_path_nowhere(sample: Sample, patches: int) -> None:
    rendered = render(sample, template("<img>" * patches))
    regions = [region for turn in sample.turns for region in turn.regions if region.kind == IMAGE]
    assert not any(region.text in rendered.text for region in regions)
    assert [region for _, _, region in rendered.images] == regions
    assert [rendered.text[start:end] for start, end, _ in rendered.images] == ["<img>" * patches] * len(regions)
    assert rendered.text.count("<img>") == patches * len(regions)
    assert not any(low < end and start < high for low, high in rendered.content for start, end, _ in rendered.images)


def test_a_dropped_image_is_not_there() -> None:
    sample = Sample((Turn(USER, (picture(drop=True), text("Who?"))), Turn(ASSISTANT, (text("Kane."),))))
    rendered = render(sample, template("<img>"))
    assert rendered.images == () and "<img>" not in rendered.text


@pytest.mark.parametrize(("first", "second"), [(USER, ASSISTANT), (PROMPT, COMPLETION)])
def test_without_an_image_token_a_sample_with_an_image_is_refused(first: str, second: str) -> None:
    sample = Sample((Turn(first, (picture(), text("Who?"))), Turn(second, (text("Kane."),))))
    with pytest.raises(Refused) as refused:
        render(sample, template(""))
    assert refused.value.reason == "no_image_token" and "image_token" in refused.value.detail


def test_placeholders_that_are_not_told_from_typed_text_are_content_no_more() -> None:
    """The text of the token, typed by somebody, is content; only the template's own and the placeholders are not."""
    sample = Sample((Turn(USER, (picture(), text("is <img> a tag?"))), Turn(ASSISTANT, (text("Yes."),))))
    rendered = render(sample, template("<img>"))
    outside = [rendered.text[low:high] for low, high in rendered.content]
    assert outside == ["is <img> a tag?", "Yes."]
    assert len(rendered.images) == 1


# Reasoning in the text of answers, against templates that read it themselves and against a second reading.


ASKED = turn(USER, "2 + 2?")


def answered(*regions: Region) -> Sample:
    return Sample((ASKED, Turn(ASSISTANT, regions)))


def read(sample: Sample, mode: Any = "auto", *, shown: bool = True) -> list[tuple[str, str]]:
    found = InlineReasoning(mode, REASONING_TAGS, shown).read(sample)
    return [(region.kind, region.text) for region in found.turns[-1].regions]


@pytest.mark.parametrize(("opening", "closing"), REASONING_TAGS)
def test_a_block_at_the_beginning_is_reasoning_in_every_spelling(opening: str, closing: str) -> None:
    sample = answered(Region(TEXT, f"{opening}\nTwo twos.\n{closing}\n\n4.", 0.5))
    found = InlineReasoning("auto", REASONING_TAGS, shown=True).read(sample).turns[-1].regions
    assert found == (Region(THINKING, "Two twos.", 0.5), Region(TEXT, "4.", 0.5))


def test_a_template_without_reasoning_leaves_the_block_in_the_text() -> None:
    assert read(answered(Region(TEXT, "<think>a</think>b")), shown=False) == [(TEXT, "<think>a</think>b")]
    assert read(answered(Region(TEXT, "<think>a</think>b")), "inline") == [(TEXT, "<think>a</think>b")]


@pytest.mark.parametrize("shown", [True, False])
def test_the_same_reasoning_in_field_and_text_is_shown_once(shown: bool) -> None:
    """Audit W20: it was rendered twice."""
    found = read(answered(Region(THINKING, "a\n"), Region(TEXT, "<think>\na\n</think>\n\nb")), shown=shown)
    assert found == ([(THINKING, "a\n"), (TEXT, "b")] if shown else [(TEXT, "<think>\na\n</think>\n\nb")])


@pytest.mark.parametrize("mode", ["auto", "inline"])
@pytest.mark.parametrize("shown", [True, False])
def test_reasoning_that_differs_from_the_field_is_refused(mode: str, shown: bool) -> None:
    with pytest.raises(Refused, match="conflicting_reasoning"):
        read(answered(Region(THINKING, "a"), Region(TEXT, "<think>c</think>b")), mode, shown=shown)


@pytest.mark.parametrize(
    "text",
    [
        "2+2=4. </think> 4.",
        "2+2=4.\n</think>\n\n4.\n</think>\n5",
        "<think>never closed",
        "<think>a</think>b<think>c</think>d",
        "<think>a<think>b</think>c</think>d",
        "</think><think>a",
    ],
)
def test_tags_that_do_not_pair_up_are_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(Refused, match=r"unbalanced_reasoning.*reasoning: inline"):
        read(answered(Region(TEXT, text)))
    assert read(answered(Region(TEXT, text)), "inline") == [(TEXT, text)]


@pytest.mark.parametrize("text", ["2+2=4.\n</think>\n\n4.", "2+2=4.</think>\n4.", "2+2=4.\n  </think> 4."])
def test_a_closing_tag_alone_at_a_line_end_ends_what_the_prompt_began(text: str) -> None:
    """Servers without a parser of reasoning return completions to a prompt that ends with the opening tag."""
    assert read(answered(Region(TEXT, text))) == [(THINKING, "2+2=4."), (TEXT, "4.")]
    assert read(answered(Region(TEXT, text)), "inline") == [(TEXT, text)]
    assert read(answered(Region(TEXT, text)), shown=False) == [(TEXT, text)]
    with pytest.raises(Refused, match="empty_answer"):
        read(answered(Region(TEXT, "2+2=4.\n</think>\n")))


def test_field_takes_no_block_in_the_text() -> None:
    with pytest.raises(Refused, match="inline_reasoning"):
        read(answered(Region(TEXT, "<think>a</think>b")), "field")
    assert read(answered(Region(THINKING, "a"), Region(TEXT, "b")), "field") == [(THINKING, "a"), (TEXT, "b")]


@pytest.mark.parametrize("text", ["The tag <think> opens it, </think> closes it.", "plain", "", "<thinks>a</thinks>b"])
def test_text_that_speaks_of_tags_stays_text(text: str) -> None:
    assert read(answered(Region(TEXT, text))) == [(TEXT, text)]


def test_users_may_type_tags() -> None:
    sample = Sample((turn(USER, "<think>I am a user</think>Hi"), turn(ASSISTANT, "Hi")))
    assert InlineReasoning("auto", REASONING_TAGS, shown=True).read(sample) == sample


def test_an_empty_block_is_no_reasoning_and_reasoning_alone_is_no_answer() -> None:
    assert read(answered(Region(TEXT, "<think>\n\n</think>\n\n4"))) == [(TEXT, "4")]
    with pytest.raises(Refused, match="empty_answer"):
        read(answered(Region(TEXT, "<think>a</think> ")))
    call = Region(TOOL_CALL, '{"name":"f","arguments":{}}')
    assert read(answered(Region(TEXT, "<think>a</think>"), call)) == [(THINKING, "a"), (TOOL_CALL, call.text)]


def test_both_sides_of_a_pair_are_read() -> None:
    pair = Pair((ASKED,), (turn(ASSISTANT, "<think>a</think>4"),), (turn(ASSISTANT, "<think>b</think>5"),))
    found = InlineReasoning("auto", REASONING_TAGS, shown=True).read(pair)
    assert [side[0].regions[0] for side in (found.chosen, found.rejected)] == [Region(THINKING, "a"), Region(THINKING, "b")]


PARTS = st.lists(st.sampled_from(["<think>", "</think>", "[THINK]", "[/THINK]", "a", " ", "\n", "b c"]), max_size=7).map("".join)


@given(
    st.lists(st.tuples(st.sampled_from([TEXT, THINKING]), PARTS), min_size=1, max_size=3),
    st.sampled_from(["auto", "inline"]),
    st.booleans(),
)
def test_the_second_reading_agrees_wherever_the_first_does_not_refuse(parts: list[tuple[str, str]], mode: Any, shown: bool) -> None:
    sample = answered(*(Region(kind, text) for kind, text in parts))
    try:
        first = InlineReasoning(mode, REASONING_TAGS, shown).read(sample)
    except Refused:
        return
    assert read_again(sample, {"reasoning": mode, "reasoning_tags": REASONING_TAGS}, shown=shown) == first


# Calls that are typed in the text of answers.

ADD = '{"name":"add","arguments":{"a":2}}'
TYPED = '<tool_call>\n{"arguments": {"a": 2}, "name": "add"}\n</tool_call>'


def typed(*turns: Turn, calls: bool = True) -> list[list[tuple[str, str]]]:
    found = InlineReasoning("auto", REASONING_TAGS, shown=True, calls=calls).read(Sample((ASKED, *turns))).turns[1:]
    assert [turn.role for turn in found] == [turns[0].role] * len(found)
    return [[(region.kind, region.text) for region in turn.regions] for turn in found]


@pytest.mark.parametrize(
    ("words", "regions"),
    [
        (TYPED + "\n", [(TOOL_CALL, ADD)]),
        (f"I add.\n\n{TYPED}", [(TEXT, "I add."), (TOOL_CALL, ADD)]),
        (f"<think>Hm.</think>\n\n{TYPED}", [(THINKING, "Hm."), (TOOL_CALL, ADD)]),
        (f"{TYPED}\n{TYPED}{TYPED}", [(TOOL_CALL, ADD)] * 3),
        ('<tool_call>{"name": "add", "parameters": "{\\"a\\": 2}", "id": 7}</tool_call>', [(TOOL_CALL, ADD[:-1] + ',"id":"7"}')]),
        ('<tool_call>{"name": "add"}</tool_call>', [(TOOL_CALL, '{"name":"add","arguments":{}}')]),
        ("<tool_call>\n{'name': 'add',\n 'arguments': {'a': 2}}\n</tool_call>", [(TOOL_CALL, ADD)]),
        ('<tool_call>{"name": "add", "arguments": "{\'a\': 2}"}</tool_call>', [(TOOL_CALL, ADD)]),
        (
            r"""<tool_call>{"name": 'say', 'arguments': {"it's": [True, None, -1.50, {}], 'b': 'a "\'\\\xa0\n'}}</tool_call>""",
            [(TOOL_CALL, '{"name":"say","arguments":{"it\'s":[true,null,-1.5,{}],"b":"a \\"\'\\\\\xa0\\n"}}')],
        ),
    ],
)
def test_calls_typed_at_the_end_of_an_answer_are_calls(words: str, regions: list[tuple[str, str]]) -> None:
    assert typed(turn(ASSISTANT, words)) == [regions]
    assert typed(turn(ASSISTANT, words), calls=False)[0][-1][0] == TEXT


@pytest.mark.parametrize(
    "words", [f"Write {TYPED}", f"{TYPED}\nSo.", "The tag <tool_call> opens a call.", "<tool_call>\n{", f"A {TYPED}\n{TYPED}"]
)
def test_other_text_with_tags_of_calls_stays_text(words: str) -> None:
    assert typed(turn(ASSISTANT, words)) == [[(TEXT, words)]]


@cells(
    "held",
    [
        *("{'name': 'add'", '{"name": ""}', '{"arguments": {}}', '["add"]', '{"name": "add", "a": 2}', '{"name": "add", "arguments": [2]}'),
        *('{"name": "add", "name": "add"}', '{"name": "add", "arguments": {"a": NaN}}', '{"name": "add", "arguments": "{"}', '{"name": 2}'),
        *(
            "{'name': 'a' 'dd'}",
            "{'name': 'add', 'name': 'add'}",
            "{'name': 'add', 'arguments': {2: 3}}",
            "{'name': 'add', 'arguments': {'a': (2,)}}",
        ),
        *(
            "{'name': 'add', 'arguments': {'a': 0x2}}",
            "{'name': 'add', 'arguments': {'a': true}}",
            "{'name': 'add', 'arguments': {'a': [2,]}}",
        ),
        *(
            r"{'name': 'add', 'arguments': {'a': '\alpha'}}",
            "{'name': 'add'}  # so",
            "dict(name='add')",
            "{'name': 'add', 'arguments': {2}}",
        ),
        "<function=add>\n<parameter=a>\n2\n</parameter>\n</function>",
        *(pytest.param(held, id=f"nested {held[:1]}") for held in ("[" * 100_000, "-" * 20_000 + "1", "{'a':" * 3000)),
    ],
)
def test_what_stands_between_the_tags_of_a_call_must_be_one(held: str) -> None:
    with pytest.raises(Refused, match="calls: inline") as error:
        typed(turn(ASSISTANT, f"<tool_call>{held}</tool_call>"))
    assert error.value.reason == "bad_typed_call"
    with pytest.raises(NoCall):
        options = {"reasoning": "auto", "reasoning_tags": (), "calls": "auto"}
        read_again(Sample((turn(ASSISTANT, f"<tool_call>{held}</tool_call>"),)), options, shown=True, calls=True)


@pytest.mark.parametrize(
    "held",
    [
        "\n<function=add>\n<parameter=a>\n2\n</parameter>\n</function>\n",
        "add\n<arg_key>a</arg_key>\n<arg_value>2</arg_value>\n",
        '<invoke name="add"><parameter name="a">2</parameter></invoke>',
    ],
)
def test_calls_as_xml_have_no_types(held: str) -> None:
    with pytest.raises(Refused, match=r"XML writes the number 2 and the text '2' alike.*tool_calls, or set calls: inline"):
        typed(turn(ASSISTANT, f"<tool_call>{held}</tool_call>"))


LITERAL_PARTS = st.lists(
    st.sampled_from(
        [
            *"{}[](),:'\"\\-+#\f\r \n",
            *("'a'", '"a"', "'a': ", "0", "1.50", "1e3", "0x1", "1_0", "True", "None", "true", r"'\x41'", r"'\a'", "u'a'"),
        ]
    ),
    max_size=8,
).map("".join)
LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3) | st.tuples(inner),
).map(repr)


@given(LITERAL_PARTS | LITERALS)
@example("- 1")
@example("{'a'}['a']")
@example("1 -2")
@example("''" + "'a'" + "''")
def test_both_readings_of_python_literals_agree(words: str) -> None:
    sample = Sample((ASKED, turn(ASSISTANT, f"<tool_call>{{'name': 'add', 'arguments': {{'a': {words}}}}}</tool_call>")))
    options = {"reasoning": "auto", "reasoning_tags": REASONING_TAGS, "calls": "auto"}
    try:
        first = InlineReasoning("auto", REASONING_TAGS, True, True).read(sample)
    except Refused:
        with pytest.raises(NoCall):
            read_again(sample, options, shown=True, calls=True)
        return
    assert read_again(sample, options, shown=True, calls=True) == first
    call = ast.literal_eval(sample.turns[1].regions[0].text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert json.loads(first.turns[1].regions[0].text) == call


def test_results_between_tags_lose_these_and_become_a_turn_each() -> None:
    one, two = "<tool_response>\n4\n</tool_response>", "<tool_response>5</tool_response>"
    assert typed(turn(TOOL, f"{one}\n{two}\n")) == [[(TEXT, "4")], [(TEXT, "5")]]
    assert typed(turn(TOOL, f"See {one}")) == [[(TEXT, f"See {one}")]]
    assert typed(turn(TOOL, one), calls=False) == [[(TEXT, one)]]


TYPED_PARTS = st.lists(
    st.sampled_from([TYPED, "<tool_call>", "</tool_call>", "<tool_response>4</tool_response>", "<think>", "</think>", "a", " ", "\n"]),
    max_size=6,
)


@given(TYPED_PARTS.map("".join), st.sampled_from([ASSISTANT, TOOL, USER]), st.booleans())
@example(f"A {TYPED}\n{TYPED}", ASSISTANT, True)
def test_the_second_reading_of_typed_calls_agrees(words: str, role: str, calls: bool) -> None:
    sample = Sample((ASKED, turn(role, words)))
    try:
        first = InlineReasoning("auto", REASONING_TAGS, True, calls).read(sample)
    except Refused:
        return
    options = {"reasoning": "auto", "reasoning_tags": REASONING_TAGS, "calls": "auto"}
    assert read_again(sample, options, shown=True, calls=calls) == first
    if not calls:
        assert read_again(sample, {**options, "calls": "inline"}, shown=True, calls=True) == first
