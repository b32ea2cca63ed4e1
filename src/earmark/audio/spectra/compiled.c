/* The module earmark.audio.spectra.compiled, for the stable ABI of Python 3.11 and later. */
#include "spectra.h"

static PyMethodDef loops[] = {
    {"fill_log_mel", (PyCFunction)(void (*)(void))fill_log_mel, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "compiled",
                                    .m_doc = "The inner loop from a waveform to log-mel frames.",
                                    .m_methods = loops,
                                    .m_slots = slots};

PyMODINIT_FUNC PyInit_compiled(void)
{
    return PyModuleDef_Init(&module);
}
