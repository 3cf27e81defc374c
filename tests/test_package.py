"""The wheel: what is in it, what it says about itself, and what each way to install it can do."""

import email
import email.message
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import rnc

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
NOT_FOR_USERS = {"all", "dev", "docs"}
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: setuptools leaves folders beside the source."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    without = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=without)
    subprocess.run([sys.executable, "-c", BUILD, "."], cwd=folder, check=True, capture_output=True)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """A folder with the wheel installed, and nothing else."""
    target = wheel.parent / "installed"
    words = ["install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True)
    return target


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = (name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        return email.message_from_string(archive.read(name).decode())


def names_of(requirements: list[str] | None, *, extra: str = "") -> set[str]:
    """The packages that requirements name here, with the extra or without one."""
    wanted = [Requirement(text) for text in requirements or ()]
    return {
        canonicalize_name(one.name)
        for one in wanted
        if one.marker is None or one.marker.evaluate({"extra": extra})
    }


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    source = ROOT / "src" / "rnc"
    files = [path for path in source.rglob("*") if path.is_file()]
    ours = {
        f"rnc/{p.relative_to(source).as_posix()}" for p in files if "__pycache__" not in p.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    about = {name for name in inside if name.startswith(f"rank_n_contrast-{rnc.__version__}.dist")}
    assert inside - about == ours
    assert {Path(name).suffix for name in ours} >= {".py", ".typed", ".csv", ".html", ".css", ".js"}
    assert any(name.endswith("licenses/LICENSE") for name in about)
    assert wheel.name == f"rank_n_contrast-{rnc.__version__}-py3-none-any.whl"
    assert wheel.stat().st_size < 2**20, (
        "a wheel of code and one page: 0.7 MB when this was written"
    )


def test_the_metadata_say_what_an_index_shows(metadata: email.message.Message) -> None:
    assert metadata["Name"] == "rank-n-contrast"
    assert metadata["Version"] == rnc.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == f">={VERSIONS[0]}"
    classifiers = metadata.get_all("Classifier") or []
    prefix = "Programming Language :: Python :: 3."
    assert tuple(c.split(" :: ")[2] for c in classifiers if c.startswith(prefix)) == VERSIONS
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = str(metadata.get_payload())
    assert description.strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()
    assert set(metadata.get_all("Provides-Extra") or []) == set(PROJECT["optional-dependencies"])


def test_everything_is_every_extra_for_users() -> None:
    extras = PROJECT["optional-dependencies"]
    named = [Requirement(text) for text in extras["all"]]
    assert {one.name for one in named} == {"rank-n-contrast"}
    listed = [extra for one in named for extra in one.extras]
    assert sorted(listed) == sorted(set(extras) - NOT_FOR_USERS), "add each new extra to `all`"


def test_every_requirement_of_an_extra_is_pinned_for_ci() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    pinned = {canonicalize_name(line.split("==")[0]) for line in lines}
    assert len(pinned) == len(lines), "a name twice"
    wanted = names_of(PROJECT["dependencies"])
    for requirements in PROJECT["optional-dependencies"].values():
        wanted |= names_of(requirements)
    assert wanted - pinned == {"rank-n-contrast"}


# ---------------------------------------------------------------------------- the loss, with torch


def with_requirements(name: str) -> set[str]:
    """A package and all that it needs, as pip would install them here."""
    found: set[str] = set()
    waiting = {name}
    while waiting:
        one = waiting.pop()
        try:
            requires = distribution(one).requires
        except PackageNotFoundError:  # of another platform
            continue
        found.add(one)
        waiting |= names_of(requires) - found
    return found


@pytest.fixture(scope="module")
def beside_torch(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of the wheel, torch and what torch needs: links to what is installed here."""
    folder = tmp_path_factory.mktemp("beside_torch")
    for name in with_requirements("torch"):
        here = distribution(name)
        for top in {file.parts[0] for file in here.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).is_symlink():
                (folder / top).symlink_to(Path(str(here.locate_file(top))))
    (folder / "rnc").symlink_to(installed / "rnc")
    return folder


LOSS_ALONE = """
import json, sys
sys.path.append(sys.argv[1])
import rnc, rnc.loss, torch
from rnc import RnCLoss, circular, rnc_loss, theory
features = torch.randn(8, 4, requires_grad=True)
targets = torch.arange(8.0)
rnc_loss(features, targets).backward()
says = ""
try:
    rnc.fit
except ImportError as error:
    says = str(error)
print(json.dumps({
    "file": rnc.__file__, "gradient": features.grad.abs().sum().item(),
    "module": RnCLoss()(features, targets).item(), "bound": theory.lower_bound(targets).item(),
    "circle": circular(24)(targets[:1, None], targets[5:6, None]).item(), "fit": says,
}))
"""


def test_the_loss_needs_torch_alone(beside_torch: Path) -> None:
    assert not (beside_torch / "numpy").exists()
    command = [sys.executable, "-I", "-S", "-W", "ignore", "-c", LOSS_ALONE, str(beside_torch)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["file"] == str(beside_torch / "rnc" / "__init__.py")
    assert told["gradient"] > 0
    assert 0 < told["bound"] < told["module"]
    assert told["circle"] == 5
    assert told["fit"].startswith("rnc.fit needs ")
    assert "`pip install rank-n-contrast` without --no-deps" in told["fit"]


def test_without_its_requirements_the_command_says_what_to_install(installed: Path) -> None:
    code = "import sys; sys.path.append(sys.argv[1]); from rnc.__main__ import main; main()"
    command = [sys.executable, "-I", "-S", "-c", code, str(installed)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == (
        "The command rnc needs typer, which is not installed. The loss needs torch alone; for all "
        "the rest, `pip install rank-n-contrast` without --no-deps.\n"
    )


# ------------------------------------------------------------------------------------ the main job


def test_the_installed_command_is_that_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    where = [sys.executable, "-c", "import rnc; print(rnc.__file__)"]
    for words, answer in (
        ([str(installed / "bin" / "rnc"), "--version"], f"rnc {rnc.__version__}"),
        ([sys.executable, "-m", "rnc", "--version"], f"rnc {rnc.__version__}"),
        (where, str(installed / "rnc" / "__init__.py")),
    ):
        result = subprocess.run(
            words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert result.stdout.strip() == answer
