/* Windows, FFT, magnitudes, mel bands and logarithm of LANES frames at a time. */
#include "spectra.h"

#include <math.h>

#define INLINE static inline __attribute__((always_inline))

INLINE Complex sum(Complex a, Complex b)
{
    return (Complex){a.re + b.re, a.im + b.im};
}

INLINE Complex difference(Complex a, Complex b)
{
    return (Complex){a.re - b.re, a.im - b.im};
}

/* Turn a number back by an angle, given as its cosine and sine. */
INLINE Complex turned(Complex a, const float *angle)
{
    return (Complex){a.re * angle[0] + a.im * angle[1], a.im * angle[0] - a.re * angle[1]};
}

/* Put the windowed samples of frames side by side, even ones as real parts; n_heard is how many
   samples there are from the first frame's first on, and after them it is silent. */
INLINE void load(const Plan *plan, const float *waveform, Py_ssize_t n_heard, Complex *points)
{
    float *out = (float *)points;
    memset(out, 0, plan->n_points * sizeof *points);
    for (Py_ssize_t lane = 0; lane < LANES; lane++, out++) {
        Py_ssize_t n = n_heard - lane * plan->hop;
        n = n < plan->n_window ? n : plan->n_window;
        const float *frame = waveform + lane * plan->hop;
        for (Py_ssize_t i = 0; i < n; i++)
            out[i * LANES] = frame[i] * plan->window[i];
    }
}

/* One step of the FFT in place: every span of n points becomes four spans of every fourth result. */
INLINE void split_in_four(const Plan *plan, Complex *points, Py_ssize_t n)
{
    Py_ssize_t quarter = n / 4, step = 2 * (2 * plan->n_points / n);
    for (Complex *p = points; p < points + plan->n_points; p += n)
        for (Py_ssize_t i = 0; i < quarter; i++) {
            Complex *a = p + i, *b = a + quarter, *c = b + quarter, *d = c + quarter;
            Complex ac = sum(*a, *c), a_c = difference(*a, *c);
            Complex bd = sum(*b, *d), b_d = difference(*b, *d);
            Complex back = {b_d.im, -b_d.re}; /* a quarter of a turn */
            const float *angle = plan->turns + i * step;
            *a = sum(ac, bd);
            *b = turned(sum(a_c, back), angle);
            *c = turned(difference(ac, bd), plan->turns + 2 * i * step);
            *d = turned(difference(a_c, back), plan->turns + 3 * i * step);
        }
}

INLINE void transform(const Plan *plan, Complex *points)
{
    Py_ssize_t n = plan->n_points;
    for (; n >= 4; n /= 4)
        split_in_four(plan, points, n);
    if (n == 2)
        for (Complex *p = points; p < points + plan->n_points; p += 2) {
            Complex first = p[0];
            p[0] = sum(first, p[1]);
            p[1] = difference(first, p[1]);
        }
}

/* Twice the magnitudes of the real FFT's bins, two at a time, from the complex FFT's results. */
INLINE void measure(const Plan *plan, const Complex *points, Lanes *magnitudes)
{
    Py_ssize_t n = plan->n_points;
    for (Py_ssize_t k = 0; k <= n / 2; k++) {
        Complex a = points[plan->places[k]], b = points[plan->places[k ? n - k : 0]];
        Complex even = {a.re + b.re, a.im - b.im};
        Complex odd = turned((Complex){a.im + b.im, b.re - a.re}, plan->turns + 2 * k);
        Complex low = sum(even, odd), high = difference(even, odd);
        magnitudes[k] = low.re * low.re + low.im * low.im;
        magnitudes[n - k] = high.re * high.re + high.im * high.im;
    }
    float *each = (float *)magnitudes;
    for (Py_ssize_t i = 0; i < (n + 1) * LANES; i++)
        each[i] = sqrtf(each[i]);
}

INLINE void weigh(const Plan *plan, const Lanes *magnitudes, Lanes *bands)
{
    for (Py_ssize_t band = 0, i = 0; band < plan->n_bands; band++) {
        Lanes total = {0};
        for (const Lanes *bin = magnitudes + plan->firsts[band]; i < plan->ends[band]; i++, bin++)
            total += *bin * plan->weights[i];
        bands[band] = total + plan->offset;
    }
}

/* log(x) of a positive number: x = 2^e m, m from sqrt(1/2) to sqrt(2), and log(m) is the area
   tangent's series at s = (m - 1) / (m + 1). What is left out is below 1e-11. */
INLINE float logarithm(float x)
{
    int32_t bits, shifted;
    memcpy(&bits, &x, sizeof bits);
    shifted = bits - 0x3F3504F3; /* sqrt(1/2) */
    bits -= shifted & (int32_t)0xFF800000;
    float mantissa;
    memcpy(&mantissa, &bits, sizeof mantissa);
    double m = mantissa, s = (m - 1) / (m + 1), q = s * s;
    double series = 1 + q * (1. / 3 + q * (1. / 5 + q * (1. / 7 + q * (1. / 9 + q * (1. / 11)))));
    return (float)((shifted >> 23) * 0.69314718055994530942 + 2 * s * series);
}

/* Write the frames apart again. */
INLINE void store(const Plan *plan, Lanes *bands, Py_ssize_t n_frames, float *out)
{
    float *each = (float *)bands;
    for (Py_ssize_t i = 0; i < plan->n_bands * LANES; i++)
        each[i] = logarithm(each[i]);
    for (Py_ssize_t lane = 0; lane < n_frames; lane++, out += plan->n_bands)
        for (Py_ssize_t band = 0; band < plan->n_bands; band++)
            out[band] = each[band * LANES + lane];
}

ON_VECTORS
static void fill(const Plan *plan, const float *waveform, Py_ssize_t n_samples, Complex *points,
                 Lanes *magnitudes, Lanes *bands, float *out, Py_ssize_t n_frames)
{
    for (Py_ssize_t first = 0; first < n_frames; first += LANES) {
        Py_ssize_t start = first * plan->hop, n_left = n_frames - first;
        load(plan, waveform + start, n_samples - start, points);
        transform(plan, points);
        measure(plan, points, magnitudes);
        weigh(plan, magnitudes, bands);
        store(plan, bands, n_left < LANES ? n_left : LANES, out + first * plan->n_bands);
    }
}

/* Say where the FFT leaves result k of n. */
static int32_t place_of(int32_t k, int32_t n)
{
    if (n < 4)
        return k;
    return k % 4 * (n / 4) + place_of(k / 4, n / 4);
}

/* Check that no band reaches beyond its weights or the bins. */
static int has_bands(const Py_buffer *firsts, const Py_buffer *ends, Py_ssize_t n_weights,
                     Py_ssize_t n_bins)
{
    const int32_t *first = firsts->buf, *end = ends->buf;
    Py_ssize_t begin = 0;
    for (Py_ssize_t band = 0; band < firsts->shape[0]; begin = end[band++])
        if (first[band] < 0 || end[band] < begin || end[band] > n_weights ||
            (Py_ssize_t)first[band] + end[band] - begin > n_bins) {
            PyErr_Format(PyExc_ValueError, "band %zd: expected bins below %zd and weights below "
                         "%zd", band, n_bins, n_weights);
            return 0;
        }
    return 1;
}

/* Check the plan's sizes; turns [n_fft, 2] say how long the FFT is. */
static int is_possible(const Plan *plan, Py_ssize_t n_fft, Py_ssize_t n_samples)
{
    if (n_fft < 2 || n_fft > 1 << 24 || n_fft & (n_fft - 1))
        PyErr_Format(PyExc_ValueError, "turns: expected a power of two from 2 on, got %zd", n_fft);
    else if (plan->n_window > n_fft)
        PyErr_Format(PyExc_ValueError, "window: expected at most %zd samples, got %zd", n_fft,
                     plan->n_window);
    else if (plan->hop < 1 || plan->hop > 1 << 24)
        PyErr_Format(PyExc_ValueError, "hop: expected 1 or more samples, got %zd", plan->hop);
    else
        return n_samples >= 0;
    return 0;
}

/* Run a plan that was checked, in memory of its own. */
static int run(Plan *plan, const Py_buffer *waveform, Py_buffer *out)
{
    Py_ssize_t n = plan->n_points, n_lanes = 2 * n + n + 1 + plan->n_bands;
    char *memory = PyMem_Malloc((n_lanes + 1) * sizeof(Lanes) + n * sizeof(int32_t));
    if (!memory) {
        PyErr_NoMemory();
        return -1;
    }
    uintptr_t aligned = ((uintptr_t)memory + sizeof(Lanes) - 1) / sizeof(Lanes) * sizeof(Lanes);
    Lanes *lanes = (Lanes *)aligned;
    int32_t *places = (int32_t *)(lanes + n_lanes);
    for (int32_t k = 0; k < n; k++)
        places[k] = place_of(k, (int32_t)n);
    plan->places = places;
    Py_BEGIN_ALLOW_THREADS
    fill(plan, waveform->buf, waveform->shape[0], (Complex *)lanes, lanes + 2 * n,
         lanes + 3 * n + 1, out->buf, out->shape[0]);
    Py_END_ALLOW_THREADS
    PyMem_Free(memory);
    return 0;
}

PyObject *fill_log_mel(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"waveform", "float32", 1, 0}, {"window", "float32", 1, 0}, {"turns", "float32", 2, 0},
        {"firsts", "int32", 1, 0},     {"ends", "int32", 1, 0},     {"weights", "float32", 1, 0},
        {"out", "float32", 2, 1}};
    Py_buffer v[7];
    if (!has_arguments(n_given, 9) || open_arrays(given, expected, 7, v))
        return NULL;
    Py_ssize_t n_fft = v[2].shape[0];
    Plan plan = {.n_window = v[1].shape[0], .hop = PyLong_AsSsize_t(given[7]),
                 .n_points = n_fft / 2, .n_bands = v[6].shape[1], .window = v[1].buf,
                 .turns = v[2].buf, .weights = v[5].buf, .firsts = v[3].buf, .ends = v[4].buf,
                 .offset = (float)PyFloat_AsDouble(given[8])};
    int is_done = !PyErr_Occurred() && is_possible(&plan, n_fft, v[0].shape[0]) &&
                  has_length(&v[2], 1, 2, "turns") &&
                  has_length(&v[3], 0, plan.n_bands, "firsts") &&
                  has_length(&v[4], 0, plan.n_bands, "ends") &&
                  has_bands(&v[3], &v[4], v[5].shape[0], n_fft / 2 + 1) &&
                  run(&plan, &v[0], &v[6]) == 0;
    release(v, 7);
    return is_done ? Py_NewRef(Py_None) : NULL;
}
