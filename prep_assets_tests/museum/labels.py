"""What stands beside each exhibit, read from its test's docstring, and the page that is made of all of them.

'''One line that says what went wrong.

Hit: project#number, …
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
FIELDS = ("Hit", "Stopped by")

ROOMS = {
    "Beginning, end and padding": "test_beginnings.py",
    "Templates": "test_templates.py",
    "Control tokens in content": "test_control_tokens.py",
    "Masks": "test_masks.py",
    "Tokenizers that change under you": "test_tokenizers.py",
    "Packing, order, resume": "test_packing.py",
    "Data, gold and caches": "test_data.py",
    "Agents, tools and reasoning": "test_agents.py",
}
"""The rooms of the museum and their files, in the order of the exhibits' numbers."""

MOST = 1
"""Places of one incident that the page names; the tests name all."""


@dataclass(frozen=True, slots=True)
class Label:
    """One exhibit: its number, test, headline, and the fields of its docstring."""

    number: int
    test: str
    title: str
    fields: dict[str, str]

    @property
    def picture(self) -> Path:
        """Where its picture is, if it has one."""
        return PICTURES / f"{self.number:02}.svg"


def labels(file: str) -> list[Label]:
    """The exhibits of a file: its tests called ``test_NN_name`` that have a docstring.

    Raises:
        ValueError: a docstring lacks a field.
    """
    found = []
    for node in ast.parse((HERE / file).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and (text := ast.get_docstring(node)):
            title, _, rest = text.partition("\n\n")
            pattern = rf"^({'|'.join(FIELDS)}): (.+(?:\n {{4}}.+)*)"
            fields = {field: " ".join(value.split()) for field, value in re.findall(pattern, rest, re.MULTILINE)}
            if tuple(fields) != FIELDS:
                raise ValueError(
                    f"{node.name}: its docstring needs {', '.join(FIELDS)} in this order, and has {', '.join(fields) or 'none'}"
                )
            found.append(Label(int(node.name[5:7]), f"{file}::{node.name}", " ".join(title.split()), fields))
    return found


def page() -> str:
    """docs/museum.md."""
    rooms = {room: labels(file) for room, file in ROOMS.items()}
    parts = [
        "# The museum of silent bugs",
        "",
        f"Look up whether a silent bug can happen to you: {sum(map(len, rooms.values()))} incidents in which public projects trained on wrong data "
        "without an error, and what stops each here. Number 1 is the test `test_01_…` in `prep_assets_tests/museum/`: the wrong output, built on "
        "purpose, fails a check; our own build passes. In pictures trained tokens are green and underlined.",
        "",
    ]
    for room, exhibits in rooms.items():
        parts += [f"## {room}", "", *(line for label in exhibits for line in _entry(label)), ""]
    return "\n".join(parts).rstrip() + "\n"


def _entry(label: Label) -> list[str]:
    hit, stopped = (label.fields[field] for field in FIELDS)
    where = ", ".join(re.sub(r" \([^)]*\)", "", hit).split(", ")[:MOST])
    told = f"- **{label.number}. {label.title}** ({where}) Here: {stopped.rstrip('.')}."
    return [told, *([f"  ![Exhibit {label.number}](images/museum/{label.number:02}.svg)"] if label.picture.is_file() else [])]
