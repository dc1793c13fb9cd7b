"""Where requests wait, and what outlives a run."""
