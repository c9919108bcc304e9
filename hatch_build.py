"""Compiles ``pluribus/_speed/c/quick.c`` when the package is built or installed.

Without a C compiler, or the headers of Python, the package works all the same: all of it is there in Python, too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "pluribus._speed._quick"
SOURCE = "src/pluribus/_speed/c/quick.c"


class Compile(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        try:
            made = compiled(Path(self.root))
        except Exception as error:  # noqa: BLE001 - whatever a tool chain complains of: it is not needed
            print(
                f"pluribus: {SOURCE} was not compiled ({error}); the package works without, more slowly",
                file=sys.stderr,
            )
            return
        if version != "editable":
            build_data["artifacts"].append(f"/{made}")
            build_data["pure_python"] = False
            build_data["infer_tag"] = True


def compiled(root: Path) -> str:
    """Beside its source, where an editable installation looks for it; the path of what was made."""
    from setuptools import Distribution, Extension

    extension = Extension(NAME, [str(root / SOURCE)], extra_compile_args=[] if sys.platform == "win32" else ["-O2"])
    command: Any = Distribution({"ext_modules": [extension]}).get_command_obj("build_ext")
    command.build_lib = str(root / "src")
    command.build_temp = str(root / "build")
    command.force = True
    command.ensure_finalized()
    command.run()
    return f"src/{command.get_ext_filename(NAME)}"
