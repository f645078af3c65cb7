"""Exhibits of chat templates."""

from __future__ import annotations

import datetime as clock
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from prep_assets.cli.main import app
from prep_assets.errors import PrepAssetsError, Refused
from prep_assets.text.certify import certify
from prep_assets.text.load_template import named_templates
from prep_assets.text.template import ChatTemplate
from prep_assets_tests.graph.workspaces import refusals, tree
from prep_assets_tests.museum.gallery import ASKED, ASSISTANT, CALL, CHAT, TOOL, TURNS, USER, Row, Show, chats, first_run, said, tokenizer

PIRATE = "Talk like a pirate."


def test_11_qwen3_history(tmp_path: Path) -> None:
    """Messages were rendered one by one, so reasoning of earlier turns was trained, which the model never sees again.

    Hit: verl#7807, prime-rl#1334, ms-swift#4939, #4390, LLaMA-Factory#8634, #10336
    Stopped by: one render of the whole conversation.
    """
    long = [
        said(USER, "2 + 2?"),
        said(ASSISTANT, "", reasoning_content="I shall use the tool.", tool_calls=[CALL]),
        said("tool", "4"),
        said(ASSISTANT, "It is 4.", reasoning_content="The tool says 4."),
        said(USER, "And 3 + 3?"),
        said(ASSISTANT, "It is 6."),
    ]
    stand = chats(tmp_path, [{"messages": long, "tools": [TOOL]}], template="qwen3")
    text = stand.text(stand.row().ids)
    assert "I shall use the tool." not in text and "The tool says 4." not in text
    assert text.count("<think>") == 1
    assert stand.published.manifest.counts["reasoning_dropped_by_template"] == 2


@pytest.mark.parametrize("template", ["qwen3", "tokenizer"])  # a shipped template, and a tokenizer's own
def test_12_orphan_think_tag(tmp_path: Path, template: str) -> None:
    """Completions had only `</think>`: the template wrote an empty block, then reasoning as the answer.

    Hit: trl#6361, PR#6363
    Stopped by: the tag at the end of a line ends reasoning; elsewhere it rejects the row.
    """
    asked = said(USER, "2 + 2?")
    orphan, field = [asked, said(ASSISTANT, "2 + 2 = 4.\n</think>\n\n4.")], [asked, said(ASSISTANT, "4.", reasoning_content="2 + 2 = 4.")]
    folder = tokenizer(tmp_path / "tokenizer", template=named_templates()["qwen3"])
    stand = chats(tmp_path / "both", [orphan, field], tokenizer=folder, template=template, preprocessing={"deduplicate": False})
    first, second = stand.rows()
    assert np.array_equal(first.ids, second.ids) and np.array_equal(first.mask, second.mask)
    assert stand.trained(first) == "<think>\n2 + 2 = 4.\n</think>\n\n4.<|im_end|>"
    mentioned = [asked, said(ASSISTANT, "The tag </think> ends it: 4.")]
    with pytest.raises(PrepAssetsError, match="</think>"):
        chats(tmp_path / "alone", [mentioned], tokenizer=folder, template=template)


def test_13_empty_think_blocks(tmp_path: Path, show: Show) -> None:
    """Empty reasoning blocks that the server writes were trained, or those that the model must write were not.

    Hit: ms-swift#9829, PR#9875, LlamaFactory#9090, Automodel PR#3739, Trinity-RFT PR#316
    Stopped by: `mask_alignment`: what the generation prompt writes is never trained.
    """
    right = chats(tmp_path / "off", [CHAT[:2]], template="qwen3", template_options={"enable_thinking": False})
    texts = right.texts(right.row())
    assert "<think>" in "".join(texts) and right.trained(right.row()) == "It is 4.<|im_end|>"

    def with_block(_: Any, mask: Any) -> Any:
        start = first_run(mask)[0]
        opened = next(at for at in range(start, 0, -1) if "".join(texts[at:start]).startswith("<think>"))
        mask[opened:start] = 1
        return mask

    right.mask_caught("mask_alignment", with_block, show)
    thinking = chats(tmp_path / "on", [CHAT[:2]], template="qwen3")
    assert thinking.trained(thinking.row()) == "<think>\n\n</think>\n\nIt is 4.<|im_end|>"


def test_14_several_stop_tokens(tmp_path: Path, show: Show) -> None:
    """gpt-oss ends turns with `<|return|>`, `<|end|>` or `<|call|>`: one stop token was assumed.

    Hit: unsloth#3437, trl PR#5109, Megatron-Bridge PR#5389
    Stopped by: `mask_alignment`: each kind of turn has its own stop.
    """
    harmony = (
        "{% for m in messages %}{{ '<|start|>' + m['role'] + '<|message|>' + m['content'] }}"
        "{{ '<|return|>' if loop.last and m['role'] == 'assistant' else '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start|>assistant<|message|>' }}{% endif %}"
    )
    folder = tokenizer(tmp_path / "tokenizer", template=harmony, special=("<|start|>", "<|message|>", "<|end|>", "<|return|>"))
    right = chats(tmp_path, [CHAT], tokenizer=folder)
    assert right.trained(right.row()) == "It is 4.<|end|>It is 6.<|return|>"
    end = right.token("<|end|>")
    right.mask_caught("mask_alignment", lambda ids, mask: np.where(ids == end, 0, mask), show)


def test_15_dangling_header(tmp_path: Path) -> None:
    """The template always writes the assistant's header, so every chat ended in an open one.

    Hit: Phi-4's first upload
    Stopped by: the certificate finds it, and such rows are rejected.
    """
    folder = tokenizer(tmp_path / "tokenizer", template=TURNS + "{{ '<|im_start|>assistant\\n' }}")
    with pytest.raises(PrepAssetsError, match=r"header|generation prompt"):
        chats(tmp_path, [CHAT], tokenizer=folder)


def test_16_default_system_prompt(tmp_path: Path) -> None:
    """Qwen2.5's default system prompt was written once per message instead of once per conversation.

    Hit: verl, AstrAI
    Stopped by: `tokenization_identity`.
    """
    default = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    begun = "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n" + default + "<|im_end|>\\n' }}{% endif %}"
    folder = tokenizer(tmp_path / "tokenizer", template=begun + TURNS + ASKED)
    right = chats(tmp_path / "whole", [CHAT], tokenizer=folder)
    assert right.text(right.row().ids).count(default) == 1
    rounds = chats(tmp_path / "rounds", [CHAT[:2], CHAT[2:]], tokenizer=folder).rows()
    by_messages = Row(np.concatenate([each.ids for each in rounds]), np.concatenate([each.mask for each in rounds]))
    wrong = right.caught("tokenization_identity", lambda _: [by_messages])
    assert wrong.text(wrong.row().ids).count(default) == 2


def test_17_date_in_the_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates print today's date, so a data set renders differently every day.

    Hit: Llama 3.1, SmolLM3, gpt-oss (`strftime_now`)
    Stopped by: templates have a frozen clock.
    """

    class Tomorrow(clock.datetime):
        """A clock that is ahead of its time."""

        @classmethod
        def now(cls, tz: clock.tzinfo | None = None) -> Tomorrow:
            return cls(2031, 3, 4, tzinfo=tz)

    dated = "{{ '<|im_start|>system\\nToday is ' + strftime_now('%d %B %Y') + '<|im_end|>\\n' }}"
    folder = tokenizer(tmp_path / "tokenizer", template=dated + TURNS + ASKED)
    today = chats(tmp_path / "today", [CHAT], tokenizer=folder)
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Tomorrow)
    tomorrow = chats(tmp_path / "tomorrow", [CHAT], tokenizer=folder)
    assert "2031" not in tomorrow.text(tomorrow.row().ids)
    assert tree(today.published.directory) == tree(tomorrow.published.directory)


def test_18_dropped_content(tmp_path: Path) -> None:
    """Templates drop what they do not know: lone system messages, tool calls in history.

    Hit: chat_templates#15, SmolLM3's template, Gemma's template in unsloth#5087
    Stopped by: every region must be in the render, or the record is rejected.
    """
    forgetful = TURNS.replace("in messages", "in messages if m['role'] != 'system'") + ASKED
    folder = tokenizer(tmp_path / "tokenizer", template=forgetful)
    asked = [said(USER, "Who are you?"), said(ASSISTANT, "A pirate.")]
    dropped = [said("system", PIRATE), *asked]
    stand = chats(tmp_path / "some", [asked, dropped], tokenizer=folder)
    assert stand.published.manifest.counts["kept"] == 1
    assert stand.published.manifest.counts["refused"] == {"render/template_drops_content": 1}
    with pytest.raises(PrepAssetsError, match="template_drops_content"):
        chats(tmp_path / "all", [dropped], tokenizer=folder)


def test_19_system_prompts_lost(tmp_path: Path) -> None:
    """A null setting made the pipeline drop every custom system prompt.

    Hit: SmolLM3 (Smol Training Playbook)
    Stopped by: every field of a row is read, or the build stops.
    """
    stand = chats(tmp_path / "read", [{"messages": list(CHAT), "system": PIRATE}])
    assert stand.text(stand.row().ids).count(PIRATE) == 1
    with pytest.raises(PrepAssetsError, match="custom_instructions decide what is trained or asked: rewrite the rows"):
        chats(tmp_path / "unread", [{"messages": list(CHAT), "custom_instructions": PIRATE}])


def called(name: str, **arguments: int) -> dict[str, object]:
    """A row whose assistant calls a tool of its own."""
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    parameters = {"type": "object", "properties": {key: {"type": "integer"} for key in arguments}}
    tool = {"type": "function", "function": {"name": name, "description": "Works.", "parameters": parameters}}
    messages = [
        said(USER, f"Call {name}.", tool_calls=None),
        said(ASSISTANT, "", tool_calls=[call]),
        said("tool", "4", tool_calls=None),
        said(ASSISTANT, "It is 4.", tool_calls=None),
    ]
    return {"messages": messages, "tools": [tool]}


def test_20_arrow_pads_tools(tmp_path: Path) -> None:
    """Struct columns were unified, so every tool showed the parameters of all others, as null.

    Hit: ms-swift#6467, PR#10110, PR#10125, axolotl PR#3136, prime-rl PR#2988
    Stopped by: null members added by padding are removed; an ambiguous table is an error.
    """
    table = pa.Table.from_pylist([called("add", a=1), called("twice", b=2)])
    padded = table.to_pylist()[0]["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert padded == {"a": 1, "b": None}, "Arrow pads: this is the historical fault"
    pq.write_table(table, tmp_path / "calls.parquet")
    stand = chats(tmp_path, tmp_path / "calls.parquet", template="qwen3")
    for row in stand.rows():
        text = stand.text(row.ids)
        assert "null" not in text
        calls = [json.loads(part.split("</tool_call>")[0]) for part in text.split("<tool_call>\n")[2:]]
        assert [len(call["arguments"]) for call in calls] == [1]


def renders(name: str, source: str) -> list[str | None]:
    """What a template makes of each chat, asked for an answer and not; `None` where it refuses."""
    template = ChatTemplate(name, source, {"bos_token": "<s>", "eos_token": "<|im_end|>"})
    found: list[str | None] = []
    for chat in (CHAT, [said("system", "Be brief."), *CHAT], CHAT[:2], CHAT[:1]):
        for asked in (False, True):
            try:
                found.append(template.render(chat, generation_prompt=asked))
            except Refused:
                found.append(None)
    return found


def test_21_templates_drift() -> None:
    """Hand-written copies of chat templates differ from the models' own by a space or a line break.

    Hit: LLaMA-Factory PR#10773, #10784, and 126 templates written by hand beside the models' own
    Stopped by: shipped templates are compared with the models' own; `prep-assets certify --against` compares any two.
    """
    source = named_templates()["chatml"]
    drifted = source.replace("<|im_end|>", "<|im_end|> ")
    assert drifted != source and renders("chatml", source) != renders("drifted", drifted)


@pytest.mark.parametrize("name", ["qwen3", "llama3"])
def test_21_the_models_own(real_data: Path, name: str) -> None:
    source = (real_data / "chat_templates" / "trl" / f"{name}.jinja").read_text("utf-8")
    assert renders(name, named_templates()[name]) == renders(name, source)


def test_22_mismatch_ignored(tmp_path: Path) -> None:
    """Hand-written copies of chat templates differ from the models' own by a space or a line break.

    Hit: FastChat#2992, PR#2996
    Stopped by: shipped templates are compared with the models' own; `prep-assets certify --against` compares any two.
    """
    changing = TURNS.replace("m['content']", "(m['content'] | replace('\\t', '    '))") + ASKED
    indented = [said(USER, "Indent."), said(ASSISTANT, "\tif x:\n\t\tpass?")]
    stand = chats(tmp_path, [CHAT, indented], tokenizer=tokenizer(tmp_path / "tokenizer", template=changing))
    assert stand.published.manifest.counts["kept"] == 1
    assert [(each.id, each.stage) for each in refusals(stand.published)] == [("chats.jsonl:2", "render")]


def test_23_served_with_another_template(tmp_path: Path) -> None:
    """The served Jinja template had two sections of the training format swapped.

    Hit: vllm-mlx#568
    Stopped by: `prep-assets certify --against FILE` compares two templates.
    """
    folder = tokenizer(tmp_path / "tokenizer")
    source = named_templates()["chatml"]
    (tmp_path / "same.jinja").write_text(source, "utf-8")
    (tmp_path / "other.jinja").write_text(source.replace("<|im_end|>", "<|im_end|> "), "utf-8")
    run = CliRunner()
    arguments = ["certify", "chatml", "--tokenizer", str(folder), "--against"]
    assert run.invoke(app, [*arguments, str(tmp_path / "same.jinja")]).exit_code == 0
    found = run.invoke(app, [*arguments, str(tmp_path / "other.jinja")])
    assert found.exit_code != 0 and "plain" in found.output


def test_88_option_that_vanishes(tmp_path: Path) -> None:
    """An option that the template sets itself was accepted, even recommended, and its text was nowhere in the data.

    Hit: prep-assets 0.2
    Stopped by: an option that changes the render of no kind of chat is an error, which names those that do.
    """
    sets = "{% if messages[0]['role'] == 'system' %}{% set system_message = '' %}{% else %}{% set system_message = 'Be kind.' %}{% endif %}"
    source = sets + "{{ system_message }}{% if terse %}{{ 'Be brief.' }}{% endif %}" + TURNS + ASKED
    folder = tokenizer(tmp_path / "tokenizer", template=source)
    with pytest.raises(PrepAssetsError, match=r"sets 'system_message' itself.* It reads: terse"):
        chats(tmp_path / "lost", [CHAT], tokenizer=folder, template_options={"system_message": PIRATE})
    heard = chats(tmp_path / "heard", [CHAT], tokenizer=folder, template_options={"terse": True})
    assert heard.text(heard.row().ids).startswith("Be kind.Be brief.")
    rows = [{"messages": list(CHAT), "chat_template_kwargs": {key: value}} for key, value in (("system_message", PIRATE), ("terse", True))]
    mixed = chats(tmp_path / "rows", rows, tokenizer=folder)
    assert mixed.published.manifest.counts["refused"] == {"render/unknown_template_option": 1}


def test_90_prompts_that_no_server_sends(tmp_path: Path) -> None:
    """Without thinking the template writes its empty block before the last answer only: earlier answers were trained behind a prompt that no server sends.

    Hit: LLaMA-Factory#8352
    Stopped by: `mask_alignment` and the build's line count such answers, and the certificate names them; `expand: turns` mends them.
    """
    off = {"template": "qwen3", "template_options": {"enable_thinking": False}}
    stand = chats(tmp_path, [CHAT], **off)
    source = named_templates()["qwen3"]
    template = ChatTemplate("qwen3", source, {"eos_token": "<|im_end|>"}, {"enable_thinking": False}, ("<|im_start|>", "<|im_end|>"))
    text, prompts = stand.text(stand.row().ids), [template.render(CHAT[:count], generation_prompt=True) for count in (1, 3)]
    assert [text.startswith(prompt) for prompt in prompts] == [False, True], "this is the historical fault"
    said_of = {
        options: certify(template.with_options(dict(options))).chats["several rounds"] for options in ((), (("enable_thinking", True),))
    }
    assert said_of[()].startswith("unserved_prompt: turn 1 ") and said_of[(("enable_thinking", True),)] == "right"
    mended = chats(tmp_path / "mended", [CHAT], expand="turns", **off)
    texts = [mended.text(mended.row(number).ids) for number in range(2)]
    assert all(text.startswith(prompt) for text, prompt in zip(texts, prompts, strict=True))
    counts = [each.published.manifest.counts.get("unserved_prompts", 0) for each in (stand, mended)]
    assert counts == [1, 0]
