"""A row of tokens as Dagster's web UI can show it: a diff block on the asset page, a picture of coloured boxes behind a click.

The UI's Markdown strips HTML and styles and shows text inline below 1,000 characters only; a fenced ``diff`` block and an embedded SVG are
what it renders in colour.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from prep_assets.reports.charts import binned

if TYPE_CHECKING:
    from prep_assets.assets.previews import Preview


INLINE_CHARACTERS = 960
LINE_CHARACTERS = 44
"""What a window of 1,440 pixels shows of a line."""
TITLE_CHARACTERS = 240
SVG_TOKENS = 320
TRAINED, MASKED, WRONG = ("#1a7f37", "#ffffff"), ("#d0d7de", "#24292f"), ("#cf222e", "#ffffff")
# control characters, line separators, marks that turn the direction of writing, halves of surrogate pairs, noncharacters
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
WIDTH, ROW, BAR, FIGURES = 336, 24, 144, 220
NAME_CHARACTERS = 24
HEIGHT, BINS = 60, 28
FILL, INK, ASKED = "#218bff", "#818b98", "#cf222e"
"""Colours that can be seen on a light page and on a dark one."""


def diff_block(preview: Preview, wrong: int = -1) -> str:
    """Markdown: trained tokens on ``+`` lines (green), masked ones on plain lines, a wrong one on a ``-`` line (red); cut to what the asset page
    shows inline. A line ends where the text's own does, and where it grows long."""
    lines: list[str] = []
    title = _title(preview)
    room = INLINE_CHARACTERS - len(title)
    starts = {at for at, _ in preview.origins}
    previous, ended = "", False
    for i, text in enumerate(preview.tokens):
        sign = "- " if i == wrong else "+ " if preview.weights and preview.weights[i] > 0 else "  "
        shown = _one_line(text)
        begins = sign != previous or i in starts or ended or len(lines[-1]) + len(shown) > LINE_CHARACTERS
        room -= len(shown) + 3 * begins
        if room < 0:
            lines.append("  …")
            break
        if begins:
            lines.append(sign)
        previous, ended = sign, shown.endswith("⏎")
        lines[-1] += shown
    body = "\n".join(lines)
    return f"{title}\n\n```diff\n{body}\n```"


def picture(preview: Preview, wrong: int = -1) -> str:
    """Markdown with an embedded SVG: each token a box, green where it is trained, red where it is wrong; a bar where a document begins."""
    shown = f" (first {SVG_TOKENS})" if len(preview.tokens) > SVG_TOKENS else ""
    bars = ", a bar begins a document" if preview.origins else ""
    red = ", red is wrong" if wrong >= 0 else ""
    return f"{_title(preview)}{shown}: green is trained, grey is masked{red}{bars}\n\n![row]({_svg(preview, wrong)})"


def _svg(preview: Preview, wrong: int) -> str:
    x, y, width, height = 6, 6, 760, 22
    starts = {at for at, _ in preview.origins}
    parts = []
    for i, text in enumerate(preview.tokens[:SVG_TOKENS]):
        label = _one_line(text)
        box = 8 * len(label) + 10
        if x + box > width:
            x, y = 6, y + height + 6
        fill, ink = WRONG if i == wrong else TRAINED if preview.weights and preview.weights[i] > 0 else MASKED
        if i in starts:
            parts.append(f'<rect x="{x - 3}" y="{y - 2}" width="2" height="{height + 4}" fill="#cf222e"/>')
        parts.append(f'<rect x="{x}" y="{y}" width="{box}" height="{height}" rx="3" fill="{fill}"/>')
        parts.append(f'<text x="{x + 5}" y="{y + 15}" font-family="monospace" font-size="13" fill="{ink}">{escape(label)}</text>')
        x += box + 3
    return embedded(parts, width + 12, y + height + 8)


def embedded(parts: Iterable[str], width: int, height: int) -> str:
    """SVG elements as a picture's address in Markdown."""
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">{"".join(parts)}</svg>'
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _title(preview: Preview) -> str:
    """The title as one short line of Markdown; without the backslash, ``<think>`` would vanish as HTML."""
    title = _one_line(preview.title)
    return (title if len(title) <= TITLE_CHARACTERS else title[: TITLE_CHARACTERS - 1] + "…").replace("<", "\\<")


def _one_line(text: str) -> str:
    """White space and control characters made visible, and nothing that would end the code block or is not allowed in XML."""
    return _UNSEEN.sub(_seen, text.replace("\n", "⏎").replace("\r", "␍").replace("\t", "⇥").replace("`", "ˋ"))


def _seen(found: re.Match[str]) -> str:
    return chr(0x2400 + ord(found[0])) if found[0] < " " else f"⟨{ord(found[0]):x}⟩"


def mixture_picture(shares: Mapping[str, float], weights: Mapping[str, float]) -> str:
    """Markdown with an embedded SVG: a bar for each domain, largest first.

    Args:
        shares: domain to its share of the tokens in the rows, 0 to 1.
        weights: domain to the weight asked for, in any unit; empty where none were.
    """
    total = sum(weights.values())
    bars, texts, lines = [], [], []
    for number, (name, share) in enumerate(sorted(shares.items(), key=lambda each: (-each[1], each[0]))):
        y = number * ROW
        wanted = weights[name] / total if name in weights and total else None
        shown = name if len(name) <= NAME_CHARACTERS else name[: NAME_CHARACTERS - 1] + "…"
        figures = f"{share:.1%}" + (f", asked {wanted:.1%}" if wanted is not None else "")
        bars.append(_bar(0, y, max(1.0, BAR * share)))
        texts.append(f'<text x="{max(share, wanted or 0.0) * BAR + 8:.0f}" y="{y + 14}">{escape(f"{shown} {figures}")}</text>')
        if wanted is not None:
            lines.append(_bar(BAR * wanted - 1, y, 2))
    parts = [_group(FILL, bars), _group(ASKED, lines), _group(INK, texts)]
    note = "; red: what the weights ask for" if weights else ""
    return f"Share of the tokens{note}\n\n![mixture]({embedded(filter(None, parts), BAR + FIGURES, ROW * len(shares))})"


def lengths_picture(lengths: npt.NDArray[np.int64], unit: str) -> str:
    """Markdown with an embedded SVG: a histogram, with the shortest and the longest at its ends."""
    counts, _, wide = binned(lengths, BINS)
    step, top = WIDTH // len(counts), int(counts.max())
    heights = [max(round(HEIGHT * count / top), 1) if count else 0 for count in counts.tolist()]
    bars = "".join(f"M{at * step} {HEIGHT}v-{high}h{step - 1}v{high}" for at, high in enumerate(heights) if high)
    ends = (
        f'<text y="74">{int(lengths.min()):,}</text><text x="{step * len(counts)}" y="74" text-anchor="end">{int(lengths.max()):,}</text>'
    )
    parts = [f'<path fill="{FILL}" d="{bars}"/>', _group(INK, [ends])]
    scale = ", log scale" if wide else ""
    caption = f"{len(lengths):,} documents, median {int(np.median(lengths)):,} {unit}{scale}"
    return f"{caption}\n\n![lengths]({embedded(parts, WIDTH, HEIGHT + 18)})"


def _bar(x: float, y: int, width: float) -> str:
    return f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="18"/>'


def _group(colour: str, parts: list[str]) -> str:
    return f'<g fill="{colour}" font-family="sans-serif" font-size="13">{"".join(parts)}</g>' if parts else ""
