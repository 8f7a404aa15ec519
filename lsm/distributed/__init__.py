"""The job: start of its ranks, rendezvous, collectives, and the rank to blame for a failed wait."""

__all__: list[str] = []
