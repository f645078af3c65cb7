"""The pages of docs/schemas say what the schemas do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from prep_assets.samples import Turn
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with, schemas

PAGES = Path(__file__).resolve().parents[2] / "docs" / "schemas"
PARTS = ("turns", "prompt", "chosen", "rejected")


def other_name_of(name: str) -> bool:
    return "_hook" in name or name.endswith("Handler")


OWN = [name for name in schemas() if not other_name_of(name)]
OTHERS = [name for name in schemas() if other_name_of(name)]


def cell(text: str) -> str:
    """`text` as inline code in a table."""
    return "`" + json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("|", "\\|") + "`"


def table(example: Any) -> str:
    """The turns of an example as the pages show them."""
    parts: list[tuple[str, tuple[Turn, ...]]] = [(part, getattr(example, part)) for part in PARTS if hasattr(example, part)]
    if hasattr(example, "responses"):
        parts += [(f"response, {reward:g}", turns) for turns, reward in zip(example.responses, example.rewards, strict=True)]
    lines = ["| part | role | region | loss weight | text |", "|---|---|---|---|---|"]
    for part, turns in parts:
        for turn in turns:
            for region in turn.regions:
                weight = "policy" if region.loss_weight is None else f"{region.loss_weight:g}"
                shown = "dropped" if region.drop else weight
                lines.append(f"| {part} | {turn.role} | {region.kind} | {shown} | {cell(region.text)} |")
    if hasattr(example, "positives"):
        sides = {"query": [example.query], "positive": example.positives, "negative": example.negatives}
        lines += [f"| {side} | | | | {cell(text)} |" for side, texts in sides.items() for text in texts]
    if getattr(example, "tokenized", None) is not None:
        for fact in ("ids", "weights"):
            lines.append(f"| {fact} | | | | `{' '.join(f'{each:g}' for each in getattr(example.tokenized, fact))}` |")
    for fact in ("gold", "verifier", "label"):
        if getattr(example, fact, None) is not None:
            lines.append(f"| {fact} | | | | {cell(json.dumps(getattr(example, fact)).strip(chr(34)))} |")
    return "\n".join(lines)


def page_of(name: str) -> str:
    return (PAGES / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize("name", OWN)
def test_the_row_of_a_page_becomes_the_turns_that_the_page_shows(name: str) -> None:
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)\n```\n", page_of(name), re.DOTALL)]
    row, options = blocks[0], (blocks[1] if len(blocks) > 1 else {})
    assert table(apply(convert_with(name, options), row)) in page_of(name)


@pytest.mark.parametrize("name", OWN)
def test_a_page_has_every_option_with_its_default(name: str) -> None:
    for option, parameter in schemas()[name].options.items():
        assert f"\n| `{option}` | {cell_of_default(parameter.default)} |" in page_of(name)


def cell_of_default(value: Any) -> str:
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`".replace("|", "\\|")


@pytest.mark.parametrize("name", OTHERS)
def test_other_projects_names_are_on_a_page_with_their_options(name: str) -> None:
    (line,) = [line for own in OWN for line in page_of(own).split("\n") if re.match(f"- `{name}`[,.]", line)]
    assert re.findall(r"`(\w+)`", line)[1:] == list(schemas()[name].options)


def test_the_index_lists_every_schema_with_what_it_gives() -> None:
    index = (PAGES / "README.md").read_text("utf-8")
    for name in OWN:
        gives = schemas()[name].gives
        forms = getattr(gives, "__args__", (gives,))
        assert f"| [{name}]({name}.md) | {', '.join(form.__name__ for form in forms)} |" in index
    for name in OWN:
        for alias in schemas()[name].aliases:
            assert f"`{alias}`" in page_of(name)
