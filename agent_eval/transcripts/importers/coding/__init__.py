"""Import logs and trajectories of coding agents, one module per format."""
