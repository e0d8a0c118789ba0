/* Steady heads in a confined aquifer, by finite differences.
 *
 *   steady_heads AQUIFER CONDUCTIVITY HEADS
 *
 * AQUIFER holds: rows and columns; the side of a cell and the thickness in m; recharge in m s-1; the heads along the
 * west and the east side in m; the number of wells; and for each well its row and column, from 1. CONDUCTIVITY holds
 * the conductivity of each cell in m s-1, row by row. HEADS gets a line for each well: its number, its head in m.
 *
 * No water crosses the north and south sides. Between two cells flows what the harmonic mean of their conductivities
 * lets through. The equations are solved by a banded Cholesky factorisation, so that the result is exact but for rounding.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void fail(const char *what, const char *file) {
    fprintf(stderr, "steady_heads: %s %s\n", what, file);
    exit(2);
}

static double number(FILE *stream, const char *file) {
    double value;
    if (fscanf(stream, "%lf", &value) != 1 || !isfinite(value)) fail("a number is missing in", file);
    return value;
}

static FILE *opened(const char *file, const char *mode) {
    FILE *stream = fopen(file, mode);
    if (!stream) fail("cannot open", file);
    return stream;
}

static void *room(size_t count) {
    void *memory = calloc(count, sizeof(double));
    if (!memory) fail("no memory for", "the equations");
    return memory;
}

/* Solve A x = b in place for a symmetric band: band[i * (w + 1) + k] is A[i][i - k]. */
static void solve(double *band, double *b, long n, long w) {
    for (long i = 0; i < n; i++) {
        double *row = band + i * (w + 1);
        for (long k = (i < w ? i : w); k >= 0; k--) {
            long j = i - k;
            double *other = band + j * (w + 1);
            double sum = row[k];
            for (long m = 1; k + m <= w && m <= j; m++) sum -= row[k + m] * other[m];
            if (k > 0) row[k] = sum / other[0];
            else if (sum > 0.0) row[0] = sqrt(sum);
            else fail("the equations cannot be solved with", "these conductivities");
        }
    }
    for (long i = 0; i < n; i++) {
        double *row = band + i * (w + 1);
        for (long k = 1; k <= w && k <= i; k++) b[i] -= row[k] * b[i - k];
        b[i] /= row[0];
    }
    for (long i = n - 1; i >= 0; i--) {
        b[i] /= band[i * (w + 1)];
        for (long k = 1; k <= w && k <= i; k++) b[i - k] -= band[i * (w + 1) + k] * b[i];
    }
}

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "usage: steady_heads AQUIFER CONDUCTIVITY HEADS\n");
        return 2;
    }
    FILE *aquifer = opened(arguments[1], "r");
    long rows = (long)number(aquifer, arguments[1]), columns = (long)number(aquifer, arguments[1]);
    if (rows < 1 || columns < 1) fail("rows and columns must be positive in", arguments[1]);
    double side = number(aquifer, arguments[1]), thickness = number(aquifer, arguments[1]);
    double recharge = number(aquifer, arguments[1]);
    double west = number(aquifer, arguments[1]), east = number(aquifer, arguments[1]);
    long wells = (long)number(aquifer, arguments[1]), n = rows * columns;

    FILE *field = opened(arguments[2], "r");
    double *t = room((size_t)n), *heads = room((size_t)n), *band = room((size_t)(n * (columns + 1)));
    for (long i = 0; i < n; i++) {
        t[i] = number(field, arguments[2]) * thickness;
        if (t[i] <= 0.0) fail("conductivities must be positive in", arguments[2]);
    }
    fclose(field);

    for (long i = 0; i < n; i++) {
        long row = i / columns, column = i % columns;
        double *diagonal = band + i * (columns + 1);
        heads[i] = recharge * side * side;
        if (column > 0) {
            double between = 2.0 * t[i] * t[i - 1] / (t[i] + t[i - 1]);
            diagonal[0] += between;
            diagonal[1] -= between;
            band[(i - 1) * (columns + 1)] += between;
        }
        if (row > 0) {
            double between = 2.0 * t[i] * t[i - columns] / (t[i] + t[i - columns]);
            diagonal[0] += between;
            diagonal[columns] -= between;
            band[(i - columns) * (columns + 1)] += between;
        }
        if (column == 0) {  /* half a cell from the side */
            diagonal[0] += 2.0 * t[i];
            heads[i] += 2.0 * t[i] * west;
        }
        if (column == columns - 1) {
            diagonal[0] += 2.0 * t[i];
            heads[i] += 2.0 * t[i] * east;
        }
    }
    solve(band, heads, n, columns);

    FILE *out = opened(arguments[3], "w");
    for (long well = 1; well <= wells; well++) {
        long row = (long)number(aquifer, arguments[1]), column = (long)number(aquifer, arguments[1]);
        if (row < 1 || row > rows || column < 1 || column > columns) fail("a well is outside the aquifer in", arguments[1]);
        fprintf(out, "%ld %.12g\n", well, heads[(row - 1) * columns + column - 1]);
    }
    fclose(aquifer);
    if (fclose(out)) fail("cannot write", arguments[3]);
    free(band);
    free(heads);
    free(t);
    return 0;
}
