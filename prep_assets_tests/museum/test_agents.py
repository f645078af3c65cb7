"""Exhibits of agents: tools, reasoning and several turns, as trackers of 2025 and 2026 report them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from prep_assets.errors import PrepAssetsError
from prep_assets.graph.graph import store_of
from prep_assets.stores.table import open_stream
from prep_assets.text.load_template import named_templates
from prep_assets.text.template import ChatTemplate
from prep_assets_tests.graph.workspaces import TOKENIZER, refusals, resealed
from prep_assets_tests.museum.gallery import ASSISTANT, CALL, CHAT, TOOL, USER, Row, Show, Stand, chats, packed, said, stand_of, tokenizer
from prep_assets_tests.proofs import corruption

CALLED = [said(USER, "2 + 2?"), said(ASSISTANT, "", tool_calls=[CALL]), said("tool", "4"), said(ASSISTANT, "It is 4.")]
THOUGHT = [
    said(USER, "2 + 2?"),
    said(ASSISTANT, "It is 4.", reasoning_content="Two twos."),
    said(USER, "3 + 3?"),
    said(ASSISTANT, "It is 6.", reasoning_content="Two threes."),
]
LONG = [said(USER, "Count."), said(ASSISTANT, "one two three four five six seven eight nine ten " * 6)]


def shared(one: Iterable[Any], other: Iterable[Any]) -> int:
    """How many items two sequences have in common at their start."""
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(one, other, strict=False)))


def reads_otherwise(right: Stand, text: str) -> Stand:
    """The store with another text in its one row, the mask kept where both agree: only `tokenization_identity` can tell."""
    row = right.row()
    backend = store_of(right.workspace, right.published).vocabulary.backend
    assert backend.encode(right.text(row.ids), add_special_tokens=False).ids == row.ids.tolist(), "the text alone makes the difference"
    ids = np.array(backend.encode(text, add_special_tokens=False).ids, row.ids.dtype)
    start = shared(ids, row.ids)
    room = min(len(ids), len(row.ids)) - start
    end = min(shared(ids[::-1], row.ids[::-1]), room)
    between = np.zeros(len(ids) - start - end, row.mask.dtype)
    return right.caught(
        "tokenization_identity", lambda _: [Row(ids, np.concatenate([row.mask[:start], between, row.mask[len(row.mask) - end :]]))]
    )


def replaced(right: Stand, old: str, new: str) -> Stand:
    """The store with one passage of its one row written otherwise, on which `tokenization_identity` must fail."""
    text = right.text(right.row().ids)
    assert text.count(old) == 1
    return reads_otherwise(right, text.replace(old, new))


def test_58_results_in_turns_of_their_own(tmp_path: Path) -> None:
    """Messages were rendered one by one, so results of two parallel calls became two user turns.

    Hit: slime#2263
    Stopped by: `tokenization_identity`.
    """
    parallel = [CALLED[0], said(ASSISTANT, "", tool_calls=[CALL, CALL]), said("tool", "four"), said("tool", "vier"), CALLED[3]]
    right = chats(tmp_path, [{"messages": parallel, "tools": [TOOL]}], template="qwen3")
    assert right.text(right.row().ids).count("<|im_start|>user\n") == 2
    border = "</tool_response>{}\n<tool_response>\nvier"
    wrong = replaced(right, border.format(""), border.format("<|im_end|>\n<|im_start|>user"))
    assert wrong.text(wrong.row().ids).count("<|im_start|>user\n") == 3


def test_59_answers_written_twice(tmp_path: Path) -> None:
    """Each turn was what its render adds; the template strips reasoning from history, so answers came twice.

    Hit: NeMo-RL#2821, PR#2822
    Stopped by: `tokenization_identity`.
    """
    right = chats(tmp_path, [THOUGHT], template="qwen3")
    assert right.text(right.row().ids).count("It is 4.") == 1
    template = ChatTemplate("qwen3", named_templates()["qwen3"], {"bos_token": "", "eos_token": "<|im_end|>"})
    joined, before = "", ""
    for number in range(1, len(THOUGHT) + 1):
        now = template.render(THOUGHT[:number], generation_prompt=False)
        joined, before = joined + now[shared(before, now) :], now
    assert joined.count("It is 4.") == 2
    reads_otherwise(right, joined)


def test_60_tools_never_shown(tmp_path: Path) -> None:
    """The chat template was called without `tools`: the prompt never names what is called.

    Hit: slime#1008, PR#1011, PR#1159
    Stopped by: `tokenization_identity`.
    """
    right = chats(tmp_path / "shown", [{"messages": CALLED, "tools": [TOOL]}], template="qwen3")
    hidden = chats(tmp_path / "hidden", [CALLED], template="qwen3")
    assert "Adds." in right.text(right.row().ids) and "Adds." not in hidden.text(hidden.row().ids)
    right.caught("tokenization_identity", lambda _: hidden.rows())


def test_61_arguments_encoded_twice(tmp_path: Path) -> None:
    """Arguments come as JSON text, and the template's `tojson` encoded them again.

    Hit: oumi PR#2599, flama#258
    Stopped by: arguments are parsed before rendering; `tokenization_identity`.
    """
    arguments = json.dumps(CALL["function"]["arguments"])
    as_text = {**CALL, "function": {**CALL["function"], "arguments": arguments}}
    texts = [CALLED[0], said(ASSISTANT, "", tool_calls=[as_text]), *CALLED[2:]]
    right = chats(tmp_path / "text", [{"messages": texts, "tools": [TOOL]}], template="qwen")
    assert np.array_equal(right.row().ids, chats(tmp_path / "object", [{"messages": CALLED, "tools": [TOOL]}], template="qwen").row().ids)
    replaced(right, arguments, json.dumps(arguments))


def test_62_no_text_is_none(tmp_path: Path) -> None:
    """A message that only calls tools has `content: null`, which was rendered as `None`.

    Hit: renderers PR#131 (GLM-4.5, GLM-5, MiniMax-M2)
    Stopped by: `tokenization_identity`.
    """
    null = [CALLED[0], {**CALLED[1], "content": None}, *CALLED[2:]]
    right = chats(tmp_path, [{"messages": null, "tools": [TOOL]}], template="qwen3")
    assert "None" not in right.text(right.row().ids)
    call = '<tool_call>\n{"name": "add"'
    replaced(right, call, f"None\n{call}")


def test_63_reasoning_in_a_field_unread(tmp_path: Path) -> None:
    """Reasoning was in `reasoning_content`, and only `content` was tokenized.

    Hit: slime PR#330 (Qwen3 Thinking)
    Stopped by: every field of a message is read; `tokenization_identity`.
    """
    right = chats(tmp_path / "read", [THOUGHT[:2]], template="qwen3")
    assert right.trained(right.row()) == "<think>\nTwo twos.\n</think>\n\nIt is 4.<|im_end|>"
    unread = chats(tmp_path / "unread", [[THOUGHT[0], said(ASSISTANT, "It is 4.")]], template="qwen3")
    right.caught("tokenization_identity", lambda _: unread.rows())


def test_64_pairs_without_their_calls(tmp_path: Path) -> None:
    """Only role and content of preference messages were copied: tool calls and tools got lost.

    Hit: axolotl#3824, PR#3825
    Stopped by: `source_match`.
    """
    row = {"prompt": CALLED[:3], "chosen": CALLED[3:], "rejected": [said(ASSISTANT, "It is 5.")], "tools": [TOOL]}
    stand = stand_of(
        tmp_path, "preference", "preference", [row], "preference_raw", "preferences_by_domain", name="pairs", test_fraction=0.0
    )
    (line,) = (stand.published.directory / "preferences.jsonl").read_text("utf-8").splitlines()
    pair = json.loads(line)
    assert pair["prompt"][1]["tool_calls"][0]["function"] == CALL["function"] and "Adds." in pair["tools"]

    def copied(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        bare = [{"role": each["role"], "content": each.get("content", "")} for each in rows[0]["prompt"]]
        return [{**{key: value for key, value in rows[0].items() if key != "tools"}, "prompt": bare}]

    corruption.lines(stand.published, "preferences", copied)
    assert Stand(stand.workspace, resealed(stand.published)).failing() != []


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Stand:
    """One plain chat, for faults that any conversation shows."""
    return chats(tmp_path_factory.mktemp("plain"), [CHAT])


def test_65_only_the_last_answer(plain: Stand, show: Show) -> None:
    """Of a conversation with several answers only the last was trained.

    Hit: NeMo Speech PR#16284
    Stopped by: `mask_alignment`.
    """

    def last(_: Any, mask: Any) -> Any:
        mask[: int(np.flatnonzero(np.diff(mask, prepend=0) == 1)[-1])] = 0
        return mask

    plain.mask_caught("mask_alignment", last, show)


def test_66_header_and_line_break_trained(plain: Stand, show: Show) -> None:
    """Assistant turns were trained with their header and the line break after the stop.

    Hit: SkyRL PR#710, mlx-lm PR#584, Automodel PR#3353
    Stopped by: `mask_alignment`.
    """
    texts = plain.texts(plain.row())

    def whole_turns(ids: Any, mask: Any) -> Any:
        starts, role = np.flatnonzero(ids == plain.token("<|im_start|>")), "<|im_start|>assistant"
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            mask[start:end] = "".join(texts[start:end]).startswith(role)
        return mask

    plain.mask_caught("mask_alignment", whole_turns, show)


def test_67_the_turn_ends_with_another_token(tmp_path: Path, show: Show) -> None:
    """The mask looked for `eos_token` at the end of each answer; the template ends turns with another token.

    Hit: axolotl#3754 (Gemma), Megatron-Bridge#4265 (Nemotron Omni)
    Stopped by: `mask_alignment`: stops are found by rendering.
    """
    special = ("<bos>", "<start_of_turn>", "<end_of_turn>")
    folder = tokenizer(tmp_path / "tokenizer", special=special, bos_token="<bos>", eos_token="<|endoftext|>")
    right = chats(tmp_path, [CHAT], tokenizer=folder, template="gemma")
    assert right.trained(right.row()) == "It is 4.<end_of_turn>It is 6.<end_of_turn>"
    stop = right.token("<end_of_turn>")
    right.mask_caught("mask_alignment", lambda ids, mask: np.where(ids == stop, 0, mask), show)


def test_68_cut_answers_never_stop(tmp_path: Path) -> None:
    """Overlong conversations were cut on the right, so their answers were trained without a stop.

    Hit: open-instruct PR#1876 (2.02 % of the rows of a cache of 32,768 tokens)
    Stopped by: rejected as `too_long`, or cut with `truncation_keeps_stop`.
    """
    short = {"max_seq_len": 32}
    whole = chats(tmp_path / "refused", [LONG, CHAT[:2]], preprocessing=short)
    assert [each.reason for each in refusals(whole.published)] == ["too_long"]
    right = chats(tmp_path / "kept", [LONG], truncation="end", truncation_keeps_stop=True, preprocessing=short)
    cut = chats(tmp_path / "cut", [LONG], truncation="end", preprocessing=short)
    assert [right.trained(right.row()).endswith("<|im_end|>"), cut.trained(cut.row()).endswith("<|im_end|>")] == [True, False]
    right.caught("tokenization_identity", lambda _: cut.rows())


def test_69_what_packing_cuts_off(tmp_path: Path) -> None:
    """Best-fit packing dropped what exceeds the row length, or packed it as answers without questions.

    Hit: trl#4554, PR#4632, #5075, PR#5076
    Stopped by: the build stops and counts overlong documents; `overlong` decides.
    """
    with pytest.raises(PrepAssetsError, match=r"longer than .*overlong"):
        packed(tmp_path / "open", [LONG, CHAT[:2]], row_len=32)
    stand = packed(tmp_path / "dropped", [LONG, CHAT[:2]], row_len=32, packing={"overlong": "drop"})
    assert stand.published.manifest.counts["tokens_left_out"] > 32


def test_70_image_chats_trained_whole(tmp_path: Path, show: Show) -> None:
    """The collator of image chats ignored every mask option: the whole conversation was trained.

    Hit: axolotl#3617, PR#3625
    Stopped by: `mask_alignment`.
    """
    asked = [{"type": "image", "url": "https://example.org/1.png"}, {"type": "text", "text": "What is this?"}]
    seen = [{"role": USER, "content": asked}, said(ASSISTANT, "A dog.")]
    folder = tokenizer(tmp_path / "tokenizer", special=["<image>"])
    right = chats(tmp_path, [seen], tokenizer=folder, template="chatml", image_token="<image>", image_patches=2)
    image = right.token("<image>")
    assert (right.row().ids == image).sum() == 2 and right.trained(right.row()) == "A dog.<|im_end|>"
    right.mask_caught("mask_alignment", lambda ids, _: ids != image, show)


def test_71_separators_dropped_between_turns(tmp_path: Path) -> None:
    """A rollout was joined from sampled text and a tool turn rendered alone: the line break between them got lost.

    Hit: verl PR#6921
    Stopped by: `tokenization_identity`.
    """
    right = chats(tmp_path, [{"messages": CALLED, "tools": [TOOL]}], template="qwen3")
    border = "<|im_end|>{}<|im_start|>user\n<tool_response>"
    wrong = replaced(right, border.format("\n"), border.format(""))
    assert len(wrong.row().ids) == len(right.row().ids) - 1


def test_72_the_last_result_dropped(tmp_path: Path) -> None:
    """Tool results were written when the next message came: a conversation that ends on one lost it.

    Hit: LLaMA-Factory PR#10655
    Stopped by: `tokenization_identity`.
    """
    right = chats(tmp_path / "right", [{"messages": CALLED[:3], "tools": [TOOL]}], template="qwen3")
    assert "<tool_response>\n4\n</tool_response>" in right.text(right.row().ids)
    lost = chats(tmp_path / "lost", [{"messages": CALLED[:2], "tools": [TOOL]}], template="qwen3")
    right.caught("tokenization_identity", lambda _: lost.rows())


def test_73_unknown_roles_skipped(tmp_path: Path) -> None:
    """The converter did not know the role `tool`, and skipped its messages.

    Hit: speculators PR#561
    Stopped by: unknown roles reject the record.
    """
    odd = [CALLED[0], said("oracle", "4"), CALLED[3]]
    stand = chats(tmp_path / "both", [{"messages": CALLED, "tools": [TOOL]}, {"messages": odd, "tools": [TOOL]}], template="qwen3")
    assert [each.reason for each in refusals(stand.published)] == ["unknown_role"]
    skipped = chats(tmp_path / "skipped", [{"messages": [CALLED[0], CALLED[3]], "tools": [TOOL]}], template="qwen3")
    stand.caught("tokenization_identity", lambda _: skipped.rows())


def test_74_missing_logprobs_made_zero(tmp_path: Path) -> None:
    """If a server gave fewer log-probabilities than tokens, the rest became 0.0: a probability of 1.

    Hit: vime PR#70, rllm#816
    Stopped by: a group is rejected if lengths differ.
    """
    backend = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    ids = backend.encode("It is", add_special_tokens=False).ids
    whole = {"prompt": "What?", "responses": ["It is", "It is"], "rewards": [1.0, 0.0], "token_ids": [ids, ids]}
    keys = {"token_ids_key": "token_ids", "logprobs_key": "logprobs"}
    rows = [{**whole, "logprobs": [[-0.5] * len(ids), [-0.5] * given]} for given in (len(ids), len(ids) - 1)]
    stand = stand_of(tmp_path, "rl", "group", rows, "rl_raw", "rl_groups_by_domain", read_with=keys, arithmetic={"n": 5})
    assert [(each.id, each.reason) for each in refusals(stand.published)] == [("shown.jsonl:2", "length_mismatch")]


def test_75_truncation_takes_the_answer(tmp_path: Path) -> None:
    """Overlong dialogues were cut on the right, where the only trained answer was.

    Hit: Automodel PR#2366
    Stopped by: rejected as `too_long`; `truncation: turns` drops the oldest rounds instead.
    """
    rounds = [*LONG, *CHAT[2:]]
    right = chats(tmp_path / "turns", [rounds], truncation="turns", preprocessing={"max_seq_len": 48})
    assert right.trained(right.row()) == "It is 6.<|im_end|>"
    cut = chats(tmp_path / "end", [rounds], truncation="end", preprocessing={"max_seq_len": 48})
    assert "It is 6." not in cut.text(cut.row().ids)
    right.caught("tokenization_identity", lambda _: cut.rows())


def test_76_answers_stored_with_their_stop(tmp_path: Path) -> None:
    """Servers returned the stop with the answer's text, and the template wrote another.

    Hit: verifiers#56
    Stopped by: a stop in content is text and counted; `tokenization_identity`.
    """
    kept = [CHAT[0], said(ASSISTANT, "It is 4.<|im_end|>"), *CHAT[2:]]
    right = chats(tmp_path / "text", [kept])
    stop = right.token("<|im_end|>")
    assert (right.row().ids == stop).sum() == 4
    assert right.published.manifest.counts["control_tokens_in_content"] == 1
    refusing = chats(tmp_path / "refuse", [kept, CHAT], special_in_content="refuse")
    assert refusing.published.manifest.counts["kept"] == 1

    def twice(rows: list[Row]) -> list[Row]:
        at = np.flatnonzero(rows[0].ids == stop)[1]
        return [Row(np.insert(rows[0].ids, at, stop), np.insert(rows[0].mask, at, 1))]

    chats(tmp_path / "plain", [CHAT]).caught("tokenization_identity", twice)


def test_77_special_tokens_decoded_away(tmp_path: Path) -> None:
    """A rollout was decoded without its special tokens and rendered again, so ids and masks were cut in the wrong place.

    Hit: minimind#850
    Stopped by: ids whose text differs from the response are rejected.
    """
    backend = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    ids = backend.encode("It<|im_start|> is", add_special_tokens=False).ids
    assert backend.decode(ids, skip_special_tokens=True) == "It is"
    whole = backend.encode("It is", add_special_tokens=False).ids
    called = [said(ASSISTANT, "I ask."), said(USER, "4"), said(ASSISTANT, "It is")]
    rows = [
        {"prompt": "What?", "responses": responses, "rewards": [1.0, 0.0], "token_ids": [given, whole]}
        for responses, given in ((["It is", "It is"], whole), (["It is", "It is"], ids), ([called, "It is"], whole))
    ]
    keys = {"token_ids_key": "token_ids"}
    stand = stand_of(tmp_path, "rl", "group", rows, "rl_raw", "rl_groups_by_domain", read_with=keys, arithmetic={"n": 5})
    assert [each.reason for each in refusals(stand.published)] == ["ids_differ_from_text", "sampled_ids_without_mask"]


def test_78_results_paired_by_position(tmp_path: Path) -> None:
    """Results of parallel calls came back in another order, each below the other's call.

    Hit: ms-swift PR#10174
    Stopped by: results are put in the order of their calls, by id; `tokenization_identity`.
    """
    calls = [{**CALL, "id": "a"}, {**CALL, "id": "b"}]
    results = [said("tool", "four", tool_call_id="a"), said("tool", "vier", tool_call_id="b")]

    def row(answers: list[dict[str, Any]]) -> dict[str, Any]:
        return {"messages": [CALLED[0], said(ASSISTANT, "", tool_calls=calls), *answers, CALLED[3]], "tools": [TOOL]}

    rows = [row(results), row(results[::-1]), row(results[1:])]
    right = chats(tmp_path, rows, template="qwen3")
    assert [refusal.reason for refusal in refusals(right.published)] == ["unanswered_tool_call"]
    first, second = right.rows()
    assert np.array_equal(first.ids, second.ids)
    text = right.text(first.ids)
    exchanged = text.replace("four", "@").replace("vier", "four").replace("@", "vier")
    backend = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    ids = np.array(backend.encode(exchanged, add_special_tokens=False).ids, first.ids.dtype)
    assert len(ids) == len(first.ids)
    right.caught("tokenization_identity", lambda _: [Row(ids, first.mask), second])


def test_79_calls_as_plain_text(tmp_path: Path) -> None:
    """Calls stood in messages with a role of their own, which a mapping of roles made answers in text; parallel ones became two answers.

    Hit: LLaMA-Factory#9585, #6521
    Stopped by: messages with the role `tool_call` or `function_call` are read as calls; `tokenization_identity`.
    """
    called, result = json.dumps(CALL["function"]), said("tool_response", "4")
    form = {"messages": [CALLED[0], *[said("tool_call", called)] * 2, *[result] * 2, CALLED[3]], "tools": [TOOL]}
    same = {"messages": [CALLED[0], said(ASSISTANT, "", tool_calls=[CALL, CALL]), *[said("tool", "4")] * 2, CALLED[3]], "tools": [TOOL]}
    right, other = chats(tmp_path / "right", [form], template="qwen3"), chats(tmp_path / "other", [same], template="qwen3")
    assert np.array_equal(right.row().ids, other.row().ids)
    text = chats(tmp_path / "text", [{**form, "messages": [CALLED[0], said(ASSISTANT, called), CALLED[3]]}], template="qwen3")
    assert "<tool_call>\n" in right.trained(right.row()) and "<tool_call>" not in text.trained(text.row())
    right.caught("tokenization_identity", lambda _: text.rows())


def test_80_the_humans_last_words(tmp_path: Path) -> None:
    """A dialogue was cut at its last mark of the assistant: of one that ends with the human, the human's words were trained as the answer.

    Hit: trl#1858
    Stopped by: rejected as `role_order`; `source_match`.
    """
    asked = "\n\nHuman: Hi\n\nAssistant: Hello"
    rows = [
        {"chosen": f"{asked}, friend!", "rejected": f"{asked}!"},
        {"chosen": f"{asked}!\n\nHuman: Bye", "rejected": f"{asked}!\n\nHuman: Go"},
    ]
    stand = stand_of(tmp_path, "preference", "hh", rows, "preference_raw", "preferences_by_domain", test_fraction=0.0)
    assert [(each.id, each.reason) for each in refusals(stand.published)] == [("shown.jsonl:2", "role_order")]


def test_81_stretches_that_the_row_leaves_out(tmp_path: Path, show: Show) -> None:
    """A row said which stretches of its answer are trained, in a field that the loader did not read: all of it was.

    Hit: axolotl PR#1756
    Stopped by: `train_detail` is read; `mask_alignment`.
    """
    stretches = [{"begin_offset": 0, "end_offset": 8, "train": True}, {"begin_offset": 9, "end_offset": 31, "train": False}]
    answer = said(ASSISTANT, "Good day. I am not sure, though.", train_detail=stretches)
    right = chats(tmp_path, [[said(USER, "Say good day."), answer]])
    assert right.trained(right.row()).startswith("Good day.") and "sure" not in right.trained(right.row())
    start = int(right.row().mask.argmax())
    right.mask_caught("mask_alignment", lambda ids, mask: np.where((np.arange(len(ids)) >= start) & (ids != ids[-1]), 1, mask), show)


def test_82_a_result_invented(tmp_path: Path) -> None:
    """After a call without a result the next message was the answer: the model learned to make up what a tool says.

    Hit: microsoft-foundry/fine-tuning#23
    Stopped by: rejected as `unanswered_tool_call`; a call of a tool that is not on offer as `unknown_tool`.
    """
    call = {**CALL, "id": "c1"}
    answered = [CALLED[0], said(ASSISTANT, "", tool_calls=[call]), said("tool", "4", tool_call_id="c1"), CALLED[3]]
    offered = {"type": "function", "function": {**TOOL["function"], "name": "sub"}}
    rows = [
        {"messages": messages, "tools": [tool]}
        for messages, tool in ((answered, TOOL), (answered[:2] + answered[3:], TOOL), (answered, offered))
    ]
    stand = chats(tmp_path, rows, template="qwen3")
    assert [each.reason for each in refusals(stand.published)] == ["unanswered_tool_call", "unknown_tool"]


def test_83_images_in_the_order_of_their_column(tmp_path: Path) -> None:
    """Parts named their images by index, out of order, and each took the next one of the column: the answer was about the other image.

    Hit: rows in the form of llava-instruct-mix (unsloth#2697)
    Stopped by: the image at `index` is taken, and each must be; numbers that descend in other lists reject the row.
    """
    parts = [{"type": "image", "index": 1}, {"type": "text", "text": "First the yarn:"}, {"type": "image", "index": 0}]
    names = [f"https://example.org/{name}.png" for name in ("cat", "yarn")]
    folder = tokenizer(tmp_path / "tokenizer", special=["<image>"])
    rows: list[dict[str, Any]] = [
        {"messages": [{"role": USER, "content": listed}, said(ASSISTANT, "Yarn, then cat.")], "images": names}
        for listed in (parts, [*parts[:2], {"type": "image", "index": 1}])
    ]
    stand = chats(tmp_path, rows, tokenizer=folder, template="chatml", image_token="<image>")
    lines = (stand.published.directory / "train.images" / "images.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["path"] for line in lines] == names[::-1]
    assert [each.reason for each in refusals(stand.published)] == ["image_count"]


def test_84_golds_in_another_spelling(tmp_path: Path) -> None:
    """Golds went through floats: 0.00005 became 5e-05 and 2.50 became 2.5, and reward functions compare texts, so right answers earned nothing.

    Hit: pytorch/rl#3542
    Stopped by: `gold_text` keeps the digits of the row; `source_match`.
    """
    golds = ["0.00005", "2.50", "2.5"]
    rows = [{"prompt": f"How much is {gold}?", "gold": gold} for gold in golds]
    stand = stand_of(tmp_path, "rl", "rl_prompt", rows, "rl_raw", "rl_prompts_by_domain", test_fraction=0.0, arithmetic={"n": 5})
    file = stand.published.directory / "rl_prompts_train.jsonl"
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert sorted(line.get("gold_text", str(line["gold"])) for line in lines) == sorted(golds)
    corruption.lines(stand.published, file.stem, lambda lines: [{key: line[key] for key in line if key != "gold_text"} for line in lines])
    assert not Stand(stand.workspace, resealed(stand.published)).verdict("source_match").passed


def test_92_calls_typed_as_text(tmp_path: Path) -> None:
    """Calls stood in the text of answers, tags and all: `<tool_call>` was trained as five pieces of text, where the model has one token, and results stood in
    two pairs of tags.

    Hit: rows in the form of hermes-function-calling
    Stopped by: `calls: auto` reads them as calls, and results without their tags; what is no object of a call is rejected as `bad_typed_call`.
    """
    tags = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
    folder = tokenizer(tmp_path / "tokenizer", special=["<|im_start|>", "<|im_end|>"], structural=tags)
    json_typed = '<tool_call>\n{"arguments": {"a": 2, "b": 2}, "name": "add"}\n</tool_call>\n'
    typed = ["<tool_call>\n{'name': add}\n</tool_call>", json_typed, json_typed.replace('"', "'")]
    called = [[CALLED[0], said(ASSISTANT, text), said("tool", "<tool_response>\n4\n</tool_response>"), CALLED[3]] for text in typed]
    rows: list[dict[str, Any]] = [{"messages": messages, "tools": [TOOL]} for messages in (CALLED, *called)]
    stand = chats(tmp_path, rows, tokenizer=folder, template="qwen3", preprocessing={"deduplicate": False})
    right, read, of_python = stand.rows()
    assert right.ids.tolist() == read.ids.tolist() == of_python.ids.tolist()
    assert right.mask.tolist() == read.mask.tolist() == of_python.mask.tolist()
    one = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id("<tool_call>")
    assert read.ids[read.mask.argmax()] == one
    assert [each.reason for each in refusals(stand.published)] == ["bad_typed_call"]
    assert stand.verdict("selection").numbers["rejections_repeated"] == 0


def test_93_an_answer_good_and_bad(tmp_path: Path) -> None:
    """One answer stood in two rows of a set of labelled answers (KTO), good in one and bad in the other: the loss pushed it both ways.

    Hit: prep-assets 0.2
    Stopped by: both rows are rejected as `contradicting_labels`; `pair_sanity`.
    """
    labelled = [{"prompt": f"{n} + {n}?", "completion": f"It is {2 * n}.", "label": n != 3} for n in range(8)]
    again = {"messages": [said(USER, "2 + 2?"), said(ASSISTANT, "It is 4.")]}
    rows = [*labelled, {**again, "label": True}, {"prompt": "3 + 3?", "completion": "It is 6.", "label": True}]
    stand = stand_of(tmp_path, "preference", "kto", rows, "preference_raw", "preferences_by_domain")
    assert stand.published.manifest.counts["refused"] == {"pair/contradicting_labels": 2} and stand.verdict("pair_sanity").passed
    good = [line["completion"] for line in open_stream(stand.published.directory, "unpaired") if line["label"]]
    assert "It is 6." not in good and good.count("It is 4.") == 2
    first = good.index("It is 4.")
    corruption.lines(stand.published, "unpaired", lambda lines: [{**line, "label": at != first} for at, line in enumerate(lines)])
    assert not Stand(stand.workspace, resealed(stand.published)).verdict("pair_sanity").passed
