# Sourced by tests/run, examples/run, benchmarks/run and .ci/run. Installs by apt what is missing, and nothing else:
# when everything is there, no network is touched and no privilege asked for.
#
#   warmset_setup [clang] [clang-19]      the base set, plus the named extra sets
#
# WARMSET_SKIP_SETUP=1 turns it off (for machines whose packages come from elsewhere).

warmset_die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

warmset_have() { command -v "$1" >/dev/null 2>&1; }

# version_at_least HAVE WANT: dotted numbers, compared numerically.
warmset_version_at_least() {
    [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

warmset_package_version() {
    dpkg-query -W -f '${db:Status-Abbrev} ${Version}' "$1" 2>/dev/null | sed -n 's/^ii *//p'
}

warmset_cmake_version() {
    cmake --version 2>/dev/null | sed -n '1s/[^0-9]*\([0-9][0-9.]*\).*/\1/p'
}

warmset_clang_major() {
    clang++ --version 2>/dev/null | sed -n '1s/.*version \([0-9]*\).*/\1/p'
}

warmset_as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif ! warmset_have sudo; then
        warmset_die "packages are missing and there is neither root nor sudo; install them yourself: ${warmset_missing[*]}"
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@" || warmset_die "'sudo -n $1' failed; as root install: ${warmset_missing[*]}"
    fi
}

warmset_apt() {
    warmset_as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 "$@" >&2
}

# The candidate that apt would install without being asked for a special suite.
warmset_candidate() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: *\([0-9]*:\)\{0,1\}//p' | grep -v '(none)' || true
}

# Prints a deb822 entry for the backports suite, taken from the entry that serves the release itself: same URIs, same
# Signed-By, same options. Reads deb822 and one-line files; prints nothing when no entry names the suite.
warmset_backports_entry() {
    local suite=$1 dir=${WARMSET_APT_DIR:-/etc/apt} file
    for file in "$dir"/sources.list.d/*.sources; do
        [ -r "$file" ] || continue
        awk -v suite="$suite" '
            BEGIN { RS = ""; FS = "\n" }
            {
                keep = ""; types = 0; named = 0; enabled = 1; skip = 0
                for (i = 1; i <= NF; i++) {
                    line = $i
                    if (line ~ /^#/) continue
                    if (line !~ /^[ \t]/) {
                        key = tolower(line); sub(/:.*/, "", key)
                        value = line; sub(/^[^:]*:[ \t]*/, "", value)
                        skip = 0
                        if (key == "types" && value ~ /(^|[ \t])deb([ \t]|$)/) types = 1
                        if (key == "enabled" && tolower(value) ~ /^(no|false|off|0)/) enabled = 0
                        if (key == "types" || key == "suites" || key == "components") skip = 1
                    } else value = line
                    if (key == "suites") {
                        n = split(value, words, /[ \t]+/)
                        for (w = 1; w <= n; w++) if (words[w] == suite) named = 1
                    }
                    if (!skip) keep = keep line "\n"
                }
                if (types && named && enabled) {
                    printf "Types: deb\nSuites: %s-backports\nComponents: main\n%s", suite, keep
                    exit
                }
            }' "$file" | { grep . && printf '\n'; } && return 0
    done
    for file in "$dir"/sources.list "$dir"/sources.list.d/*.list; do
        [ -r "$file" ] || continue
        awk -v suite="$suite" '
            $1 == "deb" {
                line = $0; sub(/#.*/, "", line); sub(/^deb[ \t]+/, "", line); options = ""
                if (line ~ /^\[/) { options = line; sub(/\].*/, "", options); sub(/^\[[ \t]*/, "", options); sub(/^[^]]*\][ \t]*/, "", line) }
                split(line, words, /[ \t]+/)
                if (words[2] != suite) next
                printf "Types: deb\nURIs: %s\nSuites: %s-backports\nComponents: main\n", words[1], suite
                n = split(options, pairs, /[ \t]+/)
                for (p = 1; p <= n; p++) {
                    if (pairs[p] !~ /=/) continue
                    key = pairs[p]; sub(/=.*/, "", key); value = pairs[p]; sub(/^[^=]*=/, "", value)
                    if (key == "arch") key = "Architectures"
                    if (key == "signed-by") key = "Signed-By"
                    gsub(/,/, " ", value)
                    printf "%s: %s\n", key, value
                }
                exit
            }' "$file" | grep . && return 0
    done
    return 1
}

# Makes the backports suite of this release known to apt, if it is not yet.
warmset_enable_backports() {
    local suite=$1 entry target=/etc/apt/sources.list.d/warmset-backports.sources
    # not grep -q: it would close the pipe early, which pipefail reports as a failure
    if LC_ALL=C apt-cache policy 2>/dev/null | grep "[ ,/=]$suite-backports[/,]" >/dev/null; then
        return 0
    fi
    entry=$(warmset_backports_entry "$suite") ||
        warmset_die "Catch2 v3 is needed and no apt source for '$suite' was found to derive '$suite-backports' from"
    printf '%s\n' "$entry" | warmset_as_root tee "$target" >/dev/null
    warmset_apt update || warmset_die "apt-get update failed with $target"
}

warmset_setup() {
    [ "${WARMSET_SKIP_SETUP:-0}" = 1 ] && return 0
    if ! warmset_have dpkg-query || ! warmset_have apt-get; then
        printf 'note: no apt on this machine; expecting the packages to be there\n' >&2
        return 0
    fi

    local want_clang=0 want_clang19=0 extra package codename='' rt
    for extra in "$@"; do
        case $extra in
            clang) want_clang=1 ;;
            clang-19) want_clang19=1 ;;
            *) warmset_die "unknown package set '$extra'" ;;
        esac
    done

    warmset_missing=()
    warmset_version_at_least "$(warmset_cmake_version)" 3.25 || warmset_missing+=(cmake)
    warmset_have ninja || warmset_missing+=(ninja-build)
    warmset_have g++ || warmset_missing+=(g++)
    warmset_have zstd || warmset_missing+=(zstd)
    [ -x /usr/bin/python3 ] || warmset_missing+=(python3)
    for package in librapidcheck-dev libbenchmark-dev libcli11-dev libfmt-dev nlohmann-json3-dev libzstd-dev \
        python3-matplotlib python3-numpy; do
        [ -n "$(warmset_package_version "$package")" ] || warmset_missing+=("$package")
    done
    warmset_version_at_least "$(warmset_package_version libcatch2-dev)" 3 || warmset_missing+=(libcatch2-dev)
    if [ "$want_clang" = 1 ]; then
        warmset_have clang++ || warmset_missing+=(clang)
        warmset_have clang-tidy || warmset_missing+=(clang-tidy)
    fi
    if [ "$want_clang19" = 1 ]; then
        for package in clang-19 libclang-rt-19-dev; do
            [ -n "$(warmset_package_version "$package")" ] || warmset_missing+=("$package")
        done
    fi

    if [ "${#warmset_missing[@]}" -gt 0 ]; then
        printf 'installing: %s\n' "${warmset_missing[*]}" >&2
        codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
        warmset_apt update || warmset_die "apt-get update failed; missing: ${warmset_missing[*]}"
        local plain=()
        for package in "${warmset_missing[@]}"; do
            case $package in
                libcatch2-dev)
                    if ! warmset_version_at_least "$(warmset_candidate libcatch2-dev)" 3; then
                        warmset_enable_backports "$codename"
                        package="libcatch2-dev/$codename-backports"
                    fi
                    ;;
                cmake)
                    warmset_version_at_least "$(warmset_candidate cmake)" 3.25 ||
                        warmset_die "CMake 3.25 or newer is needed and this release has $(warmset_candidate cmake)"
                    ;;
            esac
            plain+=("$package")
        done
        warmset_apt install -y --no-install-recommends "${plain[@]}" ||
            warmset_die "apt-get could not install: ${plain[*]}"
    fi

    # The sanitizer and fuzzer runtimes are a package of their own, named after clang's version.
    if [ "$want_clang" = 1 ]; then
        rt="libclang-rt-$(warmset_clang_major)-dev"
        if [ ! -e "$(clang++ -print-file-name=libclang_rt.fuzzer-x86_64.a 2>/dev/null)" ] &&
            [ ! -e "$(clang++ -print-runtime-dir 2>/dev/null)/libclang_rt.fuzzer.a" ] &&
            [ ! -e "$(clang++ -print-resource-dir)/lib/linux/libclang_rt.fuzzer-$(uname -m).a" ]; then
            warmset_missing=("$rt")
            warmset_apt install -y --no-install-recommends "$rt" || warmset_die "apt-get could not install: $rt"
        fi
    fi
}

# ---------------------------------------------------------------------------------------------------------------
# Building, the same way in every run script. Expects the repository root as the working directory.

warmset_jobs() { printf '%s' "${WARMSET_JOBS:-$(nproc 2>/dev/null || echo 2)}"; }

# One script at a time in build/: two builds in one directory spoil each other.
warmset_lock() {
    mkdir -p build
    warmset_have flock || return 0
    exec 9>build/.lock
    flock -n 9 || { printf 'waiting for another run in build/\n' >&2 && flock 9; }
}

# warmset_configure PRESET [-D...]: quiet unless it fails.
warmset_configure() {
    local preset=$1 log
    shift
    mkdir -p "build/$preset"
    log="build/$preset/configure.log"
    cmake --preset "$preset" "$@" >"$log" 2>&1 || { cat "$log"; return 1; }
}

# warmset_build PRESET [--target ...]
warmset_build() {
    local preset=$1
    shift
    cmake --build --preset "$preset" --parallel "$(warmset_jobs)" "$@"
}
