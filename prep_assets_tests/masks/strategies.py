"""Conversations that nobody would write: every kind of text, in every place where a conversation holds text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn

WORDS = [
    *("", " ", "  ", "\n", "\t", "\u00a0", "\u2028", "\x00", "Hello", " world", "12", "?", "don't", '"', "\\", '{"a": 1}'),
    *("é", "e\u0301", "中文", "👩‍🚀", "🇩🇪", "ß", "Ġ", "שלום", "مرحبا\u200f", "\ufeff", "\ufffe", "\U0001ffff"),
]
MARKERS = [
    *("<think>", "</think>", "<think>\n", "\n</think>\n\n", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("### Response:\n", "\nAssistant:", "Human: ", "USER: ", "ASSISTANT:", "[INST]", "[/INST]", "<<SYS>>", "<|user|>", "<|assistant|>"),
    *("<|im_", "end|>", "<|im_start|>assistant\n", "<|im_end|>", "<|endoftext|>", "</s>", "<s>", "<|", "|>", "assistant", "user"),
]
NO_TEXT = ["\ud800", "\udfff", "\ufdd0", "\ufdd2", "\ufdd0\ufdd3\ufdd1"]
"""Halves of surrogate pairs, and the noncharacters that marks are made of."""


def texts(control: Sequence[str], *, broken: bool = True) -> st.SearchStrategy[str]:
    """Some words, markers and control tokens in a row; rarely something that is no text."""
    words = st.sampled_from([*WORDS, *MARKERS, *control]) | st.text(max_size=4)
    whole = st.lists(words, max_size=4).map("".join)
    if not broken:
        return whole.filter(lambda text: not any(bad in text for bad in NO_TEXT))
    return whole | st.builds(lambda text, bad: text + bad, whole, st.sampled_from(NO_TEXT))


def samples(control: Sequence[str]) -> st.SearchStrategy[Sample]:
    """Conversations in which roles, names, keys and schemas may hold anything, too; most are ordinary enough to be kept by some template."""
    text = texts(control)
    clean = texts(control, broken=False)
    weight = st.none() | st.sampled_from([0.0, 1.0, 0.5])
    regions = st.lists(st.builds(Region, st.just(TEXT), clean, weight), min_size=1, max_size=2)
    wild = st.lists(st.builds(Region, st.just(TEXT), text, weight), min_size=1, max_size=2)
    thought = st.lists(st.builds(Region, st.just(THINKING), clean, weight), max_size=1)
    calls = st.lists(_calls(clean), max_size=2)
    user, answer = _turn(USER, regions), _turn(ASSISTANT, regions)
    acting = st.builds(lambda *parts: Turn(ASSISTANT, tuple(region for part in parts for region in part)), thought, regions, calls)
    result = st.builds(
        lambda own, name, call: Turn(TOOL, tuple(own), name, call),
        regions,
        st.none() | st.just("get") | text,
        st.none() | st.just("call_1234"),
    )
    any_turn = st.one_of(user, answer, acting, result, st.builds(lambda role, own: Turn(role, tuple(own)), text, wild))
    rounds = st.one_of(st.tuples(user, answer), st.tuples(user, acting), st.tuples(user, acting, result, acting), st.tuples(any_turn))
    body = st.lists(rounds, min_size=1, max_size=3).map(lambda listed: [turn for each in listed for turn in each])
    tool = st.builds(
        lambda name, said: {"type": "function", "function": {"name": name, "description": said, "parameters": {}}}, clean, clean
    )
    return st.builds(
        lambda head, turns, tools: Sample((*head, *turns), tuple(tools)),
        st.lists(_turn(SYSTEM, regions), max_size=1),
        body,
        st.lists(tool, max_size=1),
    )


def _turn(role: str, regions: st.SearchStrategy[list[Region]]) -> st.SearchStrategy[Turn]:
    return st.builds(lambda own: Turn(role, tuple(own)), regions)


def _calls(text: st.SearchStrategy[str]) -> st.SearchStrategy[Region]:
    """Tool calls, whose JSON may spell characters with escapes."""
    leaf = text | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False)
    inner = st.recursive(leaf, lambda of: st.lists(of, max_size=2) | st.dictionaries(text, of, max_size=2), max_leaves=4)

    def written(name: str, arguments: Any, escaped: bool) -> Region:
        return Region(TOOL_CALL, json.dumps({"name": name, "arguments": arguments}, ensure_ascii=escaped))

    return st.builds(written, text, st.dictionaries(text, inner, max_size=2) | text, st.booleans())
