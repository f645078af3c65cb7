"""Pipelines and row formats of other tools: AstrAI's files, ModelLink's command line and handlers, LLaMA-Factory's dataset_info.json."""
