"""A version of a store as a dataset source of MLflow.

MLflow loads this module by its entry point while it is imported itself, so nothing may import this one before MLflow; `mlflow` of this
folder does both in that order.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlflow.data.dataset_source import DatasetSource

from prep_assets.errors import StoreError
from prep_assets.stores.manifest import Manifest


@dataclass(frozen=True)
class StoreSource(DatasetSource):  # type: ignore[misc]
    """A version of a store."""

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
            StoreError: the folder holds no store, or another version.
        """
        folder = Path(self.where)
        if (content := Manifest.read(folder).content_hash) != self.content_hash:
            raise StoreError(
                f"{folder} has the content {content[:12]}…, the run was made with {self.content_hash[:12]}…:\n  {self.command}"
            )
        return folder

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, source_dict: dict[Any, Any]) -> StoreSource:
        """The inverse of `to_dict`."""
        return cls(**source_dict)
