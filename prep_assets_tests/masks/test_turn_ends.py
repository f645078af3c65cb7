"""Where turns end and begin: stops after tool calls, headers after tool results, and answers that open a chat. Expected masks are written by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from prep_assets.samples import ASSISTANT, IMAGE, SYSTEM, TEXT, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets.text.load_template import named_templates
from prep_assets_tests.cells import cells
from prep_assets_tests.effort import thinned
from prep_assets_tests.masks.bound import SHIPPED, assert_proven, bind, bind_source, run, with_options, written

ADDED = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
CALLS = """
{%- for tool in tools or [] -%}{{- tool | tojson -}}{%- endfor -%}
{%- for m in messages -%}
  {{- '<|im_start|>' + m.role + '\\n' + (m.content or '') -}}
  {%- for call in m.tool_calls or [] -%}{{- 'OPEN' + call.function.name + 'CLOSE' -}}{%- endfor -%}
  {{- ('LAST' if loop.last else 'EARLIER') if m.role == 'assistant' else '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
CALL = Region(TOOL_CALL, json.dumps({"name": "get", "arguments": {}}))
RESULT = Turn(TOOL, (Region(TEXT, "4"),), "get")
TOOLS = ({"type": "function", "function": {"name": "get", "description": "Reads.", "parameters": {}}},)


def called(*calls: Region) -> Sample:
    """A question, calls, their results, an answer, and another round."""
    turns = (
        turn(USER, "Hi"),
        Turn(ASSISTANT, calls),
        *[RESULT] * len(calls),
        turn(ASSISTANT, "Four."),
        turn(USER, "Ok"),
        turn(ASSISTANT, "Yes."),
    )
    return Sample(turns)


@cells("eos", ["turn", "last", "none", "all"])
@cells(
    ("last", "earlier", "stops"),
    [
        ("<|endoftext|>", "<|im_end|>", ("<|im_end|>", "<|endoftext|>")),
        ("<|endoftext|>\\n", "<|im_end|>\\n", ("<|im_end|>⏎", "<|endoftext|>⏎")),
        ("<|im_end|><|endoftext|>", "<|im_end|>\\n", ("<|im_end|>⏎", "<|im_end|><|endoftext|>")),
        ("<|im_end|>", "<|im_end|>", ("<|im_end|>", "<|im_end|>")),
    ],
)
@cells(
    "brackets",
    thinned([("<tool_call>", "</tool_call>"), ("<tool_call>\\n", "\\n</tool_call>"), ("[[", "]]"), ("", "</think></tool_call>")]),
)
def test_what_ends_a_call_is_no_bracket(brackets: tuple[str, str], last: str, earlier: str, stops: tuple[str, str], eos: str) -> None:
    source = CALLS.replace("OPEN", brackets[0]).replace("CLOSE", brackets[1]).replace("LAST", last).replace("EARLIER", earlier)
    bound, options = bind_source(source, added=ADDED), with_options(train_on_eos=eos)
    opened, closed = (text.replace("\\n", "⏎") for text in brackets)

    def answer(text: str, stop: str, is_last: bool = False) -> str:
        token, rest = stop.removesuffix("⏎"), "⏎" * stop.endswith("⏎")
        trained = eos in ("turn", "all") or (eos == "last" and is_last)
        return f"<|im_start|>assistant⏎⟦{text}{token}⟧{rest}" if trained else f"<|im_start|>assistant⏎⟦{text}⟧{token}{rest}"

    def other(role: str, text: str) -> str:
        return f"<|im_start|>{role}⏎{text}{'⟦<|im_end|>⟧' if eos == 'all' else '<|im_end|>'}⏎"

    for count in (1, 2):
        outcome = assert_proven(bound, [called(*[CALL] * count)], options)
        calls = answer(f"{opened}get{closed}" * count, stops[0])
        expected = [other("user", "Hi"), calls, *[other("tool", "4")] * count, answer("Four.", stops[0]), other("user", "Ok")]
        assert written(bound, outcome) == "".join([*expected, answer("Yes.", stops[1], is_last=True)])


NO_STOPS = """
{%- for tool in tools or [] -%}{{- tool | tojson -}}{%- endfor -%}
{%- for m in messages -%}
  {{- '<|' + m.role + '|>\n' + ('<r>\n' + m.content + '\n</r>' if m.role == 'tool' else m.content or '') -}}
  {%- for call in m.tool_calls or [] -%}{{- '<tool_call>' + call.function.name + '</tool_call>' -}}{%- endfor -%}
  {{- '<|im_end|>' if m.role == 'assistant' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\n' -}}{%- endif -%}
"""
"""Only answers end with a stop."""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (named_templates()["qwen"], ["Hi<|im_end|>⟦⏎<|im_start|>assistant⏎", "4⏎</tool_response><|im_end|>⟦⏎<|im_start|>assistant⏎Four."]),
        (
            named_templates()["qwen3"],
            ["Hi<|im_end|>⟦⏎<|im_start|>assistant⏎", "4⏎</tool_response><|im_end|>⟦⏎<|im_start|>assistant⏎<think>"],
        ),
        (named_templates()["llama3"], ["Hi<|eot_id|>⟦<|start_header_id|>assistant", '"4"<|eot_id|>⟦<|start_header_id|>assistant']),
        (NO_STOPS, ["Hi⟦<|assistant|>⏎<tool_call>", "4⏎</r>⟦<|assistant|>⏎Four."]),
    ],
)
def test_a_header_begins_behind_the_turn_before(source: str, expected: list[str]) -> None:
    """After a question, and after a tool's result, which the template may put in brackets or quotes."""
    tokens = ("<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>", "<|assistant|>", "<|user|>", "<|tool|>")
    bound = bind_source(source, added=(*ADDED, *tokens))
    sample = Sample((turn(USER, "Hi"), Turn(ASSISTANT, (CALL,)), RESULT, turn(ASSISTANT, "Four.")), TOOLS)
    text = written(bound, assert_proven(bound, [sample], with_options(train_headers=True, train_on_eos="none")))
    assert [part in text for part in expected] == [True, True], text


@pytest.mark.parametrize("name", ["qwen", "qwen3"])
def test_headers_of_several_results_in_one_turn(name: str) -> None:
    """What closes a result is no header of the next one, whether the turn ends behind it or goes on."""
    bound = bind_source(named_templates()[name], added=ADDED)
    sample = Sample((turn(USER, "Hi"), Turn(ASSISTANT, (CALL, CALL)), RESULT, RESULT, turn(ASSISTANT, "Four.")), TOOLS)
    options = with_options(mask={ASSISTANT: "train", TOOL: "train"}, train_headers=True)
    text = written(bound, assert_proven(bound, [sample], options))
    results = "<tool_response>⏎4⟧⏎</tool_response>⟦⏎<tool_response>⏎4⟧⏎</tool_response>⟦<|im_end|>⏎<|im_start|>assistant⏎"
    assert f"</tool_call><|im_end|>⏎<|im_start|>user⏎{results}" in text and text.rstrip("⏎").endswith("Four.<|im_end|>⟧")


EMPTY = """
{%- for m in messages -%}
  {{- '<|im_start|>' + m.role + '\\n' -}}
  {%- if m.role == 'assistant' -%}{{- '<think></think>' -}}{%- endif -%}
  {{- m.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' + PROMPT -}}{%- endif -%}
"""


@pytest.mark.parametrize(
    ("prompt", "before", "trained"),
    [("<think>\\n", "", "<think></think>"), ("<think></think>", "<think></think>", ""), ("", "", "<think></think>")],
)
def test_every_answer_begins_alike(prompt: str, before: str, trained: str) -> None:
    """Also one before which no prompt can be rendered."""
    bound = bind_source(EMPTY.replace("PROMPT", f"'{prompt}'"), added=ADDED)
    sample = Sample((turn(ASSISTANT, "Welcome."), turn(USER, "Hi"), turn(ASSISTANT, "Yes."), turn(USER, "Ok"), turn(ASSISTANT, "Bye.")))
    answers = [f"<|im_start|>assistant⏎{before}⟦{trained}{text}<|im_end|>⟧⏎" for text in ("Welcome.", "Yes.", "Bye.")]
    users = [f"<|im_start|>user⏎{text}<|im_end|>⏎" for text in ("Hi", "Ok")]
    assert written(bound, assert_proven(bound, [sample])) == "".join([answers[0], users[0], answers[1], users[1], answers[2]])
    told = Sample((turn(SYSTEM, "Be brief."), *sample.turns))
    assert written(bound, assert_proven(bound, [told])).endswith("".join([answers[0], users[0], answers[1], users[1], answers[2]]))


def test_white_space_of_a_question_before_an_opened_block() -> None:
    """As in DeepSeek V3: the prompt opens a block of reasoning that the answer lacks, and only the question's own line break stands before the header."""
    source = (
        "{%- for m in messages -%}{{- ('<|im_start|>' if m.role == 'user' else '<tool_call>') + m.content -}}"
        "{{- '<|im_end|>' if m.role == 'assistant' -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<tool_call><think>\\n' -}}{%- endif -%}"
    )
    bound = bind_source(source, added=ADDED)
    for question, answer in ((" Hi \n", "\n Yes. \n"), ("Hi\n\n", "Yes."), ("Hi", "\nYes.")):
        text = written(bound, assert_proven(bound, [Sample((turn(USER, question), turn(ASSISTANT, answer)))]))
        assert text == f"<|im_start|>{question}<tool_call>⟦{answer}<|im_end|>⟧".replace("\n", "⏎")


def test_an_answer_that_ends_with_an_image() -> None:
    """The template writes brackets around images, and the stop behind them; only the stop is trained."""
    source = """
{%- for m in messages -%}
  {{- '<|im_start|>' + m.role + '\\n' -}}
  {%- if m.content is string -%}{{- m.content -}}{%- else -%}
    {%- for part in m.content -%}{{- part.text if part.type == 'text' else '<think><|image|></think>' -}}{%- endfor -%}
  {%- endif -%}
  {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
    bound = bind_source(source, added=(*ADDED, "<|image|>"))
    bound = replace(bound, template=replace(bound.template, image="<|image|>"))
    image = Region(IMAGE, "https://example.org/1.png")
    drawn = [Turn(ASSISTANT, (Region(TEXT, "Here: "), image)), Turn(ASSISTANT, (image, Region(TEXT, " it is."))), Turn(ASSISTANT, (image,))]
    samples = [Sample((turn(USER, "Draw."), answer, turn(USER, "Thanks."), turn(ASSISTANT, "Welcome."))) for answer in drawn]
    outcome = assert_proven(bound, samples)
    rest = "⏎<|im_start|>user⏎Thanks.<|im_end|>⏎<|im_start|>assistant⏎⟦Welcome.<|im_end|>⟧⏎"
    answers = [
        "⟦Here: ⟧<think><|image|></think>⟦<|im_end|>⟧",
        "<think><|image|></think>⟦ it is.<|im_end|>⟧",
        "<think><|image|></think><|im_end|>",
    ]
    begin = "<|im_start|>user⏎Draw.<|im_end|>⏎<|im_start|>assistant⏎"
    assert [written(bound, outcome, at) for at in range(3)] == [begin + answer + rest for answer in answers]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((("Good day. ", 1.0), ("I am not sure.", 0.0)), "⟦Good day.⟧ I am not sure.<|im_end|>"),
        ((("Good day.", 1.0), (" I am not sure.", 0.0)), "⟦Good day.⟧ I am not sure.<|im_end|>"),
        ((("Good day. ", 0.0), ("I am not sure.", 1.0)), "Good day.⟦ I am not sure.<|im_end|>⟧"),
        ((("Good ", 0.0), ("day. ", 1.0), ("I am", 0.0)), "Good⟦ day.⟧ I am<|im_end|>"),
    ],
)
def test_a_space_between_parts_has_the_weight_of_the_word_behind_it(parts: tuple[tuple[str, float], ...], expected: str) -> None:
    bound = bind_source(CALLS.replace("LAST", "<|im_end|>").replace("EARLIER", "<|im_end|>"), added=ADDED)
    answer = Turn(ASSISTANT, tuple(Region(TEXT, text, weight) for text, weight in parts))
    text = written(bound, assert_proven(bound, [Sample((turn(USER, "Hi"), answer))]))
    assert text == f"<|im_start|>user⏎Hi<|im_end|>⏎<|im_start|>assistant⏎{expected}"


def test_a_border_amid_a_word_says_what_to_do() -> None:
    bound = bind_source(CALLS.replace("LAST", "<|im_end|>").replace("EARLIER", "<|im_end|>"), added=ADDED)
    for parts in ((("Good d", 1.0), ("ay.", 0.0)), ((" ", 1.0), ("day.", 0.0))):
        answer = Turn(ASSISTANT, (Region(TEXT, "Good", 0.0), *(Region(TEXT, text, weight) for text, weight in parts)))
        refused = run(bound, [Sample((turn(USER, "Hi"), answer))]).refused[0]
        assert refused[0] == "mask_border_inside_token" and "let each part begin with the space before its first word" in refused[1]


# What the two derivations of a mask once said differently.


@pytest.mark.parametrize("policy", ["Be kind.", "Be kind.\n", "Be kind.\n\n"])
@pytest.mark.parametrize("asked", ["Hi", "\nHi"])
def test_white_space_of_a_policy_is_not_the_questions(policy: str, asked: str) -> None:
    """Mistral puts both into one turn."""
    bound, options = bind(SHIPPED, "mistral"), with_options(mask={USER: "train", ASSISTANT: "train"})
    outcome = run(bound, [Sample((turn(SYSTEM, policy), turn(USER, asked), turn(ASSISTANT, "Hello!")))], options)
    if outcome.refused:  # whose white space it is cannot be told
        assert policy.endswith("\n") and asked.startswith("\n") and set(outcome.reasons) == {"template_rewrites_content"}
    else:
        assert written(bound, outcome).partition("Be kind.")[2] == f"{policy[8:]}\n\n⟦{asked}⟧[/INST]⟦ Hello!<|endoftext|>⟧".replace(
            "\n", "⏎"
        )


NAMES = """
{%- for m in messages -%}{{- '<|im_start|>' + m.role + (' name=' + m.name if m.name else '') + '\\n' + m.content + '<|im_end|>\\n' -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def test_a_header_that_names_the_speaker_is_not_generated() -> None:
    """A model that is served is given a header without a name, and goes on with the text."""
    bound = bind_source(NAMES, added=ADDED)
    sample = Sample((Turn(USER, (Region(TEXT, "Hi"),), "ann"), Turn(ASSISTANT, (Region(TEXT, "Well."),), "bot")))
    outcome = assert_proven(bound, [sample])
    assert written(bound, outcome) == "<|im_start|>user name=ann⏎Hi<|im_end|>⏎<|im_start|>assistant name=bot⏎⟦Well.<|im_end|>⟧⏎"


@pytest.mark.parametrize("earlier", ["<|im_end|>\\n<|endoftext|>", "<|im_end|>\\n"])
def test_a_call_ends_with_the_stop_of_other_answers_whatever_stands_behind(earlier: str) -> None:
    source = CALLS.replace("OPEN", "<tool_call>").replace("CLOSE", "</tool_call>")
    bound = bind_source(source.replace("LAST", "<|im_end|>\\n<|endoftext|>").replace("EARLIER", earlier), added=ADDED)
    for answer, said in ((turn(ASSISTANT, "Four."), "Four."), (Turn(ASSISTANT, (CALL,)), "<tool_call>get</tool_call>")):
        outcome = assert_proven(bound, [Sample((turn(USER, "Hi"), answer))])
        assert written(bound, outcome).endswith(f"assistant⏎⟦{said}<|im_end|>⟧⏎<|endoftext|>")


@pytest.mark.parametrize("line", ["", "\\n"])
def test_the_next_header_ends_an_answer_of_a_template_without_stops(line: str) -> None:
    """As GLM-4-MoE's own template."""
    source = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + 'LINE' }}{% endfor %}"
    source += "{{ '<|im_start|>assistant\\n' if add_generation_prompt }}"
    bound = bind_source(source.replace("LINE", line), added=ADDED)
    shown = line.replace("\\n", "⏎")
    outcome = assert_proven(bound, [Sample((turn(USER, "Hi"), turn(ASSISTANT, "Well."), turn(USER, "Bye")))])
    assert f"assistant⏎⟦Well.{shown}<|im_start|>⟧user⏎Bye" in written(bound, outcome)
