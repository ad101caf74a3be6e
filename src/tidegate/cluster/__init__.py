"""Nodes that work as one: heads route, edges serve subscribers, links join them."""

from tidegate.cluster.settings import ClusterSettings, Role

__all__ = ["ClusterSettings", "Role"]
