"""Whether a measured quantity grows: a line through samples over time."""


def growth(samples, skip=0.25):
    """What (seconds, value) samples rise by over their time, by least squares over all but the
    first part, and how much of that is chance (three standard errors)."""
    samples = samples[int(len(samples) * skip):]
    nr = len(samples)
    if nr < 8:
        return 0.0, float("inf")
    mean_t = sum(t for t, _ in samples) / nr
    mean_v = sum(v for _, v in samples) / nr
    tt = sum((t - mean_t) ** 2 for t, _ in samples) or 1.0
    slope = sum((t - mean_t) * (v - mean_v) for t, v in samples) / tt
    rest = sum((v - mean_v - slope * (t - mean_t)) ** 2 for t, v in samples)
    error = (rest / (nr - 2) / tt) ** 0.5
    span = samples[-1][0] - samples[0][0]
    return slope * span, 3 * error * span
