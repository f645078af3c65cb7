"""A scored group, ready to be looked at: the prompt, then each response with its reward."""

from __future__ import annotations

import numpy as np

from prep_assets.assets.previews.row import Preview, record_name, token_texts
from prep_assets.assets.rl_groups import splits
from prep_assets.assets.rl_prompts import RAW
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import Rl
from prep_assets.errors import ConfigError
from prep_assets.stores.groups import open_groups
from prep_assets.stores.published import Published


def group_preview(workspace: Workspace, published: Published, row: int, split: str, limit: int) -> Preview:
    """Group `row` of ``train`` or ``test``, of each sequence at most `limit` tokens.

    Raises:
        ConfigError: there is no such group.
    """
    store = open_groups(splits(published)[split])
    if not 0 <= row < len(store):
        raise ConfigError(f"row {row:,} of {published.manifest.asset} {split}: there are {len(store):,}, numbered from 0")
    where = record_name(workspace, RAW, store.sources[store.source[row]], int(store.prompts.file[row]), int(store.prompts.row[row]))
    prompt = store.prompts.record(row, "tokens")
    ids, weights, positions, origins = [prompt[:limit]], [np.zeros(len(prompt[:limit]))], [np.arange(len(prompt[:limit]))], [(0, where)]
    responses, rewards = store.responses_of(row), store.rewards.record(row, "rewards")
    for number, (response, reward) in enumerate(zip(responses, rewards.tolist(), strict=True)):
        origins.append((sum(map(len, ids)), f"response {number}, reward {reward:g}"))
        ids.append(store.responses.record(response, "tokens")[:limit])
        weights.append(store.responses.record(response, "loss_mask")[:limit].astype(np.float64))
        positions.append(len(prompt) + np.arange(len(ids[-1])))
    flat = np.concatenate(ids).tolist()
    title = f"{published.manifest.asset} {split} group {row:,} of {len(store):,}: a prompt of {len(prompt):,} tokens, {len(responses)} responses"
    texts = token_texts(workspace.vocabulary(workspace.family(Rl)), flat)
    numbers = [np.concatenate(each).tolist() for each in (weights, positions)]
    return Preview(f"{title}, from {where}", texts, tuple(numbers[0]), tuple(numbers[1]), tuple(origins), tuple(flat))
