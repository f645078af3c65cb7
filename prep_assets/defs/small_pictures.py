"""Pictures for the asset page of Dagster's web UI, small enough to be shown there at once: it puts longer Markdown behind a click."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import numpy as np
import numpy.typing as npt

from prep_assets.defs.pictures import embedded
from prep_assets.reports.charts import binned

WIDTH, ROW, BAR, FIGURES = 336, 24, 144, 220
NAME_CHARACTERS = 24
HEIGHT, BINS = 60, 28
FILL, INK, ASKED = "#218bff", "#818b98", "#cf222e"
"""Colours that can be seen on a light page and on a dark one."""


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
        asked = weights[name] / total if name in weights and total else None
        shown = name if len(name) <= NAME_CHARACTERS else name[: NAME_CHARACTERS - 1] + "…"
        figures = f"{share:.1%}" + (f", asked {asked:.1%}" if asked is not None else "")
        bars.append(_bar(0, y, max(1.0, BAR * share)))
        texts.append(f'<text x="{max(share, asked or 0.0) * BAR + 8:.0f}" y="{y + 14}">{escape(f"{shown} {figures}")}</text>')
        if asked is not None:
            lines.append(_bar(BAR * asked - 1, y, 2))
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
    said = f"{len(lengths):,} documents, median {int(np.median(lengths)):,} {unit}{scale}"
    return f"{said}\n\n![lengths]({embedded(parts, WIDTH, HEIGHT + 18)})"


def _bar(x: float, y: int, width: float) -> str:
    return f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="18"/>'


def _group(colour: str, parts: list[str]) -> str:
    return f'<g fill="{colour}" font-family="sans-serif" font-size="13">{"".join(parts)}</g>' if parts else ""
