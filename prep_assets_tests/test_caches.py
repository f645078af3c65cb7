"""What a process remembers is bounded, whatever it works with."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from threading import Barrier
from weakref import ref

import pytest
from harness import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.caches import CACHES, bounded_cache
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.effort import examples

PACKAGE = ROOT / "prep_assets"


@pytest.mark.parametrize("large", [False, True])
@settings(max_examples=examples(60), deadline=None)
@given(most=st.integers(1, 5), asked=st.lists(st.integers(0, 7)))
def test_it_calls_as_often_as_the_cache_of_the_standard_library(large: bool, most: int, asked: list[int]) -> None:
    ours, theirs = list[int](), list[int]()
    own = bounded_cache("of a test", most, lambda number, text: number, large=large)(lambda number, text: (ours.append(number), -number)[1])
    other = lru_cache(maxsize=most)(lambda number: (theirs.append(number), -number)[1])
    assert [own(number, str(at)) for at, number in enumerate(asked)] == list(map(other, asked))
    assert ours == theirs and len(CACHES["of a test"]) <= most


def test_errors_are_not_remembered() -> None:
    answers: Iterator[int] = iter((0, 1))
    inverse = bounded_cache("of a test", 2)(lambda: 1 // next(answers))
    with pytest.raises(ZeroDivisionError):
        inverse()
    assert inverse() == inverse() == 1


def test_threads_that_ask_at_once_get_the_same() -> None:
    both = Barrier(2)
    made = bounded_cache("of a test", 2)(lambda key: (both.wait(), object())[1])
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(made, "aa")
    assert one is other is made("a")


def test_large_results_are_gone_before_the_next_is_made() -> None:
    made, alive = list[ref[Barrier]](), list[list[bool]]()

    @bounded_cache("of a test", 2, large=True)
    def engine(number: int) -> Barrier:
        alive.append([each() is not None for each in made])
        made.append(ref(found := Barrier(1)))
        return found

    for number in range(4):
        engine(number)
    assert alive == [[], [True], [False, True], [False, False, True]]


# -- all caches of the package ----------------------------------------------------------------------------------------------------------


@cache
def modules() -> list[tuple[str, ast.Module]]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [(path.relative_to(PACKAGE).with_suffix("").as_posix(), ast.parse(path.read_text("utf-8"))) for path in paths]


def called(node: ast.expr) -> str:
    """The last name of what is called or named: ``cache`` of ``functools.cache``."""
    target = node.func if isinstance(node, ast.Call) else node
    target = target.value if isinstance(target, ast.Subscript) else target
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


def test_functions_with_arguments_have_a_cache_with_a_bound() -> None:
    faults = []
    for module, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and (node.args.args or node.args.kwonlyargs or node.args.vararg):
                bare = (each for each in node.decorator_list if not (isinstance(each, ast.Call) and each.args))
                faults += [f"{module}.{node.name}" for each in bare if called(each) in ("cache", "lru_cache")]
    assert faults == []


def test_each_cache_has_a_name_of_its_own() -> None:
    calls = (node for _, tree in modules() for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) == "bounded_cache")
    names = Counter(ast.unparse(call.args[0]) for call in calls)
    assert len(names) > 20 and max(names.values()) == 1


# -- the memory of a process ------------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_process_with_many_tokenizers_does_not_grow() -> None:
    """Each tokenizer took 70 MiB when nothing was forgotten."""
    after, _ = tokenizers.measured(5, domains=2)
    assert after[4] - after[2] < 48 << 20, after


@pytest.mark.soak
def test_forty_tokenizers() -> None:
    after, peak = tokenizers.measured(40, domains=31)
    assert peak < tokenizers.MOST, after
