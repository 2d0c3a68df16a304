"""Where the time of a run goes: `roof trace`."""
