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
# cannot be: no pip, no network, no such version.
llama_fetch() {
    local pip log="$llama_root/download.log"
    if [ -e "$llama_source/CMakeLists.txt" ]; then return 0; fi
    pip=$(llama_pip)
    if [ -z "$pip" ] && [ "${WARMSET_SKIP_SETUP:-0}" != 1 ]; then
        warmset_missing=(python3-pip)
        warmset_apt install -y --no-install-recommends python3-pip || true
        pip=$(llama_pip)
    fi
    if [ -z "$pip" ]; then
        llama_reason="no pip"
        return 1
    fi
    mkdir -p "$llama_root/download"
    printf 'downloading %s %s\n' "$llama_package" "$llama_version"
    if ! $pip download --quiet --no-deps --no-binary "$llama_package" --dest "$llama_root/download" \
        "$llama_package==$llama_version" >"$log" 2>&1; then
        llama_reason="pip cannot get $llama_package $llama_version: $(grep -v '^\[notice\]' "$log" | sed '/^$/d' | tail -n 1)"
        return 1
    fi
    rm -rf "$llama_root/unpacked"
    mkdir "$llama_root/unpacked"
    tar -xzf "$llama_root"/download/*.tar.gz -C "$llama_root/unpacked" --strip-components=1
    [ -e "$llama_root/unpacked/vendor/llama.cpp/CMakeLists.txt" ] ||
        warmset_die "$llama_package $llama_version has no vendor/llama.cpp"
    mv "$llama_root/unpacked/vendor/llama.cpp" "$llama_source"
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
