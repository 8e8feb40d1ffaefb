"""Prints what SciPy and statsmodels say of races of random scores, as JSON."""

import json
import math
import random

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

r = random.Random(11)


def spent(alpha, spending, share):
    """The alpha that may be spent up to a share of the looks (Lan and DeMets 1983)."""
    if spending == "pocock":
        return alpha * math.log(1 + (math.e - 1) * share)
    return 2 * stats.norm.sf(stats.norm.isf(alpha / 2) / math.sqrt(share))


def p_value(test, best, other):
    d = np.round(np.subtract(best, other), 9)
    d = d[d != 0]
    if len(d) == 0:
        return 1.0
    if test == "mcnemar":
        return min(1, 2 * stats.binomtest(int((d > 0).sum()), len(d), alternative="greater").pvalue)
    return min(1, 2 * stats.wilcoxon(d, alternative="greater", correction=False, method="exact").pvalue)


def races():
    for test, spending, alpha, variants, tasks in [
        ("mcnemar", "pocock", 0.05, 3, 40), ("mcnemar", "obrien_fleming", 0.4, 5, 60),
        ("wilcoxon", "pocock", 0.2, 4, 30), ("wilcoxon", "obrien_fleming", 0.3, 2, 45),
    ]:
        good = [r.random() for _ in range(variants)]
        if test == "mcnemar":
            scores = [[float(r.random() < g) for _ in range(tasks)] for g in good]
        else:
            scores = [[g / 3 + r.random() for _ in range(tasks)] for g in good]
        best = max(range(variants), key=lambda v: np.mean(scores[v]))
        p = [None if v == best else p_value(test, scores[best], scores[v]) for v in range(variants)]
        pairs = [x for x in p if x is not None]
        pairs += [1.0] * (variants * (variants - 1) // 2 - len(pairs))
        holm = iter(multipletests(pairs, method="holm")[1])
        adjusted = [None if x is None else float(next(holm)) for x in p]
        level = spent(alpha, spending, 3 / 8) - spent(alpha, spending, 2 / 8)
        yield {"test": test, "spending": spending, "alpha": alpha, "scores": scores, "best": best, "p": p,
               "adjusted": adjusted, "level": level,
               "pruned": [v for v in range(variants) if adjusted[v] is not None and adjusted[v] <= level]}


print(json.dumps(list(races()), default=float))
