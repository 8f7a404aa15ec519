"""Makes, converts and checks stores."""
