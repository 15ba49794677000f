"""Lists over all agents: conversations and error clusters."""
