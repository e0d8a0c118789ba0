"""A problem as a latent Gaussian model: prior, noise, grid modes, localisation, learnt hyperparameters."""
