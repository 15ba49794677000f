"""Call judge models: client, retries, concurrency, budget, answer cache, panels and ensembles.

litellm is imported in this package only. The texts of prompts are in `judge.prompts`.
"""
