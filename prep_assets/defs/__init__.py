"""The only package that imports Dagster: definitions of assets, sensors and schedules, and events of the engine as events of Dagster."""
