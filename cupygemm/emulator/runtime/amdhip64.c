// libamdhip64.so.7 of the emulated device: entry points that pass their arguments on to Python.
//
// Each FUNCTION of amdhip64.def becomes a member of the callback table, which Python fills when it
// loads this library, and an entry point. A callback returns a hipError_t; a member left null is a
// function that is not supported. Here stays only what belongs to the calling thread: its last
// error, the message that goes with it, and the launch configuration between <<<...>>> and the
// kernel's stub.

#include <signal.h>
#include <stddef.h>
#include <string.h>

enum {
    hip_launch_failure = 719,
    hip_not_supported = 801,
    interrupted = -1, // what a callback returns that the user interrupted
    message_bytes = 32768,
    max_pending_launches = 16,
};

struct dim3 {
    unsigned x, y, z;
};
struct ipc_handle {
    char reserved[64];
};

static _Thread_local int last_error;
static _Thread_local int message_error;
static _Thread_local char message[message_bytes];
// The error of a launch by a host library, until someone has heard of it: such libraries often drop
// the code. As an asynchronous error of HIP's, it is what the next call that could meet it returns.
static _Thread_local int unheard;

// Python calls this just before a callback returns `error`: hipGetErrorString of that error is then
// `text`, so that whoever raises an exception for the error quotes it.
void cupygemm_set_message(int error, const char *text) {
    message_error = error;
    strncpy(message, text, message_bytes - 1);
}

static int settle(int error) {
    // Interrupt again: Python raises KeyboardInterrupt as soon as control is back with it. An error
    // from this call would come before that, and hide it.
    if (error == interrupted) {
        return raise(SIGINT);
    }
    if (error != 0) {
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

static int begins(const char *name, const char *with) {
    return strncmp(name, with, strlen(with)) == 0;
}

// Launches, copies, fills and waits return the error of an earlier launch.
static int meets_errors(const char *name) {
    return begins(name, "hipModuleLaunch") || begins(name, "hipMemcpy") ||
           begins(name, "hipMemset") || strstr(name, "Synchronize") != NULL;
}

// A launch that is refused before it starts (an empty grid) changes nothing, so it is not kept.
static int answer(const char *name, int error) {
    int failed = error == hip_launch_failure || error == hip_not_supported;
    if (failed && begins(name, "hipLaunchKernel")) {
        unheard = error;
    }
    return settle(error);
}

// Whether an earlier launch of a host library has failed; its next ones fail likewise.
static int earlier_error(const char *name) {
    int error = unheard;
    if (error == 0 || (!meets_errors(name) && !begins(name, "hipLaunchKernel"))) {
        return 0;
    }
    if (meets_errors(name)) {
        unheard = 0;
    }
    return settle(error);
}

#define NATIVE(node, name)
#define FUNCTION(node, name, parameters, arguments) int(*name) parameters;
static struct callbacks {
#include "amdhip64.def"
} callbacks;
#undef FUNCTION

void cupygemm_set_callbacks(const struct callbacks *table) { callbacks = *table; }

// Destructors of host libraries call in after Python has ended, to release what is gone anyway.
int Py_IsInitialized(void);

#define FUNCTION(node, name, parameters, arguments)                                                \
    int name parameters {                                                                          \
        if (!Py_IsInitialized()) {                                                                 \
            return 0;                                                                              \
        }                                                                                          \
        int error = unheard ? earlier_error(#name) : 0;                                            \
        if (error != 0) {                                                                          \
            return error;                                                                          \
        }                                                                                          \
        return callbacks.name ? answer(#name, callbacks.name arguments) : unsupported(#name);      \
    }
#include "amdhip64.def"

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

// The message stays: CuPy clears the error before it asks for the text.
int hipGetLastError(void) {
    int error = last_error;
    last_error = 0;
    return error;
}

int hipGetStreamDeviceId(void *stream) {
    (void)stream;
    return 0;
}

// Kernels inside host libraries

// The handle of a fat binary is the address of its wrapper; it is read when a kernel of it is
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
