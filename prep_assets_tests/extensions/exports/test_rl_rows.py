"""Prompts with what their verifiers are told, in the rows of verl and open-instruct."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep_assets import export
from prep_assets.errors import ConfigError
from prep_assets.extensions.exports.compared import compare
from prep_assets.stores.table import open_table
from prep_assets_tests.extensions.exports.conftest import write_lines
from prep_assets_tests.extensions.exports.readers import reader

CONSTRAINTS = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"num_words": None}]}
ROWS: list[dict[str, Any]] = [
    {"prompt": "1 + 1?", "gold": 2.0},
    {"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "x + x?"}], "gold": "2*x", "verifier": "math"},
    {"prompt": "f?", "gold": "def f(): 1", "verifier": "code", "arguments": '["assert f() is None"]'},
    {"prompt": "Add.", "gold": "", "verifier": "code", "arguments": '{"inputs":["1 2"],"outputs":["3"]}'},
    {"prompt": "Add.", "gold": "", "verifier": "code", "arguments": '{"test_cases":[{"input":"1 2","output":"é"}]}'},
    {"prompt": "Say it.", "gold": "", "verifier": "ifeval", "arguments": json.dumps(CONSTRAINTS)},
    {"prompt": "Be kind.", "gold": "", "verifier": "rubric", "arguments": '[{"criterion":"Is kind.","points":5,"tags":["x"]}]'},
]
OPEN = {"dataset": None, "split": "train"}


def test_open_instruct(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "l", "rl_prompts_train", ROWS)
    found = pq.read_table(export(lines, "open_instruct", tmp_path / "out") / "train.parquet").to_pylist()
    assert [row["dataset"] for row in found] == ["gsm8k", "math", "code", "code_stdio", "code_stdio", "ifeval", "rubric"]
    assert found[0] == {"messages": [{"role": "user", "content": "1 + 1?"}], "ground_truth": "2", "dataset": "gsm8k"}
    assert found[1]["messages"] == ROWS[1]["prompt"]
    truths = [row["ground_truth"] for row in found]
    assert truths[1] == "2*x"
    assert [json.loads(truth) for truth in truths[2:5]] == [
        ["assert f() is None"],
        [{"input": "1 2", "output": "3"}],
        [{"input": "1 2", "output": "é"}],
    ]
    assert ast.literal_eval(truths[5]) == [{"instruction_id": ["punctuation:no_comma"], "kwargs": [{}]}]
    assert json.loads(truths[6]) == {"query": "Be kind.", "rubrics": [{"description": "Is kind.", "weight": 5.0}]}
    assert compare(tmp_path / "out", open_table(lines), "open_instruct", OPEN).passed


def test_a_gold_has_the_digits_of_its_source(tmp_path: Path) -> None:
    rows = [{"prompt": "a?", "gold": 5e-05, "gold_text": "0.00005"}, {"prompt": "b?", "gold": 3.0, "gold_text": "3.0"}]
    lines = write_lines(tmp_path / "l", "rl_prompts_train", rows)
    found = pq.read_table(export(lines, "open_instruct", tmp_path / "out") / "train.parquet").to_pylist()
    assert [row["ground_truth"] for row in found] == ["0.00005", "3.0"]
    assert compare(tmp_path / "out", open_table(lines), "open_instruct", OPEN).passed


@pytest.mark.parametrize("place", range(2, len(ROWS)))
def test_a_verifier_that_is_told_something_else_is_noticed(place: int, tmp_path: Path) -> None:
    told = ROWS[place]["arguments"]
    other = {**ROWS[place], "arguments": told.replace("is None", "is 1").replace("1 2", "1 3").replace("no_comma", "x").replace("5", "4")}
    assert other["arguments"] != told
    lines = [
        write_lines(tmp_path / name, "rl_prompts_train", rows)
        for name, rows in (("a", ROWS), ("b", [*ROWS[:place], other, *ROWS[place + 1 :]]))
    ]
    for name, options in (("open_instruct", OPEN), ("verl", {"data_source": "d", "ability": "math", "split": "train"})):
        given = {"data_source": "d"} if name == "verl" else {}
        out = export(lines[0], name, tmp_path / name, **given)
        assert compare(out, open_table(lines[0]), name, options).passed
        assert not compare(out, open_table(lines[1]), name, options).passed


def test_other_forms_of_the_same(tmp_path: Path) -> None:
    """Lines in arrays, constraints as text in an array, criteria with weights and without points: each is read back as the same."""
    text = json.dumps({"instruction_id": ["punctuation:no_comma"], "kwargs": [None]})
    told = {
        "code": {"inputs": [["1", "2"], "3"], "outputs": [["4"], "5"]},
        "ifeval": [text],
        "rubric": {
            "rubrics": [{"criterion": None, "description": "Is kind.", "points": None, "weight": 0.5}, {"criterion": "b", "points": 0}]
        },
    }
    rows = [{"prompt": "p", "gold": "", "verifier": name, "arguments": json.dumps(each)} for name, each in told.items()]
    lines = write_lines(tmp_path / "l", "rl_prompts_train", rows)
    found = pq.read_table(export(lines, "open_instruct", tmp_path / "a") / "train.parquet").to_pylist()
    assert json.loads(found[0]["ground_truth"]) == [{"input": "1\n2", "output": "4"}, {"input": "3", "output": "5"}]
    assert compare(tmp_path / "a", open_table(lines), "open_instruct", OPEN).passed
    export(lines, "verl", tmp_path / "b", data_source="d")
    assert compare(tmp_path / "b", open_table(lines), "verl", {"data_source": "d", "ability": "math", "split": "train"}).passed


def test_names_of_ones_own(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "l", "rl_prompts_train", ROWS[:3])
    names = {"number": "numbers", "code": "mine"}
    out = export(lines, "open_instruct", tmp_path / "out", dataset=names)
    assert [row["dataset"] for row in pq.read_table(out / "train.parquet").to_pylist()] == ["numbers", "math", "mine"]
    assert compare(out, open_table(lines), "open_instruct", {**OPEN, "dataset": names}).passed


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "p", "gold": "", "verifier": "code", "arguments": '{"fn_name":"f","inputs":[[1]],"outputs":[1]}'}, "tests that call f"),
        ({"prompt": "p", "gold": "", "verifier": "mine", "arguments": "[1]"}, "tells the verifier 'mine' something"),
        ({"prompt": "p", "gold": 1.0, "tools": "[]"}, "has tools or variables"),
        ({"prompt": "p", "completion": "a", "label": True}, r"reads RL prompts \(prompt, gold\) or pairs"),
        ({"prompt": "p", "responses": ["a", "b"], "rewards": [1, 0]}, r"reads RL prompts \(prompt, gold\) or pairs"),
        ({"prompt": "p", "chosen": "a", "rejected": "b"}, "is text, and open-instruct reads messages"),
        ({"prompt": [], "chosen": [], "rejected": [], "margin": 1.0}, "has a margin"),
        ({"prompt": [], "chosen": [], "rejected": [], "tools": "[]"}, "has tools or variables"),
    ],
)
def test_what_open_instruct_has_no_place_for(row: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"line 1 .*{said}|{said}"):
        export(write_lines(tmp_path / "l", "rl_prompts_train", [row]), "open_instruct", tmp_path / "out")


def pair_rows(count: int) -> list[dict[str, Any]]:
    said = [("system", "s"), ("user", "What is {} + é?"), ("assistant", "It is {}."), ("assistant", "No idea, {}.")]
    messages = [[{"role": role, "content": text.format(n)} for role, text in said] for n in range(count)]
    return [{"prompt": each[: 2 if n else 1], "chosen": [each[2]], "rejected": [each[3]]} for n, each in enumerate(messages)]


def test_pairs_of_open_instruct_are_whole_chats(tmp_path: Path) -> None:
    rows = pair_rows(3)
    lines = open_table(write_lines(tmp_path / "l", "preferences", rows))
    out = export(lines, "open_instruct", tmp_path / "out")
    assert pq.read_table(out / "train.parquet").to_pylist() == [
        {side: row["prompt"] + row[side] for side in ("chosen", "rejected")} for row in rows
    ]
    assert compare(out, lines, "open_instruct", OPEN).passed
    turned = [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]
    for name, others in (("turned", turned), ("no prompt", [{**row, "prompt": []} for row in rows])):
        assert not compare(out, open_table(write_lines(tmp_path / name, "preferences", others)), "open_instruct", OPEN).passed
    with pytest.raises(ConfigError, match="'dataset' has no effect for pairs"):
        export(lines, "open_instruct", tmp_path / "named", dataset={"number": "mine"})


def test_verl_is_told_what_its_reward_functions_parse(tmp_path: Path) -> None:
    """A verifier that judges by what it is told has it as the ground truth; another one beside its gold."""
    calls = [
        '{"fn_name":"f","inputs":[["é",[1]],[2,[]]],"outputs":[{"a":1},null]}',
        '{"fn_name":"f","inputs":["\\"é\\"\\n[1]","2\\n[]"],"outputs":["{\\"a\\":1}","null"]}',
        '{"test_cases":[{"fn_name":"f","input":["é",[1]],"output":{"a":1}},{"fn_name":"f","input":[2,[]],"output":null}]}',
    ]
    rows = [*ROWS, {"prompt": "p", "gold": "g", "verifier": "mine", "arguments": "[1]"}, {"prompt": "p", "gold": 1.0, "arguments": "[2]"}]
    rows += [{"prompt": "p", "gold": "", "verifier": "code", "arguments": call} for call in calls]
    out = export(write_lines(tmp_path / "l", "rl_prompts_train", rows), "verl", tmp_path / "out", data_source="d")
    found = pq.read_table(out / "train.parquet").to_pylist()
    truths = [row["reward_model"]["ground_truth"] for row in found]
    assert truths[:2] == ["2", "2*x"] and truths[5:9] == [ROWS[5]["arguments"], ROWS[6]["arguments"], "g", "1"]
    assert [json.loads(truth) for truth in truths[2:5]] == [
        {"assert_case": ["assert f() is None"]},
        {"inputs": ["1 2"], "outputs": ["3"]},
        {"inputs": ["1 2"], "outputs": ["é"]},
    ]
    for truth in map(json.loads, truths[9:]):  # as ``prime_code`` parses them
        assert [[json.loads(line) for line in call.split("\n")] for call in truth["inputs"]] == [["é", [1]], [2, []]]
        assert [*map(json.loads, truth["outputs"]), truth["fn_name"]] == [{"a": 1}, None, "f"]
    lines = open_table(tmp_path / "l")
    assert compare(out, lines, "verl", {"data_source": "d", "ability": "math", "split": "train"}).passed
    found = found[:9]
    beside = [{key: value for key, value in row["extra_info"].items() if value is not None} for row in found]
    assert [each.pop("index") for each in beside] == list(range(9))
    assert all(each.pop("split") == "train" for each in beside)
    assert beside == [{}, {}, {"answer": "def f(): 1"}, {}, {}, {}, {}, {"arguments": "[1]"}, {"arguments": "[2]"}]
    assert [row["data_source"] for row in found] == ["d", "math", "code", "code", "code", "ifeval", "rubric", "mine", "d"]


@pytest.mark.readers
def test_columns_of_trl(tmp_path: Path) -> None:
    """TRL hands the columns beside the prompt to reward functions, so arguments of several verifiers must fit one column."""
    reader("datasets")
    out = export(write_lines(tmp_path / "l", "rl_prompts_train", ROWS[2:]), "hf_parquet", tmp_path / "out")
    loaded = reader("datasets").load_dataset("parquet", data_files=str(out / "data/*.parquet"), split="train", cache_dir=str(tmp_path))
    assert [row["arguments"] for row in loaded] == [row["arguments"] for row in ROWS[2:]]


GOLDS: list[Any] = [2.0, -0.5, 1e22, 0.1, None]


@pytest.mark.parametrize("format", ["hf_parquet", "hf_arrow"])
@pytest.mark.parametrize(("texts", "said"), [([], GOLDS), (["2*x", ""], ["2", "-0.5", "10000000000000000000000", "0.1", None, "2*x", ""])])
def test_golds_of_one_column_are_of_one_kind(texts: list[str], said: list[Any], format: str, tmp_path: Path) -> None:
    """Numbers stay numbers; beside a gold that is text they are the texts that verl and open-instruct get as well."""
    rows = [{"prompt": "p", "gold": gold} for gold in (*GOLDS, *texts)]
    lines = open_table(write_lines(tmp_path / "l", "rl_prompts_train", rows))
    out = export(lines, format, tmp_path / "out")
    files = [*out.rglob("*.parquet")]
    read = pq.read_table(files[0]) if files else pa.ipc.open_stream(next(out.glob("*.arrow")).read_bytes()).read_all()
    assert read["gold"].to_pylist() == said
    options = {"layout": "trl", "split": "train", "image_dir": None}
    assert compare(out, lines, format, options).passed
    others = [{"prompt": "p", "gold": gold} for gold in (3.0, *GOLDS[1:], *texts)]
    assert not compare(out, open_table(write_lines(tmp_path / "m", "rl_prompts_train", others)), format, options).passed


@pytest.mark.readers
def test_a_reward_function_of_trl_compares_golds_of_all_kinds(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "gold": gold} for gold in (2.0, "$2x$", 0.5)]
    out = export(write_lines(tmp_path / "l", "rl_prompts_train", rows), "hf_parquet", tmp_path / "out")
    loaded = reader("datasets").load_dataset("parquet", data_files=str(out / "data/*.parquet"), split="train", cache_dir=str(tmp_path))
    answers = [[{"role": "assistant", "content": f"\\boxed{{{answer}}}"}] for answer in ("2", "2x", "0.6")]
    assert reader("trl.rewards").accuracy_reward(answers, solution=loaded["gold"][:]) == [1.0, 1.0, 0.0]
