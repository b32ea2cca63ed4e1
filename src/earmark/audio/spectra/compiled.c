/* The module earmark.audio.spectra.compiled, for the stable ABI of Python 3.11 and later. */
#include "spectra.h"

#define LOOP(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef loops[] = {LOOP(fill_log_mel), LOOP(gather_frames), {NULL, NULL, 0, NULL}};

static struct PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "compiled",
                                    .m_doc = "The inner loops from a waveform to log-mel frames, and to batches of them.",
                                    .m_methods = loops,
                                    .m_slots = slots};

PyMODINIT_FUNC PyInit_compiled(void)
{
    return PyModuleDef_Init(&module);
}
