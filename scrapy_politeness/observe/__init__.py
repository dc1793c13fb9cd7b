"""Log, stats, progress, metrics and report: they listen, and decide nothing."""
