"""Notify people of changes of gates, boards and judges."""
