"""open-instruct's own verifiers on our rows, and on the golds that ours judge. `PREP_ASSETS_OPEN_INSTRUCT` names a checkout."""

from __future__ import annotations

import importlib
import json
import random
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from prep_assets import export
from prep_assets.extensions.quality.constraints import keeps
from prep_assets.extensions.rl.verifiers import Constraint
from prep_assets_tests.extensions.exports.conftest import write_lines
from prep_assets_tests.extensions.exports.readers import stand_in
from prep_assets_tests.peers.checkouts import bypass, checkout
from prep_assets_tests.quality.test_verified_golds import CASES

SERVERS = ("litellm", "open_instruct.context_window_checker", "open_instruct.logger_utils", "open_instruct.math_utils")
JUDGES = ("open_instruct.if_functions", "open_instruct.judge_utils", "open_instruct.rubrics.run_utils", "open_instruct.utils")


@pytest.fixture(scope="module")
def theirs() -> Any:
    """``open_instruct.ground_truth_utils``, with what it imports of servers and language models stood in for."""
    folder = checkout("PREP_ASSETS_OPEN_INSTRUCT", "open-instruct") / "open_instruct"
    for package in ("langdetect", "immutabledict", "absl"):
        pytest.importorskip(package)
    bypass("open_instruct", folder)
    bypass("open_instruct.code_utils", folder / "code_utils")
    stand_in(*SERVERS, *JUDGES)
    judges: Any = sys.modules["open_instruct.judge_utils"]
    judges.EXTRACTOR_MAP = judges.JUDGE_PROMPT_MAP = judges.PRICE_PER_MILLION_TOKENS = {}
    sys.modules["open_instruct.logger_utils"].setup_logger = lambda name: types.SimpleNamespace(warning=print, error=print)  # type: ignore[attr-defined]
    return importlib.import_module("open_instruct.ground_truth_utils")


TEXTS = [
    *(text for _, _, kept, missed in CASES for text in (*kept, *missed) if text),
    "Dear all,\n\n* tea\n* milk\n\nP.S. Bring [name] and [thing].",
    '"The end."',
    "<<Tea>>\n\nSection 1\nTea, tea and milk.\nSection 2\n*So* **it** is.\n***\nMy answer is no.",
]


def test_constraints_hold_where_open_instruct_says_so(theirs: Any) -> None:
    """Every text against every constraint, by Google's code as open-instruct trains with it."""
    registry = theirs.instructions_registry.INSTRUCTION_DICT
    told = {}
    for name, kwargs, _, _ in CASES:
        rule = registry[name](name)
        rule.build_description(**kwargs)
        for text in TEXTS:
            told[name, json.dumps(kwargs), text] = (bool(rule.check_following(text)), keeps(text, Constraint(name, kwargs)))
    differing = {case: both for case, both in told.items() if both[0] != both[1]}
    assert not differing
    assert {both[0] for both in told.values()} == {True, False}
    assert len(told) > 1000


def test_its_verifiers_read_our_rows(theirs: Any, tmp_path: Path) -> None:
    """Each constraint with a text that keeps it and with one that does not; its arguments hold a null, as those of a table do."""
    rng, rows, wanted = random.Random(0), [], []
    for name, kwargs, kept, missed in CASES:
        for text, reward in ((kept[0], 1.0), (missed[0], 0.0)):
            if text:
                asked = {"instruction_id_list": [name], "kwargs": [{**kwargs, "other": None}]}
                rows.append({"prompt": f"{name} {rng.random()}", "gold": "", "verifier": "ifeval", "arguments": json.dumps(asked)})
                wanted.append((text, reward))
    out = export(write_lines(tmp_path / "l", "rl_prompts_train", rows), "open_instruct", tmp_path / "out")
    found = pq.read_table(out / "train.parquet").to_pylist()
    verifier = theirs.IFEvalVerifier()
    assert {row["dataset"] for row in found} == {verifier.name}
    scores = [verifier([], text, row["ground_truth"]).score for row, (text, _) in zip(found, wanted, strict=True)]
    assert scores == [reward for _, reward in wanted]


@pytest.mark.parametrize(
    ("told", "gold", "other"),
    [
        (["assert f(1) == 2", "assert f(2) == 3"], "def f(x): return x + 1", "def f(x): return 2"),
        ({"inputs": ["1\n", "5\n"], "outputs": ["2", "6"]}, "print(int(input()) + 1)", "print(2)"),
    ],
)
def test_its_tests_of_code_are_ours(theirs: Any, told: Any, gold: str, other: str, tmp_path: Path) -> None:
    code = importlib.import_module("open_instruct.code_utils.code_utils")
    rows = [{"prompt": "p", "gold": gold, "verifier": "code", "arguments": json.dumps(told)}]
    out = export(write_lines(tmp_path / "l", "rl_prompts_train", rows), "open_instruct", tmp_path / "out")
    [row] = pq.read_table(out / "train.parquet").to_pylist()
    run = {"code": code.get_successful_tests_fast, "code_stdio": code.get_successful_tests_stdio}[row["dataset"]]
    tests = code.decode_tests(row["ground_truth"])
    assert [run(program=program, tests=tests, max_execution_time=10.0)[0] for program in (gold, other)] == [[1, 1], [1, 0]]
