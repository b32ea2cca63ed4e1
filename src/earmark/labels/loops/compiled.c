/* The module earmark.labels.loops.compiled, for the stable ABI of Python 3.11 and later.

   Names come as keys, the hashes of 64 bits that polars has of them. A table of slots leads from a
   key to its number, and has twice the slots that are taken or more. Its places are at random, so
   those of keys to come are asked for ahead. Keys that come as they came before, one after another,
   need no table. Other threads run meanwhile. */
#include "../../scores/loops/arrays.h"
#include <stdlib.h>

#define N_AHEAD 12
#define N_LOOKED_AT 8
#define N_FEWEST_BITS 10

#ifdef __GNUC__
#define ASK_FOR(place) __builtin_prefetch(place)
#else
#define ASK_FOR(place) ((void)(place))
#endif

/* A slot holds a number plus one, or 0; keys[number] is the number's key. */
typedef struct {
    uint32_t *slots;
    const int64_t *keys;
    Py_ssize_t n;
    int n_bits;
} Table;

static size_t slot_of(const Table *table, int64_t key)
{
    return (size_t)(((uint64_t)key * 0x9E3779B97F4A7C15u) >> (64 - table->n_bits));
}

/* Return the slot of a key, or the empty one where it belongs. */
static size_t find_slot(const Table *table, int64_t key)
{
    const size_t mask = ((size_t)1 << table->n_bits) - 1;
    size_t slot = slot_of(table, key);
    while (table->slots[slot] && table->keys[table->slots[slot] - 1] != key)
        slot = (slot + 1) & mask;
    return slot;
}

static void ask_for_slot(const Table *table, int64_t key)
{
    ASK_FOR(&table->slots[slot_of(table, key)]);
}

static void ask_for_key(const Table *table, int64_t key)
{
    const uint32_t taken = table->slots[slot_of(table, key)];
    if (taken)
        ASK_FOR(&table->keys[taken - 1]);
}

/* Make room for the table's keys and as many more; return whether there was memory. */
static int make_slots(Table *table)
{
    int n_bits = N_FEWEST_BITS;
    while (((size_t)1 << n_bits) < 4 * (size_t)table->n)
        n_bits++;
    free(table->slots);
    table->slots = calloc((size_t)1 << n_bits, sizeof *table->slots);
    table->n_bits = n_bits;
    if (!table->slots)
        return 0;
    for (Py_ssize_t i = 0; i < table->n; i++) {
        if (i + N_AHEAD < table->n)
            ask_for_slot(table, table->keys[i + N_AHEAD]);
        table->slots[find_slot(table, table->keys[i])] = (uint32_t)i + 1;
    }
    return 1;
}

/* Number keys as they come; return how many there are, or -1 where there is no memory. */
static Py_ssize_t number(Py_ssize_t n, const int64_t *keys, int32_t *numbers, int32_t *firsts,
                         int64_t *distinct)
{
    Table table = {NULL, distinct, 0, 0};
    int is_made = make_slots(&table);
    for (Py_ssize_t i = 0; i < n && is_made; i++) {
        if (i + 2 * N_AHEAD < n) {
            ask_for_slot(&table, keys[i + 2 * N_AHEAD]);
            ask_for_key(&table, keys[i + N_AHEAD]);
        }
        if (i && keys[i] == keys[i - 1]) {
            numbers[i] = numbers[i - 1];
            continue;
        }
        const size_t slot = find_slot(&table, keys[i]);
        if (table.slots[slot]) {
            numbers[i] = (int32_t)table.slots[slot] - 1;
            continue;
        }
        distinct[table.n] = keys[i];
        numbers[i] = (int32_t)table.n;
        firsts[table.n++] = (int32_t)i;
        table.slots[slot] = (uint32_t)table.n;
        if (2 * (size_t)table.n > (size_t)1 << table.n_bits)
            is_made = make_slots(&table);
    }
    free(table.slots);
    return is_made ? table.n : -1;
}

static int are_countable(Py_ssize_t n)
{
    if (n > INT32_MAX)
        PyErr_Format(PyExc_ValueError, "expected %d keys at most, got %zd", INT32_MAX, n);
    return n <= INT32_MAX;
}

static PyObject *number_keys(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {{"keys", "int64", 1, 0},
                                        {"numbers", "int32", 1, 1},
                                        {"firsts", "int32", 1, 1},
                                        {"distinct", "int64", 1, 1}};
    Py_buffer v[4];
    if (!has_arguments(n_given, 4) || open_arrays(given, expected, 4, v))
        return NULL;
    const Py_ssize_t n = v[0].shape[0];
    const int is_fit = are_countable(n) && has_length(&v[1], 0, n, "numbers") &&
                       has_length(&v[2], 0, n, "firsts") && has_length(&v[3], 0, n, "distinct");
    Py_ssize_t n_distinct = 0;
    if (is_fit) {
        Py_BEGIN_ALLOW_THREADS
        n_distinct = number(n, v[0].buf, v[1].buf, v[2].buf, v[3].buf);
        Py_END_ALLOW_THREADS
    }
    release(v, 4);
    if (n_distinct < 0)
        return PyErr_NoMemory();
    return is_fit ? PyLong_FromSsize_t(n_distinct) : NULL;
}

/* Return the place of a key among those that come next, or -1. */
static Py_ssize_t look_ahead(const int64_t *among, Py_ssize_t begin, Py_ssize_t n, int64_t key)
{
    const Py_ssize_t end = n - begin < N_LOOKED_AT ? n : begin + N_LOOKED_AT;
    for (Py_ssize_t i = begin; i < end; i++)
        if (among[i] == key)
            return i;
    return -1;
}

/* Find keys among distinct ones; return whether there was memory. */
static int find(Py_ssize_t n, const int64_t *keys, Py_ssize_t n_among, const int64_t *among,
                int32_t *rows)
{
    Table table = {NULL, among, n_among, 0};
    Py_ssize_t next = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (table.slots && i + 2 * N_AHEAD < n) {
            ask_for_slot(&table, keys[i + 2 * N_AHEAD]);
            ask_for_key(&table, keys[i + N_AHEAD]);
        }
        Py_ssize_t row = look_ahead(among, next, n_among, keys[i]);
        if (row < 0) {
            if (!table.slots && !make_slots(&table))
                return 0;
            row = (Py_ssize_t)table.slots[find_slot(&table, keys[i])] - 1;
        }
        rows[i] = (int32_t)row;
        next = row < 0 ? next : row + 1;
    }
    free(table.slots);
    return 1;
}

static PyObject *find_keys(PyObject *Py_UNUSED(self), PyObject *const *given, Py_ssize_t n_given)
{
    static const Expected expected[] = {
        {"keys", "int64", 1, 0}, {"among", "int64", 1, 0}, {"rows", "int32", 1, 1}};
    Py_buffer v[3];
    if (!has_arguments(n_given, 3) || open_arrays(given, expected, 3, v))
        return NULL;
    const Py_ssize_t n = v[0].shape[0], n_among = v[1].shape[0];
    const int is_fit = are_countable(n_among) && has_length(&v[2], 0, n, "rows");
    int is_found = 1;
    if (is_fit) {
        Py_BEGIN_ALLOW_THREADS
        is_found = find(n, v[0].buf, n_among, v[1].buf, v[2].buf);
        Py_END_ALLOW_THREADS
    }
    release(v, 3);
    if (!is_found)
        return PyErr_NoMemory();
    return is_fit ? Py_NewRef(Py_None) : NULL;
}

#define LOOP(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef loops[] = {LOOP(number_keys), LOOP(find_keys), {NULL, NULL, 0, NULL}};

static struct PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "compiled",
                                    .m_doc = "The inner loops over the keys of names.",
                                    .m_methods = loops,
                                    .m_slots = slots};

PyMODINIT_FUNC PyInit_compiled(void)
{
    return PyModuleDef_Init(&module);
}
