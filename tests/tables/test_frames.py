"""The types of frames cost nothing at run time; swapped_frames.py and swapped_ids.py show that mypy distinguishes them."""


def test_the_types_are_plain_frames_at_run_time() -> None:
    import polars as pl

    from agent_eval.tables import frames

    assert {frames.Agents, frames.Turns, frames.ErrorClusters} == {pl.DataFrame}
