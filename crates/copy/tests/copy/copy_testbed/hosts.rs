// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts on one switch. Each is a network namespace, and all see the same files, as with a shared file system. A script in
//! place of ssh runs programs on them.

use longhaul_testnet::namespace::{Namespace, run, run_ip};
use std::{
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

/// Hosts, by name.
pub(crate) struct Hosts {
    switch: Namespace,
    hosts: Vec<(String, Namespace)>,
}

impl Hosts {
    /// Creates hosts that send at most at `rate`, in the notation of tc(8).
    pub(crate) fn new(names: &[&str], rate: &str) -> Self {
        let switch = Namespace::new("copy-switch");
        run_ip(&switch, "link add switch up type bridge");
        let mut hosts = Self {
            switch,
            hosts: Vec::new(),
        };
        names.iter().for_each(|name| hosts.add(name, rate));
        hosts
    }

    fn add(&mut self, name: &str, rate: &str) {
        let host = Namespace::new(&format!("copy-{name}"));
        self.switch.connect(name, &host, "wire");
        run_ip(&self.switch, &format!("link set {name} up master switch"));
        host.bring_up("wire", &[&format!("{}/24", address(self.hosts.len()))]);
        run(
            &host,
            &format!("tc qdisc add dev wire root tbf rate {rate} burst 256kb latency 50ms"),
        );
        self.hosts.push((name.to_owned(), host));
    }

    pub(crate) fn address(&self, name: &str) -> Ipv4Addr {
        let at = self.hosts.iter().position(|(host, _)| host == name);
        address(at.unwrap())
    }

    pub(crate) fn of(&self, name: &str) -> &Namespace {
        let found = self.hosts.iter().find(|(host, _)| host == name);
        &found.unwrap().1
    }

    /// Returns a command that runs on a host.
    pub(crate) fn on(&self, name: &str, program: &str) -> Command {
        self.of(name).command(program)
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
        let case = |(number, (name, host)): (usize, &(String, Namespace))| {
            let (at, netns) = (address(number), host.name());
            format!("{name}) at={at} netns={netns} ;;\n")
        };
        let cases: String = self.hosts.iter().enumerate().map(case).collect();
        let feed = folder.join("feed");
        let text = format!(
            "#!/bin/sh\nhost=$2\nshift 2\ncase $host in\n{cases}esac\nfeed={}.$$\n\
             mkfifo $feed\nexec 3<&0\ncat <&3 >$feed &\n\
             SSH_CONNECTION=\"10.78.0.254 1 $at 22\" nsenter --net=/run/netns/$netns {through} \"$@\" <$feed | cat\n\
             rm $feed\nkill $!\n",
            feed.display(),
        );
        let script = folder.join("ssh");
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        script.to_str().unwrap().to_owned()
    }

    /// Disconnects a host from the switch, or connects it.
    pub(crate) fn set_connected(&self, name: &str, there: bool) {
        let state = if there { "up" } else { "down" };
        run_ip(&self.switch, &format!("link set {name} {state}"));
    }

    /// Returns the bytes that a host has sent.
    #[cfg(feature = "leases")]
    pub(crate) fn sent(&self, name: &str) -> u64 {
        self.of(name).traffic("wire").sent_bytes
    }

    /// Kills all processes on a host.
    pub(crate) fn kill_all(&self, name: &str) {
        self.of(name).kill_all();
    }

    /// Waits until all processes on these hosts have exited by themselves.
    pub(crate) fn wait_until_empty(&self, names: &[&str]) {
        names
            .iter()
            .for_each(|name| self.of(name).wait_until_empty());
    }
}

fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, 1 + number as u8)
}

/// Captures the output of a command.
pub(crate) fn capture_output(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
}
