"""The web console: a page that shows a running node, and its server, a process of its own and a client of the node."""
