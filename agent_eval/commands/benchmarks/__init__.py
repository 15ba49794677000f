"""Commands that run benchmark scenarios against agents, and check the scenarios."""
