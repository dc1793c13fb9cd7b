"""What comes from outside, made up by machines, and what must hold for all of it.

Each property has two drivers: pytest runs some examples of every one, which hypothesis
makes (``test_fuzz.py``), and ``python -m tests.fuzz <target> [seconds]`` runs one for
long, guided by the code that it reaches (this needs the package atheris).
"""
