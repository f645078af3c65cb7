"""Prompt types against an independent reading of their slots, and what the certificate says of their masks."""

from __future__ import annotations

import json
import re
from importlib import resources
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from prep_assets import plugins
from prep_assets.errors import Refused, TemplateError
from prep_assets.extensions.preprocess.prompt_types import load_prompt_type, shipped
from prep_assets.text.certify import certify, policy_faults
from prep_assets.text.load_template import load_template
from prep_assets.text.template import ChatTemplate
from prep_assets.text.vocabulary import Vocabulary, load_vocabulary
from prep_assets_tests.cells import cells
from prep_assets_tests.effort import thinned
from prep_assets_tests.masks.bound import SHIPPED

TYPES = {
    each["name"]: each
    for each in json.loads((resources.files("prep_assets.extensions.preprocess") / "prompt_types.json").read_text("utf-8"))
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
SYSTEM = "Be {{brief}}."
ROUNDS = [("Hi {{content}}", "Hello\\'!\n"), ("Bye", "Ciao"), ("再见", "再见。")]
OFFERED = (  # what ModelLink and MindSpeed-LLM accept as --prompt-type, apart from deepseek4, which their code writes without slots
    "default empty trl chatglm2 chatglm3 chatglm3_system glm4 glm4_moe chatml chatml_de qwen qwen_r1 qwen_math_r1 llama3 llama2 mistral mixtral gemma "
    "alpaca deepseek2 deepseek2-lite deepseek3 bailing_mini cpm baichuan2 intern2 hunyuan qwen3 magistral plm qwen_lf gpt_oss minicpm3"
)


def chat(rounds: list[tuple[str, str]], system: str | None = SYSTEM) -> list[dict[str, str]]:
    turns = [{"role": role, "content": text} for pair in rounds for role, text in zip(("user", "assistant"), pair, strict=True)]
    return [*([{"role": "system", "content": system}] if system is not None else []), *turns]


def template_of(name: str, **options: Any) -> ChatTemplate:
    return ChatTemplate(name, load_prompt_type(name).jinja(), SPECIAL, options)


def by_hand(type_: dict[str, Any], rounds: list[tuple[str, str]], system: str | None) -> str:
    """The text that LLaMA-Factory's rules give: slot by slot, a stop token only where a slot has one."""

    def slot(kind: str, default: list[Any], **values: str) -> str:
        written = ""
        for piece in type_.get(f"format_{kind}", {}).get("slots", default):
            text = (
                piece
                if isinstance(piece, str)
                else piece["token"]
                if isinstance(piece, dict)
                else {"bos_token": "<s>", "eos_token": eos}[piece[0]]
            )
            written += re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text) if isinstance(piece, str) else text
        return written

    eos = type_["stop_words"][0] if type_.get("replace_eos") else "</s>"
    asked = type_.get("default_system", "") if system is None else system
    preamble = slot("system", ["{{content}}"], content=asked) if asked else ""
    inside = type_.get("template_class") == "Llama2Template"
    thought = ("<think>\n", "\n</think>\n\n") if type_.get("template_class") == "ReasoningTemplate" else ("", "")
    text = slot("prefix", []) + ("" if inside else preamble)
    for number, (question, answer) in enumerate(rounds):
        text += slot("separator", []) if number else ""
        text += slot("user", ["{{content}}"], content=(preamble if inside and not number else "") + question, idx=str(number + 1))
        text += "".join(type_.get("thought_words", thought)) + slot("assistant", ["{{content}}", ["eos_token"]], content=answer)
    return text


def test_every_prompt_type_that_they_offer_is_there() -> None:
    assert set(shipped()) == set(OFFERED.split()) == set(TYPES)


@cells("system", [SYSTEM, None])
@cells("name", TYPES)
def test_renders_are_their_slots(name: str, system: str | None) -> None:
    """What efficient_eos leaves to the label, our text holds: the stop word, where the next question begins with it, else the end-of-text token."""
    type_ = TYPES[name]
    expected = by_hand(type_, ROUNDS, system)
    strings = load_prompt_type(name)._strings()
    if strings["shared"]:
        assert template_of(name).render(chat(ROUNDS, system)) == expected + type_["stop_words"][0]
    elif strings["stop"]:
        assert template_of(name, end_with_eos=False).render(chat(ROUNDS, system)) == expected
        assert template_of(name, end_with_eos="last").render(chat(ROUNDS, system)) == expected + "</s>"
    else:
        assert template_of(name).render(chat(ROUNDS, system)) == expected


def bound(name: str) -> ChatTemplate:
    """The prompt type with the shipped tokenizer, to which its control tokens are added."""
    vocabulary = load_vocabulary(str(SHIPPED))
    backend = Tokenizer.from_str(vocabulary.backend.to_str())
    backend.add_special_tokens(
        sorted(set(re.findall(r"<[^<>\s{}]+>|\[[A-Za-z_/]+\]|sop", load_prompt_type(name).jinja().partition("\n")[0])))
    )
    return load_template(f"prompt_type:{name}", Vocabulary(name, backend, vocabulary.special, None))


@cells("name", thinned(TYPES))
def test_answers_are_trained_with_a_stop_token_in_every_round(name: str) -> None:
    found = certify(template := bound(name))
    assert policy_faults(template, train_on_eos="turn", train_headers=False) == []
    assert found.chats["plain"] == "right" and found.generation_tags
    assert found.stops["last answer"] == found.stops["earlier answer"] == found.stop_token != ""


def test_reasoning_is_written_where_the_type_has_thought_words() -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!", "reasoning_content": "A greeting."}]
    assert template_of("qwen3").render(turns).endswith("<|im_start|>assistant\n<think>\nA greeting.\n</think>\n\nHello!<|im_end|>\n")
    with pytest.raises(Refused, match="prompt type 'chatml' has no place for reasoning"):
        template_of("chatml").render(turns)


@pytest.mark.parametrize(
    ("messages", "tools", "says"),
    [
        (chat(ROUNDS[:1]), [{"type": "function", "function": {"name": "f"}}], "writes no tools"),
        ([{"role": "tool", "content": "4"}], (), "knows the roles system .first message only., user and assistant, not 'tool'"),
        ([{"role": "assistant", "content": "Hello!"}], (), "needs roles that alternate"),
    ],
)
def test_what_has_no_slot_is_refused(messages: list[dict[str, str]], tools: Any, says: str) -> None:
    with pytest.raises(Refused, match=says):
        template_of("chatml").render(messages, tools=tools)


def test_an_option_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="end_with_eos means nothing"):
        template_of("glm4", end_with_eos="last").render(chat(ROUNDS))


def test_a_file_of_ones_own(tmp_path: Path, vocabulary: Vocabulary) -> None:
    (tmp_path / "mine.json").write_text(json.dumps([{"name": "mine", "format_user": {"slots": ["Q: {{content}}\nA:"]}}]))
    template = load_template("mine.json#mine", vocabulary, base=tmp_path)
    assert template.render(chat(ROUNDS[1:2], None)) == "Q: Bye\nA:Ciao<|endoftext|>"


def test_efficient_eos_leaves_the_end_of_text_token_out_of_answers_that_have_no_slots(tmp_path: Path) -> None:
    """LLaMA-Factory's default; taken as content and token, every answer had a stop that the type's own ids lack."""
    (tmp_path / "mine.json").write_text(json.dumps([{"name": "mine", "efficient_eos": True, "format_separator": {"slots": ["<sep>"]}}]))
    source = load_prompt_type("mine", tmp_path / "mine.json").jinja()
    assert ChatTemplate("mine", source, SPECIAL, {"end_with_eos": False}).render(chat(ROUNDS[1:], None)) == "ByeCiao<sep>再见再见。"
    assert ChatTemplate("mine", source, SPECIAL).render(chat(ROUNDS[1:], None)) == "ByeCiao</s><sep>再见再见。</s>"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no file of prompt types at .*mine.json"),
        ("[", "mine.json: Invalid JSON"),
        ([{"name": "mine", "format_usr": {}}], "0.format_usr: Extra inputs are not permitted"),
        ([{"name": "mine", "format_user": {"slots": [["pad_token"]]}}], "0.format_user.slots.0: Input should be a valid string"),
        ([{"name": "mine", "format_user": {"slots": ["no content"]}}], "format_user needs {{content}} once, has 'no content'"),
        ([{"name": "mine"}, {"name": "mine"}], "'mine' stands there twice"),
        ([{"name": "mina"}], "no prompt type 'mine' in .*mine.json; did you mean 'mina'"),
    ],
)
def test_a_file_that_does_not_fit(tmp_path: Path, vocabulary: Vocabulary, content: Any, says: str) -> None:
    if content is not None:
        (tmp_path / "mine.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(TemplateError, match=says.replace("{{", r"\{\{").replace("}}", r"\}\}")):
        load_template("mine.json#mine", vocabulary, base=tmp_path)


def test_the_page_lists_every_type_and_which_have_no_stop() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "templates" / "prompt-types.md").read_text("utf-8")
    found = re.search(r"^- (.+?);\n- without a stop of their own: (.+?)\.$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    stopping, endless = (re.findall(r"`([\w-]+)`", part) for part in found.groups())
    assert sorted([*stopping, *endless]) == sorted(TYPES)
    assert endless == [name for name in sorted(TYPES) if load_prompt_type(name).open_ended]


def labelled_source(name: str, base: Path | None) -> str | None:
    """A source of templates, as a package has one."""
    return (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}" if name == "labelled" and base == Path("/here") else None
    )


def test_another_package_adds_templates(monkeypatch: pytest.MonkeyPatch, vocabulary: Vocabulary) -> None:
    monkeypatch.setattr(plugins, "_others", lambda: (EntryPoint("labelled", f"{__name__}:labelled_source", "prep_assets.templates"),))
    assert load_template("labelled", vocabulary, base=Path("/here")).render([{"role": "user", "content": "Hi"}]) == "user: Hi<|end|>"
    with pytest.raises(TemplateError, match="no chat template 'labelled'"):
        load_template("labelled", vocabulary, base=Path("/there"))
