"""Real training of a small mixture-of-experts transformer on several CPU processes."""
