"""The computations of the commands: estimates, sweeps, plans, profiles, comparisons, derivations, homework."""
