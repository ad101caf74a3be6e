"""What the pipeline costs."""
