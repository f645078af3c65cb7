"""Extension → the modules of the rest of the package that it imports. A list may only become shorter."""

from __future__ import annotations

from collections.abc import Mapping

USES: Mapping[str, str] = {
    "dagster": """
        caches checks.of_stores config.base config.family config.loading config.models data.addresses data.files data.pins engine
        engine.events engine.execute engine.plan engine.scrub errors explain.figures explain.previews explain.rows explain.visible exports
        graph.exports graph.graph pipeline.asset pipeline.blends pipeline.source_files pipeline.workspace plugins proofs.verdict
        stores.files stores.guards stores.lines stores.manifest stores.open stores.published stores.remote stores.table
        stores.version_folders training
    """,
    "exports": """
        errors exports.arrow exports.readable exports.registry packing.strategies samples schemas.rewards schemas.verifiers stores.arrays
        stores.files stores.groups stores.h5 stores.images stores.manifest stores.open stores.packed stores.readers stores.segments
        stores.table stores.teachers stores.tokens stores.verification text.documents workers.pool
    """,
    "neighbours": """
        cli cli.stores cli.terminal config.family config.loading config.models data.blocks data.quarantine engine.events engine.execute
        errors explain.figures explain.html explain.streams explain.visible explain.where exports.arrow exports.registry graph.graph
        pipeline.asset pipeline.examples pipeline.sources pipeline.workspace samples schemas.reader stores.files stores.manifest
        stores.published stores.verification stores.version_folders version
    """,
    "preprocess": """
        cli cli.stores config.base config.family config.loading config.mask config.models data data.addresses data.blocks data.files
        data.quarantine data.read data.tables engine engine.events engine.execute errors explain.visible graph.graph packing
        packing.strategies pipeline.asset pipeline.examples pipeline.source_files pipeline.sources pipeline.workspace samples schemas.fields
        schemas.instructions schemas.messages schemas.reader schemas.registry schemas.rewards schemas.turns stores.arrays stores.files
        stores.manifest stores.segments stores.verification stores.version_folders text.encode text.engines text.load_template text.render
        text.spans text.template text.tokenizer_files text.vocabulary workers.pool workers.shards
    """,
    "quality": """
        caches config.family errors limits own_code quality.compiled quality.language quality.private_data quality.steps quality.units
        samples schemas.rewards schemas.verifiers stores.arrays
    """,
    "ray": """
        errors own_process workers.pool workers.shards
    """,
    "doctor": """
        cli cli.stores cli.terminal config.family config.mask data.files errors explain.visible samples schemas.reader schemas.registry
        schemas.sniff text.agreement text.certify text.conversation text.encode text.engines text.load_template text.render text.spans
        text.template text.vocabulary
    """,
    "pages": """
        caches checks.bounds cli cli.stores cli.trace config.family config.mask config.models engine.status errors explain.figures
        explain.html explain.rows explain.streams explain.trace explain.visible graph.graph pipeline.asset pipeline.verdicts
        pipeline.workspace stores.manifest stores.table stores.version_folders text.vocabulary version
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
        errors samples schemas.fields schemas.instructions schemas.preference schemas.reader schemas.registry schemas.rewards schemas.turns
    """,
    "buckets": """
        caches errors stores.files stores.manifest stores.remote stores.version_folders
    """,
    "selftest": """
        checks.of_conversations checks.of_documents checks.of_lines checks.of_packed checks.of_quality checks.of_stores checks.of_texts
        checks.relations checks.selection checks.sources_again cli cli.terminal config.models errors graph.graph pipeline.asset
        pipeline.quality pipeline.sources pipeline.verdicts pipeline.workspace proofs.accounting proofs.derive proofs.documents
        proofs.groups proofs.image_tokens proofs.mask proofs.merged proofs.mutations proofs.packed proofs.rows proofs.selection
        proofs.source_texts proofs.teachers proofs.verdict quality.overlap quality.private_data quality.steps samples stores.blends
        stores.images stores.packed stores.tokens stores.version_folders text.documents text.template text.vocabulary
    """,
    "remote": """
        data.addresses data.local_files errors
    """,
    "changes": """
        checks.bounds cli cli.stores cli.terminal config.models data.quarantine errors explain.streams explain.visible explain.where
        graph.graph pipeline.asset pipeline.workspace stores.manifest stores.published stores.version_folders text.vocabulary
    """,
    "start": """
        checks.bounds cli cli.export cli.look cli.stores cli.terminal config.family config.loading config.models data.files data.local_files
        engine errors explain.figures explain.visible exports.registry graph.graph pipeline.workspace quality.steps samples schemas.reader
        schemas.registry schemas.sniff stores.remote stores.version_folders
    """,
    "leaks": """
        checks.of_quality cli cli.terminal config.models data.quarantine errors explain.visible graph.graph pipeline.leaks pipeline.quality
        pipeline.verdicts pipeline.workspace quality.overlap stores.version_folders
    """,
    "tokenizers": """
        caches config.loading errors own_code stores.files text.agreement text.ids text.spans text.suspects text.tokenizer_files
        text.vocabulary
    """,
}
