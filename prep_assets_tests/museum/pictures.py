"""Pictures of masks: each token in a box, green and underlined where it is trained, one line for each mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy.typing as npt

_CHAR, _LINE, _GAP, _LEFT, _WIDTH = 7.25, 24, 4, 96, 900
_STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#57606a}"
    ".box{fill:#f0f2f4;stroke:#d0d7de}.on .box{fill:#d3f2db;stroke:#2da44e}.on text{fill:#116329}.on line{stroke:#2da44e;stroke-width:2}"
    ".name{font-weight:600;fill:#1f2328}"
    "@media (prefers-color-scheme:dark){text{fill:#9198a1}.box{fill:#212830;stroke:#3d444d}.on .box{fill:#12361f;stroke:#3fb950}"
    ".on text{fill:#7ee787}.name{fill:#f0f6fc}}"
)


def picture(lines: Mapping[str, tuple[Sequence[str], npt.ArrayLike]]) -> str:
    """An SVG: for each name a line of tokens with their mask, broken where it is too long."""
    parts, y, said = [], 8.0, []
    for name, (tokens, mask) in lines.items():
        parts.append(f'<text class="name" x="0" y="{y + 16:g}">{escape(name)}</text>')
        x = float(_LEFT)
        trained = [bool(value) for value in mask]  # type: ignore[union-attr]
        for text, on in zip(map(visible, tokens), trained, strict=True):
            width = len(text) * _CHAR + 8
            if x + width > _WIDTH and x > _LEFT:
                x, y = float(_LEFT), y + _LINE + _GAP
            parts.append(_box(x, y, width, text, on))
            x += width + 2
        y += _LINE + 3 * _GAP
        said.append(f"{name}: trained {''.join(text for text, on in zip(tokens, trained, strict=True) if on)!r}")
    title = escape("; ".join(said))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y:g}" width="{_WIDTH}" role="img">'
    return "\n".join([head, f"<title>{title}</title>", f"<style>{_STYLE}</style>", *parts, "</svg>", ""])


def _box(x: float, y: float, width: float, text: str, trained: bool) -> str:
    rect = f'<rect class="box" x="{x:g}" y="{y:g}" width="{width:g}" height="{_LINE}" rx="4"/>'
    words = f'<text x="{x + 4:g}" y="{y + 16:g}" xml:space="preserve">{escape(text)}</text>'
    line = f'<line x1="{x + 4:g}" y1="{y + _LINE - 4:g}" x2="{x + width - 4:g}" y2="{y + _LINE - 4:g}"/>' if trained else ""
    return f'<g class="on">{rect}{words}{line}</g>' if trained else f"<g>{rect}{words}</g>"


def visible(text: str) -> str:
    """A token's text with white space shown."""
    return text.replace(" ", "·").replace("\n", "⏎").replace("\t", "⇥") or "∅"
