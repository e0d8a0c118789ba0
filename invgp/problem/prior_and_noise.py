"""Latents with their Gaussian process priors, and the noise of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from invgp.core.kernels import Kernel, Mapped, Scalar, averages_of, interpolate, scale_by_map
from invgp.errors import ConfigError
from invgp.links import LINKS, Link
from invgp.problem.survey import Floats, Labels


@dataclass(frozen=True)
class PriorMap:
    """Mean and standard deviation of the processes of a latent on a grid, interpolated linearly along each axis.

    Parameters
    ----------
    axes : tuple of array, shape (n_d,)
        Increasing coordinates of the nodes, in the units of the coordinates.
    dimensions : tuple of int
        Number of the coordinate of each axis, from 0.
    mean : array, shape (L, n_1, ..., n_D)
        Prior mean of the processes; NaN where the maps have no value.
    scale : array, shape (L, n_1, ..., n_D), or None
        Prior standard deviation over the nominal one, finite everywhere; None if it is 1.
    """

    axes: tuple[Floats, ...]
    dimensions: tuple[int, ...]
    mean: Floats
    scale: Floats | None = None

    def mean_at(self, X: Floats, coordinates: int) -> Floats:
        """Return the prior mean (N, L) of the processes; NaN outside the map.

        Parameters
        ----------
        X : array, shape (N, D) or (N, 2 D)
            Points, or points with the half-widths of the intervals over which is averaged.
        coordinates : int
            Number of coordinates, D.
        """
        average = averages_of(X, coordinates) if X.shape[1] > coordinates else None
        if average is not None:
            return np.asarray(average.reduce(self.mean_at(average.points, coordinates)))
        own = X[:, list(self.dimensions)]
        found = interpolate(self.axes, self.mean, own)[0].T
        inside = [(x >= axis[0]) & (x <= axis[-1]) for x, axis in zip(own.T, self.axes, strict=True)]
        return np.where(np.logical_and.reduce(inside)[:, None], found, np.nan)

    def scale_at(self, X: Floats) -> Floats:
        """Return the prior standard deviation (N, L) over the nominal one at points X (N, D or more).

        Parameters
        ----------
        X : array, shape (N, D)
            Points, in the units of the coordinates.

        Returns
        -------
        array, shape (N, L)
        """
        if self.scale is None:
            return np.ones((len(X), len(self.mean)))
        return interpolate(self.axes, self.scale, X[:, list(self.dimensions)])[0].T

    def scale_kernel(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """Return the kernel of each label: a kernel that is the same for all labels, scaled by the map of the label.

        Parameters
        ----------
        kernel : Kernel

        Returns
        -------
        tuple of Kernel, length L
        """
        if self.scale is None:
            return (kernel,) * len(self.mean)
        maps = (Mapped(self.axes, values).on(*self.dimensions) for values in self.scale)
        return tuple(scale_by_map(kernel, one) for one in maps)

    def permute(self, order: Sequence[int]) -> PriorMap:
        """Return the map for coordinates of which number i is the number ``order[i]`` of the present ones.

        Parameters
        ----------
        order : sequence of int
            Present number of each coordinate.

        Returns
        -------
        PriorMap
        """
        return replace(self, dimensions=tuple(list(order).index(d) for d in self.dimensions))


WEAK_FACTOR = 10.0  # prior of a learnt parameter without a stated one: a factor of 10 is one standard deviation
SMALLEST_EIGENVALUE = 1e-12  # of a correlation matrix; a smaller one may be rounding of a singular matrix


@dataclass(frozen=True)
class Latent:
    """An unknown field or number with its Gaussian process prior: one process, or one process per label.

    Parameters
    ----------
    name : str
    unit : str
        Unit of the physical quantity, as UDUNITS understands it; ``"1"`` for none.
    mean, std : array, shape (L,)
        Prior mean and standard deviation of the physical quantity, in `unit`; with `maps`, nominal ones.
    kernel : Kernel
        Kernel of the processes, with a nominal variance of 1 and length-scales in the units of the coordinates;
        `Scalar` for a latent that is the same everywhere.
    link : Link
        Function from the process to the physical quantity.
    dimension : str or None
        Name of the dimension of the labels; None without labels.
    labels : tuple of int or str, length L, or None
    long_name : str
        Name for figures and the file.
    standard_name : str
        CF standard name.
    positive : str
        ``"down"`` or ``"up"`` for a vertical position, otherwise empty; used by figures and CF.
    learn : mapping of str to float
        Learnt parameters, ``"std"``, ``"share"`` or the name of parameters of the kernel such as ``"length_scale"``,
        with the factor of their log-normal prior: its median is the value given here, and one standard deviation is a
        change by the factor. An infinite factor is a flat prior for a
        most probable value, and `WEAK_FACTOR` for averages over the parameter.
    maps : PriorMap or None
        Prior mean and standard deviation that vary with position.
    label_correlation : array, shape (L, L), or None
        Prior correlation between the processes of the labels; None if they are independent.
    correlated_with : mapping of str to float
        Prior correlation with the processes of other latents by name, label by label. Correlated processes have the
        same kernel.
    discrepancy_of : str
        Observation to whose simulator outputs the latent is added, if it is a discrepancy: what the simulator cannot
        explain. Its mean is 0, its link the identity, and no simulator takes it. Otherwise empty.
    """

    name: str
    unit: str
    mean: Floats
    std: Floats
    kernel: Kernel
    link: Link = LINKS["identity"]
    dimension: str | None = None
    labels: Labels | None = None
    long_name: str = ""
    standard_name: str = ""
    positive: str = ""
    learn: Mapping[str, float] = field(default_factory=dict)
    maps: PriorMap | None = None
    label_correlation: Floats | None = None
    correlated_with: Mapping[str, float] = field(default_factory=dict)
    discrepancy_of: str = ""

    @property
    def size(self) -> int:
        """Number of processes."""
        return len(self.mean)

    @property
    def is_scalar(self) -> bool:
        """Whether the latent is the same everywhere."""
        return isinstance(self.kernel, Scalar)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernel of each process, with a nominal variance of 1: the same, unless maps scale them."""
        return (self.kernel,) * self.size if self.maps is None else self.maps.scale_kernel(self.kernel)

    def process_mean(self, X: Floats, coordinates: int) -> Floats:
        """Return the prior mean (N, L) of the processes at points X (N, D), or (N, 2 D) with half-widths of intervals.

        It is NaN outside a map.

        Parameters
        ----------
        X : array, shape (N, D) or (N, 2 D)
            Points, or points with half-widths of intervals, in the units of the coordinates.
        coordinates : int
            Number of coordinates, D.

        Returns
        -------
        array, shape (N, L)
        """
        if self.maps is not None:
            return self.maps.mean_at(X, coordinates)
        mean, _ = self.link.prior_to_process(self.mean, self.std)
        return np.broadcast_to(mean, (len(X), self.size))

    def mean_at(self, X: Floats, coordinates: int) -> Floats:
        """Return the prior mean (N, L) of the physical quantity, without a trend.

        Parameters
        ----------
        X : array, shape (N, D) or (N, 2 D)
            Points, or points with half-widths of intervals, in the units of the coordinates.
        coordinates : int
            Number of coordinates, D.

        Returns
        -------
        array, shape (N, L)
        """
        if self.maps is None:
            return np.broadcast_to(self.mean, (len(X), self.size))
        _, std = self.link.prior_to_process(self.mean, self.std)
        variance = (std * self.maps.scale_at(X)) ** 2
        return self.link.moments(self.process_mean(X, coordinates), variance[..., None] * np.eye(self.size))[0]

    def correlation_length(self, dimensions: int) -> Floats:
        """Return the distance (D,) along each of D coordinates over which the field hardly changes; may be infinite.

        Parameters
        ----------
        dimensions : int
            Number of coordinates, D.

        Returns
        -------
        array, shape (D,), in the units of the coordinates
        """
        return np.asarray(self.kernel.correlation_length(dimensions))

    def learnt_parameters(self, name: str) -> Floats:
        """Return how the free parameters of the kernel depend on one learnt parameter of this name.

        Parameters
        ----------
        name : str
            Key of `learn`.

        Returns
        -------
        array, shape (P, H)
            Change of the P free parameters of the kernel with the logarithms of H factors: of one factor on the
            standard deviation; of one factor per share of the variance; or of one per parameter with this name.
        """
        if name == "std":
            return 2.0 * np.asarray(self.kernel.scale_mask, dtype=np.float64)[:, None]
        names = np.asarray(self.kernel.parameter_names)
        chosen = np.asarray(self.kernel.scale_mask) if name == "share" else names == name
        return np.eye(len(names))[:, chosen]


@dataclass(frozen=True)
class NoiseScale:
    """An unknown factor on the standard deviations of the noise of some observations.

    Parameters
    ----------
    observations : tuple of str
        Names of the observations.
    factor : float
        Factor of the log-normal prior, as in `Latent.learn`.
    degrees : float or None
        Degrees of freedom nu, if the square of the factor has an inverse-gamma prior with shape and scale nu / 2
        instead: the given standard deviations are as good as estimates from so many independent residuals.
    """

    observations: tuple[str, ...]
    factor: float = np.inf
    degrees: float | None = None

    @property
    def name(self) -> str:
        """Name for variables: those of the observations."""
        return "_".join(self.observations)


@dataclass(frozen=True)
class Noise:
    """Distribution of the observations minus the simulator outputs.

    Parameters
    ----------
    kind : str
        ``"gaussian"``, ``"student-t"`` or ``"laplace"``.
    std : mapping of str to array, shape (N, p)
        Standard deviation of each observation, in its unit.
    correlation : mapping of str to array, shape (p, p)
        Correlations between the labels of an observation (Gaussian noise only).
    degrees : float
        Degrees of freedom of Student-t noise.
    learn : mapping of str to float
        Observations whose noise level is learnt, with a factor as in `Latent`.
    correlation_length : mapping of str to array, shape (D,)
        Correlation lengths between sites (Gaussian noise only), in the units of the coordinates: the correlation is
        exp(-distance), with each coordinate divided by its length.
    covariance : array, shape (N P, N P), or None
        Covariance of all data, ordered by site, instead of all other parameters (Gaussian noise only).
    kinds : mapping of str to str
        Distribution of some observations, where it is not `kind`.
    discrepancy : mapping of str to Latent
        For field models with Gaussian noise, what the simulator cannot explain of some observations: a process along
        the coordinates of the survey. In site models it is among the latents of the problem.
    scale_degrees : mapping of tuple of str to float
        Groups of observations whose noise has one unknown factor with an inverse-gamma prior, with its degrees of
        freedom; see `NoiseScale`.

    Raises
    ------
    ConfigError
        A correlation matrix is not positive definite.
    """

    kind: str
    std: Mapping[str, Floats]
    correlation: Mapping[str, Floats] = field(default_factory=dict)
    degrees: float = 4.0
    learn: Mapping[str, float] = field(default_factory=dict)
    correlation_length: Mapping[str, Floats] = field(default_factory=dict)
    covariance: Floats | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    discrepancy: Mapping[str, Latent] = field(default_factory=dict)
    scale_degrees: Mapping[tuple[str, ...], float] = field(default_factory=dict)

    @property
    def scales(self) -> tuple[NoiseScale, ...]:
        """Unknown factors on the noise, in the order of the hyperparameters."""
        learnt = tuple(NoiseScale((name,), factor) for name, factor in self.learn.items())
        return learnt + tuple(NoiseScale(names, degrees=degrees) for names, degrees in self.scale_degrees.items())

    @property
    def scaled_observations(self) -> frozenset[str]:
        """Names of the observations whose noise has an unknown factor."""
        return frozenset(name for scale in self.scales for name in scale.observations)

    @property
    def fixed(self) -> Noise:
        """The same noise without unknown factors."""
        return replace(self, learn={}, scale_degrees={})

    def kind_of(self, name: str) -> str:
        """Return the distribution of an observation.

        Parameters
        ----------
        name : str
            Name of the observation.

        Returns
        -------
        str
            ``"gaussian"``, ``"student-t"`` or ``"laplace"``.
        """
        return self.kinds.get(name, self.kind)

    @property
    def is_gaussian(self) -> bool:
        """Whether the noise of all observations is Gaussian."""
        return all(self.kind_of(name) == "gaussian" for name in self.std)

    @property
    def correlates_sites(self) -> bool:
        """Whether the noise of different sites is correlated, or includes a discrepancy."""
        return bool(self.correlation_length or self.discrepancy) or self.covariance is not None

    def __post_init__(self) -> None:
        for name, matrix in self.correlation.items():
            if np.linalg.eigvalsh(matrix)[0] <= SMALLEST_EIGENVALUE:
                raise ConfigError(
                    f"noise.correlation.{name}: must be positive definite, was not: some of its correlations "
                    "contradict others"
                )
