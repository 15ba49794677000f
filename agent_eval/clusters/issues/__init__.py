"""Follow a cluster of an agent from run to run: open, fixed in a run, came back in a later one."""
