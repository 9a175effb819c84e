from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

Follow = Callable[[Path], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def follow(tmp_path: Path) -> Follow:
    """Follow a page in a fresh copy of the project."""

    def run(page: Path) -> subprocess.CompletedProcess[str]:
        project, tools = tmp_path / "project", tmp_path / "tools"
        shutil.copytree(Path(__file__).parent / "project", project)
        tools.mkdir()
        return subprocess.run(
            [sys.executable, "-m", "tests.docs.follow", str(page), str(project), str(tools)],
            cwd=project,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "mysite.settings",
                "PYTHONPATH": f"{project}{os.pathsep}{ROOT}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )

    return run
