"""Groundwater heads between two rivers, with derivatives, computed by JAX; `python simulator.py` writes a survey."""

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
STEP, THICKNESS, RECHARGE = 50.0, 20.0, 0.0005  # m, m, m/d
RIVERS = jnp.array([12.0, 10.0])  # m, heads at both ends
WELLS = np.arange(2, 60, 5)  # cells


def heads_at_wells(conductivity):
    """Heads (m) of a steady flow; conductivity (60,) in m/d."""
    between = THICKNESS / STEP * 2.0 / (1.0 / conductivity[:-1] + 1.0 / conductivity[1:])
    ends = THICKNESS / STEP * 2.0 * conductivity[jnp.array([0, -1])]
    diagonal = jnp.append(between, ends[1]) + jnp.append(ends[0], between)
    matrix = jnp.diag(diagonal) - jnp.diag(between, 1) - jnp.diag(between, -1)
    inflow = jnp.full(60, RECHARGE * STEP).at[jnp.array([0, -1])].add(ends * RIVERS)
    return jnp.linalg.solve(matrix, inflow)[WELLS]


compiled = jax.jit(jax.vmap(lambda field: (heads_at_wells(field), jax.jacrev(heads_at_wells)(field))))


def heads(conductivity):
    """Heads (B, 12) in m and their Jacobian (B, 12, 60), from conductivity (B, 60) in m/d."""
    return tuple(np.asarray(part) for part in compiled(conductivity))


if __name__ == "__main__":
    rng, x = np.random.default_rng(1), WELLS * STEP + STEP / 2
    truth = 10.0 * np.exp(0.8 * np.sin(np.arange(60) / 9.0))
    data = heads(truth[None])[0][0] + rng.normal(0.0, 0.02, len(WELLS))
    np.savetxt("sites.csv", np.column_stack([x, data]), "%.6g", ",", header="x,head", comments="")
