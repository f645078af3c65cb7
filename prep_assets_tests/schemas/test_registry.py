"""Names, aliases, options and their types."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import ASSISTANT, TEXT, THINKING, USER, Contrast, Group, Pair, Prompt, Region, Sample, Turn, document
from prep_assets.schemas import registry
from prep_assets.schemas.fields import text_of
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with, schema, schemas
from prep_assets.schemas.sniff import sniff


@pytest.mark.parametrize("name", list(schemas()))
def test_the_example_row_becomes_what_the_schema_says_it_gives(name: str) -> None:
    found = schemas()[name]
    example = apply(convert_with(name), found.example)
    assert isinstance(example, found.gives)
    assert [form for form in (Sample, Pair, Prompt, Group, Contrast) if found.can_give(form) and isinstance(example, form)] == [
        type(example)
    ]


@pytest.mark.parametrize("name", list(schemas()))
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
    others = {"image_token", "phase", "image_dir", "assistant_role", "later_messages"}
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


@pytest.mark.parametrize("name", RECOGNISED.split())
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


def test_no_rows() -> None:
    assert all(fit.fitting == fit.rows == 0 for fit in sniff([]))
