"""One HTML page with interactive plots, self-contained, and a Markdown summary of a run."""
