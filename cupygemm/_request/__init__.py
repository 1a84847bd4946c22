"""From the arguments of a call to its request: arrays, keywords, types and layout."""
