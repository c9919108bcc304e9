"""The rules of the house, checked. Import directions are checked by ``lint-imports``, which is part of ``make check``.

A rule that stands in the way of good code is changed here, in the open, together with the document that states it.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.features import NOTHING_YET, ROOT, feature_table, paths_in

PACKAGE = ROOT / "src" / "pluribus"
TESTS = ROOT / "tests"

FILE_LINES_MAX = 600
MACHINE_LINES_MAX = 900
STATE_MACHINES = {
    "src/pluribus/group/keepers/ledger.py",
    "src/pluribus/pubsub/durable/machine.py",
    "src/pluribus/queues/machine.py",
    "src/pluribus/queues/messages.py",
    "src/pluribus/slots/occupant.py",
    "src/pluribus/spaces/machine.py",
    "src/pluribus/spaces/partitioned/member.py",
    "src/pluribus/spaces/views/member.py",
}
"""State machines that are one thing each: splitting them would hide how their states hang together."""
IMPORTED_MODULES_MAX = 324

DUMPING_GROUNDS = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}

# Protocols talk to the ports that they were handed, so that they run the same on sockets and in the simulator.
STYLES = ("pubsub", "queues", "spaces", "memory", "slots", "objects", "conversations")
PURE_ROOMS = ("core", "wire", "filters", "patterns", "transformations", "stack", "layers", "group", *STYLES)
IMPURE_MODULES = {
    "asyncio",
    "concurrent",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
    "uvloop",
}

DOORS = ("cli", "console", "gateways", "pipeline", "bench")  # the rooms that may print

# Loaded by those who use them, never by `import pluribus`.
HEAVY_MODULES = {
    "cryptography",
    "nats",
    "nicegui",
    "numpy",
    "pandas",
    "psycopg",
    "pyarrow",
    "pyspark",
    "rich",
    "sqlglot",
    "typer",
}

FEATURE_ROWS = {
    "B": 9,
    "S": 14,
    "D": 8,
    "G": 10,
    "P": 10,
    "Q": 9,
    "H": 5,
    "T": 5,
    "E": 2,
    "M": 8,
    "X": 7,
}


def sources(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of every import, also of those inside functions and behind TYPE_CHECKING."""
    package = path.relative_to(ROOT / "src").with_suffix("").parts[:-1]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            origin = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*origin, *([node.module] if node.module else [])))
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def complaints_of(found: list[str]) -> str:
    return "\n" + "\n".join(found)


# --- code -----------------------------------------------------------------------------------------------------------


def test_protocols_do_no_input_or_output():
    found = [
        f"{short(path)}:{line} imports {name}; ask for a port of core instead"
        for room in PURE_ROOMS
        for path in sources(PACKAGE / room)
        for line, name in imports(path)
        if name.partition(".")[0] in IMPURE_MODULES
    ]
    assert not found, complaints_of(found)


def test_files_are_short():
    found = []
    for path in sources(PACKAGE, TESTS):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        limit = MACHINE_LINES_MAX if short(path) in STATE_MACHINES else FILE_LINES_MAX
        if lines > limit:
            found.append(f"{short(path)} has {lines} lines, the limit is {limit}")
    assert not found, complaints_of(found)


def test_no_file_or_folder_is_a_dumping_ground():
    found = [
        short(path)
        for path in sources(PACKAGE, TESTS)
        if DUMPING_GROUNDS & {part.strip("_") for part in path.relative_to(ROOT).with_suffix("").parts}
    ]
    assert not found, complaints_of(found)


def test_no_bare_except():
    found = [
        f"{short(path)}:{node.lineno}"
        for path in sources(PACKAGE, TESTS)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert not found, complaints_of(found)


def test_only_doors_print():
    found = [
        f"{short(path)}:{node.lineno}"
        for path in sources(PACKAGE)
        if room_of(path) not in DOORS
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not found, complaints_of(found)


ONE_MEANING_ROOMS = ("runtime", "group", *STYLES, "access", "outbox", "tables", "transactions", "transformations")
WORD_FILES = {
    "commands.py",
    "crowd_words.py",
    "guests.py",
    "headers.py",
    "operations.py",
    "requests.py",
    "words.py",
}


def is_word(path: Path, node: ast.ClassDef) -> bool:
    """Words of the wire may share a name (``Commit``, ``Offer``): each belongs to the vocabulary of one style. A file
    that needs two of them imports the module and says ``words.Offer``. Only structs are words; the other classes of
    such a file have names like everybody."""
    return path.name in WORD_FILES and any(ast.unparse(base) in ("msgspec.Struct", "Header") for base in node.bases)


def is_synchronous_twin(path: Path) -> bool:
    """``pluribus.sync`` has the names of what it stands for, on purpose: a program changes its import and no more."""
    return path.is_relative_to(PACKAGE / "runtime" / "sync") or path.name == "sync.py"


def test_a_class_name_has_one_meaning():
    """Across ``runtime``, ``group`` and the styles: a reader who knows a name knows the class."""
    found: dict[str, list[str]] = {}
    for path in sources(*(PACKAGE / room for room in ONE_MEANING_ROOMS)):
        for node in parsed(path).body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            if not is_word(path, node) and not is_synchronous_twin(path):
                found.setdefault(node.name, []).append(f"{short(path)}:{node.lineno}")
    assert len(found) > 400, "else this shows nothing"
    twice = [f"{name} is the name of {' and '.join(places)}" for name, places in found.items() if len(places) > 1]
    assert not twice, complaints_of(twice)


# --- the public face ------------------------------------------------------------------------------------------------


def test_exported_names_are_the_agreed_ones():
    import pluribus

    agreed = (TESTS / "exported_names.txt").read_text(encoding="utf-8").split()
    assert agreed == sorted(agreed), "tests/exported_names.txt is not sorted"
    assert sorted(pluribus.__all__) == agreed, "a change of the public face is a line in tests/exported_names.txt"
    missing = [name for name in agreed if not hasattr(pluribus, name)]
    assert not missing, complaints_of(missing)


def test_importing_pluribus_is_light():
    """How long it takes is a figure of ``pluribus bench engines``; here is what it comes from."""
    script = "import sys; before = set(sys.modules); import pluribus; print(*(sys.modules.keys() - before))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = answer.stdout.split()
    assert not HEAVY_MODULES & {module.partition(".")[0] for module in modules}
    assert len(modules) < IMPORTED_MODULES_MAX


def test_nobody_has_to_import_from_the_runtime():
    """What programs name is in ``pluribus``, ``pluribus.types``, ``pluribus.sync`` or ``pluribus.styles``."""
    texts = [*documents(), *sorted((ROOT / "examples").rglob("*.py")), *sorted((ROOT / "examples").rglob("*.md"))]
    found = [
        f"{short(path)}:{number} {line.strip()}"
        for path in texts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\b(from|import)\s+pluribus\.runtime\b", line)
    ]
    assert not found, complaints_of(found)


def leaf_commands(command, name: str) -> Iterator[tuple[str, object]]:
    children = getattr(command, "commands", None)
    if not children:
        yield name, command
    else:
        for child_name, child in children.items():
            yield from leaf_commands(child, f"{name} {child_name}")


def test_every_verb_exists_and_takes_json():
    from pluribus.cli.app import VERBS, load_verb

    found = [
        f"pluribus {name} has no --json"
        for verb in VERBS
        for name, command in leaf_commands(load_verb(verb), verb)
        if not any("--json" in parameter.opts for parameter in command.params)
    ]
    assert not found, complaints_of(found)


def test_every_verb_is_documented():
    from pluribus.cli.app import VERBS

    texts = "\n".join(path.read_text(encoding="utf-8") for path in documents())
    found = [f"no document says `pluribus {verb}`" for verb in VERBS if not re.search(rf"\bpluribus {verb}\b", texts)]
    assert not found, complaints_of(found)


# --- documents ------------------------------------------------------------------------------------------------------


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_feature_table_has_every_row_once():
    expected = [f"{letter}{number}" for letter, count in FEATURE_ROWS.items() for number in range(1, count + 1)]
    assert [feature.row for feature in feature_table()] == expected


def test_a_feature_is_kept_whole_or_planned():
    """A row names a module, an example and a test, or its module column starts with "planned"."""
    found = [
        f"{feature.row}: {feature.module} | {feature.example} | {feature.test}"
        for feature in feature_table()
        if not feature.planned
        and not (paths_in(feature.module) and feature.example != NOTHING_YET and paths_in(feature.test))
    ]
    assert not found, complaints_of(found)


def test_the_feature_table_names_only_what_exists():
    from pluribus.cli.app import VERBS

    found = []
    for row, _, module, example, test in feature_table():
        for path in paths_in(module) + paths_in(example) + paths_in(test):
            file, _, function = path.partition("::")
            if not (ROOT / file).exists():
                found.append(f"{row}: {file} does not exist")
            elif function and not defines(ROOT / file, function.partition("[")[0]):
                found.append(f"{row}: {file} has no {function}")
        found += [
            f"{row}: there is no verb {verb}"
            for verb in re.findall(r"`pluribus ([a-z]+)", example)
            if verb not in VERBS
        ]
    assert not found, complaints_of(found)


def defines(path: Path, name: str) -> bool:
    """Whether a test file defines a function, or a class and a method of it (``Class::method``)."""
    names = {
        node.name
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    return set(name.split("::")) <= names


def test_links_between_documents_lead_somewhere():
    found = []
    for document in documents():
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8")):
            if "://" not in target and not (document.parent / target).exists():
                found.append(f"{short(document)} points to {target}")
    assert not found, complaints_of(found)


def repository_files() -> list[Path]:
    """What is in the repository or about to be: everything that git does not ignore."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listing.returncode != 0:
        pytest.skip("This is no git checkout, so there is no list of the project's own files.")
    return [ROOT / line for line in listing.stdout.splitlines() if (ROOT / line).is_file()]


def test_no_path_of_somebodys_machine_is_in_the_repository():
    # Spelled so that this file does not find itself.
    folders = ("work", "root", "home/[a-z]", "Users/[A-Z]")
    pattern = re.compile(r"(?<![\w.~-])/(?:" + "|".join(folders) + r")\w*/")
    found = []
    for path in repository_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{short(path)}:{number} {line.strip()[:100]}"
            for number, line in enumerate(lines, 1)
            if pattern.search(line)
        ]
    assert not found, complaints_of(found)
