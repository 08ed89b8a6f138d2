"""Real processes, real signals: what happens to runs when things die."""
