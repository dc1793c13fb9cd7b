"""The arithmetic of politeness: no I/O, no clock, no randomness, no logging.

Times called ``now`` are monotonic seconds and come in as arguments, so a day of
crawling is computed in a moment and tests never sleep.
"""
