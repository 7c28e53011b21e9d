// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts on one switch. Each is a network namespace, and all see the same files, as with a shared file system. A script in
//! place of ssh runs programs on them.

use super::kill;
use longhaul_linux::{netns::Netns, process::inside};
use std::{
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Instant,
};

/// Hosts, by name.
pub(crate) struct Hosts {
    prefix: String,
    switch: Netns,
    hosts: Vec<(String, Netns)>,
}

fn ip(netns: &Netns, arguments: &str) {
    let mut command = Command::new("ip");
    inside(&mut command, netns);
    let done = command.args(arguments.split_whitespace()).output().unwrap();
    assert!(done.status.success(), "ip {arguments}: {done:?}");
}

impl Hosts {
    /// Creates hosts that send at most at `rate`, in the notation of tc(8).
    pub(crate) fn new(names: &[&str], rate: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let prefix = format!("mv{}-{number}", std::process::id());
        let switch = Netns::create(&format!("{prefix}-switch")).unwrap();
        ip(&switch, "link add switch up type bridge");
        let mut hosts = Self {
            prefix,
            switch,
            hosts: Vec::new(),
        };
        names.iter().for_each(|name| hosts.add(name, rate));
        hosts
    }

    fn add(&mut self, name: &str, rate: &str) {
        let namespace = format!("{}-{name}", self.prefix);
        let host = Netns::create(&namespace).unwrap();
        let number = self.hosts.len();
        ip(&host, "link set lo up");
        ip(
            &self.switch,
            &format!("link add {name} type veth peer name wire netns {namespace}"),
        );
        ip(&self.switch, &format!("link set {name} up master switch"));
        ip(&host, &format!("addr add {}/24 dev wire", address(number)));
        ip(&host, "link set wire up");
        let mut shape = Command::new("tc");
        inside(&mut shape, &host);
        shape.args(["qdisc", "add", "dev", "wire", "root", "tbf", "rate", rate]);
        shape.args(["burst", "256kb", "latency", "50ms"]);
        assert!(shape.status().unwrap().success());
        self.hosts.push((name.to_owned(), host));
    }

    pub(crate) fn address(&self, name: &str) -> Ipv4Addr {
        let at = self.hosts.iter().position(|(host, _)| host == name);
        address(at.unwrap())
    }

    pub(crate) fn of(&self, name: &str) -> &Netns {
        let found = self.hosts.iter().find(|(host, _)| host == name);
        &found.unwrap().1
    }

    /// Returns a command that runs on a host.
    pub(crate) fn on(&self, name: &str, program: &str) -> Command {
        let mut command = Command::new(program);
        inside(&mut command, self.of(name));
        command
    }

    /// Creates a script `SCRIPT -- HOST PROGRAM …`. It runs the remote program as a separate process, which survives the script,
    /// unlike with `exec`. The processes of the script end with the program.
    #[cfg(feature = "leases")]
    pub(crate) fn ssh(&self, folder: &Path) -> String {
        self.ssh_through(folder, "")
    }

    /// Creates a script as [`Self::ssh`], with a separate disk for each host at `folder`/disk. Outside, it is
    /// `folder`/disks/HOST.
    pub(crate) fn ssh_to_own_disks(&self, folder: &Path) -> String {
        let (disk, disks) = (folder.join("disk"), folder.join("disks"));
        fs::create_dir(&disk).unwrap();
        for (name, _) in &self.hosts {
            fs::create_dir_all(disks.join(name)).unwrap();
        }
        let mount = format!(
            "unshare --mount sh -c 'mount --bind \"$0\" {}; exec \"$@\"' {}/$host",
            disk.display(),
            disks.display()
        );
        self.ssh_through(folder, &mount)
    }

    fn ssh_through(&self, folder: &Path, through: &str) -> String {
        let case = |(number, (name, _)): (usize, &(String, Netns))| {
            format!("{name}) at={} ;;\n", address(number))
        };
        let cases: String = self.hosts.iter().enumerate().map(case).collect();
        let feed = folder.join("feed");
        let text = format!(
            "#!/bin/sh\nhost=$2\nshift 2\ncase $host in\n{cases}esac\nfeed={}.$$\n\
             mkfifo $feed\nexec 3<&0\ncat <&3 >$feed &\n\
             SSH_CONNECTION=\"10.78.0.254 1 $at 22\" nsenter --net=/run/netns/{}-$host {through} \"$@\" <$feed | cat\n\
             rm $feed\nkill $!\n",
            feed.display(),
            self.prefix
        );
        let script = folder.join("ssh");
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        script.to_str().unwrap().to_owned()
    }

    /// Disconnects a host from the switch, or connects it.
    pub(crate) fn set_connected(&self, name: &str, there: bool) {
        let state = if there { "up" } else { "down" };
        ip(&self.switch, &format!("link set {name} {state}"));
    }

    /// Returns the bytes that a host has sent.
    #[cfg(feature = "leases")]
    pub(crate) fn sent(&self, name: &str) -> u64 {
        let read = || fs::read_to_string("/proc/thread-self/net/dev");
        let text = self.of(name).run(read).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("wire:"));
        let sent = line.and_then(|line| line.split_whitespace().nth(8));
        sent.unwrap().parse().unwrap()
    }

    /// Returns the processes on a host.
    pub(crate) fn processes(&self, name: &str) -> Vec<u32> {
        let namespace = format!("{}-{name}", self.prefix);
        let output = Command::new("ip")
            .args(["netns", "pids", &namespace])
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Kills all processes on a host.
    pub(crate) fn kill_all(&self, name: &str) {
        self.processes(name).into_iter().for_each(kill);
    }

    /// Waits until all processes on these hosts have exited by themselves.
    pub(crate) fn wait_until_empty(&self, names: &[&str]) {
        let begin = Instant::now();
        for name in names {
            while !self.processes(name).is_empty() {
                let stay = self.processes(name);
                assert!(begin.elapsed() < super::PATIENCE, "{stay:?} stay on {name}");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}

fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, 1 + number as u8)
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // Processes are left only after a failure.
        for (name, host) in &self.hosts {
            self.kill_all(name);
            drop(Netns::delete(host.name().unwrap()));
        }
        drop(Netns::delete(self.switch.name().unwrap()));
    }
}

/// Captures the output of a command.
pub(crate) fn capture_output(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
}
