"""Files and their names: reading of text with limits, writing of output, names in messages."""
