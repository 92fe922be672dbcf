# SPDX-License-Identifier: Apache-2.0
# Sourced by tests/llama/run. Gets llama.cpp and ggml out of the sources of the PyPI package llama-cpp-python and builds
# them for the CPU into build/llama-cpp/prefix: libllama, libggml and their headers, no tool, no server, no test.

llama_package=llama-cpp-python
llama_version=${WARMSET_LLAMA_VERSION:-0.3.36}
llama_root="$PWD/build/llama-cpp"
llama_source="$llama_root/$llama_version"
# -O2 for the time to compile; both sides of every comparison use the same build.
llama_options=(
    -DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_FLAGS_RELEASE=-O2 -DNDEBUG" "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG"
    -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=ON -DGGML_CCACHE=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF
    -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF
)

# Prints the command that runs pip, or nothing.
llama_pip() {
    local python
    for python in python3 /usr/bin/python3; do
        if "$python" -m pip --version >/dev/null 2>&1; then
            printf '%s -m pip' "$python"
            return
        fi
    done
}

# Downloads the package's sources and unpacks those of llama.cpp. Returns 1, with the reason in $llama_reason, where that
# cannot be: no pip, no network, no such version. Asks nothing and ends within a quarter of an hour.
llama_fetch() {
    local pip log="$llama_root/download.log" archive
    if [ -e "$llama_source/CMakeLists.txt" ]; then return 0; fi
    pip=$(llama_pip)
    if [ -z "$pip" ] && [ "${WARMSET_SKIP_SETUP:-0}" != 1 ]; then
        # in a shell of its own: without the right to install the rest of the run goes on
        ( warmset_missing=(python3-pip)
          warmset_apt update
          warmset_apt install -y --no-install-recommends python3-pip ) || true
        pip=$(llama_pip)
    fi
    if [ -z "$pip" ]; then
        llama_reason="no pip"
        return 1
    fi
    rm -rf "$llama_root/download" "$llama_root/unpacked"
    if ! mkdir -p "$llama_root/download" "$llama_root/unpacked"; then
        llama_reason="cannot write $llama_root"
        return 1
    fi
    printf 'downloading %s %s\n' "$llama_package" "$llama_version"
    if ! timeout 900 $pip download --quiet --no-input --disable-pip-version-check --no-deps --no-binary "$llama_package" \
        --dest "$llama_root/download" "$llama_package==$llama_version" >"$log" 2>&1 </dev/null; then
        llama_reason="pip cannot get $llama_package $llama_version: $(grep -v '^\[notice\]' "$log" | sed '/^$/d' | tail -n 1)"
        return 1
    fi
    for archive in "$llama_root"/download/*.tar.gz; do
        # a half unpacked tree is never taken for the whole: it gets its name last
        if ! tar -xzf "$archive" -C "$llama_root/unpacked" --strip-components=1 >"$log" 2>&1 ||
            [ ! -e "$llama_root/unpacked/vendor/llama.cpp/CMakeLists.txt" ] ||
            ! mv "$llama_root/unpacked/vendor/llama.cpp" "$llama_source"; then
            llama_reason="${archive##*/} cannot be unpacked, or has no vendor/llama.cpp $(tail -n 1 "$log")"
            return 1
        fi
    done
    rm -rf "$llama_root/unpacked" "$llama_root/download"
}

# Builds and installs into build/llama-cpp/prefix, unless that has been done with these options.
llama_build() {
    local stamp="$llama_root/built" want="$llama_version ${llama_options[*]}"
    if [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then return 0; fi
    rm -rf "$stamp" "$llama_root/prefix" "$llama_root/build"
    cmake -G Ninja -S "$llama_source" -B "$llama_root/build" "${llama_options[@]}" \
        "-DCMAKE_INSTALL_PREFIX=$llama_root/prefix" "-DCMAKE_INSTALL_RPATH=\$ORIGIN" >"$llama_root/configure.log" 2>&1 ||
        { cat "$llama_root/configure.log"; return 1; }
    cmake --build "$llama_root/build" --parallel "$(warmset_jobs)" || return 1
    cmake --install "$llama_root/build" >"$llama_root/install.log" 2>&1 || { cat "$llama_root/install.log"; return 1; }
    printf '%s' "$want" >"$stamp"
}
