"""Paper 5: dynamic load balancing for shared subscriptions (Todoroki, Hiroshima University)."""
