#!/usr/bin/env bash
# What `make setup` and `make readers` do; not called by hand.
#
#   setup.sh requirements   .venv with exactly what requirements.txt locks, hashes checked
#   setup.sh project        this project itself, editable, in .venv
#   setup.sh java           finds Java 17 or newer, or installs it where it may
#   setup.sh jars           fetches the jars that Spark reads Delta and s3a:// with
#   setup.sh readers        .readers/NAME for each deploy/readers/NAME.txt, hashes checked
#
# Uses uv where it is on the PATH, else python3 -m venv and pip.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=.venv
JAVA_ENV=$VENV/java.env # sourced by the Makefile; says JAVA_HOME where PATH does not help

say() { printf 'setup: %s\n' "$*" >&2; }

has() { command -v "$1" >/dev/null 2>&1; }

new_enough_python() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        if new_enough_python "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    say "Python 3.11 or newer is missing${PYTHON:+ (PYTHON=$PYTHON is not)}."
    say "Install it, or name it: make setup PYTHON=/path/to/python3.11"
    return 1
}

setup_requirements() {
    local python
    if ! new_enough_python $VENV/bin/python; then
        python=$(find_python)
        say "making $VENV with $("$python" --version)"
        if has uv; then
            uv venv --quiet --clear --python "$python" $VENV
        else
            "$python" -m venv --clear $VENV
        fi
    fi
    say "installing requirements.txt (some minutes the first time; Spark is the large one)"
    if has uv; then
        uv pip install --quiet --python $VENV/bin/python --require-hashes -r requirements.txt
    else
        $VENV/bin/python -m pip install --quiet --disable-pip-version-check \
            --require-hashes -r requirements.txt
    fi
}

setup_project() {
    # The build backend is locked with the rest, hence no isolation and no download.
    if has uv; then
        uv pip install --quiet --python $VENV/bin/python --no-deps --no-build-isolation -e .
    else
        $VENV/bin/python -m pip install --quiet --disable-pip-version-check \
            --no-deps --no-build-isolation -e .
    fi
}

new_enough_java() {
    local answer
    answer=$("$1" -version 2>&1) || return 1
    [[ $answer =~ version\ \"([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge 17 ]
}

# Succeeds when Spark will find Java; leaves in JAVA_ENV what it needs for that.
find_java() {
    local home
    : >$JAVA_ENV
    if [ -n "${JAVA_HOME:-}" ] && new_enough_java "$JAVA_HOME/bin/java"; then
        return
    fi
    if [ -z "${JAVA_HOME:-}" ] && has java && new_enough_java java; then
        return
    fi
    for home in /usr/lib/jvm/* /opt/homebrew/opt/openjdk* /usr/local/opt/openjdk* \
        /Library/Java/JavaVirtualMachines/*/Contents/Home; do
        if [ -x "$home/bin/java" ] && new_enough_java "$home/bin/java"; then
            printf 'export JAVA_HOME="%s"\n' "$home" >$JAVA_ENV
            return
        fi
    done
    return 1
}

# The commands that would install Java here, one per line, best first; empty when none is known.
java_installers() {
    local name
    if has brew && [ "$(id -u)" -ne 0 ]; then # Homebrew refuses root, the others want it
        echo "brew install openjdk@17"
    elif has apt-get; then
        for name in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
            echo "apt-get install --yes --no-install-recommends $name"
        done
    elif has dnf; then
        for name in java-17-openjdk-headless java-21-openjdk-headless java-latest-openjdk-headless; do
            echo "dnf install --assumeyes $name"
        done
    elif has apk; then
        echo "apk add openjdk17-jre-headless"
    fi
}

install_java() {
    local command
    if [ "$(id -u)" -ne 0 ] && ! has brew; then
        return 1 # this is not the place to ask for root
    fi
    if [ "$(id -u)" -eq 0 ] && has apt-get; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update --quiet=2 >&2 || true # one unreachable source need not matter
    fi
    while read -r command; do
        say "$command"
        if $command >&2 </dev/null && find_java; then
            return
        fi
    done < <(java_installers)
    return 1
}

setup_java() {
    local command
    if find_java; then
        return
    fi
    say "Java 17 or newer was not found; trying to install it"
    if install_java; then
        return
    fi
    read -r command < <(java_installers) || true
    say "Java 17 or newer is missing. Spark does not run without it; the rest does."
    say "Install it${command:+ ($command; as root, unless it is Homebrew)}, or set JAVA_HOME."
}

# Once, alone and with patience: sessions that start side by side on a new machine would fetch the
# same files into the same cache and spoil each other's.
setup_jars() {
    local try log
    if ! find_java; then
        return # setup_java has said what is missing
    fi
    log=$(mktemp)
    trap 'rm -f "$log"' RETURN
    say "fetching the jars of Delta and S3A (once for this user)"
    for try in 1 2 3 4 5; do
        if $VENV/bin/python -m mirror_assets.pipeline.jars >"$log" 2>&1; then
            touch $VENV/.jars
            return
        fi
        sleep $((try * 2))
    done
    say "they could not be fetched: $(grep -m 1 -E 'FAILED|download failed|Error' "$log" || true)"
    say "Spark tries again whenever it starts; 'make setup' does, too."
}

# Readers that cannot live beside those of .venv: each has a Python of its own.
setup_readers() {
    local locked name failed=0 jobs=()
    for locked in deploy/readers/*.txt; do
        name=$(basename "$locked" .txt)
        # What was installed is noted last, hence a broken-off one is made again.
        if ! cmp --silent "$locked" ".readers/$name/requirements.txt"; then
            make_reader "$name" "$locked" &
            jobs+=($!)
        fi
    done
    for name in "${jobs[@]}"; do
        wait "$name" || failed=1
    done
    return $failed
}

make_reader() {
    local home=.readers/$1
    say "making $home"
    if has uv; then
        uv venv --quiet --clear --python $VENV/bin/python "$home"
        uv pip install --quiet --python "$home/bin/python" --require-hashes -r "$2"
    else
        $VENV/bin/python -m venv --clear "$home"
        "$home/bin/python" -m pip install --quiet --disable-pip-version-check \
            --require-hashes -r "$2"
    fi
    cp "$2" "$home/requirements.txt"
}

case "${1:-}" in
requirements | project | java | jars | readers) "setup_$1" ;;
*)
    say "usage: setup.sh requirements | project | java | jars | readers"
    exit 2
    ;;
esac
