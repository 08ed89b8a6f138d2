"""Sailor: which GPUs to use for a training job, how to split it over them, what it costs.

The modules of this folder are a library. They import nothing of the platform and can be used in a
notebook; start with `problem.Problem`, `plan.Plan`, `simulator.simulate` and `planner.search`.
"""
