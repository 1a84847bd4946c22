"""Work of several streams: what is ordered, what races, and in which order it is executed."""
