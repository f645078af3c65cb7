"""The registry, functions of one's own, names of speakers, and rows that bring token ids."""

from __future__ import annotations

import inspect
import json
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.config.family import Domain
from prep_assets.errors import ConfigError, Refused
from prep_assets.extensions.start.sniff import sniff
from prep_assets.pipeline.examples import converter
from prep_assets.proofs.tokenized import tokenized_again
from prep_assets.samples import (
    ASSISTANT,
    IMAGE,
    SYSTEM,
    TEXT,
    THINKING,
    TOOL_CALL,
    USER,
    Contrast,
    Example,
    Group,
    Pair,
    PlainChat,
    Prompt,
    Region,
    Sample,
    Turn,
    document,
    turn,
)
from prep_assets.schemas import registry
from prep_assets.schemas.fields import text_of
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with, schema, schemas
from prep_assets_tests.cells import cells
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in
from prep_assets_tests.schemas.conftest import in_short

# Names, aliases, options and their types.


@cells("name", list(schemas()))
def test_the_example_row_becomes_what_the_schema_says_it_gives(name: str) -> None:
    found = schemas()[name]
    example = apply(convert_with(name), found.example)
    assert isinstance(example, found.gives)
    assert [form for form in (Sample, Pair, Prompt, Group, Contrast) if found.can_give(form) and isinstance(example, form)] == [
        type(example)
    ]


@cells("name", list(schemas()))
def test_options_are_keyword_only_have_defaults_and_are_explained(name: str) -> None:
    found = schemas()[name]
    explained = inspect.getdoc(found.factory) or ""
    for option, parameter in found.options.items():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default is not inspect.Parameter.empty
        assert f"\n    {option}: " in explained, option
    assert found.summary


@pytest.mark.parametrize("name", [name for name in schemas() if name.endswith("_hook")])
def test_hooks_name_their_columns_as_cerebras_does(name: str) -> None:
    """There every keyword that names a column of the input ends in ``_key``."""
    others = {"image_token", "phase", "image_dir", "assistant_role", "later_messages", "separator"}
    assert all(option.endswith("_key") or option in others for option in schemas()[name].options)


def test_an_unknown_schema_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no schema 'alpacca'; did you mean 'alpaca'\?.*'package.module:function'"):
        convert_with("alpacca")


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"has no option 'text_kee'; did you mean 'text_key'\? Allowed: text_key, min_chars"):
        convert_with("text", {"text_kee": "x"})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("text", {"min_chars": "50"}),
        ("text", {"strip": 1}),
        ("alpaca", {"prompt_key": None}),
        ("hh", {"prompt_check": "lenient"}),
        ("llava", {"phase": 3}),
        ("common_words_mask", {"words": "the"}),
        ("semantic", {"semantic_loss_weight": {"text": "high"}}),
        ("messages", {"roles": ["human"]}),
    ],
)
def test_an_option_of_the_wrong_type_is_refused_before_any_row(name: str, options: dict[str, Any]) -> None:
    (option,) = options
    with pytest.raises(ConfigError, match=f"schema '{name}', option '{option}' = "):
        convert_with(name, options)


@pytest.mark.parametrize(
    ("name", "form", "row"),
    [
        ("gsm8k", Prompt, {"question": "q", "answer": "1 + 1 = 2\n#### 2"}),
        ("gsm8k_prompt", Prompt, {"question": "q", "answer": "#### 2"}),
        ("gsm8k", Sample, {"question": "q", "answer": "1 + 1 = 2\n#### 2"}),
        ("alpaca", Pair, {"instruction": "q", "chosen": "a", "rejected": "b"}),
        ("sharegpt", Pair, schemas()["sharegpt_pairwise"].example),
        ("sections", Sample, schemas()["sections"].example),
    ],
)
def test_the_variant_that_gives_what_is_needed_is_taken(name: str, form: type, row: dict[str, Any]) -> None:
    assert isinstance(apply(convert_with(name, gives=form), row), form)


def test_a_schema_that_cannot_give_what_is_needed_is_an_error() -> None:
    with pytest.raises(
        ConfigError,
        match=r"schema 'text' gives no Prompt, which is needed here\. These do: PPOAlpacaStyle.*, arithmetic, gsm8k_prompt, rl_prompt",
    ):
        convert_with("text", gives=Prompt)


def test_one_name_cannot_be_registered_twice() -> None:
    with pytest.raises(ConfigError, match="'text' is registered twice"):
        schema("text", gives=Sample, example={})(lambda: document)
    with pytest.raises(ConfigError, match="'GeneralPretrainHandler' is registered twice"):
        schema("another", gives=Sample, example={}, aliases=("GeneralPretrainHandler",))(lambda: document)
    assert "another" not in registry.schemas()


@pytest.fixture
def own_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("my_schemas")
    monkeypatch.setitem(sys.modules, "my_schemas", module)
    return module


def test_a_function_of_ones_own_is_found_by_its_path(own_module: ModuleType) -> None:
    own_module.read = lambda row, key="body": document(text_of(row, key))  # type: ignore[attr-defined]
    assert apply(convert_with("my_schemas:read", {"key": "t"}), {"t": "hi"}) == document("hi")
    with pytest.raises(ConfigError, match="takes no option 'kee'"):
        convert_with("my_schemas:read", {"kee": "t"})
    with pytest.raises(ConfigError, match="'my_schemas:reed' cannot be loaded"):
        convert_with("my_schemas:reed")


def test_every_way_of_saying_no_is_a_refusal_of_stage_schema(own_module: ModuleType) -> None:
    own_module.skip = lambda row: None  # type: ignore[attr-defined]
    own_module.crash = lambda row: row["absent"]  # type: ignore[attr-defined]
    for path, reason in (("my_schemas:skip", "skipped_by_schema"), ("my_schemas:crash", "schema_error")):
        with pytest.raises(Refused) as caught:
            apply(convert_with(path), {})
        assert (caught.value.reason, caught.value.stage) == (reason, "schema")


def spaced(weight: float | None) -> Callable[[Mapping[str, Any]], Sample]:
    regions = (Region(THINKING, "Hm."), Region(TEXT, " ", weight), Region(TEXT, "Hello!"))
    return lambda row: Sample((Turn(USER, (Region(TEXT, row["q"]),)), Turn(ASSISTANT, regions)))


def test_white_space_with_a_weight_of_its_own_beside_reasoning_is_refused() -> None:
    """In a render nothing tells it from the template's white space, and it was trained against its weight."""
    with pytest.raises(Refused, match=r"white space of weight 0.0 beside a region 'thinking' of weight None") as refused:
        apply(spaced(0.0), {"q": "Hi"})
    assert refused.value.reason == "weighted_space"
    assert isinstance(apply(spaced(None), {"q": "Hi"}), Sample)


# -- which schema fits -------------------------------------------------------------------------------------------------------------------


RECOGNISED = (
    "text messages instruction alpaca dolly gsm8k sharegpt moss leetcode_python prompt_completion semantic llava image_captions interleaved hh "
    "alpaca_pairwise sharegpt_pairwise kto group arithmetic"
)


@cells("name", RECOGNISED.split())
def test_the_example_of_a_schema_is_recognised_as_its_own(name: str) -> None:
    best = sniff([schemas()[name].example] * 2)[0]
    assert (best.schema, best.fitting, best.rows, best.refusal) == (name, 2, 2, "")


def test_every_schema_is_tried_and_says_why_not() -> None:
    fits = sniff([{"text": "a"}, {"text": ""}, {"text": None}])
    assert {fit.schema for fit in fits} == set(schemas())
    assert (fits[0].schema, fits[0].fitting, fits[0].rows) == ("text", 1, 3)
    assert fits[0].refusal == "empty_text: 'text' is empty"
    assert all(fit.fitting == 0 and fit.refusal for fit in fits[2:])


def test_fields_that_a_schema_leaves_unread_are_named_and_count_against_it() -> None:
    row = {"id": 7, "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "label": True}
    fits = {fit.schema: fit for fit in sniff([row])}
    assert [(fits[name].unread, fits[name].passed_over) for name in ("kto", "messages")] == [((), ("id",))] * 2
    assert next(iter(fits)) == "kto"
    both = {"instruction": "q", "input": "", "output": "a", "chosen": "a", "rejected": "b"}
    assert [(fit.schema, fit.unread) for fit in sniff([both])[:1]] == [("alpaca_pairwise", ("output",))]


def test_fields_inside_messages_count_as_well() -> None:
    row = {"messages": [{"role": "user", "content": "q", "mood": "good"}, {"role": "assistant", "content": "a", "id": 3}]}
    (fit,) = (fit for fit in sniff([row, row]) if fit.schema == "messages")
    assert (fit.unread, fit.passed_over) == (("messages.mood",), ("messages.id",))


def test_a_schema_goes_before_another_projects_name_for_it() -> None:
    order = [fit.schema for fit in sniff([schemas()["alpaca"].example])]
    assert order[:3] == ["alpaca", "AlpacaStyleInstructionHandler", "GeneralInstructionHandler"]


# Functions of one's own, loaded by ``module:function``: read hooks as users of Cerebras Model Zoo have written them, given their kwargs; and whatever one does


def qa_hook(example: dict[str, Any], **read_hook_kwargs: Any) -> list[dict[str, Any]]:
    question = example.get(read_hook_kwargs["question_key"])
    answer = example.get(read_hook_kwargs["answer_key"])
    if not answer:
        return []
    return [
        {"type": "user", "content": [{"passage": example["passage"]}, {"question": question}], "semantic_loss_weight": [1, 0]},
        {"type": "assistant", "content": [{"answer": answer}]},
    ]


def pair_hook(example: dict[str, Any], prompt_key: str) -> list[dict[str, Any]]:
    return [
        {"type": kind, "content": [{"text": example[key]}]} for kind, key in (("prompt", prompt_key), ("chosen", "a"), ("rejected", "b"))
    ]


def token_hook(example: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "context", "content": example["ids"]}]


class Struct(msgspec.Struct):
    q: str
    a: str
    turns: list[dict[str, str]] = []


class Model(pydantic.BaseModel):
    q: str
    a: str
    turns: list[dict[str, str]] = []


def made(found: Any) -> Sample:
    return Sample((*(turn("user", each["text"]) for each in found.turns), turn("user", found.q), turn("assistant", found.a)))


HOW = {
    "msgspec": lambda row: made(msgspec.convert(row, Struct)),
    "msgspec_json": lambda row: made(msgspec.json.decode(msgspec.json.encode(row), type=Struct)),
    "pydantic": lambda row: made(Model(**row)),
    "validated": lambda row: made(Model.model_validate(row)),
    "copied": lambda row: made(types.SimpleNamespace(**{"turns": [], **dict(row)})),
    "dumped": lambda row: made(types.SimpleNamespace(**{"turns": [], **json.loads(json.dumps(row))})),
    "by_name": lambda row: made(types.SimpleNamespace(q=row["q"], a=row["a"], turns=row.get("turns", []))),
}


@pytest.fixture(autouse=True)
def own_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("own_functions")
    vars(module).update(HOW, qa_hook=qa_hook, pair_hook=pair_hook, token_hook=token_hook)
    monkeypatch.setitem(sys.modules, "own_functions", module)


ROW = {"passage": "Aspirin thins the blood.", "q": "What does it do?", "a": "It thins the blood.", "b": "Nothing."}


def test_the_semantic_data_array_of_a_hook_is_read() -> None:
    sample = apply(convert_with("own_functions:qa_hook", {"question_key": "q", "answer_key": "a"}), ROW)
    expected = "user: <passage>Aspirin thins the blood.</passage>*1<question>What does it do?</question>*0 | assistant: "
    assert in_short(sample) == expected + "<answer>It thins the blood.</answer>"
    pair = apply(convert_with("own_functions:pair_hook", {"prompt_key": "q"}), ROW)
    assert in_short(pair) == "user: What does it do? >> assistant: It thins the blood. >> assistant: Nothing."


def test_an_empty_array_is_a_refused_row_and_is_counted() -> None:
    with pytest.raises(Refused, match="empty_text"):
        apply(convert_with("own_functions:qa_hook", {"question_key": "q", "answer_key": "missing"}), ROW)


def test_token_ids_are_refused() -> None:
    with pytest.raises(Refused) as raised:
        apply(convert_with("own_functions:token_hook"), {"ids": [1, 2]})
    assert raised.value.stage == "schema"


def reader(how: str, ignore: tuple[str, ...] = ()) -> Reader:
    return Reader(convert_with(f"own_functions:{how}"), Account(ignore))


@pytest.mark.parametrize("how", HOW)
def test_what_is_left_out_is_seen(how: str) -> None:
    row = {"q": "1?", "a": "1", "id": 7, "task": "Count.", "turns": [{"text": "Hi"}, {"text": "So", "mood": "bad"}]}
    found = reader(how)
    assert isinstance(apply(found, row), Sample)
    assert (dict(found.account.counts), dict(found.account.unknown)) == ({"id": 1}, {"task": 1, "turns.mood": 1})
    assert found.account.examples == {"task": "Count.", "turns.mood": "bad"}


@pytest.mark.parametrize("how", HOW)
def test_what_decides_refuses_the_row(how: str) -> None:
    with pytest.raises(Refused) as refused:
        apply(reader(how), {"q": "1?", "a": "1", "system": "Count."})
    assert refused.value.reason == "unsupported_column"


@pytest.mark.parametrize("how", HOW)
def test_what_is_used_or_ignored_is_none_of_it(how: str) -> None:
    found = reader(how, ("task", "turns.mood"))
    apply(found, {"q": "1?", "a": "1", "task": "Count.", "turns": [{"text": "Hi", "mood": "bad"}]})
    assert (dict(found.account.counts), dict(found.account.unknown)) == ({"task": 1, "turns.mood": 1}, {})


# Names of speakers in rows: left out and counted, or in front of what is said.


Mode = Literal["keep", "leave_out", "write"]


def reader_of_speakers(mode: Mode, schema: str = "messages", gives: type = Sample, **options: Any) -> Reader:
    return converter(Domain(files=("a.jsonl",), schema=schema, speaker_names=mode, options=options), gives)


def message(role: str, name: str | None, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **({} if name is None else {"name": name}), **more}


def turns(mode: Mode, *messages: Mapping[str, Any], **row: Any) -> tuple[Turn, ...]:
    sample = apply(reader_of_speakers(mode), {"messages": list(messages), **row})
    assert isinstance(sample, Sample)
    return sample.turns


ASKED = message("user", "ann", "Hi")
CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
CALL = Region(TOOL_CALL, '{"name":"f","arguments":{},"id":"c1"}')


@pytest.mark.parametrize(
    ("said", "written"),
    [
        (message("assistant", "bot", "Well."), (Region(TEXT, "bot: Well."),)),
        (message("assistant", "bot", " Well.", weight=0), (Region(TEXT, "bot:  Well.", 0.0),)),
        (message("assistant", "bot", "Well.", reasoning_content="Hm."), (Region(THINKING, "Hm."), Region(TEXT, "bot: Well."))),
        (message("assistant", "bot", None, tool_calls=CALLS), (Region(TEXT, "bot: "), CALL)),
        (message("assistant", "bot", "Well.", tool_calls=CALLS), (Region(TEXT, "bot: Well."), CALL)),
        (message("assistant", "bot", "I think <think> is a tag."), (Region(TEXT, "bot: I think <think> is a tag."),)),
        (message("assistant", " ", "Well."), (Region(TEXT, "Well."),)),
        (message("assistant", None, "Well."), (Region(TEXT, "Well."),)),
    ],
)
def test_a_name_stands_in_front_of_what_is_said(said: dict[str, Any], written: tuple[Region, ...]) -> None:
    assert turns("write", ASKED, said) == (turn(USER, "ann: Hi"), Turn(ASSISTANT, written))
    bare = turns("keep", message("user", None, "Hi"), {key: value for key, value in said.items() if key != "name"})
    assert turns("leave_out", ASKED, said) == bare
    kept = turns("keep", ASKED, said)
    assert [each.name for each in kept] == ["ann", said.get("name")] and kept[1].regions == bare[1].regions


def test_a_name_stands_in_front_of_an_image() -> None:
    picture = message("user", "ann", [{"type": "image", "image": "a.png"}, {"type": "text", "text": "What?"}])
    first, _ = turns("write", picture, message("assistant", None, "A cat."))
    assert first == Turn(USER, (Region(TEXT, "ann: "), Region(IMAGE, "a.png"), Region(TEXT, "What?")))


@pytest.mark.parametrize("text", ["<think>Hm.</think>Well.", " [THINK]Hm.[/THINK]Well."])
def test_a_name_before_reasoning_in_the_text_is_refused(text: str) -> None:
    """There it would be no reasoning any more."""
    with pytest.raises(Refused, match="set speaker_names: leave_out") as raised:
        turns("write", ASKED, message("assistant", "bot", text))
    assert (raised.value.stage, raised.value.reason) == ("schema", "name_before_reasoning")
    assert turns("write", ASKED, message("assistant", None, text))[1] == turn(ASSISTANT, text)
    assert turns("leave_out", ASKED, message("assistant", "bot", text))[1] == turn(ASSISTANT, text)


def test_the_name_of_a_tool_stays() -> None:
    result = message("tool", "f", "2", tool_call_id="c1")
    for mode in ("leave_out", "write"):
        found = turns(
            mode,
            message("system", "boss", "Be kind."),
            ASKED,
            message("assistant", None, None, tool_calls=CALLS),
            result,
            message("assistant", None, "2."),
        )
        assert [each.name for each in found] == [None, None, None, "f", None]
        assert found[0] == turn(SYSTEM, "boss: Be kind." if mode == "write" else "Be kind.")


def test_rows_of_which_names_are_left_out_are_counted() -> None:
    read, answer = reader_of_speakers("leave_out"), message("assistant", None, "Well.")
    rows = [[ASKED, answer, ASKED, answer], [message("user", None, "Hi"), answer], [message("user", "", "Hi"), answer], [ASKED, answer]]
    for row in rows:
        apply(read, {"messages": row})
    tools = [ASKED, message("assistant", None, None, tool_calls=CALLS), message("tool", "f", "2", tool_call_id="c1"), answer]
    apply(read, {"messages": [message("user", None, "Hi"), *tools[1:]]})
    assert read.account.counts == {"messages.name": 2}
    with pytest.raises(Refused):
        apply(read, {"messages": [ASKED]})
    assert read.account.counts == {"messages.name": 2}, "of a row that is refused nothing is counted"
    for mode in ("keep", "write"):
        other = reader_of_speakers(mode)
        apply(other, {"messages": rows[0]})
        assert not other.account.counts and not other.account.unknown


def test_other_kinds_of_rows() -> None:
    answer = message("assistant", "bot", "Well.")
    asked, written = (turn(USER, "ann: Hi"),), turn(ASSISTANT, "bot: Well.")

    def read(schema: str, gives: type, row: dict[str, Any]) -> Example:
        return apply(reader_of_speakers("write", schema, gives), row)

    pair = read("preference", Pair, {"prompt": [ASKED], "chosen": [answer], "rejected": [message("assistant", None, "No.")]})
    assert pair == Pair(asked, (written,), (turn(ASSISTANT, "No."),))
    assert read("rl_prompt", Prompt, {"prompt": [ASKED], "gold": "1"}) == Prompt(asked, "1")
    group = read("group", Group, {"prompt": [ASKED], "responses": [[answer], "No."], "rewards": [1, 0]})
    assert isinstance(group, Group) and (group.prompt, group.responses) == (asked, ((written,), (turn(ASSISTANT, "No."),)))
    shares = {"conversations": [{"from": "human", "value": "Hi", "name": "ann"}, {"from": "gpt", "value": "Well.", "name": "bot"}]}
    assert read("sharegpt", Sample, shares) == Sample((*asked, written))
    left = reader_of_speakers("leave_out", "preference", Pair)
    apply(left, {"prompt": [ASKED], "chosen": [answer], "rejected": [message("assistant", None, "No.")]})
    assert left.account.counts == {"prompt.name": 1, "chosen.name": 1}


def test_rows_without_names_are_still_read_in_columns() -> None:
    plain = {"messages": [message("user", None, "Hi"), message("assistant", None, "Well.")]}
    named = {"messages": [ASKED, message("assistant", None, "Well.")]}
    found = reader_of_speakers("write").rows([plain, plain, named, plain])
    assert [type(each) for each in found] == [Sample, PlainChat, Sample, PlainChat]
    assert found[2] == Sample((turn(USER, "ann: Hi"), turn(ASSISTANT, "Well.")))


# Rows of token ids: what each spelling of a mask says; words whose tokens are masked; a store of prompts that a model judges.


CHAT = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "1."}]


def read(row: dict[str, Any], **options: Any) -> tuple[list[int], list[float]]:
    found = apply(convert_with("tokenized", options), row).tokenized  # type: ignore[union-attr]
    assert found is not None
    return list(found.ids), list(found.weights)


@pytest.mark.parametrize(
    ("row", "options", "ids", "weights"),
    [
        # TRL, axolotl and LLaMA-Factory: labels at the place of their token
        ({"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}, {}, [1, 2, 3], [0, 1, 1]),
        ({"input_ids": [1, 2, 3], "labels": [-100, -100, 3], "attention_mask": [1, 1, 1]}, {}, [1, 2, 3], [0, 0, 1]),
        # padding on either side is not stored
        ({"input_ids": [0, 1, 2, 0], "labels": [-100, -100, 2, -100], "attention_mask": [0, 1, 1, 0]}, {}, [1, 2], [0, 1]),
        # TRL's two masks, of which both must be 1
        ({"input_ids": [1, 2, 3], "completion_mask": [0, 1, 1], "assistant_masks": [1, 0, 1]}, {}, [1, 2, 3], [0, 0, 1]),
        ({"input_ids": [1, 2, 3], "labels": [1, 2, 3], "completion_mask": [0, 0, 1]}, {}, [1, 2, 3], [0, 0, 1]),
        ({"input_ids": [1, 2, 3], "loss_mask": [0, 0.5, True]}, {}, [1, 2, 3], [0, 0.5, 1]),
        # SkyRL: a prompt and a response, the mask as long as the response
        ({"prompt_ids": [1, 2], "completion_ids": [3, 4]}, {}, [1, 2, 3, 4], [0, 0, 1, 1]),
        (
            {"prompt_token_ids": [1, 2], "response_ids": [3, 4], "loss_masks": [0, 1]},
            {"prompt_ids_key": "prompt_token_ids", "completion_ids_key": "response_ids", "mask_keys": ["loss_masks"]},
            [1, 2, 3, 4],
            [0, 0, 0, 1],
        ),
        # Cerebras: labels one place before their token, the last token among them alone, a loss mask under the name attention_mask
        ({"input_ids": [1, 2, 3], "labels": [-100, 3, 4]}, {"shifted": True}, [1, 2, 3, 4], [0, 0, 1, 1]),
        ({"input_ids": [1, 2, 3], "labels": [-100, 3, -100]}, {"shifted": True}, [1, 2, 3], [0, 0, 1]),
        ({"input_ids": [1, 2, 3], "loss_mask": [0, 1, 0]}, {"shifted": True}, [1, 2, 3], [0, 0, 1]),
        (
            {"input_ids": [1, 2, 3, 0], "attention_mask": [0, 1, 1, 0], "labels": [2, 3, 0, 0]},
            {"shifted": True, "mask_keys": ["attention_mask"]},
            [1, 2, 3, 0],
            [0, 0, 1, 1],
        ),
    ],
)
def test_ids_and_weights(row: dict[str, Any], options: dict[str, Any], ids: list[int], weights: list[float]) -> None:
    """By the schema, and by the second reading of its rows."""
    assert read(row, **options) == tokenized_again("tokenized", row, options) == (ids, weights)


def test_text_and_messages_stay_beside_the_ids_as_evidence() -> None:
    sample = apply(
        convert_with("tokenized"), {"input_ids": [1, 2], "labels": [-100, 2], "text": "ab", "messages": CHAT, "position_ids": [0, 1]}
    )
    assert sample.tokenized.text == "ab"  # type: ignore[union-attr]
    assert [turn.role for turn in sample.turns] == [USER, ASSISTANT]  # type: ignore[union-attr]


def test_cerebras_hook_for_language_generation_hands_over_ids() -> None:
    """Their documentation: context and completion are lists of token ids; their own code ends with a NameError there."""
    found = apply(convert_with("nlg_read_hook"), {"context": [5, 6], "completion": [7]}).tokenized  # type: ignore[union-attr]
    assert found is not None and (found.ids, found.weights) == ((5, 6, 7), (0.0, 0.0, 1.0))
    assert tokenized_again("nlg_read_hook", {"context": [5, 6], "completion": [7]}, {}) == ([5, 6, 7], [0, 0, 1])


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


def test_a_store_of_them_passes_every_check(tmp_path: Path) -> None:
    rows = [{"instruction": f"Write haiku {n}.", "input": "", "note": ""} for n in range(20)]
    workspace = workspace_in(
        tmp_path / "here", minimal("rl", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "PPOAlpacaStyleInstructionHandler")})
    )
    build(workspace, "rl_raw", "a")
    published = build(workspace, "rl_prompts")
    lines = [json.loads(line) for path in published.directory.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    assert len(lines) == 20 and all((line["gold"], line["verifier"]) == ("", "model") for line in lines)
