"""Golds with what their verifiers are told: programs and tests, texts and constraints, rubrics."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.extensions.quality.constraints import CONSTRAINTS
from prep_assets.extensions.quality.steps import Examples, configured_steps
from prep_assets.extensions.quality.verified_code import program_of
from prep_assets.extensions.quality.verified_golds import verified_golds
from prep_assets.samples import Prompt, turn
from prep_assets_tests.cells import cells

pytestmark = pytest.mark.skipif(os.name != "posix", reason="limits of processes are POSIX's")
INCREMENT = ["assert f(1) == 2", "assert f(2) == 3"]
SUM = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7.0"]}
ADD = {"fn_name": "add", "inputs": [[[1, 2], 3]], "outputs": [6]}


def found(gold: str, verifier: str, told: Any, **options: Any) -> tuple[str, str]:
    prompt = Prompt((turn("user", "Q"),), gold, verifier, arguments="" if told is None else json.dumps(told))
    judged = verified_golds(**options).judge(Examples(["r:0"], [prompt]))
    return judged.found.get(0, ("", ""))


@cells(
    ("gold", "told", "why"),
    [
        ("def f(x):\n    return x + 1", INCREMENT, ""),
        ("Sure:\n```python\ndef f(x):\n    return x + 1\n```\nDone.", INCREMENT, ""),
        ("def f(x):\n    return 2", INCREMENT, "test 2 of 2 raises AssertionError"),
        ("def f(x):\n    raise SystemExit", INCREMENT, "test 1 of 2 raises SystemExit"),
        ("import os\nos._exit(0)", INCREMENT, "its process ends with status 0 before the last test"),
        ("def f(x:", INCREMENT, "its process ends with status 1 before the last test"),
        ("def g(x):\n    return x", INCREMENT, "test 1 of 2 raises NameError"),
        ("import numpy\ndef f(x):\n    return x + 1", INCREMENT, "test 1 of 2 raises ModuleNotFoundError"),
        ("x = bytearray(2 << 30)", INCREMENT, "test 1 of 2 raises MemoryError"),
        ("open('big', 'wb').write(bytes(65 << 20))", INCREMENT, "test 1 of 2 raises OSError"),
        ("print(sum(map(int, input().split())))\nexit()", SUM, ""),
        ("import sys\nif __name__ == '__main__':\n    print(sum(map(int, sys.stdin.buffer.read().split())))", SUM, ""),
        ("print(3)", SUM, "test 2 of 2 prints something else"),
        ("print(3)\nprint(3)", SUM, "test 1 of 2 prints something else"),
        ("", SUM, ""),
        ("x = 1", {"inputs": ["1"], "outputs": [""]}, ""),
        ("print(3)\nprint(4)", {"inputs": ["1"], "outputs": ["3 4"]}, "test 1 of 1 prints something else"),
        ("print(1 / 0)", SUM, "test 1 of 2 ends with status 1"),
        ("def add(a, b):\n    return sum(a) + b", ADD, ""),
        ("class Solution:\n    def add(self, a: List[int], b: int) -> int:\n        return sum(a) + b", ADD, ""),
        ("def add(a, b):\n    return [sum(a) + b]", ADD, "test 1 of 1 raises AssertionError"),
        ("def add(a, b):\n    return (sum(a) + b,)", {**ADD, "outputs": [[6]]}, ""),
        ("def add(a, b):\n    return sum(a) + b", {**ADD, "outputs": [[6]]}, ""),
        ("def add(a, b):\n    return {1}", ADD, "test 1 of 1 raises TypeError"),
    ],
)
def test_a_program_must_pass_its_tests(gold: str, told: Any, why: str) -> None:
    reason, detail = found(gold, "code", told, code_seconds=20.0)
    assert (reason, detail) == (("gold_rejected", f"the gold does not pass its tests: {why}") if why else ("", ""))


def test_a_program_has_none_of_our_environment_and_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "x")
    seen = ["assert set(os.environ) <= {'PYTHONHASHSEED', 'PYTHONUTF8', 'LC_CTYPE'}", f"assert os.getcwd() != {str(Path.cwd())!r}"]
    assert found("import os", "code", seen, code_seconds=20.0) == ("", "")
    assert found("import prep_assets", "code", ["assert 1"], code_seconds=20.0)[1].endswith("raises ModuleNotFoundError")


def test_sets_are_gone_through_in_the_same_order_each_time() -> None:
    order = "print(*{str(n) for n in range(50)})"
    fixed = subprocess.run([sys.executable, "-c", order], env={"PYTHONHASHSEED": "0"}, capture_output=True, check=True).stdout.decode()
    assert found(order, "code", {"inputs": [""], "outputs": [fixed]}, code_seconds=20.0) == ("", "")


def test_no_code_runs_unless_it_is_switched_on(tmp_path: Path) -> None:
    gold = f"open({str(tmp_path / 'ran')!r}, 'w')"
    with pytest.raises(ConfigError, match=r"r:0 has a program and its tests, and no code of rows is run unless code_seconds"):
        found(gold, "code", ["assert 1"])
    assert not (tmp_path / "ran").exists()
    assert found(gold, "code", ["assert 1"], verifiers={"code": "none"}) == ("", "")
    assert not (tmp_path / "ran").exists()
    assert found(gold, "code", ["assert 1"], code_seconds=20.0) == ("", "")
    assert (tmp_path / "ran").exists(), "it is no sandbox"


def test_a_program_that_takes_too_long_stops_the_build(tmp_path: Path) -> None:
    child = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'while True: pass'])"
    for gold in ("while True: pass", child):
        with pytest.raises(PrepAssetsError, match=r"the tests of r:0 take more than 0\.3 seconds"):
            found(gold, "code", ["assert 1"], code_seconds=0.3)
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="code_seconds"):
            verified_golds(code_seconds=seconds)


def test_what_a_program_leaves_behind_is_ended(tmp_path: Path) -> None:
    """The child holds one end of a pipe, which closes with it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    command = ["sh", "-c", f"exec 3> {pipe}; echo begun; exec sleep 60"]
    gold = f"import subprocess\nassert subprocess.Popen({command!r}, stdout=subprocess.PIPE).stdout.readline() == b'begun\\n'"
    assert found(gold, "code", ["assert 1"], code_seconds=20.0) == ("", "")
    assert select.select([reader], [], [], 20)[0] and os.read(reader, 1) == b""
    os.close(reader)


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("print(1)", "print(1)"),
        ("a\n```python\nx = 1\n```\nb\n```py\ny = 2\n```", "y = 2\n"),
        ("```\nz\n```", "z\n"),
        ("```python3\nz\n```", "z\n"),
        ("```python z```", "```python z```"),
        ("```Python\nz\n```\nIt prints:\n```\n3\n```\nand\n```bash\nls\n```", "z\n"),
        ("```python\nz", "z"),
    ],
)
def test_the_last_block_of_python_is_the_program(answer: str, program: str) -> None:
    assert program_of(answer) == program


@pytest.mark.parametrize("verifier", ["code", "ifeval", "rubric"])
def test_a_verifier_that_is_told_nothing(verifier: str) -> None:
    assert found("x", verifier, None) == (
        "bad_arguments",
        f"the verifier {verifier} is told nothing: rl_prompt's option arguments_key names the field",
    )


def test_names_of_rows_are_ours_by_configuration() -> None:
    options = {"verifiers": {"verifiable_code": "code", "healthbench": "rubric"}, "code_seconds": 20.0}
    assert found("def f(x):\n    return x", "verifiable_code", INCREMENT, **options)[0] == "gold_rejected"
    assert found("", "healthbench", [{"criterion": " ", "points": 1}], **options) == (
        "bad_arguments",
        "what the verifier healthbench is told: 'rubric[0].criterion' is only whitespace",
    )
    assert found("", "healthbench", [{"criterion": "Kind.", "points": 1}], **options) == ("", "")
    assert found("", "kind", [], **options)[0] == "unknown_verifier"


def test_a_verifier_of_ones_own_is_told_the_arguments() -> None:
    own = {"verifiers": {"mine": "prep_assets_tests.quality.own_steps:says_one_of"}}
    assert found("yes", "mine", ["no", "yes"], **own) == ("", "")
    assert found("yes", "mine", ["no"], **own)[0] == "gold_rejected"
    [step] = configured_steps({"verified_golds": own}, Prompt)
    assert len(step.recipe["code"]) == 1


# -- constraints -------------------------------------------------------------------------------------------------------------------------

TWO = "Yes.\n******\nNo."
CASES: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    ("keywords:existence", {"keywords": ["tea", "milk"]}, ["Tea and MILK"], ["Tea", ""]),
    ("keywords:frequency", {"keyword": "tea", "frequency": 2, "relation": "at least"}, ["tea Tea"], ["tea"]),
    ("keywords:frequency", {"keyword": "tea", "frequency": 2, "relation": "less than"}, ["tea", ""], ["tea tea"]),
    ("keywords:forbidden_words", {"forbidden_words": ["tea"]}, ["steam, teapot", ""], ["No TEA."]),
    ("keywords:letter_frequency", {"letter": "E", "let_frequency": 2, "let_relation": "at least"}, ["Eve"], ["tea"]),
    ("keywords:letter_frequency", {"letter": "e", "let_frequency": 2, "let_relation": "less than"}, ["tea"], ["Eve"]),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, ["a\n***\nb", "a *** b\n***\n"], ["a", "a\n***\n\n***\nb", "a\n\nb"]),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, ["one two-three"], ["one two", ""]),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, ["one two"], ["It's on."]),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"},
        ["First.\n\nthen, so", 'First.\n\n\'"Then!" it said'],
        ["First.\n\nThenceforth", "First.", "First.\n\nSo\n\nthen", "\n\n\n\nThen\n\nThen"],
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, ["[name] of [town]"], ["[name of town", "[name]"]),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, ["Bye\nP. S. more", "p.s. x"], ["PS more"]),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, ["Bye\nP.P.S more", "p. p. s"], ["P.S. more"]),
    ("detectable_content:postscript", {"postscript_marker": "NB"}, ["Bye nb: more"], ["Bye"]),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, ["* a\n - b", "- a\n- b"], ["* a", "**a**\n- b", "- a\n* b\n- c"]),
    ("detectable_format:constrained_response", {}, ["Well. My answer is yes."], ["my answer is yes.", "My answer is yes"]),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, ["*a* and *b*", "**a** *b*"], ["*a*", "* * *b*"]),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        ["Section 1\na\nSection 2\nb"],
        ["Section 1"],
    ),
    ("detectable_format:json_format", {}, ['{"a": [1]}', "```json\n{}\n```", "```JSON\n1```"], ["{a: 1}", "", "so: {}"]),
    ("detectable_format:title", {}, ["<<Tea>>\nIt is.", "<<<a>>>"], ["<Tea>", "<< >>", "<<a\n>>"]),
    ("combination:two_responses", {}, [TWO, f"{TWO}\n******"], ["Yes.", "a\n******\na", "a******b******c", "a************b"]),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Why? "}, ["why? Because."], ["Because. Why?"]),
    ("startend:end_checker", {"end_phrase": "The end. "}, ['So. "the end."', "THE END.  "], ["The end. Or not."]),
    ("startend:quotation", {}, ['"Yes."', ' "a" '], ['"', '"Yes', "“Yes”"]),
    ("punctuation:no_comma", {}, ["a; b", ""], ["a, b"]),
]


def told_of(name: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"instruction_id_list": [name], "kwargs": [kwargs]}


def test_every_constraint_is_tried() -> None:
    assert {name for name, *_ in CASES} == set(CONSTRAINTS)


@cells(("name", "kwargs", "kept", "missed"), CASES)
def test_a_gold_must_keep_its_constraints(name: str, kwargs: dict[str, Any], kept: list[str], missed: list[str]) -> None:
    for text in filter(None, kept):
        assert found(text, "ifeval", told_of(name, kwargs)) == ("", ""), text
    for text in filter(None, missed):
        assert found(text, "ifeval", told_of(name, kwargs)) == ("gold_rejected", f"the gold does not keep {name}"), text
    assert found("", "ifeval", told_of(name, kwargs)) == ("", ""), "there is no gold to try"


@pytest.mark.parametrize(
    ("name", "kwargs", "said"),
    [
        (
            "keywords:frequency",
            {"keyword": "tea"},
            "keywords:frequency cannot be verified: TypeError: missing a required argument: 'frequency'",
        ),
        (
            "punctuation:no_comma",
            {"num_words": 3},
            "punctuation:no_comma cannot be verified: TypeError: got an unexpected keyword argument 'num_words'",
        ),
        ("keywords:frequency", {"keyword": "c++(", "frequency": 1, "relation": "at least"}, "keywords:frequency cannot be verified: "),
        ("keywords:frequency", {"keyword": "c", "frequency": 1, "relation": "around"}, "keywords:frequency cannot be verified: KeyError"),
        ("keywords:frequency", {"keyword": "c", "frequency": "1", "relation": "at least"}, "cannot be verified: TypeError"),
        ("keywords:letter_frequency", {"letter": 3, "let_frequency": 1, "let_relation": "at least"}, "cannot be verified: AttributeError"),
    ],
)
@pytest.mark.parametrize("gold", ["", "tea"])
def test_arguments_that_a_constraint_cannot_take(name: str, kwargs: dict[str, Any], said: str, gold: str) -> None:
    """Google's code draws arguments that are missing at random."""
    reason, detail = found(gold, "ifeval", told_of(name, kwargs))
    assert reason == "bad_arguments"
    assert said in detail


def test_a_constraint_that_is_not_known_stops_the_build() -> None:
    told = told_of("language:response_language", {"language": "de"})
    with pytest.raises(
        ConfigError, match=r"r:0 has the constraint 'language:response_language', which is not known here\. Known: keywords:existence"
    ):
        found("Ja.", "ifeval", told)
    assert found("Ja.", "ifeval", told, verifiers={"ifeval": "none"}) == ("", "")
