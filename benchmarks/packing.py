"""How fast the pack planner is, against a plain segment-tree best fit, on the same lengths in the same run.

    python benchmarks/packing.py [-n 1000000] [--row-len 2048] [--seed 0] [--repeats 2]

The lengths are log-normal (median 174 tokens, like chat data in gpt2 tokens), documents longer than a row are cut to it. The segment tree
is the method that TRL's ``bfd`` describes: one leaf for each possible space, the least space that is enough found from the root, a queue
of rows for each space, one document after another.
"""

from __future__ import annotations

import argparse
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np

from prep_assets.array_types import Ints
from prep_assets.packing import Strategy, pack


class SpaceTree:
    """A tree of maxima over the spaces 0 … row_len: leaf s holds s while a row has that space."""

    def __init__(self, row_len: int) -> None:
        self.leaves = 1 << row_len.bit_length()
        self.tree = [0] * (2 * self.leaves)

    def set(self, space: int, value: int) -> None:
        node = self.leaves + space
        self.tree[node] = value
        while node > 1:
            node >>= 1
            self.tree[node] = max(self.tree[2 * node], self.tree[2 * node + 1])

    def least(self, length: int) -> int:
        """The least space of at least `length`, 0 when there is none."""
        node = self.leaves + length
        if self.tree[node]:
            return self.tree[node]
        while node > 1:
            if node % 2 == 0 and self.tree[node + 1]:
                node += 1
                break
            node >>= 1
        else:
            return 0
        while node < self.leaves:
            node = 2 * node if self.tree[2 * node] else 2 * node + 1
        return self.tree[node]


def tree_best_fit(lengths: Ints, row_len: int) -> list[list[int]]:
    """Records of each row by best-fit decreasing."""
    tree, rows = SpaceTree(row_len), list[list[int]]()
    rows_with: defaultdict[int, deque[int]] = defaultdict(deque)
    sizes = lengths.tolist()
    for record in np.argsort(-lengths, kind="stable").tolist():
        length = sizes[record]
        space = tree.least(length)
        if space:
            row = rows_with[space].popleft()
            if not rows_with[space]:
                tree.set(space, 0)
        else:
            row, space = len(rows), row_len
            rows.append([])
        rows[row].append(record)
        left = space - length
        if left:
            rows_with[left].append(row)
            tree.set(left, left)
    return rows


def best_time(call: Callable[[], int], repeats: int) -> tuple[int, float]:
    """The number of rows, and the shortest of `repeats` times in seconds."""
    seconds = []
    for _ in range(repeats):
        begin = perf_counter()
        rows = call()
        seconds.append(perf_counter() - begin)
    return rows, min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the pack planner against a plain segment-tree best fit.")
    parser.add_argument("-n", "--records", type=int, default=1_000_000)
    parser.add_argument("--row-len", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    drawn = np.random.default_rng(args.seed).lognormal(np.log(174), 0.9, args.records)
    lengths = np.clip(drawn, 1, args.row_len).astype(np.int64)
    tokens = int(lengths.sum())
    contenders: dict[str, Callable[[], int]] = {"segment tree": lambda: len(tree_best_fit(lengths, args.row_len))}
    for strategy in ("bfd", "bfd_split", "ffd", "simple", "concat"):
        contenders[strategy] = partial(rows_planned, lengths, args.row_len, strategy)
    print(f"{args.records:,} records, {tokens:,} tokens, rows of {args.row_len}: at least {-(-tokens // args.row_len):,} rows")
    print(f"{'':14}{'rows':>10}{'fill %':>10}{'seconds':>10}{'M records/s':>14}{'times the tree':>17}")
    tree_seconds = 0.0
    for name, call in contenders.items():
        rows, seconds = best_time(call, args.repeats)
        tree_seconds = tree_seconds or seconds
        fill = 100 * tokens / (rows * args.row_len)
        print(f"{name:14}{rows:>10,}{fill:>10.3f}{seconds:>10.3f}{args.records / seconds / 1e6:>14.2f}{tree_seconds / seconds:>17.1f}")


def rows_planned(lengths: Ints, row_len: int, strategy: Strategy) -> int:
    return pack(lengths, row_len, strategy).rows


if __name__ == "__main__":
    main()
