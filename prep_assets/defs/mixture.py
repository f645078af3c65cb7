"""The mixture of a packed table as a picture: what each domain is of all tokens, beside what the weights ask for."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from prep_assets.defs.pictures import embedded

ROW, LABEL, BAR, FIGURES = 26, 200, 320, 190
NAME_CHARACTERS = 24
REALISED, INK, ASKED = "#0969da", "#24292f", "#cf222e"


def mixture_picture(shares: Mapping[str, float], weights: Mapping[str, float]) -> str:
    """Markdown with an embedded SVG: a bar for each domain, largest first.

    Args:
        shares: domain to its share of the tokens in the rows, 0 to 1.
        weights: domain to the weight asked for, in any unit; empty where none were.
    """
    total = sum(weights.values())
    parts = []
    for number, (name, share) in enumerate(sorted(shares.items(), key=lambda each: (-each[1], each[0]))):
        asked = weights[name] / total if name in weights and total else None
        parts.extend(_row(6 + number * ROW, name, share, asked))
    address = embedded(parts, LABEL + BAR + FIGURES, 12 + ROW * len(shares))
    note = ", a red line is the share that the weights ask for" if weights else ""
    return f"Share of the tokens in the rows{note}\n\n![mixture]({address})"


def _row(y: int, name: str, share: float, asked: float | None) -> list[str]:
    shown = name if len(name) <= NAME_CHARACTERS else name[: NAME_CHARACTERS - 1] + "…"
    figures = f"{share:.1%}" + (f", asked {asked:.1%}" if asked is not None else "")
    parts = [
        _text(LABEL - 8, y, shown, "end"),
        f'<rect x="{LABEL}" y="{y}" width="{max(1.0, BAR * share):.1f}" height="18" rx="2" fill="{REALISED}"/>',
        _text(LABEL + max(share, asked or 0.0) * BAR + 8, y, figures, "start"),
    ]
    if asked is not None:
        parts.append(f'<rect x="{LABEL + BAR * asked - 1:.1f}" y="{y - 2}" width="2" height="22" fill="{ASKED}"/>')
    return parts


def _text(x: float, y: int, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y + 14}" text-anchor="{anchor}" font-family="sans-serif" font-size="13" fill="{INK}">{escape(text)}</text>'
    )
