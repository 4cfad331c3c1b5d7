"""Generates the messages of lowkey.v1 from the .proto files while the package is built.

The files are in ../../proto of the repository, or in proto/ of an unpacked source distribution.
"""

import importlib.metadata
import pathlib
import re
import shutil
import sys

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ("generation", "models", "admin", "status")


def proto_folder():
    for folder in (HERE / "proto", HERE.parent.parent / "proto"):
        if (folder / "lowkey" / "v1" / "generation.proto").is_file():
            return folder
    sys.exit(f"no lowkey/v1/generation.proto in {HERE / 'proto'} or {HERE.parent.parent / 'proto'}")


def generate(folder):
    """Writes lowkey/v1/*_pb2.py, their .pyi and *_pb2_grpc.py under `folder`."""
    import grpc_tools
    from grpc_tools import protoc

    protos = proto_folder()
    included = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    files = [f"lowkey/v1/{name}.proto" for name in NAMES]
    arguments = ["protoc", f"--proto_path={protos}", f"--proto_path={included}",
                 f"--python_out={folder}", f"--pyi_out={folder}",
                 f"--grpc_python_out={folder}", *files]
    if protoc.main(arguments) != 0:
        sys.exit("protoc failed: " + " ".join(arguments))
    (pathlib.Path(folder) / "lowkey" / "v1" / "__init__.py").write_text(
        '"""The messages of lowkey.v1, generated from the .proto files."""\n')


class BuildPy(build_py):
    """Puts generated messages into the wheel, or beside the sources for an editable one."""

    def run(self):
        super().run()
        generate(HERE / "src" if self.editable_mode else self.build_lib)


class Sdist(sdist):
    """Takes the .proto files along."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        target = pathlib.Path(base_dir) / "proto" / "lowkey" / "v1"
        target.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            shutil.copy(proto_folder() / "lowkey" / "v1" / f"{name}.proto", target)


def dependencies():
    """The generated code runs with the protobuf and the grpcio that its generator asks for, and
    with later ones of the same major version."""
    needed = [text.split(";")[0].strip() for text in importlib.metadata.requires("grpcio-tools")
              if re.match(r"(protobuf|grpcio)\b", text)]
    return [*needed, "typing_extensions>=4.6"]


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist}, install_requires=dependencies())
