"""HiPPO-LegS, its normal part, and the diagonal matrices that approximate it.

All of these are float64 numpy constants, which `init` casts.
"""

import numpy as np


def hippo_legs(state_size: int) -> tuple[np.ndarray, np.ndarray]:
    """The state matrix and the input vector of HiPPO-LegS.

        Aₙₖ = -√(2n + 1) √(2k + 1) for n > k,  -(n + 1) for n = k,  0 above;   Bₙ = √(2n + 1)

    h' = A h + B x keeps the coefficients of the past on scaled Legendre polynomials (Gu et al.
    2020, arXiv:2008.07669), here without the factor 1 / t, as state-space layers use it.

    Args:
        state_size: N.

    Returns:
        A `[N, N]` and B `[N]`.

    Example:
        >>> hippo_legs(2)[0].round(3)
        array([[-1.   ,  0.   ],
               [-1.732, -2.   ]])
    """
    root = np.sqrt(2 * np.arange(state_size) + 1.0)
    return np.tril(-np.outer(root, root), -1) - np.diag(np.arange(state_size) + 1.0), root


def hippo_normal(state_size: int) -> np.ndarray:
    """The normal part of HiPPO-LegS, S = A + P Pᵀ with Pₙ = √(n + 1/2), for which S + Sᵀ = -I.

    Gu et al. 2021 (arXiv:2111.00396). S is a skew-symmetric matrix minus I/2, so its eigenvalues
    have the real part -1/2 and its eigenvectors are orthonormal; those of A itself are numerically
    useless.

    Args:
        state_size: N.

    Returns:
        S `[N, N]`.

    Example:
        >>> S = hippo_normal(4)
        >>> bool(np.allclose(S + S.T, -np.eye(4)))
        True
    """
    matrix, root = hippo_legs(state_size)
    return matrix + np.outer(root, root) / 2


def hippo_eigen(state_size: int) -> tuple[np.ndarray, np.ndarray]:
    """One of each conjugate pair of eigenvalues of S, and its eigenvector.

    Args:
        state_size: N, even.

    Returns:
        Λ `[N / 2]`, with positive, increasing imaginary parts, and V `[N, N / 2]` with orthonormal
        columns: S = 2 Re(V Λ Vᴴ).

    Example:
        >>> eigenvalues, V = hippo_eigen(6)
        >>> bool(np.allclose(2 * ((V * eigenvalues) @ V.conj().T).real, hippo_normal(6)))
        True
    """
    skew = hippo_normal(state_size) + np.eye(state_size) / 2
    frequencies, vectors = np.linalg.eigh(-1j * skew)
    half = state_size // 2
    return -0.5 + 1j * frequencies[half:], vectors[:, half:]


def diagonal_eigenvalues(kind: str, state_size: int) -> np.ndarray:
    """The initial eigenvalues of S4D.

        "lin":  -1/2 + i π n              "inv":  -1/2 + i N/π (N / (2n + 1) - 1)
        "legs": those of S                "real": -(n + 1)

    Gu et al. 2022, arXiv:2206.11893. "inv" approaches "legs" as N grows.

    Args:
        kind: "lin", "inv", "legs" or "real".
        state_size: N; even, except for "real".

    Returns:
        Complex `[N / 2]`, one of each conjugate pair, or for "real" negative reals `[N]`.

    Raises:
        ValueError: `kind` is not one of these words, or N is odd.

    Example:
        >>> diagonal_eigenvalues("real", 3)
        array([-1., -2., -3.])
    """
    if kind not in KINDS:
        raise ValueError(f"eigenvalues must be one of {KINDS}, got {kind!r}.")
    if kind == "real":
        return -(np.arange(state_size) + 1.0)
    if state_size % 2:
        raise ValueError(f"state_size must be even, for conjugate pairs, got {state_size}.")
    if kind == "legs":
        return hippo_eigen(state_size)[0]
    pairs = np.arange(state_size // 2)
    frequencies = {
        "lin": np.pi * pairs,
        "inv": state_size / np.pi * (state_size / (2 * pairs + 1) - 1),
    }
    return -0.5 + 1j * frequencies[kind]


KINDS = ("lin", "inv", "legs", "real")
