"""Tables of operations of pipelines: schedules, dependencies, causes, replays with ideal times."""
