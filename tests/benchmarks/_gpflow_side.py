"""The other side of `against_gpflow.py`: runs in an environment of its own, times one evaluation for each line read."""

import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import gpflow
import numpy as np
import tensorflow as tf


def model(files):
    """SVGP, whitened, full covariance; where the inducing inputs are the sites, VGP."""
    X, Z, labels = (np.load(files[name]) for name in ("X", "Z", "labels"))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], files["length_scale"]))
    likelihood = gpflow.likelihoods.Bernoulli(invlink=tf.math.sigmoid)
    y = labels[:, None]
    if len(Z) == len(X):
        vgp = gpflow.models.VGP((X, y), kernel, likelihood)
        return vgp, vgp.training_loss
    svgp = gpflow.models.SVGP(kernel, likelihood, Z, q_diag=False, whiten=True, num_data=len(X))
    batch = (tf.constant(X), tf.constant(y))
    return svgp, lambda: svgp.training_loss(batch)


def main():
    """Tell the versions, then time the compiled bound and gradient of one of two sets of variables at a time."""
    files = json.loads(sys.argv[1])
    gp, loss = model(files)
    variables = {
        "posterior": (gp.q_mu.unconstrained_variable, gp.q_sqrt.unconstrained_variable),
        "all": gp.trainable_variables,
    }

    def compile_evaluation(chosen):
        @tf.function
        def evaluate():
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(chosen)
                value = loss()
            return value, tape.gradient(value, chosen)

        return evaluate

    functions = {name: compile_evaluation(chosen) for name, chosen in variables.items()}
    print(json.dumps({"gpflow": gpflow.__version__, "tensorflow": tf.__version__}), flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        value, gradients = functions[line.strip()]()
        bound = -float(value)
        [np.asarray(g) if not isinstance(g, tf.IndexedSlices) else g for g in gradients]
        print(json.dumps({"seconds": time.perf_counter() - start, "bound": bound}), flush=True)


if __name__ == "__main__":
    main()
