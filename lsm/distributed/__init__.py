"""The job: how its ranks were started, how they meet, and who failed when a wait fails."""

__all__: list[str] = []
