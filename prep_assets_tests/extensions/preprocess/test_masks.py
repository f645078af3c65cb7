"""AstrAI's documented ids and masks: golden vectors, and an independent implementation on arbitrary records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prep_assets.errors import ConfigError, Refused, TemplateError
from prep_assets.extensions.preprocess.astrai import Task, parse_pipeline, task_of
from prep_assets.extensions.preprocess.astrai_columns import AstraiBuilder, MessageTemplate, Row
from prep_assets.extensions.preprocess.astrai_run import Outcome, bin_plan, load_tokenizer, preprocess, shard_blocks
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.effort import examples
from prep_assets_tests.extensions.preprocess.conftest import VOCABULARY, Run, chat, ids, message, write_rows, write_tokenizer
from prep_assets_tests.extensions.preprocess.pipelines import CHAT, DPO, GRPO, INSTRUCTION, SECTIONS_CHAT, SECTIONS_TEXT, TEXT, changed
from prep_assets_tests.extensions.preprocess.reference import Documented, read_bin

SHORT_TEXT = changed(TEXT, preprocessing={"min_chars": 0})


def flat(parts: list[Any]) -> list[Any]:
    return [value for part in parts for value in part.tolist()]


def build(directory: Path, pipeline: dict[str, Any], *rows: Any) -> list[Row | Refused]:
    return AstraiBuilder(task_of(parse_pipeline(pipeline, "p")), load_tokenizer(directory)).build(rows)


def one(directory: Path, pipeline: dict[str, Any], row: Any) -> dict[str, list[Any]]:
    (found,) = build(directory, pipeline, row)
    assert isinstance(found, Row), found
    return {key: flat(parts) for key, parts in found.cells.items()}


def refusal(directory: Path, pipeline: dict[str, Any], row: Any) -> str:
    (found,) = build(directory, pipeline, row)
    assert isinstance(found, Refused), found
    return f"{found.stage}/{found.reason}"


EXCHANGE = chat(("system", "a b"), ("user", "c"), ("assistant", "d"), ("user", "e"), ("assistant", "f g"))
WHOLE = "<s> <|im_start|> system a b <|im_end|> <|im_start|> user c <|im_end|> <|im_start|> assistant d <|im_end|> "
WHOLE += "<|im_start|> user e <|im_end|> <|im_start|> assistant f g <|im_end|>"
GROUP = {"prompt": [message("user", "a")], "responses": ["b c", "d", "e f g"], "rewards": [1.0, -0.3, 0.8]}
PAIR = {side: [message("user", "a"), message("assistant", answer)] for side, answer in (("chosen", "b"), ("rejected", "c d"))}


def sections(*specs: tuple[Any, ...], **steps: Any) -> dict[str, Any]:
    """Sections of fields and actions; the third of a section says whether it has a template, or special tokens."""
    keys = ("field", "action", "template", "add_special_tokens")
    return {"input": {"sections": [dict(zip(keys, spec, strict=False)) for spec in specs]}, "preprocessing": {"min_chars": 0, **steps}}


XY = sections(("x", "mask"), ("y", "train"))
LONG = sections(("x", "train"), ("y", "train"), min_chars=6)


AS_ASKED = sections(("x", "mask", False, False), ("y", "train", False, True))
BESIDE_TEXT = sections(("x", "mask"), ("messages", "train", True))


@pytest.mark.parametrize(
    ("post", "pipeline", "row", "sequence", "mask"),
    [
        pytest.param(False, CHAT, EXCHANGE, WHOLE, "00000000001111000011111", id="chat"),
        pytest.param(True, INSTRUCTION, {"instruction": "a b", "output": "c d e"}, "<s> a b </s> c d e", "0000111", id="instruction"),
        pytest.param(True, INSTRUCTION, {"instruction": " ", "output": "b"}, "<s> </s> b", "001", id="blank prompt"),
        pytest.param(True, INSTRUCTION, {"instruction": "a"}, "<s> a </s>", "000", id="no response"),
        pytest.param(False, INSTRUCTION, {"instruction": "a", "output": None}, "a", "0", id="null is no text"),
        pytest.param(False, INSTRUCTION, {"instruction": "a", "output": 7}, "a 7", "01", id="numbers are text"),
        pytest.param(True, SHORT_TEXT, {"content": "a b"}, "<s> a b </s>", None, id="text"),
        pytest.param(True, XY, {"x": "a", "y": "b"}, "<s> a </s> b", "0001", id="special tokens at the first section"),
        pytest.param(True, XY, {"x": " ", "y": "b"}, "<s> b </s>", "111", id="special tokens at the first section with text"),
        pytest.param(True, AS_ASKED, {"x": "a", "y": "b"}, "a <s> b </s>", "0111", id="special tokens as asked for"),
        pytest.param(False, BESIDE_TEXT, {"x": "a", **chat(("user", "b"))}, "<s> a <|im_start|> user b <|im_end|>", "001111", id="one bos"),
        pytest.param(False, LONG, {"x": "a", "y": "b c d"}, "a b c d", None, id="length of the record"),
        pytest.param(False, XY, {"x": "", "y": "a"}, "a", "1", id="a mask where all is trained"),
    ],
)
def test_ids_and_masks(post: bool, pipeline: Any, row: Any, sequence: str, mask: str | None, tokenizer: Path, post_tokenizer: Path) -> None:
    """Whole messages are trained, with their headers; the token at the beginning never is."""
    expected = {"sequence": ids(sequence), **({} if mask is None else {"loss_mask": [int(digit) for digit in mask]})}
    assert one(post_tokenizer if post else tokenizer, pipeline, row) == expected


@pytest.mark.parametrize(
    ("change", "longest", "prompt", "responses", "cut"),
    [
        ({}, 9, "<s> <|im_start|> user a <|im_end|>", ["b c", "d", "e f g"], 0),
        ({}, 2, "<s> <|im_start|>", ["b c", "d", "e f"], 3 + 1),
        ({"responses": ["b"], "rewards": 0.5}, 9, "<s> <|im_start|> user a <|im_end|>", ["b"], 0),
    ],
)
def test_responses_of_a_group_stay_apart_without_special_tokens(
    change: dict[str, Any], longest: int, prompt: str, responses: list[str], cut: int, post_tokenizer: Path
) -> None:
    (row,) = build(post_tokenizer, changed(GRPO, preprocessing={"max_seq_len": longest}), {**GROUP, **change})
    assert isinstance(row, Row) and row.cut == cut
    assert (flat(row.cells["prompts"]), flat(row.cells["prompts_mask"])) == (ids(prompt), [0] * len(ids(prompt)))
    assert [part.tolist() for part in row.cells["responses"]] == [ids(text) for text in responses]
    assert [part.tolist() for part in row.cells["masks"]] == [[1] * len(ids(text)) for text in responses]
    assert row.cells["rewards"][0].tolist() == np.array(change.get("rewards", GROUP["rewards"]), np.float32).reshape(-1).tolist()


@pytest.mark.parametrize(
    ("pipeline", "row", "reason"),
    [
        (CHAT, {"messages": []}, "schema/empty"),
        (CHAT, {}, "schema/empty"),
        (CHAT, {"messages": "a"}, "schema/wrong_type"),
        (CHAT, {"messages": ["a"]}, "schema/wrong_type"),
        (CHAT, {"messages": [{"content": "a"}]}, "schema/missing_field"),
        (CHAT, {"messages": [message("user", None)]}, "schema/wrong_type"),
        (CHAT, {"messages": [message("user", [{"type": "text", "text": "a"}])]}, "schema/wrong_type"),
        (INSTRUCTION, {"instruction": " ", "output": ""}, "schema/empty"),
        (INSTRUCTION, {"instruction": "a", "output": ["b"]}, "schema/wrong_type"),
        *((SHORT_TEXT, {"content": value}, "schema/") for value in ("", "   ", 5, None, ["a"])),
        (LONG, {"x": "a", "y": "b c"}, "schema/too_short"),
        (DPO, {"rejected": PAIR["rejected"]}, "schema/empty"),
        (DPO, {"chosen": PAIR["chosen"]}, "schema/empty"),
        # a group never shrinks beside its rewards
        (GRPO, {**GROUP, "rewards": [1.0]}, "schema/length_mismatch"),
        (GRPO, {**GROUP, "responses": [], "rewards": []}, "schema/length_mismatch"),
        (GRPO, {**GROUP, "responses": ["b", " ", "c"]}, "schema/empty_answer"),
        (GRPO, {**GROUP, "rewards": [1.0, None, 0.0]}, "schema/wrong_type"),
        (GRPO, {**GROUP, "rewards": None}, "schema/missing_field"),
        (GRPO, {**GROUP, "responses": "b"}, "schema/wrong_type"),
    ],
)
def test_what_is_rejected(pipeline: dict[str, Any], row: Any, reason: str, tokenizer: Path) -> None:
    assert refusal(tokenizer, pipeline, row).startswith(reason)


def test_tokenizers_without_bos_or_template(tmp_path: Path) -> None:
    plain = write_tokenizer(tmp_path / "plain", declared={})
    assert one(plain, CHAT, chat(("user", "a")))["sequence"] == ids("<|im_start|> user a <|im_end|>")
    bare = write_tokenizer(tmp_path / "bare", declared={}, template="{{ messages[0]['content'] }}")
    assert refusal(bare, CHAT, chat(("user", "a"))) == "tokenize/empty"
    strict = write_tokenizer(tmp_path / "strict", template="{{ raise_exception('no') }}")
    assert refusal(strict, CHAT, EXCHANGE) == "render/template_refuses"
    none = write_tokenizer(tmp_path / "none", template=None)
    with pytest.raises(TemplateError, match="chat_template"):
        build(none, CHAT, EXCHANGE)
    assert one(none, SHORT_TEXT, {"content": "a"})["sequence"] == ids("a")


# -- against the documentation's algorithm ----------------------------------------------------------------------------------------------

words = st.lists(st.sampled_from([*VOCABULARY, "é", "\n", "  ", "中"]), max_size=8).map(" ".join)
messages = st.lists(st.builds(message, st.sampled_from(["system", "user", "assistant", "tool"]), words), min_size=1, max_size=5)
masks = st.dictionaries(st.sampled_from(["system", "user", "assistant"]), st.sampled_from(["train", "mask"]))
actions = st.sampled_from(["train", "mask"])


@settings(max_examples=examples(60), deadline=None)
@given(rows=st.lists(messages, min_size=1, max_size=4), mask=masks, default=actions, longest=st.integers(1, 40), post=st.booleans())
def test_chats_equal_the_documented_algorithm(
    rows: list[Any], mask: dict[str, str], default: str, longest: int, post: bool, tokenizer: Path, post_tokenizer: Path
) -> None:
    directory = post_tokenizer if post else tokenizer
    pipeline = {**changed(CHAT, preprocessing={"max_seq_len": longest}), "mask": mask, "mask_default": default}
    documented = Documented(directory)
    for row, found in zip(rows, build(directory, pipeline, *[{"messages": row} for row in rows]), strict=True):
        expected = documented.chat({"messages": row}, mask, default, longest)
        assert expected is not None
        assert isinstance(found, Row)
        assert (flat(found.cells["sequence"]), flat(found.cells["loss_mask"])) == expected
        whole = documented.chat({"messages": row}, mask, default, 10**6)
        assert whole is not None and found.cut == len(whole[0]) - len(expected[0])


@settings(max_examples=examples(60), deadline=None)
@given(prompt=words, response=words, prompt_action=actions, default=actions, longest=st.integers(1, 20), post=st.booleans())
def test_instructions_equal_the_documented_algorithm(
    prompt: str, response: str, prompt_action: str, default: str, longest: int, post: bool, tokenizer: Path, post_tokenizer: Path
) -> None:
    directory = post_tokenizer if post else tokenizer
    mask = {"prompt": prompt_action}
    pipeline = {**changed(INSTRUCTION, preprocessing={"max_seq_len": longest}), "mask": mask, "mask_default": default}
    (found,) = build(directory, pipeline, {"instruction": prompt, "output": response})
    if not prompt.strip() and not response.strip():
        assert isinstance(found, Refused)
        return
    expected = Documented(directory).instruction(prompt, response, mask, default, longest)
    assert isinstance(found, Row)
    assert (flat(found.cells["sequence"]), flat(found.cells["loss_mask"])) == expected


@settings(max_examples=examples(60), deadline=None)
@given(text=words, shortest=st.integers(0, 6), most=st.integers(6, 12), longest=st.integers(1, 10), post=st.booleans(), typed=st.booleans())
@example(text="é" * 6, shortest=6, most=6, longest=9, post=False, typed=True)
@example(text="é" * 7, shortest=6, most=6, longest=9, post=False, typed=True)
@example(text="é" * 5, shortest=6, most=6, longest=9, post=False, typed=False)
def test_texts_equal_the_documented_algorithm(
    text: str, shortest: int, most: int, longest: int, post: bool, typed: bool, tokenizer: Path, post_tokenizer: Path
) -> None:
    directory = post_tokenizer if post else tokenizer
    steps = {"min_chars": shortest, "max_chars": most, "max_seq_len": longest}
    pipeline = changed(TEXT, preprocessing=steps) if typed else changed(SECTIONS_TEXT, preprocessing=steps)
    (found,) = build(directory, pipeline, {"content": text, "text": text})
    expected = Documented(directory).text(text, shortest, most, longest)
    assert (flat(found.cells["sequence"]) if isinstance(found, Row) else None) == expected


# -- ``--masking spans``: the house's own render and masks in AstrAI's layout ------------------------------------------------------------


TOKENIZER = Path(__file__).resolve().parents[3] / "configs" / "tokenizer"
TALK = chat(("system", "Be brief."), ("user", "What is 2+2?"), ("assistant", "4"), ("user", "And 3+3?"), ("assistant", "6"))


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return load_tokenizer(TOKENIZER)


def spans(folder: Path, rows: list[Any], pipeline: dict[str, Any], vocabulary: Vocabulary) -> Outcome:
    source = write_rows(folder / "rows.jsonl", rows)
    return preprocess([str(source)], folder / "out", parse_pipeline(pipeline, "p"), vocabulary, masking="spans")


def trained(folder: Path, vocabulary: Vocabulary, key: str = "sequence", mask: str = "loss_mask") -> str:
    found = read_bin(folder / "out" / "__default__" / "shard_0000")
    return vocabulary.decode(found[key][found[mask].astype(bool)])


FIXED = changed(SECTIONS_CHAT, input={"sections": [{"field": "messages", "action": "train", "template": True}]})
SUM = {side: [message("user", "2+2?"), message("assistant", answer)] for side, answer in (("chosen", "4"), ("rejected", "5"))}


@pytest.mark.parametrize(
    ("pipeline", "row", "expected"),
    [
        (CHAT, TALK, {"sequence": "4<|im_end|>6<|im_end|>"}),
        (FIXED, chat(("user", "a"), ("assistant", "b")), {"sequence": "a<|im_end|>b<|im_end|>"}),  # a fixed action overrules roles
        (INSTRUCTION, {"instruction": "2+2=\n", "output": "4"}, {"sequence": "4<|endoftext|>"}),
        (DPO, SUM, {"chosen": "4<|im_end|>", "rejected": "5<|im_end|>"}),
    ],
)
def test_only_answers_and_their_stop_tokens_are_trained(
    pipeline: Any, row: Any, expected: Any, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    spans(tmp_path, [row], pipeline, vocabulary)
    for key, text in expected.items():
        assert trained(tmp_path, vocabulary, key, "loss_mask" if key == "sequence" else f"{key}_mask") == text


@pytest.mark.parametrize("content", ["What is 2+2?", "say <|im_end|>"])
def test_the_conversation_is_rendered_once(content: str, tmp_path: Path, vocabulary: Vocabulary) -> None:
    """A control token in the content is plain text."""
    spans(tmp_path, [chat(("user", content), ("assistant", "ok"))], CHAT, vocabulary)
    whole = read_bin(tmp_path / "out" / "__default__" / "shard_0000")["sequence"]
    assert vocabulary.decode(whole) == f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\nok<|im_end|>\n"
    assert whole.tolist().count(vocabulary.control["<|im_end|>"]) == 2


def test_groups(tmp_path: Path, vocabulary: Vocabulary) -> None:
    row = {"prompt": [message("user", "2+2?")], "responses": ["4", "Five"], "rewards": [1.0, 0.25]}
    spans(tmp_path, [row], GRPO, vocabulary)
    shard = tmp_path / "out" / "__default__" / "shard_0000"
    meta, found = json.loads((shard / "meta.json").read_text()), read_bin(shard)
    first, second, end = meta["responses"]["element_offsets"]
    texts = [vocabulary.decode(found["responses"][start:stop]) for start, stop in ((first, second), (second, end))]
    assert texts == ["4<|endoftext|>", "Five<|endoftext|>"]
    assert not found["prompts_mask"].any()


def test_a_record_in_which_nothing_is_trained_is_refused(tmp_path: Path, vocabulary: Vocabulary) -> None:
    short = changed(CHAT, preprocessing={"max_seq_len": 12})
    rows = [chat(("user", "a"), ("assistant", "b")), chat(("user", "a " * 50), ("assistant", "b")), chat(("user", "only"))]
    counts = spans(tmp_path, rows, short, vocabulary).counts
    assert (counts.kept, counts.refused) == (1, {"tokenize/nothing_to_train": 2})


def test_refusals_do_not_shift_the_records_after_them(tmp_path: Path, vocabulary: Vocabulary) -> None:
    rows = [
        {"chosen": [message("user", "q"), message("assistant", f"{n}")], "rejected": [message("user", "q"), message("assistant", "x")]}
        for n in range(4)
    ]
    rows[1]["chosen"][1]["content"] = ""
    rows[2]["rejected"][1]["weight"] = 0.5  # type: ignore[assignment]
    rows.insert(3, {side: [dict(each) for each in turns] for side, turns in rows[0].items()})
    rows[3]["chosen"][1]["weight"] = 0.5  # type: ignore[assignment]
    counts = spans(tmp_path, rows, DPO, vocabulary).counts
    assert counts.refused == {"schema/empty_answer": 1, "tokenize/fractional_weight": 2}
    assert trained(tmp_path, vocabulary, "chosen", "chosen_mask") == "0<|im_end|>3<|im_end|>"


def test_a_record_is_rendered_or_it_is_not(tmp_path: Path, vocabulary: Vocabulary) -> None:
    mixed = {"input": {"sections": [{"field": "x", "action": "mask"}, {"field": "messages", "action": "$role", "template": True}]}}
    with pytest.raises(ConfigError, match="--masking astrai"):
        spans(tmp_path, [TALK], mixed, vocabulary)


def test_a_field_that_nothing_reads_stops_the_run(tmp_path: Path, vocabulary: Vocabulary) -> None:
    with pytest.raises(ConfigError, match=r"'task' in 1 row, e.g. 'Translate.'\n.*\n  --ignore task$"):
        spans(tmp_path, [{**TALK, "task": "Translate."}], CHAT, vocabulary)


def test_tools_that_are_not_shown_refuse_their_record(tmp_path: Path, vocabulary: Vocabulary) -> None:
    assert spans(tmp_path, [TALK, {**TALK, "tools": [{"name": "f"}]}], CHAT, vocabulary).counts.refused == {"schema/unsupported_column": 1}


# -- template ----------------------------------------------------------------------------------------------------------------------------


MESSAGE = message("user", "a\n")


def template(folder: Path, source: str) -> MessageTemplate:
    return MessageTemplate(load_tokenizer(write_tokenizer(folder, template=source)))


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}\n  {% if true %}\n{{ m['content'] }}\n  {% endif %}\n{% endfor %}\n",
        "{{ bos_token }}{{ messages[0]['role'] }}{{ eos_token }}",
        "{% if add_generation_prompt %}x{% endif %}{{ messages | tojson }}",
        "{{ messages | length }}{{ messages[0]['missing'] }}",
    ],
)
def test_rendering_is_that_of_a_bare_template(source: str, tmp_path: Path) -> None:
    expected = jinja2.Template(source).render(messages=[MESSAGE], add_generation_prompt=False)
    assert template(tmp_path, source).render(MESSAGE) == expected


def test_the_generation_marks_of_transformers_print_nothing(tmp_path: Path) -> None:
    assert template(tmp_path, "a{% generation %}{{ messages[0]['role'] }}{% endgeneration %}b").render(MESSAGE) == "auserb"


@pytest.mark.parametrize(
    "source", ["{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.append(1) }}", "{{ raise_exception('x') }}", "{{ 1 / 0 }}"]
)
def test_a_template_cannot_reach_out_of_the_sandbox(source: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="template_refuses"):
        template(tmp_path, source).render(MESSAGE)


def test_a_template_that_is_no_jinja_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="line 2"):
        template(tmp_path, "\n{% for %}")


# -- tokenizer ---------------------------------------------------------------------------------------------------------------------------


def configured(folder: Path, config: Any) -> Path:
    write_tokenizer(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return folder


@pytest.mark.parametrize("token", ["<s>", {"content": "<s>", "lstrip": False}])
def test_the_form_of_transformers(token: Any, tmp_path: Path) -> None:
    found = load_tokenizer(configured(tmp_path, {"bos_token": token, "eos_token": None, "chat_template": "x"}))
    assert (found.special, found.chat_template) == ({"bos_token": "<s>"}, "x")


def test_templates_by_name_and_in_a_file_of_their_own(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert load_tokenizer(configured(tmp_path / "named", {"chat_template": named})).chat_template == "d"
    folder = configured(tmp_path / "beside", {})
    (folder / "chat_template.jinja").write_text("f", "utf-8")
    assert load_tokenizer(folder).chat_template == "f"


def test_a_declared_token_that_is_not_in_the_vocabulary_is_none(tmp_path: Path) -> None:
    assert load_tokenizer(write_tokenizer(tmp_path, declared={"bos_token": "<absent>"})).special == {}


def test_lengths_are_not_the_tokenizer_files_business(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path)
    spec = json.loads((folder / "tokenizer.json").read_text())
    spec["truncation"] = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    spec["padding"] = {
        "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 5, "pad_type_id": 0, "pad_token": "<pad>"
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(spec), "utf-8")
    assert len(load_tokenizer(folder).backend.encode("a b c d").ids) == 4


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--tokenizer"):
        load_tokenizer(tmp_path / "absent")
    with pytest.raises(ConfigError, match="save_pretrained"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(("name", "content"), [("tokenizer.json", "{}"), ("tokenizer_config.json", "{"), ("tokenizer_config.json", "[]")])
def test_a_broken_file_is_named(name: str, content: str, tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(ConfigError, match=name):
        load_tokenizer(tmp_path)


# -- ``simple`` cuts, ``bfd`` and ``bfd_split`` fill bins of exactly ``max_packed_len`` --------------------------------------------------


PAD = VOCABULARY["<pad>"]


def packed(strategy: str, row_len: int, *, keep_end: bool = False, pipeline: dict[str, Any] = SECTIONS_TEXT) -> dict[str, Any]:
    mode = "keep_end" if keep_end else "keep_start"
    steps = {"min_chars": 0, "packing_strategy": strategy, "max_packed_len": row_len, "truncation_mode": mode}
    return changed(pipeline, preprocessing=steps)


def task(*arguments: Any, **options: Any) -> Task:
    return task_of(parse_pipeline(packed(*arguments, **options), "p"))


def bins(strategy: str, lengths: list[int], row_len: int = 10) -> list[list[int]]:
    plan = bin_plan(task(strategy, row_len), np.array(lengths))
    return [plan.record[plan.row == row].tolist() for row in range(plan.rows)]


def best_fit(lengths: list[int], row_len: int) -> list[list[int]]:
    """Best fit, longest first, by looking at every bin for every record."""
    found: list[list[int]] = []
    space: list[int] = []
    for record in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        size = min(lengths[record], row_len)
        fitting = [(space[i], i) for i in range(len(found)) if space[i] >= size]
        place = min(fitting)[1] if fitting else len(found)
        if not fitting:
            found.append([])
            space.append(row_len)
        found[place].append(record)
        space[place] -= size
    return found


@settings(max_examples=examples(80), deadline=None)
@given(lengths=st.lists(st.integers(1, 14), min_size=1, max_size=20), row_len=st.integers(2, 12))
def test_bfd_is_best_fit_decreasing(lengths: list[int], row_len: int) -> None:
    assert bins("bfd", lengths, row_len) == best_fit(lengths, row_len)


@settings(max_examples=examples(80), deadline=None)
@given(
    lengths=st.lists(st.integers(1, 14), min_size=1, max_size=12),
    row_len=st.integers(2, 12),
    strategy=st.sampled_from(["bfd", "bfd_split"]),
    keep_end=st.booleans(),
)
def test_every_key_of_every_bin(lengths: list[int], row_len: int, strategy: str, keep_end: bool) -> None:
    asked = task(strategy, row_len, keep_end=keep_end)
    # token values say which token of which record they are, so that a bin can be read back
    sequence = np.concatenate([100 * (record + 1) + np.arange(length) for record, length in enumerate(lengths)])
    raw = {"sequence": sequence, "loss_mask": np.ones(len(sequence), np.int32)}
    plan = bin_plan(asked, np.array(lengths))
    columns = {
        key: np.concatenate(list(shard_blocks(asked, key, raw, np.array(lengths), plan, PAD))).reshape(plan.rows, row_len)
        for key in asked.columns
    }
    used = columns["sequence"] != PAD
    assert (columns["loss_mask"] == used).all()
    assert (columns["position_ids"][~used] == 0).all()
    seen: list[int] = []
    for tokens, positions in zip(columns["sequence"], columns["position_ids"], strict=True):
        count = int((tokens != PAD).sum())
        assert (tokens[count:] == PAD).all()
        for place in range(count):
            begins = place == 0 or tokens[place] != tokens[place - 1] + 1
            # a document begins at 0 wherever it stands, so that a reader never joins two
            assert positions[place] == (0 if begins else positions[place - 1] + 1)
        seen += tokens[:count].tolist()
    kept = lengths if strategy == "bfd_split" else [min(length, row_len) for length in lengths]
    first = [length - keep if keep_end else 0 for length, keep in zip(lengths, kept, strict=True)]
    expected = [100 * (r + 1) + i for r, keep in enumerate(kept) for i in range(first[r], first[r] + keep)]
    assert sorted(seen) == expected
    assert plan.dropped[:, 2].sum() == sum(lengths) - sum(kept)


ROWS = [{"text": text} for text in ("a b c", "d e", "f g h i j", "k")]


def test_bins_on_disk(run: Run, tmp_path: Path) -> None:
    outcome = run(ROWS, packed("bfd", 4))
    found = read_bin(tmp_path / "out" / "__default__" / "shard_0000")
    assert found["sequence"].reshape(-1, 4).tolist() == [ids("f g h i"), ids("a b c k"), ids("d e <pad> <pad>")]
    assert found["loss_mask"].reshape(-1, 4).tolist() == [[1] * 4, [1] * 4, [1, 1, 0, 0]]
    assert found["position_ids"].reshape(-1, 4).tolist() == [[0, 1, 2, 3], [0, 1, 2, 0], [0, 1, 0, 0]]
    assert (outcome.totals.cut_by_packing, outcome.totals.cut_records, outcome.totals.padding) == (1, 1, 2)


@pytest.mark.parametrize(("keep_end", "kept"), [(False, "f g h"), (True, "h i j")])
def test_simple_packing_cuts_one_end_and_counts_it(keep_end: bool, kept: str, run: Run, tmp_path: Path) -> None:
    outcome = run(ROWS, packed("simple", 3, keep_end=keep_end))
    found = read_bin(tmp_path / "out" / "__default__" / "shard_0000")
    assert found["sequence"].tolist() == ids(f"a b c d e {kept} k")
    assert found["position_ids"].tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 0]
    assert (outcome.totals.cut_by_packing, outcome.totals.cut_records) == (2, 1)


def test_each_response_of_a_group_is_cut_by_itself(run: Run, tmp_path: Path) -> None:
    row = {"prompt": [{"role": "user", "content": "a"}], "responses": ["b c d", "e", "f g h i"], "rewards": [1, 2, 3]}
    outcome = run([row], changed(GRPO, preprocessing={"max_packed_len": 2, "truncation_mode": "keep_end"}))
    shard = tmp_path / "out" / "__default__" / "shard_0000"
    assert read_bin(shard)["responses"].tolist() == ids("c d e h i")
    assert json.loads((shard / "meta.json").read_text())["masks"]["element_offsets"] == [0, 2, 3, 5]
    assert outcome.totals.cut_by_packing == 3 + 3
