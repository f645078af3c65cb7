"""A row of a store as notebooks show it."""

from __future__ import annotations

from html import escape
from typing import Any

from msgspec import Struct

from prep_assets.explain.previews import Preview, preview
from prep_assets.explain.visible import visible
from prep_assets.graph.graph import one_partition
from prep_assets.pipeline.workspace import Workspace

_STYLES = {1: "background:#2e7d3244;border-bottom:2px solid #2e7d32", 0: "opacity:.6", -1: "opacity:.6;text-decoration:line-through"}
"""Of tokens that are trained, not trained, not attended."""
_FRAME = '<p><b>{}</b></p><div style="white-space:pre-wrap;font-family:monospace">{}</div>'


class ShownRow(Struct, frozen=True):
    """A row of a store; notebooks show it with trained tokens in green.

    Attributes:
        row: a `Preview` of tokens, or the JSON object of a line.
    """

    row: Preview | dict[str, Any]

    def _repr_html_(self) -> str:
        if isinstance(self.row, dict):
            rows = "".join(f"<tr><th>{escape(key)}</th><td>{escape(visible(str(value)))}</td></tr>" for key, value in self.row.items())
            return f"<table>{rows}</table>"
        weights, begins, shown = self.row.weights or (0.0,) * len(self.row.tokens), dict(self.row.origins), list[str]()
        for at, (token, weight) in enumerate(zip(self.row.tokens, weights, strict=True)):
            if at in begins:
                shown.append(f'<span title="{escape(visible(begins[at]))}" style="border-left:3px solid #888"></span>')
            text = escape(visible(token))
            shown.append(f'<span title="{at}: weight {weight:g}" style="{_STYLES[(weight > 0) - (weight < 0)]}">{text}</span>')
        return _FRAME.format(escape(visible(self.row.title)), "".join(shown))


def row(
    workspace: Workspace, asset: str, number: int = 0, *, partition: str | None = None, stream: str | None = None, limit: int = 4096
) -> ShownRow:
    """A row of a published store, with at most `limit` tokens of a sequence.

    Raises:
        ConfigError: no such asset, row or stream.
        StoreError: there is no store; the message has the command that builds it.
    """
    definition, key = one_partition(workspace, asset, partition)
    return ShownRow(preview(workspace, workspace.built(definition.name, key), number, stream=stream, limit=limit))
