"""The IO manager: publishes the stores that assets return, and opens them for downstream assets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import dagster as dg
import numpy as np
from msgspec import Struct
from pydantic import Field

from prep_assets.config.loading import located, store_dir
from prep_assets.engine.events import Accepted, Candidate
from prep_assets.engine.execute import make_current
from prep_assets.errors import ConfigError, PrepAssetsError, require_known
from prep_assets.extensions.blends.store import BLEND
from prep_assets.graph.graph import EVERY, family_of_export
from prep_assets.pipeline.asset import Stream
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.stores.files import FOLDER as CACHE
from prep_assets.stores.guards import Guards, Verify
from prep_assets.stores.manifest import build_key, label_of
from prep_assets.stores.published import Draft, Place, open_published
from prep_assets.stores.remote import local_root
from prep_assets.stores.table import LINES, PAIRS, TOKENS, Schema, Table, open_table
from prep_assets.stores.writer import TableWriter

IO_MANAGER_KEY = "prep_assets_stores"
"""Resource key of the IO manager of `definitions`."""
ROWS = "rows"
"""Stem of the file of rows that an asset of the project returned."""


class Stores(Struct, frozen=True):
    """The output of an asset: the stores that it built and whose checks hold.

    Attributes:
        workspace: their workspace.
        built: one per partition of the run; a `Candidate` is not current yet.
        describe: returns the metadata of a published store.
        record: returns the event of a store, for runs over a range, whose partitions Dagster's own event would merge; `None`: Dagster records the output.
    """

    workspace: Workspace
    built: tuple[Accepted, ...]
    describe: Callable[[Accepted], Mapping[str, Any]]
    record: Callable[[Accepted], dg.AssetMaterialization] | None = None


class StoreIOManager(dg.ConfigurableIOManager):
    """Publishes the stores that assets hand over, and opens them for the assets below.

    The annotation of an argument decides what it gets: `Table` or nothing (the store as a table),
    ``np.ndarray`` (its tokens), ``dict[str, np.ndarray]`` (all arrays, mapped), a torch ``Dataset``, ``list[dict]`` (rows of JSONL), ``Path`` (its
    folder; the default for exports). An asset without partitions below one that has some gets ``dict[str, …]`` with one of these for each domain.
    The metadata ``stream`` of an `AssetIn` names another stream than the first, such as ``sft_dev_packed``.

    Whether a store is HDF5, `bin` or JSONL is its configuration's affair. An asset of your own may hand over rows (mappings): they become a store of JSONL.
    """

    store_dir: str = Field(
        default="",
        description="Folder of the stores, or the address of a bucket: s3://bucket/prefix. Empty: as PREP_ASSETS_STORE_DIR says, else data/stores.",
    )
    verify: Verify = Field(
        default="lazy",
        description="When an opened store is compared with its manifest: full, every file at once; lazy, each block when it is first read; off, never.",
    )
    cache: str = Field(
        default="",
        description="Folder of local copies of a bucket's stores. Empty: as PREP_ASSETS_CACHE says, else the user's cache folder.",
    )

    @property
    def root(self) -> Path:
        """The folder of stores on this machine."""
        if self.cache:
            os.environ[CACHE] = str(Path(self.cache).expanduser().absolute())  # workers inherit it
        return local_root(located(self.store_dir) if self.store_dir else store_dir())

    def handle_output(self, context: dg.OutputContext, obj: Any) -> Iterator[dg.AssetMaterialization]:  # type: ignore[override]
        """Publish the stores of an asset, or write a store of its rows."""
        if not isinstance(obj, Stores):
            context.add_output_metadata(self._write(context, obj))
            return
        for accepted in obj.built:
            if isinstance(accepted, Candidate):
                accepted = make_current(obj.workspace, accepted)
                context.log.info(f"{accepted.step.label}: every check holds, published: {accepted.published.where}")
            if obj.record is not None:
                yield obj.record(accepted)
            else:
                context.add_output_metadata(obj.describe(accepted))

    def load_input(self, context: dg.InputContext) -> Any:
        """Open the store of an upstream asset.

        Raises:
            dagster.Failure: there is no such store, or it is damaged; with the command that builds it.
        """
        name, wanted = context.asset_key.path[-1], context.dagster_type.typing_type
        if wanted is Place:
            return Place(self.root, name)
        options = context.definition_metadata or {}
        try:
            if not context.has_asset_partitions:
                return self._open(name, "", wanted, options)
            if context.has_partition_key and len(context.asset_partition_keys) == 1:
                return self._open(name, context.asset_partition_key, wanted, options)
            element_type = get_args(wanted)[-1] if get_origin(wanted) is dict else Any
            return {partition: self._open(name, partition, element_type, options) for partition in sorted(context.asset_partition_keys)}
        except PrepAssetsError as error:
            raise dg.Failure(f"input {context.name}: {error}", allow_retries=False) from error

    def _open(self, name: str, partition: str, wanted: Any, options: Mapping[str, Any]) -> Any:
        """Open one store as the annotation `wanted` asks for."""
        published = open_published(self.root, name, partition, remedy=build_command(name, partition))
        if wanted is Path or family_of_export(name):
            if self.verify == "full":
                published.verify()
            return published.directory
        if _is_dataset(wanted) and name in EVERY and EVERY[name].stage == BLEND:
            from prep_assets.training import BlendDataset

            return BlendDataset(published.directory, verify=self.verify)
        streams = EVERY[name].streams if name in EVERY else {ROWS: Stream(LINES, ROWS)}
        if not streams:
            raise ConfigError(f"{name} has no rows and no tokens to open; annotate the argument with Path to get its folder")
        stream = options.get("stream", next(iter(streams)))
        require_known(f"{name} has no stream", stream, streams, "It has")
        stem = streams[stream].stem
        if _is_dataset(wanted):
            return _torch_dataset(
                published.directory, streams[stream].schema, stem and stem.format(partition=partition), self.verify, options
            )
        table = open_table(published.directory, stem and stem.format(partition=partition), partition, Guards(self.verify))
        return _convert(wanted, table, label_of(name, partition))

    def _write(self, context: dg.OutputContext, rows: Any) -> Mapping[str, Any]:
        """Write rows that an asset of the project returned to a store, and publish it."""
        name, partition = context.asset_key.path[-1], context.partition_key if context.has_partition_key else ""
        if name in EVERY or isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
            raise dg.Failure(
                f"{name} returned {type(rows).__name__}; {type(self).__name__} stores rows (an iterable of mappings), and stores that prep-assets built. "
                "Give the asset another io_manager_key, or return rows",
                allow_retries=False,
            )

        def write(payload: Path, quarantine: Path) -> Draft:
            with TableWriter(payload, ROWS, LINES, domains=(name,)) as writer:
                for number, row in enumerate(rows):
                    writer.append_object(row, 0, number)
            return Draft({"rows": number + 1 if len(writer) else 0}, {}, ())

        recipe = {"stage": name, "made_by": "an asset of the project"}
        place = Place(self.root, name, partition)
        published = place.propose(build_key(recipe), write, config_key=build_key(recipe), recipe=recipe, again=True)
        place.accept(published, {})
        return {"path": dg.MetadataValue.path(published.where), "dagster/row_count": published.manifest.counts["rows"]}


def _convert(wanted: Any, table: Table, label: str) -> Any:
    """Convert an opened store to the type of an annotation."""
    if get_origin(wanted) is dict or wanted is np.ndarray:
        if "tokens" not in table.columns:
            raise ConfigError(f"{label} is {table.schema.name}, which has no arrays; remove the annotation to get the store")
        shape = (-1, table.width) if table.width else (-1,)
        arrays = {key: np.asarray(column.values).reshape(shape) for key, column in table.columns.items()}
        return arrays["tokens"] if wanted is np.ndarray else arrays
    if get_origin(wanted) is list or wanted is list:
        if table.path is None:
            raise ConfigError(f"{label} is {table.schema.name}, which has no rows of JSONL; remove the annotation to get the store")
        return list(table)
    return table


def _is_dataset(wanted: Any) -> bool:
    """Whether an annotation is a torch data set, without importing torch."""
    return any(base.__module__.startswith("torch.utils.data") for base in getattr(get_origin(wanted) or wanted, "__mro__", ()))


def _torch_dataset(folder: Path, schema: Schema, stem: str | None, verify: Verify, options: Mapping[str, Any]) -> Any:
    """The torch data set over one stream of a store."""
    from prep_assets.training import DatasetFactory, PackedDataset, RowDataset

    if schema.packed:
        return PackedDataset(folder, stem, verify=verify)
    if schema.fits(LINES):
        return RowDataset(folder, stem)
    if not schema.fits(TOKENS):
        return DatasetFactory.load("dpo" if schema.fits(PAIRS) else "grpo", folder / (stem or ""), verify=verify)
    if "window_size" not in options:
        raise ConfigError("a torch Dataset of a token stream needs the tokens of an item: AssetIn(metadata={'window_size': 2048})")
    data = next((path for path in (folder / f"{stem}.h5", folder / f"{stem}.jsonl") if path.is_file()), folder / str(stem))
    train_type = "sft" if open_table(folder, stem, guards=Guards("off")).has("weight") else "seq"
    return DatasetFactory.load(train_type, data, int(options["window_size"]), verify=verify)
