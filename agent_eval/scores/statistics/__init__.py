"""Statistics: exact fractions, intervals, paired and unpaired comparisons, and the tournament.

Numbers and frames in, numbers and frames out. What is compared belongs in `composite` and `reliability`.
"""
