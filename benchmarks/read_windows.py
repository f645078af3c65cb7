"""Random windows of 1,024 tokens as int64 tensors: our data sets and the readers of AstrAI, Megatron, `datasets` and litdata, on the same tokens.

    python benchmarks/read_windows.py [--astrai CHECKOUT] [--tokens 50000000] [--reads 20000] [--rounds 7]

Every contender gives x and y, shifted by one; the ones of SFT give the loss mask and the positions too. They take turns, in an order that
is drawn for each round, over the same random windows; what is printed is each one's median round, and how many times as long the others of its kind take.
AstrAI's are read from a checkout, the others need ``pip install megatron-core datasets litdata``. `datasets` and litdata have each window
as a row of its own. Every window is read once before: what is timed is reading, not the page faults of the first touch.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import h5py
import numpy as np
import torch

from prep_assets import load
from prep_assets.stores.table import TOKENS
from prep_assets.stores.writer import TableWriter
from prep_assets.training import DatasetFactory, SequenceDataset
from prep_assets_tests.peers.checkouts import import_astrai

WINDOW = 1024
LENGTH = 174
"""Tokens in a document, at the median."""
Read = Callable[[int], Any]


def draw(folder: Path, tokens: int, seed: int) -> None:
    """The same documents as a bin store with positions, as one without, as HDF5, and as Megatron's pair with all tokens in one sequence."""
    rng = np.random.default_rng(seed)
    lengths = np.maximum(rng.lognormal(np.log(LENGTH), 0.9, 2 * tokens // LENGTH).astype(np.int64), 1)
    lengths = lengths[: int(np.searchsorted(np.cumsum(lengths), tokens))]
    total = int(lengths.sum())
    ids = rng.integers(0, 50_000, total, np.int32)
    mask = (np.arange(total) % 5 > 1).astype(np.int32)
    positions = (np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)).astype(np.int32)
    arrays = {"tokens": ids, "loss_mask": mask, "position_ids": positions}
    index = np.zeros(len(lengths), np.int32), np.arange(len(lengths))
    for name, storage, keys in (("stored", "bin", arrays), ("ours", "bin", ["tokens", "loss_mask"]), ("h5", "h5", ["tokens", "loss_mask"])):
        (folder / name).mkdir()
        block = {key: arrays[key] for key in keys}
        with TableWriter(folder / name, "train", TOKENS, dict.fromkeys(keys, "int32"), storage=storage) as writer:  # type: ignore[arg-type]
            writer.append(block, lengths, *index)
    with h5py.File(folder / "contiguous.h5", "w") as file:
        file["tokens"] = ids
    megatron_pair(folder / "megatron", ids)


def megatron_pair(prefix: Path, ids: np.ndarray[Any, Any]) -> None:
    """All tokens as one sequence, the most favourable to ``get(0, offset, length)``: its index is looked up once."""
    from prep_assets.extensions.exports.megatron import IndexedWriter

    with IndexedWriter(prefix, "int32") as writer:
        writer.append(ids, np.array([len(ids)]))


def ours(folder: Path) -> dict[str, tuple[str, Read]]:
    """Name → what it is compared with, and how an item is read."""
    seq = {"bin": folder / "stored", "h5": folder / "h5", "h5, contiguous": folder / "contiguous.h5"}
    opened = {name: SequenceDataset(load(path, keys=["sequence"]), WINDOW) for name, path in seq.items()}
    found: dict[str, tuple[str, Read]] = {f"SequenceDataset, {name}": ("seq", each.__getitem__) for name, each in opened.items()}
    sft = {"bin, stored positions": "stored", "bin": "ours", "h5": "h5"}
    return found | {
        f"SftDataset, {name}": ("sft", DatasetFactory.load("sft", folder / path, WINDOW).__getitem__) for name, path in sft.items()
    }


def astrais(checkout: Path, folder: Path, scratch: Path) -> dict[str, tuple[str, Read]]:
    load = import_astrai(checkout, scratch).DatasetFactory.load
    return {f"AstrAI {kind}": (kind, load(kind, str(folder / "stored" / "train"), WINDOW).__getitem__) for kind in ("seq", "sft")}


def shifted(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return tokens[:-1], tokens[1:]


def megatrons(folder: Path) -> dict[str, tuple[str, Read]]:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    get = IndexedDataset(str(folder / "megatron")).get
    return {"Megatron get + int64": ("seq", lambda i: shifted(torch.from_numpy(get(0, i * WINDOW, WINDOW + 1).astype(np.int64))))}


def windows_of(folder: Path) -> np.ndarray[Any, Any]:
    """Every window with the token after it: int32[n, WINDOW + 1]."""
    with h5py.File(folder / "contiguous.h5") as file:
        ids = file["tokens"][:]
    return np.lib.stride_tricks.sliding_window_view(ids, WINDOW + 1)[::WINDOW]


def hugging_faces(folder: Path) -> dict[str, tuple[str, Read]]:
    import datasets
    import pyarrow as pa

    datasets.disable_progress_bars()
    flat = np.ascontiguousarray(windows_of(folder)).reshape(-1)
    table = pa.table({"input_ids": pa.FixedSizeListArray.from_arrays(pa.array(flat), WINDOW + 1)})
    datasets.Dataset(table).save_to_disk(str(folder / "datasets"))
    rows = datasets.load_from_disk(str(folder / "datasets")).with_format("torch", dtype=torch.int64)
    return {"datasets, format torch": ("seq", lambda i: shifted(rows[i]["input_ids"]))}


def litdatas(folder: Path) -> dict[str, tuple[str, Read]]:
    from litdata import StreamingDataset
    from litdata.streaming import TokensLoader
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(folder / "litdata"), chunk_size=(WINDOW + 1) * 8192, item_loader=TokensLoader())
    for number, row in enumerate(windows_of(folder)):
        writer[number] = torch.from_numpy(row.astype(np.int64))
    writer.done()
    writer.merge()
    rows = StreamingDataset(str(folder / "litdata"), item_loader=TokensLoader(block_size=WINDOW + 1))
    return {"litdata, TokensLoader": ("seq", lambda i: shifted(rows[i]))}


def timed(contenders: dict[str, tuple[str, Read]], windows: int, reads: int, rounds: int) -> dict[str, float]:
    """Median seconds a read."""
    rng, seconds = random.Random(0), {name: list[float]() for name in contenders}
    for _, read in contenders.values():
        for i in range(windows):
            read(i)
    for _ in range(rounds):
        indices = [rng.randrange(windows) for _ in range(reads)]
        for name in rng.sample(list(contenders), len(contenders)):
            read = contenders[name][1]
            begin = perf_counter()
            for i in indices:
                read(i)
            seconds[name].append((perf_counter() - begin) / reads)
    return {name: statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--astrai", type=Path, help="a checkout of AstrAI")
    parser.add_argument("--tokens", type=int, default=50_000_000)
    parser.add_argument("--reads", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder, scratch = Path(name) / "data", Path(name) / "scratch"
        folder.mkdir()
        draw(folder, args.tokens, args.seed)
        contenders = ours(folder) | (astrais(args.astrai, folder, scratch) if args.astrai else {})
        for others in (megatrons, hugging_faces, litdatas):
            try:
                contenders |= others(folder)
            except ImportError as error:
                print(f"not run: {error}")
        windows = len(DatasetFactory.load("sft", folder / "stored", WINDOW))
        medians = timed(contenders, windows, args.reads, args.rounds)
        report(contenders, medians)


def report(contenders: dict[str, tuple[str, Read]], medians: dict[str, float]) -> None:
    first = {"seq": "SequenceDataset, bin", "sft": "SftDataset, bin, stored positions"}
    print("| | µs a window | times our first line |\n|---|---|---|")
    for name, (kind, _) in sorted(contenders.items(), key=lambda entry: entry[1][0]):
        print(f"| {name} | {medians[name] * 1e6:.1f} | {medians[name] / medians[first[kind]]:.2f} |")


if __name__ == "__main__":
    main()
