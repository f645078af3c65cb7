"""Trajectories in ATIF, the Agent Trajectory Interchange Format: schemas, the check that a trace is whole, and an export."""
