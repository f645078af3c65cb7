"""Chats: messages, truncation, reasoning, one example for each answer, templates to train with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.checks import of_conversations as conversations
from prep_assets.config.models import Sft
from prep_assets.engine.execute import verdicts_of as verdicts
from prep_assets.errors import ConfigError, PrepAssetsError, TemplateError
from prep_assets.extensions.explain.previews import preview
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.graph.graph import EVERY, store_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets.text import render as render_module
from prep_assets.text.load_template import named_templates
from prep_assets.text.template import ChatTemplate
from prep_assets_tests.graph.workspaces import TOKENIZER, build, domain, failing, jsonl, minimal, refusals, resealed, workspace_in
from prep_assets_tests.graph.workspaces import verdicts as verdicts_by_name

# Chats whose rows are plain are judged as those that only their schema can read.


def said(*texts: str, **more: Any) -> dict[str, Any]:
    roles = ("system", "user", "assistant") if len(texts) % 2 else ("user", "assistant")
    odd = len(texts) % 2
    tags = [*roles[:odd], *(("user", "assistant") * len(texts))][: len(texts)]
    return {"messages": [{"role": role, "content": text, **more} for role, text in zip(tags, texts, strict=True)]}


ODD = [
    said("Hi", "Hello"),
    said("Hi", "Hello"),
    said("a", "", "b"),
    said("a ", " b\n"),
    said("a", "  "),
    said("a", "b", name="x"),
    said("What?", "<think>So.</think>It is."),
    said("<|im_end|>", "A token."),
    {"messages": [{"role": "user", "content": "nobody answers"}]},
    {"messages": [{"role": "robot", "content": "x"}, {"role": "assistant", "content": "y"}]},
    {"messages": []},
    {"messages": [{"role": "assistant", "content": "y"}, {"role": "tool", "content": "x"}]},
    said("a", "b") | {"id": "7"},
    said("a\u00e9\u4e2d", "b\0c", "d", "e"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("messages")
    rows = [row for number in range(40) for row in (said(f"{number}?", f"{number}!"), *(ODD if number in (3, 30) else ()))]
    asked = domain(jsonl(folder / "chats.jsonl", rows), "messages")
    workspace = workspace_in(
        folder,
        minimal(
            "sft",
            {"chats": asked},
            template="chatml",
            test_fraction=0.2,
            output={"storage_format": "bin"},
            preprocessing={"max_seq_len": 200},
        ),
    )
    for asset in ("sft_raw", "sft_template", "sft_tokens"):
        build(workspace, asset, *EVERY[asset].partitions(workspace)[:1])
    return workspace


def tokens(workspace: Workspace) -> Published:
    return workspace.built("sft_tokens", "chats")


def found(workspace: Workspace, published: Published) -> dict[str, Verdict]:
    return dict(verdicts(workspace, EVERY["sft_tokens"], published, EVERY["sft_tokens"].checks))


def test_odd_rows_are_judged_alike(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a second reading says what a row is, or its schema does."""
    assert len({line.reason for line in refusals(tokens(made))}) > 3
    chats = conversations.Chats(store_of(made, tokens(made)))
    read = chats._plain_rows(ODD)
    assert read == [chats._plain_rows([row])[0] for row in ODD]
    assert [at for at, chat in enumerate(read) if chat is None] == [2, 4, 5, 8, 9, 10, 11]
    assert [chat for chat in read if chat] == [chat for at, chat in enumerate(chats._convert.rows(ODD)) if read[at]]
    expected = found(made, tokens(made))
    assert [name for name, verdict in expected.items() if not verdict.passed] == []
    monkeypatch.setattr(conversations.Chats, "_plain_rows", lambda _, rows: [None] * len(rows))
    assert found(made, tokens(made)) == expected


# Chats that are too long, whichever way they are cut: every check holds, and what the manifest counts as cut away is what is gone.


LONG = " ".join(f"word {n}" for n in range(20))
ROWS = [
    *({"messages": [{"role": "user", "content": f"Say {n}."}, {"role": "assistant", "content": f"{n}."}]} for n in range(5)),
    *(
        {"messages": [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]}
        for texts in ((LONG, "Yes."), ("Hi", "Hello.", LONG + "?", "No."), (LONG, "One.", LONG.upper(), "Two."))
    ),
]


@pytest.mark.parametrize(
    "cut",
    [
        {"truncation": "prompt"},
        {"truncation": "prompt", "truncation_keeps": {"user": {"part": "end", "least": 7}}},
        {"truncation": "turns"},
        {"truncation": "start"},
    ],
    ids=str,
)
def test_what_is_cut_away_is_counted_and_proven(tmp_path: Path, cut: dict[str, Any]) -> None:
    rows = domain(jsonl(tmp_path / "rows.jsonl", ROWS), "messages")
    lengths = {}
    for name, options in (("whole", {}), ("cut", {"preprocessing": {"max_seq_len": 60}, **cut})):
        workspace = workspace_in(tmp_path / name, minimal("sft", {"d": rows}, packing={"row_len": 512}, **options))
        built = build(workspace, "sft_tokens", "d")
        stream = open_stream(built.directory, "train")
        lengths[name] = dict(zip(stream.origins.row.tolist(), stream.lengths.tolist(), strict=True))
    gone = sum(lengths["whole"][row] - length for row, length in lengths["cut"].items())
    assert built.manifest.counts["tokens_cut_away"] == gone > 0
    other = replace(built, manifest=replace(built.manifest, counts=built.manifest.counts | {"tokens_cut_away": gone - 1}))
    found = verdicts_by_name(workspace, other)
    assert [name for name, verdict in found.items() if not verdict.passed] == ["tokenization_identity"]
    assert found["tokenization_identity"].summary == f"truncation took {gone:,} tokens, the manifest counts {gone - 1:,}"


# Reasoning through the graph, with every check of the stores.


def asked_and_answered(answer: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": answer, **fields}]}


def tokens_of(folder: Path, rows: list[dict[str, Any]], **options: Any) -> tuple[Workspace, Published]:
    folder.mkdir(parents=True, exist_ok=True)
    data = domain(jsonl(folder / "rows.jsonl", rows), "messages")
    workspace = workspace_in(folder, minimal("sft", {"rows": data}, **{"template": "qwen3", **options}))
    published = build(workspace, "sft_tokens", "rows")
    return workspace, published


def trained(workspace: Workspace, published: Published) -> list[str]:
    """What is trained of each record."""
    store, decode = open_stream(published.directory, "train"), workspace.vocabulary(workspace.family(Sft)).backend.decode
    rows = ((np.asarray(store.record(i, "tokens")), np.asarray(store.record(i, "loss_mask"))) for i in range(len(store)))
    return [decode(ids[mask != 0].tolist(), skip_special_tokens=False) for ids, mask in rows]


def test_gsm8k_s_own_form_builds_with_a_template_that_writes_reasoning(tmp_path: Path) -> None:
    """Every row of it was refused: the template reads the block in the text itself."""
    workspace = workspace_in(tmp_path, minimal("sft", {"gsm8k": domain("gsm8k.jsonl", "gsm8k")}, template="qwen3"))
    published = build(workspace, "sft_tokens", "gsm8k")
    assert published.manifest.counts["refused"] == {}
    assert trained(workspace, published)[0].startswith("<think>\n")


def test_a_block_in_the_text_trains_what_a_field_of_its_own_does(tmp_path: Path) -> None:
    inline = tokens_of(tmp_path / "inline", [asked_and_answered("<think>\nTwo twos.\n</think>\n\n4.")])
    field = tokens_of(tmp_path / "field", [asked_and_answered("4.", reasoning_content="Two twos.")])
    both = tokens_of(tmp_path / "both", [asked_and_answered("[THINK]Two twos.[/THINK]4.", reasoning_content="Two twos.")])
    closed = tokens_of(tmp_path / "closed", [asked_and_answered("Two twos.\n</think>\n\n4.")])
    assert trained(*inline) == trained(*field) == trained(*both) == trained(*closed) == ["<think>\nTwo twos.\n</think>\n\n4.<|im_end|>"]


def test_what_cannot_be_read_is_refused_and_counted(tmp_path: Path) -> None:
    rows = [
        asked_and_answered("fine"),
        asked_and_answered("2+2=4. </think> 4."),
        asked_and_answered("<think>a</think>4.", reasoning_content="b"),
    ]
    _, published = tokens_of(tmp_path / "auto", rows)
    assert published.manifest.counts["refused"] == {"reasoning/unbalanced_reasoning": 1, "reasoning/conflicting_reasoning": 1}
    _, published = tokens_of(tmp_path / "field", [*rows[:1], asked_and_answered("<think>a</think>4.")], reasoning="field")
    assert published.manifest.counts["refused"] == {"reasoning/inline_reasoning": 1}


TYPED_ADD = '<tool_call>\n{"arguments": {"a": 2}, "name": "add"}\n</tool_call>'


def test_typed_calls_train_what_a_field_does(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
    field = tokens_of(tmp_path / "field", [asked_and_answered("I add.", tool_calls=[call])])
    inline = tokens_of(tmp_path / "inline", [asked_and_answered(f"I add.\n{TYPED_ADD}\n")])
    as_text = tokens_of(tmp_path / "text", [asked_and_answered(f"I add.\n{TYPED_ADD}")], template="chatml")
    assert trained(*inline) == trained(*field) and trained(*as_text) == [f"I add.\n{TYPED_ADD}<|im_end|>"]


@pytest.mark.parametrize("kept", [slice(0, 0), slice(1, None)], ids=["left as text", "the first one lost"])
def test_a_build_that_reads_typed_calls_wrongly_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: slice) -> None:
    whole = render_module._typed_at_end
    monkeypatch.setattr(
        render_module, "_typed_at_end", lambda text, tag: (whole(text, tag)[0] if kept.start else text, whole(text, tag)[1][kept])
    )
    with pytest.raises(PrepAssetsError, match="tokenization_identity") as error:
        tokens_of(tmp_path, [asked_and_answered(f"I add.\n{TYPED_ADD}\n{TYPED_ADD.replace('2', '3')}")])
    assert ("source_texts" in str(error.value)) == bool(kept.start)  # a call that is left as text stands there as its row says


def test_a_template_without_reasoning_trains_the_text_as_it_stands(tmp_path: Path) -> None:
    made = tokens_of(tmp_path, [asked_and_answered("<think>Two twos.</think>4.")], template="chatml")
    assert trained(*made) == ["<think>Two twos.</think>4.<|im_end|>"]


# `expand: turns`: a conversation whose reasoning would be left out of history becomes one example for each answer.


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str, thought: str | None = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"reasoning_content": thought} if thought else {}), **more}


CALL = {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}
CHAT = [user("Q1"), answer("A1", "T1"), user("Q2"), answer("A2"), user("Q3"), answer("<think>T3</think>A3"), user("Q4"), answer("A4", "T4")]
STEPS = [user("Q1"), answer("", "T1", **CALL), {"role": "tool", "content": "R1"}, answer("A1", "T2")]
PLAIN = [user("Q1"), answer("A1"), user("Q2"), answer("A2")]


def sft(folder: Path, chats: list[Any], **options: Any) -> tuple[Workspace, Published]:
    folder.mkdir(parents=True, exist_ok=True)
    data = domain(jsonl(folder / "rows.jsonl", [{"messages": chat} for chat in chats]), "messages")
    chosen = {"template": "qwen3", "expand": "turns", "packing": {"row_len": 256}, **options}
    workspace = workspace_in(folder, minimal("sft", {"rows": data}, **chosen))
    return workspace, build(workspace, "sft_tokens", "rows")


def records(workspace: Workspace, published: Published, stream: str = "train") -> list[tuple[int, str, str]]:
    """Source row, what is masked before the first trained token, and what is trained of each record."""
    store, decode = open_stream(published.directory, stream), workspace.vocabulary(workspace.family(Sft)).backend.decode
    found = []
    for i in range(len(store)):
        ids, trained = np.asarray(store.record(i, "tokens")), np.asarray(store.record(i, "loss_mask")) != 0
        first = int(trained.argmax())
        found.append(
            (int(store.origins.row[i]), *(decode(part.tolist(), skip_special_tokens=False) for part in (ids[:first], ids[trained])))
        )
    return found


def test_each_answer_is_trained_once_with_its_reasoning_before_history_as_a_model_sees_it(tmp_path: Path) -> None:
    """Reasoning of all answers but the last was left out of what is trained, and nothing said so."""
    workspace, published = sft(tmp_path, [CHAT])
    found = records(workspace, published)
    assert [trained for _, _, trained in found] == [
        "<think>\nT1\n</think>\n\nA1<|im_end|>",
        "<think>\n\n</think>\n\nA2<|im_end|>",
        "<think>\nT3\n</think>\n\nA3<|im_end|>",
        "<think>\nT4\n</think>\n\nA4<|im_end|>",
    ]
    history = ("user\nQ1", "assistant\nA1", "user\nQ2", "assistant\nA2", "user\nQ3")
    assert found[2][1] == "".join(f"<|im_start|>{turn}<|im_end|>\n" for turn in history) + "<|im_start|>assistant\n"
    counts = published.manifest.counts
    assert (counts["read"], counts["kept"], counts["examples"]) == (1, 1, 4)
    assert "reasoning_dropped_by_template" not in counts
    build(workspace, "sft_packed")


def test_without_it_the_loss_of_reasoning_is_counted(tmp_path: Path) -> None:
    workspace, published = sft(tmp_path, [CHAT, STEPS, PLAIN], expand="none")
    assert published.manifest.counts["reasoning_dropped_by_template"] == 2
    assert len(records(workspace, published)) == 3


NO_THINKING = {"template_options": {"enable_thinking": False}, "preprocessing": {"deduplicate": False}}
WEIGHED = [user("Q1"), answer("A1", weight=0), user("Q2"), answer("A2")]
UNSERVED = [
    *[PLAIN] * 12,
    PLAIN[:2],
    [STEPS[0], answer("", **CALL), STEPS[2], answer("A1")],
    WEIGHED,
    [*PLAIN, user("<|im_end|>"), answer("A3")],
]


def served(text: str, chat: list[Any], options: dict[str, Any]) -> list[bool]:
    """By definition: whether a text begins with what a server sends for each answer of a chat, the messages before it and the generation prompt."""
    template = ChatTemplate("qwen3", named_templates()["qwen3"], {}, options, ("<|im_start|>", "<|im_end|>"))
    answers = [number for number, message in enumerate(chat) if message["role"] == "assistant"]
    return [text.startswith(template.render(chat[:number], generation_prompt=True)) for number in answers]


def test_answers_behind_a_prompt_that_no_server_sends_are_counted_and_proven(tmp_path: Path) -> None:
    """Qwen3 ends each prompt with an empty block, and writes none before earlier answers and calls."""
    workspace, published = sft(tmp_path, UNSERVED, expand="none", **NO_THINKING)
    ids = open_stream(published.directory, "train").record(0, "tokens").tolist()
    text = workspace.vocabulary(workspace.family(Sft)).backend.decode(ids, skip_special_tokens=False)
    assert served(text, PLAIN, {"enable_thinking": False}) == [False, True], "what is counted"
    assert published.manifest.counts["unserved_prompts"] == 12 * 1 + 0 + 1 + 0 + 2
    found = verdicts_by_name(workspace, published)
    assert all(verdict.passed for verdict in found.values()) and found["mask_alignment"].numbers["unserved_prompts"] == 15
    other = replace(published, manifest=replace(published.manifest, counts=published.manifest.counts | {"unserved_prompts": 14}))
    wrong = {name: verdict.summary for name, verdict in verdicts_by_name(workspace, other).items() if not verdict.passed}
    assert wrong == {"mask_alignment": "15 trained answers stand behind a prompt that no server sends, the manifest counts 14"}


def test_with_one_example_for_each_answer_every_prompt_is_one_that_a_server_sends(tmp_path: Path) -> None:
    workspace, published = sft(tmp_path, UNSERVED, **NO_THINKING)
    counts, found = published.manifest.counts, records(workspace, published)
    assert (counts["kept"], counts["examples"], len(found)) == (16, 12 * 2 + 1 + 2 + 1 + 3, 31) and "unserved_prompts" not in counts
    assert [row for row, _, _ in found[:2]] == [0, 0]
    assert served(found[0][1], PLAIN, {"enable_thinking": False})[0] and served(found[1][1], PLAIN, {"enable_thinking": False})[1]
    assert all(before.endswith("<think>\n\n</think>\n\n") for _, before, _ in found)


def test_where_nothing_is_lost_a_record_stays_one(tmp_path: Path) -> None:
    workspace, published = sft(tmp_path, [STEPS, PLAIN, CHAT])
    assert [row for row, _, _ in records(workspace, published)] == [0, 1, 2, 2, 2, 2]


def test_a_record_stays_on_one_side_of_the_split_and_leads_back_to_its_row(tmp_path: Path) -> None:
    chats = [[user(f"Q{i}"), answer("A1", "T1"), user("Q2"), answer("A2", "T2")] for i in range(40)]
    workspace, published = sft(tmp_path, [*chats, chats[0]], test_fraction=0.3)
    sides = [[row for row, _, _ in records(workspace, published, stream)] for stream in ("train", "dev")]
    assert all(side == sorted(side) and all(side.count(row) == 2 for row in side) for side in sides)
    assert set(sides[0]).isdisjoint(sides[1]) and sorted({*sides[0], *sides[1]}) == list(range(40))
    counts = published.manifest.counts
    assert (counts["read"], counts["kept"], counts["kept_dev"], counts["examples"]) == (41, 40, len(set(sides[1])), 80)
    assert counts["refused"] == {"deduplicate/duplicate": 1}
    assert f"from rows/rows.jsonl:{sides[0][0] + 1}, answer 2 of 2" in preview(workspace, published, 1, stream="train").title  # type: ignore[union-attr]


def test_a_record_is_refused_as_a_whole_and_once(tmp_path: Path) -> None:
    long = [user("Q1"), answer("A1", "T1"), user("word " * 300), answer("A2", "T2"), user("Q3"), answer("A3", "T3")]
    workspace, published = sft(tmp_path, [CHAT, long], preprocessing={"max_seq_len": 200})
    assert [(each.id, each.reason) for each in refusals(published)] == [("rows.jsonl:2", "too_long")]
    assert [row for row, _, _ in records(workspace, published)] == [0] * 4
    assert (published.manifest.counts["kept"], published.manifest.counts["examples"]) == (1, 4)


@pytest.mark.parametrize("truncation", ["turns", "start"])
def test_examples_are_shortened_one_by_one(tmp_path: Path, truncation: str) -> None:
    workspace, published = sft(tmp_path, [CHAT], preprocessing={"max_seq_len": 48}, truncation=truncation)
    assert [trained[-11:] for _, _, trained in records(workspace, published)] == [f"A{i}<|im_end|>"[-11:] for i in range(1, 5)]


def test_weights_of_the_data_say_which_answers_there_are(tmp_path: Path) -> None:
    chat = [user("Q1"), answer("A1", "T1"), user("Q2"), answer("A2", "T2", loss_weight=0), user("Q3"), answer("A3", "T3")]
    workspace, published = sft(tmp_path, [chat])
    assert [trained.count("T") for _, _, trained in records(workspace, published)] == [1, 1]
    assert "A2" in records(workspace, published)[1][1]


@pytest.mark.parametrize("after", [[user("Q2")], [user("Q2"), answer("A2", "T2", weight=0)]])
def test_what_follows_the_last_trained_answer_does_not_take_its_reasoning(tmp_path: Path, after: list[dict[str, Any]]) -> None:
    """The answer was trained without its thought, and no check noticed."""
    workspace, published = sft(tmp_path, [[user("Q1"), answer("A1", "T1"), *after]])
    assert [(trained.count("T1"), trained.count("A1")) for _, _, trained in records(workspace, published)] == [(1, 1)]


def test_a_store_that_lacks_an_answer_fails(tmp_path: Path) -> None:
    workspace, published = sft(tmp_path, [CHAT, CHAT[2:]])
    index = published.directory / "train.index" / "row.npy"
    rows = np.load(index)
    rows[3] = 1  # an answer moves to the next record
    np.save(index, rows)
    assert "mask_alignment" in failing(workspace, resealed(published))


def test_what_it_cannot_go_with_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expand.*train_turns: all"):
        sft(tmp_path / "a", [CHAT], train_turns="last")
    with pytest.raises(ConfigError, match=r"expand.*train_on_eos: turn"):
        sft(tmp_path / "b", [CHAT], train_on_eos="all")
    with pytest.raises(ConfigError, match=r"expand.*truncation: turns"):
        sft(tmp_path / "d", [CHAT], truncation="end")
    with pytest.raises(TemplateError, match=r"expand: turns is about reasoning, and about prompts .* template chatml writes neither"):
        sft(tmp_path / "c", [PLAIN], template="chatml")


# ModelLink's --json-keys with several keys: one file, a token stream and a Megatron pair for each, in one run.


# `training_template`: tags of a variant of the template prove masks in builds and checks, and a variant that can prove nothing is refused.


TRAINING_TEMPLATE_PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTENT = "{{ m['content'] }}<|im_end|>"
TAGGED = TRAINING_TEMPLATE_PLAIN.replace(
    CONTENT, f"{{% if m['role'] == 'assistant' %}}{{% generation %}}{CONTENT}{{% endgeneration %}}{{% else %}}{CONTENT}{{% endif %}}"
)
CUT = TAGGED.replace(
    f"generation %}}{CONTENT}", "generation %}{{ m['content'][:3] }}{% endgeneration %}{% generation %}{{ m['content'][3:] }}<|im_end|>"
)
WRONG = TAGGED.replace(f"{{% generation %}}{CONTENT}", "{{ m['content'][:3] }}{% generation %}{{ m['content'][3:] }}<|im_end|>")
OTHER = TAGGED.replace("{{ '\n' }}", "{{ '\n\n' }}")
ONLY_FIRST = TAGGED.replace("{% if m['role'] == 'assistant' %}", "{{ '' if loop.index < 3 else ' ' }}{% if m['role'] == 'assistant' %}")


def training_template_made(folder: Path, training: str, template: str = TRAINING_TEMPLATE_PLAIN) -> Workspace:
    def said(number: int, *more: str) -> dict[str, Any]:
        texts = (f"What is {number}?", f"It is {number}.", *more)
        return {"messages": [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]}

    rows = [*(said(number) for number in range(4)), *(said(number, "So?", "Yes.") for number in range(4, 7))]
    sft = {
        "tokenizer": TOKENIZER,
        "template": "own.jinja",
        "training_template": "tagged.jinja",
        "domains": {"a": {"files": [str(jsonl(folder / "a.jsonl", rows))], "schema": "messages"}},
    }
    workspace = workspace_in(folder, {"sft": sft})
    for name, source in (("own", template), ("tagged", training)):
        (workspace.configs / f"{name}.jinja").write_text(source, "utf-8")
    return workspace


@pytest.mark.parametrize(("training", "rows"), [(TAGGED, 7), (CUT, 7), (ONLY_FIRST, 4)])
def test_tags_are_compared_wherever_the_variant_renders_the_same(tmp_path: Path, training: str, rows: int) -> None:
    workspace = training_template_made(tmp_path, training)
    store = build(workspace, "sft_tokens", "a")
    assert store.manifest.counts["kept"] == 7
    verdict = verdicts_by_name(workspace, store)["mask_alignment"]
    assert verdict.passed and verdict.summary.endswith(f"; tags in the template say the same of {rows} rows")
    assert verdict.numbers["rows_by_tags_too"] == rows
    [trial] = [trial for trial in selftest(workspace, store) if trial.mutation.startswith("tags of the template")]
    assert trial.passed and trial.tried == rows


def test_what_tags_contradict_is_refused(tmp_path: Path) -> None:
    workspace = training_template_made(tmp_path, WRONG)
    build(workspace, "sft_raw", "a")
    with pytest.raises(PrepAssetsError) as raised:
        build(workspace, "sft_tokens", "a")
    assert "all 7 records were refused (render/mask_not_provable: 7)" in str(raised.value)
    says = "the training_template of template own.jinja marks ['is 0.<|im_end|>'] of turn 1 as generated, which is 'It is 0.<|im_end|>'"
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("training", "template", "says"),
    [
        (TRAINING_TEMPLATE_PLAIN, TRAINING_TEMPLATE_PLAIN, "training_template: tagged.jinja has no {% generation %} tags"),
        (TAGGED, TAGGED, "training_template: template own.jinja marks what is generated itself. Leave training_template out"),
        (OTHER, TRAINING_TEMPLATE_PLAIN, "training_template: of a question and an answer tagged.jinja makes"),
    ],
)
def test_a_variant_that_can_prove_nothing(tmp_path: Path, training: str, template: str, says: str) -> None:
    workspace = training_template_made(tmp_path, training, template)
    with pytest.raises(TemplateError) as raised:
        workspace.template(workspace.family(Sft))
    assert says in str(raised.value)
