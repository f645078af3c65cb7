"""Extension → the extensions, and the modules of the kernel, that it imports. A list may only become shorter."""

from __future__ import annotations

from collections.abc import Mapping

STANDS_ON: Mapping[str, str] = {
    "agents": "preference rl",
    "atif": "agents exports rl",
    "cerebras": "preference",
    "contrastive": "lines",
    "dagster": "blends explain exports keep",
    "datasets": "preference rl",
    "doctor": "start",
    "explain": "blends exports lines",
    "exports": "lines rl",
    "leaks": "quality",
    "neighbours": "explain exports",
    "preference": "lines",
    "preprocess": "rl",
    "quality": "rl",
    "recall": "keep neighbours",
    "rl": "lines",
    "selftest": "blends lines",
    "sessions": "agents",
    "start": "blends explain exports quality rl",
    "steps": "blends explain",
    "topology": "exports",
    "training": "blends steps",
}
"""Extension → the extensions that it uses, as `docs/architecture.md` lists them."""

USES: Mapping[str, str] = {
    "dagster": """
        caches checks.of_stores config.base config.family config.loading config.models data.addresses data.files data.pins engine
        engine.events engine.execute engine.plan errors graph.graph pipeline.asset pipeline.source_files pipeline.workspace plugins
        proofs.verdict row stores.files stores.guards stores.manifest stores.published stores.remote stores.table
        stores.version_folders stores.writer text.agreement text.engines text.visible text.vocabulary training
    """,
    "exports": """
        checks.of_stores checks.sources_again cli cli.stores config.base config.family config.models data.quarantine errors
        graph.graph load own_code packing.strategies pipeline.asset pipeline.examples pipeline.media pipeline.workspace plugins
        proofs.certificate proofs.tables proofs.verdict samples schemas.registry stores.arrays stores.files stores.groups
        stores.guards stores.h5 stores.images stores.lists stores.manifest stores.published stores.shards stores.table
        stores.verification stores.version_folders text.certify text.conversation text.environment text.template workers.pool
    """,
    "neighbours": """
        checks.licences cli cli.stores cli.terminal config.family config.loading config.models data.blocks data.files data.quarantine
        engine.events engine.execute errors graph.graph pipeline.asset pipeline.examples pipeline.sources pipeline.workspace records
        samples schemas.reader stores.files stores.manifest stores.published stores.verification stores.version_folders text.visible
        version where
    """,
    "preprocess": """
        cli cli.stores config.base config.family config.loading config.mask config.models data data.addresses data.blocks data.files
        data.quarantine data.read data.tables engine engine.events engine.execute errors graph.graph packing packing.strategies
        pipeline.asset pipeline.examples pipeline.source_files pipeline.sources pipeline.workspace proofs.formats proofs.row_rules
        proofs.source_rows proofs.source_rules proofs.source_texts samples schemas.fields schemas.instructions schemas.messages
        schemas.reader schemas.registry schemas.turns stores.arrays stores.files stores.h5 stores.manifest stores.shards
        stores.verification stores.version_folders text.encode text.engines text.load_template text.render text.spans text.template
        text.tokenizer_files text.visible text.vocabulary workers.pool workers.shards
    """,
    "quality": """
        caches checks.of_stores checks.relations config.family config.loading config.models data data.quarantine errors limits
        own_code pipeline pipeline.asset pipeline.documents pipeline.examples pipeline.sources pipeline.verdicts pipeline.workspace
        plugins proofs.verdict samples schemas.fields schemas.reader schemas.registry stores.arrays stores.guards stores.published
        stores.verification stores.version_folders workers.pool
    """,
    "ray": """
        errors own_process workers.pool workers.shards
    """,
    "doctor": """
        cli cli.stores cli.terminal config.family config.mask data.files errors samples schemas.reader schemas.registry
        text.agreement text.certify text.conversation text.encode text.engines text.load_template text.render text.spans
        text.template text.visible text.vocabulary
    """,
    "agents": """
        errors proofs.formats proofs.rejected_rows proofs.row_rules proofs.source_rows proofs.source_rules proofs.source_texts
        samples schemas.fields schemas.registry schemas.turns
    """,
    "atif": """
        checks.registry checks.sources_again errors pipeline.asset proofs.formats proofs.mutations proofs.rejected_rows
        proofs.row_rules proofs.source_rows proofs.source_rules proofs.verdict samples schemas.fields schemas.registry
        schemas.turns stores.table
    """,
    "sessions": """
        errors proofs.formats proofs.rejected_rows proofs.row_rules proofs.source_rows proofs.source_rules samples schemas.fields
        schemas.registry schemas.turns stores.files
    """,
    "token_ids": """
        errors proofs.formats proofs.row_rules proofs.source_fields samples schemas.fields schemas.registry schemas.turns
    """,
    "cerebras": """
        errors proofs.formats proofs.row_rules proofs.source_rows proofs.source_rules proofs.source_texts samples schemas.fields
        schemas.messages schemas.registry schemas.text schemas.turns
    """,
    "datasets": """
        errors proofs.formats proofs.row_rules proofs.source_rows proofs.source_rules proofs.source_texts samples schemas.fields
        schemas.instructions schemas.reader schemas.registry schemas.turns
    """,
    "buckets": """
        caches errors stores.files stores.manifest stores.remote stores.version_folders
    """,
    "selftest": """
        checks.of_conversations checks.of_documents checks.of_packed checks.of_stores checks.of_texts checks.relations
        checks.selection checks.sources_again cli cli.terminal config.models errors graph.graph pipeline.asset pipeline.sources
        pipeline.workspace plugins proofs.accounting proofs.derive proofs.documents proofs.mask proofs.mutations proofs.selection
        proofs.source_texts proofs.tables proofs.verdict samples stores.arrays stores.images stores.shards stores.table
        stores.version_folders text.template text.vocabulary
    """,
    "recall": """
        cli.terminal config.base config.models engine.plan engine.status errors graph.graph pipeline.asset pipeline.workspace
        stores.manifest stores.published stores.remote stores.verification stores.version_folders
    """,
    "remote": """
        data.addresses data.local_files errors
    """,
    "changes": """
        StoredRecord checks.bounds cli cli.stores cli.terminal config.models data.quarantine errors graph.graph pipeline.asset
        pipeline.workspace records stores.manifest stores.published stores.version_folders text.visible text.vocabulary
    """,
    "start": """
        checks.bounds cli cli.stores cli.terminal config.family config.loading config.models data.files data.local_files engine
        errors graph.graph pipeline.asset pipeline.workspace row samples schemas.fields schemas.reader schemas.registry
        schemas.turns stores.arrays stores.remote stores.shards stores.table stores.version_folders text.visible
    """,
    "leaks": """
        checks.of_stores checks.relations cli cli.terminal config.family config.models data.blocks data.quarantine errors
        graph.graph graph.raw pipeline.asset pipeline.examples pipeline.sources pipeline.verdicts pipeline.workspace proofs.verdict samples
        stores.published stores.version_folders text.visible
    """,
    "explain": """
        caches checks.bounds checks.of_conversations checks.selection cli cli.stores cli.terminal config.family config.mask
        config.models data.addresses data.blocks data.files data.quarantine data.read engine.status errors graph.graph
        graph.pretrain pipeline.asset pipeline.conversations pipeline.documents pipeline.examples pipeline.sources pipeline.tokens
        pipeline.verdicts pipeline.workspace proofs.mask samples schemas.reader stores.groups stores.manifest stores.published
        stores.table stores.version_folders text.documents text.encode text.spans text.visible text.vocabulary version
    """,
    "keep": """
        checks.of_stores cli cli.stores cli.terminal config.family config.models data.addresses data.files engine engine.events
        engine.execute engine.plan engine.status errors graph.graph pipeline.asset pipeline.sources pipeline.workspace
        proofs.verdict stores.manifest stores.published stores.remote stores.verification stores.version_folders text.visible
        workers.pool
    """,
    "tokenizers": """
        caches config.loading errors own_code stores.files text.agreement text.ids text.spans text.suspects text.tokenizer_files
        text.vocabulary
    """,
    "contrastive": """
        checks.of_stores checks.of_texts checks.rejections checks.relations checks.selection checks.sources_again config.base
        config.family errors graph.raw pipeline.asset pipeline.workspace proofs.formats proofs.mutations proofs.source_texts
        proofs.verdict samples schemas.fields schemas.registry stores.table
    """,
    "steps": """
        cli cli.terminal config.models data.addresses errors graph.graph pipeline.sources pipeline.workspace stores.manifest
        stores.published stores.version_folders
    """,
    "training": """
        caches errors pipeline.workspace stores.arrays stores.files stores.groups stores.guards stores.h5 stores.manifest
        stores.packed stores.published stores.remote stores.shards stores.table stores.version_folders
    """,
    "topology": """
        errors stores.arrays stores.table stores.verification
    """,
    "distillation": """
        checks.relations checks.sources_again errors pipeline.asset pipeline.conversations pipeline.examples proofs.formats
        proofs.mutations proofs.verdict samples stores.lists stores.table text.encode text.vocabulary
    """,
    "encoders": """
        caches errors own_code text.environment
    """,
    "preference": """
        checks checks.of_conversations checks.of_stores checks.of_texts checks.rejections checks.relations checks.selection
        checks.sources_again config.base config.family config.mask config.models data.quarantine errors graph.raw pipeline.asset
        pipeline.conversations pipeline.examples pipeline.media pipeline.rendering pipeline.sources pipeline.workspace
        proofs.chat_blocks proofs.derive proofs.formats proofs.mask proofs.mutations proofs.plain_reading proofs.row_rules
        proofs.second_reading proofs.source_fields proofs.source_rows proofs.source_rules proofs.source_texts proofs.verdict samples
        schemas.fields schemas.reader schemas.registry schemas.turns stores.published stores.table text.encode text.spans
    """,
    "rl": """
        checks.of_conversations checks.of_stores checks.of_texts checks.rejections checks.relations checks.selection
        checks.sources_again config.base config.family config.mask config.models data.quarantine errors graph.raw own_code
        pipeline.asset pipeline.examples pipeline.media pipeline.rendering pipeline.sources pipeline.tokens pipeline.workspace
        proofs.chat_blocks proofs.derive proofs.formats proofs.mask proofs.mutations proofs.row_rules proofs.second_reading
        proofs.source_fields proofs.source_rows proofs.source_rules proofs.source_texts proofs.tables proofs.verdict samples
        schemas.fields schemas.reader schemas.registry schemas.turns stores.files stores.groups stores.published stores.table
        stores.version_folders stores.writer text.encode text.render text.spans text.template text.vocabulary
    """,
    "blends": """
        checks.of_stores config.models data.quarantine errors graph.pretrain graph.sft packing.mixing packing.strategies
        pipeline.asset pipeline.workspace proofs.orders proofs.verdict stores.arrays stores.guards stores.published stores.table
        stores.verification
    """,
    "lines": """
        checks.of_stores checks.rejections checks.relations checks.selection checks.sources_again config.family config.mask
        config.models data.files data.quarantine data.tables errors pipeline.asset pipeline.examples pipeline.tokens
        pipeline.workspace proofs.mutations proofs.second_reading proofs.tables proofs.verdict samples schemas.reader stores.arrays
        stores.files stores.groups stores.guards stores.published stores.remote stores.table stores.version_folders stores.writer
        workers.shards
    """,
    "media": """
        config.base config.family config.models errors packing packing.strategies pipeline.media proofs.verdict samples
        stores.arrays stores.images stores.manifest stores.table text.spans text.template text.tokenizer_files text.vocabulary
    """,
}
