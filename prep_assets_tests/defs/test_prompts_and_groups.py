"""An RL family of which one domain has prompts and another scored groups: Dagster gives all assets of a job the partitions of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from prep_assets.assets.workspace import Workspace
from prep_assets.defs.io_manager import StoreIOManager
from prep_assets.defs.site import Site, WorkspaceResource
from prep_assets.defs.together import definitions
from prep_assets_tests.assets.workspaces import shipped, with_groups, workspace_in
from prep_assets_tests.defs.runs import RANGE_END, RANGE_START, failures


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    families = with_groups(shipped(), tmp_path / "groups", 12)
    families["rl"]["arithmetic"] = {"n": 12}
    families["rl"]["domains"]["gsm8k"]["max_items"] = 12
    return workspace_in(tmp_path, {"rl": families["rl"]})


def carried_out(workspace: Workspace, job: str, **how: Any) -> dg.DagsterInstance:
    site = Site(WorkspaceResource(configs=str(workspace.configs)), StoreIOManager(store_dir=str(workspace.stores)))
    instance = dg.DagsterInstance.ephemeral()
    result = definitions(site).get_repository_def().get_job(job).execute_in_process(instance=instance, raise_on_error=False, **how)
    assert result.success, failures(result)
    return instance


def test_a_whole_family_is_built(workspace: Workspace) -> None:
    instance = carried_out(workspace, "rebuild_rl", tags={RANGE_START: "gsm8k", RANGE_END: "scored"})
    for asset, domain in (("rl_prompts_by_domain", "gsm8k"), ("rl_groups_by_domain", "scored"), ("rl_prompts", ""), ("rl_groups", "")):
        assert workspace.published(asset, domain) is not None
    assert instance.get_materialized_partitions(dg.AssetKey("rl_prompts_by_domain")) == {"gsm8k"}
    assert instance.get_materialized_partitions(dg.AssetKey("rl_groups_by_domain")) == {"scored"}


def test_a_domain_of_groups_has_no_prompts(workspace: Workspace) -> None:
    instance = carried_out(workspace, "refresh_rl", partition_key="scored")
    assert instance.get_materialized_partitions(dg.AssetKey("rl_groups_by_domain")) == {"scored"}
    assert instance.get_materialized_partitions(dg.AssetKey("rl_prompts_by_domain")) == set()
