"""How likely a window sees more requests than the broker can take: the overload probability of spec 3 (b).

Many independent loops with a mean timeout τ give Poisson arrivals of rate m/τ. The paper states the probability of
exactly N_t arrivals; what overloads is N_t or more, the tail (ambiguity 11). A back-off lengthens the mean timeout.
"""

from __future__ import annotations

from math import exp, lgamma, log


def arrivals(m: float, tau: float, window: float = 1.0, backoff: float = 0.0) -> float:
    """Mean number of requests in a window: `m` loops, mean timeout `tau` plus mean back-off, in seconds."""
    if m < 0.0 or tau <= 0.0 or window <= 0.0 or backoff < 0.0:
        raise ValueError("m and backoff must not be negative, tau and window positive")
    return m * window / (tau + backoff)


def point(n: int, mean: float) -> float:
    """Pr{N = n} of a Poisson number; in log space, so that neither power nor factorial overflows."""
    if mean == 0.0:
        return 1.0 if n == 0 else 0.0
    return exp(n * log(mean) - mean - lgamma(n + 1.0))


def tail(n: int, mean: float) -> float:
    """Pr{N ≥ n}, summed on the side of `n` that is the smaller one. Cost grows with the root of the mean."""
    if n <= 0:
        return 1.0
    if mean == 0.0:
        return 0.0
    if n <= mean:
        term = point(n - 1, mean)
        total, k = 0.0, n - 1
        while term > total * 1e-17 and k >= 0:
            total += term
            term *= k / mean
            k -= 1
        return max(0.0, 1.0 - total)
    term = point(n, mean)
    total, k = 0.0, n
    while term > total * 1e-17:
        total += term
        k += 1
        term *= mean / k
    return min(1.0, total)
