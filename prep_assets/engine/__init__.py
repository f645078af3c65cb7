"""The engine: brings stores up to date, runs their checks, and publishes those for which all of them hold. It knows nothing of Dagster.

`state` says what a store is, `plan` what would be built and why, `build` builds it; `run` does the same as a stream of events.
"""

from prep_assets.engine.execute import BuildFailed, Built, build, run
from prep_assets.engine.plan import Step, plan
from prep_assets.engine.status import State, Status, Statuses, state

__all__ = ["BuildFailed", "Built", "State", "Status", "Statuses", "Step", "build", "plan", "run", "state"]
