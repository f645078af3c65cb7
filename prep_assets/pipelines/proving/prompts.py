"""Checks of RL prompts and of the arithmetic curriculum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from prep_assets.config.models import Rl
from prep_assets.errors import Refused
from prep_assets.pipelines.examples import converter
from prep_assets.pipelines.families import rl
from prep_assets.pipelines.proving.every_store import together
from prep_assets.pipelines.sources import domain_of, pinned
from prep_assets.pipelines.workspace import Workspace
from prep_assets.quality.gold import check_golds, second_reading, worked_out
from prep_assets.quality.verdict import Verdict
from prep_assets.records.files import record_id
from prep_assets.records.read import read_blocks
from prep_assets.samples import Prompt, Record
from prep_assets.schemas.registry import Convert, apply
from prep_assets.stores.lines import open_lines
from prep_assets.stores.published import Published


def prompt_golds(workspace: Workspace, published: Published) -> Verdict:
    return together(check_golds(_golds_of(workspace, published, name)) for name in (rl.TRAIN, rl.TEST))


def _golds_of(workspace: Workspace, published: Published, name: str) -> Iterator[tuple[str, str, object, Fraction | None]]:
    """Every prompt of a file with its gold and a second reading of its source row."""
    family = workspace.family(Rl)
    lines = open_lines(published.directory, name)
    contents = list(lines)
    for number, domain_name in enumerate(lines.sources):
        domain, sources = domain_of(family, domain_name), pinned(workspace, Rl, rl.RAW, domain_name)
        convert = converter(domain, Prompt)
        mine = np.flatnonzero(lines.index["source"] == number)
        wanted = {(int(lines.index["file"][i]), int(lines.index["row"][i])): int(i) for i in mine}
        for index, file in enumerate((*sources.files, *sources.test_files)):
            for block in read_blocks(file, index, block_bytes=4 << 20, txt=domain.txt):
                for record in block.records:
                    line = wanted.pop((index, record.row), None)
                    if line is not None:
                        yield _second(record, convert, contents[line], f"{domain_name}/{record_id(file, record.row)}")
        for (file_number, row), line in wanted.items():
            yield f"{domain_name}/{file_number}:{row}", "", contents[line]["gold"], None


def _second(record: Record, convert: Convert, content: Mapping[str, Any], identity: str) -> tuple[str, str, object, Fraction | None]:
    prompt = content["prompt"] if isinstance(content["prompt"], str) else str(content["prompt"])
    answers = [value for value in record.payload.values() if isinstance(value, str) and "####" in value]
    if answers:
        return identity, prompt, content["gold"], second_reading(answers[0])
    arithmetic = worked_out(prompt)
    if arithmetic is not None:
        return identity, prompt, content["gold"], arithmetic
    # neither a marked answer nor arithmetic: what is left to check is that the row, converted again, says the same
    try:
        example = apply(convert, record.payload)
    except Refused:
        return identity, prompt, content["gold"], None
    same = isinstance(example, Prompt) and rl.prompt_row(example, "messages")["gold"] == content["gold"]
    return identity, prompt, 1 if same else 0, Fraction(1)


def arithmetic_golds(workspace: Workspace, published: Published) -> Verdict:
    rows = enumerate(open_lines(published.directory, rl.ARITHMETIC))
    return check_golds((f"line {number + 1}", row["prompt"], row["gold"], worked_out(row["prompt"])) for number, row in rows)
