from agent_eval.commands.api import (
    compare_agents as compare_agents,
)
from agent_eval.commands.api import (
    composite as composite,
)
from agent_eval.commands.api import (
    import_file as import_file,
)
from agent_eval.commands.api import (
    judge_conversations as judge_conversations,
)
from agent_eval.commands.api import (
    match_trajectory as match_trajectory,
)
from agent_eval.commands.api import (
    open_project as open_project,
)
from agent_eval.commands.api import (
    pass_at_k as pass_at_k,
)
from agent_eval.commands.api import (
    pass_hat_k as pass_hat_k,
)
from agent_eval.commands.api import (
    reliability_of as reliability_of,
)
from agent_eval.commands.api import (
    run_project as run_project,
)
from agent_eval.commands.api import (
    tool_correctness as tool_correctness,
)

__version__: str

__all__ = [
    "__version__",
    "compare_agents",
    "composite",
    "import_file",
    "judge_conversations",
    "match_trajectory",
    "open_project",
    "pass_at_k",
    "pass_hat_k",
    "reliability_of",
    "run_project",
    "tool_correctness",
]
