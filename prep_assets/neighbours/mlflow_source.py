"""Where a data set of MLflow comes from: a version of a store.

MLflow loads this module by its entry point when ``mlflow.data`` is imported, so nothing may import it before that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow.data.dataset_source import DatasetSource

from prep_assets.errors import StoreError
from prep_assets.stores.manifest import Manifest


@dataclass(frozen=True)
class StoreSource(DatasetSource):  # type: ignore[misc]
    """The version of a store."""

    where: str
    content_hash: str
    build_key: str
    command: str

    @staticmethod
    def _get_source_type() -> str:
        return "prep_assets"

    @staticmethod
    def _can_resolve(raw_source: Any) -> bool:
        return False

    @classmethod
    def _resolve(cls, raw_source: Any) -> StoreSource:
        raise NotImplementedError

    def load(self) -> Path:
        """The folder of the version.

        Raises:
            StoreError: it is gone from there, or is another one.
        """
        folder = Path(self.where)
        if (found := Manifest.read(folder).content_hash) != self.content_hash:
            raise StoreError(f"{folder} has the content {found[:12]}…, the run was made with {self.content_hash[:12]}…:\n  {self.command}")
        return folder

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return {"where": self.where, "content_hash": self.content_hash, "build_key": self.build_key, "command": self.command}

    @classmethod
    def from_dict(cls, source_dict: dict[Any, Any]) -> StoreSource:
        """The inverse of `to_dict`."""
        return cls(**source_dict)
