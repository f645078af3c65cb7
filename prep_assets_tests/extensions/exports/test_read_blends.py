"""Megatron-LM and OLMo-core draw from our exports as the lines of a blend tell them: each domain as often as the blend has it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prep_assets import export
from prep_assets.extensions.blends.assets import training_streams
from prep_assets.extensions.blends.store import BlendStore, open_blend
from prep_assets.extensions.start.blends import BLENDS, phases_of
from prep_assets_tests.extensions.exports.readers import olmo, reader
from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in

pytestmark = pytest.mark.readers
WINDOW = 16
PHASES = [{"tokens": 16 * 100, "weights": {"a": 3, "b": 1}}, {"tokens": 16 * 60, "weights": {"a": 1, "b": 2}}]


@pytest.fixture(scope="module")
def blended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, BlendStore]:
    folder = tmp_path_factory.mktemp("blended")
    rows = {name: jsonl(folder / f"{name}.jsonl", [{"text": f"{name} {n} " * 40} for n in range(60)]) for name in "ab"}
    blend = {"window": WINDOW, "schedule": PHASES}
    workspace = workspace_in(folder, minimal("pretrain", {name: domain(path, "text") for name, path in rows.items()}, blend=blend))
    return workspace, open_blend(build(workspace, "pretrain_blend").directory)


def lines_of(trainer: str, blended: tuple[Any, BlendStore], out: Path, **options: Any) -> list[str]:
    """What each phase tells a trainer, about exports that are there."""
    workspace, blend = blended
    folders = {}
    for name in blend.domains:
        stream = workspace.built("pretrain_tokens", name).directory
        folders[name] = export(stream, trainer, out / name, stream=f"{name}_train", **options)
    return [BLENDS[trainer](phase, WINDOW) for phase in phases_of(blend, folders, training_streams(workspace, "pretrain"))]


def drawn(blend: BlendStore, phase: int) -> dict[str, int]:
    part = blend.domain[(0, *blend.ends)[phase] : blend.ends[phase]]
    return {name: int((part == number).sum()) for number, name in enumerate(blend.domains)}


@pytest.mark.parametrize("phase", [0, 1])
def test_megatron(blended: tuple[Any, BlendStore], tmp_path: Path, phase: int) -> None:
    words = lines_of("megatron", blended, tmp_path / "out")[phase].split()
    at = [words.index(option) for option in ("--train-data-path", "--seq-length", "--train-samples")]
    samples, utils = int(words[at[2] + 1]), reader("megatron.core.datasets.utils")
    prefixes, weights = utils.get_blend_from_list(words[at[0] + 1 : at[1]])
    gpt, indexed = reader("megatron.core.datasets.gpt_dataset"), reader("megatron.core.datasets.indexed_dataset")
    config = gpt.GPTDatasetConfig(
        random_seed=1,
        sequence_length=int(words[at[1] + 1]),
        blend_per_split=[(prefixes, weights), None, None],
        tokenizer=SimpleNamespace(vocab_size=100, eod=98, pad=97, unique_identifiers={"name": "numbers"}),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    parts = []
    for prefix in prefixes:
        data = indexed.IndexedDataset(prefix)
        parts.append(gpt.GPTDataset(data, prefix, np.arange(len(data), dtype=np.int32), None, utils.Split.train, config))
    whole = sum(weights)
    theirs = reader("megatron.core.datasets.blended_dataset").BlendedDataset(parts, [weight / whole for weight in weights], samples, config)
    found = dict(zip("ab", np.bincount(theirs.dataset_index, minlength=2).tolist(), strict=True))
    assert found == drawn(blended[1], phase)
    assert len(theirs[samples - 1]["tokens"]) == WINDOW


@pytest.mark.parametrize("phase", [0, 1])
def test_olmo(blended: tuple[Any, BlendStore], tmp_path: Path, phase: int) -> None:
    olmo()
    known: dict[str, Any] = {}
    exec(lines_of("olmo", blended, tmp_path / "out", vocab_size=60_000)[phase], known)
    mixture = known["mixture"].build(npdtype=np.uint16, sequence_length=WINDOW)
    found = {source.name: sum(path.tokens for path in source.path_tokens) // WINDOW for source in mixture.sources}
    wanted = drawn(blended[1], phase)
    assert sum(found.values()) == sum(wanted.values())
    assert all(abs(found[name] - wanted[name]) <= 1 for name in wanted)
