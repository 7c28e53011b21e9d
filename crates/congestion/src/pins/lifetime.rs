// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lifetime of a BPF file system: whether it stays mounted when this process has ended, in the mount namespace of
//! process 1 (that of the machine or of the container).

use super::reference_processes;
use std::{fs, fs::File, os::fd::AsRawFd};

/// A line of mountinfo (proc(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount<'a> {
    /// Number of the mount, which no mount of another namespace has.
    id: &'a str,
    /// Device of the file system, which all its mounts have.
    device: &'a str,
    /// Peer group to which it passes on mounts below it.
    shared: Option<&'a str>,
    /// Peer group from which it receives mounts.
    master: Option<&'a str>,
}

/// Whether the file system that `root` is the root of is also mounted where it stays.
pub(super) fn mount_lasts(root: &File) -> bool {
    look(root, |mount, reference| {
        reference.iter().any(|other| other.device == mount.device)
    })
}

/// Whether a mount on the directory `root` is also made where it stays.
pub(super) fn mount_would_last(root: &File) -> bool {
    look(root, is_passed_on)
}

/// Whether mounts below `mount` are also made below one of `reference`.
fn is_passed_on(mount: &Mount, reference: &[Mount]) -> bool {
    let receives = |other: &Mount| other.shared == mount.shared || other.master == mount.shared;
    mount.shared.is_some() && reference.iter().any(receives)
}

/// Returns true if the mount of `root` is in the namespace of the first reference process that can be read, or
/// `lasts` says so. Without such a process nothing is known, and the mount is taken for a lasting one.
fn look(root: &File, lasts: impl Fn(&Mount, &[Mount]) -> bool) -> bool {
    let text = |process: String| fs::read_to_string(format!("/proc/{process}/mountinfo")).ok();
    let mut others = reference_processes().filter_map(|process| text(process.to_string()));
    let (Some(id), Some(own), Some(other)) =
        (mount_id(root), text("self".to_owned()), others.next())
    else {
        return true;
    };
    is_lasting(&id, &mounts(&own), &mounts(&other), lasts)
}

fn is_lasting(
    id: &str,
    own: &[Mount],
    reference: &[Mount],
    lasts: impl Fn(&Mount, &[Mount]) -> bool,
) -> bool {
    let is_it = |mount: &&Mount| mount.id == id;
    if reference.iter().any(|mount| is_it(&mount)) {
        return true;
    }
    own.iter()
        .find(is_it)
        .is_some_and(|mount| lasts(mount, reference))
}

/// Returns the number of the mount that an open file is on (proc(5), fdinfo).
fn mount_id(file: &File) -> Option<String> {
    let information = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mut lines = information.lines();
    let id = lines.find_map(|line| line.strip_prefix("mnt_id:"))?;
    Some(id.trim().to_owned())
}

fn mounts(mountinfo: &str) -> Vec<Mount<'_>> {
    mountinfo.lines().filter_map(parse).collect()
}

/// Parses `ID PARENT MAJOR:MINOR ROOT MOUNT-POINT OPTIONS [TAG:VALUE]… - …`.
fn parse(line: &str) -> Option<Mount<'_>> {
    let (fields, _) = line.split_once(" - ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let tags = fields.get(6..)?;
    let tag = |name| tags.iter().find_map(|tag| tag.strip_prefix(name));
    Some(Mount {
        id: fields[0],
        device: fields[2],
        shared: tag("shared:"),
        master: tag("master:"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine: /sys is shared, as systemd mounts it, and no BPF file system is mounted.
    const MACHINE: &str = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        23 27 0:22 / /sys rw,relatime shared:7 - sysfs sysfs rw\n";

    fn would_last(own: &str, machine: &str) -> bool {
        is_lasting("123", &mounts(own), &mounts(machine), is_passed_on)
    }

    fn lasts(own: &str, machine: &str) -> bool {
        is_lasting("200", &mounts(own), &mounts(machine), |mount, reference| {
            reference.iter().any(|other| other.device == mount.device)
        })
    }

    #[test]
    fn mount_lasts_in_the_namespace_of_process_1() {
        let machine = MACHINE.replace("23 27", "123 27");
        assert!(would_last(&machine, &machine));
        assert!(would_last(&machine.replace(" shared:7", ""), &machine));
    }

    #[test]
    fn mount_lasts_if_it_is_passed_on() {
        let unshared = |tags: &str| {
            let sys = format!("123 127 0:22 / /sys rw,relatime{tags} - sysfs sysfs rw\n");
            would_last(&sys, MACHINE)
        };
        // unshare --mount; with --propagation slave, as systemd's PrivateMounts; with --propagation shared.
        assert!(!unshared(""));
        assert!(!unshared(" master:7"));
        assert!(unshared(" shared:7"));
        // A group of its own, which receives from the machine's.
        assert!(!unshared(" shared:9 master:7"));
        // The other way round: the machine receives.
        let receiver = MACHINE.replace("shared:7", "master:9");
        let sys = "123 127 0:22 / /sys rw shared:9 - sysfs sysfs rw\n";
        assert!(would_last(sys, &receiver));
    }

    #[test]
    fn mounted_file_system_lasts_if_the_machine_has_it() {
        let bpf = |id, device| format!("{id} 123 {device} / /sys/fs/bpf rw - bpf bpf rw\n");
        let own = bpf(200, "0:60");
        assert!(!lasts(&own, MACHINE));
        assert!(!lasts(&own, &format!("{MACHINE}{}", bpf(300, "0:61"))));
        assert!(lasts(&own, &format!("{MACHINE}{}", bpf(300, "0:60"))));
        assert!(lasts(&own, &format!("{MACHINE}{own}")));
    }

    #[test]
    fn reads_the_mount_of_an_open_file() {
        let root = File::open("/").unwrap();
        let id = mount_id(&root).unwrap();
        let own = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(
            mounts(&own).iter().any(|mount| mount.id == id),
            "{id}: {own}"
        );
    }
}
