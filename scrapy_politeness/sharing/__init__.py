"""Rate limits and learned rates that several processes share: a port, and adapters."""
