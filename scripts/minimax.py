#!/usr/bin/env python3
"""Polynomials of passes/minimax.h: weighted minimax fits with f32 coefficients.

    scripts/minimax.py > passes/minimax.h

Remez's exchange algorithm (Cheney, "Introduction to Approximation Theory", ch. 3)
on a dense grid of Chebyshev points.  Coefficients are rounded to f32 one at a
time, lowest power first; what is still free is fitted anew after each rounding,
so that the higher coefficients make up for the lower ones' rounding.  Doubles
are enough: the errors sought are 1e-5 to 1e-9, the systems have at most 7 rows.

Needs nothing but Python 3.  What the polynomials give in f32 arithmetic is
proven for every input by tests/unit/test_minimax.c.
"""
import math
import struct

GRID = 6000


def to_f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def solve(rows, right):
    """Gaussian elimination with partial pivoting."""
    n = len(rows)
    a = [row[:] + [r] for row, r in zip(rows, right)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(a[k][i]))
        a[i], a[pivot] = a[pivot], a[i]
        for k in range(i + 1, n):
            factor = a[k][i] / a[i][i]
            for j in range(i, n + 1):
                a[k][j] -= factor * a[i][j]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (a[i][n] - sum(a[i][j] * x[j] for j in range(i + 1, n))) / a[i][i]
    return x


def alternation(errors):
    """Indices of the largest error of each run of one sign."""
    found = []
    for i, e in enumerate(errors):
        if found and (errors[found[-1]] > 0) == (e > 0):
            if abs(e) > abs(errors[found[-1]]):
                found[-1] = i
        else:
            found.append(i)
    return found


def remez(points, want, weight, powers):
    """Coefficients of t^p, p in `powers`, with the least maximum of
    |weight (sum - want)|; points are (t, x), want and weight functions of x."""
    n = len(powers)
    wanted = [want(x) for _, x in points]
    weights = [weight(x) for _, x in points]
    terms = [[t**p for p in powers] for t, _ in points]
    at = [round((i + 0.5) / (n + 1) * (len(points) - 1)) for i in range(n + 1)]
    for _ in range(60):
        rows = [terms[i] + [(-1) ** k / weights[i]] for k, i in enumerate(at)]
        fit = solve(rows, [wanted[i] for i in at])
        errors = [w * (sum(c * s for c, s in zip(fit, term)) - y)
                  for w, term, y in zip(weights, terms, wanted)]
        found = alternation(errors)
        while len(found) > n + 1:  # drop the smaller end
            found.pop(0 if abs(errors[found[0]]) < abs(errors[found[-1]]) else -1)
        if len(found) < n + 1 or found == at:
            break
        at = found
    return fit[:n], max(map(abs, errors))


def fit_f32(points, want, weight, powers, fixed):
    """Like remez, with f32 coefficients; `fixed` maps powers to given ones."""
    known, free = dict(fixed), [p for p in powers if p not in fixed]
    residue = lambda t, x: want(x) - sum(c * t**p for p, c in known.items())
    by_x = {x: t for t, x in points}
    while free:
        fit, _ = remez(points, lambda x: residue(by_x[x], x), weight, free)
        known[free.pop(0)] = to_f32(fit[0])
    worst = max(abs(weight(x) * residue(t, x)) for t, x in points)
    return [known[p] for p in sorted(known)], worst


def chebyshev(low, high):
    return [low + (high - low) * (0.5 - 0.5 * math.cos(math.pi * (i + 0.5) / GRID))
            for i in range(GRID)]


def fit_exp2(degree):
    """2^f = 1 + c1 f + ... on [0, 1], least relative error; whole powers are exact."""
    points = [(x, x) for x in chebyshev(0.0, 1.0)]
    return fit_f32(points, lambda x: 2.0**x, lambda x: 2.0**-x,
                   range(degree + 1), {0: 1.0})


def tanh_allowed(x):
    """The language's tolerance: 2^-20 relative, or 2^-22 absolute near zero."""
    return max(2.0**-20 * math.tanh(x), 2.0**-22)


def fit_tanh(degree, bound):
    """tanh x = x p(x^2) on [-bound, bound]; the maximum is that of the error in
    units of what the language allows."""
    points = [(x * x, x) for x in chebyshev(0.0, bound)]
    return fit_f32(points, lambda x: math.tanh(x) / x,
                   lambda x: x / tanh_allowed(x), range(degree + 1), {})


def table(name, comment, coefficients):
    numbers = ", ".join(c.hex().replace("0000000p", "p") + "f" for c in coefficients)
    lines, line = [], "   "
    for number in numbers.split(", "):
        if len(line) + len(number) > 76:
            lines.append(line)
            line = "   "
        line += " " + number + ","
    lines.append(line.rstrip(","))
    print(f"\n/* {comment} */")
    print(f"static const float {name}[{len(coefficients)}] = {{")
    print("\n".join(lines) + "};")


def main():
    print("/* Coefficients made by scripts/minimax.py, lowest power first.\n"
          " *\n"
          " * Errors are those of exact evaluation; what f32 arithmetic makes of them is\n"
          " * bounded for every input by tests/unit/test_minimax.c. */\n"
          "#ifndef ATTN_PASSES_MINIMAX_H\n#define ATTN_PASSES_MINIMAX_H")
    for degree in (3, 4):
        coefficients, worst = fit_exp2(degree)
        table(f"minimax_exp2_{degree}",
              f"2^f for 0 <= f <= 1, relative error 2^{math.log2(worst):.2f}.",
              coefficients)
    bound = 0.75
    coefficients, worst = fit_tanh(4, bound)
    table("minimax_tanh", "tanh x / x in powers of x^2 for |x| <= minimax_tanh_bound; error\n"
          f" * {worst:.2f} of max(2^-20 tanh x, 2^-22).", coefficients)
    print(f"static const float minimax_tanh_bound = {bound}f;\n")
    print("#endif")


if __name__ == "__main__":
    main()
