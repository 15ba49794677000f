"""Define a frame type per table, so that mypy rejects a frame of the wrong table.

At run time, all types are plain polars frames. Methods that select or order rows keep the type. Methods that change
columns return a plain frame, which `Table.conform` converts back. `Store.read`, `Table.frame` and `Table.empty` return
these types; docs/decisions/0031 explains why dataframely is not used.
"""

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from typing import Literal, Self, overload

    from typing_extensions import TypeVar  # Python 3.11's TypeVar does not support defaults

    F = TypeVar("F", bound=pl.DataFrame, default=pl.DataFrame)
    F_co = TypeVar("F_co", bound=pl.DataFrame, default=pl.DataFrame, covariant=True)

    class Frame(pl.DataFrame):
        """Rows of a single table."""

        def filter(self, *predicates: Any, **constraints: Any) -> Self: ...
        def sort(self, *by: Any, **options: Any) -> Self: ...
        def head(self, n: int = 5) -> Self: ...
        def clear(self, n: int = 0) -> Self: ...
        def clone(self) -> Self: ...
        def drop_nans(self, subset: Any = None) -> Self: ...
        def drop_nulls(self, subset: Any = None) -> Self: ...
        def gather_every(self, n: int, offset: int = 0) -> Self: ...
        def limit(self, n: int = 5) -> Self: ...
        def rechunk(self) -> Self: ...
        def remove(self, *predicates: Any, **constraints: Any) -> Self: ...
        def reverse(self) -> Self: ...
        def sample(self, n: Any = None, **options: Any) -> Self: ...
        def slice(self, offset: int, length: int | None = None) -> Self: ...
        def tail(self, n: int = 5) -> Self: ...
        def top_k(self, k: int, **options: Any) -> Self: ...
        def bottom_k(self, k: int, **options: Any) -> Self: ...
        def unique(self, subset: Any = None, **options: Any) -> Self: ...
        @overload
        def join(
            self, other: pl.DataFrame, on: Any = None, *, how: Literal["semi", "anti"], **options: Any
        ) -> Self: ...
        @overload
        def join(
            self, other: pl.DataFrame, on: Any = None, how: Any = "inner", **options: Any
        ) -> pl.DataFrame: ...
        def join(self, *args: Any, **options: Any) -> Any: ...

    class Agents(Frame):
        """Rows of table agents."""

    class Sessions(Frame):
        """Rows of table sessions."""

    class Conversations(Frame):
        """Rows of table conversations."""

    class Turns(Frame):
        """Rows of table turns."""

    class ToolCalls(Frame):
        """Rows of table tool_calls."""

    class ImportErrors(Frame):
        """Rows of table import_errors."""

    class Transcripts(Frame):
        """Rows of table transcripts."""

    class TurnJudgments(Frame):
        """Rows of table turn_judgments."""

    class ConversationJudgments(Frame):
        """Rows of table conversation_judgments."""

    class RubricRatings(Frame):
        """Rows of table rubric_ratings."""

    class ToolCorrectness(Frame):
        """Rows of table tool_correctness."""

    class UniversalScores(Frame):
        """Rows of table universal_scores."""

    class DomainScores(Frame):
        """Rows of table domain_scores."""

    class CompositeScores(Frame):
        """Rows of table composite_scores."""

    class Reliability(Frame):
        """Rows of table reliability."""

    class ErrorRates(Frame):
        """Rows of table error_rates."""

    class QualitySummary(Frame):
        """Rows of table quality_summary."""

    class ErrorClusters(Frame):
        """Rows of table error_clusters."""
else:
    from typing import TypeVar

    F = TypeVar("F")
    F_co = TypeVar("F_co", covariant=True)
    QualitySummary = pl.DataFrame
    Agents = Sessions = Conversations = Turns = ToolCalls = ImportErrors = Transcripts = pl.DataFrame
    TurnJudgments = ConversationJudgments = RubricRatings = ToolCorrectness = pl.DataFrame
    UniversalScores = DomainScores = CompositeScores = Reliability = ErrorRates = ErrorClusters = pl.DataFrame
