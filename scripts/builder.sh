# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# To be sourced from the top of the checkout. Chooses the user and the Rust toolchain of the build.
#
# Under `sudo make …` in a user's checkout the build belongs to that user: cargo runs as them, with
# their toolchain. Files that root writes into target/ and out/ become theirs at the end.

: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
export HOME
if [ "$(id -u)" -eq 0 ] && [ "${SUDO_UID:-0}" -ne 0 ] && [ "$(stat -c %u .)" -eq "$SUDO_UID" ]; then
    HOME=$(getent passwd "$SUDO_UID" | cut -d: -f6)
    as_builder() { setpriv --reuid="$SUDO_UID" --regid="$SUDO_GID" --init-groups "$@"; }
    hand_over() { chown -R --from=root "$SUDO_UID:$SUDO_GID" target out 2>/dev/null || true; }
else
    as_builder() { "$@"; }
    hand_over() { :; }
fi

# The pinned developer tools of `scripts/setup --dev`, shared by all checkouts.
tools=${XDG_CACHE_HOME:-$HOME/.cache}/longhaul/tools
# Debian keeps nft, nginx and ethtool out of an ordinary user's PATH.
export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:$tools/bin
# PostgreSQL's server is in no PATH. Each version has its own directory.
for directory in /usr/lib/postgresql/*/bin; do
    [ ! -d "$directory" ] || PATH=$PATH:$directory
done

rust_version=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
cargo_bin=${CARGO_HOME:-$HOME/.cargo}/bin

# at_least WANTED FOUND: compares dotted version numbers.
at_least() { printf '%s\n' "$1" "$2" | sort -VC; }

cargo_is_new_enough() {
    local found
    found=$(RUSTUP_AUTO_INSTALL=0 as_builder cargo --version 2>/dev/null | awk '{print $2}')
    [ -n "$found" ] && at_least "$rust_version" "$found"
}

# Selects a cargo that is new enough, for this process only: the user's own if it is, else another
# installed toolchain. Fails if there is none.
choose_cargo() {
    cargo_is_new_enough && return
    PATH=$cargo_bin:$PATH
    cargo_is_new_enough && return
    for RUSTUP_TOOLCHAIN in stable "$rust_version"; do
        export RUSTUP_TOOLCHAIN
        cargo_is_new_enough && return
    done
    unset RUSTUP_TOOLCHAIN
    return 1
}
