// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of this machine, and the limit on what this process may use of it.

use std::{fs, path::Path};

/// Returns the memory of the machine, in bytes (sysinfo(2)).
#[must_use]
pub fn machine_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    // The field's type depends on the architecture.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    let total = info.totalram as u64;
    total.saturating_mul(info.mem_unit.into())
}

/// Returns the least limit, in bytes, of this process's control group and its ancestors, of version 2
/// or 1 (cgroups(7)). `None` is no limit, or none that can be read.
#[must_use]
pub fn cgroup_limit() -> Option<u64> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    least_limit(&membership, Path::new("/sys/fs/cgroup"))
}

/// Least value that means no limit: version 1 uses a number near 2^63.
const NO_LIMIT: u64 = 1 << 60;

fn least_limit(membership: &str, mount: &Path) -> Option<u64> {
    let limits = membership.lines().flat_map(|line| limits_of(line, mount));
    limits.filter(|limit| *limit < NO_LIMIT).min()
}

/// Returns the limits of the cgroup in one line of /proc/self/cgroup and of its ancestors. In a container
/// whose cgroup namespace is the host's, the path does not exist, and the mount's root has the limit.
fn limits_of(line: &str, mount: &Path) -> Vec<u64> {
    let mut parts = line.splitn(3, ':');
    let (_, Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
        return Vec::new();
    };
    let (mount, file) = match controllers {
        "" => (mount.to_owned(), "memory.max"),
        "memory" => (mount.join("memory"), "memory.limit_in_bytes"),
        _ => return Vec::new(),
    };
    let deepest = mount.join(group.trim_start_matches('/'));
    let directories = deepest.ancestors().take_while(|d| d.starts_with(&mount));
    let limit = |directory: &Path| {
        let text = fs::read_to_string(directory.join(file)).ok()?;
        text.trim().parse().ok()
    };
    directories.filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(mount: &Path, group: &str, file: &str, text: &str) {
        let directory = mount.join(group);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(file), text).unwrap();
    }

    #[test]
    fn takes_the_least_limit_of_all_ancestors() {
        let mount = tempfile::tempdir().unwrap();
        let mount = mount.path();
        write(mount, "a/b", "memory.max", "max\n");
        write(mount, "a", "memory.max", "536870912\n");
        assert_eq!(least_limit("0::/a/b\n", mount), Some(512 << 20));
        write(mount, "a/b", "memory.max", "1048576\n");
        assert_eq!(least_limit("0::/a/b\n", mount), Some(1 << 20));
        assert_eq!(least_limit("0::/other\n", mount), None);
    }

    #[test]
    fn reads_the_limit_at_the_mount_root_in_a_container() {
        let mount = tempfile::tempdir().unwrap();
        write(mount.path(), "", "memory.max", "67108864\n");
        let outside = "0::/system.slice/docker-0123.scope\n";
        assert_eq!(least_limit(outside, mount.path()), Some(64 << 20));
    }

    #[test]
    fn ignores_the_large_number_of_version_1() {
        let mount = tempfile::tempdir().unwrap();
        let file = "memory.limit_in_bytes";
        write(mount.path(), "memory", file, "9223372036854771712\n");
        let lines = "5:cpu,cpuacct:/x\n4:memory:/x\n";
        assert_eq!(least_limit(lines, mount.path()), None);
        write(mount.path(), "memory/x", file, "1000000\n");
        assert_eq!(least_limit(lines, mount.path()), Some(1_000_000));
    }

    #[test]
    fn machine_memory_is_over_a_mebibyte() {
        assert!(machine_bytes() > 1 << 20);
    }
}
