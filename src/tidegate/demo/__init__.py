"""`tidegate demo`: a node with sensors, a slow worker and a flood, told as a story on the terminal."""
