"""Shards: the plan, the greeting of workers, and where finished shards lie."""

from __future__ import annotations

import io
import json
import pickle
import platform
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import xxhash

from prep_assets import version
from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.stores.files import installed_version
from prep_assets.stores.verification import expected_in, recording

if TYPE_CHECKING:
    from prep_assets.stores.remote import Depot

# Software versions that must be equal in every process that carries out shards; a worker that differs gets no work.

Hello = Mapping[str, str]
PACKAGES = ("gigatoken", "jinja2", "numpy", "pyarrow", "tokenizers", "transformers")
"""Packages whose versions decide the bytes of stores."""
_SOURCES = (".py", ".jinja", ".json")


class VersionsDiffer(PrepAssetsError):
    """A worker has other software than the process that gives it work."""


@cache
def greeting() -> Hello:
    """Return the versions of Python, of this package with the hash of its files, and of `PACKAGES`; ``none`` for one that is not installed."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {
        "python": python,
        "prep-assets": f"{version.__version__} (files {_source_hash()})",
        **{name: installed_version(name) for name in PACKAGES},
    }


def compare(expected: Hello) -> None:
    """Check that this process has the same software as the one that planned the work.

    Raises:
        VersionsDiffer: it has not; the message names both versions.
    """
    actual = greeting()
    faults = [f"{name} is {actual.get(name, '-')} there and {expected.get(name, '-')} here" for name in sorted({*actual, *expected})
              if actual.get(name) != expected.get(name)]  # fmt: skip
    if faults:
        raise VersionsDiffer(
            f"the worker on {platform.node()} has other software than the process that gives it work, and could write other bytes: "
            f"{'; '.join(faults)}. Install the same on both, e.g. one image for all nodes, and build again: finished shards are kept"
        )


def _source_hash() -> str:
    """Return the hash of the files of this package, because its version does not identify a checkout."""
    root, total = Path(version.__file__).parent, xxhash.xxh3_64()
    for path in sorted(path for path in root.rglob("*") if path.suffix in _SOURCES):
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:8]


# Shards: parts of a job that any process may carry out, in any order and more than once, with the same bytes.
#
# Only the name of a folder, a hash and counts travel between processes; the process that merges reads the folders in the order of the plan.

Counts = Mapping[str, Any]
Work = Callable[[Any, Path], Counts]
"""A function of the task of a shard and an empty folder for its files. It is pickled, so it must be a function of a module, or a `functools.partial`
of one."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of a job.

    Attributes:
        number: its position in the plan.
        what: its name in messages.
        size: bytes of source that it reads.
        task: the argument of the work; it is pickled.
        name: of the folder of its results; sent along, because the hash of an unpickled task can differ.
    """

    number: int
    what: str
    size: int
    task: Any
    name: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The shards of a job. It depends on the input alone, never on who carries it out.

    Attributes:
        shards: in order.
        staging: a folder for their files, shared by all processes under this path; `None` if only counts are wanted.
        depot: where processes that do not share that folder upload files; `None` if all share it.
        hello: the `greeting` that a worker must have.
        whole: number of shards before the finished ones were removed.
        ready: loads what every shard needs; it may run once, in the process that workers are forked from. It is pickled like the work.
    """

    shards: Sequence[Shard]
    staging: Path | None
    hello: Hello = field(default_factory=greeting)
    whole: int = 0
    depot: Depot | None = None
    ready: Callable[[], object] | None = None

    @property
    def about(self) -> Plan:
        """The plan without its shards, which is sent with each shard."""
        return replace(self, shards=(), ready=None)

    @property
    def size(self) -> int:
        """Bytes of source that all shards read."""
        return sum(shard.size for shard in self.shards)

    def without(self, numbers: Mapping[int, Any]) -> Plan:
        """Return the plan without the shards of these numbers."""
        remaining = [shard for shard in self.shards if shard.number not in numbers]
        return replace(self, shards=remaining, whole=self.whole or len(self.shards))

    def label(self, shard: Shard) -> str:
        """Return the name of a shard in messages."""
        return f"shard {shard.number + 1:,} of {self.whole or len(self.shards):,} ({shard.what})"


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The result of a finished shard.

    Attributes:
        shard: the shard.
        folder: of its files.
        hash: xxh3-128 of its receipt, in hex, which is the folder's name; empty if only counts are wanted.
        counts: returned by the work.
        files: expected size and block hashes of each file, by relative path; the reader verifies them.
    """

    shard: Shard
    folder: Path
    hash: str
    counts: Counts
    files: Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class Effort:
    """Counters of the work so far.

    Attributes:
        shards: shards that were merged into stores.
        lost: workers that died in the middle of a shard.
        copies: slow shards that were started a second time.
    """

    shards: int = 0
    lost: int = 0
    copies: int = 0

    def since(self, before: Effort) -> Effort:
        """Return the difference to an earlier state."""
        return Effort(self.shards - before.shards, self.lost - before.lost, self.copies - before.copies)


class Runner(Protocol):
    """Carries out plans, one at a time."""

    effort: Effort
    elsewhere: bool
    """Whether it works on other machines as well."""

    @property
    def size(self) -> int:
        """Most shards that run at a time."""
        ...

    def run_shards(self, plan: Plan, work: Work) -> Generator[ShardResult, None, None]:
        """Yield the results of all shards, in the order of the plan, as they finish."""
        ...


# Where finished shards lie until they are merged, for any number of processes, machines and executions of one shard:
#
#     <staging>/<number>-<hash of the task>/<hash of the receipt>/    a finished shard: its files, and receipt.json: their hashes, and counts
#     <staging>/.<number>-<random>/                                   one that is under way, or was when its process ended
#
# A folder gets its name when it is complete, unless the name is taken: by the same bytes, then. Two names for one shard are two executions of it that differ.
# A build that begins again over the same staging finds what is finished. Where machines have no folder in common, each writes its shards into one of its own
# and sends them to a depot under the same names; the process that merges fetches them.

_RECEIPT = "receipt.json"


class NotDeterministic(PrepAssetsError):
    """Two executions of one shard wrote different bytes."""


def carried_out(runner: Runner, plan: Plan, work: Work) -> Iterator[ShardResult]:
    """Yield the results of all shards, in the order of the plan, as they finish. Shards that an earlier run has finished are not repeated.

    Raises:
        PrepAssetsError: see `Runner.run_shards`.
    """
    named_plan = replace(plan, shards=[replace(shard, name=_name(shard)) for shard in plan.shards])
    finished_shards = {} if plan.staging is None else finished(named_plan)
    with closing(runner.run_shards(named_plan.without(finished_shards), work)) as results:
        for shard in plan.shards:
            yield replace(finished_shards[shard.number] if shard.number in finished_shards else _fetched(next(results), plan), shard=shard)
        next(results, None)  # lets it end by itself


def _fetched(result: ShardResult, plan: Plan) -> ShardResult:
    """Fetch the files of a shard from the depot, if they are not in the staging folder."""
    if plan.depot and not result.folder.exists():
        plan.depot.fetch(f"{_name(result.shard)}/{result.hash}", result.folder)
    return result


def finished(plan: Plan) -> dict[int, ShardResult]:
    """Return the shards that an earlier run has finished. Damaged or ambiguous ones are deleted."""
    assert plan.staging is not None
    if plan.depot:
        wanted = {_name(shard) for shard in plan.shards}
        for name in plan.depot.names():
            if name.partition("/")[0] in wanted and not (plan.staging / name).exists():
                plan.depot.fetch(name, plan.staging / name)
    # listed, not looked up: a network file system remembers for a while that a name was not there
    names = {path.name for path in plan.staging.iterdir()} if plan.staging.is_dir() else set()
    finished_shards = {}
    for shard in plan.shards:
        if (name := _name(shard)) not in names:
            continue
        folders = list((plan.staging / name).iterdir())
        if len(folders) == 1 and (result := _read_receipt(shard, folders[0])):
            finished_shards[shard.number] = result
        else:
            shutil.rmtree(plan.staging / name)
    return finished_shards


def _read_receipt(shard: Shard, folder: Path) -> ShardResult | None:
    """Read the receipt of a finished shard; `None` if its files do not match it."""
    try:
        receipt = (folder / _RECEIPT).read_bytes()
        recorded = json.loads(receipt)
        files = expected_in(folder, {})
        del files[_RECEIPT]
        sound = xxhash.xxh3_128_hexdigest(receipt) == folder.name and files == recorded["files"]
    except (OSError, ValueError):
        return None
    return ShardResult(shard, folder, folder.name, recorded["counts"], recorded["files"]) if sound else None


def carry_out(shard: Shard, work: Work, plan: Plan) -> ShardResult:
    """Carry out one shard.

    Args:
        plan: may be without shards.

    Raises:
        VersionsDiffer: this process has other software than the one that planned.
        NotDeterministic: another execution wrote other bytes.
        PrepAssetsError: whatever the work raises.
    """
    compare(plan.hello)
    if plan.staging is None:
        with TemporaryDirectory() as folder:
            return ShardResult(shard, Path(folder), "", work(shard.task, Path(folder)), {})
    with TemporaryDirectory() if plan.depot else nullcontext(plan.staging) as staging, _work_folder(Path(staging), shard) as folder:
        with recording(folder) as expected_files:
            counts = work(shard.task, folder)
        receipt = json.dumps({"files": expected_in(folder, expected_files), "counts": counts})
        (folder / _RECEIPT).write_text(receipt, "utf-8")
        return _publish(folder, shard, receipt, plan)


@contextmanager
def _work_folder(staging: Path, shard: Shard) -> Iterator[Path]:
    """Yield an empty folder to write a shard into; it is deleted afterwards, unless it was published."""
    folder = staging / f".{shard.number:05d}-{secrets.token_hex(6)}"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _publish(folder: Path, shard: Shard, receipt: str, plan: Plan) -> ShardResult:
    """Give a complete shard its name, unless the same shard is published already."""
    assert plan.staging is not None
    target, content_hash = plan.staging / _name(shard), xxhash.xxh3_128_hexdigest(receipt.encode())
    for copy in (_publish_in_depot if plan.depot else _publish_in_staging)(folder, target, content_hash, plan):
        raise NotDeterministic(
            f"{plan.label(shard)} is not deterministic: two executions wrote different {_differing_files(copy, target / content_hash)}. Compare {copy} "
            f"with {target / content_hash}, which stay until the next build"
        )
    recorded = json.loads(receipt)
    return ShardResult(shard, target / content_hash, content_hash, recorded["counts"], recorded["files"])


def _publish_in_staging(folder: Path, target: Path, content_hash: str, plan: Plan) -> list[Path]:
    """Rename a shard to its content hash. Return the folders of other executions with different bytes."""
    target.mkdir(exist_ok=True)
    with suppress(OSError):
        folder.rename(target / content_hash)
    if not (target / content_hash / _RECEIPT).exists():
        raise StoreError(f"{folder} could not be renamed to {target / content_hash}")
    return sorted(path for path in target.iterdir() if path.name != content_hash)


def _publish_in_depot(folder: Path, target: Path, content_hash: str, plan: Plan) -> list[Path]:
    """Upload a shard to the depot. Return the folders of executions with different bytes, fetched for comparison."""
    assert plan.depot is not None
    plan.depot.put(f"{target.name}/{content_hash}", folder)
    names = {name.rpartition("/")[2] for name in plan.depot.names(target.name)}
    other_hashes = sorted(names - {content_hash})
    for other_hash in sorted(names) if other_hashes else ():
        if not (target / other_hash).exists():
            plan.depot.fetch(f"{target.name}/{other_hash}", target / other_hash)
    return [target / other_hash for other_hash in other_hashes]


def _differing_files(first: Path, second: Path) -> str:
    names = sorted({path.relative_to(root).as_posix() for root in (first, second) for path in root.rglob("*") if path.is_file()})
    contents = [[(root / name).read_bytes() if (root / name).exists() else None for name in names] for root in (first, second)]
    return ", ".join(name for name, first_bytes, second_bytes in zip(names, *contents, strict=True) if first_bytes != second_bytes)


def _name(shard: Shard) -> str:
    return shard.name or f"{shard.number:05d}-{xxhash.xxh3_64_hexdigest(_pickled((shard.size, shard.task)))}"


def key_of(work: Work) -> str:
    """Return the name of the staging folder of some work: a hash of its pickle."""
    return xxhash.xxh3_64_hexdigest(_pickled(work))


class _Pickler(pickle.Pickler):
    """Writes arrays as their bytes and paths as their text: their own pickles depend on how they were made and on the version of Python."""

    def reducer_override(self, value: object) -> Any:
        """See `pickle.Pickler`."""
        if isinstance(value, np.ndarray):
            return np.ndarray, (value.shape, value.dtype.str, value.tobytes())
        return (Path, (str(value),)) if isinstance(value, Path) else NotImplemented


def _pickled(value: object) -> bytes:
    """Pickle without references, so equal values give equal bytes. Otherwise an object that occurs twice is a reference, and two objects after unpickling."""
    out = io.BytesIO()
    pickler = _Pickler(out, 5)
    pickler.fast = True  # no references
    pickler.dump(value)
    return out.getvalue()
