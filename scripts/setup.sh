# Sourced by `run`, `test` and `.ci/run`: finds or installs what cargo and wglm need, and says so on stderr.
# Rust is never installed from here; on Debian and Ubuntu a C linker and a Vulkan driver are, through apt.
# Works with the bash 3.2 of macOS.

unset CDPATH
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*" >&2; }

check_cargo() {
    local needed have minor
    needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
    if ! command -v cargo >/dev/null; then
        say "cargo was not found: install Rust $needed or newer from https://rustup.rs, then open a new shell"
        return 1
    fi
    have=$(cd "$root" && cargo --version) || return 1 # rustup has said what is missing
    have=${have#cargo }
    have=${have%%[ -]*}
    minor=${have#*.}
    if [[ ${have%%.*} -eq 1 && ${minor%%.*} -lt ${needed#*.} ]]; then
        say "cargo $have is too old: wglm needs Rust $needed or newer, from https://rustup.rs"
        return 1
    fi
}

# True if some file in the places where the Vulkan loader looks describes a driver.
has_vulkan_driver() {
    local folder file IFS=:
    for file in ${VK_DRIVER_FILES:-} ${VK_ADD_DRIVER_FILES:-} ${VK_ICD_FILENAMES:-}; do
        [[ -e $file ]] && return 0
    done
    for folder in ${XDG_DATA_DIRS:-} ${XDG_CONFIG_DIRS:-/etc/xdg} "${XDG_DATA_HOME:-${HOME:-}/.local/share}" \
        /usr/local/etc /usr/local/share /etc /usr/share /run/opengl-driver/share; do
        for file in "$folder"/vulkan/icd.d/*.json; do
            [[ -e $file ]] && return 0
        done
    done
    return 1
}

has_vulkan_loader() {
    PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep 'libvulkan\.so\.1 ' >/dev/null
}

# bindings_library FOLDER: prints the shared library of the bindings in a folder of cargo's.
bindings_library() {
    local file
    for file in "$1"/libwglm_bindings.{so,dylib} "$1"/wglm_bindings.dll; do
        [[ -f $file ]] || continue
        printf '%s\n' "$file"
        return
    done
    return 1
}

# Runs apt-get as root or through sudo. What it says goes to stderr.
apt_as_root() {
    local as_root=() # what runs a command as root
    if [[ $UID -ne 0 ]]; then
        command -v sudo >/dev/null || return 1
        as_root=(sudo)
        (: </dev/tty) 2>/dev/null || as_root=(sudo -n) # no one there to type a password
    fi
    as_root+=(env DEBIAN_FRONTEND=noninteractive)
    "${as_root[@]}" apt-get -qq "$@" </dev/null >&2
}

# Brings the lists of Debian packages up to date.
update_packages() { apt_as_root update || say "apt-get update failed; using the existing package lists"; }

# Installs Debian packages.
install_packages() {
    say "installing $* (apt)"
    update_packages
    apt_as_root -o Dpkg::Use-Pty=0 install -y --no-install-recommends "$@"
}

# Everything a Linux machine may lack.
prepare_linux() {
    local packages=()
    command -v cc >/dev/null || packages+=(gcc libc6-dev)
    has_vulkan_driver || packages+=(mesa-vulkan-drivers)
    has_vulkan_loader || packages+=(libvulkan1)
    if [[ ${#packages[@]} -gt 0 ]]; then
        if ! command -v apt-get >/dev/null; then
            say "missing packages (Debian names): ${packages[*]}"
        elif ! install_packages "${packages[@]}"; then
            say "could not install ${packages[*]}; as root: apt-get update && apt-get install ${packages[*]}"
        fi
    fi
    if ! command -v cc >/dev/null; then
        say "cargo cannot link without a C compiler called cc"
        return 1
    fi
    # The software driver reports an error where this is unset: a folder of the user's own, no one else's.
    if [[ -z ${XDG_RUNTIME_DIR:-} ]]; then
        local private=${TMPDIR:-/tmp}/wglm-$UID
        mkdir -m 700 "$private" 2>/dev/null || true
        if [[ -O $private && ! -L $private ]]; then export XDG_RUNTIME_DIR=$private; fi
    fi
}

check_cargo
case $(uname -s) in
    Linux) prepare_linux ;;
esac
