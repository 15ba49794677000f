"""The base of every error that a user can cause and mend.

Each room declares its own errors beside the code that raises them; a message names the culprit,
what is allowed and the fix. The command line prints the message without a traceback.
"""


class AgentEvalError(Exception):
    """Something the user can mend: bad input, bad settings, a missing file."""
