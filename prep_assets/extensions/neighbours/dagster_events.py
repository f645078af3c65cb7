"""OpenLineage events of Dagster's runs, with the content and inputs of stores.

`dagster_openlineage` turns Dagster's events into OpenLineage's. It knows neither the content of a store nor, since no event names them, its inputs; both
are added here, through its two extension points: the adapter of its event log, and the emitter of its adapter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_openlineage import OpenLineageAdapter, OpenLineageEventLogStorage
from dagster_openlineage.emitter import OpenLineageEmitter
from openlineage.client import OpenLineageClient

from prep_assets.errors import StoreError
from prep_assets.extensions.neighbours.openlineage import facets_of
from prep_assets.graph.graph import EVERY
from prep_assets.stores.manifest import Manifest

_FACETS: ContextVar[Mapping[str, Any] | None] = ContextVar("facets of the store in the event", default=None)


class StoreEvents(OpenLineageEventLogStorage):  # type: ignore[misc]
    """`dagster_openlineage.OpenLineageEventLogStorage`, for ``event_log_storage`` in ``dagster.yaml``; it takes the same settings."""

    def __init__(self, wrapped: Any, *, adapter: Any = None, **settings: Any) -> None:
        adapter_settings = {name: value for name, value in settings.items() if name != "inst_data"}
        super().__init__(wrapped, adapter=adapter or StoreAdapter(**adapter_settings), **settings)


class StoreAdapter(OpenLineageAdapter):  # type: ignore[misc]
    """Adds facts of the manifest to materializations of stores."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(emitter=settings.pop("emitter", None) or StoreEmitter(client=OpenLineageClient()), **settings)

    def asset_materialization(
        self,
        asset_key: dg.AssetKey,
        run_id: str,
        timestamp: float,
        *,
        metadata: Mapping[str, Any] | None = None,
        upstream_asset_keys: Sequence[dg.AssetKey] | None = None,
        **options: Any,
    ) -> None:
        """Emit the materialization of an asset; with facets and inputs where it is a store of ours."""
        manifest = _manifest(metadata or {})
        above = upstream_asset_keys
        if manifest is not None and not above:
            above = [dg.AssetKey([*asset_key.path[:-1], name]) for name in _upstream(manifest)]
        with _with_facets(facets_of(manifest) if manifest else {}):
            super().asset_materialization(asset_key, run_id, timestamp, metadata=metadata, upstream_asset_keys=above, **options)


class StoreEmitter(OpenLineageEmitter):  # type: ignore[misc]
    """Adds the facets of the store to the event."""

    def emit(self, event: Any) -> None:
        """Send an event."""
        for output in getattr(event, "outputs", None) or ():
            output.facets.update(_FACETS.get() or {})
        super().emit(event)


@contextmanager
def _with_facets(facets: Mapping[str, Any]) -> Iterator[None]:
    token = _FACETS.set(facets)
    try:
        yield
    finally:
        _FACETS.reset(token)


def _manifest(metadata: Mapping[str, Any]) -> Manifest | None:
    """The manifest of the version in an event; `None` where the asset is not ours, or the version is in a bucket or gone."""
    content, path = (getattr(metadata.get(name), "value", None) for name in ("content_hash", "path"))
    try:
        manifest = Manifest.read(Path(str(path))) if content and path else None
    except StoreError:
        return None
    return manifest if manifest and manifest.content_hash.startswith(str(content)) else None


def _upstream(manifest: Manifest) -> Sequence[str]:
    """The assets that a store is made from."""
    return EVERY[manifest.asset].made_of(manifest.recipe) if manifest.asset in EVERY else (manifest.recipe["from"],)
