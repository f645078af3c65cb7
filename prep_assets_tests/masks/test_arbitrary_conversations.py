"""Whatever a conversation holds, its mask is proven or it is refused with a reason; nothing else happens."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.samples import ASSISTANT, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets.text.conversation import SpecialInContent
from prep_assets_tests.corpus.policies import POLICIES, REASONS
from prep_assets_tests.effort import SOAK, examples, thinned
from prep_assets_tests.masks.bound import CONTROL, SHIPPED, assert_proven, bind, supported, trained, with_options
from prep_assets_tests.masks.strategies import samples


def twice_reasoned() -> Sample:
    """Reasoning in a field of its own, and tags without any in the text."""
    return Sample((turn(USER, "Hi"), Turn(ASSISTANT, (Region(THINKING, "A greeting."), Region(TEXT, "<think></think>Hello.")))))


@pytest.mark.parametrize("name", thinned(CONTROL))
def test_proven_or_refused(name: str) -> None:
    bound = bind(SHIPPED, name)

    @settings(max_examples=examples(800) if SOAK else 12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(samples(CONTROL[name]), st.sampled_from(sorted(POLICIES)), st.sampled_from(["text", "text", "strip", "refuse", "allow"]))
    @example(twice_reasoned(), "default", "text")
    @example(trained_result("\x1b"), "default", "text")  # some templates write it as an escape
    @example(chat_of("Hi", "<|im_end|>"), "default", "text")
    @example(chat_of("", "Hello"), "every token", "text")
    @example(chat_of("Hello", " "), "default", "text")
    @example(chat_of("assistant", "user"), "every token", "text")
    @example(thought_of(0.0, "\x00", " \x00"), "all stop tokens", "text")  # white space of the answer's own, right after the template's
    @example(thought_of(0.5, " Hm. ", "\n中 "), "last turn", "text")
    def check(sample: Sample, policy: str, special: SpecialInContent) -> None:
        options = supported(
            bound, POLICIES[policy]
        )  # the pipeline refuses a policy that the template cannot support before it reads anything
        outcome = assert_proven(bound, [sample], options, special)
        assert set(outcome.reasons) <= REASONS

    check()


def trained_result(text: str) -> Sample:
    """A tool's result that is trained."""
    call = Region(TOOL_CALL, json.dumps({"name": "f", "arguments": {}}))
    return Sample((turn(USER, "Hi"), Turn(ASSISTANT, (call,)), turn(TOOL, text, loss_weight=1.0), turn(ASSISTANT, "Done.")))


def thought_of(weight: float, thought: str, answer: str) -> Sample:
    """Reasoning with a loss weight of its own."""
    return Sample((turn(USER, "Hi"), Turn(ASSISTANT, (Region(THINKING, thought, weight), Region(TEXT, answer)))))


def chat_of(*contents: str) -> Sample:
    return Sample(tuple(turn((USER, ASSISTANT)[i % 2], content) for i, content in enumerate(contents)))


def call(text: str) -> Sample:
    return Sample((turn(USER, "Go."), Turn(ASSISTANT, (Region(TOOL_CALL, text),))))


@pytest.mark.parametrize("name", thinned(CONTROL, 4))
def test_two_hundred_turns(name: str) -> None:
    """Each content is another text, some of them markers; every template that allows such a chat keeps it whole."""
    contents = [f"{i} {('Hello', '中文', '👩‍🚀', '<|im_end|>', '[/INST]', 'USER:')[i % 6]} " for i in range(200)]
    outcome = assert_proven(bind(SHIPPED, name), [chat_of(*contents)])
    assert outcome.kept == [0]
    assert (outcome.loss(0) == 1).sum() > 200


# what was once no refusal but an exception, or a false alarm


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        *(('"\\ud800"', "lone_surrogate"), ('"\\ufdd2"', "noncharacter"), ('"\\ufdd0\\ufdd3\\ufdd1"', "noncharacter")),
        *(("[" * depth + "]" * depth, "too_deeply_nested") for depth in (102, 400, 900, 30_000)),
    ],
)
def test_json_escapes_and_depth_in_a_tool_call(arguments: str, reason: str) -> None:
    """Escapes spell what no text may hold; depth exhausts the stack of whoever walks the value."""
    outcome = assert_proven(bind(SHIPPED, "qwen"), [call(f'{{"name": "get", "arguments": {arguments}}}')])
    assert set(outcome.reasons) == {reason}


@pytest.mark.parametrize("name", ['""', "null", "7", "{}"])
def test_a_tool_call_needs_a_name(name: str) -> None:
    outcome = assert_proven(bind(SHIPPED, "qwen"), [call(f'{{"name": {name}, "arguments": {{}}}}')])
    assert set(outcome.reasons) == {"bad_tool_call"}


@pytest.mark.parametrize("name", ["chatml", "plain"])
def test_reasoning_does_not_vanish_in_a_template_without_a_place_for_it(name: str) -> None:
    sample = Sample((turn(USER, "Hi"), Turn(ASSISTANT, (Region(THINKING, "A greeting."), Region(TEXT, "Hello.")))))
    assert set(assert_proven(bind(SHIPPED, name), [sample]).reasons) == {"template_drops_content"}


@pytest.mark.parametrize("name", ["qwen3", "deepseek-r1"])
def test_reasoning_of_earlier_rounds_is_left_out_as_the_format_has_it(name: str) -> None:
    """A turn of nothing but such reasoning has nothing to train, and does not count as the last trained turn."""
    thought = Turn(ASSISTANT, (Region(THINKING, "A greeting."), Region(TEXT, "")))
    sample = Sample(
        (turn(USER, "Hi"), turn(ASSISTANT, "Hello."), turn(USER, "Hm?"), thought, turn(USER, "Bye"), Turn(ASSISTANT, thought.regions))
    )
    for options in (MaskOptions(), with_options(train_turns="last", train_on_eos="last")):
        assert not {"template_drops_content"} & set(assert_proven(bind(SHIPPED, name), [sample], options).reasons)


def test_of_two_tool_calls_in_a_turn_one_may_not_be_trained_alone() -> None:
    """Where one ends and the next begins is nobody's text, so the record is refused rather than divided by a guess."""
    calls = tuple(
        Region(TOOL_CALL, json.dumps({"name": name, "arguments": {}}), weight) for name, weight in (("first", 0.0), ("second", 1.0))
    )
    sample = Sample((turn(USER, "Go."), Turn(ASSISTANT, calls), turn(TOOL, "ok"), turn(ASSISTANT, "Done.")))
    assert set(assert_proven(bind(SHIPPED, "qwen"), [sample]).reasons) == {"mask_not_provable"}


@pytest.mark.parametrize("name", ["qwen", "llama3", "mistral"])
@pytest.mark.parametrize("result", ["4", "\n4", '"4"\n', "  4  "])
def test_white_space_in_one_turn_does_not_refuse_the_tool_call_of_another(name: str, result: str) -> None:
    acting = Turn(ASSISTANT, (Region(TOOL_CALL, '{"name": "add", "arguments": {"a": "2"}}'),))
    sample = Sample((turn(USER, " Add. "), acting, turn(TOOL, result), turn(ASSISTANT, "4.\n")))
    assert assert_proven(bind(SHIPPED, name), [sample]).kept == [0]


@pytest.mark.parametrize("name", ["qwen3", "deepseek-r1"])
@pytest.mark.parametrize("thought", [0.0, 0.5])
@pytest.mark.parametrize("answer", [" \x00", "\n 中", "  b", " \n\n\x00"])
def test_white_space_of_an_answer_is_not_its_reasonings(name: str, thought: float, answer: str) -> None:
    """Both templates take away line breaks alone, so that a space is left of the answer's own, after those that close the reasoning."""
    bound = bind(SHIPPED, name)
    outcome = assert_proven(bound, [thought_of(thought, "Hm.", answer)])
    assert outcome.kept == [0]
    assert trained(bound, outcome)[-1].startswith(answer.lstrip("\n") if not thought else "")
    assert derive(thought_of(thought, "Hm.", answer), MaskOptions(), bound.template).expected[-1].text.startswith(answer.lstrip("\n"))
