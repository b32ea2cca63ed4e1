/* What labels ask of a batch, and which of them keep their part in the loss: see compiled.pyi. */
#include "loops.h"

#ifdef __GNUC__
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) (void)(address)
#endif

enum { N_AHEAD = 2 /* clips on their way to the cache */, PER_LINE = 16 /* scores in a line of it */ };

static int are_rows(const Py_buffer *rows, Py_ssize_t n_clips)
{
    const int64_t *chosen = rows->buf;
    for (Py_ssize_t i = 0; i < rows->shape[0]; i++)
        if (chosen[i] < 0 || chosen[i] >= n_clips) {
            PyErr_Format(PyExc_ValueError, "rows: clip %lld, counted from 0, is beyond the %zd there are",
                         (long long)chosen[i], n_clips);
            return 0;
        }
    return 1;
}

static int are_labels(const Py_buffer *starts, const Py_buffer *columns, const Py_buffer *rows, Py_ssize_t n_classes)
{
    const int64_t *first = starts->buf, *chosen = rows->buf;
    const int32_t *column = columns->buf;
    for (Py_ssize_t i = 0; i < rows->shape[0]; i++) {
        const int64_t start = first[chosen[i]], end = first[chosen[i] + 1];
        int is_fit = 0 <= start && start <= end && end <= columns->shape[0];
        for (int64_t at = start; is_fit && at < end; at++)
            is_fit = 0 <= column[at] && column[at] < n_classes;
        if (!is_fit) {
            PyErr_Format(PyExc_ValueError, "starts or columns of clip %lld point beyond its labels",
                         (long long)chosen[i]);
            return 0;
        }
    }
    return 1;
}

PyObject *spread_labels(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    enum { STARTS, COLUMNS, IS_PRESENT, ROWS, TARGET, IS_IMPLICIT, N };
    static const Expected expected[] = {{"starts", "int64", 1, 0}, {"columns", "int32", 1, 0},
                                        {"is_present", "bool", 1, 0}, {"rows", "int64", 1, 0},
                                        {"target", "float32", 2, 1}, {"is_implicit", "bool", 2, 1}};
    Py_buffer v[N];
    if (!has_arguments(n_given, N) || open_arrays(given, expected, N, v))
        return NULL;
    const Py_ssize_t n_rows = v[ROWS].shape[0], n = v[TARGET].shape[1];
    const int is_fit = has_length(&v[IS_PRESENT], 0, v[COLUMNS].shape[0], "is_present") &&
                       has_length(&v[TARGET], 0, n_rows, "target") &&
                       has_length(&v[IS_IMPLICIT], 0, n_rows, "is_implicit") &&
                       has_length(&v[IS_IMPLICIT], 1, n, "is_implicit") &&
                       are_rows(&v[ROWS], v[STARTS].shape[0] - 1) && are_labels(&v[STARTS], &v[COLUMNS], &v[ROWS], n);
    if (is_fit) {
        const int64_t *starts = v[STARTS].buf, *rows = v[ROWS].buf;
        const int32_t *columns = v[COLUMNS].buf;
        const uint8_t *is_present = v[IS_PRESENT].buf;
        float *target = v[TARGET].buf;
        uint8_t *is_implicit = v[IS_IMPLICIT].buf;
        Py_BEGIN_ALLOW_THREADS
        memset(target, 0, n_rows * n * sizeof *target);
        memset(is_implicit, 1, n_rows * n);
        for (Py_ssize_t i = 0; i < n_rows; i++)
            for (int64_t at = starts[rows[i]]; at < starts[rows[i] + 1]; at++) {
                target[i * n + columns[at]] = is_present[at];
                is_implicit[i * n + columns[at]] = 0;
            }
        Py_END_ALLOW_THREADS
    }
    release(v, N);
    return is_fit ? Py_NewRef(Py_None) : NULL;
}

ON_VECTORS
static void keep_clip(Py_ssize_t n_classes, const float *restrict scores, const uint8_t *restrict is_open,
                      const float *restrict edges, uint8_t *restrict is_kept)
{
    for (Py_ssize_t c = 0; c < n_classes; c++)
        is_kept[c] = !(scores[c] > edges[c]) | !is_open[c];
}

PyObject *keep_labels(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    enum { SCORES, ROWS, IS_OPEN, EDGES, IS_KEPT, N };
    static const Expected expected[] = {{"scores", "float32", 2, 0}, {"rows", "int64", 1, 0},
                                        {"is_open", "bool", 2, 0}, {"edges", "float32", 2, 0},
                                        {"is_kept", "bool", 3, 1}};
    Py_buffer v[N];
    if (!has_arguments(n_given, N) || open_arrays(given, expected, N, v))
        return NULL;
    const Py_ssize_t n_rows = v[ROWS].shape[0], n = v[SCORES].shape[1], n_students = v[EDGES].shape[0];
    const int is_fit = has_length(&v[IS_OPEN], 0, n_rows, "is_open") && has_length(&v[IS_OPEN], 1, n, "is_open") &&
                       has_length(&v[EDGES], 1, n, "edges") && has_length(&v[IS_KEPT], 0, n_students, "is_kept") &&
                       has_length(&v[IS_KEPT], 1, n_rows, "is_kept") && has_length(&v[IS_KEPT], 2, n, "is_kept") &&
                       are_rows(&v[ROWS], v[SCORES].shape[0]);
    if (is_fit) {
        const float *scores = v[SCORES].buf, *edges = v[EDGES].buf;
        const int64_t *rows = v[ROWS].buf;
        const uint8_t *is_open = v[IS_OPEN].buf;
        uint8_t *is_kept = v[IS_KEPT].buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < n_rows; i++) {
            if (i + N_AHEAD < n_rows)
                for (Py_ssize_t c = 0; c < n; c += PER_LINE)
                    FETCH(scores + rows[i + N_AHEAD] * n + c);
            for (Py_ssize_t student = 0; student < n_students; student++)
                keep_clip(n, scores + rows[i] * n, is_open + i * n, edges + student * n,
                          is_kept + (student * n_rows + i) * n);
        }
        Py_END_ALLOW_THREADS
    }
    release(v, N);
    return is_fit ? Py_NewRef(Py_None) : NULL;
}
