// libamdhip64.so.7 of the emulated device: entry points that pass their arguments to Python.
// Each FUNCTION of amdhip64.def becomes an entry point and a member of the callback table, which
// Python fills when it loads this library. A callback returns a hipError_t; a null member is a
// function that is not supported. This file keeps only the state of the calling thread: its last
// error with its message, and the launch configuration between <<<...>>> and the kernel's stub.

#include <stddef.h>
#include <string.h>

enum {
    hip_not_ready = 600, // an answer, no error
    hip_not_supported = 801,
    python_failed = 999,
    message_bytes = 32768,
    max_pending_launches = 16,
};

#include "calls.h"

struct dim3 {
    unsigned x, y, z;
};
struct ipc_handle {
    char reserved[64];
};
struct sizes {
    size_t x, y, z;
};
struct pitched {
    void *pointer;
    size_t pitch, xsize, ysize;
};

static _Thread_local int last_error;
static _Thread_local int message_error;
static _Thread_local char message[message_bytes];
// The error of a launch by a host library, and its message, until a call has returned it. The code
// generated for `<<<...>>>` ignores hipLaunchKernel's status, so this thread's next call that
// waits, copies, fills or launches returns the error, as HIP does with asynchronous errors.
static _Thread_local int unheard;
static _Thread_local char unheard_message[message_bytes];

// Python calls this just before a callback returns `error`. hipGetErrorString of that error is then
// `text`, which CuPy quotes in its exception.
void cupygemm_set_message(int error, const char *text) {
    message_error = error;
    strncpy(message, text, message_bytes - 1);
}

static int settle(int error) {
    if (error != 0 && error != hip_not_ready) {
        last_error = error;
    }
    return error;
}

static int unsupported(const char *name) {
    message_error = hip_not_supported;
    strcpy(message, "the emulated device does not support ");
    strcat(message, name);
    return settle(hip_not_supported);
}

// Launches, copies, fills, queries and waits return the error of an earlier launch.
static int meets_errors(const char *name) {
    return begins(name, "hipModuleLaunch") || begins(name, "hipMemcpy") ||
           begins(name, "hipMemset") || strstr(name, "Synchronize") || strstr(name, "Query");
}

static int answer(const char *name, int error) {
    if (error != 0 && begins(name, "hipLaunchKernel")) {
        static const char what[] = "hipLaunchKernel failed, and its caller ignored the error:\n";
        unheard = error;
        strcpy(unheard_message, what);
        if (message_error == error) {
            strncat(unheard_message, message, message_bytes - sizeof what);
        }
    }
    return settle(error);
}

// Returns the error of an earlier launch of a host library; later launches fail with it, too.
static int earlier_error(const char *name) {
    int error = unheard;
    if (error == 0 || (!meets_errors(name) && !begins(name, "hipLaunchKernel"))) {
        return 0;
    }
    cupygemm_set_message(error, unheard_message);
    if (meets_errors(name)) {
        unheard = 0;
    }
    return settle(error);
}

#define NATIVE(node, name)
#define FUNCTION(node, name, parameters, arguments) struct callback name;
static struct callbacks {
#include "amdhip64.def"
} callbacks;
#undef FUNCTION

void cupygemm_set_callbacks(const struct callbacks *table) { callbacks = *table; }

// Destructors of host libraries call these after Python has ended, when nothing is left to release.
#define FUNCTION(node, name, parameters, arguments)                                                \
    int name parameters {                                                                          \
        if (!Py_IsInitialized()) {                                                                 \
            return 0;                                                                              \
        }                                                                                          \
        int error = unheard ? earlier_error(#name) : 0;                                            \
        if (error != 0) {                                                                          \
            return error;                                                                          \
        }                                                                                          \
        if (!callbacks.name.function) {                                                            \
            return unsupported(#name);                                                             \
        }                                                                                          \
        CALL_PYTHON(answered, name, arguments);                                                    \
        return answer(#name, answered);                                                            \
    }
#include "amdhip64.def"

// Where this thread's current call keeps the objects that its earlier attempts created.
size_t *cupygemm_made(void) {
    static _Thread_local size_t outside;
    outside = 0;
    return innermost ? &innermost->made : &outside;
}

// Errors

static const struct {
    int error;
    const char *name, *text;
} errors[] = {
#define ERROR(error, name, text) {error, #name, text},
#include "errors.def"
};

static int find(int error) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].error == error) {
            return (int)i;
        }
    }
    return -1;
}

const char *hipGetErrorName(int error) {
    int found = find(error);
    return found < 0 ? "hipErrorUnknown" : errors[found].name;
}

const char *hipGetErrorString(int error) {
    if (error != 0 && error == message_error) {
        unheard = 0; // whoever asks for the text tells it
        return message;
    }
    int found = find(error);
    return found < 0 ? "unknown error" : errors[found].text;
}

int hipPeekAtLastError(void) { return last_error; }

// The message is kept, because CuPy clears the error before it reads the text.
int hipGetLastError(void) {
    int error = last_error;
    last_error = 0;
    return error;
}

// Only the error of the latest call is kept.
int hipExtGetLastError(void) { return hipGetLastError(); }

int hipDrvGetErrorName(int error, const char **name) {
    *name = hipGetErrorName(error);
    return settle(find(error) < 0);
}

int hipDrvGetErrorString(int error, const char **text) {
    *text = hipGetErrorString(error);
    return settle(find(error) < 0);
}

int hipGetStreamDeviceId(void *stream) {
    (void)stream;
    return 0;
}

// Kernels in host libraries

// The handle of a fat binary is its wrapper's address; the binary is read when its kernel is
// launched.
void **__hipRegisterFatBinary(const void *wrapper) { return (void **)wrapper; }

static _Thread_local struct {
    struct dim3 grid, block;
    size_t dynamic_lds;
    void *stream;
} pending[max_pending_launches];
static _Thread_local int num_pending;

int __hipPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t dynamic_lds,
                               void *stream) {
    if (num_pending == max_pending_launches) {
        return settle(1);
    }
    pending[num_pending].grid = grid;
    pending[num_pending].block = block;
    pending[num_pending].dynamic_lds = dynamic_lds;
    pending[num_pending++].stream = stream;
    return 0;
}

int __hipPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *dynamic_lds,
                              void **stream) {
    if (num_pending == 0) {
        return settle(1);
    }
    *grid = pending[--num_pending].grid;
    *block = pending[num_pending].block;
    *dynamic_lds = pending[num_pending].dynamic_lds;
    *stream = pending[num_pending].stream;
    return 0;
}
