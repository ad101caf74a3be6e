"""The `tidegate` command: one thin module per command, heavy imports inside the command."""
