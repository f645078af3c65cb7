"""The sides of pairs by a second reading are those that their lines say; and records that are not their lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.engine.execute import verdicts_of as verdicts
from prep_assets.extensions.preference.checks import Sides
from prep_assets.extensions.preference.lines import pair_sample
from prep_assets.graph.graph import EVERY, store_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import PlainChat
from prep_assets_tests.graph.workspaces import build_all, domain, jsonl, minimal, resealed, workspace_in
from prep_assets_tests.proofs.conftest import spoilable

ASSET = "preference_tokens_by_domain"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("sides")
    rows = [{"prompt": f"{number}?", "chosen": f"{number}!", "rejected": "No."} for number in range(40)]
    options = {"test_fraction": 0.3, "template": "chatml", "output": {"storage_format": "bin"}}
    workspace = workspace_in(folder, minimal("preference", {"p": domain(jsonl(folder / "p.jsonl", rows), "preference")}, **options))
    build_all(workspace, ["preference"])
    return workspace


@pytest.fixture(scope="module")
def sides(made: Workspace) -> Sides:
    published = made.built(ASSET, "p")
    return Sides(store_of(made, published))


TEXTS = st.sampled_from(["a", "b", "\u00e9", ""])
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system"]), "content": TEXTS})
ANSWERS = st.lists(MESSAGE, max_size=2) | st.builds(lambda text: [{"role": "assistant", "content": text}], TEXTS)
STRINGS = st.fixed_dictionaries({"prompt": TEXTS, "chosen": TEXTS, "rejected": TEXTS})
MESSAGES = st.fixed_dictionaries({"prompt": st.lists(MESSAGE, max_size=3), "chosen": ANSWERS, "rejected": ANSWERS})


@given(line=STRINGS | MESSAGES, side=st.sampled_from(["chosen", "rejected"]))
def test_a_side_by_a_second_reading(sides: Sides, line: dict[str, Any], side: str) -> None:
    """It is the one that the line says, where its answer is one turn of an assistant and no text is blank."""
    [read] = sides.read(side, [line], str)
    parts = [
        [{"role": role, "content": part}] if isinstance(part, str) else part
        for role, part in (("user", line["prompt"]), ("assistant", line[side]))
    ]
    plain = (
        [message["role"] for message in parts[1]] == ["assistant"]
        and parts[0]
        and all(message["content"] for part in parts for message in part)
    )
    assert isinstance(read, PlainChat) is bool(plain)
    assert (sides.sample(read) if isinstance(read, PlainChat) else read) == pair_sample(line, side)


def test_only_some_records(sides: Sides) -> None:
    rows = list(sides.rows("chosen"))
    assert [row.id for _, row in rows] == [f"line {number + 1}" for number in range(len(rows))]
    some = list(sides.rows("chosen", [7, 2, 11]))
    assert [number for number, _ in some] == [2, 7, 11] and [row.id for _, row in some] == ["line 3", "line 8", "line 12"]
    assert all(np.array_equal(row.ids, rows[number][1].ids) and row.left.expected == rows[number][1].left.expected for number, row in some)


@pytest.mark.parametrize(("change", "record", "line"), [({2: 1}, 2, 1), ({3: 99}, 3, 99), ({0: -1}, 0, -1), ({1: 5}, 2, 2)])
def test_records_that_do_not_follow_or_have_no_line(
    made: Workspace, tmp_path: Path, change: dict[int, int], record: int, line: int
) -> None:
    workspace = spoilable(made, tmp_path, ASSET)
    published = workspace.built(ASSET, "p")
    path = published.directory / "chosen.index" / "row.npy"
    rows = np.load(path)
    rows[list(change)] = list(change.values())
    np.save(path, rows)
    found = dict(verdicts(workspace, EVERY[ASSET], resealed(published), EVERY[ASSET].checks))
    says = f"record {record} of chosen is line {line + 1}, which does not follow the one before it, or is not there"
    assert found["mask_alignment"].summary == found["tokenization_identity"].summary == says and not found["selection"].passed
