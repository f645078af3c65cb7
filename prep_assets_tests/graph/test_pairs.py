"""Preference pairs: their columns and forms, weights of answers, labelled answers, truncation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from prep_assets import export, load
from prep_assets.caches import CACHES
from prep_assets.checks.sources_again import prompt_of_line
from prep_assets.engine import state
from prep_assets.engine.execute import verdicts_of as verdicts
from prep_assets.errors import CheckFailed, ConfigError, Refused
from prep_assets.extensions.explain.trace import trace
from prep_assets.extensions.lines import write as lines_module
from prep_assets.extensions.lines.proofs import Line
from prep_assets.extensions.preference.config import Preference
from prep_assets.extensions.preference.mutations import PAIR_MUTATIONS
from prep_assets.extensions.preference.pairs import PairEncoder
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.graph.graph import EVERY
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.source_rows import Reading
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.table import open_stream, open_table
from prep_assets.text import forms
from prep_assets.training import PairDataset
from prep_assets_tests.effort import examples
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import (
    TOKENIZER,
    build,
    build_all,
    domain,
    jsonl,
    minimal,
    part_of,
    refusals,
    resealed,
    workspace_in,
)
from prep_assets_tests.graph.workspaces import verdicts as verdicts_by_name
from prep_assets_tests.proofs import corruption
from prep_assets_tests.proofs.conftest import spoilable
from prep_assets_tests.proofs.spoiled_records import next_lines, one_swapped, reversed_lines, sides_swapped

# Pairs that a second reading takes for their lines are judged as those that only their schema reads.

BY_DOMAIN = "preferences_by_domain"
Rows = list[dict[str, Any]]


def said(role: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **more}


def pair(prompt: str, chosen: str, rejected: str, **more: Any) -> dict[str, Any]:
    answers = {"chosen": [said("assistant", chosen, **more)], "rejected": [said("assistant", rejected)]}
    return {"prompt": [said("user", prompt)], **answers}


ODD = [
    pair("twice", "a", "b"),
    pair("twice", "a", "b"),
    pair("equal", "a", "a"),
    pair("blank", " ", "a"),
    pair("", "no", "prompt"),
    pair("tagged", "<think>So.</think>It is.", "No."),
    {**pair("more", "a", "b"), "id": "7"},
    {**pair("system", "a", "b"), "prompt": [said("system", "s"), said("user", "q")]},
    {**pair("robot", "a", "b"), "prompt": [said("robot", "q")]},
    {"prompt": "strings", "chosen": "a", "rejected": "b"},
    pair("caf\u00e9 \u4e2d\n", "b\0c ", " d"),
]


@pytest.fixture(scope="module", params=["text", "messages", pytest.param("strings", marks=pytest.mark.soak)])
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Workspace:
    folder = tmp_path_factory.mktemp("pairs")
    rows = [row for number in range(90) for row in (pair(f"{number}?", f"{number}!", "No."), *(ODD if number in (3, 70) else ()))]
    if request.param == "strings":
        rows = [{"prompt": f"{number}?", "chosen": f"{number}!", "rejected": "No."} for number in range(90)]
    domains = {"pairs": domain(jsonl(folder / "pairs.jsonl", rows), "preference")}
    form = "messages" if request.param == "messages" else "text"
    workspace = workspace_in(folder, minimal("preference", domains, test_fraction=0.2, form=form))
    for asset in ("preference_raw", BY_DOMAIN):
        build(workspace, asset, *EVERY[asset].partitions(workspace)[:1])
    return workspace


def both_ways(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> dict[str, Verdict]:
    """The verdicts, which are the same where only the schema reads the rows."""
    sealed, check = resealed(workspace.built(BY_DOMAIN, "pairs")), EVERY[BY_DOMAIN].checks
    expected = dict(verdicts(workspace, EVERY[BY_DOMAIN], sealed, check))
    monkeypatch.setattr(Reading, "line", lambda *_: None)
    found = dict(verdicts(workspace, EVERY[BY_DOMAIN], sealed, check))
    assert {name: (each.passed, each.worst) for name, each in found.items()} == {
        name: (each.passed, each.worst) for name, each in expected.items()
    }
    return expected


def test_odd_rows_are_judged_alike(made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = made.built(BY_DOMAIN, "pairs")
    assert len({line.reason for line in refusals(published)}) in (0, 5, 6)
    judged = both_ways(spoilable(made, tmp_path, BY_DOMAIN), monkeypatch)
    assert [name for name, verdict in judged.items() if not verdict.passed] == []
    assert judged["source_match"].numbers["lines_read_twice"]


def altered(column: str) -> Callable[[Rows], Rows]:
    """One text has a character more."""

    def change(rows: Rows) -> Rows:
        value = rows[5][column]
        rows[5][column] = value + "." if isinstance(value, str) else [*value[:-1], {**value[-1], "content": value[-1]["content"] + "."}]
        return rows

    return change


def with_margin(rows: Rows) -> Rows:
    rows[5]["margin"] = 1.0
    return rows


def another_role(rows: Rows) -> Rows:
    prompt = rows[5]["prompt"]
    rows[5]["prompt"] = [said("assistant", prompt)] if isinstance(prompt, str) else [{**prompt[-1], "role": "assistant"}]
    return rows


@pytest.mark.parametrize(
    "change",
    [
        *map(altered, ("prompt", "chosen", "rejected")),
        *(with_margin, another_role, one_swapped, sides_swapped, reversed_lines),
        *map(next_lines, ("prompt", "chosen", "rejected")),
    ],
)
def test_spoiled_lines_are_judged_alike(
    made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Rows], Rows]
) -> None:
    workspace = spoilable(made, tmp_path, BY_DOMAIN)
    published = workspace.built(BY_DOMAIN, "pairs")
    corruption.lines(published, "preferences", change)
    same = [json.loads(line) for line in (published.directory / "preferences.jsonl").open()]
    assert not both_ways(workspace, monkeypatch)["source_match"].passed or len({row["rejected"] == "No." for row in same}) == 1


def test_what_a_line_asks() -> None:
    for line, question in (
        (b'{"prompt": "p", "chosen": "q"}', "p"),
        (b'{"prompt": "p", "query": "q"}', "q"),
        (b'{"query": null}', None),
        (b'{"prompt": [{"role": "user", "content": "p"}], "margin": 1}', [{"role": "user", "content": "p"}]),
        (b'{"prompt": "p", "gold": NaN}', "p"),
        (b'{"prompt": "\\ud800"}', "\ud800"),
    ):
        assert prompt_of_line(line + b"\n") == question
    for other in (b"{}", b'{"gold": NaN}'):
        with pytest.raises(KeyError, match="prompt"):
            prompt_of_line(other)


# Pairs that are cut by the forms of their conversations are those that are rendered one by one.


TEXTS = st.sampled_from(
    [
        *("Hi", "Well, 2 + 2 = 4.", " amid white space\n", "", " ", "<|im_end|>", "a <think>b</think> c", "<think>b</think> c"),
        *("<think>b", "中文 😀", "\ud800", "Hi "),
    ]
)
PROMPTS = st.one_of(
    TEXTS,
    st.lists(TEXTS, min_size=1, max_size=3).map(
        lambda texts: [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]
    ),
)
ANSWERS = st.one_of(
    TEXTS,
    TEXTS.map(lambda text: [{"role": "assistant", "content": text}]),
    TEXTS.map(lambda text: [{"role": role, "content": text} for role in ("assistant", "user", "assistant")]),
)
ROWS = st.lists(st.fixed_dictionaries({"prompt": PROMPTS, "chosen": ANSWERS, "rejected": ANSWERS}), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("template", "truncation", "reasoning"),
    [("chatml", "drop", "field"), ("plain", "end", "auto"), ("qwen3", "end", "auto"), ("plain", "drop", "inline")],
)
def test_by_form_and_one_by_one(template: str, truncation: str, reasoning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = jsonl(tmp_path / "pairs.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}])
    options = {"template": template, "truncation": truncation, "reasoning": reasoning, "preprocessing": {"max_seq_len": 40}}
    workspace = workspace_in(tmp_path, minimal("preference", {"pairs": domain(source, "preference")}, **options))
    by_form = set()

    def encoded(rows: list[dict[str, Any]], learn_after: int) -> Any:
        monkeypatch.setattr(forms, "LEARN_AFTER", learn_after)
        CACHES["block renderers"].clear()
        quarantine, encoder = Mock(), PairEncoder(workspace)
        kept, sides = encoder.encode(rows, 0, quarantine)
        by_form.add((learn_after, encoder._plain.compared > 0))
        columns = [[*(array.tolist() for array in arrays.values()), lengths.tolist(), taken] for arrays, lengths, taken in sides]
        return kept, columns, [call.args[:3] for call in quarantine.add.call_args_list]

    @settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
    @given(ROWS)
    def check(rows: list[dict[str, Any]]) -> None:
        assert encoded(rows, 0) == encoded(rows, 1 << 40)

    check()
    assert (0, True) in by_form and (1 << 40, True) not in by_form


# Preference pairs keep the loss weights of their answers, from the source to the masks; what cannot say them refuses.


def array(chosen: list[tuple[str, float]], rejected: list[tuple[str, float]]) -> dict[str, Any]:
    """A pair as a semantic data array."""
    sides = {"chosen": chosen, "rejected": rejected}
    answers = [
        {"type": side, "content": [{"part": text} for text, _ in parts], "semantic_loss_weight": [weight for _, weight in parts]}
        for side, parts in sides.items()
    ]
    return {"semantic_data_array": [{"type": "prompt", "content": [{"q": "Why?"}]}, *answers]}


WEIGHTED_PAIRS_ROWS = [
    array([("Not this.", 0), (" But this.", 1)], [("No.", 1)]),
    array([("Plain.", 1)], [("Never.", 1)]),
    array([("Half.", 0.5)], [("No.", 1)]),
]


def built(make: Make, tmp_path: Path, form: str) -> Workspace:
    own = domain(jsonl(tmp_path / "rows.jsonl", WEIGHTED_PAIRS_ROWS), "semantic")
    workspace = make(minimal("preference", {"d": own}, test_fraction=0.0, shuffle=False, form=form))
    build_all(workspace, ["preference"])
    return workspace


def test_answers_keep_their_weights(make: Make, tmp_path: Path) -> None:
    """`semantic_loss_weight` of chosen and rejected was read and lost: all of both was trained."""
    workspace = built(make, tmp_path, "auto")
    pairs, tokens = workspace.built("preferences"), workspace.built("preference_tokens")
    assert [each.reason for each in refusals(part_of(workspace, "preferences", "d"))] == ["fractional_weight"]
    rows = list(open_stream(pairs.directory, "preferences"))
    parts = [{"type": "text", "text": "Not this.", "loss_weight": 0.0}, {"type": "text", "text": " But this.", "loss_weight": 1.0}]
    assert rows[0]["chosen"] == [{"role": "assistant", "content": parts}]
    assert rows[1]["chosen"] == [{"role": "assistant", "content": "Plain."}]
    vocabulary = workspace.vocabulary(workspace.family(Preference))
    store = open_stream(tokens.directory, "chosen")
    trained = [
        vocabulary.backend.decode(store.record(n, "tokens")[store.record(n, "loss_mask") != 0].tolist(), False) for n in range(len(store))
    ]
    assert [text.strip() for text in trained] == ["But this.<|im_end|>", "Plain.<|im_end|>"]


def test_strings_cannot_say_them(make: Make, tmp_path: Path) -> None:
    workspace = built(make, tmp_path, "text")
    workspace.built("preferences")
    assert [each.reason for each in refusals(part_of(workspace, "preferences", "d"))] == ["not_plain_text", "fractional_weight"]


@pytest.mark.parametrize(("format", "options"), [("hf_arrow", {}), ("tlfs", {})])
def test_text_exports_refuse_rows_whose_weights_no_trainer_reads(make: Make, tmp_path: Path, format: str, options: dict[str, Any]) -> None:
    workspace = built(make, tmp_path, "auto")
    pairs = workspace.built("preferences")
    with pytest.raises(ConfigError, match=r"line 1|text"):
        export(pairs, format, tmp_path / "out", stream="preferences", **options)


def test_answers_that_are_calls_or_parts_can_be_spoilt() -> None:
    """The selftest ended with a KeyError on them."""
    call = [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {}}}]}]
    parts = [{"role": "assistant", "content": [{"type": "text", "text": "Yes.", "loss_weight": 1.0}]}]
    lines = [Line("a:0", {"prompt": "Why?", "chosen": call, "rejected": parts}, None)]
    found = {mutation.name: mutation.change(lines, 0) for mutation in PAIR_MUTATIONS}
    assert found["a better answer truncated"] is None
    spoilt = found["a worse answer truncated"]
    assert spoilt is not None and spoilt[0].stored["rejected"][0]["content"][0]["text"] == "Ye"


# Labelled answers (KTO): a file of their own beside the pairs, in TRL's form; never trained as if all were good.


UNPAIRED_ROWS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": f"Q{i}?"}, {"role": "assistant", "content": f"A{i}."}], "label": i % 3 > 0} for i in range(40)
]
PAIRS = [{"prompt": f"P{i}?", "chosen": "yes", "rejected": "no"} for i in range(10)]


def domains(tmp_path: Path, rows: list[dict[str, Any]] = UNPAIRED_ROWS) -> dict[str, Any]:
    return {
        "labelled": domain(jsonl(tmp_path / "kto.jsonl", rows), "kto"),
        "pairs": domain(jsonl(tmp_path / "p.jsonl", PAIRS), "preference"),
    }


@pytest.mark.parametrize(("storage_format", "fraction"), [("bin", 0.0), ("h5", 0.3)])
def test_only_labelled_answers(make: Any, tmp_path: Path, storage_format: str, fraction: float) -> None:
    labelled = {"labelled": domains(tmp_path)["labelled"]}
    output = {"storage_format": storage_format}
    workspace = make(minimal("preference", labelled, test_fraction=fraction, output=output))
    stores = build_all(workspace, ["preference"])
    assert stores["preference_tokens", ""].manifest.counts["read"] == 0
    for name in ("preferences", "preference_tokens"):
        assert state(workspace, EVERY[name], "") == "current"


def unpaired_said(row: dict[str, Any]) -> tuple[str, str, bool]:
    return row["messages"][0]["content"], row["messages"][1]["content"], row["label"]


@pytest.mark.parametrize("form", ["text", "messages"])
def test_labelled_answers_stand_beside_the_pairs(make: Any, tmp_path: Path, form: str) -> None:
    workspace = make(minimal("preference", domains(tmp_path), test_fraction=0.3, form=form))
    stores = build_all(workspace, ["preference"])
    published = stores["preferences", ""]
    rows = {name: list(open_stream(published.directory, name)) for name in ("unpaired", "unpaired_test", "preferences", "preferences_test")}
    found = rows["unpaired"] + rows["unpaired_test"]
    assert all(list(row) == ["prompt", "completion", "label"] for row in found)
    plain = [
        tuple(part if isinstance(part, str | bool) else part[0]["content"] for part in (row["prompt"], row["completion"], row["label"]))
        for row in found
    ]
    assert sorted(plain) == sorted(map(unpaired_said, UNPAIRED_ROWS))
    assert len(rows["preferences"]) + len(rows["preferences_test"]) == 10
    counts = published.manifest.counts
    assert (counts["read"], counts["kept"]) == (50, 50)
    assert (counts["unpaired_train"], counts["unpaired_test"]) == (len(rows["unpaired"]), len(rows["unpaired_test"]))
    assert counts["unpaired_test"] > 0
    assert "40 labelled answers are sound, 26 of them desirable" in verdicts_by_name(workspace, published)["pair_sanity"].summary
    assert stores["preference_tokens", ""].manifest.counts["kept"] == 10


def test_the_training_file_is_shuffled_and_each_line_leads_back(make: Any, tmp_path: Path) -> None:
    workspace = make(minimal("preference", domains(tmp_path), test_fraction=0.0))
    published = build_all(workspace, ["preference"])["preferences", ""]
    lines = open_stream(published.directory, "unpaired")
    order = lines.origins.row.tolist()
    assert sorted(order) == list(range(40)) != order
    assert [(row["prompt"], row["completion"], row["label"]) for row in lines] == [unpaired_said(UNPAIRED_ROWS[row]) for row in order]


def test_an_empty_prompt_or_answer_is_refused(make: Any, tmp_path: Path) -> None:
    bad = [
        {"prompt": " ", "completion": "A.", "label": True},
        {"prompt": "Q?", "completion": " ", "label": True},
        {"messages": [{"role": "assistant", "content": "A."}], "label": False},
    ]
    workspace = make(minimal("preference", domains(tmp_path, [*UNPAIRED_ROWS, *bad])))
    published = build_all(workspace, ["preference"])["preferences_by_domain", "labelled"]
    assert {each.id: each.reason for each in refusals(published)} == {
        "kto.jsonl:41": "empty_prompt",
        "kto.jsonl:42": "empty_answer",
        "kto.jsonl:43": "empty_prompt",
    }


ASKED = UNPAIRED_ROWS[1]["messages"]
CONTRADICTED: list[dict[str, Any]] = [
    *UNPAIRED_ROWS,
    {"messages": ASKED, "label": False},
    {"messages": [{"role": "system", "content": "Be brief."}, *ASKED], "label": False},
    {"prompt": "Q2?", "completion": "A2.", "label": True},
]
"""The rows 2 and 41 contradict each other; that after them has another prompt, and the last says what row 3 does."""


@pytest.mark.parametrize(("form", "rows"), [("auto", CONTRADICTED), ("text", CONTRADICTED[:41] + CONTRADICTED[42:])])
def test_an_answer_that_is_labelled_good_and_bad_is_refused(make: Any, tmp_path: Path, form: str, rows: list[dict[str, Any]]) -> None:
    workspace = make(minimal("preference", domains(tmp_path, rows), test_fraction=0.3, form=form))
    published = build_all(workspace, ["preference"])[BY_DOMAIN, "labelled"]
    assert {each.id: (each.stage, each.reason) for each in refusals(published)} == dict.fromkeys(
        ["kto.jsonl:2", "kto.jsonl:41"], ("pair", "contradicting_labels")
    )
    assert published.manifest.counts["kept"] == len(rows) - 2


def test_contradicting_labels_that_a_build_keeps_or_makes_up_are_seen(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled = {"labelled": domains(tmp_path, CONTRADICTED)["labelled"]}
    workspace = make(minimal("preference", labelled))
    with monkeypatch.context() as patch, pytest.raises(CheckFailed, match=r"pair_sanity.*the same answer has the other label as well"):
        patch.setattr(lines_module.Claims, "check", lambda self, rows: None)
        build(workspace, BY_DOMAIN, "labelled")
    right = lines_module.Claims.check

    def check(self: Any, rows: Any) -> None:
        right(self, rows)
        if any("A3." in str(row) for row in rows):
            raise Refused("contradicting_labels", "", stage="pair")

    with monkeypatch.context() as patch, pytest.raises(CheckFailed, match=r"selection.*kto.jsonl:4 .*nothing is wrong with it"):
        patch.setattr(lines_module.Claims, "check", check)
        build(workspace, BY_DOMAIN, "labelled")


def test_sft_never_learns_an_undesirable_answer(make: Any, tmp_path: Path) -> None:
    workspace = make(minimal("sft", {"labelled": domains(tmp_path)["labelled"]}))
    published = build(workspace, "sft_tokens", "labelled")
    bad = [f"kto.jsonl:{i + 1}" for i, row in enumerate(UNPAIRED_ROWS) if not row["label"]]
    assert [(each.id, each.reason) for each in refusals(published)] == [(record, "undesirable") for record in bad]
    assert published.manifest.counts["kept"] == 40 - len(bad)


# Pairs that are too long are cut at their end, as train-llm-from-scratch cuts them, and held-out pairs are tokenized as the others are.


LIMIT = 24
LONG = "This prompt alone has more tokens than a side of a pair may have, so that nothing at all of an answer is left of it, sadly."
CUT_PAIRS_ROWS = [
    *({"prompt": f"What is {n}?", "chosen": f"It is {n}.", "rejected": "No idea."} for n in range(20)),
    {"prompt": "Count.", "chosen": "one two three four five six seven eight nine ten eleven twelve", "rejected": "No."},
    {
        "prompt": "Again.",
        "chosen": "one two three four five six seven eight nine ten, yes",
        "rejected": "one two three four five six seven eight nine ten, no",
    },
    {"prompt": LONG, "chosen": "Yes.", "rejected": "No."},
]


def reference(row: dict[str, Any], side: str, limit: int | None = LIMIT) -> tuple[list[int], list[int]]:
    """What train-llm-from-scratch makes of a side: each part encoded alone, the end of text after every turn, all cut on the right."""
    tokenizer = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    tokenizer.encode_special_tokens = True
    end = tokenizer.token_to_id("<|endoftext|>")
    ids: list[int] = []
    mask: list[int] = []
    for role, text in (("user", row["prompt"]), ("assistant", row[side])):
        header, content = (tokenizer.encode(part, add_special_tokens=False).ids for part in (f"<|{role}|>\n", text))
        ids += [*header, *content, end]
        mask += [0] * len(header) + [int(role == "assistant")] * (len(content) + 1)
    return ids[:limit], mask[:limit]


def test_a_side_keeps_its_first_tokens(make: Make, tmp_path: Path) -> None:
    rows = domain(jsonl(tmp_path / "rows.jsonl", CUT_PAIRS_ROWS), "preference")
    options: dict[str, Any] = {"template": "plain", "truncation": "end", "preprocessing": {"max_seq_len": LIMIT}, "test_fraction": 0.3}
    workspace = make(minimal("preference", {"d": rows}, **options))
    build_all(workspace, ["preference"])
    pairs, tokens = workspace.built("preferences"), workspace.built("preference_tokens")
    assert sorted(each.reason for each in refusals(part_of(workspace, "preference_tokens", "d"))) == [
        "equal_after_truncation",
        "nothing_to_train",
    ]
    counts, gone = tokens.manifest.counts, 0
    assert counts["kept"] == 21 and 0 < counts["kept_test"] < 21
    for folder, name in (("", "preferences"), ("test", "preferences_test")):
        lines = list(open_stream(pairs.directory, name))
        for side in ("chosen", "rejected"):
            store = open_stream(tokens.directory / folder, side)
            for number, line in enumerate(store.origins.row.tolist()):
                found = store.record(number, "tokens").tolist(), store.record(number, "loss_mask").tolist()
                assert found == reference(lines[line], side)
                gone += len(reference(lines[line], side, None)[0]) - len(found[0])
    assert counts["tokens_cut_away"] == gone > 0
    trials = [*selftest(workspace, tokens), *selftest(workspace, part_of(workspace, "preference_tokens", "d"))]
    assert all(trial.passed for trial in trials) and any(trial.tried for trial in trials if trial.mutation)


def test_pairs_that_are_held_out_are_read_as_the_others(make: Make, tmp_path: Path) -> None:
    rows = domain(jsonl(tmp_path / "rows.jsonl", CUT_PAIRS_ROWS), "preference")
    exports = {"held": {"from": "preference_tokens", "to": "hf_arrow", "stream": "test", "options": {"layout": "trl"}}}
    workspace = make(minimal("preference", {"d": rows}, test_fraction=0.3, exports=exports))
    build_all(workspace, ["preference"])
    tokens = workspace.built("preference_tokens")
    held = open_table(tokens.directory, "test")
    assert held.schema.name == "pairs" and len(held) == tokens.manifest.counts["kept_test"]
    dataset = PairDataset(load(tokens.directory / "test"))
    assert len(dataset) == len(held)
    assert dataset[0]["chosen"].tolist() == held.columns["chosen"].arrays(0)[0].tolist()
    assert len(PairDataset(load(tokens.directory))) == tokens.manifest.counts["kept"] - len(held)
    written = export(tokens.directory / "test", "astrai", tmp_path / "out")
    assert len(PairDataset(load(written))) == len(held)
    traced = trace(workspace, "preference_tokens", 0, stream="test/rejected")
    assert traced.pieces[0].source is not None and not traced.differs
