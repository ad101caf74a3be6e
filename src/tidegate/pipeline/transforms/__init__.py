"""Pure functions from data frames to data frames."""
