"""Lists the attack texts, one line each."""

import sys

from tests.judge.attacks import ATTACKS

for attack in ATTACKS:
    sys.stdout.write(f"{attack.family:10} {attack.language:10} {ascii(attack.text)[:100]}\n")
