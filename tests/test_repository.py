"""Workflows, image, templates: the files around the package agree with it."""

import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

import rnc

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
REGISTRIES = [
    f"{name}.{top}"
    for name, top in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("download.pytorch", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("anaconda", "org"),
    )
]


def read(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


# --------------------------------------------------------------------------------------- workflows


def test_the_workflow_does_what_ci_does_for_every_python_that_the_package_names() -> None:
    job = read(GITHUB / "workflows" / "ci.yml")["jobs"]["checks"]
    assert commands(job) == [".ci/run"]
    prefix = "Programming Language :: Python :: 3."
    named = [c.split(" :: ")[2] for c in PROJECT["classifiers"] if c.startswith(prefix)]
    assert job["strategy"]["matrix"]["python"] == named
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100


def test_the_workflow_installs_every_flavour_of_the_wheel() -> None:
    job = read(GITHUB / "workflows" / "ci.yml")["jobs"]["wheel"]
    [command] = commands(job)
    script = (ROOT / command.split()[1]).read_text(encoding="utf-8")
    flavours = re.findall(r'^    "(\w+)": Flavour\(', script, flags=re.MULTILINE)
    assert job["strategy"]["matrix"]["flavour"] == flavours


@pytest.mark.parametrize("name", ["ci.yml", "release.yml"])
def test_a_workflow_has_few_rights_and_ends(name: str) -> None:
    workflow = read(GITHUB / "workflows" / name)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 90
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert "@" in step.get("uses", "@")
            assert "secrets." not in str(step)  # trusted publishing needs none


def test_a_release_is_built_and_checked_before_it_is_published() -> None:
    jobs = read(GITHUB / "workflows" / "release.yml")["jobs"]
    steps = commands(jobs["build"])
    order = [".ci/run", "python -m build", "python -m twine check --strict dist/*"]
    assert [step for step in steps if step in order] == order
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["notes"]["needs"] == "publish"


def test_the_notes_of_a_release_are_its_part_of_the_changelog(tmp_path: Path) -> None:
    jobs = read(GITHUB / "workflows" / "release.yml")["jobs"]
    [command] = (step for step in commands(jobs["build"]) if "notes.md" in step)
    log = "# Changelog\n\n## Unreleased\n\n## 0.2.0 (2026-01-02)\n\n- new\n\n## 0.1.0\n\n- old\n"
    (tmp_path / "CHANGELOG.md").write_text(log)

    def write_notes(tag: str) -> int:
        words = ["bash", "-e", "-c", command]
        environment = {"GITHUB_REF_NAME": tag, "PATH": "/usr/bin:/bin"}
        return subprocess.run(words, cwd=tmp_path, env=environment, check=False).returncode

    assert write_notes("v0.2.0") == 0
    assert (tmp_path / "notes.md").read_text().split() == ["-", "new"]
    assert write_notes("v0.3.0") != 0  # no notes, no release


def test_the_tag_of_a_release_must_be_the_version() -> None:
    jobs = read(GITHUB / "workflows" / "release.yml")["jobs"]
    [command] = (step for step in commands(jobs["build"]) if "rnc.__version__" in step)
    for tag, status in ((f"v{rnc.__version__}", 0), ("v99.0.0", 1), (rnc.__version__, 1)):
        script = f'GITHUB_REF_NAME={tag}; python() {{ {sys.executable} "$@"; }}; {command}'
        words = ["bash", "-c", script]
        assert subprocess.run(words, cwd=ROOT, check=False).returncode == status


# --------------------------------------------------------------------------------------- templates


def test_templates_of_issues_are_forms_with_names_of_their_own() -> None:
    forms = [read(p) for p in GITHUB.glob("ISSUE_TEMPLATE/*.yml") if p.name != "config.yml"]
    assert len(forms) == 2
    for form in forms:
        assert form["name"]
        assert form["description"]
        assert {part["type"] for part in form["body"]} <= {
            "markdown", "textarea", "input", "dropdown", "checkboxes",
        }  # fmt: skip
        fields = [part for part in form["body"] if part["type"] != "markdown"]
        names = [part["id"] for part in fields]
        assert len(set(names)) == len(names) > 3
        assert all(part["attributes"]["label"] for part in fields)
    texts = "".join(p.read_text(encoding="utf-8") for p in GITHUB.rglob("*") if p.is_file())
    named = re.findall(r"\b(docs/[\w/]+\.md|[A-Z]+\.md|\.ci/\w+)\b", texts)
    assert {"SECURITY.md", "CHANGELOG.md", "docs/extending.md"} <= set(named)
    assert not [file for file in named if not (ROOT / file).exists()]


# ------------------------------------------------------------------------------------------- image


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each on one line: (name, words)."""
    lines = "\n".join(line for line in DOCKERFILE.splitlines() if not line.startswith("#"))
    whole = [line for line in lines.replace("\\\n", " ").splitlines() if line.strip()]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in whole]


def test_the_image_runs_rnc_without_rights_of_root() -> None:
    found = instructions()
    names = [name for name, _ in found]
    last = dict(found)  # the last of each name counts
    assert last["ENTRYPOINT"] == '["rnc"]'
    assert last["USER"] == "rnc"
    assert "useradd --uid 1000 --create-home rnc" in DOCKERFILE
    assert names.index("USER") > max(n for n, name in enumerate(names) if name == "RUN")
    assert "ADD" not in names
    assert ":latest" not in DOCKERFILE


def test_the_image_asks_the_package_index_alone() -> None:
    runs = [words for name, words in instructions() if name == "RUN"]
    assert len(runs) == 3
    for words in runs:
        subprocess.run(["sh", "-n", "-c", words], check=True)
        assert not re.search(r"\b(apt|apt-get|apk|curl|wget|git)\b", words)
        assert "pip" not in words or "--no-cache-dir" in words
    installs = [words for words in runs if "pip install" in words]
    assert all("--constraint /tmp/constraints.txt" in words for words in installs)


def test_the_context_of_the_image_is_what_it_copies() -> None:
    copied = [words.split()[:-1] for name, words in instructions() if name == "COPY"]
    files = {file for words in copied for file in words if not words[0].startswith("--from")}
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == files
    assert all((ROOT / file).exists() for file in files)


# ---------------------------------------------------------------------------------------- the rest


def test_no_file_names_the_host_of_a_package_registry() -> None:
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    texts = [p for p in paths if p.is_file() and not fnmatch(p.name, "*.png")]
    found = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in texts
        for host in REGISTRIES
        if host in path.read_text(encoding="utf-8", errors="replace")
    ]
    assert len(texts) > 400
    assert found == []
