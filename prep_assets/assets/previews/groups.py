"""A scored group, ready to be looked at: the prompt, then each response with its reward."""

from __future__ import annotations

import numpy as np

from prep_assets.assets.previews.row import Preview, check_row, chosen_stream, record_name, token_texts
from prep_assets.assets.stage import Store
from prep_assets.assets.writing.groups import splits
from prep_assets.stores.groups import open_groups


def group_preview(store: Store, row: int, stream: str | None, limit: int) -> Preview:
    """Group `row` of ``train`` or ``test``, of each sequence at most `limit` tokens."""
    folders = splits(store.directory)
    split = chosen_stream(store, stream, list(folders))
    groups = open_groups(folders[split])
    check_row(store, row, len(groups))
    where = record_name(store, groups.sources[groups.source[row]], int(groups.prompts.file[row]), int(groups.prompts.row[row]))
    prompt = groups.prompts.record(row, "tokens")
    ids, weights, positions, origins = [prompt[:limit]], [np.zeros(len(prompt[:limit]))], [np.arange(len(prompt[:limit]))], [(0, where)]
    responses, rewards = groups.responses_of(row), groups.rewards.record(row, "rewards")
    for number, (response, reward) in enumerate(zip(responses, rewards.tolist(), strict=True)):
        origins.append((sum(map(len, ids)), f"response {number}, reward {reward:g}"))
        ids.append(groups.responses.record(response, "tokens")[:limit])
        weights.append(groups.responses.record(response, "loss_mask")[:limit].astype(np.float64))
        positions.append(len(prompt) + np.arange(len(ids[-1])))
    flat = np.concatenate(ids).tolist()
    title = f"{store.asset.name} {split} group {row:,} of {len(groups):,}: a prompt of {len(prompt):,} tokens, {len(responses)} responses"
    texts = token_texts(store.vocabulary, flat)
    numbers = [np.concatenate(each).tolist() for each in (weights, positions)]
    return Preview(f"{title}, from {where}", texts, tuple(numbers[0]), tuple(numbers[1]), tuple(origins), tuple(flat))
