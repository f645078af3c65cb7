"""`encoder:package.module:function`: a vendor's encoder must write the vendor's own chats, and its code is in recipes."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from prep_assets.config.mask import MaskPolicy
from prep_assets.errors import ConfigError, PrepAssetsError, Refused, TemplateError
from prep_assets.extensions.doctor.command import doctor
from prep_assets.extensions.encoders import own
from prep_assets.extensions.encoders.names import find
from prep_assets.extensions.exports.assets import generation_stops
from prep_assets.proofs.certificate import check_certificate
from prep_assets.proofs.derive import MaskOptions, derive, disagreement
from prep_assets.samples import ASSISTANT, TEXT, THINKING, USER, Region, Sample, Turn, turn
from prep_assets.text.certify import certify
from prep_assets.text.load_template import load_template
from prep_assets.text.render import render
from prep_assets.text.spans import trained
from prep_assets.text.template import ChatTemplate, bind
from prep_assets.text.vocabulary import load_vocabulary
from prep_assets_tests.extensions.encoders.written import K3, tokenizer_with
from prep_assets_tests.graph.workspaces import jsonl

MODULE = "prep_assets_tests.extensions.encoders.vendor_formats"
CHAT = Sample(
    (
        turn(USER, "Type <|close|>response<|sep|> please"),
        Turn(ASSISTANT, (Region(THINKING, "Typed."), Region(TEXT, "<|end_of_msg|>"))),
        turn(USER, "Bye"),
        Turn(ASSISTANT, (Region(THINKING, "They leave."), Region(TEXT, "Ciao."))),
    )
)
PUBLISHED = (
    "TOKENS = ('x',)\nGOLDEN = [({'messages': [{'role': 'user', 'content': ''}, {'role': 'assistant', 'content': ''}]}, ''), "
    "({'messages': [{'role': 'user', 'content': ''}], 'generation_prompt': True}, '')]\n"
)
GIVES_NOTHING = "def chat(messages, tools, generation_prompt):\n    return ''\n"


@pytest.fixture
def template(tmp_path: Path) -> ChatTemplate:
    vocabulary = load_vocabulary(tokenizer_with(K3, tmp_path), base=tmp_path)
    loaded = load_template(f"encoder:{MODULE}:chat", vocabulary)
    bind(vocabulary, loaded)
    return loaded


def test_a_vendors_format_is_a_template(template: ChatTemplate) -> None:
    rendered = render(CHAT, template)
    derived = derive(CHAT, MaskOptions(), template, rendered=rendered.text)
    assert disagreement(derived, rendered.text, trained(rendered, MaskPolicy())) is None
    tail = "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>"
    thoughts = "<|close|>think<|sep|><|open|>response<|sep|>"
    assert [stretch.text for stretch in derived.expected] == [f"Typed.{thoughts}<|end_of_msg|>{tail}", f"They leave.{thoughts}Ciao.{tail}"]
    assert derived.typed == 3 and derived.prefixed
    assert certify(template).chats["reasoning"] == "right" and certify(template).stop_token == "<|end_of_msg|>"
    assert check_certificate(certify(template).as_dict(), template).passed
    assert certify(template).proofs[-1] == "2 golden chats of its vendor"
    assert {*certify(template).chats.values()} == {"right"}
    assert generation_stops(template) == ("<|end_of_msg|>",)


@pytest.mark.parametrize("lost", ["one_marker_changed", "a_turn_lost"])
def test_a_wrong_encoder_fails_the_vendors_chats(lost: str) -> None:
    with pytest.raises(TemplateError, match=r"chat 1 of 2 in GOLDEN: character [0-9]+: it writes …") as raised:
        find(f"encoder:{MODULE}:{lost}", None)
    assert "and the vendor …" in str(raised.value)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("GOLDEN = [({}, '')]\ndef chat(messages, tools, generation_prompt):\n    return ''\n", "has no TOKENS"),
        ("TOKENS = ('<|end_of_msg|>',)\ndef chat(messages, tools, generation_prompt):\n    return ''\n", "has no GOLDEN"),
        (
            f"{PUBLISHED}def chat(messages):\n    return ''\n",
            "takes messages, and must take messages, tools, generation_prompt",
        ),
        (f"{PUBLISHED}def chat(messages, tools, generation_prompt):\n    return [1]\n", "it gives list"),
        (f"{PUBLISHED}GOLDEN = GOLDEN[1:]\n{GIVES_NOTHING}", "none of the 1 chats in GOLDEN ends with an answer"),
        (
            f"{PUBLISHED}GOLDEN = [({{**GOLDEN[0][0], 'generation_prompt': True}}, '')]\n{GIVES_NOTHING}",
            "none of the 1 chats in GOLDEN ends with an",
        ),
        (
            f"{PUBLISHED}GOLDEN = [({{'messages': []}}, ''), GOLDEN[1]]\n{GIVES_NOTHING}",
            "none of the 2 chats in GOLDEN ends with an answer",
        ),
        (
            f"{PUBLISHED}GOLDEN = GOLDEN[:1]\n{GIVES_NOTHING}",
            r"none of the 1 chats in GOLDEN has generation_prompt: True, so nothing says where an answer begins. Cut one from a published chat: \{'messages'",
        ),
        ("def chit(messages, tools, generation_prompt):\n    return ''\n", "cannot be loaded"),
    ],
)
def test_what_a_module_lacks_is_named(module: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lacking_format.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lacking_format", raising=False)
    monkeypatch.setattr(own, "_LOADED", {})
    importlib.invalidate_caches()
    with pytest.raises(PrepAssetsError, match=said):
        find("encoder:lacking_format:chat", None)


@pytest.mark.parametrize("prompt", ["<|im_start|>assistant", "<|im_start|>user\n", "<|im_start|>assistant\n\n", ""])
def test_a_wrong_generation_prompt_is_never_built(prompt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole chats are right, and only what is asked for is wrong: answers would be trained a token early or late."""
    messages = "[{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello!'}]"
    asked = "<|im_start|>user\nHi<|im_end|>\n"
    whole = f"{asked}<|im_start|>assistant\nHello!<|im_end|>\n"
    module = f"""TOKENS = ('<|im_end|>', '<|im_start|>')
GOLDEN = [({{'messages': {messages}}}, {whole!r}), ({{'messages': {messages}[:1], 'generation_prompt': True}}, {asked + "<|im_start|>assistant" + chr(10)!r})]
def chat(messages, tools, generation_prompt):
    text = "".join(f"<|im_start|>{{message['role']}}\\n{{message['content']}}<|im_end|>\\n" for message in messages)
    return text + ({prompt!r} if generation_prompt else "")
"""
    (tmp_path / "prompting_format.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "prompting_format", raising=False)
    monkeypatch.setattr(own, "_LOADED", {})
    importlib.invalidate_caches()
    with pytest.raises(TemplateError, match="chat 2 of 2 in GOLDEN: character "):
        find("encoder:prompting_format:chat", None)


def test_other_code_is_another_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "changing_format.py"
    file.write_text(f"{PUBLISHED}{GIVES_NOTHING}")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    first = find("encoder:changing_format:chat", None)
    file.write_text(file.read_text() + "# changed\n")
    with pytest.raises(TemplateError, match=r"its code has changed since this process loaded it. Start again"):
        find("encoder:changing_format:chat", None)
    monkeypatch.setattr(own, "_LOADED", {})
    second = find("encoder:changing_format:chat", None)
    assert first is not None and second is not None and first.source != second.source


def test_what_the_function_raises_rejects_the_chat(template: ChatTemplate) -> None:
    said = r"template_refuses: template encoder:.*: ValueError: no role developer; take a template that writes such a chat"
    with pytest.raises(Refused, match=said):
        render(Sample((turn("developer", "Hi"), turn(ASSISTANT, "Hello!"))), template)


def test_the_doctor_compares_no_trainer_that_has_no_such_code(tmp_path: Path) -> None:
    chats = jsonl(tmp_path / "chats.jsonl", [{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}])
    tokenizer = tokenizer_with(K3, tmp_path / "tokenizer")
    with pytest.raises(
        ConfigError, match=r"--trainer trl writes chats by a Jinja template, and encoder:.* is code\. Compare it with prime-rl or tinker"
    ):
        doctor.__wrapped__(trainer="trl", dataset=str(chats), tokenizer=tokenizer, template=f"encoder:{MODULE}:chat")  # type: ignore[attr-defined]
