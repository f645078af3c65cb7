"""What each named template is certified for, and that a policy it cannot support is refused before a record is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import TemplateError
from prep_assets.text.certify import Certificate, certify, policy_faults
from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, minimal, workspace_in
from prep_assets_tests.masks.bound import CONTROL, SHIPPED, bind, bind_source

EOS = "<|endoftext|>"
END_OF_SENTENCE = "<｜end▁of▁sentence｜>"
LAST = "kept in the last turn"
# stop: what the template writes after an answer. prompt: what it writes for add_generation_prompt.
# stable: a template that looks at later messages, or writes something once at the end, is not. grows: nor is it where the prompt is not how
# an answer begins. system: some have none (gemma), some write one of their own. alternates: those that call raise_exception on two user turns.
# trims: those that strip contents. tags: all but the two oldest.
TABLE: dict[str, dict[str, Any]] = {
    # the eos after each answer's line break; the system prompt of its own is written at the top
    "alpaca": {"stop": EOS, "prompt": "### Response:\n", "stable": True, "grows": True, "system": "injected", "tags": True},
    "chatml": {"stop": "<|im_end|>", "prompt": "<|im_start|>assistant\n", "stable": True, "grows": True, "begins": "<|im_start|>"},
    # the prompt opens <think>, which an answer without reasoning does not have
    "deepseek-r1": {
        "stop": END_OF_SENTENCE,
        "prompt": "<｜Assistant｜><think>\n",
        "stable": True,
        "thinking": LAST,
        "tags": True,
        "begins": EOS,
    },
    "default": {"stop": EOS, "prompt": "\nAssistant:", "stable": True, "grows": True, "alternates": True, "tags": True},
    "gemma": {
        "stop": "<end_of_turn>",
        "prompt": "<start_of_turn>model\n",
        "stable": True,
        "grows": True,
        "begins": EOS,
        "system": "refused",
        "alternates": True,
        "trims": True,
        "tags": True,
    },
    # the token of the next role is written with the answer, so a second prompt would stand after it
    # and a tool call ends with <|observation|>, another stop than that of an answer
    "glm4": {
        "stop": "<|user|>",
        "prompt": "<|assistant|>",
        "stable": True,
        "grows": True,
        "tools": "rendered",
        "tags": True,
        "begins": "[gMASK]",
    },
    # no generation prompt: the render that asks is the render of the question, so an answer does follow it
    "llama2": {"stop": EOS, "prompt": "", "stable": True, "grows": True, "alternates": True, "trims": True, "tags": True, "begins": EOS},
    "llama3": {
        "stop": "<|eot_id|>",
        "prompt": "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "stable": True,
        "grows": True,
        "trims": True,
        "tools": "rendered",
        "tags": True,
        "begins": EOS,
    },
    "mistral": {
        "stop": EOS,
        "prompt": "",
        "stable": True,
        "grows": True,
        "alternates": True,
        "trims": True,
        "tools": "rendered",
        "tags": True,
        "begins": EOS,
    },
    # without the prompt it ends with the end-of-text token, so nothing is how something longer begins, but with the prompt it is
    "phi": {"stop": "<|end|>", "prompt": "", "stable": False, "grows": True, "tags": True, "begins": "<|user|>"},
    "plain": {"stop": EOS, "prompt": "<|assistant|>\n", "stable": True, "grows": True},
    "qwen": {
        "stop": "<|im_end|>",
        "prompt": "<|im_start|>assistant\n",
        "stable": True,
        "grows": True,
        "system": "injected",
        "tools": "rendered",
        "tags": True,
        "begins": "<|im_start|>",
    },
    # the last answer has a <think> block, which it loses as soon as another question follows
    "qwen3": {
        "stop": "<|im_end|>",
        "prompt": "<|im_start|>assistant\n",
        "stable": False,
        "grows": True,
        "thinking": LAST,
        "tools": "rendered",
        "tags": True,
        "begins": "<|im_start|>",
    },
    "vicuna": {
        "stop": EOS,
        "prompt": "ASSISTANT:",
        "stable": True,
        "grows": True,
        "system": "injected",
        "alternates": True,
        "tags": True,
        "begins": EOS,
    },
}


@pytest.mark.parametrize("name", CONTROL)
def test_certificate(name: str) -> None:
    found, wanted = certify(bind(SHIPPED, name).template), TABLE[name]
    assert found.renders
    assert found.stop_token == wanted["stop"]
    assert found.generation_prompt == wanted["prompt"]
    assert found.begins_with == wanted.get("begins", "")
    assert found.prefix_stable is wanted["stable"]
    assert found.grows is wanted.get("grows", False)
    assert found.system == wanted.get("system", "rendered")
    assert bool(found.default_system) == (found.system == "injected")
    assert found.alternation is wanted.get("alternates", False)
    assert found.trims is wanted.get("trims", False)
    assert found.thinking == wanted.get("thinking", "not rendered")
    assert found.tools == wanted.get("tools", "not rendered")
    assert found.generation_tags is wanted.get("tags", False)
    assert set(found.proofs) == {
        *("offsets of one render", "the render built anew", "decoding of trained tokens"),
        *(["generation tags"] if wanted.get("tags") else []),
    }


def test_stops_and_refusals_by_kind_of_chat() -> None:
    """GLM-4 ends an answer and a tool call with the token of the role that follows; it has no place for reasoning."""
    found = certify(bind(SHIPPED, "glm4").template)
    assert found.stops == {"last answer": "<|user|>", "earlier answer": "<|user|>", "tool call": "<|observation|>"}
    refused = {chat: outcome.partition(":")[0] for chat, outcome in found.chats.items() if outcome != "right"}
    assert set(refused.values()) == {"template_refuses"}
    assert set(refused) == {"reasoning", "reasoning in several rounds", "reasoning and tool call"}


def test_a_template_that_ends_all_answers_but_the_last_refuses_rows_and_blocks_nothing() -> None:
    """GLM-4-MoE's own template: what ends an answer is the next turn's header, so that the last one has none."""
    source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    template = bind_source(source).template
    assert policy_faults(template, train_on_eos="turn", train_headers=False) == []
    found = certify(template)
    assert found.stops == {"earlier answer": "<|im_start|>"}
    assert found.chats["plain"].startswith("no_stop_token")


def test_every_named_template_is_in_the_table() -> None:
    from prep_assets.text.load_template import named_templates

    assert set(TABLE) == set(CONTROL) == set(named_templates())


@pytest.mark.parametrize("name", CONTROL)
def test_policies_that_a_template_cannot_support(name: str) -> None:
    """Headers need a prompt to know them by and renders that grow by turns; stop tokens a control token."""
    template = bind(SHIPPED, name).template
    assert policy_faults(template, train_on_eos="turn", train_headers=False) == []
    faults = policy_faults(template, train_on_eos="turn", train_headers=True)
    assert bool(faults) == (name in ("llama2", "mistral", "phi", "qwen3"))
    assert all("train_headers" in fault and name in fault for fault in faults)


NO_STOP = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"


def test_a_template_without_a_stop_token() -> None:
    template = bind_source(NO_STOP).template
    certificate = certify(template)
    assert certificate.renders and certificate.stop_token == ""
    for policy in ("turn", "last", "all"):
        (fault,) = policy_faults(template, train_on_eos=policy, train_headers=False)
        assert repr(policy) in fault and "train_on_eos: none" in fault
    assert policy_faults(template, train_on_eos="none", train_headers=False) == []


@pytest.mark.parametrize("source", ["{{ raise_exception('no') }}", "fixed text", "{{ messages[0].content | upper }}"])
def test_a_template_that_cannot_render_a_question_and_its_answer(source: str) -> None:
    template = bind_source(source).template
    certificate = certify(template)
    assert certificate == Certificate("own", renders=False, reason=certificate.reason) and certificate.reason
    assert "cannot render" in policy_faults(template, train_on_eos="none", train_headers=False)[0]


@pytest.mark.parametrize("policy", ["turn", "last", "all"])
@pytest.mark.parametrize("template", ["endless.jinja", "gemma"])
def test_it_is_refused_before_a_record_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, policy: str) -> None:
    """The shipped tokenizer has no <end_of_turn>, so gemma's stop token is ordinary text to it."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "endless.jinja").write_text(NO_STOP)
    families = minimal("sft", {"chats": domain("chats.jsonl", "messages")}, template=template, train_on_eos=policy)
    workspace = workspace_in(tmp_path, families)
    build(workspace, "sft_raw", "chats")

    def read(*_: object, **__: object) -> None:
        raise AssertionError("a record is read")

    monkeypatch.setattr("prep_assets.pipeline.examples.Reading.examples", read)
    with pytest.raises(TemplateError, match="never learn to stop"):
        build(workspace, "sft_tokens", "chats")
    with pytest.raises(AssertionError, match="a record is read"):
        build(workspace.overriding("sft", {"train_on_eos": "none"}), "sft_tokens", "chats")
    assert families["sft"]["tokenizer"] == TOKENIZER
