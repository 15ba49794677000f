"""Call the agents under test: one module per kind of endpoint. Every failure of an agent is a value, not a crash."""
