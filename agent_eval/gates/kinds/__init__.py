"""Declare the gates, one module each with a constant `GATE`; `evaluate` registers every module of this folder."""
