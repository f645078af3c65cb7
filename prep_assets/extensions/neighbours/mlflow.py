"""A version of a store as a data set of MLflow, for the input of a run."""

from __future__ import annotations

import json
from typing import Any

from mlflow.data.dataset import Dataset  # which loads `mlflow_source` by its entry point

from prep_assets.extensions.neighbours.description import Description, Kind
from prep_assets.extensions.neighbours.mlflow_source import StoreSource

# A store as the input of a run, so that a model records its training data.
#
# ``mlflow.log_input(MlflowDataset(described("stores/sft_packed/current")), context="training")``

DIGEST = 32
"""Digits of the content hash in a digest; MLflow allows 36. The source has all digits."""
_TYPES = {"float": "float", "double": "double", "bool": "boolean", "string": "string", "int64": "long", "uint32": "long"} | dict.fromkeys(
    ("int8", "int16", "int32", "uint8", "uint16"), "integer"
)
"""Arrow type name → MLflow's."""


class MlflowDataset(Dataset):  # type: ignore[misc]
    """A described store, for ``mlflow.log_input``; its digest is a prefix of its content hash."""

    def __init__(self, description: Description) -> None:
        self._description = description
        super().__init__(
            StoreSource(description.where, description.content_hash, description.hashes["build_key"], description.command),
            name=description.name,
        )

    def _compute_digest(self) -> str:
        return self._description.content_hash[:DIGEST]

    @property
    def profile(self) -> dict[str, Any]:
        """Counts, rejected records, hashes, licence and sources."""
        description = self._description
        sources = [f"{source.domain}/{source.name} sha256:{source.sha256}" for source in description.sources]
        numbers = {"counts": dict(description.counts), "metrics": dict(description.metrics), "refused": dict(description.refused)}
        return {**numbers, "hashes": dict(description.hashes), "licence": list(description.licence), "sources": sources}

    @property
    def schema(self) -> dict[str, Any] | None:
        """Columns with MLflow's types; `None` if one of them has none."""
        try:
            return {
                "mlflow_colspec": [{"name": column.name, "required": True, **_type(column.kind)} for column in self._description.columns]
            }
        except KeyError:
            return None

    def to_dict(self) -> dict[str, str]:
        """The values that MLflow stores."""
        schema = {"schema": json.dumps(self.schema)} if self.schema else {}
        return {**super().to_dict(), **schema, "profile": json.dumps(self.profile)}


def _type(kind: Kind) -> dict[str, Any]:
    if isinstance(kind, str):
        return {"type": _TYPES[kind]}
    if isinstance(kind, dict):
        return {"type": "object", "properties": {name: {**_type(inner), "required": False} for name, inner in kind.items()}}
    return {"type": "array", "items": _type(kind[0])}
