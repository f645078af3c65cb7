"""The configuration in `configs/*.yaml` as frozen, typed models."""
