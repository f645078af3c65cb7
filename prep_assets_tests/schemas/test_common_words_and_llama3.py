"""Two hooks that take text apart: by common words, and by Llama 3's headers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with

COMMON = {"the", "be", "to", "of", "and", "a", "in", "that", "have", "I", "am"}


def chunks_of_the_hook(text: str) -> list[tuple[str, float]]:
    """Word by word: a chunk ends where a common word follows an uncommon one or the other way round."""
    chunks: list[tuple[str, float]] = []
    for word in text.split():
        weight = 0.0 if word in COMMON else 1.0
        if chunks and chunks[-1][1] == weight:
            chunks[-1] = (f"{chunks[-1][0]} {word}", weight)
        else:
            chunks.append(((" " if chunks else "") + word, weight))
    return chunks


def regions(row, name="common_words_mask", **options):
    completion = apply(convert_with(name, options), row).turns[1]
    return [(region.text, region.loss_weight) for region in completion.regions]


words = st.lists(st.sampled_from([*sorted(COMMON), "The", "cat", "x.", "am,"]), min_size=1, max_size=12)


def two_messages(answer: str, **more: Any) -> dict[str, Any]:
    return {"prompt": "p", "messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": answer, **more}]}


@given(words)
def test_single_spaced_text_gives_the_hooks_chunks(chosen: list[str]) -> None:
    text = " ".join(chosen)
    expected = chunks_of_the_hook(text)
    assert regions({"prompt": "p", "completion": text}) == expected
    assert regions(two_messages(text), "ultra_chat_common_words_mask_hook") == expected


@given(st.text(alphabet=" \n\tabtheI.", max_size=40).filter(str.strip))
def test_no_character_is_lost_or_changed(text: str) -> None:
    assert "".join(chunk for chunk, _ in regions({"prompt": "p", "completion": text})) == text


def test_words_of_ones_own() -> None:
    assert regions({"prompt": "p", "completion": "yes no yes"}, words=["no"]) == [("yes", 1.0), (" no", 0.0), (" yes", 1.0)]


def test_common_words_refusals(refusal) -> None:
    assert refusal("common_words_mask", {"prompt": "p", "completion": " "}).reason == "empty_answer"
    assert refusal("ultra_chat_common_words_mask_hook", {"prompt": "p", "messages": [{}]}).reason == "no_assistant_turn"
    assert refusal("ultra_chat_common_words_mask_hook", {"prompt": "p", "messages": [{}, 5]}).reason == "wrong_type"


def test_a_chat_is_not_cut_to_its_first_exchange_unless_somebody_says_so(convert, refusal) -> None:
    """Audit W19: tool calls, weights and later messages went without a word."""
    hook, row = "ultra_chat_common_words_mask_hook", two_messages("yes")
    longer = {**row, "messages": [*row["messages"], {"role": "user", "content": "why?"}]}
    assert refusal(hook, longer).reason == "later_messages"
    assert convert(hook, longer, later_messages="leave_out") == convert(hook, row)
    assert refusal(hook, two_messages("yes", weight=0)).reason == "unsupported_column"
    assert refusal(hook, two_messages("yes", tool_calls=[{"name": "f"}])).reason == "unsupported_column"
    assert refusal(hook, {**row, "prompt": "q"}).reason == "prompts_differ"
    assert refusal(hook, {**row, "messages": row["messages"][::-1]}).reason == "role_order"


def header(role: str, text: str, end: str = "<|eot_id|>") -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}{end}"


def test_llama3_text_is_read_back(convert, said) -> None:
    text = "<|begin_of_text|>" + header("system", " s ") + header("user", "q\n\nq") + header("assistant", " a\n")
    for name, key in (("llama3_chat", "text_key"), ("llama3_1_chat_formatted_data_hook", "chat_key")):
        assert said(convert(name, {"t": text}, **{key: "t"}).turns) == [("system", "s"), ("user", "q\n\nq"), ("assistant", "a")]
    assert said(convert("llama3_chat", {"text": text}, strip=False).turns)[2] == ("assistant", " a\n")


def test_llama3_tool_turns_end_with_eom(convert, said) -> None:
    text = header("user", "q") + header("assistant", "<|python_tag|>f()", "<|eom_id|>") + header("ipython", "4") + header("assistant", "a")
    assert [role for role, _ in said(convert("llama3_chat", {"text": text}).turns)] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hello", "leftover_text"),
        ("", "empty_text"),
        ("<|begin_of_text|>", "no_assistant_turn"),
        ("x" + header("user", "q") + header("assistant", "a"), "leftover_text"),
        (header("user", "q") + "between" + header("assistant", "a"), "leftover_text"),
        (header("user", "q") + header("assistant", "a", ""), "leftover_text"),
        (header("user", "q"), "no_assistant_turn"),
        (header("narrator", "q") + header("assistant", "a"), "unknown_role"),
        (header("user", "q") + header("assistant", " "), "empty_answer"),
    ],
)
def test_llama3_refuses_what_it_would_lose(refusal, text, reason) -> None:
    assert refusal("llama3_chat", {"text": text}).reason == reason
