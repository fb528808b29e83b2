"""Medians and spreads of rounds."""

import statistics


def summary(values: list[float]) -> dict:
    """Median and quartiles. Quartiles of a few rounds are interpolated, inside the range measured."""
    if len(values) == 1:
        return {"median": values[0], "q1": values[0], "q3": values[0], "rounds": 1}
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "q1": q1, "q3": q3, "rounds": len(values)}


def rounded(value, digits: int = 4):
    """Every float of a JSON value to so many significant digits: more would only pretend."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {k: rounded(v, digits) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v, digits) for v in value]
    return value
