/* The module earmark.networks.layers.compiled, for the stable ABI of Python 3.11 and later. */
#include "layers.h"

#define LOOP(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef loops[] = {LOOP(depthwise_forward), LOOP(depthwise_backward), LOOP(cross_entropy),
                              LOOP(frame_statistics), LOOP(rectify_and_drop), LOOP(rectify_and_drop_backward),
                              {NULL, NULL, 0, NULL}};

static struct PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "compiled",
                                    .m_doc = "Layers of networks and their loss on a CPU.",
                                    .m_methods = loops,
                                    .m_slots = slots};

PyMODINIT_FUNC PyInit_compiled(void)
{
    return PyModuleDef_Init(&module);
}
