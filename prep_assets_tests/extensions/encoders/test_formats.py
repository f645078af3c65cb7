"""DeepSeek V4 and Harmony: their published texts and masks, by two implementations that agree, with the ids of the packages' own tokenizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.config.mask import MaskPolicy
from prep_assets.errors import CheckFailed, Refused, TemplateError
from prep_assets.extensions.encoders import formats
from prep_assets.extensions.encoders.formats import Format
from prep_assets.proofs.certificate import check_certificate
from prep_assets.proofs.derive import MaskOptions, derive, disagreement
from prep_assets.samples import ASSISTANT, Region, Sample, Turn, turn
from prep_assets.text.certify import certify, policy_faults
from prep_assets.text.load_template import load_template
from prep_assets.text.render import render
from prep_assets.text.spans import Cutter, Rendered, trained
from prep_assets.text.template import ChatTemplate, bind
from prep_assets.text.vocabulary import load_vocabulary
from prep_assets_tests.extensions.encoders.written import (
    ANSWERS,
    ASKS,
    BEGIN,
    END,
    HARMONY,
    PREAMBLE,
    RULE,
    V4,
    asks,
    call,
    needs,
    result,
    says,
    tide,
    tokenizer_with,
)
from prep_assets_tests.text.matrix.chats import KINDS, Kind

needs("renderers", "tml_renderers", "openai_harmony")

FORMATS: Mapping[str, Format] = {"deepseek-v4": import_module("prep_assets.extensions.encoders.deepseek").FORMAT}
FORMATS = {**FORMATS, "gpt-oss": import_module("prep_assets.extensions.encoders.harmony").FORMAT}
THINKS = {"enable_thinking": True}
OPTIONS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("deepseek-v4", {}),
    ("deepseek-v4", THINKS),
    ("deepseek-v4", {**THINKS, "reasoning_effort": "max"}),
    ("gpt-oss", {}),
    ("gpt-oss", {"reasoning_effort": "high", "conversation_start_date": "2026-01-02"}),
)
MESSAGES = {name: kind for name, kind in KINDS.items() if kind.messages and "image" not in name}


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ChatTemplate]:
    folder, found = tmp_path_factory.mktemp("tokenizers"), {}
    for name, tokens in (("deepseek-v4", V4), ("gpt-oss", HARMONY)):
        vocabulary = load_vocabulary(tokenizer_with(tokens, folder / name), base=folder)
        found[name] = load_template(f"encoder:{name}", vocabulary)
        bind(vocabulary, found[name])
    return found


# The published texts, written down from the vendors' descriptions.

TEXTS: Sequence[tuple[str, Mapping[str, Any], Sequence[Mapping[str, Any]], bool, str]] = (
    ("deepseek-v4", {}, [RULE, asks("Hi"), says("Hello!")], False, f"{BEGIN}Be brief.{ASKS}Hi{ANSWERS}</think>Hello!{END}"),
    ("deepseek-v4", {}, [asks("Hi")], True, f"{BEGIN}{ASKS}Hi{ANSWERS}</think>"),
    ("deepseek-v4", THINKS, [asks("Hi")], True, f"{BEGIN}{ASKS}Hi{ANSWERS}<think>"),
    (
        "deepseek-v4",
        THINKS,
        [asks("Hi"), says("Hello!", "A greeting."), asks("Bye"), says("Ciao.", "They leave.")],
        False,
        f"{BEGIN}{ASKS}Hi{ANSWERS}</think>Hello!{END}{ASKS}Bye{ANSWERS}<think>They leave.</think>Ciao.{END}",
    ),
    (
        "deepseek-v4",
        {},
        [asks("Tide?"), says("", "", call("tide_at", "1", port="Callao", metres=2.5)), result("High", "1"), says("High.")],
        False,
        f'{BEGIN}{ASKS}Tide?{ANSWERS}</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="tide_at">\n<｜DSML｜parameter name="port" string="true">'
        'Callao</｜DSML｜parameter>\n<｜DSML｜parameter name="metres" string="false">2.5</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
        f"{END}{ASKS}<tool_result>High</tool_result>{ANSWERS}</think>High.{END}",
    ),
    (
        "gpt-oss",
        {},
        [asks("Hi"), says("Hello!", "A greeting.")],
        False,
        f"{PREAMBLE}<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>analysis<|message|>A greeting.<|end|><|start|>assistant<|channel|>final"
        "<|message|>Hello!<|return|>",
    ),
    (
        "gpt-oss",
        {},
        [RULE, asks("Hi")],
        True,
        f"{PREAMBLE}<|start|>developer<|message|># Instructions\n\nBe brief.<|end|><|start|>user<|message|>Hi<|end|><|start|>assistant",
    ),
    (
        "gpt-oss",
        {},
        [asks("Tide?"), says("I ask.", "", call("tide_at", "1", port="Callao")), result("High", "1"), says("High.")],
        False,
        f"{PREAMBLE}<|start|>user<|message|>Tide?<|end|><|start|>assistant<|channel|>commentary<|message|>I ask.<|end|><|start|>assistant "
        'to=functions.tide_at<|channel|>commentary json<|message|>{"port": "Callao"}<|call|><|start|>functions.tide_at to=assistant<|channel|>commentary'
        '<|message|>"High"<|end|><|start|>assistant<|channel|>final<|message|>High.<|return|>',
    ),
)


@pytest.mark.parametrize(("name", "options", "chat", "prompted", "text"), TEXTS)
def test_the_published_text(name: str, options: Mapping[str, Any], chat: Sequence[Mapping[str, Any]], prompted: bool, text: str) -> None:
    written = FORMATS[name]
    assert written.render(chat, (), options, prompted) == text
    assert written.render_again(chat, (), options, prompted) == text


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_both_implementations_write_every_kind_of_chat_alike(name: str, options: Mapping[str, Any]) -> None:
    written, compared = FORMATS[name], 0
    for kind in MESSAGES.values():
        for count in range(1, len(kind.messages) + 1):
            for prompted in (False, True):
                texts = [_written(function, kind, count, options, prompted) for function in (written.render, written.render_again)]
                assert texts[0] == texts[1]
                compared += texts[0] is not None
    assert compared >= 160


def _written(function: Any, kind: Kind, count: int, options: Mapping[str, Any], prompted: bool) -> str | None:
    try:
        text: str = function(kind.messages[:count], kind.tools, options, prompted)
    except ValueError:
        return None
    return text


@pytest.mark.parametrize(("name", "options"), OPTIONS[:4])
def test_masks_have_the_prefix_property_and_the_renderers_own_marks(
    name: str, options: Mapping[str, Any], templates: Mapping[str, ChatTemplate]
) -> None:
    """What is trained is what a prompt lacks of the render with the answer, and what the package marks."""
    template, marked = templates[name].with_options(options), 0
    for label, kind in KINDS.items():
        try:
            rendered = render(kind.sample, template)
            derived = derive(kind.sample, MaskOptions(), template, rendered=rendered.text)
        except (Refused, CheckFailed):
            assert label not in ("plain", "system", "tool", "parallel", "text+call", "steps", "call last", "tools unused")
            continue
        assert disagreement(derived, rendered.text, trained(rendered, MaskPolicy())) is None
        marked += derived.tagged
        if not kind.messages:
            continue
        answers = [number for number, message in enumerate(kind.messages) if message["role"] == ASSISTANT]
        for number in answers:
            prompt = template.render(kind.messages[:number], tools=kind.tools, generation_prompt=True)
            if rendered.text.startswith(prompt):
                ended = [stretch.end for stretch in derived.expected if stretch.start == len(prompt)]
                assert ended or any(stretch.start < len(prompt) < stretch.end for stretch in derived.expected), (label, number)
    assert marked >= 8


# What the reference implementations say of masks, of one chat each.


def test_the_tokens_that_a_model_generates_are_trained(templates: Mapping[str, ChatTemplate]) -> None:
    chat = Sample((turn("user", "Hi"), Turn(ASSISTANT, (Region("thinking", "A greeting."), Region("text", "Hello!")))))
    stretches = {
        name: [stretch.text for stretch in derive(chat, MaskOptions(), templates[name].with_options(options)).expected]
        for name, options in (("deepseek-v4", THINKS), ("gpt-oss", {}))
    }
    assert stretches == {
        "deepseek-v4": [f"A greeting.</think>Hello!{END}"],
        "gpt-oss": ["<|channel|>analysis<|message|>A greeting.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"],
    }


@pytest.mark.parametrize(("name", "of"), [("deepseek-v4", "DeepSeekV4Tokenizer"), ("gpt-oss", "HarmonyTokenizer")])
def test_ids_are_those_of_the_package(name: str, of: str, templates: Mapping[str, ChatTemplate]) -> None:
    """A text cut at its control tokens has the ids that tml-renderers gives with the vocabulary of the model."""
    tinker, template, compared = import_module("prep_assets.extensions.encoders.tinker"), templates[name], 0
    tokenizer = getattr(import_module("tml_renderers.tokenizers"), of)()
    special = {tokenizer.decode([token]): token for token in map(tokenizer.encode_special, tokenizer.special_tokens())}
    renderer = import_module("tml_renderers.renderers").DeepSeekV4.chat() if name == "deepseek-v4" else _gpt_oss()
    for kind in MESSAGES.values():
        try:
            text = template.render(kind.messages, tools=kind.tools, generation_prompt=True)
        except Refused:
            continue
        theirs = [
            token for span in renderer.render_for_completion(tinker._listed(kind.messages, kind.tools))[0] for token in span.span.tokens
        ]
        if tokenizer.decode(theirs) != text:  # the empty line behind a system prompt
            continue
        cut = Cutter(dict.fromkeys(FORMATS[name].tokens, 0), MaskPolicy(), False).controls(Rendered(text, (), (), ()))
        ours, last = list[int](), 0
        for start, end in [*((start, end) for start, end, _ in cut), (len(text), len(text))]:
            ours += [*tokenizer.encode_ordinary(text[last:start]), *([special[text[start:end]]] if end > start else [])]
            last = end
        assert ours == theirs
        compared += 1
    assert compared >= 14


def _gpt_oss() -> Any:
    return import_module("tml_renderers.renderers").GptOss.medium(current_date="2024-07-26")


def test_answers_that_touch_are_marked_one_by_one(templates: Mapping[str, ChatTemplate]) -> None:
    """They were rejected: one mark held both."""
    chat = Sample((turn("user", "Hi"), turn(ASSISTANT, "Hello!"), turn(ASSISTANT, "Well?")))
    for name, template in templates.items():
        derived = derive(chat, MaskOptions(), template, rendered=render(chat, template).text)
        assert [stretch.text for stretch in derived.expected][-1].endswith(f"Well?{FORMATS[name].tokens[0]}")


TEXT = st.text(st.characters(exclude_categories=("Cs", "Cn")), min_size=1, max_size=12).filter(lambda text: bool(text.strip()))


@given(texts=st.lists(TEXT, min_size=2, max_size=6).map(lambda texts: texts[: len(texts) // 2 * 2]), system=st.one_of(st.none(), TEXT))
@pytest.mark.parametrize("name", [*FORMATS])
def test_any_texts_are_written_alike_and_grow_by_turns(name: str, texts: Sequence[str], system: str | None) -> None:
    """Prefixes with the generation prompt begin the whole, and no text is lost; control tokens typed in texts as well."""
    written = FORMATS[name]
    chat = [] if system is None else [{"role": "system", "content": system}]
    chat += [asks(text) if number % 2 == 0 else says(text) for number, text in enumerate(texts)]
    whole = written.render(chat, (), {}, prompted=False)
    assert whole == written.render_again(chat, (), {}, prompted=False)
    assert all(text in whole for text in texts)
    for count in range(1, len(chat)):
        if chat[count]["role"] == "assistant":
            assert whole.startswith(written.render(chat[:count], (), {}, prompted=True))


def test_the_empty_line_behind_a_system_prompt_is_all_that_is_forgiven() -> None:
    """The model's Jinja template and tml-renderers write one there, Harmony does not."""
    again = FORMATS["gpt-oss"].again
    text = again([RULE, asks("Hi"), says("Hello!")], (), {}, False)
    assert "# Instructions\n\nBe brief.<|end|>" in text
    ending = [{"role": "system", "content": "Be brief.\n\n"}, asks("Hi"), says("Hello!")]
    assert "# Instructions\n\nBe brief.\n\n<|end|>" in again(ending, (), {}, False) == FORMATS["gpt-oss"].render(ending, (), {}, False)


def test_harmony_is_the_published_template_but_for_that_line(real_data: Path) -> None:
    """And for a text beside a call, which the template drops, and a second call, which it refuses."""
    source = (real_data / "chat_templates" / "trl" / "gptoss.jinja").read_text("utf-8")
    jinja, same = ChatTemplate("gptoss", source, {}), 0
    for name in ("plain", "system", "multi", "think", "think-multi", "tool", "steps", "call last", "tools unused"):
        kind = KINDS[name]
        listed = [{"thinking" if key == "reasoning_content" else key: value for key, value in each.items()} for each in kind.messages]
        theirs = jinja.render(listed, tools=kind.tools).replace("Answer in few words.\n\n<|end|>", "Answer in few words.<|end|>")
        assert FORMATS["gpt-oss"].render(kind.messages, kind.tools, {}, prompted=False) == theirs
        same += 1
    assert same == 9


def test_a_certificate_says_what_both_implementations_write(templates: Mapping[str, ChatTemplate]) -> None:
    for name, template in templates.items():
        certificate = certify(template)
        assert certificate.proofs[3:] == FORMATS[name].proofs
        assert certificate.stop_token == template.renderer.tokens[0] and certificate.tools == "rendered"
        assert check_certificate(certificate.as_dict(), template).passed
        assert policy_faults(template, train_on_eos="turn", train_headers=False) == []


def test_a_certificate_names_the_kinds_that_they_write_otherwise(templates: Mapping[str, ChatTemplate]) -> None:
    template, written = templates["gpt-oss"], FORMATS["gpt-oss"]

    def again(*chat: Any) -> str:
        return written.again(*chat).replace("<|channel|>analysis", "<|channel|>thoughts")

    other = replace(written, again=again, mark=None, pinned=("other",))
    differing = replace(template, renderer=other, source=other.source)
    certificate, faults = certify(differing), policy_faults(differing, train_on_eos="turn", train_headers=False)
    assert len(faults) == 3 and "a chat of the kind 'reasoning': renderers_differ: one implementation writes " in faults[0]
    wrong = {kind for kind, said in certificate.chats.items() if said.startswith("renderers_differ: one implementation writes ")}
    assert wrong == {"reasoning", "reasoning in several rounds", "reasoning and tool call"}
    assert check_certificate(certificate.as_dict(), differing).passed
    assert not check_certificate({**certificate.as_dict(), "chats": {**certificate.chats, "reasoning": "right"}}, differing).passed


@pytest.mark.parametrize("name", [*FORMATS])
def test_wrong_marks_of_a_package_stop_every_build(name: str, templates: Mapping[str, ChatTemplate]) -> None:
    for _, wrong, marks_only in FORMATS[name].corrupted():
        faults = policy_faults(replace(templates[name], renderer=wrong, source=wrong.source), train_on_eos="turn", train_headers=False)
        assert len(faults) >= 10 and (not marks_only or "its code marks " in faults[0])
    silent = replace(FORMATS[name], mark=lambda *chat: None, pinned=("silent",))
    [fault] = policy_faults(replace(templates[name], renderer=silent, source=silent.source), train_on_eos="turn", train_headers=False)
    assert "its code marks nothing as generated" in fault


# What each corruption of a renderer is noticed by, and what cannot be honoured.


@pytest.mark.parametrize("name", [*FORMATS])
def test_each_corruption_is_noticed(name: str, templates: Mapping[str, ChatTemplate]) -> None:
    template, chat = templates[name], KINDS["tool"].sample
    whole, tried = derive(chat, MaskOptions(), template), []
    assert whole.tagged
    for what, wrong, _ in FORMATS[name].corrupted():
        tried.append(what)
        with pytest.raises(CheckFailed):
            derive(chat, MaskOptions(), replace(template, renderer=wrong, source=wrong.source), rendered=whole.text)
    assert len(tried) == 3


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("deepseek-v4", {"enable_thinking": "yes"}, "has no enable_thinking: 'yes'. Take False or True."),
        ("gpt-oss", {"reasoning_effort": "max"}, "has no reasoning_effort: 'max'. Take 'low' or 'medium' or 'high'."),
        ("gpt-oss", {"reasoning_efort": "low"}, "does not read 'reasoning_efort'; did you mean 'reasoning_effort'?"),
    ],
)
def test_options_that_a_format_has_not(name: str, options: Mapping[str, Any], said: str, tmp_path: Path) -> None:
    vocabulary = load_vocabulary(tokenizer_with({"deepseek-v4": V4, "gpt-oss": HARMONY}[name], tmp_path), base=tmp_path)
    with pytest.raises(TemplateError, match="template_options: template encoder:") as raised:
        load_template(f"encoder:{name}", vocabulary, options=options)
    assert said in str(raised.value)


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = load_vocabulary(tokenizer_with(V4[:3], tmp_path), base=tmp_path)
    with pytest.raises(
        TemplateError,
        match=r"lacks 4 of these 7 tokens: '<｜Assistant｜>', '<think>', '</think>', '｜DSML｜'. Take the tokenizer of the model",
    ):
        load_template("encoder:deepseek-v4", vocabulary)
    with pytest.raises(TemplateError, match="no encoder 'deepseek-v5'; did you mean 'deepseek-v4'"):
        load_template("encoder:deepseek-v5", vocabulary)
    (tmp_path / "x.jinja").write_text("{% generation %}{% endgeneration %}")
    with pytest.raises(TemplateError, match="Leave training_template out"):
        load_template(
            "encoder:deepseek-v4", load_vocabulary(tokenizer_with(V4, tmp_path / "all"), base=tmp_path), training="x.jinja", base=tmp_path
        )
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name == "renderers" else object())
    with pytest.raises(TemplateError, match="and renderers is not installed: pip install 'prep-assets\\[encoders\\]'"):
        load_template("encoder:deepseek-v4", vocabulary)


def test_another_version_or_other_code_of_a_package_is_another_template(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "pinned_package"
    package.mkdir()
    (package / "__init__.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    of_package = replace(FORMATS["gpt-oss"], packages=("pinned_package",))
    pins = [replace(of_package).source]
    for change in ("A = 2\n", "A = 1\n"):
        (package / "__init__.py").write_text(change)
        formats._pin.cache_clear()
        pins.append(replace(of_package).source)
    monkeypatch.setattr(formats, "version_of", lambda package: "0.0.9")
    formats._pin.cache_clear()
    pins.append(replace(of_package).source)
    formats._pin.cache_clear()
    assert pins[0] == pins[2] and len({*pins}) == 3


def test_a_panic_of_rust_rejects_a_chat(templates: Mapping[str, ChatTemplate]) -> None:
    class PanicException(BaseException):
        pass

    def panics(*chat: Any) -> str:
        raise PanicException("called `Option::unwrap()` on a `None` value")

    renderer = replace(FORMATS["gpt-oss"], write=panics, pinned=("panics",))
    with pytest.raises(Refused, match="its code panicked: called `Option::unwrap"):
        replace(templates["gpt-oss"], renderer=renderer).render([asks("Hi")])


def test_an_answer_of_history_that_the_package_marks_otherwise_is_not_trained(templates: Mapping[str, ChatTemplate]) -> None:
    """DeepSeek V4 closes reasoning in history, where no prompt does: `renderers` gives that token to nobody, so the chat is refused with the remedy."""
    template, rounds = templates["deepseek-v4"].with_options(THINKS), KINDS["multi"].sample
    with pytest.raises(CheckFailed, match=r"of turn [0-9] as generated, which is '</think>.*set expand: turns, or train_turns: last"):
        derive(rounds, MaskOptions(), template)
    assert derive(rounds, MaskOptions(), template, prompts=True).unserved  # certificates and the checks of stores count it
    assert derive(rounds, MaskOptions(), templates["deepseek-v4"]).tagged
    assert [stretch.text for stretch in derive(rounds, MaskOptions(train_turns="last"), template).expected] == [f"</think>In Bolivia.{END}"]


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({}, False),
        ({"type": "object", "properties": {}}, True),
        ({"properties": {"port": {"type": "object", "properties": {"name": {"type": "string"}}}}}, True),
        ({"properties": {"port": {"type": "string", "default": "Callao"}}}, True),
        ({"properties": {"port": {"type": "array", "items": {"type": "string"}}}}, False),
        ({"properties": {"port": {"type": "string", "enum": ["Callao", "Ilo"]}}}, False),
    ],
)
def test_which_tools_harmony_writes_otherwise(change: Mapping[str, Any], refused: bool) -> None:
    """The page lists them; one that both write alike one day makes it wrong."""
    tool = tide()
    tool["function"]["parameters"] = {"type": "object", "required": [], **change} if change else tool["function"]["parameters"]
    chat = ([asks("Hi"), says("Hello!")], [tool], {}, False)
    assert (FORMATS["gpt-oss"].render(*chat) != FORMATS["gpt-oss"].render_again(*chat)) == refused


@pytest.mark.parametrize(("metres", "refused"), [(2**63, False), (2**64, True)])
def test_numbers_of_more_than_64_bits_are_written_otherwise(metres: int, refused: bool) -> None:
    chat = ([asks("Hi"), says("", "", call("tide_at", "1", metres=metres)), result("High", "1"), says("High.")], [], {}, False)
    assert (FORMATS["gpt-oss"].render(*chat) != FORMATS["gpt-oss"].render_again(*chat)) == refused


def test_what_the_page_says_of_masks(templates: Mapping[str, ChatTemplate]) -> None:
    """A closed block of reasoning with `train_thinking: false`, and the stops of Harmony."""
    thinks, bare = (Sample((turn("user", "Hi"), Turn(ASSISTANT, regions))) for regions in _ANSWERS)
    template = templates["deepseek-v4"].with_options(THINKS)
    without = MaskOptions(train_thinking=False)
    assert [[stretch.text for stretch in derive(chat, without, template).expected] for chat in (thinks, bare)] == [
        [f"Hello!{END}"],
        [f"</think>Hello!{END}"],
    ]
    rounds = Sample((turn("user", "Hi"), turn(ASSISTANT, "Hello!"), turn("user", "Bye"), turn(ASSISTANT, "Ciao.")))
    for stops, written in (("turn", "<|end|>"), ("last", "")):
        found = [stretch.text for stretch in derive(rounds, MaskOptions(train_on_eos=stops), templates["gpt-oss"]).expected]
        assert found == [f"<|channel|>final<|message|>Hello!{written}", "<|channel|>final<|message|>Ciao.<|return|>"]
    assert (certify(templates["gpt-oss"]).stops["last answer"], certify(templates["gpt-oss"]).stops["earlier answer"]) == (
        "<|return|>",
        "<|end|>",
    )


_ANSWERS = ((Region("thinking", "A greeting."), Region("text", "Hello!")), (Region("text", "Hello!"),))
