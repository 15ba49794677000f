"""Implement the commands that show results, such as leaderboard, explain, compare, reliability and tournament."""
