"""The address of torch data sets, collators and the sampler, which the extension `training` has."""

from prep_assets.extensions.training import *  # noqa: F403
from prep_assets.extensions.training import __all__ as __all__
