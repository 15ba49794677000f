"""Judge conversations by rules, recorded verdicts and judge models.

The package `metrics` defines the metrics. Only `judge.llm` imports litellm. This package does not access the store:
it takes and returns data frames and small frozen objects.
"""
