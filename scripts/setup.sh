#!/usr/bin/env bash
# Makes this checkout ready to run: a virtual environment with the package and all its extras, what compiles a part of
# it, and Java for Spark. `setup.sh test` then gets what some tests start: servers of NATS, Redis, MQTT, RabbitMQ and
# PostgreSQL, `ip` for network namespaces, Chromium for the console.
#
# Only Python is essential. What else is missing is installed from the distribution where that is allowed (root, with
# apt-get); anywhere else one sentence says what is missing and how to get it, and the tests that need it are skipped.
# Running it again with nothing changed returns at once.
#
#   PYTHON=...                      the interpreter to use, instead of the first 3.11 or newer on the path
#   PLURIBUS_SYSTEM_PACKAGES=skip   never install anything outside .venv
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=.venv
case ${1:-run} in
    run) STAMP=$VENV/.ready THINGS=(compiler headers java) ;;
    test) STAMP=$VENV/.tools THINGS=(nats redis mqtt rabbit postgres ip browser) ;;
    *) echo "setup: there is no '$1': say run or test" >&2; exit 2 ;;
esac
PYTHON_VERSION_MIN="3.11"
JAVA_VERSION_MIN=17

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

fingerprint() { cat pyproject.toml constraints.txt scripts/setup.sh scripts/compile_spark.py hatch_build.py src/pluribus/_speed/c/* | cksum; }

already_done() {
    [ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$(fingerprint)" ] && "$VENV/bin/python" -c "import msgspec" 2>/dev/null
}

# --- the distribution's packages ------------------------------------------------------------------------------------

may_install() {
    [ "${PLURIBUS_SYSTEM_PACKAGES:-}" != skip ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null
}

LISTS_UPDATED=no
update_lists() {
    [ "$LISTS_UPDATED" = no ] || return 1
    LISTS_UPDATED=yes
    say "refreshing the package lists"
    apt-get update -qq >/dev/null 2>&1 || true
}

available() { [[ $(apt-cache policy "$1" 2>/dev/null) =~ Candidate:\ [^\(] ]]; }

first_available() { # prints the first of its arguments that the distribution has
    local package
    for package in "$@"; do
        if available "$package"; then echo "$package"; return 0; fi
    done
    return 1
}

POLICY=/usr/sbin/policy-rc.d
POLICY_IS_OURS=no
remove_policy() { if [ "$POLICY_IS_OURS" = yes ]; then rm -f "$POLICY"; fi; }
trap remove_policy EXIT

install_packages() {
    # Tests start their own servers on free ports; the packages must not start theirs.
    if [ ! -e "$POLICY" ]; then
        POLICY_IS_OURS=yes
        printf '#!/bin/sh\nexit 101\n' >"$POLICY"
        chmod +x "$POLICY"
    fi
    say "installing $* from the distribution"
    local log
    log=$(mktemp)
    local attempt=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends
        -o DPkg::Lock::Timeout=120 "$@")
    # A second try with fresh lists: old lists name package files that the mirrors have dropped.
    if "${attempt[@]}" >"$log" 2>&1 || { update_lists && "${attempt[@]}" >"$log" 2>&1; }; then
        rm -f "$log"
        return 0
    fi
    say "apt-get could not install $*; its last words were: $(tail -n 1 "$log")"
    rm -f "$log"
    return 1
}

# --- what the tests start -------------------------------------------------------------------------------------------

java_works() { # where Spark looks for it: JAVA_HOME, then the path
    local java answer
    for java in "${JAVA_HOME:-/nonexistent}/bin/java" "$(command -v java || true)"; do
        [ -x "$java" ] || continue
        answer=$("$java" -version 2>&1) || continue
        [[ $answer =~ version\ \"(1\.)?([0-9]+) ]] && [ "${BASH_REMATCH[2]}" -ge "$JAVA_VERSION_MIN" ] && return 0
    done
    return 1
}

found() { # a program on the path or in the folders that distributions keep servers in
    local name=$1 folder
    command -v "$name" >/dev/null && return 0
    for folder in /usr/sbin /sbin /usr/local/bin /usr/local/sbin; do
        [ -x "$folder/$name" ] && return 0
    done
    return 1
}

postgres_works() {
    local folder
    for folder in "$(dirname "$(command -v postgres || echo /nonexistent/postgres)")" \
        /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/local/pgsql/bin; do
        [ -x "$folder/initdb" ] && "$folder/postgres" --version >/dev/null 2>&1 && return 0
    done
    return 1
}

headers_there() {
    "$VENV/bin/python" -c 'import os, sysconfig as s, sys; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))'
}

have() {
    case $1 in
        compiler) found cc ;;
        headers) headers_there ;;
        java) java_works ;;
        nats) found nats-server ;;
        redis) found redis-server ;;
        mqtt) found mosquitto ;;
        rabbit) found rabbitmq-server ;;
        postgres) postgres_works ;;
        ip) found ip ;;
        browser) found chromium || found chromium-browser ;;
    esac
}

packages_for() { # the names under which distributions carry it, best first
    case $1 in
        compiler) echo build-essential ;;
        headers) echo "python$("$VENV/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-dev" ;;
        java) echo "openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless" ;;
        nats) echo nats-server ;;
        redis) echo redis-server ;;
        mqtt) echo mosquitto ;;
        rabbit) echo rabbitmq-server ;;
        postgres) echo postgresql ;;
        ip) echo iproute2 ;;
        browser) echo chromium chromium-browser ;;
    esac
}

sentence_for() {
    case $1 in
        compiler) echo "A C compiler is missing, so sending and reading are in Python, more slowly; install one, e.g. 'apt-get install build-essential' as root." ;;
        headers) echo "The headers of Python are missing, so sending and reading are in Python, more slowly; install them, e.g. 'apt-get install python3-dev' as root." ;;
        java) echo "Java $JAVA_VERSION_MIN or newer is missing, so Spark takes no part in the demo and its tests are skipped; install it, e.g. 'apt-get install openjdk-17-jre-headless' as root, or set JAVA_HOME." ;;
        nats) echo "nats-server is missing, so tests of the NATS engine are skipped; install it, e.g. 'apt-get install nats-server' as root, or put the binary of nats.io on the PATH." ;;
        redis) echo "redis-server is missing, so comparisons with Redis are skipped; install it, e.g. 'apt-get install redis-server' as root." ;;
        mqtt) echo "mosquitto is missing, so comparisons with MQTT are skipped; install it, e.g. 'apt-get install mosquitto' as root." ;;
        rabbit) echo "rabbitmq-server is missing, so comparisons with RabbitMQ are skipped; install it, e.g. 'apt-get install rabbitmq-server' as root." ;;
        postgres) echo "The PostgreSQL server is missing, so tests of the PostgreSQL store are skipped; install it, e.g. 'apt-get install postgresql' as root." ;;
        browser) echo "Chromium is missing, so tests of the console are skipped; install it, e.g. 'apt-get install chromium' as root." ;;
        ip) echo "The command 'ip' is missing, so tests in network namespaces are skipped; install it, e.g. 'apt-get install iproute2' as root." ;;
    esac
}

install_missing_things() {
    local thing package wanted=()
    for thing in "${THINGS[@]}"; do
        have "$thing" && continue
        # shellcheck disable=SC2046  # the names are meant to be split
        package=$(first_available $(packages_for "$thing")) \
            || { update_lists && package=$(first_available $(packages_for "$thing")); } || continue
        wanted+=("$package")
    done
    [ ${#wanted[@]} = 0 ] || install_packages "${wanted[@]}" || true
}

report_missing_things() {
    local thing
    for thing in "${THINGS[@]}"; do
        have "$thing" || say "$(sentence_for "$thing")"
    done
}

# --- Python ---------------------------------------------------------------------------------------------------------

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

make_environment() {
    local python version
    python=$(find_python) || fail "Python $PYTHON_VERSION_MIN or newer is missing; install it or name it with PYTHON=/path/to/python."
    version=$("$python" -c 'import platform; print(platform.python_version())')
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        # Debian splits these off; an interpreter from elsewhere always has them.
        if may_install; then
            local series=${version%.*}
            available "python$series-venv" || update_lists || true
            install_packages "python$series-venv" || true
        fi
        "$python" -c 'import ensurepip, venv' 2>/dev/null \
            || fail "$python cannot make virtual environments; install its venv module, e.g. 'apt-get install python3-venv' as root."
    fi
    say "making $VENV with Python $version"
    "$python" -m venv --clear "$VENV"
}

install_python_packages() {
    say "installing Python packages (some minutes the first time, Spark alone is 450 MB)"
    # Twice quiet: errors only. Constraints reach the build backend too, through the environment.
    PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
        "$VENV/bin/python" -m pip install -qq --no-input -e '.[all,dev,peers]' \
        || fail "pip could not install the packages; its reason is above."
    # As pip does for packages that are not editable: imports stay quick where Python may not write bytecode itself.
    "$VENV/bin/python" -m compileall -q src/pluribus
}

prepare_spark() {
    say "preparing Spark's classes, so that Java starts in half the time (half a minute and 200 MB, once)"
    local reason
    reason=$("$VENV/bin/python" scripts/compile_spark.py 2>&1) \
        || say "Spark's Python modules could not be compiled, so its workers start more slowly: ${reason##*$'\n'}"
    reason=$("$VENV/bin/python" -m pluribus.pipeline.class_archive 2>&1) \
        || say "Spark's classes could not be prepared, so Java starts more slowly: ${reason##*$'\n'}"
}

# --------------------------------------------------------------------------------------------------------------------

if already_done; then
    touch "$STAMP" # newer than its sources again, so that make does not ask
    exit 0
fi
rm -f "$STAMP"
"$VENV/bin/python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || make_environment
if may_install; then install_missing_things; fi
[ "$STAMP" = "$VENV/.tools" ] || install_python_packages
if [ "$STAMP" = "$VENV/.ready" ] && java_works; then prepare_spark; fi
report_missing_things
fingerprint >"$STAMP"
[ "$STAMP" = "$VENV/.tools" ] || say "ready; 'make run' shows it at work, 'make test' tests it"
