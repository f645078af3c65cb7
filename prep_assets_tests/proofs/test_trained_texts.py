"""The second derivation alone: against conversations spelled out, against templates' own tags, and where it must refuse."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from prep_assets.caches import CACHES
from prep_assets.config.mask import MaskPolicy
from prep_assets.errors import CheckFailed, Refused
from prep_assets.proofs.derive import MaskOptions, derive, disagreement
from prep_assets.proofs.rebuilt import Shape
from prep_assets.samples import ASSISTANT, COMPLETION, IMAGE, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, changed, turn
from prep_assets.text import spans
from prep_assets.text.render import render
from prep_assets_tests.cells import cells
from prep_assets_tests.proofs import conversations
from prep_assets_tests.proofs.conversations import marked
from prep_assets_tests.proofs.harmony import CHAT, HARMONY, derived_of, template
from prep_assets_tests.proofs.trained_conversations import ALL_ESCAPED, ESCAPES, LATE, NOT_PROVEN, TRAINED, TWICE, UNCLOSED

TAGGED = """
{%- for m in messages -%}
  {{- '<|start|>' + m.role + '<|message|>' -}}
  {%- if m.role == 'assistant' -%}{%- generation -%}{{- ANSWER -}}{%- endgeneration -%}{{- AFTER -}}{%- else -%}{{- m.content + '<|end|>' -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start|>assistant<|message|>' -}}{%- endif -%}
""".strip()


def trained(sample: Sample, source: str) -> list[tuple[str, str]]:
    return [(each.text, each.stop) for each in derive(sample, MaskOptions(), template(source)).expected]


def test_several_stops() -> None:
    """Audit W6: earlier answers of such a template end with another token than the last, and it was not trained."""
    header = "<|message|>"
    assert trained(CHAT, HARMONY) == [(f"{header}Hello.<|end|>", "<|end|>"), (f"{header}See you.<|return|>", "<|return|>")]
    call = Turn(ASSISTANT, (Region(TOOL_CALL, json.dumps({"name": "f", "arguments": {"n": 2}})),))
    tools = Sample((turn(USER, "Hi"), call, turn(TOOL, "4"), turn(ASSISTANT, "Four.")))
    wanted = [(' to=f<|message|>{"n": 2}<|call|>', "<|call|>"), (f"{header}Four.<|return|>", "<|return|>")]
    assert trained(tools, HARMONY) == wanted


@pytest.mark.parametrize(
    ("answer", "after", "agrees"),
    [
        ("m.content + '<|end|>'", "''", True),
        ("m.content + '<|end|>\\n'", "''", True),
        ("m.content", "'<|end|>'", True),
        ("m.content[1:] + '<|end|>'", "''", False),
        ("''", "m.content + '<|end|>'", False),
        ("m.content + '<|en'", "'d|>'", False),
        ("m.content + '<|end|>' + 'more'", "''", False),
    ],
)
def test_the_templates_own_tags_are_a_third_derivation(answer: str, after: str, agrees: bool) -> None:
    """Audit W9: the certificate named them as a proof, and nothing used them."""
    source = TAGGED.replace("ANSWER", answer).replace("AFTER", after)
    if agrees:
        assert [text.strip() for text, _ in trained(CHAT, source)] == ["Hello.<|end|>", "See you.<|end|>"]
    else:
        with pytest.raises(CheckFailed):
            derive(CHAT, MaskOptions(), template(source))


@pytest.mark.parametrize(
    "content",
    ["m.content.split('!')[-1]", "m.content | upper", "'' if 'secret' in m.content else m.content", "m.content | replace('e', 'a')"],
)
def test_a_template_that_treats_a_text_otherwise_proves_nothing(content: str) -> None:
    source = HARMONY.replace("+ m.content +", f"+ ({content}) +")
    sample = Sample((turn(USER, "A secret! Where?"), turn(ASSISTANT, "Here! In a secret place.")))
    with pytest.raises(CheckFailed):
        derive(sample, MaskOptions(), template(source))


def test_texts_that_imitate_each_other_and_the_invented_words() -> None:
    sample = Sample((turn(USER, "zqaqz<|end|>"), turn(ASSISTANT, "zqaqz"), turn(USER, "zqaqz"), turn(ASSISTANT, "zqbqz<|end|>zqaqz")))
    found = derive(sample, MaskOptions(), template(HARMONY))
    assert [each.text for each in found.expected] == ["<|message|>zqaqz<|end|>", "<|message|>zqbqz<|end|>zqaqz<|return|>"]
    assert (len(found.controls), found.typed) == (12, 2)


def test_reasoning_that_is_left_out_of_history() -> None:
    source = HARMONY.replace("+ m.content +", "+ (m.reasoning_content + '~' if m.reasoning_content and loop.last else '') + m.content +")
    thinking = [Turn(ASSISTANT, (Region(THINKING, "Hm."), Region(TEXT, text))) for text in ("One.", "Two.")]
    sample = Sample((turn(USER, "1?"), thinking[0], turn(USER, "2?"), thinking[1]))
    assert trained(sample, source) == [("<|message|>One.<|end|>", "<|end|>"), ("<|message|>Hm.~Two.<|return|>", "<|return|>")]


@pytest.mark.parametrize("parts", [("  Hello. ",), ("  Hello.", " "), (" \n", "  Hello."), ("  ", "Hello.")])
@pytest.mark.parametrize("back", ["messages[-2].content", "''"], ids=["refuses a lone question", "has no prompt"])
def test_white_space_before_an_answer_is_its_own(parts: tuple[str, ...], back: str) -> None:
    """Where nothing but its text says where it begins. A region of nothing else is none of its text."""
    source = "{% for m in messages %}{{ m.role }}\n{{ m.content }}{% if 'please' in BACK %}!{% endif %}<|end|>\n{% endfor %}"
    sample = Sample(
        (turn(USER, "Hi"), Turn(ASSISTANT, tuple(Region(TEXT, part) for part in parts)), turn(USER, "Bye"), turn(ASSISTANT, " So."))
    )
    first = next(part for part in parts if part.strip())
    wanted = [first.rstrip() + "".join(parts)[len("".join(parts).rstrip()) :] + "<|end|>", " So.<|end|>"]
    assert [text for text, _ in trained(sample, source.replace("BACK", back))] == wanted
    unstopped = derive(sample, MaskOptions(train_on_eos="none"), template(source.replace("BACK", back)))
    assert [each.text for each in unstopped.expected] == [text.removesuffix("<|end|>") for text in wanted]
    asked = Sample((changed(sample.turns[1], role=USER), sample.turns[3]))
    found = derive(asked, MaskOptions(mask_default="train"), template(source.replace("BACK", back)))
    assert [each.text for each in found.expected] == wanted


# -- whole conversations ----------------------------------------------------------------------------------------------------------------


@cells(("source", "options", "sample", "more", "text", "counts"), TRAINED)
def test_what_is_trained(
    source: str, options: dict[str, Any], sample: Sample, more: dict[str, Any], text: str, counts: tuple[int, int]
) -> None:
    """Counted are control tokens that the template wrote, and those that somebody typed. A build trains the same, or rejects the chat."""
    derived = derived_of(source, options, sample, **more)
    assert marked(derived) == text
    assert (len(derived.controls), derived.typed) == counts
    assert list(derived.controls) == sorted(derived.controls)
    assert {derived.text[start:end] for start, end in derived.controls} <= set(conversations.CONTROL)
    template = conversations.template(source, image=more.get("image", ""), eos=more.get("eos", "<|end|>"))
    try:
        built = render(sample, template, generation_prompt=more.get("prompted", False))
    except Refused as refusal:
        assert (source, refusal.reason) in REJECTED
    else:
        policy = MaskPolicy(**{"mask": {ASSISTANT: "train", COMPLETION: "train"}, **options})
        assert disagreement(derived, built.text, spans.trained(built, policy)) is None


@pytest.mark.parametrize(
    ("source", "turns", "prefixed"),
    [
        (conversations.PLAIN, CHAT.turns, True),
        (conversations.PLAIN.partition("{%- if add_generation_prompt")[0], CHAT.turns, False),
        (conversations.PLAIN, CHAT.turns[:1], False),  # there is no answer
    ],
)
def test_the_prefix_property_says_what_of_every_answer_is_generated(source: str, turns: tuple[Turn, ...], prefixed: bool) -> None:
    assert derive(Sample(turns), MaskOptions(), conversations.template(source)).prefixed is prefixed


REJECTED = {
    (UNCLOSED, "stop_token_not_found"),
    (TWICE, "template_drops_content"),
    *((each, "template_drops_content") for each in (ESCAPES, ALL_ESCAPED)),
}
"""Templates of which a build rejects chats that the second derivation can take apart."""


@pytest.mark.parametrize(("source", "options", "sample", "why"), NOT_PROVEN)
def test_what_is_not_proven(source: str, options: dict[str, Any], sample: Sample, why: str) -> None:
    with pytest.raises(CheckFailed) as raised:
        derived_of(source, options, sample)
    assert str(raised.value) == why


def test_a_render_that_a_build_has_made_is_taken_apart_and_not_trusted() -> None:
    own = conversations.template()
    render = derive(CHAT, MaskOptions(), own).text
    assert derive(CHAT, MaskOptions(), own, rendered=render).text == render
    with pytest.raises(CheckFailed):
        derive(CHAT, MaskOptions(), own, rendered=render.replace("Hello", "Hallo"))


MARKS_WRONG = """
{%- for m in messages -%}
  {%- if m.role == 'user' -%}{{- '<|s|>' + m.content + '<|e|>' -}}
  {%- elif loop.index0 < LAST -%}{%- generation -%}{{- m.content + '<|e|>' -}}{%- endgeneration -%}
  {%- else -%}{{- m.content[:3] -}}{%- generation -%}{{- m.content[3:CUT] -}}{%- endgeneration -%}{{- m.content[CUT:] + '<|e|>' -}}{%- endif -%}
{%- endfor -%}
""".strip()
LONG = "Hello. " + "x" * 68
LONGER = "Hello. " + "x" * 69


@pytest.mark.parametrize(
    ("turns", "last", "cut", "says_why"),
    [
        (CHAT.turns, 2, 5, "template own marks [' y'] of turn 3 as generated, which is 'See you.<|e|>'"),
        ((turn(ASSISTANT, "Hello."),), 0, 5, "template own marks ['lo'] of turn 0 as generated, which is 'Hello.<|e|>'"),
        (
            (turn(USER, "Hi"), turn(ASSISTANT, LONG)),
            0,
            60,
            f"template own marks ['lo. {'x' * 53}'] of turn 1 as generated, which is 'Hello. {'x' * 68}<|e|>'",
        ),
        (
            (turn(USER, "Hi"), turn(ASSISTANT, LONGER)),
            0,
            60,
            f"template own marks ['lo. {'x' * 53}'] of turn 1 as generated, which is 'Hello. {'x' * 32}…{'x' * 35}<|e|>'",
        ),
    ],
)
def test_tags_that_mark_another_answer(turns: tuple[Turn, ...], last: int, cut: int, says_why: str) -> None:
    source = MARKS_WRONG.replace("LAST", str(last)).replace("CUT", str(cut))
    with pytest.raises(CheckFailed) as raised:
        derive(Sample(turns), MaskOptions(), conversations.template(source))
    assert str(raised.value) == says_why


def test_an_answer_without_tags_beside_one_that_has_them() -> None:
    source = (
        MARKS_WRONG.partition("{%- else -%}")[0].replace("LAST", "2") + "{%- else -%}{{- m.content + '<|e|>' -}}{%- endif -%}{%- endfor -%}"
    )
    with pytest.raises(CheckFailed, match=r"marks \[\] of turn 3 as generated, which is 'See you.<\|e\|>'"):
        derive(CHAT, MaskOptions(), conversations.template(source))


@pytest.mark.parametrize(
    ("answer", "after_question", "marks"),
    [
        ("{{- m.content -}}{%- endgeneration -%}{%- generation -%}{{- '<|e|>!' -}}", "{{- '<|e|>' -}}", ["Hello.", "<|e|>!"]),
        (
            "{{- m.content + '<|e|>' -}}",
            "{%- generation -%}{{- '<|e|>' -}}{{- 'A:' if add_generation_prompt or not loop.last -}}{%- endgeneration -%}",
            ["<|e|>A:", "Hello.<|e|>"],
        ),
    ],
    ids=["after it", "before it"],
)
def test_tags_of_more_that_touch_those_of_an_answer(answer: str, after_question: str, marks: list[str]) -> None:
    source = (
        "{%- for m in messages -%}{%- if m.role == 'user' -%}{{- '<|s|>' + m.content -}}QUESTION{%- else -%}"
        "{%- generation -%}ANSWER{%- endgeneration -%}{%- endif -%}{%- endfor -%}"
    ).replace("QUESTION", after_question)
    with pytest.raises(CheckFailed) as raised:
        derive(Sample(CHAT.turns[:2]), MaskOptions(), conversations.template(source.replace("ANSWER", answer)))
    assert str(raised.value) == f"template own marks {marks} of turn 1 as generated, which is 'Hello.<|e|>'"


VARIANT = HARMONY.replace("{{- '<|start|>assistant<|message|>'", "{{- HEADER -}}{%- generation -%}{{- LEAD").replace(
    "'<|end|>') -}}", "'<|end|>') -}}{%- endgeneration -%}"
)


@pytest.mark.parametrize(
    ("header", "lead", "agrees"),
    [
        ("'<|start|>assistant'", "'<|message|>'", True),
        ("'<|start|>'", "'assistant<|message|>'", True),
        ("''", "'<|start|>assistant<|message|>'", True),
        ("'<|start|>assistant<|message|>'", "''", False),
    ],
    ids=["where the prompt ends", "within the prompt", "the whole prompt", "after what a model writes itself"],
)
def test_tags_begin_where_an_answer_does(header: str, lead: str, agrees: bool) -> None:
    """An answer that begins too early or too late passed, as long as the tags held its own text and ended where it does."""
    bound = replace(template(HARMONY), training=VARIANT.replace("HEADER", header).replace("LEAD", lead))
    if agrees:
        found = derive(CHAT, MaskOptions(), bound)
        assert found == replace(derive(CHAT, MaskOptions(), template(HARMONY)), tagged=True)
    else:
        says = r"^the training_template of template own marks \['Hello.<\|end\|>'\] of turn 1 as generated, which is '<\|message\|>Hello"
        with pytest.raises(CheckFailed, match=says):
            derive(CHAT, MaskOptions(), bound)


TALK = conversations.chat(conversations.user("Hi"), conversations.says("One."), conversations.user("And?"), conversations.says("Two."))
UNSERVED = ". No server sends the prompt before it: set expand: turns, or train_turns: last"


@pytest.mark.parametrize(
    ("prompt", "marks", "options", "lacks"),
    [
        ("", ("One.", "Two."), {}, ""),
        ("", ("Two.",), {}, "turn 1 as generated, which is 'One.<|e|>'"),
        ("", ("Two.",), {"train_turns": "last"}, ""),
        ("", ("One.",), {"train_turns": "last"}, "turn 3 as generated, which is 'Two.<|e|>'"),
        ("<think>", (), {}, f"turn 1 as generated, which is 'One.<|e|>'{UNSERVED}"),
    ],
)
@pytest.mark.parametrize("prompts", [False, True])
def test_code_that_writes_chats_marks_the_answers_that_are_trained(
    prompt: str, marks: tuple[str, ...], options: dict[str, Any], lacks: str, prompts: bool
) -> None:
    """Behind a prompt that no server sends its marks do not count where such answers are counted."""

    def render(messages: Any, tools: Any, options: Any, prompted: bool) -> str:
        return "".join(f"<|s|>{m['role']}\n{m['content']}<|e|>" for m in messages) + f"<|s|>assistant\n{prompt}" * prompted

    def generated(*given: Any) -> tuple[tuple[int, int], ...]:
        return tuple(found.span() for each in marks for found in re.finditer(re.escape(f"{each}<|e|>"), render(*given)))

    code: Any = SimpleNamespace(render=render, render_again=render, generated=generated)
    own = replace(conversations.template(f"code: {prompt}, {marks}"), renderer=code)
    if lacks and not (prompt and prompts):
        with pytest.raises(CheckFailed) as raised:
            derive(TALK, MaskOptions(**options), own, prompts=prompts)
        assert str(raised.value) == f"template own marks [] of {lacks}"
    else:
        assert derive(TALK, MaskOptions(**options), own, prompts=prompts).unserved == ((1, 3) if prompt else ())


@pytest.mark.parametrize("prompts", [False, True])
def test_tags_of_a_template_count_behind_any_prompt(prompts: bool) -> None:
    source = (MARKS_WRONG.replace("LAST", "2") + "{%- if add_generation_prompt -%}{{- '<think>' -}}{%- endif -%}").replace("CUT", "5")
    with pytest.raises(CheckFailed) as raised:
        derive(CHAT, MaskOptions(), conversations.template(source), prompts=prompts)
    assert str(raised.value) == "template own marks [' y'] of turn 3 as generated, which is 'See you.<|e|>'"


@pytest.mark.parametrize(
    "source", [VARIANT.replace("HEADER", "'<|start|>assistant!'").replace("LEAD", "''"), "{{- raise_exception('no') -}}"]
)
def test_a_variant_that_renders_otherwise_proves_nothing_and_harms_nothing(source: str) -> None:
    assert derive(CHAT, MaskOptions(), replace(template(HARMONY), training=source)) == derive(CHAT, MaskOptions(), template(HARMONY))


@pytest.mark.parametrize("early", [True, False])
def test_a_rule_that_misleads_both_derivations_is_found_by_tags(monkeypatch: pytest.MonkeyPatch, early: bool) -> None:
    """Both let an answer begin where the render before it, with the generation prompt, ends. Here that rule is wrong in the second as it would be in both."""

    def start(shape: Any, before: Any, block: Any) -> int:
        text: str = shape.text
        return text.rindex("<|start|>", 0, block.start) if early else int(block.start)

    monkeypatch.setattr(Shape, "_start", start)
    CACHES["rebuilders"].clear()  # shapes keep their borders
    tagged = VARIANT.replace("HEADER", "'<|start|>assistant'").replace("LEAD", "'<|message|>'")
    assert derive(CHAT, MaskOptions(), template(HARMONY)).expected[0].text.startswith("<|start|>" if early else "Hello.")
    with pytest.raises(CheckFailed, match="as generated"):
        derive(CHAT, MaskOptions(), replace(template(HARMONY), training=tagged))


def test_images_of_several_sizes_stand_in_the_order_of_their_turns() -> None:
    """The template writes the question before the answer in front of it."""
    for placeholders in (("<img>", "<img><img>"), ("<img>", "<img>")):
        asked, said = (
            Turn(role, (Region(IMAGE, "a.png", placeholder=each),)) for role, each in zip((USER, ASSISTANT), placeholders, strict=True)
        )
        sample, own = Sample((said, asked)), conversations.template(LATE, image="<img>")
        if len({*placeholders}) == 1:
            assert derive(sample, MaskOptions(mask={}), own).text.count("<img>") == 2
            continue
        with pytest.raises(CheckFailed, match="writes turns in another order, so which image stands where is not proven"):
            derive(sample, MaskOptions(mask={}), own)


def test_what_stands_for_an_image_is_the_template_s_wherever_white_space_is() -> None:
    picture = Region(IMAGE, "a.png", placeholder="<img><img>")
    asked = Turn(USER, (Region(TEXT, "    "), picture, Region(TEXT, "<img> what? "), picture, Region(TEXT, " <img>")))
    sample = Sample((asked, turn(ASSISTANT, "A cat.")))
    own = conversations.template(image="<img>")
    derived = derive(sample, MaskOptions(), own)
    assert [derived.text[start:end] for start, end in derived.controls].count("<img>") == 4 and derived.typed == 2
    assert derive(sample, MaskOptions(), own, rendered="not looked at") == derived


@pytest.mark.parametrize("said", ["", " ", "\n"])
def test_a_chat_of_blank_texts_trains_nothing(said: str) -> None:
    for eos in ("turn", "all"):
        derived = derive(Sample((turn(USER, said), turn(ASSISTANT, said))), MaskOptions(train_on_eos=eos), conversations.template())
        assert derived.expected == () and derived.text == f"<|s|>user\n{said}<|e|>\n<|s|>assistant\n{said}<|e|>\n"
