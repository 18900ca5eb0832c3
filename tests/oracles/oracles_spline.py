"""Slow second form of the spline posterior of borrowed values: explicit matrices, scipy's optimiser, sorted quantiles.

On the unit scale, straight from the equations of `cje_core.formulas.borrowed`, one target policy or a pair of them.
"""

import numpy as np
from scipy import optimize, special
from scipy.stats import qmc, rankdata, t


def points():
    """Normals of the curve, of responses and of excess noise, and uniforms of the grid, from SciPy's Sobol set."""
    inside = np.clip(qmc.Sobol(28, seed=7).random(512), 1e-6, 1 - 1e-6)
    normal = special.ndtri(inside)
    return normal[:, :20], normal[:, 22], normal[:, 26], inside[:, 27]


def interpolation(x, node):
    """Matrix of linear interpolation between nodes, by interpolating each unit vector."""
    return np.stack([np.interp(x, node, unit) for unit in np.eye(len(node))], axis=1)


class Posterior:
    """Posterior of the curve through labels, by optimisation of the log posterior over the coefficients."""

    def __init__(self, score, y, center, spread):
        m, ordered = len(y), np.sort(score)
        chosen = ordered if len(set(ordered)) <= 16 else ordered[[round((m - 1) * k / 15) for k in range(16)]]
        self.node = np.unique([0.0, 1.0, *chosen])
        self.z = (self.node - center) / spread
        d = np.abs(self.z[:, None] - self.z[None])
        matern = (1 + np.sqrt(3) * d / 1.5) * np.exp(-np.sqrt(3) * d / 1.5) + 1e-6 * np.eye(len(d))
        basis = np.hstack([np.ones((len(d), 1)), self.z[:, None], np.linalg.cholesky(matern)])
        rows, mu = interpolation(score, self.node), special.logit((y.sum() + 0.5) / (m + 1))
        binary = set(y) <= {0.0, 1.0}

        def mode(slope, bend, phi):
            prior = np.r_[1 / 2.5**2, 1 / slope**2, np.full(len(d), 1 / bend**2)]

            def fall(theta):
                f = special.expit(mu + basis @ theta)
                p = rows @ f
                value = -(special.xlogy(y, p) + special.xlogy(1 - y, 1 - p)).sum() / phi
                slope_of_p = rows @ ((f * (1 - f))[:, None] * basis)
                gradient = -slope_of_p.T @ ((y - p) / (p * (1 - p))) / phi
                return value + 0.5 * prior @ theta**2, gradient + prior * theta

            theta = optimize.minimize(
                fall,
                np.zeros(basis.shape[1]),
                jac=True,
                method="BFGS",
                options={"gtol": 1e-9, "maxiter": 2000},
            ).x
            f = special.expit(mu + basis @ theta)
            p = rows @ f
            jacobian = rows @ np.diag(f * (1 - f)) @ basis
            information = jacobian.T @ np.diag(1 / (phi * p * (1 - p))) @ jacobian + np.diag(prior)
            log_weight = -fall(theta)[0] + 0.5 * np.log(prior).sum() - 0.5 * np.linalg.slogdet(information)[1]
            return theta, f, p, jacobian, information, prior, log_weight

        phi = 1.0
        if not binary:
            at = special.expit(mu)
            phi = 0.5 * np.mean((y - at) ** 2) / (at * (1 - at)) + 1e-4
            for _ in range(3):
                *_, p, _, information, prior, _ = mode(1.5, 0.5, phi)
                spent = len(prior) - np.trace(np.diag(prior) @ np.linalg.inv(information))
                phi = (np.sum((y - p) ** 2 / (p * (1 - p))) + 0.1) / (max(m - spent, 1) + 1)
        fits = [mode(slope, bend, phi) for slope in (1.2, 4.0) for bend in (0.1, 0.3, 1.0)]
        weight = special.softmax([fit[-1] for fit in fits])
        normal, self.of_responses, self.of_excess, uniform = points()
        self.draw = np.empty((512, len(self.node)))
        for k, u in enumerate(uniform):
            theta, *_, information, _, _ = fits[min(int((np.cumsum(weight) < u).sum()), 5)]
            root = np.linalg.inv(np.linalg.cholesky(information)).T
            self.draw[k] = special.expit(mu + basis @ (theta + root @ normal[k, : len(theta)]))
        rank = (rankdata(score) - rankdata(score).mean()) / rankdata(score).std()
        on_nodes = rows.sum(axis=0) / m  # the spread of f between labels is taken at the nodes
        mean, square = self.draw @ on_nodes, self.draw**2 @ on_nodes
        rho = (
            self.draw
            @ rows.T
            @ rank
            / m
            / np.sqrt(np.maximum(square - mean**2, 0) + phi * (mean - square) + 1e-12)
        )
        rho = np.clip(rho, -0.98, 0.98)
        passes = special.ndtr(rho * np.sqrt((m - 2) / (1 - rho**2)) - t.ppf(0.95, m - 2))
        self.weight = 1 / np.maximum(passes, 0.1) / np.sum(1 / np.maximum(passes, 0.1))
        self.gain = sum(
            w
            * np.diag(f * (1 - f))
            @ basis
            @ np.linalg.inv(information)
            @ jacobian.T
            @ np.diag(1 / (phi * p * (1 - p)))
            for w, (_, f, p, jacobian, information, _, _) in zip(weight, fits, strict=True)
        )
        self.rows, self.m, self.binary = rows, m, binary
        fitted = rows @ self.draw.mean(axis=0)
        lever = np.diag(rows @ self.gain)
        self.rest, self.variance = y - fitted, phi * fitted * (1 - fitted)
        self.square = (self.rest / (1 - np.clip(lever, 1 / m, 0.9))) ** 2
        self.cap = max(m - 1 - lever.sum(), 3)

    def value(self, scores):
        """Draws, draws of what the one-step leaves, c, c~, shift, and f at the scores."""
        g = interpolation(scores, self.node).mean(axis=0)
        z = self.rows @ self.z
        a = 0.5 * (1 / self.m + (g @ self.z - z.mean()) * (z - z.mean()) / ((z - z.mean()) ** 2).sum())
        rest = g - self.rows.T @ a
        fitted = rest @ self.gain
        responses = interpolation(scores, self.node) @ (self.weight @ self.draw)
        return self.draw @ g, self.draw @ rest, a + fitted, fitted, a @ self.rest, responses

    def limits(self, scores, prob, other=None):
        """Value and limits for responses with these scores; of the difference to `other` responses, if given."""
        parts = self.value(scores)
        if other is not None:
            parts = tuple(x - y for x, y in zip(parts, self.value(other), strict=True))
        draw, rest, c, fitted, shift, responses = parts
        response_variance = responses.var(ddof=1) / len(responses)
        nu, nu0 = (c**2).sum() ** 2 / (c**4).sum() - 1, 8 if self.binary else 3
        labels = (nu * (c**2 @ self.square) + nu0 * (c**2 @ self.variance)) / (nu + nu0)
        labels = max(labels, c**2 @ self.variance / 2)
        total = labels + 2 * max(rest.var() - fitted**2 @ self.variance, 0)
        df = min(min(nu + nu0, self.cap) / max((labels / total) ** 2, 1e-3), 400)
        center = self.weight @ draw
        tail = (1 - prob) / 2
        stretch = t.ppf(1 - tail, df) / special.ndtri(1 - tail) * np.sqrt(total / draw.var())
        x = stretch * (draw - center) + np.sqrt(response_variance) * self.of_responses
        ordered = sorted(zip(x, self.weight, strict=True))
        middle = np.cumsum([w for _, w in ordered]) - 0.5 * np.array([w for _, w in ordered])
        low, high = np.interp([tail, 1 - tail], middle, [v for v, _ in ordered])
        return center + shift, center + shift + low, center + shift + high
