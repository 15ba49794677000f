"""The base of every error that a user can cause and fix.

Each room declares its own errors beside the code that raises them; a message names the culprit,
what is allowed and the fix. The command line prints the message without a traceback.
"""


class AgentEvalError(Exception):
    """An error that the user can fix: bad input, bad settings, a missing file."""
