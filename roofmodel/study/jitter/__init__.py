"""Which of many ranks is late, from which kernel on, and why: `roof jitter`."""
