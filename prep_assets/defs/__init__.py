"""Dagster and nothing else: partitions, the IO manager, assets, checks, sensors, schedules."""
