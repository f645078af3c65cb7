"""Python on the pages runs, and prints what the pages say.

The blocks of a page run one after another in one namespace. A line ``print(…)  # this`` must print ``this``. Blocks after the comment
``<!-- storage_format: bin -->`` find stores of that format.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from prep_assets_tests.docs.conftest import enter
from prep_assets_tests.docs.pages import DOCS, read

OURS = [
    DOCS / name for name in ("stores.md", "checks.md", "add-a-data-set.md", "architecture.md", "development.md", "graph.md", "python.md")
]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"^\s*print\(.*\)  # (.*)$", re.MULTILINE)


def run(block: str, names: dict[str, object]) -> list[str]:
    """Lines that a block prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(block, "<page>", "exec"), names)
    return said.getvalue().splitlines()


def snippets(page: Path, storage: str) -> list[str]:
    """The Python blocks of a page that find stores of one format."""
    first, *rest = re.split(r"<!-- storage_format: (h5|bin) -->", read(page))
    parts = [("h5", first), *zip(rest[::2], rest[1::2], strict=True)]
    return [block for format_, text in parts if format_ == storage for block in BLOCK.findall(text)]


CASES = [(page, storage) for page in OURS for storage in ("h5", "bin") if snippets(page, storage)]


@pytest.mark.parametrize(("page", "storage"), CASES, ids=[f"{page.name}-{storage}" for page, storage in CASES])
def test_snippets(page: Path, storage: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(request.getfixturevalue(f"data_{storage}"), monkeypatch)
    Path("chats.csv").write_text("conversation_id,role,content\n1,user,Hi\n1,assistant,Hello!\n2,user,Bye\n", "utf-8")
    names: dict[str, object] = {"__name__": "page"}
    for block in snippets(page, storage):
        if "torch" in block or "prep_assets.training" in block:
            pytest.importorskip("torch")
        assert run(block, names) == PRINTED.findall(block), block


def test_messages_of_a_table_become_chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("chats.csv").write_text("conversation_id,role,content\n1,user,Hi\n1,assistant,Hello!\n2,user,Bye\n", "utf-8")
    [block] = [block for block in BLOCK.findall(read(DOCS / "add-a-data-set.md")) if "csv" in block]
    run(block, {})
    first, second = map(json.loads, Path("chats.jsonl").read_text("utf-8").splitlines())
    assert first == {"id": "1", "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}
    assert second["id"] == "2"


def test_a_snippet_that_prints_something_else_is_found() -> None:
    block = "print(1 + 1)  # 3\n"
    assert run(block, {}) != PRINTED.findall(block)
