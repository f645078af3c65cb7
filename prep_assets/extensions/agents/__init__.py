"""Row formats of agents and judges: logs of calls, rankings of answers."""
