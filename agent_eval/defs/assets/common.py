"""What every asset shares: where its rows go, what the UI says about it, how a range of partitions runs."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
import polars as pl

from agent_eval import __version__
from agent_eval.defs.checks import check_specs, checked
from agent_eval.defs.metadata import add_metadata
from agent_eval.defs.partitions import key_frame
from agent_eval.judge.llm.progress import Progress, Watch
from agent_eval.project import Project
from agent_eval.report.asset_pages.pages import asset_pages
from agent_eval.tables import table

OWNERS = ["team:evaluation"]
KINDS = {"polars", "duckdb"}
ONE_RUN = dg.BackfillPolicy.single_run()
EAGER = dg.AutomationCondition.eager()


Body = Callable[..., Any]
Quality = Callable[[Mapping[str, Any]], dg.AssetCheckResult]
Wired = Callable[[Body], dg.AssetsDefinition]


def stored(
    name: str,
    group: str,
    partitions: dg.PartitionsDefinition,
    *,
    ins: Mapping[str, dg.AssetIn] | None = None,
    deps: Sequence[dg.AssetDep | str] = (),
    pool: str | None = None,
    freshness: dg.FreshnessPolicy | None = None,
    quality: Sequence[tuple[dg.AssetCheckSpec, Quality]] = (),
) -> Wired:
    """Decorator of the asset that fills table `name`, described by the table's contract and guarded by its checks.

    `quality`: more checks that its op reports, from its inputs and its frame by name; they do not block.
    """

    def wire(body: Body) -> dg.AssetsDefinition:
        asset = dg.asset(
            name=name,
            group_name=group,
            description=described(name, inspect.getdoc(body) or ""),
            metadata=declared(name),
            partitions_def=partitions,
            ins=ins,
            deps=deps,
            kinds=KINDS,
            owners=OWNERS,
            code_version=__version__,
            backfill_policy=ONE_RUN,
            pool=pool,
            automation_condition=EAGER,
            freshness_policy=freshness,
            check_specs=[*check_specs(name), *(spec for spec, _ in quality)],
        )
        return asset(_guarded((name,), body, [check for _, check in quality]))

    return wire


def stored_together(
    op_name: str,
    names: Mapping[str, str],
    group: str,
    partitions: dg.PartitionsDefinition,
    *,
    ins: Mapping[str, dg.AssetIn] | None = None,
    deps: Sequence[dg.AssetDep | str] = (),
    pool: str | None = None,
    quality: Sequence[tuple[dg.AssetCheckSpec, Quality]] = (),
) -> Wired:
    """Decorator of the op that fills several tables at once; its body returns their frames by name.

    `names`: each table and what it is, in the order in which they are stored.
    `quality`: more checks that the op reports, from its inputs and frames by name; they warn and do not block.
    """

    def wire(body: Body) -> dg.AssetsDefinition:
        assets = dg.multi_asset(
            name=op_name,
            outs={name: _out(name, about, group) for name, about in names.items()},
            ins=ins,
            deps=deps,
            partitions_def=partitions,
            backfill_policy=ONE_RUN,
            pool=pool,
            check_specs=[
                *(spec for name in names for spec in check_specs(name)),
                *(spec for spec, _ in quality),
            ],
        )
        return assets(_guarded(tuple(names), body, [check for _, check in quality]))

    return wire


def _out(name: str, about: str, group: str) -> dg.AssetOut:
    return dg.AssetOut(
        description=described(name, about),
        metadata=declared(name),
        group_name=group,
        kinds=KINDS,
        owners=OWNERS,
        code_version=__version__,
        automation_condition=EAGER,
    )


def _guarded(names: Sequence[str], body: Body, quality: Sequence[Quality] = ()) -> Body:
    """The body as an op: its frames pass their checks on the way to the store. Inputs are those of the body."""
    parameters = list(inspect.signature(body).parameters.values())
    has_context = bool(parameters) and parameters[0].name == "context"

    def op(context: dg.AssetExecutionContext, **inputs: Any) -> Iterator[Any]:
        made = body(context, **inputs) if has_context else body(**inputs)
        frames = made if isinstance(made, Mapping) else {names[0]: made}
        partitions = key_frame(context.assets_def.partitions_def, context.partition_keys)
        for name in names:
            output = name if len(names) > 1 else "result"
            for event in checked(name, frames[name], partitions, {**inputs, **frames}, output=output):
                if isinstance(event, dg.Output):
                    _show(context, name, event.value, partitions)
                yield event
        for check in quality:
            yield check({**inputs, **frames})

    context = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=dg.AssetExecutionContext
    )
    signature = inspect.Signature([context, *parameters[has_context:]])
    op.__name__, op.__doc__ = body.__name__, body.__doc__
    op.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    vars(op)["__signature__"] = signature
    return op


def _show(context: dg.AssetExecutionContext, name: str, rows: pl.DataFrame, partitions: pl.DataFrame) -> None:
    """Row count, figures, plots and tables on the asset's page, of each partition its own."""
    shown = {}
    for page in asset_pages(name, rows, partitions):
        texts = {title: dg.MetadataValue.md(text) for title, text in page.texts.items()}
        shown["|".join(page.partition)] = {"dagster/row_count": page.n_rows, **page.figures, **texts}
    add_metadata(context, name, shown)


def ins(**mappings: dg.PartitionMapping) -> dict[str, dg.AssetIn]:
    """Inputs whose partitions are mapped; inputs of the same shape need no entry."""
    return {name: dg.AssetIn(partition_mapping=mapping) for name, mapping in mappings.items()}


def on(name: str, mapping: dg.PartitionMapping) -> dg.AssetDep:
    """A dependency whose rows are not loaded."""
    return dg.AssetDep(name, partition_mapping=mapping)


def watch_of(context: dg.AssetExecutionContext, project: Project) -> Watch:
    """Tells the run's log, and whoever watches the project, how far the judge models are."""

    def watch(progress: Progress) -> None:
        context.log.info(progress.line())
        if project.watch is not None:
            project.watch(progress)

    return watch


def described(name: str, about: str) -> str:
    """What a table's asset is, in words, then its grain and key."""
    contract = table(name)
    grain = contract.grain[0].upper() + contract.grain[1:]
    return f"{about}\n\n{grain}. Key: {', '.join(contract.key)}."


def declared(name: str) -> dict[str, Any]:
    """The columns of a table's asset, with type and meaning."""
    columns = [
        dg.TableColumn(c.name, str(c.dtype), c.meaning, dg.TableColumnConstraints(nullable=c.nullable))
        for c in table(name).columns
    ]
    return {"dagster/column_schema": dg.TableSchema(columns), "dagster/table_name": name}
