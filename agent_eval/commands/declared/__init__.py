"""Declare the commands: arguments, options, help and panel. `cli.py` collects them.

These modules are read for every call, also for `--help` and `--version`, so they import large packages (and the modules
of `commands` that do the work) only in the bodies of the commands.
"""
