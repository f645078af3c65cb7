"""Stores in the words of other tools: the Hugging Face Hub, Croissant, OpenLineage, MLflow and W&B.

`description` says in plain values what a store is. Each file beside it puts that into the words of one tool, and reads no store of its own.
"""
