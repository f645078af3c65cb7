"""Stores in buckets of S3, Google Cloud and Azure."""
