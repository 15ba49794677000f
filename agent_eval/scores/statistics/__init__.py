"""Provide statistics: exact fractions, intervals, paired and unpaired comparisons, and the tournament.

Functions take and return numbers and frames. `composite` and `reliability` define the quantities to compare.
"""
