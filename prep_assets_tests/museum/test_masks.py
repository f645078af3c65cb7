"""Exhibits of loss masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets_tests.museum.gallery import (
    ASKED,
    ASSISTANT,
    CALL,
    CHAT,
    TOOL,
    TURNS,
    USER,
    Chat,
    Show,
    Stand,
    chats,
    first_run,
    packed,
    said,
    tokenizer,
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Stand:
    """One plain chat, for faults that any conversation shows."""
    return chats(tmp_path_factory.mktemp("plain"), [CHAT])


def test_27_mask_of_ones(tmp_path: Path, show: Show) -> None:
    """A template without generation tags gave a mask of all ones.

    Hit: Megatron-Bridge#3359
    Stopped by: `mask_alignment`.
    """
    right = chats(tmp_path, [CHAT], tokenizer=tokenizer(tmp_path / "tokenizer", template=TURNS + ASKED))
    right.mask_caught("mask_alignment", lambda _, mask: np.ones_like(mask), show)


def test_28_mask_of_zeros(plain: Stand, show: Show) -> None:
    """A template without generation tags gave a mask of all zeros: the run trained on nothing.

    Hit: liquid-finetune PR#37, trl PR#4201, transformers' own warning
    Stopped by: `row_integrity`.
    """
    plain.mask_caught("row_integrity", lambda _, mask: np.zeros_like(mask), show)


def test_29_mask_runs_to_the_end(tmp_path: Path, show: Show) -> None:
    """An answer that begins at token 0, or ends in stripped white space, got a mask to the end of the sequence.

    Hit: transformers#47325, PR#47326
    Stopped by: `mask_alignment`.
    """
    bare = (
        "{% for message in messages %}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim + '<|im_end|>' }}"
        "{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{% endfor %}"
    )
    greeted = [said(ASSISTANT, "How can I help?  "), said(USER, "What is 2 + 2?"), said(ASSISTANT, "It is 4.  ")]
    right = chats(tmp_path, [greeted], tokenizer=tokenizer(tmp_path / "tokenizer", template=bare))
    assert first_run(right.row().mask)[0] == 0

    def to_the_end(_: Any, mask: Any) -> Any:
        mask[first_run(mask)[0] :] = 1
        return mask

    right.mask_caught("mask_alignment", to_the_end, show)


def test_30_cut_answer_masked(tmp_path: Path, show: Show) -> None:
    """An answer cut at the maximum length got a mask of zeros.

    Hit: transformers#34494
    Stopped by: `mask_alignment` or `row_integrity`.
    """
    counted = "one two three four five six seven eight nine ten " * 3
    long = [said(USER, "Hi"), said(ASSISTANT, "Yes."), said(USER, "Count."), said(ASSISTANT, counted)]
    right = chats(tmp_path, [long], truncation="end", preprocessing={"max_seq_len": 48})
    assert len(right.row().ids) == 48 and right.row().mask[-1] == 1

    def cut_off(_: Any, mask: Any) -> Any:
        mask[int(np.flatnonzero(np.diff(mask, append=0) == 1)[-1]) + 1 :] = 0
        return mask

    right.mask_caught("mask_alignment", cut_off, show)


def test_31_packing_drops_the_mask(plain: Stand, show: Show) -> None:
    """Packing lost the mask: every token of every row was trained.

    Hit: nanochat#570, PR#582
    Stopped by: `mask_alignment`.
    """
    plain.mask_caught("mask_alignment", lambda _, mask: np.ones_like(mask), show)


def test_32_off_by_one(plain: Stand, show: Show) -> None:
    """A fix of an off-by-one made the opposite one: the prompt's last token was trained, the stop was not.

    Hit: verl PR#3287, #3562, PR#5362
    Stopped by: `mask_alignment`.
    """
    plain.mask_caught("mask_alignment", lambda _, mask: np.roll(mask, -1), show)
    plain.mask_caught("mask_alignment", lambda _, mask: np.roll(mask, 1))


def test_33_first_token_untrained(plain: Stand, show: Show) -> None:
    """The first token of each answer had no loss: `loss_mask[:, :-1]` with labels already shifted.

    Hit: OpenRLHF#973, minimind#395, PR#621
    Stopped by: `mask_alignment`.
    """

    def without_first(_: Any, mask: Any) -> Any:
        mask[np.flatnonzero(np.diff(mask, prepend=0) == 1)] = 0
        return mask

    plain.mask_caught("mask_alignment", without_first, show)


def test_34_markers_in_content(tmp_path: Path, show: Show) -> None:
    """Answers were found by marker strings, which users type too, or which merge with their neighbours.

    Hit: unsloth#2900, #2117, #2095, #1128, #3198, #2364, #3041, #1501
    Stopped by: `mask_alignment`: spans come from one render.
    """
    typed = [said(USER, "Say <|im_start|>assistant\nI am evil<|im_end|> twice."), said(ASSISTANT, "No.")]
    right = chats(tmp_path, [typed])
    assert right.trained(right.row()) == "No.<|im_end|>"
    begins = right.text(right.row().ids).find("I am evil")
    where = np.cumsum([len(text) for text in right.texts(right.row())])

    def as_found(_: Any, mask: Any) -> Any:
        mask[(where > begins) & (where <= begins + len("I am evil<|im_end|>"))] = 1
        return mask

    right.mask_caught("mask_alignment", as_found, show)


def test_35_observations_trained(tmp_path: Path, show: Show) -> None:
    """Tool results were trained as if the model had said them.

    Hit: post-training-experiments#19, prime-rl PR#978
    Stopped by: `mask_alignment`.
    """
    result = "the sum is 4"
    used = [said(USER, "2 + 2?"), said(ASSISTANT, "", tool_calls=[CALL]), said("tool", result), said(ASSISTANT, "It is 4.")]
    right = chats(tmp_path, [{"messages": used, "tools": [TOOL]}], tokenizer=tokenizer(tmp_path / "tokenizer"), template="qwen3")
    texts = right.texts(right.row())
    start = "".join(texts).find(result)
    assert start >= 0 and result not in right.trained(right.row())
    begins = np.cumsum([0, *map(len, texts[:-1])])
    first = next(number for number, text in enumerate(texts) if "sum" in text) - 12

    def with_result(_: Any, mask: Any) -> Any:
        mask[(begins >= start) & (begins < start + len(result))] = 1
        return mask

    right.mask_caught("mask_alignment", with_result, show, slice(first, None))


def test_36_undecidable_rows(tmp_path: Path) -> None:
    """Every mask was false, and a million warnings hid that nothing was left.

    Hit: open-instruct#1800, #1804, NeMo-Aligner#57
    Stopped by: the build stops, counts the reasons and shows an example.
    """
    with pytest.raises(PrepAssetsError, match=r"all 40 records were refused \(.*: 40\)"):
        chats(tmp_path / "all", [[said(USER, f"What is {number}?")] for number in range(40)])
    counts = chats(tmp_path / "some", [CHAT[:2], [said(USER, "And now?")]]).published.manifest.counts
    assert (counts["read"], counts["kept"], sum(counts["refused"].values())) == (2, 1, 1)


def test_37_gradients_of_zero(tmp_path: Path) -> None:
    """The loss's denominator, or a kernel, ignored the mask: rows with few labels gave zero gradients.

    Hit: mlx-vlm PR#1392, unsloth#5230
    Stopped by: every packed row trains something (`row_integrity`).
    """
    torch = pytest.importorskip("torch")
    from prep_assets.training import PackedDataset

    stand = packed(tmp_path, [CHAT, CHAT[:2], CHAT[2:]], row_len=64)
    data = PackedDataset(stand.published.directory)
    torch.manual_seed(0)
    embed, head = torch.nn.Embedding(4096, 8), torch.nn.Linear(8, 4096)
    for row in range(len(data)):
        item = data[row]
        head.zero_grad()
        logits = head(embed(item["input_ids"] % 4096))[:-1]
        torch.nn.functional.cross_entropy(logits, torch.where(item["labels"] < 0, -100, item["labels"] % 4096)[1:]).backward()
        assert float(head.weight.grad.abs().sum()) > 0


SWITCHING = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + (m['content'] or '') }}"
    "{% for call in m['tool_calls'] or [] %}{{ '<tool_call>' + call['function'] | tojson + '</tool_call>' }}{% endfor %}"
    "{{ '<|endoftext|>' if loop.last and m['role'] == 'assistant' else '<|im_end|>' }}{% endfor %}" + ASKED
)
"""A template whose last turn ends with another token than those before."""
USED: Chat = (said(USER, "2 + 2?"), said(ASSISTANT, "", tool_calls=[CALL]), said("tool", "4"), said(ASSISTANT, "It is 4."))


def test_85_bracket_for_a_stop(tmp_path: Path, show: Show) -> None:
    """The token that closes a tool call was taken for the stop, so the model never learned to stop after a call.

    Hit: prep-assets 0.2
    Stopped by: `mask_alignment`: how many brackets close a call is counted against a plain answer.
    """
    folder = tokenizer(tmp_path / "tokenizer", template=SWITCHING, structural=("<tool_call>", "</tool_call>"))
    right = chats(tmp_path, [USED], tokenizer=folder)
    trained = right.trained(right.row())
    assert trained.endswith("</tool_call><|im_end|>It is 4.<|endoftext|>") and trained.startswith("<tool_call>{")
    closing, stop = right.token("</tool_call>"), right.token("<|im_end|>")

    def without_stop(ids: Any, mask: Any) -> Any:
        mask[(ids == stop) & (np.roll(ids, 1) == closing)] = 0
        return mask

    first = right.texts(right.row()).index("</tool_call>") - 6
    right.mask_caught("mask_alignment", without_stop, show, slice(first, None))


def test_86_result_trained_with_the_header(tmp_path: Path, show: Show) -> None:
    """With headers trained, the brackets and the stop of a tool's turn were trained as the beginning of the answer.

    Hit: prep-assets 0.2
    Stopped by: `mask_alignment`: a header begins where the render of the turns before it ends.
    """
    folder = tokenizer(tmp_path / "tokenizer", structural=("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"))
    right = chats(tmp_path, [{"messages": USED, "tools": [TOOL]}], tokenizer=folder, template="qwen", train_headers=True)
    texts = right.texts(right.row())
    assert right.trained(right.row()).endswith("\n<|im_start|>assistant\nIt is 4.<|im_end|>")
    assert "</tool_response>" not in right.trained(right.row())
    begins, ends = texts.index("</tool_response>"), len(texts) - 1 - texts[::-1].index("It")

    def with_result(_: Any, mask: Any) -> Any:
        mask[begins - 1 : ends] = 1
        return mask

    right.mask_caught("mask_alignment", with_result, show, slice(begins - 4, None))


EMPTY_BLOCKS = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + ('<think></think>' if m['role'] == 'assistant' else '') + m['content'] }}"
    "{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"
)


def test_87_first_answer_begins_otherwise(tmp_path: Path, show: Show) -> None:
    """Of a chat that begins with an answer, the empty reasoning block was trained in every answer but the first.

    Hit: prep-assets 0.2
    Stopped by: `mask_alignment`: an answer begins alike whatever stands before it.
    """
    folder = tokenizer(tmp_path / "tokenizer", template=EMPTY_BLOCKS, structural=("<think>", "</think>"))
    right = chats(tmp_path, [[said(ASSISTANT, "Welcome."), *CHAT[:2]]], tokenizer=folder)
    assert right.trained(right.row()) == "<think></think>Welcome.<|im_end|><think></think>It is 4.<|im_end|>"
    closing = right.texts(right.row()).index("</think>")

    def without_block(_: Any, mask: Any) -> Any:
        mask[closing - 1 : closing + 1] = 0
        return mask

    right.mask_caught("mask_alignment", without_block, show)


def test_91_count_of_the_batch(tmp_path: Path) -> None:
    """What a template dropped was counted once more for chats that were too long and came often, so a count depended on how rows were grouped.

    Hit: prep-assets 0.2
    Stopped by: blocks of one row, of seven and of all give one manifest (a test of every family).
    """
    thinks = said(ASSISTANT, "It is 4.", reasoning_content="Two and two.")
    long = [said(USER, "Count. " * 40), said(ASSISTANT, "One."), said(USER, "2 + 2?"), thinks, *CHAT[2:]]
    options = {"template": "qwen3", "truncation": "turns", "preprocessing": {"max_seq_len": 64, "deduplicate": False}}
    alone = chats(tmp_path / "alone", [long], **options).published.manifest.counts
    many = chats(tmp_path / "many", [long] * 5, **options).published.manifest.counts
    assert alone["tokens_cut_away"] > 0 and alone["reasoning_dropped_by_template"] == 1
    assert many["reasoning_dropped_by_template"] == 5
