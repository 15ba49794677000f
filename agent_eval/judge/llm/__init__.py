"""LLM: calls to judge models: client, retries, concurrency, budget, answer cache, panels and ensembles.

litellm is imported here and nowhere else. What a prompt says belongs in `judge.prompts`.
"""
