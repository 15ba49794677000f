"""Call judge models: client, retries, concurrency, budget, answer cache, panels and ensembles.

Only this package imports litellm. The package `judge.prompts` builds the prompts.
"""
