"""The programs of a training step on a GPU, in Triton. Imported only where they are used.

A product comes with the activation before it and with what follows it; a weight's gradient with its step of
Adam. Rows of a batch are stacked: points, then tangents; they are kept as they are before the activation,
whose derivatives are cheap to compute again. Formulas are those of `critics/mlp.py`. Axis 0 of a grid is the
member; tiles have M rows, C columns and an inner length of L.
"""

# Arguments are pointers and numbers of the device, for which Triton has its own types.
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202

import triton
import triton.language as tl

_GOLDEN, _MIX_1, _MIX_2 = (
    tl.constexpr(0x9E3779B97F4A7C15),
    tl.constexpr(0xBF58476D1CE4E5B9),
    tl.constexpr(0x94D049BB133111EB),
)  # of splitmix64, as in `rng.py`


_of_a_step = triton.jit(do_not_specialize=["ahead"])  # which is so many steps after the clock's


@triton.jit
def _silu(z):
    """The value with both derivatives."""
    s = tl.sigmoid(z)
    value = z * s
    first = s + value * (1 - s)
    return value, first, (1 - s) * (s - value * s + first)


@triton.jit
def _rows(z, at, tangents, inside, RAW: tl.constexpr):
    """Points, and tangents so many numbers behind them, as a layer passes them on."""
    h, t = tl.load(z + at, inside, 0.0), tl.load(z + tangents + at, inside, 0.0)
    if not RAW:
        h, first, _ = _silu(h)
        t = t * first
    return h, t


@triton.jit
def _product(
    z,
    w,
    rows,
    columns,
    K,
    N,
    RAW: tl.constexpr,
    BATCH: tl.constexpr,
    M: tl.constexpr,
    C: tl.constexpr,
    L: tl.constexpr,
):
    """Points and tangents, (M, C) each, times a weight (K, N)."""
    of_h, of_t = tl.zeros([M, C], tl.float32), tl.zeros([M, C], tl.float32)
    for k in range(0, K, L):
        inner = k + tl.arange(0, L)
        inside = (rows < BATCH)[:, None] & (inner < K)[None, :]
        h, t = _rows(z, rows[:, None] * K + inner[None, :], BATCH * K, inside, RAW)
        inside = (inner < K)[:, None] & (columns < N)[None, :]
        weight = tl.load(w + inner[:, None] * N + columns[None, :], inside, 0.0)
        of_h = tl.dot(h, weight, of_h)
        of_t = tl.dot(t, weight, of_t)
    return of_h, of_t


@triton.jit
def _begin(z, step, K, RAW: tl.constexpr, BATCH: tl.constexpr):
    """A member's rows: of this step where they are the epoch's."""
    e = tl.program_id(0).to(tl.int64)
    return z + ((step * tl.num_programs(0) if RAW else 0) + e) * 2 * BATCH * K


@_of_a_step
def layer(
    clock, ahead, z, w, b, out, K, N,
    RAW: tl.constexpr, BATCH: tl.constexpr, M: tl.constexpr, C: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """A hidden layer before its activation."""
    e = tl.program_id(0).to(tl.int64)
    rows, columns = tl.program_id(1) * M + tl.arange(0, M), tl.program_id(2) * C + tl.arange(0, C)
    z = _begin(z, tl.load(clock) + ahead, K, RAW, BATCH)
    h, t = _product(z, w + e * K * N, rows, columns, K, N, RAW, BATCH, M, C, L)
    at = (e * 2 * BATCH + rows)[:, None] * N + columns[None, :]
    inside = (rows < BATCH)[:, None] & (columns < N)[None, :]
    tl.store(out + at, h + tl.load(b + e * N + columns, columns < N, 0.0)[None, :], inside)
    tl.store(out + BATCH * N + at, t, inside)


@_of_a_step
def last_layer(
    clock, ahead, z, w, b, dealt, score, lam, of_out, losses, n, K, N, fixed,
    BATCH: tl.constexpr, M: tl.constexpr, C: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """The field and its derivative along the probe: the terms of the loss, and its derivative in both.

    losses: (steps, tiles, 2, members).
    """
    e, members, step = tl.program_id(0).to(tl.int64), tl.num_programs(0), tl.load(clock) + ahead
    rows, columns = tl.program_id(1) * M + tl.arange(0, M), tl.program_id(2) * C + tl.arange(0, C)
    f, t = _product(z + e * 2 * BATCH * K, w + e * K * N, rows, columns, K, N, False, BATCH, M, C, L)
    count = tl.minimum(BATCH, n - step * BATCH)
    inside = (rows < count)[:, None] & ((columns < N) & (columns >= fixed))[None, :]
    f = tl.where(inside, f + tl.load(b + e * N + columns, columns < N, 0.0)[None, :], 0.0)
    at, batch = rows[:, None] * N + columns[None, :], step * members + e
    s = tl.load(score + batch * BATCH * N + at, inside, 0.0)
    v = tl.load(dealt + (2 * batch + 1) * BATCH * N + at, inside, 0.0)
    weight, share = tl.load(lam + batch), 1.0 / count
    tile = (step * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(2) + tl.program_id(2)
    tl.store(losses + tile * 2 * members + e, tl.sum(s * f + v * t) * share)
    tl.store(losses + (tile * 2 + 1) * members + e, 0.5 * weight * tl.sum(f * f) * share)
    inside = (rows < BATCH)[:, None] & (columns < N)[None, :]
    of_out += e * 2 * BATCH * N
    tl.store(of_out + at, (weight * f - s) * share, inside)
    tl.store(of_out + BATCH * N + at, -v * share, inside)


@triton.jit
def layer_back(
    of_above, w, z, out, K, N, BATCH: tl.constexpr, M: tl.constexpr, C: tl.constexpr, L: tl.constexpr
):
    """The derivative of the loss after a weight (K, N) to that before the activation ahead of it."""
    e = tl.program_id(0).to(tl.int64)
    rows, columns = tl.program_id(1) * M + tl.arange(0, M), tl.program_id(2) * C + tl.arange(0, C)
    of_h, of_t = tl.zeros([M, C], tl.float32), tl.zeros([M, C], tl.float32)
    of_above, w = of_above + e * 2 * BATCH * N, w + e * K * N
    for k in range(0, N, L):
        inner = k + tl.arange(0, L)
        inside = (rows < BATCH)[:, None] & (inner < N)[None, :]
        h, t = _rows(of_above, rows[:, None] * N + inner[None, :], BATCH * N, inside, True)
        inside = (columns < K)[None, :] & (inner < N)[:, None]
        weight = tl.load(w + columns[None, :] * N + inner[:, None], inside, 0.0)
        of_h = tl.dot(h, weight, of_h)
        of_t = tl.dot(t, weight, of_t)
    at = (e * 2 * BATCH + rows)[:, None] * K + columns[None, :]
    _bend(z, out, at, BATCH * K, (rows < BATCH)[:, None] & (columns < K)[None, :], of_h, of_t)


@triton.jit
def _bend(z, out, at, tangents, inside, of_h, of_t):
    """Through the activation, backwards."""
    _, first, second = _silu(tl.load(z + at, inside, 0.0))
    u = tl.load(z + tangents + at, inside, 0.0)
    tl.store(out + at, of_h * first + of_t * u * second, inside)
    tl.store(out + tangents + at, of_t * first, inside)


@triton.jit
def _adam(w, mean, square, at, inside, gradient, size, root):
    m, v = tl.load(mean + at, inside, 0.0), tl.load(square + at, inside, 0.0)
    m += 0.1 * (gradient - m)
    v = 0.999 * v + 0.001 * gradient * gradient
    tl.store(mean + at, m, inside)
    tl.store(square + at, v, inside)
    tl.store(w + at, tl.load(w + at, inside, 0.0) - size * m / (tl.sqrt(v) * root + 1e-8), inside)


@_of_a_step
def descend(
    clock, ahead, pace, z, of_z, w, w_mean, w_square, b, b_mean, b_square, K, N,
    RAW: tl.constexpr, BATCH: tl.constexpr, M: tl.constexpr, C: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """The gradient of a weight (K, N) and of its bias, and Adam's step along them.

    pace: (steps, 2), Adam's step size and the factor of its root at every step of the training.
    """
    e = tl.program_id(0).to(tl.int64)
    inner, columns = tl.program_id(1) * M + tl.arange(0, M), tl.program_id(2) * C + tl.arange(0, C)
    z, of_z = _begin(z, tl.load(clock) + ahead, K, RAW, BATCH), of_z + e * 2 * BATCH * N
    of_w, of_b = tl.zeros([M, C], tl.float32), tl.zeros([C], tl.float32)
    for r in range(0, BATCH, L):
        rows = r + tl.arange(0, L)
        inside = (rows < BATCH)[:, None] & (inner < K)[None, :]
        h, t = _rows(z, rows[:, None] * K + inner[None, :], BATCH * K, inside, RAW)
        inside = (rows < BATCH)[:, None] & (columns < N)[None, :]
        of_h, of_t = _rows(of_z, rows[:, None] * N + columns[None, :], BATCH * N, inside, True)
        of_w = tl.dot(tl.trans(h), of_h, of_w)
        of_w = tl.dot(tl.trans(t), of_t, of_w)
        of_b += tl.sum(of_h, 0)
    step = 2 * (tl.load(clock + 1) + ahead)
    size, root = tl.load(pace + step), tl.load(pace + step + 1)
    at, inside = inner[:, None] * N + columns[None, :], (inner < K)[:, None] & (columns < N)[None, :]
    _adam(w, w_mean, w_square, e * K * N + at, inside, of_w, size, root)
    if tl.program_id(1) == 0:
        _adam(b, b_mean, b_square, e * N + columns, columns < N, of_b, size, root)


@_of_a_step
def activate(clock, ahead, z, out, K, RAW: tl.constexpr, BATCH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows as a layer passes them on, for a product by itself."""
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < BATCH * K
    h, t = _rows(_begin(z, tl.load(clock) + ahead, K, RAW, BATCH), at, BATCH * K, inside, RAW)
    out += tl.program_id(0).to(tl.int64) * 2 * BATCH * K
    tl.store(out + at, h, inside)
    tl.store(out + BATCH * K + at, t, inside)


@triton.jit
def bend(of_h, z, out, K, BATCH: tl.constexpr, BLOCK: tl.constexpr):
    """Through the activation, backwards, after a product by itself."""
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < BATCH * K
    at += tl.program_id(0).to(tl.int64) * 2 * BATCH * K
    of_t = tl.load(of_h + BATCH * K + at, inside, 0.0)
    _bend(z, out, at, BATCH * K, inside, tl.load(of_h + at, inside, 0.0), of_t)


@_of_a_step
def adam(clock, ahead, pace, gradient, w, mean, square, size, BLOCK: tl.constexpr):
    """Adam's step along a gradient at hand."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    step = 2 * (tl.load(clock + 1) + ahead)
    of_w = tl.load(gradient + at, at < size, 0.0)
    _adam(w, mean, square, at, at < size, of_w, tl.load(pace + step), tl.load(pace + step + 1))


@triton.jit
def _mix(z):
    z = (z ^ (z >> 30)) * tl.full([], _MIX_1, tl.uint64)
    z = (z ^ (z >> 27)) * tl.full([], _MIX_2, tl.uint64)
    return z ^ (z >> 31)


@triton.jit
def _bits(keys, e, count, index):
    """64 random bits each, as `rng.Streams` has them."""
    golden = tl.full([], _GOLDEN, tl.uint64)
    state = _mix(tl.load(keys + e).to(tl.uint64) + golden * count.to(tl.uint64))
    return _mix(state + golden * (index + 1).to(tl.uint64))


@triton.jit(do_not_specialize=["epoch"])
def lots(keys, epoch, out, n, BLOCK: tl.constexpr):
    """What the points of an epoch are ordered by, (e, n)."""
    e, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    bits = _bits(keys, e, tl.full([], 2, tl.int64) * epoch, at)
    tl.store(out + e * n + at, bits.to(tl.int64, bitcast=True), at < n)


@triton.jit
def deal(
    clock, order, keys, x, score, dealt, of_score, x_stride, score_stride, n, d, padded, fixed,
    NORMAL: tl.constexpr, BATCH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The batches of an epoch: points with their probes, (steps, e, 2, batch, d), and scores; zero beyond n.

    Strides are those of members, zero where they share their points. Axis 1 of the grid is the step.
    """
    e, step = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    row, column = step * BATCH + at // d, at % d
    within, inside = at < BATCH * d, (at < BATCH * d) & (row < n)
    source = tl.load(order + e * n + row, inside, 0) * d + column
    bits = _bits(keys, e, 2 * (tl.load(clock + 1) + step) + 1, at)
    if NORMAL:
        radius = tl.sqrt(-2 * tl.log(((bits >> 32) + 1).to(tl.float32) / 4294967296.0))
        probe = radius * tl.cos((bits & 0xFFFFFFFF).to(tl.float32) * (6.283185307179586 / 4294967296.0))
    else:
        probe = 1.0 - 2.0 * (bits & 1).to(tl.float32)
    batch = step * tl.num_programs(0) + e
    at = at // d * padded + column
    tl.store(dealt + 2 * batch * BATCH * padded + at, tl.load(x + e * x_stride + source, inside, 0.0), within)
    tl.store(
        dealt + (2 * batch + 1) * BATCH * padded + at,
        tl.where(inside & (column >= fixed), probe, 0.0),
        within,
    )
    tl.store(
        of_score + batch * BATCH * padded + at,
        tl.load(score + e * score_stride + source, inside, 0.0),
        within,
    )
