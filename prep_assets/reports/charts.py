"""Pictures as inline SVG, drawn with the page's own colours so that they are right in light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from prep_assets.reports.visible import one_line

WIDTH, HEIGHT, BINS = 640, 180, 40
_LABEL, _ROW = 170, 26


def histogram(lengths: npt.NDArray[np.int64], unit: str) -> Markup:
    """How many rows have which length. Bins are equally wide; of lengths that differ more than fifty times, equally wide on a log scale."""
    low, high = int(lengths.min()), int(lengths.max())
    counts, edges, wide = binned(lengths, BINS)
    top, step = int(counts.max()), WIDTH / len(counts)
    bars = [
        Markup('<rect class="bar" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>').format(
            f"{at * step + 1:.1f}",
            f"{20 + HEIGHT * (1 - count / top):.1f}",
            f"{max(step - 2, 1):.1f}",
            f"{HEIGHT * count / top:.1f}",
            f"{int(edges[at]):,} to {max(int(edges[at]), int(np.ceil(edges[at + 1])) - 1):,} {unit}: {count:,}",
        )
        for at, count in enumerate(counts.tolist())
        if count
    ]
    ticks = [
        _text(at * step, HEIGHT + 38, f"{int(edges[at]):,}", "start" if at == 0 else "end" if at == len(counts) else "middle")
        for at in sorted({round(len(counts) * quarter / 4) for quarter in range(5)})
    ]
    scale = ", on a log scale" if wide else ""
    caption = f"Histogram of lengths from {low:,} to {high:,} {unit}{scale}; the fullest bin holds {top:,}"
    axis = Markup(f'<line class="axis" x1="0" x2="{WIDTH}" y1="{HEIGHT + 20}" y2="{HEIGHT + 20}"/>')
    return _svg([*bars, axis, *ticks, _text(0, 12, f"{top:,}", "start")], WIDTH, HEIGHT + 46, caption)


def binned(lengths: npt.NDArray[np.int64], bins: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], bool]:
    """How many lengths are in each of at most `bins` bins, the edges of these, and whether they are wide on a log scale."""
    low, high = int(lengths.min()), int(lengths.max())
    wide = high > 50 * max(1, low)
    edges = np.geomspace(max(1, low), high + 1, bins + 1) if wide else np.linspace(low, high + 1, min(bins, high - low + 1) + 1)
    counts, _ = np.histogram(np.maximum(lengths, 1 if wide else lengths), edges)
    return counts, edges, wide


def mixture(shares: Mapping[str, float], weights: Mapping[str, float]) -> Markup:
    """A bar for each domain, and a line where its weight asks for another share."""
    total, width, parts = sum(weights.values()), WIDTH - _LABEL - 190, list[Markup]()
    largest = max([*shares.values(), *(weight / total for weight in weights.values())], default=1.0) or 1.0
    for number, (name, share) in enumerate(sorted(shares.items(), key=lambda each: (-each[1], each[0]))):
        y, wanted = 4 + number * _ROW, weights[name] / total if name in weights and total else None
        figures = f"{share:.1%}" + (f", asked {wanted:.1%}" if wanted is not None else "")
        parts.append(_text(_LABEL - 8, y + 15, _short(name), "end"))
        parts.append(_bar("bar", _LABEL, y, width * share / largest))
        if wanted is not None:
            parts.append(_bar("asked", _LABEL + width * wanted / largest - 1, y - 2, 2, 24))
        parts.append(_text(_LABEL + width * max(share, wanted or 0.0) / largest + 8, y + 15, figures, "start"))
    caption = "; ".join(f"{name} {share:.1%}" for name, share in sorted(shares.items()))
    return _svg(parts, WIDTH, 8 + _ROW * len(shares), f"Share of the tokens: {caption}")


def waterfall(steps: Sequence[tuple[str, str, int]]) -> Markup:
    """(kind, label, records) from top to bottom; kinds are ``read``, ``refused`` and ``kept``. What is refused hangs from the end of what was."""
    largest, width, parts, at = max((count for _, _, count in steps), default=1) or 1, WIDTH - 330, list[Markup](), 0
    for number, (kind, label, count) in enumerate(steps):
        y, size = 4 + number * _ROW, width * count / largest
        at = at - count if kind == "refused" else count
        x = 240 + (width * at / largest if kind == "refused" else 0)
        parts.append(_text(232, y + 15, _short(label, 34), "end"))
        parts.append(_bar(kind, x, y, max(size, 2)))
        parts.append(_text(x + size + 8, y + 15, f"−{count:,}" if kind == "refused" else f"{count:,}", "start"))
    caption = "; ".join(f"{label}: {count:,}" for _, label, count in steps)
    return _svg(parts, WIDTH, 8 + _ROW * len(steps), f"Records: {caption}")


def _bar(kind: str, x: float, y: float, width: float, height: int = 20) -> Markup:
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="2"/>').format(kind, f"{x:.1f}", y, f"{width:.1f}", height)


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(f"{x:.1f}", y, anchor, one_line(text))


def _short(name: str, most: int = 24) -> str:
    shown = one_line(name)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _svg(parts: Sequence[Markup], width: int, height: int, caption: str) -> Markup:
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(width, height, one_line(caption))
    return Markup("").join([head, *parts, Markup("</svg>")])
