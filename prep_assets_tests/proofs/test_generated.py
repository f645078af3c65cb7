"""What a model generates by the prefix property, against stretches that are written down by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.samples import ASSISTANT, SYSTEM, USER, Sample, turn
from prep_assets.text.template import ChatTemplate
from prep_assets_tests.effort import thinned
from prep_assets_tests.masks.bound import SHIPPED, bind
from prep_assets_tests.text.matrix.cells import Cell, Entry, _encoder, cell, published, shipped
from prep_assets_tests.text.matrix.chats import KINDS

# Templates: what is trained by each derivation that the property decides is what the published format says.


def compared(entry: Entry) -> int:
    """The number of chats that the property decides, each as the format has it."""
    vocabulary, _ = _encoder(entry.model)
    template = ChatTemplate(entry.name, entry.source, vocabulary.special, {}, tuple(sorted(vocabulary.control)), entry.model.image)
    count = 0
    for kind in KINDS.values():
        if cell(entry, kind) != Cell(has_tags=cell(entry, kind).has_tags):
            continue  # the matrix says why
        derived = derive(kind.sample, MaskOptions(), template)
        if not derived.prefixed:
            continue
        stretches = [match.group("t") for match in entry.model.generated.finditer(derived.text)]
        assert [each.text for each in derived.expected] == stretches, kind
        count += 1
    return count


@pytest.mark.parametrize("name", thinned(shipped()))
def test_shipped_templates(name: str) -> None:
    assert compared(shipped()[name]) > 0


@pytest.mark.skipif("PREP_ASSETS_TEST_DATA" not in os.environ, reason="TRL's templates are in a folder that PREP_ASSETS_TEST_DATA names")
def test_published_templates() -> None:
    entries = published(Path(os.environ["PREP_ASSETS_TEST_DATA"]))
    assert len(entries) > 40
    without = [name for name, entry in entries.items() if not compared(entry)]
    # DeepSeek's answers do not go on from its prompt, and GLM's original template writes no stop
    assert without == ["deepseekv3", "deepseekv3_training", "glm4moe"]


def test_a_real_chat_says_which_oracle_decides() -> None:
    talk = Sample((turn(SYSTEM, "Be brief."), turn(USER, "Hi"), turn(ASSISTANT, "Hello!"), turn(USER, "Bye"), turn(ASSISTANT, "Ciao.")))
    by = {name: derive(talk, MaskOptions(), bind(SHIPPED, name).template) for name in ("chatml", "qwen", "deepseek-r1")}
    assert {name: (each.tagged, each.prefixed) for name, each in by.items()} == {
        "chatml": (False, True),
        "qwen": (True, True),
        "deepseek-r1": (True, False),
    }
