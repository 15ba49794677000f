"""Fuzzing of every door: one module a door, each with `inputs` (a strategy) and `check` (what must hold).

The suite tries each door briefly; `python -m benchmarks.fuzz --minutes 5 [--door sessions]` as long as you like.
"""
