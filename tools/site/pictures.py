"""The pictures of concepts in `docs/images`, as SVG for light and dark pages: python tools/site/pictures.py"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

import numpy as np

from prep_assets.packing import pack

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1f2328}.quiet{fill:#57606a}.code{font-family:ui-monospace,Menlo,Consolas,monospace}"
    "rect{fill:#f0f2f4;stroke:#afb8c1}.on rect{fill:#d3f2db;stroke:#2da44e}.new rect{fill:#ddf4ff;stroke:#0969da}.no rect{fill:#fff1e5;stroke:#bc4c00}"
    "path{fill:none;stroke:#57606a;stroke-width:1.5}.tip{fill:#57606a;stroke:none}"
    "@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.quiet{fill:#9198a1}rect{fill:#212830;stroke:#656c76}.on rect{fill:#12361f;stroke:#3fb950}"
    ".new rect{fill:#10294a;stroke:#4493f8}.no rect{fill:#3d2211;stroke:#db6d28}path{stroke:#9198a1}.tip{fill:#9198a1}}"
)


class Picture:
    """A drawing of boxes, texts and arrows."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">\n<title>{escape(title)}</title>'
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """A line of text; `y` is that of its base."""
        self._parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "", font: str = "") -> None:
        """A box with lines of text in its middle; the second and later ones are quiet."""
        self._parts.append(f'<g class="{kind}"><rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/></g>')
        for at, line in enumerate(lines):
            self.text(
                x + width / 2, y + height / 2 + 4.5 + 16 * (at - (len(lines) - 1) / 2), line, f"{font} quiet" if at else font, "middle"
            )

    def arrow(self, *points: tuple[float, float]) -> None:
        """A line through points, with a tip at the last."""
        (x, y), (fx, fy) = points[-1], points[-2]
        self._parts.append(f'<path d="M{" L".join(f"{a:g} {b:g}" for a, b in points)}"/>')
        if abs(x - fx) >= abs(y - fy):
            back = 7 if x > fx else -7
            tip = f"{x:g},{y:g} {x - back:g},{y - 4:g} {x - back:g},{y + 4:g}"
        else:
            back = 7 if y > fy else -7
            tip = f"{x:g},{y:g} {x - 4:g},{y - back:g} {x + 4:g},{y - back:g}"
        self._parts.append(f'<polygon class="tip" points="{tip}"/>')

    def __str__(self) -> str:
        return "\n".join([self._head, f"<style>{_STYLE}</style>", *self._parts, "</svg>\n"])


def way() -> Picture:
    """From source files to a trainer's files."""
    found = Picture(
        900, 190, "Source files become records, samples, rendered text, tokens, packed rows and exports; what is refused goes to quarantine"
    )
    steps = [
        *(("files", "pinned by hash"), ("records", "a raw row each"), ("samples", "turns of regions"), ("text", "rendered once")),
        *(("tokens", "with loss mask"), ("rows", "packed by a plan"), ("exports", "a trainer's files")),
    ]
    for at, (name, says) in enumerate(steps):
        found.box(8 + 128 * at, 20, 116, 56, name, says, kind="on" if name in ("tokens", "rows") else "")
        if at:
            found.arrow((128 * at - 4, 48), (128 * at + 7, 48))
        if 0 < at < 6:
            found.arrow((66 + 128 * at, 76), (66 + 128 * at, 128))
    found.box(136, 128, 628, 40, "quarantine: each refused record with its stage, its reason and what it held", kind="no")
    return found


def packing() -> Picture:
    """Five documents in rows of 20, by the strategies themselves."""
    lengths = [12, 9, 9, 2, 23]
    ways: list[tuple[str, str]] = [("concat", ""), ("simple", "truncate"), ("ffd", "truncate"), ("bfd", "truncate"), ("bfd_split", "")]
    found = Picture(900, 36 + 40 * len(ways), "Documents a to e in rows of 20 tokens, by packing strategy")
    found.text(112, 20, "documents a–e of 12, 9, 9, 2 and 23 tokens in rows of 20; what is left empty is padding", "quiet")
    for line, (strategy, overlong) in enumerate(ways):
        top = 34 + 40 * line
        plan = pack(lengths, 20, strategy, **({"overlong": overlong} if overlong else {}))
        found.text(0, top + 20, strategy, "code")
        for row in range(plan.rows):
            left = 112 + 262 * row
            found.box(left, top, 250, 30)
            here = np.flatnonzero(plan.row == row)
            for record, start, length, offset in zip(
                *(each[here].tolist() for each in (plan.record, plan.start, plan.length, plan.row_offset)), strict=True
            ):
                name = "abcde"[record] + ("" if length == lengths[record] or length < 6 else f" {start}–{start + length}")
                found.box(left + 12.5 * offset, top, 12.5 * length, 30, name, kind=("on", "new")[record % 2])
    return found


def labels() -> Picture:
    """Tokens, loss mask and the labels that a trainer shifts."""
    tokens = ["<|user|>", "Hi", "<eos>", "<|assistant|>", "Hello", "!", "<eos>"]
    trained = [False, False, False, False, True, True, True]
    found = Picture(900, 176, "Each place predicts the next token; only places whose next token is trained have a label")
    for y, name in ((38, "tokens"), (86, "loss mask"), (150, "label")):
        found.text(0, y, name, "quiet")
    for at, (token, on) in enumerate(zip(tokens, trained, strict=True)):
        x = 90 + 115 * at
        found.box(x, 18, 105, 32, token, kind="on" if on else "", font="code")
        found.text(x + 52, 86, "1" if on else "0", "code", "middle")
        after = tokens[at + 1] if at + 1 < len(tokens) and trained[at + 1] else None
        found.box(x, 130, 105, 32, after or "none", kind="new" if after else "", font="code")
        if after:
            found.arrow((x + 115 + 20, 50), (x + 115 + 20, 108), (x + 70, 108), (x + 70, 130))
    return found


def lineage() -> Picture:
    """A token back to its source, and a record to every store."""
    found = Picture(900, 170, "trace leads from a token to the row of its source; where leads from the row to every store that holds it")
    boxes = [
        *(("gsm8k.jsonl", "row 63"), ("sft_raw[gsm8k]", "its file, by sha256"), ("sft_tokens[gsm8k]", "record 63")),
        *(("sft_packed", "row 3, from 397"), ("sft_export_trl", "row 3")),
    ]
    for at, lines in enumerate(boxes):
        found.box(8 + 180 * at, 58, 164, 52, *lines, kind="on" if at == 3 else "", font="code")
    found.arrow((882, 40), (12, 40))
    found.text(445, 30, "trace: which row of which file is this token from, and why is it trained?", anchor="middle")
    found.arrow((12, 128), (882, 128))
    found.text(445, 152, "where: which rows of which stores hold this record, or why does none?", anchor="middle")
    return found


def refresh() -> Picture:
    """What a changed file rebuilds."""
    found = Picture(900, 216, "A changed file of one domain rebuilds that domain and what merges it; the other domains are reused")
    for line, (domain, kind, says) in enumerate(
        (("chats", "new", "content changed"), ("gsm8k", "", "only touched"), ("dolly", "", "as it was"))
    ):
        y = 14 + 66 * line
        found.box(8, y, 150, 48, f"{domain}.jsonl", says, kind=kind)
        found.arrow((158, y + 24), (213, y + 24))
        found.box(214, y, 150, 48, f"sft_raw[{domain}]", "built again" if kind else "reused", kind="on" if kind else "")
        found.arrow((364, y + 24), (419, y + 24))
        found.box(420, y, 170, 48, f"sft_tokens[{domain}]", "built again" if kind else "reused", kind="on" if kind else "")
        found.arrow((590, y + 24), (655, 92 + 12 * line))
    found.box(656, 80, 200, 48, "sft_packed", "2 of 3 domains reused", kind="on")
    return found


PICTURES: dict[str, Callable[[], Picture]] = {each.__name__: each for each in (way, packing, labels, lineage, refresh)}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(str(draw()), "utf-8")
