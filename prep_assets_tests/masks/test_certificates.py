"""What each named template is certified for, and that a policy it cannot support is refused before a record is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.errors import TemplateError
from prep_assets.text.certify import Certificate, certify, policy_faults
from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, minimal, workspace_in
from prep_assets_tests.masks.bound import CONTROL, SHIPPED, bind, bind_source

EOS, ENDS, ASKS = "<|endoftext|>", "<|im_end|>", "<|im_start|>assistant\n"
# stop: what the template writes after an answer. prompt: what it writes for add_generation_prompt. begins: the control token of its beginning.
# stable: a template that looks at later messages, or writes something once at the end, is not. grows: nor is it where the prompt is not how
# an answer begins. injected, refused: some have no system prompt (gemma), some write one of their own. alternates: those that call
# raise_exception on two user turns. trims: those that strip contents. tags: all but the two oldest.
TABLE: dict[str, tuple[str, str, str, str]] = {
    # the eos after each answer's line break; the system prompt of its own is written at the top
    "alpaca": (EOS, "### Response:\n", "", "stable grows injected tags"),
    "chatml": (ENDS, ASKS, "<|im_start|>", "stable grows"),
    # the prompt opens <think>, which an answer without reasoning does not have
    "deepseek-r1": ("<｜end▁of▁sentence｜>", "<｜Assistant｜><think>\n", EOS, "stable thinking tags"),
    "default": (EOS, "\nAssistant:", "", "stable grows alternates tags"),
    "gemma": ("<end_of_turn>", "<start_of_turn>model\n", EOS, "stable grows refused alternates trims tags"),
    # the token of the next role is written with the answer, so a second prompt would stand after it
    # and a tool call ends with <|observation|>, another stop than that of an answer
    "glm4": ("<|user|>", "<|assistant|>", "[gMASK]", "stable grows tools tags"),
    # no generation prompt: the render that asks is the render of the question, so an answer does follow it
    "llama2": (EOS, "", EOS, "stable grows alternates trims tags"),
    "llama3": ("<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n", EOS, "stable grows trims tools tags"),
    "mistral": (EOS, "", EOS, "stable grows alternates trims tools tags"),
    # without the prompt it ends with the end-of-text token, so nothing is how something longer begins, but with the prompt it is
    "phi": ("<|end|>", "", "<|user|>", "grows tags"),
    "plain": (EOS, "<|assistant|>\n", "", "stable grows"),
    "qwen": (ENDS, ASKS, "<|im_start|>", "stable grows injected tools tags"),
    # the last answer has a <think> block, which it loses as soon as another question follows
    "qwen3": (ENDS, ASKS, "<|im_start|>", "grows thinking tools tags"),
    "vicuna": (EOS, "ASSISTANT:", EOS, "stable grows injected alternates tags"),
}


@pytest.mark.parametrize("name", CONTROL)
def test_certificate(name: str) -> None:
    found, (stop, prompt, begins, words) = certify(bind(SHIPPED, name).template), TABLE[name]
    assert found.renders
    assert (found.stop_token, found.generation_prompt, found.begins_with) == (stop, prompt, begins)
    assert found.system in ("rendered", "injected", "refused") and bool(found.default_system) == (found.system == "injected")
    said = {
        "stable": found.prefix_stable,
        "grows": found.grows,
        "alternates": found.alternation,
        "trims": found.trims,
        "thinking": found.thinking == "kept in the last turn",
        "tools": found.tools == "rendered",
        "tags": found.generation_tags,
    }
    assert {word for word, holds in said.items() if holds} | ({found.system} - {"rendered"}) == set(words.split())
    assert found.thinking in ("kept in the last turn", "not rendered") and found.tools in ("rendered", "not rendered")
    assert set(found.proofs) == {
        *("offsets of one render", "the render built anew", "decoding of trained tokens"),
        *(["generation tags"] if "tags" in words else []),
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
