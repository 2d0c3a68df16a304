"""Problem sheets with parameters per student, and the check of answers."""
