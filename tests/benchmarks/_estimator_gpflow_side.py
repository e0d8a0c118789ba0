"""The other side of `estimator.py`: runs in an environment of its own, fits one row with GPflow and prints a line.

Likelihoods that GPflow does not have are written here as its user would write them: the density in TensorFlow, and the
quadrature or the closed form of the expected log density from GPflow's base classes.
"""

import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

# Steps of Adam: where the likelihood draws samples, so that L-BFGS does not converge; and before L-BFGS where L-BFGS
# alone ends at a poor optimum.
STEPS = {"softmax": 2000, "heteroscedastic": 1000}
DRAWS = 100  # estimates of a noisy bound that are averaged
NODES = (200, 100, 50, 20)  # of the quadrature of the final bound: the first for which it is finite
LOG_TWO_PI = np.log(2.0 * np.pi)


class ZeroInflated(gpflow.likelihoods.ScalarLikelihood):
    """Counts with the mean exp(f), or 0 with a probability that is learnt."""

    def __init__(self):
        super().__init__()
        self.logit = gpflow.Parameter(-1.0)

    def _scalar_log_prob(self, X, F, Y):
        poisson = Y * F - tf.exp(F) - tf.math.lgamma(Y + 1.0)
        here, elsewhere = tf.math.log_sigmoid(self.logit), tf.math.log_sigmoid(-self.logit)
        zero = tf.reduce_logsumexp(tf.stack([here + tf.zeros_like(poisson), elsewhere + poisson]), axis=0)
        return tf.where(Y > 0, elsewhere + poisson, zero)

    def _conditional_mean(self, X, F):
        raise NotImplementedError

    _conditional_variance = _conditional_mean


class OrderedLogit(gpflow.likelihoods.ScalarLikelihood):
    """Classes with an order, whose cuts are learnt; GPflow's own has fixed ones and the probit function."""

    def __init__(self, classes):
        super().__init__()
        shares = np.arange(1, classes) / classes
        cuts = np.log(shares / (1.0 - shares))
        self.first, self.log_gaps = gpflow.Parameter(cuts[0]), gpflow.Parameter(np.log(np.diff(cuts)))

    def _scalar_log_prob(self, X, F, Y):
        cuts = self.first + tf.concat([[0.0], tf.cumsum(tf.exp(self.log_gaps))], axis=0)
        number, last = tf.cast(Y, tf.int32), tf.shape(cuts)[0]
        upper = tf.gather(cuts, tf.minimum(number, last - 1)) - F
        lower = tf.gather(cuts, tf.maximum(number - 1, 0)) - F
        inner = tf.math.log(-tf.math.expm1(tf.where((number == 0) | (number == last), -1.0 + 0.0 * F, lower - upper)))
        ends = tf.where(number == last, 0.0 * F, tf.math.log_sigmoid(upper))
        starts = tf.where(number == 0, 0.0 * F, tf.math.log_sigmoid(-lower))
        return ends + starts + tf.where((number == 0) | (number == last), 0.0 * F, inner)

    _conditional_mean = _conditional_variance = ZeroInflated._conditional_mean


class Squares(gpflow.likelihoods.ScalarLikelihood):
    """Observations of f^2 with Gaussian noise, whose standard deviation is learnt from 1.0."""

    def __init__(self):
        super().__init__()
        self.log_std = gpflow.Parameter(0.0)

    def _scalar_log_prob(self, X, F, Y):
        return -0.5 * ((Y - F**2) * tf.exp(-self.log_std)) ** 2 - self.log_std - 0.5 * LOG_TWO_PI

    _conditional_mean = _conditional_variance = ZeroInflated._conditional_mean


class Network(gpflow.likelihoods.Likelihood):
    """Two outputs, each the product of a weight and of one node, with Gaussian noise; closed form."""

    def __init__(self):
        super().__init__(input_dim=None, latent_dim=3, observation_dim=2)
        self.log_std = gpflow.Parameter(np.log(0.3))

    def _log_prob(self, X, F, Y):
        residual = (Y - F[..., :2] * F[..., 2:]) * tf.exp(-self.log_std)
        return tf.reduce_sum(-0.5 * residual**2 - self.log_std - 0.5 * LOG_TWO_PI, axis=-1)

    def _variational_expectations(self, X, Fmu, Fvar, Y):
        w, v, g, u = Fmu[:, :2], Fvar[:, :2], Fmu[:, 2:], Fvar[:, 2:]
        squares = (Y - w * g) ** 2 + w**2 * u + v * (g**2 + u)
        return tf.reduce_sum(-0.5 * squares * tf.exp(-2.0 * self.log_std) - self.log_std - 0.5 * LOG_TWO_PI, axis=-1)

    def _predict_mean_and_var(self, X, Fmu, Fvar):
        raise NotImplementedError

    def _predict_log_density(self, X, Fmu, Fvar, Y):
        normals = tf.random.stateless_normal((4096, *Fmu.shape), (0, 1), dtype=Fmu.dtype)
        densities = self._log_prob(X, Fmu + tf.sqrt(Fvar) * normals, Y)
        return tf.reduce_logsumexp(densities, axis=0) - np.log(4096.0)


def likelihood_of(name, latents):
    """The likelihood with the initial values of the other side."""
    return {
        "gaussian": lambda: gpflow.likelihoods.Gaussian(0.7**2),
        "bernoulli": lambda: gpflow.likelihoods.Bernoulli(invlink=tf.math.sigmoid),
        "poisson": gpflow.likelihoods.Poisson,
        "student": lambda: gpflow.likelihoods.StudentT(scale=0.3, df=3.0),
        "heteroscedastic": lambda: gpflow.likelihoods.HeteroskedasticTFPConditional(
            tfp.distributions.Normal, tfp.bijectors.Exp()
        ),
        "softmax": lambda: gpflow.likelihoods.Softmax(latents),
        "zero-inflated": ZeroInflated,
        "ordinal": lambda: OrderedLogit(4),
        "squares": Squares,
        "network": Network,
    }[name]()


def model_of(task, files, y):
    """SVGP, whitened, with full covariances; also its kernels."""
    likelihood, latents, scale = likelihood_of(task["likelihood"], task["latents"]), task["latents"], files["scale"]
    Z = gpflow.inducing_variables.InducingPoints(files["Z"])
    kernels = [gpflow.kernels.SquaredExponential(lengthscales=scale) for _ in range(latents)]
    kernel = kernels[0]
    if latents > 1:
        kernel = gpflow.kernels.SeparateIndependent(kernels)
        Z = gpflow.inducing_variables.SharedIndependentInducingVariables(Z)
    model = gpflow.models.SVGP(kernel, likelihood, Z, num_latent_gps=latents, whiten=True, num_data=len(y))
    gpflow.set_trainable(model.inducing_variable, False)
    if task["random_start"]:  # the initial mean, 0, is a saddle point of likelihoods that are even or of products
        model.q_mu.assign(np.random.default_rng(0).standard_normal(model.q_mu.shape))
    return model, kernels


def log_hyperprior(kernels, scale, factor):
    """Log-normal priors of all parameters of the kernels around their initial values, as on the other side."""
    if not factor:
        return 0.0
    logs = [tf.math.log(part) for kernel in kernels for part in (kernel.lengthscales / scale, kernel.variance)]
    return -0.5 * tf.add_n([tf.reduce_sum(part**2) for part in logs]) / np.log(factor) ** 2


def optimise(model, loss, adam_steps, noisy):
    """Adam for some steps, then L-BFGS unless the loss has noise; return the processor time."""
    start = time.process_time()
    optimiser = tf.optimizers.Adam(0.02)

    @tf.function
    def adam():
        with tf.GradientTape() as tape:
            value = loss()
        gradients = tape.gradient(value, model.trainable_variables)
        optimiser.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for _ in range(adam_steps):
        adam()
    if not noisy:
        gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options={"maxiter": 2000})
    return time.process_time() - start


def estimate_bounds(model, data, count):
    """Bounds of a fitted model, which differ only if the likelihood draws samples."""
    bound = tf.function(lambda: model.elbo(data))
    return [bound() for _ in range(count)]


def main():
    """Fit, and print bound, held-out log density and seconds."""
    task = json.loads(sys.argv[1])
    files = np.load(task["file"])
    noisy = task["likelihood"] == "softmax"
    kind = np.int64 if noisy else float
    y, y_new = (files[name].astype(kind).reshape(len(files[name]), -1) for name in ("y", "y_new"))
    X, X_new = files["X"], files["X_new"]
    model, kernels = model_of(task, files, y)
    data = (tf.constant(X), tf.constant(y))

    def loss():
        return -model.elbo(data) - log_hyperprior(kernels, files["scale"], task["factor"])

    spent = optimise(model, loss, STEPS.get(task["likelihood"], 0), noisy)
    values = []
    for nodes in NODES:
        if isinstance(model.likelihood, gpflow.likelihoods.ScalarLikelihood):
            model.likelihood.quadrature = gpflow.quadrature.NDiagGHQuadrature(1, nodes)
        values = [float(value) for value in estimate_bounds(model, data, DRAWS if noisy else 1)]
        if np.isfinite(values).all():
            break
    density = model.predict_log_density((X_new, y_new))
    if noisy:
        density = tf.reduce_logsumexp([model.predict_log_density((X_new, y_new)) for _ in range(20)], axis=0) - np.log(
            20
        )
    outcome = {
        "bound": float(np.mean(values)),
        "error": float(np.std(values) / np.sqrt(len(values))),
        "density": float(np.mean(density)),
        "seconds": spent,
        "versions": {"gpflow": gpflow.__version__, "tensorflow": tf.__version__},
    }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
