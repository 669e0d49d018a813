/* Dense linear algebra on small matrices in double precision: rows lie one after the other, and so do the right sides.
 * Elimination takes the largest pivot of a column; eigenvalues and singular values come from Jacobi's rotations, which
 * are slow on large matrices but as exact as their entries are (Demmel and Veselic, 1992). */
#include "base/base.h"

#include <math.h>
#include <string.h>

#define A(i, j) a[(i) * n + (j)]
#define X(i, j) x[(i) * n + (j)]

void wf_matrix_inverse(int64_t n, double *a, double *x, double *log_det, double *sign)
{
    *log_det = 0;
    *sign = 1;
    memset(x, 0, (size_t)(n * n) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        X(i, i) = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t p = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(A(i, k)) > fabs(A(p, k)))
                p = i;
        for (int64_t j = 0; p != k && j < n; j++) {
            double t = A(k, j), u = X(k, j);
            A(k, j) = A(p, j), A(p, j) = t;
            X(k, j) = X(p, j), X(p, j) = u;
        }
        double pivot = A(k, k), scale = 1 / pivot;
        *log_det += log(fabs(pivot));
        *sign *= (p != k ? -1 : 1) * (pivot > 0 ? 1 : pivot < 0 ? -1 : pivot);
        for (int64_t j = 0; j < n; j++) {
            A(k, j) *= scale;
            X(k, j) *= scale;
        }
        for (int64_t i = 0; i < n; i++) {
            double f = A(i, k);
            for (int64_t j = 0; i != k && j < n; j++) {
                A(i, j) -= f * A(k, j);
                X(i, j) -= f * X(k, j);
            }
        }
    }
}

void wf_matrix_cholesky(int64_t n, double *a)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) {
            double s = A(i, j);
            for (int64_t k = 0; i >= j && k < j; k++)
                s -= A(i, k) * A(j, k);
            A(i, j) = i < j ? 0 : i == j ? sqrt(s) : s / A(j, j);
        }
}

/* Rotates columns p and q of a[m, n] by cosine c and sine s. */
static void rotate(int64_t m, int64_t n, double *a, int64_t p, int64_t q, double c, double s)
{
    for (int64_t i = 0; i < m; i++) {
        double u = A(i, p), v = A(i, q);
        A(i, p) = c * u - s * v;
        A(i, q) = s * u + c * v;
    }
}

/* Cosine and sine of the rotation that makes the symmetric [[a, b], [b, d]] diagonal. */
static void angle(double a, double b, double d, double *c, double *s)
{
    double t = (d - a) / (2 * b);
    t = (t < 0 ? -1 : 1) / (fabs(t) + sqrt(t * t + 1));
    *c = 1 / sqrt(t * t + 1);
    *s = t * *c;
}

enum { SWEEPS = 60 };

void wf_matrix_eigh(int64_t n, double *a, double *values, double *x)
{
    memset(x, 0, (size_t)(n * n) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        X(i, i) = 1;
    bool moved = true;
    for (int sweep = 0; moved && sweep < SWEEPS; sweep++) {
        moved = false;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                double b = A(p, q), c, s;
                if (!(fabs(b) > 1e-17 * sqrt(fabs(A(p, p)) * fabs(A(q, q))) && fabs(b) > 1e-300))
                    continue;
                moved = true;
                angle(A(p, p), b, A(q, q), &c, &s);
                rotate(n, n, a, p, q, c, s);
                for (int64_t j = 0; j < n; j++) {
                    double u = A(p, j), v = A(q, j);
                    A(p, j) = c * u - s * v;
                    A(q, j) = s * u + c * v;
                }
                A(p, q) = A(q, p) = 0;
                rotate(n, n, x, p, q, c, s);
            }
    }
    for (int64_t i = 0; i < n; i++)
        values[i] = A(i, i);
    for (int64_t i = 0; i < n; i++) { /* ascending */
        int64_t least = i;
        for (int64_t j = i + 1; j < n; j++)
            if (values[j] < values[least])
                least = j;
        double t = values[i];
        values[i] = values[least], values[least] = t;
        for (int64_t k = 0; least != i && k < n; k++) {
            t = X(k, i);
            X(k, i) = X(k, least), X(k, least) = t;
        }
    }
}

void wf_matrix_qr(int64_t m, int64_t n, double *a, double *q, double *r)
{
    int64_t k = m < n ? m : n;
    memset(r, 0, (size_t)(k * n) * sizeof *r);
    memset(q, 0, (size_t)(m * k) * sizeof *q);
    for (int64_t j = 0; j < k; j++)
        q[j * k + j] = 1;
    double *tau = r; /* of column j, until R is read out below */
    for (int64_t j = 0; j < k; j++) { /* Householder's reflections; v over the diagonal of a, v_j = 1 */
        double norm = 0, alpha = A(j, j);
        for (int64_t i = j + 1; i < m; i++)
            norm += A(i, j) * A(i, j);
        if (norm == 0) {
            tau[j] = 0;
            continue;
        }
        double beta = alpha >= 0 ? -sqrt(alpha * alpha + norm) : sqrt(alpha * alpha + norm);
        tau[j] = (beta - alpha) / beta;
        for (int64_t i = j + 1; i < m; i++)
            A(i, j) /= alpha - beta;
        A(j, j) = beta;
        for (int64_t c = j + 1; c < n; c++) {
            double s = A(j, c);
            for (int64_t i = j + 1; i < m; i++)
                s += A(i, j) * A(i, c);
            s *= tau[j];
            A(j, c) -= s;
            for (int64_t i = j + 1; i < m; i++)
                A(i, c) -= s * A(i, j);
        }
    }
    for (int64_t j = k - 1; j >= 0; j--)
        for (int64_t c = 0; c < k; c++) {
            double s = q[j * k + c];
            for (int64_t i = j + 1; i < m; i++)
                s += A(i, j) * q[i * k + c];
            s *= tau[j];
            q[j * k + c] -= s;
            for (int64_t i = j + 1; i < m; i++)
                q[i * k + c] -= s * A(i, j);
        }
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++)
            r[i * n + j] = j < i ? 0 : A(i, j);
}

void wf_matrix(int what, int64_t m, int64_t n, double *a, double *const *results)
{
    switch (what) {
    case WF_MATRIX_INVERSE: wf_matrix_inverse(n, a, results[0], results[1], results[2]); break;
    case WF_MATRIX_CHOLESKY:
        wf_matrix_cholesky(n, a);
        memcpy(results[0], a, (size_t)(n * n) * sizeof *a);
        break;
    case WF_MATRIX_EIGH:
        for (int64_t i = 0; i < n; i++) /* from the lower half, as PyTorch */
            for (int64_t j = i + 1; j < n; j++)
                A(i, j) = A(j, i);
        wf_matrix_eigh(n, a, results[0], results[1]);
        break;
    default: wf_matrix_qr(m, n, a, results[0], results[1]);
    }
}
