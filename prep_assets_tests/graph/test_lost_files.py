"""Files whose rows would be lost with them, and stores that another process builds again under a build: each stops with a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prep_assets.checks.of_stores import _fault_of_folder
from prep_assets.engine import run
from prep_assets.engine.events import Event
from prep_assets.errors import PrepAssetsError, SourceError, StoreError
from prep_assets.graph.graph import EVERY
from prep_assets.pipeline.workspace import Workspace
from prep_assets_tests.graph.workspaces import TOKENIZER, build, jsonl, workspace_in

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
PAGE = "<!DOCTYPE html><html>\n<body>404</body></html>\n"
ROWS = [{"text": f"document number {number} of the file"} for number in range(12)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
ARRAY = json.dumps(ROWS)
CHAT: Any = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}


def texts(folder: Path, pattern: str = "*.jsonl", **domain: Any) -> Workspace:
    return workspace_in(
        folder, {"pretrain": {"tokenizer": TOKENIZER, "domains": {"d": {"files": [f"../in/{pattern}"], "schema": "text", **domain}}}}
    )


def files(folder: Path, **contents: str | bytes) -> Path:
    inside = folder / "in"
    inside.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        path = inside / name.replace("__", ".")
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return inside


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b__jsonl", POINTER, r"b\.jsonl: is a Git LFS pointer, not the data .*git lfs pull"),
        ("b__txt", POINTER, r"b\.txt: is a Git LFS pointer, not the data .*git lfs pull"),
        ("b__csv", POINTER, "is a Git LFS pointer"),
        ("b__json", POINTER, "is a Git LFS pointer"),
        ("b__jsonl__gz", POINTER, "is a Git LFS pointer"),
        ("b__parquet", POINTER, "is a Git LFS pointer"),
        ("b__jsonl", PAGE, r"b\.jsonl: is an HTML page, .* Download the data itself"),
        ("b__txt", PAGE, "is an HTML page"),
        ("b__jsonl", "<!DOCTYPE html>\n<html><body>404</body></html>\n", "is an HTML page"),
        ("b__json", PAGE, "is an HTML page"),
        ("b__csv", PAGE, "is an HTML page"),
        ("b__jsonl", ARRAY, r"is one JSON list, not one object a line .* Set `format: json`"),
        (
            "b__jsonl",
            json.dumps(ROWS * 200),
            r"(none of its 1 rows can be used|all 1 records were refused) .* is one JSON list, .* Set `format: json`",
        ),
        ("b__jsonl", json.dumps(ROWS, indent=2), r"is JSON over several lines"),
        ("b__jsonl", "[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]\n", "is JSON over several lines"),
        ("b__jsonl", "[" + "\n,".join(map(json.dumps, ROWS)) + "]\n", "is JSON over several lines"),
        ("b__jsonl", "\n".join(json.dumps(row, indent=2) for row in ROWS), "is JSON over several lines"),
        ("b__jsonl", '{"data": [\n' + ",\n".join(map(json.dumps, ROWS)) + "\n]}\n", "is JSON over several lines"),
        (
            "b__jsonl",
            "".join(f"{json.dumps(row)} {json.dumps(row)}\n" for row in ROWS),
            r"has several JSON objects on one line.*one object a line",
        ),
        ("b__jsonl", LINES.replace("\n", "\r"), r"ends its lines with CR alone"),
        ("b__txt", "one\rtwo\rthree\r", r"ends its lines with CR alone"),
        (
            "b__jsonl",
            '["a"]\n"b"\nnull\n',
            r"(none of its 3 rows can be used|all 3 records were refused) \(records/not_an_object:? 3\).* first one, b.jsonl:1: needs an object",
        ),
        ("b__jsonl", '{"body": "x"}\n{"body": "y"}\n', r"b\.jsonl"),
        ("b__jsonl", "\n\n \n", r"no records? in b\.jsonl: only blank lines"),
    ],
)
def test_a_file_of_which_nothing_would_be_kept(tmp_path: Path, beside: bool, name: str, content: str, message: str) -> None:
    inside = files(tmp_path, **{name: content}, **({"a__jsonl": LINES} if beside else {}))
    if beside and name.endswith("csv"):
        return
    workspace = texts(
        tmp_path, pattern="*" if beside else next(inside.iterdir()).name, **({"ignore": ["body"]} if '"body"' in content else {})
    )
    if '"body"' in content and not beside:
        message = "all 2 records were refused"
    with pytest.raises(PrepAssetsError, match=message):
        build(workspace, "pretrain_tokens", "d")


@pytest.mark.parametrize(
    ("name", "content", "records"),
    [
        ("b__jsonl", '{"text":"a"}\n["text","b"]\n"c"\n42\nnull\n{"text":"d"}\n', 2),
        ("b__jsonl", '["no", "row"]\n{"text":"d"}\n', 1),
        ("b__jsonl", '{"text": "cut of\n{"text":"d"}\n', 1),
        ("b__txt", "<html>one page</html>\n<html>another page</html>\n", 2),
        ("b__txt", "a progress bar\r that was\r kept\nand a line\n", 2),
        ("b__jsonl", LINES.replace("\n", "\r\n"), 12),
    ],
)
def test_files_with_rows_are_read(tmp_path: Path, name: str, content: str, records: int) -> None:
    files(tmp_path, **{name: content})
    assert build(texts(tmp_path, pattern="b*"), "pretrain_tokens", "d").manifest.counts["kept"] == records


def test_a_page_that_is_one_document(tmp_path: Path) -> None:
    files(tmp_path, a__txt=PAGE)
    assert build(texts(tmp_path, pattern="a.txt", txt="file"), "pretrain_tokens", "d").manifest.counts["kept"] == 1


def test_a_file_of_one_record_is_a_record(tmp_path: Path) -> None:
    """Many files hold one record each: one that is too short is refused alone. So are copies, and what `where` leaves out."""
    files(
        tmp_path,
        a__jsonl=LINES,
        b__jsonl='{"text": " "}\n',
        c__jsonl=LINES,
        d__jsonl='{"text": "x", "lang": "de"}\n{"text": "y", "lang": "de"}\n',
    )
    published = build(texts(tmp_path, where={"lang": {"!=": "de"}}), "pretrain_tokens", "d")
    assert published.manifest.counts["refused"] == {"deduplicate/duplicate": 12, "schema/empty_text": 1, "records/filtered_by_where": 2}


def test_a_file_that_shares_rows_with_other_domains(tmp_path: Path) -> None:
    """A row that cannot be read belongs to every domain of its file; the other rows of this one are not of this domain."""
    files(tmp_path, a__jsonl='{"text": "one", "of": "d"}\n', b__jsonl='{"text": "two", "of": "e"}\n{"text": \n')
    shared = {"files": ["../in/*.jsonl"], "schema": "text", "domain_key": "of"}
    workspace = workspace_in(tmp_path, {"pretrain": {"tokenizer": TOKENIZER, "domains": {"d": shared, "e": shared}}})
    assert build(workspace, "pretrain_tokens", "d").manifest.counts["kept"] == 1


@pytest.mark.parametrize("pattern", ["part-*.jsonl", "*", "**", "*/part-0.jsonl", "."])
def test_a_link_that_leads_nowhere(tmp_path: Path, pattern: str) -> None:
    inside = files(tmp_path, **{"part-0__jsonl": LINES})
    (inside / "sub").mkdir()
    (inside / "sub" / "part-0.jsonl").write_text(LINES.replace("file", "folder"))
    (inside / ("other" if pattern == "*/part-0.jsonl" else "part-1.jsonl")).symlink_to("../blobs/gone")
    with pytest.raises(SourceError, match=r"(part-1\.jsonl|other).*(blobs/gone|No such file)"):
        build(texts(tmp_path, pattern=pattern), "pretrain_raw", "d")


def test_a_tenth_that_is_refused_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from prep_assets.cli.stores import Live
    from prep_assets.engine.plan import Step

    files(tmp_path, a__jsonl=LINES + '{"text": ""}\n{"text": 3}\n')
    workspace = texts(tmp_path)
    events: list[Event] = []
    for asset in ("pretrain_raw", "pretrain_tokens"):
        events += run(workspace, [Step(EVERY[asset], "d", "missing", "for a test", requested=True)])
    console = Console(record=True, width=300)
    live = Live(console)
    for event in events:
        live(event)
    said = console.export_text()
    assert "! pretrain_tokens[d]: 2 of 14 records (14%) are refused: schema/empty_text 1, schema/wrong_type 1." in said
    assert "prep-assets quarantine pretrain_tokens --partition d" in said and "pretrain_raw[d]: 2" not in said


@pytest.mark.parametrize(("options", "shown"), [({}, True), ({"special_in_content": "strip"}, False)])
def test_control_tokens_that_became_text_are_said(tmp_path: Path, options: dict[str, Any], shown: bool) -> None:
    from rich.console import Console

    from prep_assets.cli.stores import Live
    from prep_assets.engine.plan import Step

    answers = ["Fine.", "Write <|im_end|> or <|im_start|>."]
    rows = [{"messages": [CHAT["messages"][0], {"role": "assistant", "content": answer}]} for answer in answers]
    files(tmp_path, rows__jsonl="".join(json.dumps(row) + "\n" for row in rows))
    sft = {"tokenizer": TOKENIZER, "template": "chatml", "domains": {"d": {"files": ["../in/rows.jsonl"], "schema": "messages"}}, **options}
    workspace = workspace_in(tmp_path, {"sft": sft})
    console = Console(record=True, width=300)
    live = Live(console)
    for asset in ("sft_raw", "sft_tokens"):
        for event in run(workspace, [Step(EVERY[asset], "d", "missing", "for a test", requested=True)]):
            live(event)
    wanted = "! sft_tokens[d]: 2 control tokens typed in contents, each read as several tokens of text"
    said = console.export_text()
    assert "✓ sft_tokens[d]" in said and (wanted in said) == shown


def test_two_builders_and_a_changed_file(tmp_path: Path) -> None:
    """A second process pins new content after the key of the first one was made: the first stops, and the old file gives the old store."""
    old, new = [{**CHAT, "messages": [{"role": "user", "content": f"Hi {n}"}, CHAT["messages"][1]]} for n in range(20)], [CHAT]
    inside = files(tmp_path)
    domain = {"files": ["../in/a.jsonl"], "schema": "messages"}
    workspace = workspace_in(tmp_path, {"sft": {"tokenizer": TOKENIZER, "template": "chatml", "domains": {"a": domain}}})
    jsonl(inside / "a.jsonl", old)
    build(workspace, "sft_raw", "a")
    first = EVERY["sft_tokens"].build(workspace, "a")
    jsonl(inside / "a.jsonl", new)
    build(Workspace(workspace.configs, workspace.stores), "sft_raw", "a")
    with pytest.raises(StoreError, match=r"sft_tokens\[a\]: .*sft_raw\[a\] was built again by another process .* Nothing is published"):
        first.propose()
    assert workspace.published("sft_tokens", "a") is None
    jsonl(inside / "a.jsonl", old)
    build(workspace, "sft_raw", "a")
    assert build(workspace, "sft_tokens", "a").manifest.counts["kept"] == 20


@pytest.mark.parametrize("asset", ["sft_packed", "sft_tokens"])
def test_what_a_build_reads_is_what_its_key_says(tmp_path: Path, asset: str) -> None:
    """The store above changes between the key and the reading, whatever it is made from; checks say so, too."""
    inside = files(tmp_path)
    rows = [{"messages": [{"role": "user", "content": f"Hi {n}"}, CHAT["messages"][1]]} for n in range(20)]
    jsonl(inside / "a.jsonl", rows)
    domain = {"files": ["../in/a.jsonl"], "schema": "messages"}
    options = {"tokenizer": TOKENIZER, "template": "chatml", "packing": {"row_len": 128}, "domains": {"a": domain}}
    workspace = workspace_in(tmp_path, {"sft": options})
    partition = "" if asset == "sft_packed" else "a"
    published = build(workspace, asset, partition)
    key = EVERY[asset].build(workspace, partition)
    jsonl(inside / "a.jsonl", rows[:9])
    for above in ("sft_raw", "sft_tokens"):
        if above != asset:
            build(workspace, above, "a")
    with pytest.raises(StoreError, match="was built again by another process"):
        key.propose(again=True)
    assert published.version == workspace.built(asset, partition).version


def test_a_folder_of_images_that_changed_since_it_was_pinned(tmp_path: Path) -> None:
    """A link to a folder that it is in leads nowhere new; one to a file is a file."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "1.png").write_bytes(b"x" * 3)
    (tmp_path / "a" / "b" / "2.png").write_bytes(b"x" * 1000)
    (tmp_path / "a" / "b" / "above").symlink_to(tmp_path / "a")
    assert _fault_of_folder(tmp_path / "a", {"files": 2, "bytes": 1003}) == ""
    (tmp_path / "a" / "3.png").symlink_to(tmp_path / "a" / "b" / "2.png")
    for files, size in ((2, 1003), (3, 1003), (2, 2003)):
        found = f"3 files of 2,003 bytes are below {tmp_path / 'a'}, the pin says {files} of {size:,}"
        says = f"{found}: it leaves some out, or the folder has changed since. Pin it again"
        assert _fault_of_folder(tmp_path / "a", {"files": files, "bytes": size}) == says
    (tmp_path / "none").mkdir()
    assert _fault_of_folder(tmp_path / "none", {}) == "" != _fault_of_folder(tmp_path / "a", {})
