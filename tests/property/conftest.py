"""Property tests on shared machines: an example that waits for the processor is not a fault."""

from hypothesis import settings

# Everything else stays as the profile in force says, that of continuous integration too.
settings.register_profile(
    "shared machine", parent=settings.get_profile(settings.get_current_profile_name()), deadline=None
)
settings.load_profile("shared machine")
