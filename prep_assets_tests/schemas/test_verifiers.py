"""What verifiers are told, in the forms of published rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prep_assets.errors import ConfigError, Refused
from prep_assets.extensions.rl.prompts import prompt_row
from prep_assets.extensions.rl.verifiers import CodeTests, Constraint, Criterion, code_tests, constraints, criteria
from prep_assets.samples import Prompt
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with

CALLS = CodeTests(inputs=((1, [2]), (3, [])), outputs=(3, 3), function="add")
TEXTS = CodeTests(inputs=("1\n2", ""), outputs=("3", "0"))


@pytest.mark.parametrize(
    ("told", "tests"),
    [
        (["assert f(1) == 2", "assert f(2) == 3"], CodeTests(("assert f(1) == 2", "assert f(2) == 3"))),
        ({"inputs": ["1\n2", ""], "outputs": ["3", "0"]}, TEXTS),
        ({"inputs": [["1", "2"], ""], "outputs": ["3", ["0"]], "fn_name": None}, TEXTS),
        ({"fn_name": "add", "inputs": [[1, [2]], [3, []]], "outputs": [3, 3]}, CALLS),
        ({"fn_name": "add", "inputs": ["1\n[2]", "3\n[]"], "outputs": ["3", "3"]}, CALLS),
        (
            {"language": "python", "test_cases": [{"type": "stdin_stdout", "input": "1\n2", "output": "3"}, {"input": "", "output": "0"}]},
            TEXTS,
        ),
        (
            {
                "test_cases": [
                    {"type": "function_call", "fn_name": "add", "input": [1, [2]], "output": 3},
                    {"fn_name": "add", "input": [3, []], "output": 3},
                ]
            },
            CALLS,
        ),
    ],
)
def test_tests_of_code(told: Any, tests: CodeTests) -> None:
    assert code_tests(told) == tests


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ([], "'tests' is empty"),
        (["assert f()", " "], "tests[1]"),
        ({"inputs": [], "outputs": []}, "'inputs' is empty"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs for 0 outputs"),
        ({"inputs": ["1"]}, "needs 'outputs'"),
        ({"inputs": [1], "outputs": ["1"]}, "is an integer, needs a string"),
        ({"inputs": [[1]], "outputs": [1], "fn_name": "a.b()"}, "which is no name"),
        ({"inputs": ["{1"], "outputs": [1], "fn_name": "f"}, "is text that is not JSON"),
        ({"test_cases": []}, "'test_cases' is empty"),
        ({"test_cases": [{"input": "", "output": ""}, {"fn_name": "f", "input": [], "output": 1}]}, "of 2 kinds"),
        ({"test_cases": [{"type": "jest", "input": "", "output": ""}]}, "of the type 'jest'"),
        ({"language": "Rust", "inputs": [""], "outputs": [""]}, "of rust; only Python is run"),
        (7, "needs an object"),
    ],
)
def test_no_tests_of_code(told: Any, said: str) -> None:
    with pytest.raises(Refused) as refused:
        code_tests(told)
    assert said in refused.value.detail


NO_COMMA, SHORT = (
    Constraint("punctuation:no_comma", {}),
    Constraint("length_constraints:number_words", {"relation": "less than", "num_words": 9}),
)


@pytest.mark.parametrize(
    "told",
    [
        {
            "instruction_id_list": [NO_COMMA.name, SHORT.name],
            "kwargs": [None, {"relation": "less than", "num_words": 9, "num_bullets": None}],
        },
        [{"instruction_id": [NO_COMMA.name, SHORT.name], "kwargs": [{}, {"num_words": 9, "relation": "less than"}]}],
        [json.dumps({"instruction_id": [NO_COMMA.name, SHORT.name], "kwargs": [None, {"num_words": 9, "relation": "less than"}]})],
    ],
)
def test_constraints(told: Any) -> None:
    assert constraints(told) == (NO_COMMA, SHORT)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"instruction_id": [], "kwargs": []}, "'instruction_id' is empty"),
        ({"instruction_id_list": ["a", "b"], "kwargs": [{}]}, "2 names of constraints have 1 kwargs"),
        ({"instruction_id": [" "], "kwargs": [{}]}, "only whitespace"),
        ({"instruction_id": ["a"], "kwargs": [3]}, "kwargs[0]"),
        ({"func_name": "verify_keywords"}, "needs 'instruction_id'"),
        ([{}, {}], "needs an object"),
    ],
)
def test_no_constraints(told: Any, said: str) -> None:
    with pytest.raises(Refused) as refused:
        constraints(told)
    assert said in refused.value.detail


def test_criteria() -> None:
    found = (Criterion("Names the drug.", 5.0), Criterion("Guesses.", -3.0))
    points = [{"criterion": "Names the drug.", "points": 5, "tags": ["a"]}, {"criterion": "Guesses.", "points": -3, "tags": []}]
    assert criteria(points) == found
    weights = [{"description": "Names the drug.", "weight": 5.0, "id": 1}, {"description": "Guesses.", "weight": -3.0, "id": "2"}]
    assert criteria({"query": "?", "rubrics": weights}) == (Criterion("Names the drug.", 5.0, "1"), Criterion("Guesses.", -3.0, "2"))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ([], "'rubric' is empty"),
        ([{"criterion": " ", "points": 1}], "only whitespace"),
        ([{"criterion": "a", "points": float("inf")}], "is not a finite number"),
        ([{"criterion": "a", "points": True}], "needs a number"),
        ([{"criterion": "a"}], "rubric[0] has criterion: it needs one of"),
        ([{"criterion": "a", "description": "b", "weight": 1}], "it needs one of"),
        ([{"criterion": "a", "points": 1, "id": 1}, {"criterion": "b", "points": 1, "id": "1"}], "2 criteria have 1 different ids"),
        ([{"criterion": "a", "points": 0}, {"criterion": "b", "points": -1}], "none of 2 criteria has a weight above 0"),
    ],
)
def test_no_criteria(told: Any, said: str) -> None:
    with pytest.raises(Refused) as refused:
        criteria(told)
    assert said in refused.value.detail


# -- rows --------------------------------------------------------------------------------------------------------------------------------


def converted(row: dict[str, Any], **options: Any) -> Prompt:
    example = apply(convert_with("rl_prompt", options), row)
    assert isinstance(example, Prompt)
    return example


@pytest.mark.parametrize(
    ("row", "options", "told"),
    [
        ({"info": {"tests": ["assert é"]}}, {"arguments_key": "info.tests"}, ["assert é"]),
        ({"info": json.dumps({"inputs": ["1"], "outputs": ["2"]})}, {"arguments_key": "info"}, {"inputs": ["1"], "outputs": ["2"]}),
        ({"info": "['assert 1 == 1', 'assert not None']"}, {"arguments_key": "info"}, ["assert 1 == 1", "assert not None"]),
        ({"inputs": ["1"], "outputs": ["2"]}, {"arguments_key": ["inputs", "outputs"]}, {"inputs": ["1"], "outputs": ["2"]}),
    ],
)
def test_arguments_stand_in_lines_as_json(row: dict[str, Any], options: dict[str, Any], told: Any) -> None:
    prompt = converted({"prompt": "Write f.", "gold": "def f(): 1", **row}, verifier="code", **options)
    assert (prompt.gold, prompt.verifier) == ("def f(): 1", "code")
    line = prompt_row(prompt, "text")
    assert list(line) == ["prompt", "gold", "verifier", "arguments"]
    assert json.loads(line["arguments"]) == told


def test_a_row_without_a_gold_may_tell_all() -> None:
    told = [{"criterion": "Is kind.", "points": 1}]
    assert converted({"prompt": "Hi", "rubrics": told}, gold_key=None, verifier="rubric", arguments_key="rubrics").gold == ""
    with pytest.raises(ConfigError, match="gold_key is null"):
        convert_with("rl_prompt", {"gold_key": None, "arguments_key": "rubrics"})


@pytest.mark.parametrize(
    ("told", "verifier", "reason"),
    [
        ([], "code", "bad_arguments"),
        ("{", "mine", "bad_arguments"),
        ([float("nan")], "mine", "bad_arguments"),
        (None, "mine", "missing_field"),
        ([], "mine", ""),
    ],
)
def test_arguments_without_a_form_are_refused(told: Any, verifier: str, reason: str) -> None:
    try:
        converted({"prompt": "Hi", "gold": "1", "told": told}, verifier=verifier, arguments_key="told")
    except Refused as refused:
        assert refused.reason == reason
    else:
        assert not reason
