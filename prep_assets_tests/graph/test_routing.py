"""One source for several domains, told apart by a field; and images that are not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prep_assets.data.quarantine import read_quarantine
from prep_assets.errors import ConfigError, SourceError, SourceUnavailable
from prep_assets.graph.graph import ASSETS
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import make

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    {"source": "math", "instruction": "2 + 2?", "output": "4"},
    {"source": "code", "instruction": "Print?", "output": "print()"},
    {"source": "math", "instruction": "3 + 3?", "output": "6"},
    {"source": "code", "instruction": "Hard?", "output": "no", "level": 9},
]


def _workspace(folder: Path, rows: list[dict[str, object]], domains: str) -> Workspace:
    (folder / "mixed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    text = f"tokenizer: {ROOT / 'configs' / 'tokenizer'}\npacking: {{row_len: 64}}\ndomains:\n{domains}"
    (folder / "sft.yaml").write_text(text, "utf-8")
    return Workspace(folder, folder / "stores")


TWO = """\
  math: {files: [mixed.jsonl], schema: alpaca, domain_key: source}
  python: {files: [mixed.jsonl], schema: alpaca, domain_key: source, domain_value: code, where: {level: {exists: false}}}
"""


def test_each_domain_takes_its_own_rows_and_nothing_is_counted_twice(tmp_path: Path) -> None:
    workspace = _workspace(tmp_path, [*ROWS], TWO)
    counts = {}
    for domain in ("math", "python"):
        raw = make(workspace, ASSETS["sft_raw"], domain).manifest.counts
        tokens = make(workspace, ASSETS["sft_tokens"], domain).manifest.counts
        counts[domain] = (raw["read"], tokens["read"], tokens["kept"], tokens["refused"])
    assert counts == {"math": (2, 2, 2, {}), "python": (2, 2, 1, {"records/filtered_by_where": 1})}


def test_a_value_that_no_domain_declares_stops_with_its_count_and_the_nearest(tmp_path: Path) -> None:
    workspace = _workspace(
        tmp_path, [*ROWS, {"source": "maths", "instruction": "1?", "output": "1"}, {"instruction": "?", "output": "x"}], TWO
    )
    with pytest.raises(SourceError, match=r"'\(missing\)' \(1 rows\), 'maths' \(1 rows; did you mean 'math'\?\)"):
        make(workspace, ASSETS["sft_raw"], "math")
    assert workspace.published("sft_raw", "math") is None


def test_declaring_another_domain_makes_the_raw_asset_stale(tmp_path: Path) -> None:
    one = _workspace(tmp_path, ROWS[:1], TWO.splitlines()[0] + "\n")
    before = ASSETS["sft_raw"].build(one, "math").key
    assert ASSETS["sft_raw"].build(_workspace(tmp_path, ROWS[:1], TWO), "math").key != before


def _pieces(folder: Path, domains: str, **files: list[str]) -> Workspace:
    """A workspace over files of some rows, each given by its values of ``source``."""
    for name, values in files.items():
        rows = [{"source": value, "instruction": f"{name} {i}?", "output": "yes"} for i, value in enumerate(values)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return _workspace(folder, [], domains)


ROLES = {
    "another file": "  {name}: {{files: [{own}.jsonl], schema: alpaca, domain_key: source}}\n",
    "held out by one, trained on by the other": "  {name}: {{files: [{own}.jsonl], test_files: [{held}.jsonl], schema: alpaca, domain_key: source}}\n",
}


@pytest.mark.parametrize("form", ROLES.values(), ids=ROLES)
def test_a_value_that_only_a_domain_of_other_files_declares_stops(tmp_path: Path, form: str) -> None:
    domains = form.format(name="math", own="x", held="z") + form.format(name="poetry", own="y", held="x")
    workspace = _pieces(tmp_path, domains, x=["math", "poetry", "poetry"], y=["poetry"], z=["math"])
    with pytest.raises(SourceError, match=r"'source' holds values that no domain declares: 'poetry' \(2 rows\)"):
        make(workspace, ASSETS["sft_raw"], "math")


def test_domains_that_share_some_files_take_every_row_once(tmp_path: Path) -> None:
    domains = "".join(
        f"  {name}: {{files: {files}, schema: alpaca, domain_key: source}}\n"
        for name, files in (("a", "[x.jsonl, y.jsonl]"), ("b", "[./y.jsonl, z.jsonl, gone.jsonl]"))
    )
    workspace = _pieces(tmp_path, domains, x=["a", "a"], y=["a", "b", "b"], z=["b"])
    assert make(workspace, ASSETS["sft_raw"], "a").manifest.counts["read"] == 3
    with pytest.raises(SourceError, match=r"gone\.jsonl"):
        make(workspace, ASSETS["sft_raw"], "b")
    (tmp_path / "gone.jsonl").write_text('{"source": "b", "instruction": "?", "output": "yes"}\n', "utf-8")
    assert make(workspace, ASSETS["sft_raw"], "b").manifest.counts["read"] == 4


@pytest.mark.parametrize("role", ["files: [x.jsonl]", "files: [y.jsonl], test_files: ['*.jsonl']"])
def test_two_domains_that_take_the_same_rows_stop(tmp_path: Path, role: str) -> None:
    math = "  math: {files: [x.jsonl], schema: alpaca, domain_key: source}\n"
    workspace = _pieces(
        tmp_path, math + f"  b: {{{role}, schema: alpaca, domain_key: source, domain_value: math}}\n", x=["math"], y=["math"]
    )
    for name in ("math", "b"):
        with pytest.raises(ConfigError, match=r"domains b and math both take the rows of .*x\.jsonl in which 'source' is 'math'"):
            make(workspace, ASSETS["sft_raw"], name)
    apart = math + "  b: {files: [y.jsonl], schema: alpaca, domain_key: source, domain_value: math}\n"
    fine = _pieces(tmp_path, apart, x=["math"], y=["math"])
    assert [make(fine, ASSETS["sft_raw"], name).manifest.counts["read"] for name in ("math", "b")] == [1, 1]


def test_a_missing_image_is_a_quarantined_record(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"messages": [{"role": "user", "content": "<image>What?"}, {"role": "assistant", "content": "A cat."}], "images": [name]}
        for name in ("there.png", "gone.png")
    ]
    domains = "  pictures: {files: [mixed.jsonl], schema: messages, image_dir: pictures}\nimage_token: '<|pad|>'\n"
    workspace = _workspace(tmp_path, rows, domains)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "there.png").write_bytes(b"not looked at")
    make(workspace, ASSETS["sft_raw"], "pictures")
    store = make(workspace, ASSETS["sft_tokens"], "pictures")
    assert (store.manifest.counts["kept"], store.manifest.counts["refused"]) == (1, {"render/missing_image": 1})
    assert store.quarantine is not None
    (refusal,) = read_quarantine(store.quarantine)
    assert refusal.id == "mixed.jsonl:1" and "gone.png" in refusal.detail


def test_a_source_of_another_domain_that_is_not_reached_is_not_taken_for_missing(tmp_path: Path) -> None:
    """It may hold rows of the same files, and without it the recipe would be another one."""
    for place, raised in (("http://127.0.0.1:9/mixed.jsonl", SourceUnavailable), ("gone.jsonl", SourceError)):
        workspace = _workspace(tmp_path, [*ROWS], TWO.replace("python: {files: [mixed.jsonl]", f"python: {{files: [{place}]"))
        with pytest.raises(SourceError) as stopped:
            make(workspace, ASSETS["sft_raw"], "math")
        assert type(stopped.value) is raised
