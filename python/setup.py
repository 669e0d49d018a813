"""Builds libweft with CMake into the wheel. Its source is the checkout that this folder lies in; WEFT_LIBRARY names a build to take
instead. The wheel is one of a platform, not of a Python: it holds a C library and ctypes."""
import os
import pathlib
import re
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent


def version():
    numbers = re.findall(r"#define WEFT_VERSION_\w+ (\d+)", (SOURCE / "include/weft.h").read_text())
    return ".".join(numbers)


class Build(build_py):
    def run(self):
        super().run()
        lib = pathlib.Path(self.build_lib) / "weft/lib"
        lib.mkdir(parents=True, exist_ok=True)
        given = os.environ.get("WEFT_LIBRARY")
        folder = pathlib.Path(given).resolve().parent if given else self.cmake()
        shutil.copyfile(given or folder / "libweft.so", lib / "libweft.so")
        for plugin in folder.glob("libweft-mpi-*.so"):  # libweft looks for them beside itself
            shutil.copyfile(plugin, lib / plugin.name)

    def cmake(self):
        folder = pathlib.Path(self.get_finalized_command("build").build_temp).resolve() / "cmake"
        jobs = os.environ.get("JOBS") or str(os.cpu_count())
        try:
            subprocess.run(["cmake", "-S", str(SOURCE), "-B", str(folder), "-DWEFT_TESTS=OFF"], check=True)
            targets = ["weft_shared", *[f"weft-mpi-{m}" for m in ("openmpi", "mpich") if shutil.which(f"mpicc.{m}")]]
            subprocess.run(["cmake", "--build", str(folder), "-j", jobs, "--target", *targets], check=True)
        except FileNotFoundError:
            raise SystemExit("CMake is missing: `make deps` installs what Weft is built with")
        except subprocess.CalledProcessError as e:
            raise SystemExit(f"libweft could not be built ({' '.join(e.cmd[:3])} ..): `make deps` installs what it needs")
        return folder


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Platform(Distribution):
    def has_ext_modules(self):
        return True


setup(version=version(), cmdclass={"build_py": Build, "bdist_wheel": Wheel}, distclass=Platform)
