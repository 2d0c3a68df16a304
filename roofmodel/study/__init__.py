"""What people ask: the streams of counting, devices and prediction put together."""
