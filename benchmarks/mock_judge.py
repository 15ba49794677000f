"""The server of `agent-eval judge mock` for load tests. Run: python -m benchmarks.mock_judge --port N"""

import argparse

from agent_eval.commands.setup.mock_judge import instance, serve

__all__ = ["instance"]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    serve(parser.parse_args().port)
