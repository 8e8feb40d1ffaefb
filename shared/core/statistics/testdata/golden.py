"""Prints what SciPy, statsmodels and Inspect compute of random data, as JSON."""

import json
import math
import random

import numpy as np
from inspect_ai.scorer import (Score, SampleScore, at_least, ci, max_score, mean_score, median_score, mode_score,
                               pass_at, pass_k, stderr)
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

r = random.Random(20)


def number(x):
    """A number for JSON; null is not a number."""
    return None if math.isnan(x) else float(x)


def mcnemars():
    for up, down in [(30, 12), (12, 30), (0, 0), (1, 0), (5, 5), (60, 40), (200, 140), (1000, 900)]:
        yield {"up": up, "down": down, "p": mcnemar([[7, up], [down, 9]], exact=True).pvalue}


def wilcoxons():
    for n, tied in [(4, False), (9, False), (17, False), (50, False), (51, True), (80, True), (200, True)]:
        d = [round(r.gauss(0.2, 1), 1 if tied else 12) for _ in range(n)]
        if tied:  # beyond 50 differences that are not 0
            d = [x for x in d if x] + [0.0, 0.0] + [0.3] * 60
        p = {a: stats.wilcoxon([x for x in d if x], alternative=a, correction=False,
                               method="approx" if tied else "exact").pvalue
             for a in ("greater", "less", "two-sided")}
        yield {"differences": d, "greater": p["greater"], "less": p["less"], "both": p["two-sided"]}


def paired():
    for n in (2, 3, 10, 60):
        first = [round(r.random(), 3) for _ in range(n)]
        second = [round(min(1, x + r.gauss(0.1, 0.2)), 3) for x in first]
        test = stats.ttest_rel(second, first)
        interval = test.confidence_interval(0.95)
        deviation = np.std(np.subtract(second, first), ddof=1)
        yield {"first": first, "second": second, "mean": np.mean(np.subtract(second, first)), "p": test.pvalue,
               "low": interval.low, "high": interval.high,
               # what the exact power of the test says of a difference of that size
               "detectable_of_power": TTestPower().solve_power(nobs=n, alpha=0.05, power=0.8) * deviation
               if n > 3 else None}


def means():
    for n, groups in [(8, 8), (40, 5), (100, 30), (12, 2)]:
        values = [round(r.random(), 3) for _ in range(n)]
        names = [f"g{i if n == groups else r.randrange(groups)}" for i in range(n)]
        scores = [SampleScore(score=Score(value=v), sample_metadata={"group": g}) for v, g in zip(values, names)]
        interval = ci(level=0.9, cluster="group")(scores)
        yield {"values": values, "groups": names, "error": stderr(cluster="group")(scores),
               "low": interval["lower"], "high": interval["upper"]}


def reductions():
    reducers = {"mean": mean_score(), "median": median_score(), "max": max_score(), "mode": mode_score()}
    for k in (1, 2, 3, 7):
        reducers |= {f"at_least_{k}": at_least(k), f"pass_at_{k}": pass_at(k), f"pass_all_{k}": pass_k(k)}
    for values in ([1, 0, 0, 1, 1], [0, 0, 0], [1], [0.5, 0.25, 0.5, 1, 0], [1, 1, 1, 1, 1, 1, 1, 0]):
        yield {"scores": values, "reduced": {name: number(reduce([Score(value=float(v)) for v in values]).as_float())
                                             for name, reduce in reducers.items()}}


def holms():
    for n in (1, 4, 9):
        p = [round(r.random() ** 3, 6) for _ in range(n)]
        yield {"p": p, "adjusted": list(multipletests(p, method="holm")[1])}


def bootstraps():
    for n in (30, 200):
        values = [round(r.random() ** 2, 3) for _ in range(n)]
        interval = stats.bootstrap((values,), np.mean, n_resamples=20_000, confidence_level=0.9, method="percentile",
                                   rng=np.random.default_rng(1)).confidence_interval
        yield {"values": values, "low": interval.low, "high": interval.high}


print(json.dumps({f.__name__: list(f()) for f in (mcnemars, wilcoxons, paired, means, reductions, holms, bootstraps)},
                 default=float))
