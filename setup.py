"""Put cupygemm_startup.pth beside the packages, which pyproject.toml alone cannot express.

Everything else about the package is in pyproject.toml.
"""

from pathlib import Path

from setuptools import Command, setup
from setuptools.command.build import build

STARTUP_FILE = "cupygemm_startup/cupygemm_startup.pth"


class BuildStartupFile(Command):
    """Add the file that Python reads when it starts to a wheel or to an editable wheel.

    The methods and the attribute `editable_mode` are the protocol of setuptools' ``build``.
    """

    editable_mode = False
    user_options = ()

    def initialize_options(self) -> None:
        """Set the options to None: ``build`` has them."""
        self.build_lib = None

    def finalize_options(self) -> None:
        """Take the directory that becomes the root of a wheel."""
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self) -> None:
        """Copy the file, for an editable wheel with the path of this checkout as another line.

        Python asks setuptools' finder of editable packages after those of `sys.path`. Without the
        path, a program next to a clone, which is a folder named cupygemm, would import the folder.
        """
        if not self.editable_mode:
            self.copy_file(STARTUP_FILE, self.build_lib)
            return
        # An editable wheel holds nothing of build_lib; its root is where packages are installed to.
        root = Path(self.get_finalized_command("install").install_purelib)
        here = Path(__file__).resolve().parent
        (root / "cupygemm_startup.pth").write_text(f"{(here / STARTUP_FILE).read_text()}{here}\n")

    def get_source_files(self) -> list[str]:
        """Return what a source distribution needs."""
        return [STARTUP_FILE]

    def get_outputs(self) -> list[str]:
        """Return the files in `build_lib`."""
        return [] if self.editable_mode else [f"{self.build_lib}/cupygemm_startup.pth"]

    def get_output_mapping(self) -> dict[str, str]:
        """Return the source of each output."""
        return dict.fromkeys(self.get_outputs(), STARTUP_FILE)


class Build(build):
    """The standard build, and the start-up file."""

    sub_commands = (*build.sub_commands, ("build_startup_file", None))


setup(cmdclass={"build": Build, "build_startup_file": BuildStartupFile})
