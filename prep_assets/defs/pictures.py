"""A row of tokens as Dagster's web UI can show it: a diff block on the asset page, a picture of coloured boxes behind a click.

The UI's Markdown strips HTML and styles and shows text inline below 1,000 characters only; a fenced ``diff`` block and an embedded SVG are
what it renders in colour.
"""

from __future__ import annotations

import base64
from html import escape

from prep_assets.pipelines.previews import Preview

INLINE_CHARACTERS = 940
SVG_TOKENS = 320
TRAINED, MASKED = ("#1a7f37", "#ffffff"), ("#d0d7de", "#24292f")


def diff_block(preview: Preview) -> str:
    """Markdown: runs of trained tokens as ``+`` lines (green), masked ones as plain lines; cut to what the asset page shows inline."""
    lines: list[str] = []
    room = INLINE_CHARACTERS - len(preview.title)
    starts = {at for at, _ in preview.origins}
    previous: bool | None = None
    for i, text in enumerate(preview.tokens):
        trained = bool(preview.weights and preview.weights[i])
        if trained != previous or i in starts:
            lines.append("+ " if trained else "  ")
            previous = trained
        lines[-1] += _one_line(text)
        if sum(map(len, lines)) + len(lines) > room:
            lines.append("  …")
            break
    body = "\n".join(lines)
    return f"{preview.title}\n\n```diff\n{body}\n```"


def picture(preview: Preview) -> str:
    """Markdown with an embedded SVG: each token a box, green where it is trained; a bar where a document begins."""
    shown = f" (first {SVG_TOKENS})" if len(preview.tokens) > SVG_TOKENS else ""
    return f"{preview.title}{shown}: green is trained, grey is masked, a bar begins a document\n\n![row]({_svg(preview)})"


def _svg(preview: Preview) -> str:
    x, y, width, height = 6, 6, 760, 22
    starts = {at for at, _ in preview.origins}
    parts = []
    for i, text in enumerate(preview.tokens[:SVG_TOKENS]):
        label = _one_line(text)
        box = 8 * len(label) + 10
        if x + box > width:
            x, y = 6, y + height + 6
        fill, ink = TRAINED if preview.weights and preview.weights[i] else MASKED
        if i in starts:
            parts.append(f'<rect x="{x - 3}" y="{y - 2}" width="2" height="{height + 4}" fill="#cf222e"/>')
        parts.append(f'<rect x="{x}" y="{y}" width="{box}" height="{height}" rx="3" fill="{fill}"/>')
        parts.append(f'<text x="{x + 5}" y="{y + 15}" font-family="monospace" font-size="13" fill="{ink}">{escape(label)}</text>')
        x += box + 3
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 12}" height="{y + height + 8}">{"".join(parts)}</svg>'
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _one_line(text: str) -> str:
    """White space made visible, and nothing that would end the code block."""
    return text.replace("\n", "⏎").replace("\r", "␍").replace("\t", "⇥").replace("`", "ˋ")
