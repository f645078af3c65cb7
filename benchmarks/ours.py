"""Our work, timed, and what the machine needs for it at least; `run.py` calls it.

    python benchmarks/ours.py {build,checks,cold,again,tokenizer,disk} {chats,tools,pairs,documents} FILE TOKENIZER [TEMPLATE [WORKERS]]

Prints seconds, processor seconds and tokens as JSON. `build` makes the stores of a family with their audits, `checks` runs all of their checks, both with
imports done and the tokenizer open; workers open their own. `cold` is the command that users type, from the start of its process to its end: build, checks,
publication. `again` is the same command with nothing to do. `tokenizer` encodes the texts, which are in memory; `disk` writes the files of the stores from
memory and waits for the disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROW_LEN = 2048
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Work:
    """What is built of a family.

    Attributes:
        family: its configuration file.
        schema: of the rows.
        assets: upstream first.
        options: of the configuration.
        pinned: whether one core does it, as it does the peers' work.
    """

    family: str
    schema: str
    assets: tuple[str, ...]
    options: dict[str, Any]
    pinned: bool = True


_CHATS = Work(
    "sft",
    "messages",
    ("sft_raw", "sft_tokens", "sft_packed"),
    {"packing": {"strategy": "bfd", "row_len": ROW_LEN}, "preprocessing": {"max_seq_len": ROW_LEN}},
)
WORK = {
    "chats": _CHATS,
    "tools": _CHATS,
    "pairs": Work("preference", "preference", ("preference_raw", "preferences_by_domain", "preference_tokens_by_domain"), {}),
    "documents": Work("pretrain", "text", ("pretrain_raw", "pretrain_tokens"), {"output": {"storage_format": "bin"}}, pinned=False),
}


def timed(work: Callable[[], int]) -> Row:
    """Seconds by the clock and of processors that some work takes, with those of processes that end in it, and how many tokens it gives."""
    clock, processor = time.perf_counter(), sum(os.times()[:4])
    tokens = work()
    return {"seconds": time.perf_counter() - clock, "processor": sum(os.times()[:4]) - processor, "tokens": tokens}


@dataclass(frozen=True)
class Run:
    """One family in a folder of its own."""

    work: Work
    source: Path
    tokenizer: Path
    folder: Path

    def workspace(self, workers: int = 1) -> Any:
        """The workspace, with its tokenizer open and its engine chosen."""
        import pyarrow.compute
        import pyarrow.json  # noqa: F401 - with what stores, templates and checks import, before the clock starts

        from prep_assets.config.models import FAMILIES
        from prep_assets.graph import graph  # noqa: F401
        from prep_assets.own_process import set_up
        from prep_assets.pipeline.workspace import Workspace
        from prep_assets.text.template import environment

        set_up()  # as the command does in its own process
        environment()

        workspace = Workspace(self.folder, self.folder / "stores")
        workspace.engines(workspace.family(FAMILIES[self.work.family])).first.encode(["word"])
        return replace(workspace, workers=workers)

    def stores(self, workspace: Any) -> dict[str, Any]:
        """The stores, accepted."""
        from prep_assets.graph.graph import ASSETS

        stores = {}
        for name in self.work.assets:
            build = ASSETS[name].build(workspace, "rows" if ASSETS[name].partitioned else "")
            stores[name] = build.propose()
            build.place.accept(stores[name], {})
        return stores

    def tokens(self, stores: dict[str, Any]) -> int:
        """How many tokens were written."""
        return int(next(store.manifest.counts["tokens"] for store in stores.values() if "tokens" in store.manifest.counts))

    def command(self) -> int:
        """What users type."""
        variables = {"PREP_ASSETS_CONFIG_DIR": str(self.folder), "PREP_ASSETS_STORE_DIR": str(self.folder / "stores")}
        start = "from prep_assets.cli.entry import main; main()"
        command = [sys.executable, "-c", start, "build", self.work.assets[-1]]
        subprocess.run(command, check=True, env=os.environ | variables, stdout=subprocess.DEVNULL)
        return 0

    def texts(self) -> list[str]:
        """Every text of the rows."""
        from prep_assets.data.files import find_files
        from prep_assets.data.read import read_blocks

        blocks = read_blocks(find_files([str(self.source)], self.folder)[0], 0)
        return [text for block in blocks for record in block.records for text in _texts(record.payload)]


def _texts(payload: Mapping[str, Any]) -> Iterator[str]:
    if "text" in payload:
        yield payload["text"]
    for field in ("prompt", "messages", "chosen", "rejected"):
        for message in payload.get(field, ()):
            yield message.get("content") or ""


def build(run: Run, workers: int) -> Row:
    """The stores."""
    from prep_assets.workers.pool import Pool

    workspace = run.workspace(workers)
    with Pool() as pool:
        return timed(lambda: run.tokens(run.stores(replace(workspace, pool=pool) if workers > 1 else workspace)))


def checks(run: Run, workers: int) -> Row:
    """All of their checks. Stops where one fails."""
    from prep_assets.engine.execute import verdicts_of
    from prep_assets.graph.graph import ASSETS, CHECKS

    workspace = run.workspace(workers)
    stores = run.stores(workspace)

    def check() -> int:
        for name, store in stores.items():
            for check_name, verdict in verdicts_of(workspace, ASSETS[name], store, CHECKS[name]):
                if not verdict.passed:
                    raise SystemExit(f"{name}: {check_name} fails: {verdict.summary}")
        return run.tokens(stores)

    return timed(check)


def cold(run: Run, workers: int) -> Row:
    """The command, where nothing is built yet."""
    return timed(run.command)


def again(run: Run, workers: int) -> Row:
    """The command, where nothing is to be done."""
    run.command()
    return timed(run.command)


def tokenizer(run: Run, workers: int) -> Row:
    """The tokenizer alone."""
    from prep_assets.text.engines import choose_engine
    from prep_assets.text.vocabulary import load_vocabulary

    engine, texts = choose_engine(load_vocabulary(str(run.tokenizer))).first, run.texts()
    engine.encode(["word"])
    return timed(lambda: sum(len(engine.encode(texts[at : at + 2000]).ids) for at in range(0, len(texts), 2000)))


def disk(run: Run, workers: int) -> Row:
    """The disk alone: the files of the stores, written and synced."""
    run.stores(run.workspace())
    files = [path.read_bytes() for path in sorted((run.folder / "stores").rglob("*")) if path.is_file()]

    def write() -> int:
        for number, data in enumerate(files):
            with (run.folder / f"{number}").open("wb") as file:
                file.write(data)
                os.fsync(file.fileno())
        return 0

    return timed(write)


@contextmanager
def run_of(family: str, source: Path, tokenizer: Path, template: str) -> Iterator[Run]:
    """A family that is configured in a temporary folder."""
    work = WORK[family]
    with tempfile.TemporaryDirectory() as name:
        config = {"tokenizer": str(tokenizer), "domains": {"rows": {"files": [str(source)], "schema": work.schema}}, **work.options}
        config |= {"template": template} if template else {}
        Path(name, f"{work.family}.yaml").write_text(json.dumps(config), "utf-8")
        yield Run(work, source, tokenizer, Path(name))


WAYS = {way.__name__: way for way in (build, checks, cold, again, tokenizer, disk)}

if __name__ == "__main__":
    way, family, file, opened, *rest = sys.argv[1:]
    template, workers = (rest[0] if rest else ""), int(rest[1]) if rest[1:] else 1
    if hasattr(os, "sched_setaffinity") and WORK[family].pinned and workers == 1 and way not in ("cold", "again"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with run_of(family, Path(file).resolve(), Path(opened).resolve(), template) as run:
        print(json.dumps(WAYS[way](run, workers)))
