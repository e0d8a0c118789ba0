"""GPyTorch's side of `peers.py`: runs in an environment of its own, times one evaluation for each line read."""

import json
import os
import sys
import time

import gpytorch
import numpy as np
import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(int(os.environ.get("OPENBLAS_NUM_THREADS", torch.get_num_threads())))


class Logistic(gpytorch.likelihoods.likelihood._OneDimensionalLikelihood):
    """Labels 0 and 1, with GPyTorch's quadrature of 20 points."""

    def forward(self, function_samples, *args, **kwargs):
        return torch.distributions.Bernoulli(logits=function_samples)


class Model(gpytorch.models.ApproximateGP):
    """SVGP, whitened, full covariance."""

    def __init__(self, Z, length_scale, learn_inducing):
        q = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
        strategy = gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=learn_inducing)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=Z.shape[1]))
        self.covar_module.outputscale = 1.0
        self.covar_module.base_kernel.lengthscale = length_scale

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def evaluation(files):
    """One bound and gradient of the chosen parameters, as a function of the choice."""
    X, Z, labels = (torch.as_tensor(np.load(files[name])) for name in ("X", "Z", "labels"))
    model, likelihood = Model(Z.clone(), files["length_scale"], len(Z) < len(X)), Logistic()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    everything = list(model.parameters())
    chosen = {"posterior": list(model.variational_strategy._variational_distribution.parameters()), "all": everything}
    model.train()
    model(X)  # the first call sets the posterior to the prior, once

    def evaluate(learnt):
        for parameter in everything:
            parameter.requires_grad_(any(parameter is c for c in chosen[learnt]))
        # Nothing is kept from an earlier evaluation, as after a step of an optimiser.
        model.variational_strategy._clear_cache()
        value = bound(model(X), labels) * len(X)
        torch.autograd.grad(value, chosen[learnt])
        return value.item()

    return evaluate


def main():
    """Tell the versions, then time evaluations, of one of two sets of variables at a time."""
    evaluate = evaluation(json.loads(sys.argv[1]))
    print(json.dumps({"gpytorch": gpytorch.__version__, "torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        bound = evaluate(line.strip())
        print(json.dumps({"seconds": time.perf_counter() - start, "bound": bound}), flush=True)


if __name__ == "__main__":
    main()
