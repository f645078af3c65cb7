"""Dagster: definitions of assets, sensors and schedules, and events of the engine as events of Dagster."""

try:
    import dagster  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("Dagster is not installed. Install it with: pip install 'prep-assets[dagster]'", name=error.name) from error
