"""Extension → the modules of the rest of the package that it imports. A list may only become shorter."""

from __future__ import annotations

from collections.abc import Mapping

USES: Mapping[str, str] = {
    "neighbours": """
        cli cli.stores config.family config.loading config.models data.files errors explain.forget explain.report explain.streams
        explain.visible exports.arrow exports.registry graph.graph pipeline.asset pipeline.sources pipeline.workspace stores.bucket
        stores.files stores.manifest stores.verification stores.version_folders version
    """,
    "quality": """
        caches errors limits quality.characters quality.steps quality.units quality.words samples schemas.registry schemas.rewards
        schemas.verifiers stores.arrays
    """,
}
