// pybind11's bindings are host code: in a file with kernels they are parsed, and never run. This
// declares the parts that a module of kernels uses, so that its source compiles unchanged.
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
