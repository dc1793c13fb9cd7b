"""Rate limits and learned rates shared through a Redis server."""
