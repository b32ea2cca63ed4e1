/* The module earmark.native.compiled, for the stable ABI of Python 3.11 and later. */
#include "loops.h"

#define LOOP(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef loops[] = {LOOP(count_scores), LOOP(pick_scores),   LOOP(place_keys),
                              LOOP(climb_ladders), LOOP(weigh_pairs), {NULL, NULL, 0, NULL}};

static struct PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "compiled",
                                    .m_doc = "Inner loops over scores and resamples.",
                                    .m_methods = loops,
                                    .m_slots = slots};

PyMODINIT_FUNC PyInit_compiled(void)
{
    return PyModuleDef_Init(&module);
}
