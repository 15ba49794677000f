"""Commands that show scores: leaderboard, explain, compare, reliability, tournament."""
