// Calls from C into Python, for the entry points of amdhip64.c and hiprtc.c.
// An exception cannot pass through C: ctypes would print it and return an arbitrary number. So a
// callback catches its own exceptions and returns a status. An exception that escapes was raised by
// a signal handler, or because Python could not call the callback (recursion limit). The former is
// raised again in Python when the entry point has returned; until then the call is completed,
// because its caller relies on its results. The latter is a failure.
//
// The including file defines cupygemm_set_message and the status `python_failed`.

#ifndef CUPYGEMM_RUNTIME_CALLS_H
#define CUPYGEMM_RUNTIME_CALLS_H

#include <stddef.h>
#include <string.h>

// The functions of Python's C API used here; the symbols are the running interpreter's.
typedef struct object PyObject;
int Py_IsInitialized(void);
int Py_AddPendingCall(int (*function)(void *), void *argument);
void Py_DecRef(PyObject *object);
int PyGILState_Ensure(void);
void PyGILState_Release(int state);
unsigned long PyThread_get_thread_ident(void);
int PyThreadState_SetAsyncExc(unsigned long thread, PyObject *type);
PyObject *PyObject_CallFunction(PyObject *function, const char *format, ...);
PyObject *PyObject_Str(PyObject *object);
PyObject *PyObject_Type(PyObject *object);
long PyLong_AsLong(PyObject *object);
const char *PyUnicode_AsUTF8(PyObject *text);
void PyErr_Clear(void);
void PyErr_Fetch(PyObject **type, PyObject **value, PyObject **traceback);
void PyErr_NormalizeException(PyObject **type, PyObject **value, PyObject **traceback);
void PyErr_Restore(PyObject *type, PyObject *value, PyObject *traceback);
void PyErr_SetObject(PyObject *type, PyObject *value);
int PyErr_GivenExceptionMatches(PyObject *given, PyObject *type);
int PyException_SetTraceback(PyObject *exception, PyObject *traceback);
extern PyObject *PyExc_RecursionError, *PyExc_MemoryError;

void cupygemm_set_message(int error, const char *text);

enum { max_attempts = 3 };

// A Python function that returns a status, and its arguments as a format of Py_BuildValue.
struct callback {
    PyObject *function;
    const char *format;
};

struct call {
    const char *name;
    int gil, status, attempts;
    PyObject *outer[3]; // the exception being handled when the entry point was called
    PyObject *raised;   // the exception that a signal handler raised meanwhile
    size_t made;        // the handle or address that an attempt created, see `handles.py`
    struct call *enclosing;
};

static _Thread_local struct call *innermost;

static unsigned long main_thread;

// Python calls this once, with the identifier of its main thread.
void cupygemm_set_main_thread(unsigned long identifier) { main_thread = identifier; }

static int begins(const char *name, const char *with) {
    return strncmp(name, with, strlen(with)) == 0;
}

// Calls that may take long and store no results for the caller: an interruption ends them.
static int ends_when_interrupted(const char *name) {
    return begins(name, "hipLaunch") || begins(name, "hipModuleLaunch") ||
           begins(name, "hipGraphLaunch") || begins(name, "hipStreamAddCallback") ||
           begins(name, "hiprtcCompileProgram");
}

// Calls whose repetition fails, because the interrupted first attempt did the work.
static int releases(const char *name) {
    return strstr(name, "Free") || strstr(name, "Destroy") || strstr(name, "Unload");
}

static void begin_call(struct call *call, const char *name) {
    *call = (struct call){.name = name, .gil = PyGILState_Ensure(), .enclosing = innermost};
    innermost = call;
    PyErr_Fetch(&call->outer[0], &call->outer[1], &call->outer[2]);
}

static void fail_call(struct call *call, PyObject *exception) {
    PyObject *text = PyObject_Str(exception);
    const char *words = text ? PyUnicode_AsUTF8(text) : NULL;
    PyErr_Clear();
    call->status = python_failed;
    cupygemm_set_message(python_failed, words ? words : "Python could not call the runtime");
    if (text) {
        Py_DecRef(text);
    }
}

// Takes what a callback returned, null for an exception. Returns whether to call it again.
static int must_repeat(struct call *call, PyObject *result) {
    if (result) {
        call->status = (int)PyLong_AsLong(result);
        Py_DecRef(result);
        if (call->raised && call->status && releases(call->name)) {
            call->status = 0;
        }
        return 0;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback) {
        PyException_SetTraceback(value, traceback);
        Py_DecRef(traceback);
    }
    Py_DecRef(type);
    int failed = PyErr_GivenExceptionMatches(value, PyExc_RecursionError) ||
                 PyErr_GivenExceptionMatches(value, PyExc_MemoryError);
    if (failed || ++call->attempts == max_attempts) {
        fail_call(call, value);
        Py_DecRef(value);
        return 0;
    }
    if (call->raised) {
        Py_DecRef(call->raised);
    }
    call->raised = value;
    call->status = 0;
    return !ends_when_interrupted(call->name);
}

// A pending call of the interpreter: runs in the main thread, where its return raises.
static int raise_again(void *exception) {
    PyObject *type = PyObject_Type(exception);
    PyErr_SetObject(type, exception);
    Py_DecRef(type);
    Py_DecRef(exception);
    return -1;
}

static int end_call(struct call *call) {
    innermost = call->enclosing;
    PyObject *raised = call->raised;
    if (raised) {
        unsigned long thread = PyThread_get_thread_ident();
        if (thread != main_thread || Py_AddPendingCall(raise_again, raised) != 0) {
            PyObject *type = PyObject_Type(raised); // other threads accept only a type
            PyThreadState_SetAsyncExc(thread, type);
            Py_DecRef(type);
            Py_DecRef(raised);
        }
    }
    PyErr_Restore(call->outer[0], call->outer[1], call->outer[2]);
    PyGILState_Release(call->gil);
    return call->status;
}

#define AFTER_COMMA(...) __VA_OPT__(, ) __VA_ARGS__

// Defines `answered` as the result of the callback `name`; `arguments` is a list in parentheses.
#define CALL_PYTHON(answered, name, arguments)                                                     \
    struct call call;                                                                              \
    begin_call(&call, #name);                                                                      \
    while (must_repeat(&call, PyObject_CallFunction(callbacks.name.function,                       \
                                                    callbacks.name.format AFTER_COMMA arguments))) \
        ;                                                                                          \
    int answered = end_call(&call)

#endif
