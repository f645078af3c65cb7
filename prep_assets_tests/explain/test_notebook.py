"""What notebooks show of rows, verdicts and opened stores."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import prep_assets as pa
from prep_assets.text.visible import Preview
from prep_assets_tests.graph.workspaces import build, domain, minimal, workspace_in
from prep_assets_tests.reports.hostile import HOSTILE


class Spans(HTMLParser):
    """Text of each span by its style, and every tag."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts, self.tags, self._style = list[tuple[str, str]](), list[str](), ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._style = dict(attrs).get("style") or ""

    def handle_data(self, data: str) -> None:
        self.texts.append((data, self._style))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> pa.Workspace:
    workspace = workspace_in(
        tmp_path_factory.mktemp("notebook"), minimal("sft", {"chats": domain("chats.jsonl", "messages")}, template="chatml")
    )
    build(workspace, "sft_packed")
    return workspace


def test_trained_tokens_are_green(workspace: pa.Workspace) -> None:
    shown = pa.row(workspace, "sft_packed", 2)
    assert isinstance(shown.row, Preview)
    spans = Spans(shown._repr_html_())
    green = "".join(text for text, style in spans.texts if "2e7d32" in style)
    trained = "".join(token for token, weight in zip(shown.row.tokens, shown.row.weights, strict=True) if weight > 0)
    assert green == trained.replace("\n", "⏎\n") and len(trained) > 100


def test_any_text_stays_text(workspace: pa.Workspace) -> None:
    of = pa.row(workspace, "sft_packed")
    for text in HOSTILE:
        row = Preview(text, (text, text), (1.0, -1.0), (0, 1), ((0, text),))
        for shown in (replace(of, row=row), replace(of, row={text: text})):
            assert {*Spans(shown._repr_html_()).tags} <= {"p", "b", "div", "span", "table", "tr", "th", "td"}


def test_verdicts_and_stores(workspace: pa.Workspace, tmp_path: Path) -> None:
    verdict: Any = pa.verify(workspace, "sft_packed")["sft_packed"]["mask_alignment"]
    assert "<b>✓</b>" in verdict._repr_html_() and "rows_checked" in verdict._repr_html_()
    store: Any = pa.load(workspace.stores / "sft_packed")
    assert f"<tr><th>loss_mask</th><td>{len(store):,}</td><td>int8</td></tr>" in store._repr_html_()
