"""Row formats of agents and judges: logs of calls, runs with sampled ids, rankings of answers."""
