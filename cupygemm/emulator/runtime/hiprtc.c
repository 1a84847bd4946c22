// libhiprtc.so.7 of the emulated device: entry points that pass their arguments to Python, as in
// amdhip64.c. A callback returns a hiprtcResult.

#include <stddef.h>
#include <string.h>

enum { builtin_operation_failure = 7, python_failed = 11, message_bytes = 4096 };

#include "calls.h"

static _Thread_local int message_error;
static _Thread_local char message[message_bytes];

// hiprtcGetErrorString of `error` is then `text`.
void cupygemm_set_message(int error, const char *text) {
    message_error = error;
    strncpy(message, text, message_bytes - 1);
}

static int unsupported(const char *name) {
    message_error = builtin_operation_failure;
    strcpy(message, "the emulated device does not support ");
    strcat(message, name);
    return builtin_operation_failure;
}

#define NATIVE(node, name)
#define FUNCTION(node, name, parameters, arguments) struct callback name;
static struct callbacks {
#include "hiprtc.def"
} callbacks;
#undef FUNCTION

void cupygemm_set_callbacks(const struct callbacks *table) { callbacks = *table; }

#define FUNCTION(node, name, parameters, arguments)                                                \
    int name parameters {                                                                          \
        if (!callbacks.name.function) {                                                            \
            return unsupported(#name);                                                             \
        }                                                                                          \
        CALL_PYTHON(answered, name, arguments);                                                    \
        return answered;                                                                           \
    }
#include "hiprtc.def"

const char *hiprtcGetErrorString(int error) {
    static const char *const texts[] = {
        "HIPRTC_SUCCESS",
        "HIPRTC_ERROR_OUT_OF_MEMORY",
        "HIPRTC_ERROR_PROGRAM_CREATION_FAILURE",
        "HIPRTC_ERROR_INVALID_INPUT",
        "HIPRTC_ERROR_INVALID_PROGRAM",
        "HIPRTC_ERROR_INVALID_OPTION",
        "HIPRTC_ERROR_COMPILATION",
        "HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        "HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
        "HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
        "HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
        "HIPRTC_ERROR_INTERNAL_ERROR",
    };
    if (error != 0 && error == message_error) {
        return message;
    }
    int known = error >= 0 && error < (int)(sizeof texts / sizeof *texts);
    return known ? texts[error] : "unknown hiprtcResult";
}
