"""The other side of `estimator.py`: runs in an environment of its own, fits one row with GPflow and prints a line."""

import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import gpflow
import numpy as np
import tensorflow as tf

ADAM_STEPS = 2000  # where the likelihood draws samples, so that L-BFGS does not converge
DRAWS = 100  # estimates of a noisy bound that are averaged


def likelihood_of(name, latents):
    """The likelihood with the initial values of the other side."""
    if name == "gaussian":
        return gpflow.likelihoods.Gaussian(0.7**2)
    if name == "bernoulli":
        return gpflow.likelihoods.Bernoulli(invlink=tf.math.sigmoid)
    if name == "poisson":
        return gpflow.likelihoods.Poisson()
    if name == "student":
        return gpflow.likelihoods.StudentT(scale=0.3, df=3.0)
    if name == "heteroscedastic":
        return gpflow.likelihoods.HeteroskedasticTFPConditional()
    return gpflow.likelihoods.Softmax(latents)


def model_of(task, files, y):
    """SVGP, whitened, with full covariances."""
    likelihood, latents, scale = likelihood_of(task["likelihood"], task["latents"]), task["latents"], files["scale"]
    Z = gpflow.inducing_variables.InducingPoints(files["Z"])
    kernel = gpflow.kernels.SquaredExponential(lengthscales=scale)
    if latents > 1:
        kernels = [gpflow.kernels.SquaredExponential(lengthscales=scale) for _ in range(latents)]
        kernel = gpflow.kernels.SeparateIndependent(kernels)
        Z = gpflow.inducing_variables.SharedIndependentInducingVariables(Z)
    model = gpflow.models.SVGP(kernel, likelihood, Z, num_latent_gps=latents, whiten=True, num_data=len(y))
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def main():
    """Fit, and print bound, held-out log density and seconds."""
    task = json.loads(sys.argv[1])
    files = np.load(task["file"])
    y, y_new = (files[name].astype(float).reshape(len(files[name]), -1) for name in ("y", "y_new"))
    X, X_new = files["X"], files["X_new"]
    model = model_of(task, files, y)
    data = (tf.constant(X), tf.constant(y))
    loss = model.training_loss_closure(data)
    noisy = task["likelihood"] == "softmax"
    start = time.process_time()
    if noisy:
        optimiser = tf.optimizers.Adam(0.02)

        @tf.function
        def adam():
            with tf.GradientTape() as tape:
                value = loss()
            gradients = tape.gradient(value, model.trainable_variables)
            optimiser.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        for _ in range(ADAM_STEPS):
            adam()
    else:
        gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options={"maxiter": 2000})
    spent = time.process_time() - start
    compiled = tf.function(loss)
    values = [-float(compiled()) for _ in range(DRAWS if noisy else 1)]
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
    }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
