"""Pipelines of other tools in one shot: AstrAI's files and ModelLink's command line."""
