"""Which device a command takes, decided from drivers and packages alone."""

import ctypes

import pytest

from cupygemm._commands import detect as _detect


class Driver:
    """Stands in for libcuda.so.1 with a number of GPUs."""

    def __init__(self, gpus, status=0):
        self.gpus, self.status = gpus, status

    def cuInit(self, flags):
        return self.status

    def cuDeviceGetCount(self, count):
        ctypes.cast(count, ctypes.POINTER(ctypes.c_int))[0] = self.gpus
        return self.status


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a function that makes up the machine."""

    def make_up(*, kfd=False, hip=False, cuda=None, builds=(), lacking=()):
        real_path, real_spec = _detect.Path, _detect.importlib.util.find_spec

        def path(name):
            return (
                real_path(tmp_path) / ("." if kfd else "none") if "kfd" in name else real_path(name)
            )

        def load(name):
            if cuda is None:
                raise OSError(f"{name}: cannot open shared object file")
            return cuda

        def find_spec(name):
            return None if name in lacking else real_spec("sys")

        monkeypatch.setattr(_detect, "Path", path)
        monkeypatch.setattr(
            _detect.ctypes.util, "find_library", lambda _: "libamd" if hip else None
        )
        monkeypatch.setattr(_detect.ctypes, "CDLL", load)
        monkeypatch.setattr(_detect, "cupy_builds", lambda: builds)
        monkeypatch.setattr(_detect.importlib.util, "find_spec", find_spec)

    return make_up


@pytest.mark.parametrize(
    ("machine_options", "kind"),
    [
        ({"builds": ("cupy-rocm-7-0",)}, "emulated"),
        ({"kfd": True, "hip": True, "builds": ("cupy-rocm-7-0",)}, "rocm"),
        ({"kfd": True, "hip": True, "builds": ("cupy",)}, "rocm"),
        ({"kfd": True, "hip": False, "builds": ("cupy-rocm-7-0",)}, "emulated"),
        ({"cuda": Driver(1), "builds": ("cupy-cuda13x",)}, "cuda"),
        ({"cuda": Driver(1), "builds": ("cupy-rocm-7-0",)}, "emulated"),
        ({"cuda": Driver(0), "builds": ("cupy-cuda13x",)}, None),
        ({"cuda": Driver(1, status=100), "builds": ("cupy-cuda13x",)}, None),
        ({"kfd": True, "hip": True, "cuda": Driver(1), "builds": ("cupy-rocm-7-0",)}, "rocm"),
        ({"kfd": True, "hip": True, "cuda": Driver(1), "builds": ("cupy-cuda12x",)}, "cuda"),
        ({"builds": ("cupy-rocm-7-0",), "lacking": ("tinygrad",)}, None),
        ({}, None),
    ],
)
def test_choice(machine, machine_options, kind):
    machine(**machine_options)
    if kind is None:
        with pytest.raises(RuntimeError, match="no device to multiply on") as caught:
            _detect.best_device()
        for name in ("rocm:", "cuda:", "emulated:", "pip install"):
            assert name in str(caught.value)
    else:
        assert _detect.best_device().kind == kind


def test_reasons(machine):
    machine(cuda=Driver(2), builds=("cupy-rocm-7-0",), lacking=("elftools",))
    reasons = {found.kind: found.reason for found in _detect.find_devices()}
    assert reasons == {
        "rocm": "no AMD GPU (/dev/kfd)",
        "cuda": "2 NVIDIA GPU(s), but cupy-rocm-7-0 is installed",
        "emulated": "the package elftools is not installed",
    }


def test_this_machine_has_a_device():
    assert _detect.best_device().usable
    assert _detect.cupy_builds()
