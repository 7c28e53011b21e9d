// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every command that takes rights, without them: exit code 3 and a line that names what lacks, before anything is touched.
//! docs/rights.md has the same as a table.

use longhaul_testbed::skip;
use std::{
    fs,
    process::{Command, Output, Stdio},
};

/// Caller of the command: its user and capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// An ordinary user.
    User,
    /// Root of a user namespace and of a network namespace in it.
    Namespace,
    /// Root as containers have it by default: of the machine, without the capabilities that matter.
    Container,
}

const CALLERS: [Caller; 3] = [Caller::User, Caller::Namespace, Caller::Container];

/// The bounding set of Docker and Podman.
const CONTAINER: &str = "--bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,\
                         +net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap";

const ROOT: &str = "by root (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN): run it with sudo";
const MACHINE: &str =
    "by root of the machine, and this is a user namespace: run it outside, with sudo";
const NET_ADMIN: &str = "CAP_NET_ADMIN";
const NET_RAW: &str = "CAP_NET_RAW";
const ENTER: &str = "CAP_SYS_ADMIN";
const LOW_PORT: &str = "need CAP_NET_BIND_SERVICE";
/// Not refused for lack of rights.
const MAY: &str = "";

/// Commands and the refusal for each of [`CALLERS`]. DIR is a directory of the test's, NETNS a network namespace of the machine's.
const REFUSED: [(&str, [&str; 3]); 30] = [
    ("cc load htcp", [ROOT, MACHINE, ROOT]),
    ("cc load htcp --replace", [ROOT, MACHINE, ROOT]),
    ("cc unload htcp", [ROOT, MACHINE, ROOT]),
    ("cc watch --once", [ROOT, MACHINE, ROOT]),
    ("run true", [ROOT, MACHINE, ROOT]),
    ("run --cc lh_htcp true", [ROOT, MACHINE, ROOT]),
    ("run --inter-packet-gap 1ms true", [ROOT, MACHINE, ROOT]),
    ("run --ack-ratio 4 true", [ROOT, MACHINE, ROOT]),
    (
        "run --ack-rate 9 --ack-interface lo true",
        [ROOT, MACHINE, ROOT],
    ),
    (
        "run --user root true",
        [
            "only root can run a program as another user: use sudo",
            MAY,
            MAY,
        ],
    ),
    ("decp --match PORT --duration 1s", [ROOT, MACHINE, ROOT]),
    ("decp --match PORT --lift", [ROOT, MACHINE, ROOT]),
    ("decp --match PORT --dry-run --netns NETNS", [ENTER; 3]),
    ("probe 127.0.0.1 --to NETNS", [ENTER; 3]),
    ("probe 127.0.0.1 --from NETNS", [ENTER; 3]),
    (
        "doctor --clean",
        ["needs root: run it with sudo", MAY, NET_ADMIN],
    ),
    (
        "link --name rights --left a:10.9.0.1/30 --right b:10.9.0.2/30 --duration 1s",
        [NET_ADMIN, MAY, NET_ADMIN],
    ),
    (
        "link --name rights --left NETNS:a:10.9.0.1/30 --right b:10.9.0.2/30 --duration 1s",
        [NET_ADMIN; 3],
    ),
    (
        "link --name rights --left a:10.9.0.1/30 --right b:10.9.0.2/30 --duration 1s --realtime",
        ["CAP_SYS_NICE"; 3],
    ),
    (
        "relay --transparent 127.0.0.1:0 --intercept 192.0.2.0/24",
        [NET_ADMIN, MAY, NET_ADMIN],
    ),
    (
        "relay --transparent 127.0.0.1:0 --intercept 192.0.2.0/24 --verify-connect",
        [NET_ADMIN, MAY, NET_ADMIN],
    ),
    (
        "relay --socks5 127.0.0.1:0 --initial-window-upstream 40",
        ["CAP_BPF and CAP_NET_ADMIN"; 3],
    ),
    ("relay --socks5 127.0.0.1:PRIVILEGED", [LOW_PORT, MAY, MAY]),
    (
        "relay --socks5 127.0.0.1:0 --admin 127.0.0.1:PRIVILEGED",
        [LOW_PORT, MAY, MAY],
    ),
    (
        "site --export a=DIR/a --state DIR/b --listen 127.0.0.1:PRIVILEGED",
        [LOW_PORT, MAY, MAY],
    ),
    (
        "plan measure --serve 127.0.0.1:PRIVILEGED",
        [LOW_PORT, MAY, MAY],
    ),
    (
        "udt receive --listen 127.0.0.1:PRIVILEGED DIR/c",
        [LOW_PORT, MAY, MAY],
    ),
    (
        "tap capture -i lo -w DIR/d --duration 1s",
        [NET_RAW, MAY, MAY],
    ),
    ("tap live -i lo --duration 1s", [NET_RAW, MAY, MAY]),
    ("tap capture --netns NETNS -i lo -w DIR/e", [ENTER; 3]),
];

/// Commands that need no rights.
const FREE: [&str; 5] = [
    "cc list",
    "cc show htcp",
    "decp --match PORT --dry-run --duration 100ms",
    "site token --state DIR/b list",
    "relay --transparent 127.0.0.1:0 --check-config",
];

/// Commands whose changes need root.
const CHANGES: [&str; 3] = ["doctor --fix", "doctor --undo", "doctor --clean"];

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("coreutils");
    id.stdout == b"0\n"
}

/// A command as this caller starts it; none if the caller can't be made here.
fn as_caller(caller: Caller) -> Option<Command> {
    let wrapped: &[&str] = match (caller, is_root()) {
        (Caller::User, false) => &["env"],
        // Nobody, without a mapping.
        (Caller::User, true) => &["unshare", "--user"],
        (Caller::Namespace, _) => &["unshare", "--user", "--map-root-user", "--net"],
        (Caller::Container, true) => &["unshare", "--net", "setpriv", CONTAINER, "--inh-caps=-all"],
        (Caller::Container, false) => return None,
    };
    let mut command = Command::new(wrapped[0]);
    command.args(&wrapped[1..]);
    let there = Command::new(wrapped[0])
        .args(&wrapped[1..])
        .arg("true")
        .status();
    there
        .is_ok_and(|status| status.success())
        .then_some(command)
}

/// Ports from here on are everybody's.
fn first_port() -> u16 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1024)
}

/// A network namespace of the machine's, as `ip netns` makes them. Root alone can.
struct Namespace(String);

impl Namespace {
    fn new() -> Option<Self> {
        let name = format!("rights-{}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).status();
        made.is_ok_and(|status| status.success())
            .then_some(Self(name))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(
            Command::new("ip")
                .args(["netns", "delete", &self.0])
                .status(),
        );
    }
}

/// The arguments of a line above.
fn arguments(line: &str, directory: &str, netns: &str) -> Vec<String> {
    let words = line.split(' ');
    let filled = words.map(|word| {
        word.replace("DIR", directory)
            .replace("NETNS", netns)
            .replace("PRIVILEGED", "1")
            .replace("PORT", "dport 1")
    });
    filled.collect()
}

fn ended(mut command: Command, arguments: &[String]) -> (Option<i32>, String) {
    command.arg(env!("CARGO_BIN_EXE_longhaul")).args(arguments);
    let Output {
        status,
        stdout,
        stderr,
    } = command.stdin(Stdio::null()).output().unwrap();
    let message = [stdout, stderr].concat();
    (
        status.code(),
        String::from_utf8_lossy(&message).into_owned(),
    )
}

fn refused(caller: Caller, arguments: &[String], right: &str) {
    let Some(command) = as_caller(caller) else {
        return;
    };
    let (code, message) = ended(command, arguments);
    let last = message.lines().last().unwrap_or_default();
    assert_eq!(code, Some(3), "{caller:?}: {arguments:?}: {message}");
    assert!(
        last.starts_with("longhaul: ") && last.contains(right),
        "{caller:?}: {arguments:?}: {message}"
    );
}

#[test]
fn names_the_right_that_lacks_and_ends_with_3() {
    let missing = |caller: &&Caller| as_caller(**caller).is_none();
    let missing: Vec<_> = CALLERS.iter().filter(missing).collect();
    if !skip::require(
        missing.is_empty(),
        format!("root, and user namespaces, to be {missing:?}"),
    ) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    fs::create_dir(directory.path().join("a")).unwrap();
    let netns = Namespace::new().expect("root makes network namespaces");
    for (line, rights) in REFUSED {
        if line.contains("PRIVILEGED") && first_port() <= 1 {
            continue;
        }
        for (caller, right) in CALLERS.into_iter().zip(rights) {
            if right != MAY {
                refused(caller, &arguments(line, path, &netns.0), right);
            }
        }
    }
    let left: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        left.iter().all(|name| name == "a" || name == "b"),
        "{left:?}"
    );
}

/// With these rights and no other, as a unit or a container may have them.
const ENOUGH: [(&str, &str); 7] = [
    (
        "net_admin",
        "link --name rights --left a:10.9.0.1/30 --right b:10.9.0.2/30 --duration 100ms",
    ),
    (
        "net_admin",
        "relay --transparent 127.0.0.1:0 --intercept 192.0.2.0/24 --keep-source",
    ),
    (
        "net_admin",
        "relay --transparent 127.0.0.1:0 --intercept 192.0.2.0/24 --verify-connect",
    ),
    (
        "net_admin,+bpf",
        "relay --socks5 127.0.0.1:0 --initial-window-upstream 40",
    ),
    ("net_bind_service", "relay --socks5 127.0.0.1:1"),
    ("net_raw", "tap capture -i lo -w DIR/a --duration 100ms"),
    (
        "net_admin,+bpf,+perfmon",
        "decp --match PORT --duration 100ms",
    ),
];

#[test]
fn works_with_the_rights_that_the_manual_names() {
    if !skip::require_privileged(
        is_root() && !skip::is_in_user_namespace(),
        "root of the machine",
    ) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for (rights, line) in ENOUGH {
        let mut command = Command::new("unshare");
        // A relay ends when it is told to.
        let script = "ip link set lo up; exec setpriv --inh-caps=-all --bounding-set=-all,+$0 timeout --preserve-status 2 \"$@\"";
        command.args(["--net", "sh", "-c", script, rights]);
        let (code, message) = ended(
            command,
            &arguments(line, directory.path().to_str().unwrap(), ""),
        );
        assert_eq!(code, Some(0), "{rights}: {line}: {message}");
    }
}

#[test]
fn runs_unprivileged_commands_for_every_caller() {
    let directory = tempfile::tempdir().unwrap();
    for line in FREE {
        let Some(command) = as_caller(Caller::User) else {
            skip::record("no user namespaces here");
            return;
        };
        let arguments = arguments(line, directory.path().to_str().unwrap(), "");
        let (code, message) = ended(command, &arguments);
        assert_eq!(code, Some(0), "{line}: {message}");
    }
}

#[test]
fn a_host_is_looked_at_without_rights_and_changed_with_them() {
    for line in CHANGES {
        refused(
            Caller::User,
            &arguments(line, "", ""),
            "needs root: run it with sudo",
        );
    }
    let Some(command) = as_caller(Caller::User) else {
        skip::record("no user namespaces here");
        return;
    };
    let (code, message) = ended(command, &["doctor".to_owned()]);
    assert!(code.is_some_and(|code| code <= 1), "{message}");
    for word in [
        "cc load htcp",
        ROOT,
        "fix: sudo longhaul doctor",
        "longhaul relay ",
    ] {
        assert!(message.contains(word), "{word}: {message}");
    }
}
