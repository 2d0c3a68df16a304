"""`roof estimate --phase serve`: a service with a fixed number of requests in flight."""
