"""Every policy against its definition: spelled out by hand for one chat, by a slow reference for arbitrary ones, by the checks on real data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.config.mask import MaskPolicy
from prep_assets.config.models import Sft
from prep_assets.proofs.derive import MaskOptions
from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, TOOL, USER, Region, Sample, Turn, turn
from prep_assets_tests.corpus.real import MOSS_WITHOUT_PLUGINS
from prep_assets_tests.effort import SOAK, examples
from prep_assets_tests.graph.workspaces import build, domain, minimal, workspace_in
from prep_assets_tests.masks import chatml
from prep_assets_tests.masks.bound import SHIPPED, Bound, assert_proven, bind, trained, with_options
from prep_assets_tests.masks.chatml import answer, weighted
from prep_assets_tests.tokenization.loaded import load
from prep_assets_tests.tokenization.test_encode import expected

CHAT = Sample(
    (
        turn(SYSTEM, "Be brief."),
        turn(USER, "Add 2 and 2."),
        answer("thinking: Easy.", "Let me see.", "call: add"),
        turn(TOOL, "4"),
        answer("It is 4."),
        turn(USER, "Thanks!"),
        answer("Welcome."),
    )
)
THOUGHT = "<think>\nEasy.\n</think>\n\n"
CALL = '\n<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": "zwei"}}\n</tool_call>'
STOP = "<|im_end|>"
SPELLED: dict[str, tuple[MaskOptions, list[str]]] = {
    "default": (MaskOptions(), [f"{THOUGHT}Let me see.{CALL}{STOP}", f"It is 4.{STOP}", f"Welcome.{STOP}"]),
    "train_thinking: false": (with_options(train_thinking=False), [f"Let me see.{CALL}{STOP}", f"It is 4.{STOP}", f"Welcome.{STOP}"]),
    "train_tool_calls: false": (with_options(train_tool_calls=False), [f"{THOUGHT}Let me see.", f"It is 4.{STOP}", f"Welcome.{STOP}"]),
    "train_turns: last": (with_options(train_turns="last"), [f"Welcome.{STOP}"]),
    "train_on_eos: last": (with_options(train_on_eos="last"), [f"{THOUGHT}Let me see.{CALL}", "It is 4.", f"Welcome.{STOP}"]),
    "train_on_eos: none": (with_options(train_on_eos="none"), [f"{THOUGHT}Let me see.{CALL}", "It is 4.", "Welcome."]),
    "train_on_eos: all": (
        with_options(train_on_eos="all"),
        [STOP, STOP, f"{THOUGHT}Let me see.{CALL}{STOP}", STOP, f"It is 4.{STOP}", STOP, f"Welcome.{STOP}"],
    ),
    "train_headers": (
        with_options(train_headers=True),
        [
            f"\n<|im_start|>assistant\n{THOUGHT}Let me see.{CALL}{STOP}",
            f"\n<|im_start|>assistant\nIt is 4.{STOP}",
            f"\n<|im_start|>assistant\nWelcome.{STOP}",
        ],
    ),
    "users alone": (with_options(mask={"user": "train"}), [f"Add 2 and 2.{STOP}", f"Thanks!{STOP}"]),
    "tools are what the model answers with": (
        with_options(mask={"assistant": "mask"}, mask_default="train"),
        [f"Be brief.{STOP}", f"Add 2 and 2.{STOP}", f"4{STOP}", f"Thanks!{STOP}"],
    ),
    "no reasoning, no calls, last turn": (
        with_options(train_thinking=False, train_tool_calls=False, train_turns="last", train_on_eos="none"),
        ["Welcome."],
    ),
}


@pytest.mark.parametrize("case", SPELLED)
def test_spelled_out(bound: Bound, case: str) -> None:
    options, wanted = SPELLED[case]
    outcome = assert_proven(bound, [CHAT], options)
    assert trained(bound, outcome) == wanted
    assert set(outcome.loss(0).tolist()) == {0.0, 1.0}


def test_every_token_is_trained_where_everything_is_asked_for(bound: Bound) -> None:
    options = with_options(mask={}, mask_default="train", train_headers=True, train_on_eos="all")
    (whole,) = trained(bound, assert_proven(bound, [CHAT], options))
    assert whole == "".join(text for text, _, _ in weighted(CHAT, options))[:-1], "all but the line break after the last stop token"


def test_weights_of_regions_win_over_roles_and_the_last_one_weighs_the_stop_token(bound: Bound) -> None:
    sample = Sample(
        (turn(USER, "Hi", loss_weight=0.25), answer("Good", " morning", weights=[0.5, 1.5]), turn(USER, "?"), answer("No.", weights=[0.0]))
    )
    outcome = assert_proven(bound, [sample])
    pieces = [(bound.vocabulary.decode([token]), weight) for token, weight in zip(outcome.ids(0), outcome.loss(0), strict=True) if weight]
    assert "".join(text for text, weight in pieces if weight == 0.25) == "Hi<|im_end|>"
    assert "".join(text for text, weight in pieces if weight == 0.5) == "Good"
    assert "".join(text for text, weight in pieces if weight == 1.5) == " morning<|im_end|>"
    assert {weight for _, weight in pieces} == {0.25, 0.5, 1.5}


def test_switches_win_over_weights(bound: Bound) -> None:
    """Reasoning that the data weighs is not trained where reasoning is switched off."""
    sample = Sample((turn(USER, "Hi"), answer("thinking: Hm.", "Yes.", weights=[2.0, None])))
    assert trained(bound, assert_proven(bound, [sample], with_options(train_thinking=False))) == ["Yes.<|im_end|>"]
    both = assert_proven(bound, [sample])
    assert trained(bound, both) == ["<think>\nHm.\n</think>\n\nYes.<|im_end|>"]
    assert set(both.loss(0).tolist()) == {0.0, 1.0, 2.0}


WEIGHT = st.sampled_from([None, None, None, 0.0, 1.0, 0.5])
SAID = st.sampled_from(["Hello.", "What is it?", "中文 ok", "e\u0301 👩‍🚀", "(1, 2)", "<|im_end|>", "<|im_start|>user", "a\nb"])
TURNS = st.lists(
    st.one_of(
        st.builds(
            lambda role, text, weight: Turn(role, (Region(TEXT, text, weight),)),
            st.sampled_from([SYSTEM, USER, TOOL, "critic"]),
            SAID,
            WEIGHT,
        ),
        st.builds(lambda text, weight: answer(text, weights=[weight]), SAID, WEIGHT),
        st.builds(lambda text, weights: answer("thinking: Hm.", text, weights=weights), SAID, st.tuples(WEIGHT, WEIGHT)),
        st.builds(lambda text, weights: answer(text, "call: go", weights=weights), SAID, st.tuples(WEIGHT, WEIGHT)),
        st.builds(
            lambda text, weights: answer("thinking: So.", text, "call: go", weights=weights), SAID, st.tuples(WEIGHT, WEIGHT, WEIGHT)
        ),
    ),
    min_size=1,
    max_size=5,
)
DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "mask": st.dictionaries(st.sampled_from([SYSTEM, USER, ASSISTANT, TOOL]), st.sampled_from(["train", "mask"]), max_size=3),
    "mask_default": st.sampled_from(["mask", "mask", "train"]),
    "train_on_eos": st.sampled_from(["turn", "last", "all", "none"]),
    "train_turns": st.sampled_from(["all", "all", "last"]),
    "train_thinking": st.booleans(),
    "train_tool_calls": st.booleans(),
    "train_headers": st.booleans(),
}
OPTIONS = st.builds(MaskOptions, **DRAWN)


def test_every_option_is_drawn_and_in_both_derivations() -> None:
    names = {*DRAWN}
    assert names == {*MaskOptions.__dataclass_fields__} == {*MaskPolicy.model_fields} <= {*Sft.model_fields}


@settings(max_examples=examples(120), deadline=None)
@given(TURNS, OPTIONS)
def test_as_defined(turns: list[Turn], options: MaskOptions) -> None:
    """Weights of all tokens, not only where the trained stretches are."""
    bound, sample = chatml.bound(), Sample(tuple(turns))
    outcome = assert_proven(bound, [sample], options)
    wanted = _expected(bound, sample, options)
    if outcome.kept:
        assert (outcome.ids(0).tolist(), outcome.loss(0).tolist()) == wanted
    elif wanted is not None:
        assert set(outcome.reasons) == {"nothing_to_train"} and not any(wanted[1])
    else:
        assert set(outcome.reasons) == {"mask_border_inside_token"}


def _expected(bound: Bound, sample: Sample, options: MaskOptions) -> tuple[list[int], list[float]] | None:
    """Ids and weights by the reference; `None` where a token's characters disagree on its weight."""
    control = bound.vocabulary.control
    found = expected(
        load(SHIPPED), [(control[text] if is_control else text, weight) for text, weight, is_control in weighted(sample, options)]
    )
    return None if found.border else (found.ids, found.loss)


# templates in which roles other than the assistant's end with no stop token of their own


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("glm4", ["Hi", "\nHello.<|user|>"]),
        ("deepseek-r1", ["Hi", "Hello.<｜end▁of▁sentence｜>"]),
        ("alpaca", ["Hi", "Hello.\n<|endoftext|>"]),
        ("vicuna", ["Hi", "Hello.<|endoftext|>"]),
        ("llama3", ["Hi<|eot_id|>", "Hello.<|eot_id|>"]),
        ("plain", ["Hi<|endoftext|>", "Hello.<|endoftext|>"]),
    ],
)
def test_the_next_turns_header_is_no_stop_token(name: str, wanted: list[str]) -> None:
    """A trained question ends with the stop token where the format writes one, and with nothing where the answer's header follows at once."""
    bound = bind(SHIPPED, name)
    options = with_options(mask={"user": "train", "assistant": "train"})
    found = trained(bound, assert_proven(bound, [Sample((turn(USER, "Hi"), turn(ASSISTANT, "Hello.")))], options))
    assert [text.strip(" ") for text in found] == wanted


# on real data, by the pipeline's own checks

OVERRIDES: list[dict[str, Any]] = [
    {},
    {"train_thinking": False},
    {"train_tool_calls": False},
    {"train_turns": "last"},
    {"train_on_eos": "all"},
    {"train_on_eos": "last"},
    {"train_on_eos": "none"},
    {"train_headers": True},
    {"mask": {"assistant": "train", "user": "train"}},
    {"mask": {}, "mask_default": "train"},
    {"mask": {}, "mask_default": "train", "train_headers": True, "train_on_eos": "all"},
    {"special_in_content": "strip"},
    {"special_in_content": "refuse"},
    {"special_in_content": "allow"},
    *({"preprocessing": {"max_seq_len": 900}, "truncation": mode} for mode in ("drop", "end", "start", "turns", "prompt")),
    {"preprocessing": {"max_seq_len": 900}, "truncation": "end", "truncation_keeps_stop": True},
    {"preprocessing": {"max_seq_len": 900}, "truncation": "prompt", "truncation_keeps": {"user": {"part": "end", "least": 20}}},
]
SETS = {
    "glaive": ("llama_factory/glaive_toolcall_en_demo.json", "sharegpt"),
    "reason": ("llama_factory/reason_tool_use_demo_50.jsonl", "messages"),
    "weighed": ("llama_factory/v1_sft_demo.jsonl", "messages"),
    "moss": ("moss/conversations.jsonl", "moss"),
    "identity": ("llama_factory/identity.json", "alpaca"),
}


@pytest.mark.parametrize("options", OVERRIDES, ids=str)
def test_on_real_data(real_data: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    """Every check holds, every record is kept or counted, and no set is refused as a whole."""
    few = {} if SOAK else {"max_items": 25}
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "tools.jinja").write_text(chatml.SOURCE.strip())
    domains = {name: {"files": [str(real_data / file)], "schema": schema, **few} for name, (file, schema) in SETS.items()}
    domains["moss"]["ignore"] = list(MOSS_WITHOUT_PLUGINS)
    family = {
        "tokenizer": str(real_data / "tokenizers" / "smollm"),
        "tokenizer_loader": "file",
        "template": "tools.jinja",
        "domains": domains,
    }
    workspace = workspace_in(tmp_path, {"sft": family}).overriding("sft", options)
    for name in SETS:
        build(workspace, "sft_raw", name)
        published = build(workspace, "sft_tokens", name)
        counts = published.manifest.counts
        assert counts["read"] == counts["kept"] + sum(counts["refused"].values())
        assert counts["kept"] > 0 and 0 < counts["trained_tokens"] <= counts["tokens"]


@pytest.mark.parametrize("name", ["alpaca", "chatml", "default", "llama2", "mistral", "plain", "qwen", "qwen3", "vicuna"])
def test_preference_pairs(tmp_path: Path, name: str) -> None:
    """What a template writes before an answer, such as a space or an empty <think> block, is part of what is trained, and of the proof."""
    families = minimal("preference", {"hh": domain("hh.jsonl.gz", "hh")}, template=name, form="messages")
    workspace = workspace_in(tmp_path, families)
    build(workspace, "preference_raw", "hh")
    build(workspace, "preferences_by_domain", "hh")
    published = build(workspace, "preference_tokens_by_domain", "hh")
    assert published.manifest.counts["kept"] > 0
