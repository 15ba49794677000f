"""Provide statistics: exact fractions, intervals, paired and unpaired comparisons, and the tournament.

Functions take and return numbers or frames. `composite` and `reliability` define the compared quantities.
"""
