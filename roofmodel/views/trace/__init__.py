"""Output of `roof trace`: tables, JSON, CSV and pictures of where a run's time goes."""
