/* A batch of frames from wherever they lie: see compiled.pyi.

   Frames are looked for in the order of the disk, which has to be asked for those that are not in
   memory yet, and copied in that of the batch, which is then written from end to end. */
#include "spectra.h"

#include <stdlib.h>

#ifdef __GNUC__
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) (void)(address)
#endif

enum { CACHE_LINE = 64, PAGE = 4096, N_AHEAD = 2 /* examples that are on their way to the cache */ };
enum { SHARD, FIRST, LENGTH, N_PLACES };

typedef struct {
    const int64_t *at; /* its shard, first frame and number of frames */
    Py_ssize_t example;
} Place;

typedef struct {
    const char *frames;
    size_t n_bytes;
} Found;

/* Where is_spread, bytes become numbers: the shards are uint8, the batch is float32. */
typedef struct {
    Py_buffer places, rows, batch, *shards;
    Py_ssize_t n_open;
    Place *order;
    Found *found;
    float per_one, offset;
    int is_spread;
} Gathering;

static int by_place(const void *one, const void *other)
{
    const int64_t *a = ((const Place *)one)->at, *b = ((const Place *)other)->at;
    const int axis = a[SHARD] == b[SHARD] ? FIRST : SHARD;
    return (a[axis] > b[axis]) - (a[axis] < b[axis]);
}

static int is_good_batch(const Gathering *g)
{
    const Py_buffer *batch = &g->batch;
    if (batch->ndim != 3 || !PyBuffer_IsContiguous(batch, 'C') || batch->readonly)
        PyErr_SetString(PyExc_ValueError, "batch: expected 3 axes without gaps, that can be written to");
    else if (g->is_spread && !is_of_type(batch, "float32"))
        PyErr_SetString(PyExc_TypeError, "batch: levels become an array of float32");
    else
        return has_length(&g->rows, 0, batch->shape[0], "rows") && has_length(&g->places, 1, N_PLACES, "places");
    return 0;
}

static int open_shard(PyObject *given, Gathering *g)
{
    Py_buffer *shard = &g->shards[g->n_open];
    if (!given || PyObject_GetBuffer(given, shard, PyBUF_RECORDS_RO))
        return -1;
    g->n_open++;
    const char *type = g->is_spread ? "B" : g->batch.format;
    if (strcmp(shard->format, type))
        PyErr_Format(PyExc_TypeError, "shards: expected items '%s', got '%s'", type, shard->format);
    else if (shard->ndim != 2 || !PyBuffer_IsContiguous(shard, 'C') || shard->shape[1] != g->batch.shape[2])
        PyErr_Format(PyExc_ValueError, "shards: expected frames of %zd, without gaps and in C order",
                     g->batch.shape[2]);
    else
        return 0;
    return -1;
}

/* Find the frames of all examples; every shard is opened once. */
static int find(PyObject *shards, Gathering *g)
{
    const Py_ssize_t n = g->batch.shape[0];
    const int64_t *rows = g->rows.buf;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (rows[i] < 0 || rows[i] >= g->places.shape[0]) {
            PyErr_Format(PyExc_ValueError, "rows: there is no row %lld of %zd places", (long long)rows[i],
                         g->places.shape[0]);
            return -1;
        }
        g->order[i] = (Place){(const int64_t *)g->places.buf + N_PLACES * rows[i], i};
    }
    qsort(g->order, n, sizeof *g->order, by_place);
    for (const Place *one = g->order; one < g->order + n; one++) {
        if ((one == g->order || one->at[SHARD] != one[-1].at[SHARD]) &&
            open_shard(PyList_GetItem(shards, one->at[SHARD]), g)) /* which refuses what is not there */
            return -1;
        const Py_buffer *shard = &g->shards[g->n_open - 1];
        const int64_t first = one->at[FIRST], length = one->at[LENGTH], frame = shard->shape[1] * shard->itemsize;
        if (length < 0 || length > g->batch.shape[1] || first < 0 || first > shard->shape[0] - length) {
            PyErr_Format(PyExc_ValueError, "places: %lld frames from %lld on are not in a shard of %zd, or too many",
                         (long long)length, (long long)first, shard->shape[0]);
            return -1;
        }
        g->found[one->example] = (Found){(const char *)shard->buf + first * frame, length * frame};
    }
    return 0;
}

static void touch(const Gathering *g)
{
    for (const Place *one = g->order; one < g->order + g->batch.shape[0]; one++) {
        const Found *found = &g->found[one->example];
        for (size_t at = 0; at < found->n_bytes; at += PAGE)
            (void)*(const volatile char *)(found->frames + at);
    }
}

ON_VECTORS static void spread(size_t n, const uint8_t *restrict levels, float per_one, float offset,
                              float *restrict values)
{
    for (size_t i = 0; i < n; i++)
        values[i] = levels[i] / per_one - offset;
}

static void copy(const Gathering *g)
{
    const Py_ssize_t n = g->batch.shape[0];
    const size_t n_values = g->batch.shape[1] * g->batch.shape[2], size = n_values * g->batch.itemsize;
    for (Py_ssize_t i = 0; i < n; i++) {
        const Found *own = &g->found[i];
        char *to = (char *)g->batch.buf + i * size;
        if (i + N_AHEAD < n)
            for (size_t at = 0; at < own[N_AHEAD].n_bytes; at += CACHE_LINE)
                FETCH(own[N_AHEAD].frames + at);
        if (g->is_spread) {
            spread(own->n_bytes, (const uint8_t *)own->frames, g->per_one, g->offset, (float *)to);
            for (size_t at = own->n_bytes; at < n_values; at++)
                ((float *)to)[at] = 0 / g->per_one - g->offset;
        } else {
            memcpy(to, own->frames, own->n_bytes);
            memset(to + own->n_bytes, 0, size - own->n_bytes);
        }
    }
}

static int gather(PyObject *shards, Gathering *g)
{
    const Py_ssize_t n = g->batch.shape[0] + 1;
    g->order = PyMem_Malloc(n * sizeof *g->order);
    g->found = PyMem_Malloc(n * sizeof *g->found);
    g->shards = PyMem_Malloc(n * sizeof *g->shards);
    if (!g->order || !g->found || !g->shards)
        PyErr_NoMemory();
    const int is_done = !PyErr_Occurred() && find(shards, g) == 0;
    if (is_done) {
        Py_BEGIN_ALLOW_THREADS
        touch(g);
        copy(g);
        Py_END_ALLOW_THREADS
    }
    release(g->shards, g->n_open);
    PyMem_Free(g->shards);
    PyMem_Free(g->found);
    PyMem_Free(g->order);
    return is_done;
}

PyObject *gather_frames(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {{"places", "int64", 2, 0}, {"rows", "int64", 1, 0}};
    if (!has_arguments(n_given, 6))
        return NULL;
    if (!PyList_Check(given[0])) {
        PyErr_SetString(PyExc_TypeError, "shards: expected a list of arrays");
        return NULL;
    }
    Gathering g = {.per_one = (float)PyFloat_AsDouble(given[4]), .offset = (float)PyFloat_AsDouble(given[5])};
    g.is_spread = g.per_one != 0;
    Py_buffer lists[2];
    if (PyErr_Occurred() || open_arrays(given + 1, expected, 2, lists))
        return NULL;
    int is_done = 0;
    if (PyObject_GetBuffer(given[3], &g.batch, PyBUF_RECORDS_RO) == 0) {
        g.places = lists[0], g.rows = lists[1];
        is_done = is_good_batch(&g) && gather(given[0], &g);
        PyBuffer_Release(&g.batch);
    }
    release(lists, 2);
    return is_done ? Py_NewRef(Py_None) : NULL;
}
