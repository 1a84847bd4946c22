// pybind11's bindings are the host's: those beside kernels are parsed, and never run. Declared is
// what makes a module of kernels, so that its source compiles as it is.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace pybind11 {

struct object {
    template <typename T> object &operator=(const T &) { return *this; }
    template <typename T> T cast() const;
    template <typename... Arguments> object operator()(Arguments &&...) const { return {}; }
    template <typename Key> object operator[](const Key &) const { return {}; }
    object attr(const char *) const;
};

struct tuple : object {
    size_t size() const;
};

struct arg {
    explicit arg(const char *);
    template <typename T> arg &operator=(const T &) { return *this; }
};

struct module_ : object {
    object &doc();
    template <typename... Arguments> module_ &def(const char *, Arguments &&...) { return *this; }
};

bool hasattr(const object &, const char *);
template <typename T> T cast(const object &);

} // namespace pybind11

#define PYBIND11_MODULE(name, variable)                                                            \
    static __attribute__((unused)) void name##_module(pybind11::module_ &variable)
