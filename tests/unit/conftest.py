"""Property tests judge results, not how busy the machine is: no deadline for an example."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
