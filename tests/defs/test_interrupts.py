"""An interrupt of a run is one that this process received, not one of its children."""

import os
import signal

from agent_eval.defs.instance import deferred_interrupts


def test_a_signal_to_a_forked_child_does_not_interrupt_the_run() -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with deferred_interrupts() as is_interrupted:
            if (child := os.fork()) == 0:
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert not is_interrupted()
            os.kill(os.getpid(), signal.SIGTERM)
            assert is_interrupted()
    finally:
        signal.signal(signal.SIGTERM, before)
