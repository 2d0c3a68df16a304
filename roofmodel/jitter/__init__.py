"""Which of many ranks is late, and why."""
