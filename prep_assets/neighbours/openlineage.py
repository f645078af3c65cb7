"""OpenLineage: the build of a store as a run event, with a facet of our own on what it wrote.

https://openlineage.io/docs/spec/facets/custom-facets. The package decides where events go: ``OPENLINEAGE_URL``, or ``openlineage.yml``.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from prep_assets import __version__
from prep_assets.neighbours.description import Column, Description, hashes_of
from prep_assets.stores.manifest import Manifest

PRODUCER = f"https://pypi.org/project/prep-assets/{__version__}"
FACET = "prepAssets_store"
"""Name of our facet: a prefix of its own and a name, as the specification asks of custom facets."""


def facet(hashes: Mapping[str, str], counts: Mapping[str, int], refused: Mapping[str, int], partition: str) -> dict[str, Any]:
    """What OpenLineage has no words for: hashes, counts, refused records by reason, and the domain."""
    base = {"_producer": PRODUCER, "_schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetFacet"}
    return {**base, "partition": partition, "hashes": dict(hashes), "counts": dict(counts), "refused": dict(refused)}


def facets_of(manifest: Manifest) -> dict[str, Any]:
    """The facets of a store known by its manifest alone: its content as version, and ours."""
    counts = {name: count for name, count in manifest.counts.items() if isinstance(count, int)}
    ours = facet(hashes_of(manifest, [manifest.recipe]), counts, manifest.counts.get("refused", {}), manifest.partition)
    return {**version(manifest.content_hash), FACET: ours}


def version(content_hash: str) -> dict[str, Any]:
    """The facet that says which version of a data set is meant."""
    from openlineage.client.facet_v2 import dataset_version_dataset

    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=content_hash)}


def event(description: Description, *, namespace: str = "", when: datetime | None = None) -> Any:
    """The end of the build of a store, an `openlineage.client.event_v2.RunEvent`. Its run has the same id however often it is sent.

    Args:
        namespace: of jobs and data sets; ``OPENLINEAGE_NAMESPACE`` where it is empty, else ``default``.
        when: now, if it is not given; manifests hold no time.
    """
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    namespace = namespace or os.environ.get("OPENLINEAGE_NAMESPACE", "default")
    asset, _, partition = description.name.partition("[")
    ours = facet(description.hashes, description.counts, description.refused, partition.removesuffix("]"))
    wrote = statistics.OutputStatisticsOutputDatasetFacet(
        rowCount=description.counts.get("rows"), size=description.bytes, fileCount=len(description.files)
    )
    build = f"{PRODUCER}/{description.name}/{description.hashes['build_key']}/{description.content_hash}"
    facets = {**version(description.content_hash), "schema": _schema(description.columns), FACET: ours}
    return RunEvent(
        eventType=RunState.COMPLETE,
        eventTime=(when or datetime.now(UTC)).isoformat(),
        run=Run(str(uuid.uuid5(uuid.NAMESPACE_URL, build))),
        job=Job(namespace, asset),
        producer=PRODUCER,
        inputs=[InputDataset(namespace, name, facets=version(content)) for name, content in _inputs(description)],
        outputs=[OutputDataset(namespace, asset, facets=facets, outputFacets={"outputStatistics": wrote})],
    )


def event_json(description: Description) -> str:
    """The event as it is sent."""
    from openlineage.client.serde import Serde

    return json.dumps(json.loads(Serde.to_json(event(description))), indent=1, ensure_ascii=False)


def emit(description: Description, client: Any = None) -> None:
    """Send the event: with a client, or one that the environment configures."""
    from openlineage.client import OpenLineageClient

    (client or OpenLineageClient()).emit(event(description))


def _inputs(description: Description) -> Iterable[tuple[str, str]]:
    """The stores that it is made from directly, or its source files, with their hashes."""
    if not description.upstream:
        yield from ((f"{each.domain}/{each.name}", each.sha256) for each in description.sources)
    for label, content in description.made_from.items():
        if label.partition("[")[0] in description.upstream:
            yield label.partition("[")[0], content


def _schema(columns: Iterable[Column]) -> Any:
    from openlineage.client.facet_v2 import schema_dataset

    named = [(each.name, each.kind if isinstance(each.kind, str) else json.dumps(each.kind), each.description) for each in columns]
    return schema_dataset.SchemaDatasetFacet([schema_dataset.SchemaDatasetFacetFields(*each) for each in named])
