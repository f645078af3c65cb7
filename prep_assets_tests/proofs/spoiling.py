"""Every corruption of every store, and a copy of the stores with one of them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.version_folders import Published
from prep_assets_tests.graph.workspaces import resealed
from prep_assets_tests.proofs.conftest import spoilable
from prep_assets_tests.proofs.corruption import Mutation

MUTATIONS: list[Mutation] = [
    mutation
    for path in sorted(Path(__file__).parent.glob("spoiled_*.py"))
    for mutation in import_module(f"prep_assets_tests.proofs.{path.stem}").SPOILED
]


def spoiled(pristine: Workspace, folder: Path, mutation: Mutation) -> tuple[Workspace, Published]:
    """Stores in which one asset is a spoiled copy and the others are the clean ones."""
    workspace = spoilable(pristine, folder, mutation.asset)
    published = workspace.published(mutation.asset, mutation.partition)
    assert published is not None
    mutation.spoil(published)
    return workspace, resealed(Published(published.directory, Manifest.read(published.directory)))
