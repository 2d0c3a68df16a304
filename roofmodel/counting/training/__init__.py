"""A training step: backward pass, optimizer, exchanges between replicas, memory."""
