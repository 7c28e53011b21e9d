// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limit on the size of files, `RLIMIT_FSIZE`.

/// From now on a write beyond the limit is refused with EFBIG, in this process and those that it starts; as a process
/// begins, SIGXFSZ ends it there (setrlimit(2)).
pub fn refuse_beyond_limit() {
    // SAFETY: SIG_IGN installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
