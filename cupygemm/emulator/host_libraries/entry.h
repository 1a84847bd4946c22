// Entry points of a stand-in library, each of which calls one Python function with its arguments.
// listing.py writes the C file that includes this one. It defines `python_failed`, the status of a
// call if Python could not be called, and `number_of_functions`.

#include <stddef.h>
#include <string.h>

// Each library has its own copy; no function of another library is called.
#define cupygemm_set_message entry_set_message
#define cupygemm_set_main_thread entry_set_main_thread
__attribute__((visibility("hidden"))) void entry_set_message(int status, const char *text);
__attribute__((visibility("hidden"))) void entry_set_main_thread(unsigned long identifier);

#include "calls.h"

enum { message_bytes = 4096 };

struct complex_float {
    float real, imag;
};
struct complex_double {
    double real, imag;
};
struct unique_id {
    char bytes[128]; // ncclUniqueId
};

static PyObject *functions[number_of_functions];
static _Thread_local char message[message_bytes];

void entry_set_message(int status, const char *text) {
    (void)status;
    strncpy(message, text, message_bytes - 1);
}

// Python calls this once, with its functions in the order of the listing.
void cupygemm_connect(PyObject *const *table, unsigned long main_thread_identifier) {
    memcpy(functions, table, sizeof functions);
    entry_set_main_thread(main_thread_identifier);
}

// Why Python could not be called, for this thread's latest such failure; empty after it is read.
const char *cupygemm_take_message(void) {
    static _Thread_local char taken[message_bytes];
    memcpy(taken, message, message_bytes);
    message[0] = 0;
    return taken;
}

// Destructors make calls after Python has ended, when nothing is left to release.
#define ENTRY(name, position, format, ...)                                                         \
    if (!Py_IsInitialized()) {                                                                     \
        return 0;                                                                                  \
    }                                                                                              \
    struct call call;                                                                              \
    begin_call(&call, name);                                                                       \
    while (must_repeat(                                                                            \
        &call, PyObject_CallFunction(functions[position], format __VA_OPT__(, ) __VA_ARGS__)))     \
        ;                                                                                          \
    return end_call(&call)
