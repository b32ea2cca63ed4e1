/* The module earmark.scores.loops.compiled, for the stable ABI of Python 3.11 and later. */
#include "loops.h"

#define LOOP(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef loops[] = {LOOP(count_scores), LOOP(count_last), LOOP(pick_scores),
                              LOOP(place_keys), LOOP(limit_vectors), LOOP(squeeze_codes),
                              LOOP(find_fingerprints), LOOP(fill_clues),
                              LOOP(add_chances), LOOP(look_at_odds), LOOP(fit_mixture),
                              LOOP(keep_labels), LOOP(spread_labels), {NULL, NULL, 0, NULL}};

static struct PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "compiled",
                                    .m_doc = "The inner loops over blocks of scores.",
                                    .m_methods = loops,
                                    .m_slots = slots};

PyMODINIT_FUNC PyInit_compiled(void)
{
    prepare_squeezing();
    return PyModuleDef_Init(&module);
}
