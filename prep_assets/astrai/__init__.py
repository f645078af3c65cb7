"""AstrAI's preprocessing, one-shot: a pipeline JSON of either of its dialects in, its directory layout out, no Dagster."""
