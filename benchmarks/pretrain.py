"""One way to make a token stream of ``.jsonl.zst``, timed; `run.py` calls it.

    python benchmarks/pretrain.py {ours,checks,engine,equal,plain,datatrove,megatron} FILE.jsonl.zst TOKENIZER [WORKERS [CHECKOUT]]

Prints seconds, MB of text and tokens as JSON. Imports are not timed; opening the tokenizer and choosing the engine is, but for `checks`. The plain
way reads with `json`, encodes batches of 1,000 documents with `tokenizers.encode_batch_fast`, appends the end-of-text token and writes raw
ids; it does not validate, deduplicate, hash or check anything.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def lines(source: Path) -> Iterator[bytes]:
    """The lines of a compressed file."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    with zstd.open(source, "rb") as file:
        yield from file


def built(source: Path, tokenizer: str, workers: int, folder: Path) -> tuple[Any, Any]:
    """A workspace of one domain, and its `pretrain_tokens`, accepted."""
    from dataclasses import replace

    from prep_assets.graph.graph import ASSETS
    from prep_assets.pipeline.workspace import Workspace
    from prep_assets.workers.pool import Pool

    config = f"tokenizer: {tokenizer}\ntokenizer_loader: file\noutput: {{storage_format: bin}}\ndomains:\n  docs: {{files: [{source}], schema: text}}\n"
    (folder / "pretrain.yaml").write_text(config, "utf-8")
    with Pool() as pool:
        workspace = replace(Workspace(folder, folder / "stores"), workers=workers, pool=pool)
        for asset in ("pretrain_raw", "pretrain_tokens"):
            build = ASSETS[asset].build(workspace, "docs")
            published = build.propose()
            build.place.accept(published, {})
    return workspace, published


def ours(source: Path, tokenizer: str, workers: int, folder: Path) -> dict[str, Any]:
    """`pretrain_raw` and `pretrain_tokens`, written with all their audits."""
    import prep_assets.graph.graph  # noqa: F401 - imported before the clock starts

    clock = time.perf_counter()
    _, published = built(source, tokenizer, workers, folder)
    return {"seconds": time.perf_counter() - clock, "tokens": published.manifest.counts["tokens"]}


def checks(source: Path, tokenizer: str, workers: int, folder: Path) -> dict[str, Any]:
    """All checks of the store."""
    import pyarrow.compute  # noqa: F401 - imported before the clock starts

    from prep_assets.engine.execute import verdicts_of as verdicts
    from prep_assets.graph.graph import ASSETS, CHECKS

    workspace, published = built(source, tokenizer, workers, folder)
    clock = time.perf_counter()
    said = verdicts(workspace, ASSETS["pretrain_tokens"], published, CHECKS["pretrain_tokens"])
    failed = [name for name, verdict in said if not verdict.passed]
    return {"seconds": time.perf_counter() - clock, "failed": failed}


def engine(source: Path, tokenizer: str, workers: int, folder: Path) -> dict[str, Any]:
    """The engine alone, on documents that are in memory."""
    from prep_assets.text.engines import choose_engine
    from prep_assets.text.vocabulary import load_vocabulary

    texts = [json.loads(line)["text"] for line in lines(source)]
    clock = time.perf_counter()
    chosen = choose_engine(load_vocabulary(tokenizer)).first
    count = sum(len(chosen.encode(texts[at : at + 2000]).ids) for at in range(0, len(texts), 2000))
    return {"seconds": time.perf_counter() - clock, "tokens": count + len(texts), "engine": chosen.name}


def equal(source: Path, tokenizer: str, workers: int, folder: Path) -> dict[str, Any]:
    """The reference on the same documents; stops where any id differs from the engine's."""
    import numpy as np

    from prep_assets.text.engines import choose_engine
    from prep_assets.text.vocabulary import load_vocabulary

    texts = [json.loads(line)["text"] for line in lines(source)]
    engines, seconds, count = choose_engine(load_vocabulary(tokenizer)), 0.0, 0
    for at in range(0, len(texts), 200):
        clock = time.perf_counter()
        expected = engines.reference.encode(texts[at : at + 200])
        seconds += time.perf_counter() - clock
        found = engines.first.encode(texts[at : at + 200])
        if not (np.array_equal(found.ids, expected.ids) and np.array_equal(found.offsets, expected.offsets)):
            raise SystemExit(f"documents {at} to {at + 200} have other ids than the reference gives them")
        count += len(expected.ids)
    return {"seconds": seconds, "tokens": count, "engine": engines.verdict}


def plain(source: Path, tokenizer: str, workers: int, folder: Path) -> dict[str, Any]:
    """The plain way."""
    import numpy as np
    from tokenizers import Tokenizer

    clock, count = time.perf_counter(), 0
    backend = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
    with (folder / "plain.bin").open("wb") as sink:
        batch: list[str] = []
        for line in [*lines(source), b""]:
            if line:
                batch.append(json.loads(line)["text"])
            if len(batch) == 1000 or (not line and batch):
                for encoding in backend.encode_batch_fast(batch, add_special_tokens=False):
                    ids = np.asarray([*encoding.ids, 0], np.int32)
                    ids.tofile(sink)
                    count += len(ids)
                batch = []
    return {"seconds": time.perf_counter() - clock, "tokens": count}


def datatrove(source: Path, tokenizer: str, workers: int, folder: Path) -> dict[str, Any]:
    """datatrove's reader and tokenizer, as its examples use them."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    reader = JsonlReader(str(source.parent), glob_pattern=source.name, compression="zstd")
    writer = DocumentTokenizer(
        str(folder / "out"), tokenizer_name_or_path=f"{tokenizer}/tokenizer.json", batch_size=1000, shuffle_documents=False
    )
    clock = time.perf_counter()
    LocalPipelineExecutor([reader, writer], logging_dir=str(folder / "logs"), tasks=1, workers=1).run()
    return {"seconds": time.perf_counter() - clock}


def megatron(source: Path, tokenizer: str, workers: int, folder: Path, checkout: str) -> dict[str, Any]:
    """Megatron-LM's ``tools/preprocess_data.py`` with its fastest tokenizer, once imported, on text that is not compressed."""
    import typing

    import typing_extensions

    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override  # type: ignore[attr-defined]  # Python 3.12 has it
    sys.path[:0] = [checkout, f"{checkout}/tools"]
    import preprocess_data

    (folder / "text.jsonl").write_bytes(b"".join(lines(source)))
    sys.argv = [
        "preprocess_data.py", "--input", str(folder / "text.jsonl"), "--output-prefix", str(folder / "out"), "--append-eod", "--workers", str(workers),
        "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", tokenizer, "--use-gigatoken",
    ]  # fmt: skip
    clock = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        preprocess_data.main()
    return {"seconds": time.perf_counter() - clock}


WAYS: dict[str, Callable[..., dict[str, Any]]] = {
    "ours": ours,
    "checks": checks,
    "engine": engine,
    "equal": equal,
    "plain": plain,
    "datatrove": datatrove,
    "megatron": megatron,
}

if __name__ == "__main__":
    way, file, directory, *rest = sys.argv[1:]
    with tempfile.TemporaryDirectory() as made:
        said = WAYS[way](Path(file), directory, int(rest[0]) if rest else 1, Path(made), *rest[1:])
    print(json.dumps(said))
