"""Benchmarks: variants interleaved in one process, percentiles and the load average printed."""
