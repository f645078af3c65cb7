"""What verifiers are told beside the answer, in the forms of published rows: tests of code, constraints on a text, criteria of a rubric.

code     ["assert f(1) == 2", …]                                                  open-instruct, MBPP
         {"inputs": […], "outputs": […], "fn_name": …}                            verl, TACO, NeMo-Gym's unit_tests
         {"test_cases": [{"type", "input", "output", "fn_name"}, …]}              SYNTHETIC-1
ifeval   {"instruction_id_list": […], "kwargs": […]}                              IFEval, NeMo-Gym
         [{"instruction_id": […], "kwargs": […]}]                                 open-instruct
rubric   [{"criterion", "points"}, …]                                             HealthBench
         {"rubrics": [{"description", "weight"}, …]}                              open-instruct
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from prep_assets.errors import Refused
from prep_assets.schemas.fields import as_list, as_mapping, as_number, as_text, needed, objects, value_at
from prep_assets.stores.files import loads

CODE, IFEVAL, RUBRIC = "code", "ifeval", "rubric"
BAD = "bad_arguments"
_STDIN, _CALL = "stdin_stdout", "function_call"
OTHER_LANGUAGES = frozenset(
    (
        *("bash", "shell", "sql", "c", "c#", "c++", "cpp", "csharp", "go", "golang", "java", "javascript", "js", "kotlin", "lua", "perl"),
        *("php", "r", "ruby", "rust", "scala", "swift", "typescript", "ts"),
    )
)
"""Programming languages of rows whose tests this verifier does not run."""


class CodeTests(Struct, frozen=True):
    """Tests of a program.

    Attributes:
        asserts: statements of Python, none of which may raise.
        inputs, outputs: what the program is given and what it must answer: standard input and output, or, with `function`, the arguments of a call and
            its result.
    """

    asserts: tuple[str, ...] = ()
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()
    function: str | None = None


class Constraint(Struct, frozen=True):
    """A constraint on a text, by its name in IFEval, with its arguments."""

    name: str
    kwargs: Mapping[str, Any]


class Criterion(Struct, frozen=True):
    """A criterion of a rubric; what meets it earns its weight, which may be negative."""

    text: str
    weight: float
    id: str | None = None


def json_of(text: str, where: str) -> Any:
    """The value of JSON text; of Python's notation too, in which open-instruct's rows have it.

    Raises:
        Refused: ``bad_arguments`` for neither.
    """
    try:
        return loads(text)
    except ValueError as error:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise Refused(BAD, f"{where!r} is text that is not JSON: {error}") from error


def code_tests(value: Any) -> CodeTests:
    """Read the arguments of ``code``.

    Raises:
        Refused: no form of tests, no test, tests of several kinds, or a language other than Python.
    """
    if isinstance(value, list):
        return CodeTests(tuple(needed(as_text(each, f"tests[{i}]"), BAD, f"tests[{i}]") for i, each in enumerate(_some(value, "tests"))))
    tests = as_mapping(value, "tests")
    if (language := str(tests.get("language") or "python").lower()) not in ("python", "python3"):
        raise Refused(BAD, f"the tests are of {language}; only Python is run")
    if (cases := tests.get("test_cases")) is not None:
        return _of_cases([case for _, case in objects(_some(cases, "test_cases"), "test_cases")])
    inputs, outputs = (as_list(value_at(tests, name, "tests"), name) for name in ("inputs", "outputs"))
    if len(_some(inputs, "inputs")) != len(outputs):
        raise Refused(BAD, f"{len(inputs)} inputs for {len(outputs)} outputs")
    function = tests.get("fn_name")
    return _of_texts(inputs, outputs) if function is None else _of_calls(inputs, outputs, as_text(function, "fn_name"))


def _of_cases(cases: Sequence[Mapping[str, Any]]) -> CodeTests:
    kinds = {(case.get("type") or (_CALL if case.get("fn_name") else _STDIN), case.get("fn_name")) for case in cases}
    if len(kinds) > 1:
        raise Refused(BAD, f"test_cases are of {len(kinds)} kinds: {', '.join(sorted(map(str, kinds)))}")
    ((kind, function),) = kinds
    inputs = [value_at(case, "input", "test_cases") for case in cases]
    # a function may return null
    outputs = [case["output"] if "output" in case else value_at(case, "output", "test_cases") for case in cases]
    if kind == _STDIN:
        return _of_texts(inputs, outputs)
    if kind != _CALL:
        raise Refused(BAD, f"test_cases of the type {kind!r}; known are {_STDIN} and {_CALL}")
    return _of_calls(inputs, outputs, as_text(function, "fn_name"))


def _of_texts(inputs: Sequence[Any], outputs: Sequence[Any]) -> CodeTests:
    """Standard input and output; several lines may be an array of them."""
    texts = (
        ["\n".join(map(str, each)) if isinstance(each, list) else as_text(each, "a test") for each in side] for side in (inputs, outputs)
    )
    given, wanted = map(tuple, texts)
    return CodeTests(inputs=given, outputs=wanted)


def _of_calls(inputs: Sequence[Any], outputs: Sequence[Any], function: str) -> CodeTests:
    """Calls. Their arguments are an array, or text with the JSON of an argument in each line, as LiveCodeBench has them; then the result is JSON too."""
    if not function.isidentifier():
        raise Refused(BAD, f"fn_name is {function!r}, which is no name")
    arguments = [
        [json_of(line, "inputs") for line in each.split("\n")] if isinstance(each, str) else as_list(each, "inputs") for each in inputs
    ]
    results = [json_of(out, "outputs") if isinstance(given, str) else out for given, out in zip(inputs, outputs, strict=True)]
    return CodeTests(inputs=tuple(map(tuple, arguments)), outputs=tuple(results), function=function)


def constraints(value: Any) -> tuple[Constraint, ...]:
    """Read the arguments of ``ifeval``. An argument that is null is none: a table with a column for each has it for all others.

    Raises:
        Refused: no form of constraints, no constraint, or another number of arguments.
    """
    whole = _some(value, "constraints")[0] if isinstance(value, list) and len(value) == 1 else value
    fields = as_mapping(json_of(whole, "constraints") if isinstance(whole, str) else whole, "constraints")
    key = "instruction_id_list" if "instruction_id_list" in fields else "instruction_id"
    names = _some(as_list(value_at(fields, key, "constraints"), key), key)
    kwargs = as_list(value_at(fields, "kwargs", "constraints"), "kwargs")
    if len(names) != len(kwargs):
        raise Refused(BAD, f"{len(names)} names of constraints have {len(kwargs)} kwargs")
    given = [{} if each is None else as_mapping(each, f"kwargs[{i}]") for i, each in enumerate(kwargs)]
    return tuple(
        Constraint(needed(as_text(name, key), BAD, key), {argument: each[argument] for argument in each if each[argument] is not None})
        for name, each in zip(names, given, strict=True)
    )


def criteria(value: Any) -> tuple[Criterion, ...]:
    """Read the arguments of ``rubric``.

    Raises:
        Refused: no form of criteria, no criterion, one without a text or with a weight that is no finite number, two with one id, or none that earns.
    """
    listed = value_at(value, "rubrics", "rubric") if isinstance(value, Mapping) else value
    found = tuple(_criterion(place, fields) for place, fields in objects(_some(listed, "rubric"), "rubric"))
    ids = [each.id for each in found if each.id is not None]
    if len(set(ids)) < len(ids):
        raise Refused(BAD, f"{len(ids)} criteria have {len(set(ids))} different ids")
    if not any(each.weight > 0 for each in found):
        raise Refused(BAD, f"none of {len(found)} criteria has a weight above 0, so that no answer earns anything")
    return found


def _criterion(place: str, fields: Mapping[str, Any]) -> Criterion:
    texts, weights = ([name for name in names if fields.get(name) is not None] for names in (_TEXTS, _WEIGHTS))
    if len(texts) != 1 or len(weights) != 1:
        raise Refused(BAD, f"{place} has {', '.join(fields)}: it needs one of {', '.join(_TEXTS)}, and one of {', '.join(_WEIGHTS)}")
    text = needed(as_text(fields[texts[0]], place), BAD, f"{place}.{texts[0]}")
    identity = fields.get("id")
    return Criterion(text, as_number(fields[weights[0]], f"{place}.{weights[0]}"), None if identity is None else str(identity))


_TEXTS, _WEIGHTS = ("criterion", "description"), ("points", "weight")


def _some(value: Any, where: str) -> Sequence[Any]:
    listed = as_list(value, where)
    if not listed:
        raise Refused(BAD, f"{where!r} is empty")
    return listed


FORMS: Mapping[str, Callable[[Any], object]] = {CODE: code_tests, IFEVAL: constraints, RUBRIC: criteria}
"""Verifier → what reads its arguments."""
