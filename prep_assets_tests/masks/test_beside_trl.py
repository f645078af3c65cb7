"""Our labels beside TRL's on the same rows, for each model family that TRL has a training template for: beside_trl.md says how they differ.

After a change write the table again: ``PREP_ASSETS_WRITE_DOCS=1 python -m pytest prep_assets_tests/masks/test_beside_trl.py``.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from prep_assets.config.mask import MaskPolicy
from prep_assets.errors import Refused
from prep_assets.text.encode import Encoder
from prep_assets.text.engines import choose_engine
from prep_assets.text.load_template import load_template
from prep_assets.text.render import render
from prep_assets.text.template import bind
from prep_assets.text.vocabulary import load_vocabulary
from prep_assets_tests.masks.trl import as_read, names, rows, runs, tokenizer_folder, trl_labels

PAGE = Path(__file__).with_name("beside_trl.md")
HEAD = "| families | rows compared | labels equal | TRL also trains | we also train |\n|---|---|---|---|---|\n"
SECTION = re.compile(r"(<!-- measured: beside trl -->\n).*?(<!-- end of measured -->)", re.DOTALL)


@dataclass
class Beside:
    """What was found of one family. Texts of runs that one side trains and the other does not, with the rows that have them."""

    compared: int = 0
    equal: int = 0
    refused: int = 0
    theirs: Counter[str] = field(default_factory=Counter)
    ours: Counter[str] = field(default_factory=Counter)

    @property
    def said(self) -> str:
        """The cells behind the family's."""
        return f"{self.compared} of {self.compared + self.refused} | {self.equal} | {_said(self.theirs)} | {_said(self.ours)}"


def _said(found: Counter[str]) -> str:
    def code(text: str) -> str:
        return "`" + text.replace("\n", "⏎").replace("|", "\\|") + "`"

    return ", ".join(f"{code(text)} ({count})" for text, count in sorted(found.items(), key=lambda each: (-each[1], each[0]))[:4])


def _short(text: str) -> str:
    """A run's text; of one that holds an answer, how it begins."""
    return text if len(text) <= 24 else f"{text[:12]}…{text[-10:]}"


def beside(real_data: Path, name: str, folder: Path) -> Beside:
    """Compare on every row that our side takes."""
    from transformers import PreTrainedTokenizerFast

    plain = load_vocabulary(str(tokenizer_folder(real_data, name, folder)))
    template = load_template("tokenizer", plain)
    vocabulary = bind(plain, template)
    theirs = PreTrainedTokenizerFast.from_pretrained(folder)
    encoder = Encoder(vocabulary, choose_engine(vocabulary, reference_only=True), MaskPolicy())
    found = Beside()
    for source in (sample for kind in rows(real_data) for sample in kind.samples):
        try:
            sample = as_read(source, template)
            encoded = encoder.encode([render(sample, template)])
        except Refused:
            found.refused += 1
            continue
        if encoded.refused:
            found.refused += 1
            continue
        ids, trained = trl_labels(theirs, template.form, sample)
        assert encoded.ids.tolist() == ids, f"{name}: other ids than transformers' own"
        mine = encoded.loss != 0
        found.compared += 1
        found.equal += bool((mine == trained).all())
        for side, chosen in ((found.theirs, trained & ~mine), (found.ours, mine & ~trained)):
            side.update({_short(theirs.decode(ids[start:end])) for start, end in runs(np.asarray(chosen))})
    return found


@pytest.fixture(scope="module")
def table(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    found = {name: beside(real_data, name, tmp_path_factory.mktemp(name)) for name in names(real_data)}
    rows = defaultdict[str, list[str]](list)
    for name, each in found.items():
        rows[each.said].append(name.removesuffix("_training").replace("_", "-"))
    return HEAD + "".join(f"| {', '.join(families)} | {said} |\n" for said, families in rows.items())


def test_the_page_says_how_our_labels_differ_from_those_of_trl(table: str) -> None:
    page = PAGE.read_text("utf-8")
    if os.environ.get("PREP_ASSETS_WRITE_DOCS"):
        page = SECTION.sub(lambda found: found[1] + table + found[2], page)
        PAGE.write_text(page, "utf-8")
    shown = SECTION.search(page)
    assert shown is not None
    assert shown[0] == f"<!-- measured: beside trl -->\n{table}<!-- end of measured -->"
