"""Running calls: where they go, their retries and deadlines; workflows and their executors."""
