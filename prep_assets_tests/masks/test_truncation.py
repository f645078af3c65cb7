"""Truncation: literal examples, and what holds of each mode for arbitrary chats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prep_assets.config.models import Keep
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.proofs.mask import Conversation, Truncation, left_of, prove_identity, prove_masks
from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets.stores.table import open_stream
from prep_assets.text.spans import Prompt, kept_tokens
from prep_assets_tests.corpus.policies import POLICIES
from prep_assets_tests.effort import examples
from prep_assets_tests.graph.workspaces import build, jsonl, minimal, refusals, workspace_in
from prep_assets_tests.masks import chatml
from prep_assets_tests.masks.bound import SHIPPED, Bound, Outcome, bind, run, trained, with_options

LONG = "a" + " a" * 19
"""Twenty tokens."""


def chat(*contents: str, system: str | None = None) -> Sample:
    head = () if system is None else (turn(SYSTEM, system),)
    return Sample((*head, *(turn((USER, ASSISTANT)[i % 2], content) for i, content in enumerate(contents))))


def text(bound: Bound, outcome: Outcome) -> str:
    return bound.vocabulary.decode(outcome.ids(0))


def length(bound: Bound, sample: Sample) -> int:
    return len(run(bound, [sample], trains=False).ids(0))


# spelled out


def test_drop(bound: Bound) -> None:
    sample = chat("Hi", LONG)
    whole = length(bound, sample)
    assert run(bound, [sample], max_seq_len=whole).kept == [0]
    (reason,) = run(bound, [sample], max_seq_len=whole - 1).refused.values()
    assert reason == ("too_long", f"{whole} tokens, max_seq_len is {whole - 1}")


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"truncation": "end"}, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦a a a⟧"),
        ({"truncation": "end", "keep_stop": True}, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦a a<|im_end|>⟧"),
        ({"truncation": "start"}, "⟦ a a a a a a a a a a a<|im_end|>⟧\n"),
    ],
    ids=str,
)
def test_ends(bound: Bound, options: dict[str, Any], left: str) -> None:
    sample = chat("Hi", LONG)
    found = run(bound, [sample], max_seq_len=length(bound, sample) - 19, **options)
    (answer,) = trained(bound, found)
    assert text(bound, found).replace(answer, f"⟦{answer}⟧") == left


def test_a_stop_token_ends_what_is_cut_off_and_nothing_else(bound: Bound) -> None:
    sample = chat("Hi", "Hello there.", "Bye", "Ciao.")
    whole, stop = run(bound, [sample]), bound.vocabulary.control["<|im_end|>"]
    ids, loss = whole.ids(0).tolist(), whole.loss(0).tolist()
    for limit in range(loss.index(1.0) + 1, len(ids)):
        found = run(bound, [sample], max_seq_len=limit, truncation="end", keep_stop=True)
        assert found.ids(0).tolist() == [*ids[: limit - 1], stop if loss[limit - 1] else ids[limit - 1]]


def test_prompt(bound: Bound) -> None:
    """The longest question gives up its end; headers, answers, stop tokens and the system turn are whole."""
    sample = chat("Hi", "Hello", LONG, "Bye", system=LONG)
    found = run(bound, [sample], max_seq_len=length(bound, sample) - 15, truncation="prompt")
    turns = [("system", LONG), ("user", "Hi"), ("assistant", "Hello"), ("user", "a" + " a" * 4), ("assistant", "Bye")]
    assert text(bound, found) == "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
    assert trained(bound, found) == ["Hello<|im_end|>", "Bye<|im_end|>"]


def test_prompt_is_refused_where_the_questions_are_not_long_enough(bound: Bound) -> None:
    sample = chat("Hi", LONG)
    assert set(run(bound, [sample], max_seq_len=length(bound, sample) - 5, truncation="prompt").reasons) == {"too_long"}


def test_prompt_by_role(bound: Bound) -> None:
    """The longest text stays whole, for so its role says; the questions give up their starts, the longer one first, but for four tokens."""
    sample = chat(LONG, LONG, "b" + " b" * 9, "Bye")
    keeps = {"user": Keep(part="end", least=4), "assistant": Keep(least=40)}
    policy = with_options(train_turns="last")
    found = run(bound, [sample], policy, max_seq_len=length(bound, sample) - 19, truncation="prompt", keeps=keeps)
    turns = [("user", " a" * 4), ("assistant", LONG), ("user", " b" * 7), ("assistant", "Bye")]
    assert text(bound, found) == "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
    assert found.encoded.taken.tolist() == [19]
    too_far = run(bound, [sample], policy, max_seq_len=length(bound, sample) - 23, truncation="prompt", keeps=keeps)
    assert set(too_far.reasons) == {"too_long"}


def cerebras(texts: Sequence[list[int]], need: int, keeps: str, max_turn_length: int) -> list[list[int]] | None:
    """Cerebras Model Zoo's first part of `truncate_to_msl`, by its description: the longest prompt first, down to max_turn_length, on the end
    that keep_start or keep_end does not name. Its sum over all texts counts those that are shorter as less than nothing; here as nothing."""
    left = [list(each) for each in texts]
    for each in sorted(left, key=len, reverse=True):
        while need and len(each) > max_turn_length:
            each.pop(-1 if keeps == "keep_start" else 0)
            need -= 1
    return None if need else left


TEXTS = st.lists(st.integers(0, 12), min_size=1, max_size=5)


@settings(max_examples=examples(150))
@given(TEXTS, st.integers(1, 30), st.sampled_from(["keep_start", "keep_end"]), st.integers(1, 8))
def test_prompts_are_shortened_as_cerebras_means_it(lengths: list[int], need: int, mode: str, least: int) -> None:
    numbers = iter(range(100))
    texts = [[next(numbers) for _ in range(count)] for count in lengths]
    assume(need < sum(lengths))
    prompts = [Prompt(each[0], each[-1] + 1, "user") for each in texts if each]
    keeps = {"user": Keep(part="start" if mode == "keep_start" else "end", least=least)}
    kept = kept_tokens(sum(lengths), sum(lengths) - need, "prompt", prompts, keeps)
    expected = cerebras(texts, need, mode, least)
    found = None if kept is None else kept.nonzero()[0].tolist()
    assert found == (None if expected is None else [token for each in expected for token in each])


def test_turns_go_no_further_where_the_newest_rounds_train_nothing(bound: Bound) -> None:
    """The last round alone has nothing to train, which is no reason to drop more than one round."""
    rounds = [turn(USER, "One"), turn(ASSISTANT, LONG), turn(USER, "Two"), turn(ASSISTANT, "2")]
    untrained = [
        turn(role, content, loss_weight=0.0) for role, content in ((USER, "Three"), (ASSISTANT, "3"), (USER, "Four"), (ASSISTANT, "4"))
    ]
    sample = Sample((*rounds, *untrained))
    found = run(bound, [sample], max_seq_len=length(bound, sample) - 1, truncation="turns")
    assert found.kept == [0]
    assert trained(bound, found) == ["2<|im_end|>"]


def test_turns_count_control_tokens_once(bound: Bound) -> None:
    sample = chat("<|im_end|>", LONG, "Two", LONG, "Three <|im_end|>", "3")
    found = run(bound, [sample], max_seq_len=length(bound, sample) - 1, truncation="turns")
    assert (found.kept, found.control_tokens) == ([0], 2)


@pytest.mark.parametrize("mode", ["end", "start"])
def test_nothing_to_train(bound: Bound, mode: str) -> None:
    """What is left is a question, from either side."""
    sample = chat(LONG, "Hi", LONG) if mode == "start" else chat(LONG, "Hi")
    assert set(run(bound, [sample], max_seq_len=8, truncation=mode).reasons) == {"nothing_to_train"}


# invariants

CONTENT = st.lists(st.sampled_from(["word", " two", " 中文", "👩‍🚀", " <|im_end|>", ".", "\n", " 12"]), max_size=8).map("".join)
CHATS = st.builds(
    lambda head, rounds: Sample((*head, *(each for pair in rounds for each in pair))),
    st.lists(CONTENT.map(lambda content: turn(SYSTEM, content)), max_size=1),
    st.lists(
        st.tuples(CONTENT.map(lambda content: turn(USER, content)), CONTENT.map(lambda content: turn(ASSISTANT, content))),
        min_size=1,
        max_size=4,
    ),
)


KEEPS = st.dictionaries(
    st.sampled_from([USER, ASSISTANT]), st.builds(Keep, part=st.sampled_from(["start", "end"]), least=st.integers(1, 5)), max_size=2
)


@settings(max_examples=examples(120), deadline=None)
@given(CHATS, st.integers(1, 80), st.sampled_from(["drop", "end", "start", "turns", "prompt"]), st.booleans(), KEEPS, st.booleans())
def test_what_is_left(sample: Sample, limit: int, mode: str, keep_stop: bool, keeps: Mapping[str, Keep], stops: bool) -> None:
    bound, options = chatml.bound(), with_options(train_on_eos="turn" if stops else "none")
    whole = run(bound, [sample], options, trains=False)
    assume(whole.kept)
    ids, loss = whole.ids(0).tolist(), whole.loss(0).tolist()
    found = run(bound, [sample], options, max_seq_len=limit, truncation=mode, keep_stop=keep_stop, keeps=keeps)
    if not found.kept:
        assert _refusal_is_right(bound, sample, limit, mode, ids, loss, found)
        return
    left, weights = found.ids(0).tolist(), found.loss(0).tolist()
    assert len(left) <= limit or len(ids) <= limit
    assert any(weights)
    assert found.encoded.taken.tolist() == [len(ids) - len(left)]
    if len(ids) <= limit:
        assert (left, weights) == (ids, loss)
    elif mode == "end":
        stop = bound.vocabulary.control["<|im_end|>"]
        assert weights == loss[:limit]
        assert left[:-1] == ids[: limit - 1]
        assert left[-1] == (stop if keep_stop and stops and weights[-1] else ids[limit - 1])
    elif mode == "start":
        assert (left, weights) == (ids[-limit:], loss[-limit:])
    elif mode == "prompt":
        assert len(left) == limit
        assert [token for token, weight in zip(left, weights, strict=True) if weight] == [t for t, w in zip(ids, loss, strict=True) if w]
        assert _is_subsequence(left, ids)
        control = set(bound.vocabulary.control.values())
        assert [token for token in left if token in control] == [token for token in ids if token in control]
    else:
        assert left == run(bound, [_without_rounds(sample, _fewest(bound, sample, limit))]).ids(0).tolist()


def _refusal_is_right(bound: Bound, sample: Sample, limit: int, mode: str, ids: list[int], loss: list[float], found: Outcome) -> bool:
    (reason,) = found.reasons
    if len(ids) <= limit:
        return reason == "nothing_to_train" and not any(loss)
    if mode == "drop":
        return reason == "too_long"
    if mode in ("end", "start"):
        return reason == "nothing_to_train" and not any(loss[:limit] if mode == "end" else loss[-limit:])
    if mode == "turns":
        fewest = _fewest(bound, sample, limit)
        if fewest is None:
            return reason == "too_long"
        return reason == "nothing_to_train" and not run(bound, [_without_rounds(sample, fewest)]).kept
    return reason == ("too_long" if any(loss) else reason) and reason in ("too_long", "nothing_to_train")


def _without_rounds(sample: Sample, count: int) -> Sample:
    """Each round is two turns here."""
    head = [each for each in sample.turns if each.role == SYSTEM]
    return Sample((*head, *[each for each in sample.turns if each.role != SYSTEM][2 * count :]))


def _fewest(bound: Bound, sample: Sample, limit: int) -> Any:
    """How many rounds have to go, tried one after the other; `None` where one round is too long."""
    rounds = sum(each.role == USER for each in sample.turns)
    return next((count for count in range(rounds) if length(bound, _without_rounds(sample, count)) <= limit), None)


def _is_subsequence(some: Sequence[int], of: Sequence[int]) -> bool:
    rest = iter(of)
    return all(token in rest for token in some)


# preference pairs


def test_pairs_that_are_too_long_are_refused_as_pairs(tmp_path: Path) -> None:
    """Preference pairs are never cut, so no cut can make two answers equal; one side that is too long takes the other with it."""
    rows = [{"prompt": "Hi", "chosen": LONG + " yes", "rejected": LONG + " no"}, {"prompt": "Hi", "chosen": "Yes", "rejected": "No"}]
    store = _tokenized(tmp_path, [*rows, {"prompt": "Hm?", "chosen": "Yes", "rejected": LONG}], "chatml")
    assert [len(open_stream(store.directory, side)) for side in ("chosen", "rejected")] == [1, 1]
    assert {refusal.reason for refusal in refusals(store)} == {"too_long"}
    assert len(refusals(store)) == 2


def test_pairs_that_the_template_makes_equal_are_refused(tmp_path: Path) -> None:
    """The template trims, and white space is all in which the answers differ."""
    rows = [{"prompt": "Hi", "chosen": "Yes", "rejected": "Yes \n"}, {"prompt": "Hi", "chosen": "Yes", "rejected": "No"}]
    (tmp_path / "configs").mkdir()
    trimming = chatml.SOURCE.strip().replace("{{- m.content -}}", "{{- m.content | trim -}}")
    (tmp_path / "configs" / "trimming.jinja").write_text(trimming)
    store = _tokenized(tmp_path, rows, "trimming.jinja")
    assert [len(open_stream(store.directory, side)) for side in ("chosen", "rejected")] == [1, 1]


def _tokenized(tmp_path: Path, rows: list[dict[str, str]], template: str) -> Any:
    domain = {"files": [str(jsonl(tmp_path / "pairs.jsonl", rows))], "schema": "preference"}
    options = {"template": template, "test_fraction": 0.0, "shuffle": False, "preprocessing": {"max_seq_len": 20}}
    workspace = workspace_in(tmp_path, minimal("preference", {"pairs": domain}, **options))
    build(workspace, "preference_raw", "pairs")
    build(workspace, "preferences_by_domain", "pairs")
    return build(workspace, "preference_tokens_by_domain", "pairs")


# -- Rows at the limit are proven as exactly as others: what is left of them, and nothing else, passes ------------------------------------

MODES = ["end", "start", "turns", "prompt"]


def verdicts(
    bound: Bound, sample: Sample, truncation: Truncation, ids: Any, mask: Any, options: MaskOptions | None = None
) -> tuple[bool, bool]:
    """Whether mask and ids of a row are proven."""
    policy = options or MaskOptions()
    left = left_of(sample, len(ids), truncation, lambda each: derive(each, policy, bound.template), bound.vocabulary)
    rows = [Conversation("row", ids, mask, left)]
    return prove_masks(rows, bound.vocabulary).passed, prove_identity(rows, bound.vocabulary).passed


@settings(max_examples=examples(150))
@given(CHATS, st.integers(4, 80), st.sampled_from(MODES), st.booleans(), KEEPS)
def test_what_is_left_is_proven(sample: Sample, limit: int, mode: str, keep_stop: bool, keeps: Mapping[str, Keep]) -> None:
    bound = chatml.bound()
    found = run(bound, [sample], max_seq_len=limit, truncation=mode, keep_stop=keep_stop, keeps=keeps)
    assume(found.kept)
    truncation = Truncation(mode, limit, keep_stop, {role: each.model_dump() for role, each in keeps.items()})
    assert verdicts(bound, sample, truncation, found.ids(0), found.loss(0)) == (True, True)
    left = left_of(sample, len(found.ids(0)), truncation, lambda each: derive(each, MaskOptions(), bound.template), bound.vocabulary)
    assert left.taken == found.encoded.taken[0]


@settings(max_examples=examples(100))
@given(CHATS, st.integers(8, 80), st.sampled_from(MODES), st.booleans(), st.data())
def test_any_other_mask_is_found(sample: Sample, limit: int, mode: str, keep_stop: bool, data: st.DataObject) -> None:
    """One token more or fewer is trained, unless it is white space beside what is trained."""
    bound = chatml.bound()
    found = run(bound, [sample], max_seq_len=limit, truncation=mode, keep_stop=keep_stop)
    assume(found.kept)
    ids = found.ids(0)
    at = data.draw(st.sampled_from([at for at in range(len(ids)) if bound.vocabulary.decode(ids[at : at + 1]).strip(" \n\ufffd")]))
    mask = found.loss(0).copy()
    mask[at] = 1 - mask[at]
    assert not verdicts(bound, sample, Truncation(mode, limit, keep_stop), found.ids(0), mask)[0]


def test_all_prompts_reversed(bound: Bound) -> None:
    """Audit W2: with `turns` nothing of a row was compared with its source, even where nothing was cut."""
    sample = chat("One two three", LONG, "Four five six", LONG)
    found = run(bound, [sample], max_seq_len=500, truncation="turns")
    swapped = found.ids(0).copy()
    start = int(np.flatnonzero(found.loss(0))[0])
    swapped[:start] = swapped[:start][::-1]
    truncation = Truncation("turns", 500)
    assert verdicts(bound, sample, truncation, found.ids(0), found.loss(0)) == (True, True)
    assert verdicts(bound, sample, truncation, swapped, found.loss(0)) == (True, False)


def test_a_round_too_few(bound: Bound) -> None:
    """More rounds are gone than must be."""
    sample = chat("One", LONG, "Two", LONG, "Three", "3")
    limit = len(run(bound, [sample]).ids(0)) - 1
    fewer = run(bound, [chat("Three", "3")])
    assert verdicts(bound, sample, Truncation("turns", limit), fewer.ids(0), fewer.loss(0)) == (False, False)


def test_a_shortened_prompt_that_lost_something_else(bound: Bound) -> None:
    """With `prompt`, the end of the longest question goes, and neither its beginning nor a header."""
    sample = Sample((turn(SYSTEM, "Be brief."), turn(USER, "one two three four five six"), turn(ASSISTANT, "Well.")))
    whole = run(bound, [sample])
    limit = len(whole.ids(0)) - 2
    found = run(bound, [sample], max_seq_len=limit, truncation="prompt")
    assert verdicts(bound, sample, Truncation("prompt", limit), found.ids(0), found.loss(0)) == (True, True)
    header = int(np.flatnonzero(whole.ids(0) == bound.vocabulary.control["<|im_start|>"])[1])
    for gone in (slice(0, 2), slice(header + 1, header + 3)):
        ids, mask = np.delete(whole.ids(0), gone), np.delete(whole.loss(0), gone)
        assert not verdicts(bound, sample, Truncation("prompt", limit), ids, mask)[1]


@pytest.mark.parametrize("changed", [{"part": "start"}, {"least": 5}, {"least": 3}])
def test_another_part_of_a_prompt_is_found(bound: Bound, changed: dict[str, Any]) -> None:
    """The proof follows what the recipe says of each role: the other end, or a text more or less, is another row."""
    sample = chat(LONG, "1", "b" + " b" * 14, "2")
    keeps: dict[str, Any] = {"part": "end", "least": 4}
    limit = len(run(bound, [sample]).ids(0)) - 20
    found = run(bound, [sample], max_seq_len=limit, truncation="prompt", keeps={"user": Keep(**keeps)})
    said, wrong = (Truncation("prompt", limit, keeps={"user": each}) for each in (keeps, {**keeps, **changed}))
    assert verdicts(bound, sample, said, found.ids(0), found.loss(0)) == (True, True)
    assert not verdicts(bound, sample, wrong, found.ids(0), found.loss(0))[1]


PARTS = st.lists(st.sampled_from(["one two three four five", " 1 2\n3 4 ", "a b c", "\u00d9\U0003d66c"]), min_size=1, max_size=2)


@settings(max_examples=examples(60))
@given(st.data(), st.sampled_from(["qwen3", "glm4"]), st.integers(1, 12), st.sampled_from(["no reasoning", "no tool calls", "last turn"]))
def test_reasoning_and_calls_are_never_shortened(data: st.DataObject, template: str, less: int, policy: str) -> None:
    """Untrained reasoning and calls stay whole, and so does what a template writes around an untrained answer: both derivations say so."""
    bound, options = bind(SHIPPED, template), POLICIES[policy]
    weight = st.sampled_from([None, 0.0])

    def text(kind: str = TEXT) -> tuple[Region, ...]:
        return tuple(Region(kind, each, data.draw(weight)) for each in data.draw(PARTS))

    call = Region(TOOL_CALL, '{"name": "get", "arguments": {"city": "one two three four"}}')
    thought = text(THINKING)[:1] if template == "qwen3" else ()
    acting = (Turn(ASSISTANT, (*thought, call)), Turn(TOOL, text())) if data.draw(st.booleans()) else ()
    asked = [Turn(USER, text()), Turn(ASSISTANT, text()), Turn(USER, text()), *acting, Turn(ASSISTANT, (*thought, *text()))]
    sample = Sample(tuple(asked))
    whole = run(bound, [sample], options)
    assume(whole.kept)
    limit = len(whole.ids(0)) - less
    found = run(bound, [sample], options, max_seq_len=limit, truncation="prompt")
    assume(found.kept)
    assert verdicts(bound, sample, Truncation("prompt", limit), found.ids(0), found.loss(0), options) == (True, True)
    shown = bound.vocabulary.decode(found.ids(0))
    kept = [bound.vocabulary.decode(whole.ids(0)).count(each) == shown.count(each) for each in ('one two three four"}', "</think>", "<|")]
    assert all(kept)
