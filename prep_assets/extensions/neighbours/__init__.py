"""Metadata of stores for other tools: the Hugging Face Hub, Croissant, OpenLineage, MLflow and W&B.

`description` describes a store in plain values. Every other module converts that for one tool, and reads no store itself;
but for `forget`, whose search an attestation repeats.
"""
