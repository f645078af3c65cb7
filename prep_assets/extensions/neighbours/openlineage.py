"""OpenLineage: the build of a store as a run event, with a custom facet for the output.

https://openlineage.io/docs/spec/facets/custom-facets. The client decides where events go: ``OPENLINEAGE_URL``, or ``openlineage.yml``.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from prep_assets.extensions.neighbours.description import Column, Description, hashes_of
from prep_assets.stores.manifest import Manifest
from prep_assets.version import __version__

PRODUCER = f"https://pypi.org/project/prep-assets/{__version__}"
FACET = "prepAssets_store"
"""The custom facet: a distinct prefix and a name, as the specification requires."""


def facet(hashes: Mapping[str, str], counts: Mapping[str, int], rejected: Mapping[str, int], partition: str) -> dict[str, Any]:
    """The custom facet: hashes, counts, rejected records by reason, and the domain."""
    base = {"_producer": PRODUCER, "_schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetFacet"}
    return {**base, "partition": partition, "hashes": dict(hashes), "counts": dict(counts), "refused": dict(rejected)}


def facets_of(manifest: Manifest) -> dict[str, Any]:
    """The facets of a store, from its manifest alone: the content hash as version, and the custom facet."""
    counts = {name: count for name, count in manifest.counts.items() if isinstance(count, int)}
    custom = facet(hashes_of(manifest, [manifest.recipe]), counts, manifest.counts.get("refused", {}), manifest.partition)
    return {**version(manifest.content_hash), FACET: custom}


def version(content_hash: str) -> dict[str, Any]:
    """The facet with the version of a data set."""
    from openlineage.client.facet_v2 import dataset_version_dataset

    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=content_hash)}


def event(description: Description, *, when: datetime | None = None) -> Any:
    """The completed build of a store, an `openlineage.client.event_v2.RunEvent`. The run id is deterministic, so repeated events are one run.

    Args:
        when: now by default; manifests hold no time.
    """
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    namespace = os.environ.get("OPENLINEAGE_NAMESPACE", "default")
    asset, _, partition = description.name.partition("[")
    custom = facet(description.hashes, description.counts, description.refused, partition.removesuffix("]"))
    statistics_facet = statistics.OutputStatisticsOutputDatasetFacet(
        rowCount=description.counts.get("rows"), size=description.bytes, fileCount=len(description.files)
    )
    build = f"{PRODUCER}/{description.name}/{description.hashes['build_key']}/{description.content_hash}"
    facets = {**version(description.content_hash), "schema": _schema(description.columns), FACET: custom}
    return RunEvent(
        eventType=RunState.COMPLETE,
        eventTime=(when or datetime.now(UTC)).isoformat(),
        run=Run(str(uuid.uuid5(uuid.NAMESPACE_URL, build))),
        job=Job(namespace, asset),
        producer=PRODUCER,
        inputs=[InputDataset(namespace, name, facets=version(content_hash)) for name, content_hash in _inputs(description)],
        outputs=[OutputDataset(namespace, asset, facets=facets, outputFacets={"outputStatistics": statistics_facet})],
    )


def event_json(description: Description) -> str:
    """The event as JSON, as the client sends it."""
    from openlineage.client.serde import Serde

    return json.dumps(json.loads(Serde.to_json(event(description))), indent=1, ensure_ascii=False)


def emit(description: Description, client: Any = None) -> None:
    """Send the event with `client`, by default one configured by the environment."""
    from openlineage.client import OpenLineageClient

    (client or OpenLineageClient()).emit(event(description))


def _inputs(description: Description) -> Iterable[tuple[str, str]]:
    """Names and hashes of the direct upstream stores, or of the source files if there are none."""
    if not description.upstream:
        yield from ((f"{source.domain}/{source.name}", source.sha256) for source in description.sources)
    for label, content_hash in description.made_from.items():
        if label.partition("[")[0] in description.upstream:
            yield label.partition("[")[0], content_hash


def _schema(columns: Iterable[Column]) -> Any:
    from openlineage.client.facet_v2 import schema_dataset

    fields = [
        (column.name, column.kind if isinstance(column.kind, str) else json.dumps(column.kind), column.description) for column in columns
    ]
    return schema_dataset.SchemaDatasetFacet([schema_dataset.SchemaDatasetFacetFields(*field) for field in fields])
