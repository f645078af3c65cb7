"""Bugs planted in code that builds and judges rejections again: right rows that are rejected, wrong rows that are kept. `selection` must see each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from prep_assets.checks.rejections import rulings
from prep_assets.errors import CheckFailed, Refused
from prep_assets.extensions.contrastive import schema as contrastive
from prep_assets.extensions.lines import write as lines
from prep_assets.extensions.preference import schemas as preference
from prep_assets.extensions.preprocess import handlers
from prep_assets.extensions.rl import schemas as rewards
from prep_assets.graph.graph import CHECKS, run_check, store_of
from prep_assets.pipeline.conversations import Conversations
from prep_assets.pipeline.examples import Item
from prep_assets.schemas import instructions, messages, turns
from prep_assets.text.template import ChatTemplate
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, refusals

Row = Mapping[str, Any]
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"n": 4}'}}


def chat(number: int, answer: str = "It is.") -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"Is it {number}?"}, {"role": "assistant", "content": answer}]}


def called(number: int) -> dict[str, Any]:
    asked = {"role": "user", "content": f"Look up {number}."}
    answers = [{"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "content": "4", "tool_call_id": "c1"}]
    return {"messages": [asked, *answers, {"role": "assistant", "content": "It is 4."}]}


ROWS: Mapping[str, tuple[str, str, Sequence[Row]]] = {
    "chats": ("sft_tokens", "messages", [*map(chat, range(6)), *map(called, range(6))]),
    "alpaca": ("sft_tokens", "alpaca", [{"instruction": f"Add {n}.", "input": "to 1" * (n % 2), "output": str(n + 1)} for n in range(6)]),
    "documents": (
        "pretrain_tokens",
        "StackOverflowPythonPretrainHandler",
        [{"title": f"Sort {n} lists", "question_body": "How?", "answer_body": "Call sorted."} for n in range(6)],
    ),
    "pairs": ("preferences_by_domain", "preference", [{"prompt": f"{n}?", "chosen": "yes", "rejected": "no"} for n in range(6)]),
    "prompts": ("rl_prompts_by_domain", "rl_prompt", [{"prompt": f"{n} + 1?", "gold": str(n + 1)} for n in range(6)]),
    "queries": ("contrastive", "contrastive", [{"query": f"{n}?", "pos": [f"It is {n}."], "neg": ["Blue."]} for n in range(6)]),
}


def built(make: Make, folder: Path, kind: str, *more: Row) -> Any:
    asset, schema, rows = ROWS[kind]
    family = asset.partition("_")[0].replace("preferences", "preference")
    options = {"template": "qwen3"} if family == "sft" else {}
    workspace = make(minimal(family, {"a": domain(jsonl(folder / "a.jsonl", [*rows, *more]), schema)}, test_fraction=0.0, **options))
    return workspace, asset, lambda: build(workspace, asset, "a")


def refusing(reason: str, *, stage: str | None = None) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise Refused(reason, "planted", stage=stage)

    return refuse


def some(function: Callable[..., Any], reason: str, lost: Callable[..., bool]) -> Callable[..., Any]:
    """`function`, which also rejects what is `lost`."""

    def refuse(*args: Any, **options: Any) -> Any:
        if lost(*args, **options):
            raise Refused(reason, "planted")
        return function(*args, **options)

    return refuse


def has_results(listed: Sequence[Any], *_: Any) -> bool:
    return any(turn.role == "tool" for turn in listed)


LOST: Mapping[str, tuple[str, Any, str, Callable[..., Any], str]] = {
    "results": (
        "chats",
        turns,
        "_with_results",
        some(turns._with_results, "unanswered_tool_call", has_results),
        "no 'unanswered_tool_call'",
    ),
    "order": ("chats", turns, "_with_results", some(turns._with_results, "role_order", has_results), "no 'role_order'"),
    "calls": ("chats", turns, "call_texts", refusing("bad_tool_call"), "no 'bad_tool_call'"),
    "contents": (
        "chats",
        turns,
        "_require_content",
        some(turns._require_content, "empty_answer", lambda role, *_: role == "tool"),
        "no rule",
    ),
    "answers": ("chats", messages, "require_answer", some(messages.require_answer, "no_assistant_turn", has_results), "no rule"),
    "input": (
        "alpaca",
        instructions,
        "_optional",
        some(instructions._optional, "wrong_type", lambda row, key: bool(row.get(key))),
        "no 'wrong_type'",
    ),
    "titles": ("documents", handlers, "needed", some(handlers.needed, "empty_text", lambda text, *_: "3" in text), "no rule"),
    "sides": (
        "pairs",
        preference,
        "pair_of",
        some(preference.pair_of, "equal_answers", lambda row, *_, **__: row["prompt"] == "0?"),
        "no 'equal_answers'",
    ),
    "columns": (
        "pairs",
        preference,
        "value_at",
        some(preference.value_at, "missing_field", lambda row, key: key == "chosen" and row["prompt"] == "0?"),
        "no 'missing_field'",
    ),
    "golds": ("prompts", rewards, "plain_number", some(rewards.plain_number, "bad_gold", lambda text: text == "4"), "no 'bad_gold'"),
    "passages": (
        "queries",
        contrastive,
        "_as_texts",
        some(contrastive._as_texts, "empty_text", lambda value, _: "It is 3." in value),
        "no rule",
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_right_rows_that_a_schema_rejects_are_seen(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kind, module, attribute, planted, says = LOST[name]
    _, _, make_store = built(make, tmp_path, kind)
    monkeypatch.setattr(module, attribute, planted)
    with pytest.raises(CheckFailed, match=f"selection: .*does not hold: .*{says}"):
        make_store()


@pytest.mark.parametrize("reason", ["template_refuses", "template_drops_content", "mask_not_provable"])
def test_right_rows_that_a_render_rejects_are_seen(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    encode = Conversations.encode

    def planted(self: Conversations, items: Sequence[Item]) -> Any:
        lost = {item.id for item in items if item.example.turns[0].text == "Is it 3?"}  # type: ignore[union-attr]
        for item in items:
            if item.id in lost:
                item.reject(self.quarantine, Refused(reason, "planted", stage="render"))
        return encode(self, [item for item in items if item.id not in lost])

    _, _, make_store = built(make, tmp_path, "chats")
    monkeypatch.setattr(Conversations, "encode", planted)
    with pytest.raises(CheckFailed, match=r"selection: 1 faults; first a\.jsonl:4 is refused for render/"):
        make_store()


WRONG: Mapping[str, tuple[str, Row, Any, str, Callable[..., Any]]] = {
    "empty turn": (
        "chats",
        {"messages": [{"role": "user", "content": " "}, {"role": "assistant", "content": "a"}]},
        turns,
        "_require_content",
        lambda *_: None,
    ),
    "results": (
        "chats",
        {"messages": [chat(1)["messages"][0], {"role": "tool", "content": "4"}, chat(1)["messages"][1]]},
        turns,
        "_with_results",
        lambda listed, _: tuple(listed),
    ),
    "no question": ("alpaca", {"instruction": " ", "output": "a"}, instructions, "needed", lambda text, *_: text or "?"),
    "golds": ("prompts", {"prompt": "q", "gold": "1/2"}, rewards, "plain_number", lambda text: "2" if text == "1/2" else text),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rows_that_a_schema_takes_are_seen(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kind, row, module, attribute, planted = WRONG[name]
    _, _, make_store = built(make, tmp_path, kind, row)
    monkeypatch.setattr(module, attribute, planted)
    with pytest.raises(CheckFailed, match=r"selection: .*is taken by its schema, but"):
        make_store()


def rejected_rows() -> Iterator[tuple[Row, str]]:
    yield {"messages": [{"role": "user", "content": "q"}]}, "schema/no_assistant_turn"
    yield {"messages": [*called(1)["messages"][:2], {"role": "assistant", "content": "a"}]}, "schema/unanswered_tool_call"
    yield {"messages": [*chat(2)["messages"], *chat(3)["messages"]], "tools": "{"}, "schema/bad_tools"


def test_wrong_rows_are_rejected_by_other_code_too(make: Make, tmp_path: Path) -> None:
    workspace, asset, make_store = built(
        make,
        tmp_path,
        "chats",
        *(row for row, _ in rejected_rows()),
        {**chat(9), "weight": 1e-20, "messages": [chat(9)["messages"][0], {**chat(9)["messages"][1], "weight": 1e-20}]},
    )
    published = make_store()
    assert [f"{r.stage}/{r.reason}" for r in refusals(published)] == [*(reason for _, reason in rejected_rows()), "schema/bad_weight"]
    selection = next(check for check in CHECKS[asset] if check.name == "selection")
    verdict = run_check(selection, workspace, published)
    assert verdict.passed and verdict.numbers["rejections_repeated"] == 1  # the product of two weights
    assert verdict.summary.endswith("; 1 rejections repeated by the same code")


def test_a_template_that_is_given_one_tool_of_several_is_seen(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = ChatTemplate.render_variables

    def planted(self: ChatTemplate, listed: Any, tools: Sequence[Any] = (), *more: Any) -> Any:
        return variables(self, listed, list(tools)[:1], *more)

    tools = [{"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": {}}} for name in ("f", "g")]
    _, _, make_store = built(make, tmp_path, "chats", {**called(9), "tools": tools})
    monkeypatch.setattr(ChatTemplate, "render_variables", planted)
    with pytest.raises(
        CheckFailed, match="template_drops_tools, which does not hold: transformers renders it, with names and descriptions of all"
    ):
        make_store()


# One prompt with two golds, each in a row that is right by itself.


def test_a_prompt_with_two_golds_is_rejected(make: Make, tmp_path: Path) -> None:
    asked = {"prompt": [{"role": "user", "content": "3 + 1?"}]}
    told = {"prompt": [{"role": "system", "content": "Be brief."}, *asked["prompt"]], "gold": "6"}
    more = [{**asked, "gold": "5"}, {"prompt": "2 + 1?", "gold": "3.0"}, told]
    *_, build_it = built(make, tmp_path, "prompts", *more)
    published = build_it()
    assert {each.id: (each.stage, each.reason) for each in refusals(published)} == dict.fromkeys(
        ["a.jsonl:4", "a.jsonl:7"], ("prompt", "contradicting_golds")
    )
    assert published.manifest.counts["kept"] == 7


def test_golds_that_a_build_keeps_or_rejects_wrongly_are_seen(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, build_it = built(make, tmp_path, "prompts", {"prompt": "3 + 1?", "gold": "5"})
    with monkeypatch.context() as patch, pytest.raises(CheckFailed, match=r"prompt_sanity.*the same prompt has another gold as well"):
        patch.setattr(lines.Claims, "check", lambda self, rows: None)
        build_it()
    right = lines.Claims.check

    def check(self: lines.Claims, rows: Sequence[Row]) -> None:
        right(self, rows)
        if rows[0]["prompt"] == "1 + 1?":
            raise Refused("contradicting_golds", "planted", stage="prompt")

    with monkeypatch.context() as patch, pytest.raises(CheckFailed, match=r"selection.*a.jsonl:2 .*nothing is wrong with it"):
        patch.setattr(lines.Claims, "check", check)
        build_it()


RULED: Sequence[tuple[str, str, Row, str | None]] = [
    ("chats", "render/control_token_in_content", chat(1), "none of its texts holds a control token"),
    ("chats", "render/control_token_in_content", chat(1, "<|im_end|>"), ""),
    ("chats", "render/mask_not_provable", chat(1), "transformers renders it, and the generation tags of its template say what is trained"),
    ("chats", "tokenize/lossy_tokenizer", chat(1), None),
    ("chats", "reasoning/bad_typed_call", chat(1), "what stands between the tags of calls is JSON of a name and of arguments"),
    ("chats", "reasoning/empty_answer", chat(1), "an answer stands behind the reasoning of every turn"),
    ("chats", "reasoning/empty_answer", chat(1, "<think>Hm.</think>"), ""),
    ("chats", "reasoning/conflicting_reasoning", chat(1), "the reasoning in the text of each answer is that beside it"),
    ("chats", "elsewhere/unknown", chat(1), None),
    ("documents", "tokenize/lossy_tokenizer", ROWS["documents"][2][0], "the ids of each of its texts decode to the text"),
    ("documents", "pretrain/too_short", ROWS["documents"][2][0], None),
    ("pairs", "schema/empty_answer", {"prompt": "1?", "chosen": "yes", "rejected": "no"}, "each side has a text"),
    ("pairs", "schema/empty_answer", {"prompt": "1?", "chosen": "yes", "rejected": " "}, ""),
    ("pairs", "schema/empty_answer", {"prompt": "1?", "chosen": "yes", "rejected": "yes "}, None),
]


def test_what_is_said_of_rejections(make: Make, tmp_path: Path) -> None:
    for kind in ("chats", "documents", "pairs"):
        workspace, _, make_store = built(make, tmp_path, kind)
        judge = rulings(store_of(workspace, make_store()))
        for why, row, says in ((why, row, says) for of, why, row, says in RULED if of == kind):
            assert judge(why, row) == says, (why, row)
