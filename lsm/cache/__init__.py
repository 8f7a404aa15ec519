"""The planned cache: planner, options, static scores, staging."""
