"""The golden files of the prompts: `python -m tests.judge.golden_prompts` writes them anew.

Each file holds one prompt as it is sent for the shipped example, then the schema of its reply. Read the diff: a changed
word of the prompts needs a new PROFILE_VERSION (golden/profile.json), a changed word of a rubric does not.
"""

import json
import sys
from pathlib import Path

from agent_eval.commands.prompts import NAMED, example_subject, prompts_of
from agent_eval.judge.prompts import Prompt, ReplyError, profile_hash, repair_messages
from agent_eval.methodology import Registry
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.metrics.profile import PROFILE_VERSION

FOLDER = Path(__file__).parent / "golden"
PROFILES = FOLDER / "profile.json"
OF_TURNS = [metric.name for metric in DEFAULT.metrics if not metric.is_measured]
OF_RUBRICS = ["U1", "U2", "U3", "U4", "U5", "U6", "D1.accuracy", "D1.completeness", "D1.usefulness"]


def golden_texts(folder: Path | None = None) -> dict[str, str]:
    """File name → content, for every prompt."""
    subject = example_subject(Registry.read(folder).get("1.3.0"))
    prompts = {name: prompts_of(name, subject)[0] for name in [*NAMED, *OF_TURNS, *OF_RUBRICS]}
    texts = {f"{name}.txt": _text(prompt) for name, prompt in prompts.items()}
    again = repair_messages(prompts["goal_completion"], ReplyError("goal_completion: missing.", ""))
    texts["re-ask.txt"] = again[-1]["content"] + "\n"
    return texts


def frozen_profiles() -> dict[str, str]:
    """Judge profile version → hash, as frozen."""
    profiles: dict[str, str] = json.loads(PROFILES.read_text())
    return profiles


def _text(prompt: Prompt) -> str:
    parts = [f"=== {message['role']}\n{message['content']}\n" for message in prompt.messages]
    schema = json.dumps(prompt.schema, ensure_ascii=False, indent=1)
    return "".join([*parts, f"=== reply: {prompt.name}\n{schema}\n"])


def main() -> None:
    """Write the files; the current profile's hash only under a version that has none yet."""
    FOLDER.mkdir(exist_ok=True)
    texts = golden_texts()
    for stale in {p.name for p in FOLDER.glob("*.txt")} - texts.keys():
        (FOLDER / stale).unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    frozen = frozen_profiles() if PROFILES.is_file() else {}
    if frozen.setdefault(PROFILE_VERSION, profile_hash()) != profile_hash():
        sys.exit(
            f"The words of the prompts have changed under profile version {PROFILE_VERSION}, which is frozen. "
            "Raise PROFILE_VERSION in agent_eval/metrics/profile.py, then run this again."
        )
    PROFILES.write_text(json.dumps(frozen, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
