"""A problem as a latent Gaussian model: priors, noise, grid modes, learned hyperparameters."""
