// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel settings under `/proc/sys`, by their dotted names (`net.ipv4.tcp_rmem`).

use super::netns::Netns;
use std::{fs, io, path::PathBuf};

/// Reads a setting of `netns`; several values are separated by one blank.
pub fn read(netns: &Netns, name: &str) -> io::Result<String> {
    netns.run(|| read_here(name))
}

/// Changes a setting of `netns`.
pub fn write(netns: &Netns, name: &str, value: &str) -> io::Result<()> {
    netns.run(|| write_here(name, value))
}

/// Reads a setting of the calling thread's network namespace, which needs no rights.
pub fn read_here(name: &str) -> io::Result<String> {
    let text = fs::read_to_string(path_of(name)?).map_err(add_name(name))?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Changes a setting of the calling thread's network namespace, or a setting of the whole machine.
pub fn write_here(name: &str, value: &str) -> io::Result<()> {
    // Never creates a file: without one the kernel lacks the setting.
    fs::OpenOptions::new()
        .write(true)
        .open(path_of(name)?)
        .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
        .map_err(add_name(name))
}

/// Whether the calling thread may change a setting. Settings of the whole machine can't be changed from
/// a network namespace other than the initial one, even by root (`net/sysctl_net.c`).
#[must_use]
pub fn is_writable_here(name: &str) -> bool {
    let open = |path| fs::OpenOptions::new().write(true).open(path);
    path_of(name).and_then(open).is_ok()
}

/// Converts `net.ipv4.tcp_rmem` to `/proc/sys/net/ipv4/tcp_rmem`. As in `sysctl(8)`, a name with a slash
/// is a path, so that interface names may contain dots.
fn path_of(name: &str) -> io::Result<PathBuf> {
    let relative = if name.contains('/') {
        name.to_owned()
    } else {
        name.replace('.', "/")
    };
    let clean = relative
        .split('/')
        .all(|part| !matches!(part, "" | "." | ".."));
    if clean {
        Ok(PathBuf::from("/proc/sys").join(relative))
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is not a sysctl name"),
        ))
    }
}

fn add_name(name: &str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("sysctl {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_proc_sys() {
        assert_eq!(
            path_of("net.ipv4.tcp_rmem").unwrap(),
            PathBuf::from("/proc/sys/net/ipv4/tcp_rmem")
        );
        for bad in ["", "net..ipv4", "net/../../etc/passwd", "/etc/passwd"] {
            assert!(path_of(bad).is_err(), "{bad}");
        }
    }
}
