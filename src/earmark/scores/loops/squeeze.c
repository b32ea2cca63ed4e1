/* Which scores count: codes that are not 0, one after another. */
#include "loops.h"

static int32_t squeeze_plainly(const int32_t *restrict codes, int32_t n, int32_t *restrict out)
{
    int32_t n_out = 0;
    for (int32_t i = 0; i < n; i++) {
        out[n_out] = codes[i];
        n_out += codes[i] != 0;
    }
    return n_out;
}

/* A loop that reads it while a test changes it goes one way or the other, with the same results. */
static long widest = 16;

#ifdef HAS_KINDS
int has_vectors_of(int n_lanes)
{
    if (n_lanes > widest)
        return 0;
    return n_lanes == 16 ? __builtin_cpu_supports("avx512f") : __builtin_cpu_supports("avx2");
}

/* No compiler makes these of the loop above: a compressed vector is written whole, and what follows
   its last code is written over by the next. */
__attribute__((target("avx512f,popcnt"))) static int32_t
squeeze_sixteen(const int32_t *restrict codes, int32_t n, int32_t *restrict out)
{
    int32_t n_out = 0, i = 0;
    for (; i + STRIP <= n; i += STRIP) {
        __m512i some = _mm512_loadu_si512(codes + i);
        __mmask16 is_hit = _mm512_test_epi32_mask(some, some);
        _mm512_storeu_si512(out + n_out, _mm512_maskz_compress_epi32(is_hit, some));
        n_out += __builtin_popcount(is_hit);
    }
    return n_out + squeeze_plainly(codes + i, n - i, out + n_out);
}

/* Which of eight lanes hold codes, one after another, for every set of them. */
static uint64_t PLACES[256];

void prepare_squeezing(void)
{
    for (int is_hit = 0; is_hit < 256; is_hit++)
        for (int lane = 0, n = 0; lane < 8; lane++)
            if (is_hit >> lane & 1)
                PLACES[is_hit] |= (uint64_t)lane << 8 * n++;
}

__attribute__((target("avx2,popcnt"))) static int32_t
squeeze_eight(const int32_t *restrict codes, int32_t n, int32_t *restrict out)
{
    int32_t n_out = 0, i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i some = _mm256_loadu_si256((const __m256i *)(codes + i));
        __m256i is_none = _mm256_cmpeq_epi32(some, _mm256_setzero_si256());
        int is_hit = _mm256_movemask_ps(_mm256_castsi256_ps(is_none)) ^ 255;
        __m256i places = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)PLACES[is_hit]));
        _mm256_storeu_si256((__m256i *)(out + n_out), _mm256_permutevar8x32_epi32(some, places));
        n_out += __builtin_popcount((unsigned)is_hit);
    }
    return n_out + squeeze_plainly(codes + i, n - i, out + n_out);
}
#else
void prepare_squeezing(void) {}
#endif

int32_t squeeze(const int32_t *codes, int32_t n, int32_t *out)
{
#ifdef HAS_KINDS
    if (has_vectors_of(16))
        return squeeze_sixteen(codes, n, out);
    if (has_vectors_of(8))
        return squeeze_eight(codes, n, out);
#endif
    return squeeze_plainly(codes, n, out);
}

PyObject *limit_vectors(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    if (!has_arguments(n_given, 1))
        return NULL;
    long n_lanes = PyLong_AsLong(given[0]), before = widest;
    if (n_lanes == -1 && PyErr_Occurred())
        return NULL;
    widest = n_lanes;
    return PyLong_FromLong(before);
}

PyObject *squeeze_codes(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {{"codes", "int32", 1, 0}, {"out", "int32", 1, 1}};
    Py_buffer v[2];
    if (!has_arguments(n_given, 2) || open_arrays(given, expected, 2, v))
        return NULL;
    PyObject *found = NULL;
    Py_ssize_t n = v[0].shape[0];
    if (has_length(&v[1], 0, n + STRIP, "out"))
        found = PyLong_FromSsize_t(squeeze(v[0].buf, (int32_t)n, v[1].buf));
    release(v, 2);
    return found;
}
