"""What stands beside each exhibit, read from its module's docstring, and the page that is made of all of them.

'''One line that says what went wrong.

Year: 2025
Hit: project#number, …
Cost: what it did to those who trained on it.
Stopped by: `check` or refusal, here.
'''
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "museum.md"
PICTURES = ROOT / "docs" / "images" / "museum"
FIELDS = ("Year", "Hit", "Cost", "Stopped by")
_NAME = re.compile(r"test_(\d\d)_(\w+)\.py")

ROOMS = {
    "Beginning, end and padding": range(1, 11),
    "Templates": range(11, 24),
    "Control tokens in content": range(24, 27),
    "Masks": range(27, 38),
    "Tokenizers that change under you": range(38, 45),
    "Packing, order, resume": range(45, 50),
    "Data, gold and caches": range(50, 58),
}
"""The rooms of the museum and the numbers of their exhibits."""


@dataclass(frozen=True, slots=True)
class Label:
    """One exhibit: its number, file, headline, and the fields of its docstring."""

    number: int
    file: str
    title: str
    fields: dict[str, str]

    @property
    def picture(self) -> Path:
        """Where its picture is, if it has one."""
        return PICTURES / f"{self.number:02}.svg"


def label_of(path: Path) -> Label:
    """The label of an exhibit's file.

    Raises:
        ValueError: its name or docstring lacks something.
    """
    name = _NAME.fullmatch(path.name)
    text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    if name is None or not text:
        raise ValueError(f"{path.name}: an exhibit is called test_NN_name.py and has a docstring")
    title, _, rest = text.partition("\n")
    found = {field: " ".join(value.split()) for field, value in re.findall(rf"^({'|'.join(FIELDS)}): (.+(?:\n {{4}}.+)*)", rest, re.M)}
    if tuple(found) != FIELDS:
        raise ValueError(f"{path.name}: its docstring needs {', '.join(FIELDS)} in this order, and has {', '.join(found) or 'none'}")
    return Label(int(name[1]), path.name, title.strip(), found)


def labels() -> list[Label]:
    """All exhibits by number."""
    return [label_of(path) for path in sorted(HERE.glob("test_[0-9][0-9]_*.py"))]


def page() -> str:
    """docs/museum.md."""
    every = labels()
    parts = [
        "# The museum of silent bugs",
        "",
        f"{len(every)} incidents in which public projects trained on wrong data and nothing raised. Each is a test in "
        "`prep_assets_tests/museum/`: the smallest input, the historical wrong output built on purpose, the check that fails on it, and "
        "our own build, which passes. In the pictures trained tokens are green and underlined.",
        "",
    ]
    for room, numbers in ROOMS.items():
        parts += [f"## {room}", ""]
        for label in every:
            if label.number in numbers:
                parts += _entry(label)
    return "\n".join(parts).rstrip() + "\n"


def _entry(label: Label) -> list[str]:
    shown = [f"![{label.title}](images/museum/{label.number:02}.svg)", ""] if label.picture.is_file() else []
    rows = [f"- **{field}**: {label.fields[field]}" for field in FIELDS]
    return [f"### {label.number}. {label.title}", "", *rows, f"- **Test**: `{label.file}`", "", *shown]
