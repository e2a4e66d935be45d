#!/usr/bin/env bash
# Registers, threads and spills of the kernels on Apple's G13, the GPU of the M1, as Mesa's open compiler for it
# allocates them: tables for docs/metal.md. No GPU and no driver take part, and nothing is installed. CI does not run
# this.
#
#     scripts/agx-stats.sh [FILE]   for the plans of a model file [default: GLM-4.7-Flash's shape, with four layers]
#
# Mesa's compiler is built from Debian 13's source of it, by tools of Debian 12 and PyPI, all below the user's cache
# folder: 2 GB, and about 15 minutes on two cores at the first run. Mesa's Vulkan driver of that version refuses every
# device, because its interface to the kernel was not settled yet. It is not used: agx_stats.c links the compiler alone.
#
# Registers are those of 32 bits, of which a thread may have 128. Threads are those that a core holds at once, counted
# up to the 1024 of one workgroup: by registers as in Mesa's own table, by workgroup memory if a core has 60 KB of it.
#
# Exit status 77 means skipped: this system does not have those packages. A line says why.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

release=trixie
packages=(bison flex m4 libdrm-dev libdrm2 libelf-dev llvm-15 llvm-15-dev llvm-15-tools llvm-15-linker-tools libllvm15
    libclang-15-dev libclang-common-15-dev libclang-cpp15 libclang-cpp15-dev libclang1-15 libclc-15 libclc-15-dev
    libllvmspirvlib15 libllvmspirvlib-15-dev spirv-tools libfl-dev libz3-4 libz3-dev)
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/wglm/agx-stats
tools=$cache/tools/usr
libraries=$tools/lib/x86_64-linux-gnu
linked=src/asahi/clc/asahi_clc # of Mesa's build: the program that links its compiler

skip() {
    say "SKIPPED: $*"
    exit 77
}

# The source of the newer Mesa, by a configuration of apt's own for this: the system's lists stay as they are.
fetch_source() {
    local site apt=$cache/apt
    site=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Created-By: Packages' | grep -v security | head -1)
    [[ -n $site ]] || skip "apt knows no archive of Debian's"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $release main" >"$apt/sources"
    local private=(-qq -o Dir::Etc::SourceList="$apt/sources" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache")
    apt-get "${private[@]}" update >&2
    (cd "$cache" && apt-get "${private[@]}" source --download-only --tar-only mesa >&2)
    mkdir -p "$cache/mesa.new"
    tar -x -C "$cache/mesa.new" --strip-components=1 -f "$cache"/mesa_*.orig.tar.xz
    mv "$cache/mesa.new" "$cache/mesa"
}

# The packages that the build needs, unpacked, with the paths in them corrected.
fetch_tools() {
    local file
    rm -rf "$cache/debs" "$cache/tools"
    update_packages
    mkdir -p "$cache/debs" "$cache/tools"
    (cd "$cache/debs" && apt-get download -qq "${packages[@]}" >&2) || skip "the packages could not be fetched (Debian 12 has them)"
    for file in "$cache"/debs/*.deb; do dpkg -x "$file" "$cache/tools"; done
    find "$cache/tools" -name '*.pc' -exec sed -i "s#=/usr#=$tools#" {} +
    python3 -m venv "$cache/python"
    "$cache/python/bin/pip" install -q meson mako ninja pyyaml packaging
    rm -r "$cache/debs"
}

# Builds Mesa's compiler and what it needs, up to a program of Mesa's that links nothing else.
build_compiler() (
    export LD_LIBRARY_PATH=$libraries:$tools/lib/llvm-15/lib BISON_PKGDATADIR=$tools/share/bison M4=$tools/bin/m4
    export PATH=$cache/python/bin:$tools/bin:$PATH
    export PKG_CONFIG_PATH=$libraries/pkgconfig:$tools/lib/pkgconfig:$tools/share/pkgconfig
    local disabled=(egl gbm gles1 gles2 glx libunwind shader-cache valgrind xmlconfig zstd)
    disabled=("${disabled[@]/#/-D}")
    printf "[binaries]\nllvm-config = '%s'\n" "$tools/lib/llvm-15/bin/llvm-config" >"$cache/native.ini"
    CPPFLAGS=-I$tools/include LDFLAGS="-L$libraries -Wl,-rpath-link,$libraries" \
        meson setup "$cache/build" "$cache/mesa" --native-file "$cache/native.ini" -Dbuildtype=release -Doptimization=1 \
        -Db_ndebug=true -Dgallium-drivers= -Dvulkan-drivers=asahi -Dtools=asahi -Dplatforms= -Dvideo-codecs= -Dopengl=false \
        -Dllvm=enabled -Dshared-llvm=enabled "${disabled[@]/%/=disabled}" >&2
    nice ninja -C "$cache/build" "$linked" >&2
)

# Compiles and links agx_stats.c with the commands that Mesa has for that program.
build_program() {
    local include source=$root/scripts/agx_stats.c object=$cache/agx_stats.o places=
    for include in asahi/compiler compiler compiler/nir compiler/spirv; do
        places+=" -Isrc/$include -I$cache/mesa/src/$include"
    done
    (cd "$cache/build" && "$cache/python/bin/ninja" -t commands "$linked" | sed -n "
        s#-c .*/asahi_clc\.c\$#$places -c $source#
        s#$linked\.p/asahi_clc\.c\.o#$object#g
        s#-o $linked #-o $cache/agx_stats #
        s# -MD -MQ [^ ]* -MF [^ ]*##
        \#$object#p" | sh -e >&2)
}

# table ROWS: the kernels of a plan for so many tokens, as a table of Markdown.
table() {
    local folder=$cache/spirv/$1
    rm -rf "$folder"
    cargo run --quiet --all-features --example kernel_stats -- "$model" --rows "$1" --spirv "$folder" >&2
    echo
    echo "$1 token(s):"
    echo
    echo "| kernel | steps | registers | threads, by registers | by workgroup memory | spills | scratch | instructions |"
    echo "|---|---|---|---|---|---|---|---|"
    "$cache/agx_stats" "$folder"/*.spv | awk -F '\t' -v core=$((60 << 10)) -v most=1024 '
        {
            gsub(/^.*\/[0-9]+ |\.spv$/, "", $1)
            split($1, name, " ")
            match(name[2], /^[a-z_]+(\.(i?q[0-9]_[0-9a-z]+|b?f16|f32|mxfp4))*/) # without the constants
            name[2] = substr(name[2], 1, RLENGTH)
            held = $7 ? int(core / $7) * $8 : most
            if (held > most) held = most
            row = $2 / 2 " | " $3 " | " held " | " $4 + $5 " | " $6 " | " $9 " |"
            key = name[2] " | " row
            if (key in steps) { steps[key] = steps[key] ", " name[1]; next }
            steps[key] = name[1]; kernel[++rows] = name[2]; rest[rows] = row; keys[rows] = key
        }
        END { for (i = 1; i <= rows; i++) print "| `" kernel[i] "` | " steps[keys[i]] " | " rest[i] }'
}

[[ -d $cache/mesa ]] || fetch_source
[[ -d $tools && ! -d $cache/debs ]] || fetch_tools
[[ -x $cache/build/$linked ]] || build_compiler
build_program
model=${1:-$cache/shape.gguf}
if [[ $# -eq 0 && ! -e $model ]]; then
    # With four layers its cache is as large as it must be for f16.
    cargo run --quiet --all-features --example synth -- --layers 4 "$model" >&2
fi
table 1
table 512
