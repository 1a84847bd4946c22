"""Facts in the project's files for contributors: targets, versions, addresses, links."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from cupygemm._version import __version__

ROOT = Path(__file__).resolve().parent.parent
GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(p for p in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if p.stem != "config")
TEXTS = ["CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "README.md", "CHANGELOG.md"]
RELEASES = "docs/developer/releases.rst"
CLASSIFIER = "Programming Language :: Python :: 3."


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def supported_pythons() -> list[str]:
    """Return the versions of Python that the classifiers name."""
    found = [text for text in PROJECT["classifiers"] if text.startswith(CLASSIFIER)]
    return [text.rpartition(" ")[2] for text in found]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def words_after_make(text: str) -> list[str]:
    """Return the words after ``make`` in a text's commands, without options and variables."""
    commands = [line.partition("#")[0] for line in text.splitlines()]
    found = [match[1] for line in commands for match in re.finditer(r"\bmake( [a-z -]+)", line)]
    return [word for words in found for word in words.split()]


def commands_of(path: Path) -> str:
    """Return the commands of a workflow, or the code of a document."""
    text = path.read_text(encoding="utf-8")
    if path in WORKFLOWS:
        jobs = load(path)["jobs"].values()
        return "\n".join(step["run"] for job in jobs for step in job["steps"] if "run" in step)
    blocks = re.findall(r"```sh\n(.*?)```|`+([^`]+)`+", text, re.DOTALL)
    return "\n".join(block or inline for block, inline in blocks)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_on_every_supported_python(path: Path) -> None:
    jobs = load(path)["jobs"]
    for job in jobs.values():
        assert job["strategy"]["matrix"]["python"] == supported_pythons()


def test_workflows_call_what_contributors_run() -> None:
    commands = "\n".join(commands_of(path) for path in WORKFLOWS)
    for command in (".ci/run", "make docs", "pip wheel"):
        assert command in commands


@pytest.mark.parametrize(
    "path",
    [*WORKFLOWS, ROOT / "CONTRIBUTING.md", GITHUB / "pull_request_template.md", ROOT / RELEASES],
    ids=lambda path: path.name,
)
def test_make_targets_that_are_named_exist(path: Path) -> None:
    words = words_after_make(commands_of(path))
    assert words
    assert set(words) <= make_targets()


def test_python_versions_agree() -> None:
    spec = importlib.util.spec_from_file_location("setup", ROOT / "tools" / "setup_environment.py")
    assert spec is not None
    assert spec.loader is not None
    setup = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(setup)
    oldest, newest = (".".join(map(str, version)) for version in (setup.OLDEST, setup.NEWEST))
    assert supported_pythons() == [f"3.{minor}" for minor in range(11, setup.NEWEST[1] + 1)]
    assert (supported_pythons()[0], supported_pythons()[-1]) == (oldest, newest)
    assert PROJECT["requires-python"] == f">={oldest}"
    for name in ("README.md", "CONTRIBUTING.md", RELEASES, "tools/setup_environment.py"):
        assert f"{oldest} to {newest}" in (ROOT / name).read_text()


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_are_complete(path: Path) -> None:
    form = load(path)
    assert {"name", "description", "labels", "body"} <= form.keys()
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))
    for field in form["body"]:
        assert field["type"] == "textarea"
        assert {"label", "description"} <= field["attributes"].keys()


def test_there_is_a_form_for_each_kind_of_issue() -> None:
    assert {path.stem for path in FORMS} == {"bug", "kernel", "performance", "wrong_result"}


def test_the_citation_matches_the_package() -> None:
    citation = load(ROOT / "CITATION.cff")
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"]
    assert citation["authors"] == PROJECT["authors"]


@pytest.mark.parametrize(
    "path",
    [ROOT / "SECURITY.md", ROOT / "CODE_OF_CONDUCT.md", GITHUB / "ISSUE_TEMPLATE/config.yml"],
)
def test_private_reports_go_to_one_address(path: Path) -> None:
    assert f"{PROJECT['urls']['Source']}/security/advisories/new" in path.read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("name", TEXTS)
def test_links_to_files_lead_somewhere(name: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / name).read_text())
    missing = [t for t in targets if "://" not in t and not (ROOT / t).exists()]
    assert missing == []


def test_the_changelog_has_a_section_for_this_version() -> None:
    headings = re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    wanted = "Unreleased" if "dev" in __version__ else __version__
    assert headings[0].startswith(wanted)
