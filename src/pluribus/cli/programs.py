"""Finds the programs that Pluribus can use but never needs: servers, Java, a browser, network tools.

The tests find their servers with the same functions, so that a skipped test and ``pluribus doctor`` say the same
sentence. ``REMEDIES`` holds those sentences.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_VERSION_MIN = 17
ANSWER_TIMEOUT_S = 20.0  # a Java machine that starts on a busy host takes seconds

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
# Distributions keep servers where the PATH of an ordinary user does not look.
SERVER_FOLDERS = ("/usr/sbin", "/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin")
POSTGRES_FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/pgsql/bin",
    "/opt/homebrew/opt/postgresql*/bin",
)
PLAYWRIGHT_BROWSERS = ".cache/ms-playwright/chromium-*/chrome-linux*/chrome"

REMEDIES = {
    "java": "Install Java 17 or newer, e.g. 'apt-get install openjdk-17-jre-headless' as root, or set JAVA_HOME.",
    "browser": "Install Chromium, e.g. 'apt-get install chromium' as root.",
    "postgres": "Install the PostgreSQL server, e.g. 'apt-get install postgresql' as root.",
    "nats": "Install the NATS server, e.g. 'apt-get install nats-server' as root, or put it on the PATH.",
    "namespaces": "Install iproute2 and run as root, outside of a container that forbids network namespaces.",
}


def find_program(name: str) -> Path | None:
    """A program on the PATH or, failing that, where distributions put servers."""
    path = shutil.which(name) or shutil.which(name, path=os.pathsep.join(SERVER_FOLDERS))
    return Path(path) if path else None


def first_line(*command: str | Path) -> str | None:
    """The first line that a program prints, on either stream; None if it cannot run or fails."""
    try:
        answer = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=ANSWER_TIMEOUT_S, text=True, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return answer.stdout.strip().partition("\n")[0]


def _expand(patterns: tuple[str, ...]) -> list[Path]:
    """Existing paths for absolute patterns; the highest version first."""
    found = [path for pattern in patterns for path in Path("/").glob(pattern.lstrip("/"))]
    return sorted(found, key=lambda path: [int(digits) for digits in re.findall(r"\d+", str(path))], reverse=True)


def java_version(java: Path) -> int | None:
    """17 for '17.0.2', 8 for '1.8.0_392'; None if it does not run."""
    answer = re.search(r'version "(?:1\.)?(\d+)', first_line(java, "-version") or "")
    return int(answer[1]) if answer else None


def find_java() -> tuple[Path, int] | None:
    """A Java that is new enough, and its version. Looks where Spark looks: JAVA_HOME, then the PATH."""
    candidates = [Path(os.environ["JAVA_HOME"], "bin", "java")] if os.environ.get("JAVA_HOME") else []
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    for java in candidates:
        version = java_version(java) if java.exists() else None
        if version is not None and version >= JAVA_VERSION_MIN:
            return java, version
    return None


def find_browser() -> Path | None:
    for name in BROWSERS:
        if path := shutil.which(name):
            return Path(path)
    return next(iter(sorted(Path.home().glob(PLAYWRIGHT_BROWSERS), reverse=True)), None)


def find_postgres_folder() -> Path | None:
    """The folder that holds ``initdb`` and a ``postgres`` that runs."""
    on_path = shutil.which("postgres")
    # The program on the PATH may be a link; initdb expects its neighbours beside the real one.
    folders = [Path(on_path).resolve().parent] if on_path else []
    for folder in folders + _expand(POSTGRES_FOLDERS):
        if (folder / "initdb").exists() and first_line(folder / "postgres", "--version"):
            return folder
    return None


def find_nats_server() -> Path | None:
    return find_program("nats-server")


def can_make_namespaces() -> bool:
    """True if this process may create network namespaces: tried in a child that ends at once."""
    return find_program("ip") is not None and first_line("unshare", "--net", "echo", "yes") == "yes"
