"""The pages of docs/schemas show what a row becomes and each option with its default, as the schemas have them.

After a change of an option's description write them again: ``PREP_ASSETS_WRITE_DOCS=1 python -m pytest prep_assets_tests/schemas/test_pages.py``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prep_assets.proofs.formats import files
from prep_assets.samples import Turn
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import Schema, convert_with, schemas
from prep_assets_tests.cells import cells
from prep_assets_tests.conftest import ROOT

PAGES = Path(__file__).resolve().parents[2] / "docs" / "schemas"
PARTS = ("prompt", "chosen", "rejected")
BASES = {
    "alpaca_pairwise": "alpaca",
    "distilled": "tokenized",
    "group_best": "group_list",
    "group_pair": "group_list",
    "gsm8k_prompt": "gsm8k",
    "kto": "messages",
    "sharegpt_pairwise": "sharegpt",
    "group_kto": "group_list",
}
"""The schema whose page has options of another schema too."""
OBVIOUS = re.compile(r"(the|array of|tag of an?|tag of the|mark before an?|field of a message with its) (\w+ ){0,2}[\w']+\.")
"""Meanings that name and default of an option say already."""
OWN = [name for name in schemas() if "_hook" not in name and not name.endswith("Handler")]


def becomes(example: Any) -> str:
    """The turns of an example as the pages show them: role, kind, loss weight if the row gives one, text."""
    article = "an" if type(example).__name__[0] in "AEIOU" else "a"
    return f"becomes {article} `{type(example).__name__}`:\n\n```text\n" + "\n".join(_lines(example)) + "\n```\n"


def _lines(example: Any) -> Iterator[str]:
    parts: list[tuple[str, tuple[Turn, ...]]] = [("", example.turns)] if hasattr(example, "turns") else []
    parts += [(f"{part} | ", getattr(example, part)) for part in PARTS if hasattr(example, part)]
    if hasattr(example, "responses"):
        parts += [(f"response {reward:g} | ", turns) for turns, reward in zip(example.responses, example.rewards, strict=True)]
    for part, turns in parts:
        for turn in turns:
            for region in turn.regions:
                kind = "" if region.kind == "text" else f" {region.kind}"
                weight = "" if region.loss_weight is None else f" × {region.loss_weight:g}"
                yield f"{part}{turn.role}{kind}{' dropped' if region.drop else weight}: {_text(region.text)}"
    if hasattr(example, "positives"):
        yield f"query: {example.query}"
        yield from (f"{side}: {text}" for side in ("positive", "negative") for text in getattr(example, f"{side}s"))
    if getattr(example, "tokenized", None) is not None:
        for fact in ("ids", "weights"):
            yield f"{fact}: {' '.join(f'{each:g}' for each in getattr(example.tokenized, fact))}"
    for fact in ("gold", "verifier", "label"):
        if getattr(example, fact, None) is not None:
            yield f"{fact}: {json.dumps(getattr(example, fact)).strip(chr(34))}"
    if labels := getattr(example, "labels", None):
        yield f"labels: {' '.join(map(json.dumps, labels))}"


def _text(text: str) -> str:
    """On one line, in quotes if white space is at an end."""
    shown = json.dumps(text, ensure_ascii=False)
    return shown if text != text.strip() else shown[1:-1].replace('\\"', '"')


def options(name: str) -> str:
    """The options of a schema as the pages list them: those of a schema before it by name, fields whose name says all on one line."""
    found, base = schemas()[name], schemas().get(BASES.get(name, ""))
    shown = {option: f"`{option}` ({_default(parameter.default)})" for option, parameter in found.options.items()}
    shared = [each for each in shown if base and each in base.options and _same(found, base, each)]
    fields = [
        each for each in shown if each not in shared and OBVIOUS.fullmatch(found.meanings[each]) and re.search("_(key|tag|mark)$", each)
    ]
    rows = [f"- As in [{base.name}]({base.name}.md#options): {', '.join(f'`{each}`' for each in shared)}"] if base and shared else []
    rows += [f"- Fields: {', '.join(shown[each] for each in fields)}"] if fields else []
    rows += [f"- {text}: {found.meanings[each]}" for each, text in shown.items() if each not in (*shared, *fields)]
    rows += [f"- Rows in JSON Schema: [{name}](../../{files()[name].relative_to(ROOT).as_posix()})"]
    return "## Options\n\n" + "\n".join(rows) + "\n"


def _same(one: Schema, other: Schema, option: str) -> bool:
    return one.options[option].default == other.options[option].default and one.meanings[option] == other.meanings[option]


def _default(value: Any) -> str:
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)}`"


def page_of(name: str) -> str:
    page = PAGES / f"{name}.md"
    assert page.is_file(), f"the schema {name} needs a page: docs/schemas/{name}.md"
    return page.read_text("utf-8")


@cells("name", OWN)
def test_a_page_shows_what_its_row_becomes_and_every_option(name: str) -> None:
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)\n```\n", page_of(name), re.DOTALL)]
    row, given = blocks[0], (blocks[1] if len(blocks) > 1 else {})
    shown, listed = becomes(apply(convert_with(name, given), row)), options(name)
    if os.environ.get("PREP_ASSETS_WRITE_DOCS"):
        page = re.sub(r"^becomes an? .*?^```\n", lambda _: shown, page_of(name), count=1, flags=re.MULTILINE | re.DOTALL)
        page = re.sub(r"^## Options\n+(?:- .*\n+)*", lambda _: f"{listed}\n", page, count=1, flags=re.MULTILINE)
        (PAGES / f"{name}.md").write_text(page.rstrip("\n") + "\n", "utf-8")
    assert shown in page_of(name)
    assert listed in page_of(name)


def test_the_index_lists_every_schema_with_what_it_gives() -> None:
    index = (PAGES / "README.md").read_text("utf-8")
    for name in OWN:
        gives = schemas()[name].gives
        forms = ", ".join(form.__name__ for form in getattr(gives, "__args__", (gives,)))
        assert f"- [{name}]({name}.md) ({forms}): " in index, f"docs/schemas/README.md needs a line for {name}"
