"""Budgets and learned rates that several processes share through Redis."""
