"""A Ray cluster of several nodes on this machine: processes of their own for each. Only `make test-cluster` starts one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from prep_assets_tests.cluster.processes import ROOT, free_port
from prep_assets_tests.stores.s3 import serving

STORE = 80 << 20
"""Bytes of the object store of each node, about the least that Ray takes."""


class Nodes:
    """A head that does no work, and nodes of one processor each."""

    def __init__(self, caches: Path) -> None:
        from ray.cluster_utils import Cluster

        port = free_port()
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": True, "dashboard_port": port},
        )
        self._nodes: list[Any] = []
        self._caches, self._numbers = caches, count()
        self.dashboard = f"http://127.0.0.1:{port}"
        self.address = self._cluster.address

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, *path: Path) -> None:
        """One more node, whose Python finds packages in some folders first. It shares no folder of what is fetched from buckets."""
        cache = self._caches / f"node-{next(self._numbers)}"
        env = {"PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT])), "PREP_ASSETS_CACHE": str(cache)}
        self._nodes.append(self._cluster.add_node(num_cpus=1, object_store_memory=STORE, env_vars=env))

    def remove(self) -> None:
        """Kill the processes of the node that was added last."""
        self._cluster.remove_node(self._nodes.pop(), allow_graceful=False)

    def be(self, count: int) -> None:
        """Have so many nodes."""
        while len(self) > count:
            self.remove()
        while len(self) < count:
            self.add()

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A cluster to which this process is connected, and a bucket that all of its processes know."""
    if not os.environ.get("PREP_ASSETS_CLUSTER"):
        pytest.skip("a Ray cluster is started by make test-cluster alone")
    import ray

    caches = tmp_path_factory.mktemp("caches")
    with serving() as server, pytest.MonkeyPatch.context() as patch:
        known = {
            "ACCESS_KEY_ID": "id",
            "SECRET_ACCESS_KEY": "secret",
            "REGION": "us-east-1",
            "ENDPOINT_URL": server.url,
            "ALLOW_HTTP": "true",
        }
        for name, value in {f"AWS_{name}": value for name, value in known.items()}.items():
            patch.setenv(name, value)
        patch.setenv("PREP_ASSETS_CACHE", str(caches / "driver"))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # a run of Dagster is its command
        made = Nodes(caches)
        try:
            yield made
        finally:
            ray.shutdown()
            made.close()
