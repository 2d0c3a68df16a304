"""Where numbers come from: derivations, crossovers, conventions, other tools' counts."""
