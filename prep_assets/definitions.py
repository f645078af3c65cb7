"""The code location: every asset, check, sensor and schedule of the workspace that the environment names."""

from __future__ import annotations

from prep_assets.extensions.dagster.definitions import definitions
from prep_assets.extensions.dagster.site import Site

defs = definitions(Site())
