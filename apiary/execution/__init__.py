"""Running workflow code: operations, retries, leases, queues, timers, schedules, executors."""
