"""Extension → the modules of the rest of the package that it imports. A list may only become shorter."""

from __future__ import annotations

from collections.abc import Mapping

USES: Mapping[str, str] = {
    "dagster": """
        caches checks.of_stores config.base config.family config.loading config.models data.files engine engine.events
        engine.execute engine.plan engine.scrub errors explain.figures explain.previews explain.rows explain.visible exports
        graph.exports graph.graph pipeline.asset pipeline.blends pipeline.source_files pipeline.workspace plugins proofs.verdict
        stores.files stores.guards stores.lines stores.manifest stores.open stores.published stores.remote stores.table
        stores.version_folders training
    """,
    "exports": """
        errors exports.arrow exports.readable exports.registry packing.strategies samples schemas.rewards schemas.verifiers
        stores.arrays stores.files stores.groups stores.h5 stores.images stores.manifest stores.open stores.packed stores.readers
        stores.segments stores.table stores.teachers stores.tokens stores.verification text.documents workers.pool
    """,
    "neighbours": """
        cli cli.stores config.family config.loading config.models data.files errors explain.figures explain.forget explain.html
        explain.streams explain.visible exports.arrow exports.registry graph.graph pipeline.asset pipeline.sources pipeline.workspace
        stores.files stores.manifest stores.verification stores.version_folders version
    """,
    "preprocess": """
        cli cli.stores config.base config.family config.loading config.mask config.models data data.blocks data.files data.quarantine
        data.read data.tables engine engine.events engine.execute errors explain.visible graph.graph packing packing.strategies
        pipeline.asset pipeline.examples pipeline.source_files pipeline.sources pipeline.workspace samples schemas.fields
        schemas.instructions schemas.messages schemas.reader schemas.registry schemas.rewards schemas.turns stores.arrays stores.files
        stores.manifest stores.segments stores.verification stores.version_folders text.encode text.engines text.load_template text.render
        text.spans text.template text.tokenizer_files text.vocabulary workers.pool workers.shards
    """,
    "quality": """
        caches errors limits quality.characters quality.steps quality.units quality.words samples schemas.registry schemas.rewards
        schemas.verifiers stores.arrays
    """,
    "ray": """
        errors own_process workers.pool workers.shards
    """,
    "doctor": """
        cli cli.stores cli.terminal config.family config.mask data.files errors explain.visible samples schemas.reader schemas.registry
        schemas.sniff text.conversation text.encode text.engines text.load_template text.render text.spans text.template text.vocabulary
    """,
    "pages": """
        caches checks.bounds cli cli.stores cli.trace config.family config.mask config.models engine.status errors explain.figures
        explain.html explain.rows explain.streams explain.trace explain.visible graph.graph pipeline.asset pipeline.verdicts
        pipeline.workspace stores.table stores.version_folders text.vocabulary version
    """,
    "agents": """
        errors samples schemas.fields schemas.preference schemas.registry schemas.rewards schemas.turns
    """,
    "token_ids": """
        errors samples schemas.fields schemas.registry schemas.turns
    """,
    "cerebras": """
        errors samples schemas.fields schemas.messages schemas.preference schemas.registry schemas.text schemas.turns
    """,
    "datasets": """
        errors samples schemas.fields schemas.preference schemas.reader schemas.registry schemas.rewards schemas.turns
    """,
    "buckets": """
        caches errors stores.files stores.manifest stores.remote stores.version_folders
    """,
}
