"""Exhibits of beginning-of-text, stop and padding tokens."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from prep_assets.graph.graph import assets_of
from prep_assets.text.certify import certify
from prep_assets.text.load_template import load_template
from prep_assets.text.vocabulary import load_vocabulary
from prep_assets_tests.graph.workspaces import build, make, resealed
from prep_assets_tests.museum.gallery import (
    ASKED,
    ASSISTANT,
    CALL,
    CHAT,
    TOOL,
    TURNS,
    USER,
    Row,
    Show,
    Stand,
    chats,
    documents,
    first_run,
    packed,
    pairs,
    said,
    tokenizer,
)
from prep_assets_tests.proofs import corruption

TEXTS = ["The first document.", "The second one.", "And a third."]
BEGUN = "{{ bos_token }}" + TURNS + ASKED


def with_bos(folder: Path, template: str | None = None, *, written: bool = True) -> tuple[Path, int]:
    """A tokenizer with a beginning-of-text token ``<s>``, and its id; with `written` its post-processor puts it before every text."""
    folder = tokenizer(folder, template=template, special=["<s>"], bos_token="<s>")
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bos = backend.token_to_id("<s>")
    if written:
        backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
        backend.save(str(folder / "tokenizer.json"))
    return folder, bos


def without_first(rows: list[Row]) -> list[Row]:
    return [Row(row.ids[1:], row.mask[1:]) for row in rows]


def test_01_double_bos(tmp_path: Path, show: Show) -> None:
    """Template and tokenizer both wrote the beginning-of-text token.

    Hit: vllm#27486, PR#27515, open-r1 PR#462, sglang PR#888, DeepSeek-R1#151, transformers#37686
    Stopped by: `tokenization_identity`.
    """
    folder, bos = with_bos(tmp_path / "tokenizer", BEGUN)
    right = chats(tmp_path, [CHAT], tokenizer=folder)
    row = right.row()
    assert row.ids[0] == bos and (row.ids == bos).sum() == 1
    wrong = right.caught("tokenization_identity", lambda rows: [Row(np.append(bos, row.ids), np.append(0, row.mask)) for row in rows])
    show(as_it_was=(right.texts(wrong.row()), wrong.row().mask), here=(right.texts(row), row.mask))


@pytest.mark.parametrize("by_tokenizer", [False, True])
@pytest.mark.parametrize("by_template", [False, True])
def test_02_bos_removed(tmp_path: Path, by_template: bool, by_tokenizer: bool) -> None:
    """A fix for the double beginning-of-text token removed the only one of some models.

    Hit: unsloth PR#10312 (Gemma 4: of 30 models 11 were fixed, 2 went from one to none)
    Stopped by: `tokenization_identity`.
    """
    folder, bos = with_bos(tmp_path / "tokenizer", BEGUN if by_template else TURNS + ASKED, written=by_tokenizer)
    right = chats(tmp_path, [CHAT], tokenizer=folder)
    assert (right.row().ids == bos).sum() == int(by_template)
    if by_template:
        right.caught("tokenization_identity", without_first)


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_03_bos_lost_with_an_engine(tmp_path: Path, engine: str) -> None:
    """A faster tokenizer was probed with its special tokens and used without: documents lost the beginning-of-text token.

    Hit: marin#5034, #5149, PR#5040
    Stopped by: `row_integrity` looks for it at the start of each document.
    """
    folder, bos = with_bos(tmp_path / "tokenizer")
    right = documents(tmp_path, TEXTS, tokenizer=folder, engine=engine)
    assert [row.ids.tolist().index(bos) for row in right.rows("docs_train")] == [0, 0, 0]
    right.caught("row_integrity", without_first, "docs_train")


def test_04_bos_before_both_answers(tmp_path: Path) -> None:
    """Both answers of a pair were tokenized alone, each with a beginning-of-text token mid-conversation.

    Hit: axolotl#1616, PR#1733, trl PR#1591
    Stopped by: `tokenization_identity`.
    """
    folder, bos = with_bos(tmp_path / "tokenizer", BEGUN)
    right = pairs(tmp_path, [("What is 2 + 2?", "It is 4.", "It is 5.")], tokenizer=folder)
    for stream in ("chosen", "rejected"):
        assert (right.row(stream=stream).ids == bos).sum() == 1

    def twice(rows: list[Row]) -> list[Row]:
        starts = [first_run(row.mask)[0] for row in rows]
        return [Row(np.insert(row.ids, at, bos), np.insert(row.mask, at, 0)) for row, at in zip(rows, starts, strict=True)]

    right.caught("tokenization_identity", twice, "rejected")


def test_05_stop_twice_in_pairs(tmp_path: Path) -> None:
    """The trainer appended a stop token to answers whose template had written one.

    Hit: trl#4481, unsloth#3228
    Stopped by: `source_match`: `preferences.jsonl` has no stop token.
    """
    stand = pairs(tmp_path, [("What is 2 + 2?", "It is 4.", "It is 5."), ("What is 3 + 3?", "It is 6.", "It is 7.")])
    published = stand.workspace.built("preferences_by_domain", "pairs")
    lines = [json.loads(line) for line in (published.directory / "preferences.jsonl").read_text("utf-8").splitlines()]
    assert len(lines) == 2 and all("<|im_end|>" not in json.dumps(row) for row in lines)
    corruption.lines(published, "preferences", lambda rows: [{**row, "chosen": row["chosen"] + "<|im_end|>"} for row in rows])
    assert Stand(stand.workspace, resealed(published)).failing() != []


def test_06_pad_is_eos(tmp_path: Path, show: Show) -> None:
    """The padding token was the stop token, so a collator that masks padding masked every stop.

    Hit: transformers#23530, trl#976, #1623, PR#3091, open-r1 PR#494, Phi-4's first upload
    Stopped by: masks come from positions, never from ids.
    """
    right = chats(tmp_path, [CHAT])
    stop = right.row().ids[np.flatnonzero(right.row().mask)[-1]]
    right.mask_caught("mask_alignment", lambda ids, mask: np.where(ids == stop, 0, mask), show)


def test_06_labels_keep_a_stop_that_pads(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from prep_assets.training import PackedDataset, Pad

    folder = tokenizer(tmp_path / "tokenizer", pad_token="<|im_end|>", eos_token="<|im_end|>")
    stand = packed(tmp_path, [CHAT], tokenizer=folder, row_len=128)
    item = PackedDataset(stand.published.directory)[0]
    labels = Pad(int(item["input_ids"][-1]))([item])["labels"].numpy()[0]
    assert stand.text(item["input_ids"][-1:].numpy()) == "<|im_end|>"
    assert stand.text(labels[labels != -100]).count("<|im_end|>") == 2


def findings(stand: Stand) -> list[str]:
    """What the certificates of a store's template find."""
    certificate = build(stand.workspace, "sft_template").directory
    loaded = [json.loads(path.read_text("utf-8")) for path in sorted(certificate.glob("*.json"))]
    return [finding for each in loaded for finding in each.get("findings", ())]


def test_07_stop_is_not_eos(tmp_path: Path) -> None:
    """The padding token was the stop token, so a collator that masks padding masked every stop.

    Hit: QwenLM/Qwen3#927, open-r1#603, PR#604, axolotl#2073, LLaMA-Factory#9189, unsloth#3721, ms-swift#3113, trl#2059
    Stopped by: masks come from positions, never from ids.
    """
    folder = tokenizer(tmp_path / "tokenizer", eos_token="<|endoftext|>")
    stand = packed(tmp_path / "two", [CHAT], tokenizer=folder, exports={"trl": {"from": "sft_packed", "to": "hf_arrow"}})
    assert any("'<|im_end|>'" in each and "'<|endoftext|>'" in each for each in findings(stand))
    (config,) = make(stand.workspace, assets_of(stand.workspace)["sft_export_trl"]).directory.rglob("generation_config.json")
    assert {stand.token("<|im_end|>"), stand.token("<|endoftext|>")} <= set(json.loads(config.read_text("utf-8"))["eos_token_id"])
    same = packed(tmp_path / "one", [CHAT], tokenizer=tokenizer(tmp_path / "same", eos_token="<|im_end|>"))
    assert not any("only never stops" in each for each in findings(same))


def test_08_stop_of_the_next_message(tmp_path: Path, show: Show) -> None:
    """In GLM's format `<|observation|>` closes a tool call, and was masked with the tool's turn.

    Hit: prime-rl PR#2644, slime#514 (GLM-4.5 and 5)
    Stopped by: `mask_alignment`: stops are found by rendering.
    """
    special = ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
    used = [said(USER, "2 + 2?"), said(ASSISTANT, "", tool_calls=[CALL]), said("tool", "4"), said(ASSISTANT, "It is 4.")]
    folder = tokenizer(tmp_path / "tokenizer", special=special)
    right = chats(tmp_path, [{"messages": used, "tools": [TOOL]}], tokenizer=folder, template="glm4")
    row, stop = right.row(), right.token("<|observation|>")
    assert row.mask[row.ids == stop].all() and (row.ids == stop).sum() == 1
    tail = slice(int(np.flatnonzero(row.ids == stop)[0]) - 16, None)
    right.mask_caught("mask_alignment", lambda ids, mask: np.where(ids == stop, 0, mask), show, tail)


def test_09_no_document_ends(tmp_path: Path) -> None:
    """Documents were concatenated without the end-of-text token, or counted before it was added.

    Hit: marin#577 (GPT-NeoX), Megatron-LM#431
    Stopped by: `row_integrity`.
    """
    right = documents(tmp_path, TEXTS)
    rows = right.rows("docs_train")
    eos = rows[0].ids[-1]
    assert [int((row.ids == eos).sum()) for row in rows] == [1, 1, 1] and all(row.ids[-1] == eos for row in rows)

    def moved(rows: list[Row]) -> list[Row]:
        """Each record begins one token too early for each document before it."""
        ids = np.concatenate([row.ids for row in rows])
        ends = np.cumsum([len(row.ids) for row in rows])
        ends[:-1] -= np.arange(1, len(ends))
        return [Row(each, np.ones(len(each), np.uint8)) for each in np.split(ids, ends[:-1])]

    right.caught("row_integrity", lambda rows: [Row(row.ids[:-1], row.mask[:-1]) for row in rows], "docs_train")
    right.caught("row_integrity", moved, "docs_train")


def test_10_untrained_reserved_tokens(tmp_path: Path) -> None:
    """A base model was trained with its instruct model's template, whose tokens are untrained in the base.

    Hit: unsloth#658, #915, #1056, torchtune#2429
    Stopped by: the certificate finds control tokens that the base's own template never writes.
    """
    special = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    vocabulary = load_vocabulary(str(tokenizer(tmp_path / "tokenizer", special=special)))
    foreign = certify(load_template("llama3", vocabulary), vocabulary).findings
    assert any("'<|eot_id|>'" in each and "'<|start_header_id|>'" in each for each in foreign)
    own = certify(load_template("tokenizer", vocabulary), vocabulary).findings
    assert not any("embeddings" in each for each in own)
