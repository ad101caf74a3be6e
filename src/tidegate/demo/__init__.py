"""`tidegate demo`: a slow worker, a flood, calls to labels and a cluster in a burst, told on the terminal."""
