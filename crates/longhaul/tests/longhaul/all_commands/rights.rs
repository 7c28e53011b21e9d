// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that need rights, run without them. They exit with 3 and a line that names the missing right, before they touch
//! anything. docs/rights.md has the same as a table.

use longhaul_testprograms::skip;
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
    /// Root as containers have it by default: root of the machine, with few capabilities.
    Container,
}

const CALLERS: [Caller; 3] = [Caller::User, Caller::Namespace, Caller::Container];

/// The bounding set of Docker and Podman.
const CONTAINER_CAPS: &str = "--bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,\
                         +net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap";

const ROOT: &str = "by root (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN): run it with sudo";
const MACHINE: &str =
    "by root of the machine, and this is a user namespace: run it outside, with sudo";
const NET_ADMIN: &str = "CAP_NET_ADMIN";
const NET_RAW: &str = "CAP_NET_RAW";
const SYS_ADMIN: &str = "CAP_SYS_ADMIN";
const LOW_PORT: &str = "need CAP_NET_BIND_SERVICE";
/// The caller has the rights: the command is not run.
const PERMITTED: &str = "";

/// Commands and the refusal for each of [`CALLERS`]. DIR stands for a directory of the test, NETNS for a network namespace
/// of the machine.
const REFUSALS: [(&str, [&str; 3]); 30] = [
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
            PERMITTED,
            PERMITTED,
        ],
    ),
    ("decp --filter PORT --duration 1s", [ROOT, MACHINE, ROOT]),
    ("decp --filter PORT --remove-caps", [ROOT, MACHINE, ROOT]),
    ("decp --filter PORT --dry-run --netns NETNS", [SYS_ADMIN; 3]),
    ("probe 127.0.0.1 --to NETNS", [SYS_ADMIN; 3]),
    ("probe 127.0.0.1 --from NETNS", [SYS_ADMIN; 3]),
    (
        "doctor --clean",
        ["needs root: run it with sudo", PERMITTED, NET_ADMIN],
    ),
    (
        "link --name rights --left a:10.9.0.1/30 --right b:10.9.0.2/30 --duration 1s",
        [NET_ADMIN, PERMITTED, NET_ADMIN],
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
        [NET_ADMIN, PERMITTED, NET_ADMIN],
    ),
    (
        "relay --transparent 127.0.0.1:0 --intercept 192.0.2.0/24 --verify-connect",
        [NET_ADMIN, PERMITTED, NET_ADMIN],
    ),
    (
        "relay --socks5 127.0.0.1:0 --initial-window-upstream 40",
        ["CAP_BPF and CAP_NET_ADMIN"; 3],
    ),
    (
        "relay --socks5 127.0.0.1:PRIVILEGED",
        [LOW_PORT, PERMITTED, PERMITTED],
    ),
    (
        "relay --socks5 127.0.0.1:0 --admin 127.0.0.1:PRIVILEGED",
        [LOW_PORT, PERMITTED, PERMITTED],
    ),
    (
        "site --export a=DIR/a --state DIR/b --listen 127.0.0.1:PRIVILEGED",
        [LOW_PORT, PERMITTED, PERMITTED],
    ),
    (
        "plan measure --serve 127.0.0.1:PRIVILEGED",
        [LOW_PORT, PERMITTED, PERMITTED],
    ),
    (
        "udt receive --listen 127.0.0.1:PRIVILEGED DIR/c",
        [LOW_PORT, PERMITTED, PERMITTED],
    ),
    (
        "tap capture -i lo -w DIR/d --duration 1s",
        [NET_RAW, PERMITTED, PERMITTED],
    ),
    (
        "tap live -i lo --duration 1s",
        [NET_RAW, PERMITTED, PERMITTED],
    ),
    ("tap capture --netns NETNS -i lo -w DIR/e", [SYS_ADMIN; 3]),
];

/// Commands that need no rights.
const UNPRIVILEGED: [&str; 5] = [
    "cc list",
    "cc show htcp",
    "decp --filter PORT --dry-run --duration 100ms",
    "site token --state DIR/b list",
    "relay --transparent 127.0.0.1:0 --check-config",
];

/// Commands of `doctor` that change the host and need root.
const DOCTOR_CHANGES: [&str; 3] = ["doctor --fix", "doctor --undo", "doctor --clean"];

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("coreutils");
    id.stdout == b"0\n"
}

/// Returns a command that runs its arguments as this caller; `None` if that is impossible here.
fn as_caller(caller: Caller) -> Option<Command> {
    let wrapped: &[&str] = match (caller, is_root()) {
        (Caller::User, false) => &["env"],
        // Nobody, without a mapping.
        (Caller::User, true) => &["unshare", "--user"],
        (Caller::Namespace, _) => &["unshare", "--user", "--map-root-user", "--net"],
        (Caller::Container, true) => &[
            "unshare",
            "--net",
            "setpriv",
            CONTAINER_CAPS,
            "--inh-caps=-all",
        ],
        (Caller::Container, false) => return None,
    };
    let mut command = Command::new(wrapped[0]);
    command.args(&wrapped[1..]);
    let probe = Command::new(wrapped[0])
        .args(&wrapped[1..])
        .arg("true")
        .status();
    probe
        .is_ok_and(|status| status.success())
        .then_some(command)
}

/// Returns the first port that any user may listen on.
fn first_unprivileged_port() -> u16 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1024)
}

/// A network namespace of the machine, added by `ip netns`. Only root can make one.
struct Namespace(String);

impl Namespace {
    fn new() -> Option<Self> {
        let name = format!("rights-{}", std::process::id());
        let added = Command::new("ip").args(["netns", "add", &name]).status();
        added
            .is_ok_and(|status| status.success())
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

/// Returns the arguments of a command line, with its placeholders filled in.
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

/// Runs longhaul with these arguments. Returns the exit code and all output.
fn run(mut command: Command, arguments: &[String]) -> (Option<i32>, String) {
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

fn assert_refused(caller: Caller, arguments: &[String], right: &str) {
    let Some(command) = as_caller(caller) else {
        return;
    };
    let (code, message) = run(command, arguments);
    let last = message.lines().last().unwrap_or_default();
    assert_eq!(code, Some(3), "{caller:?}: {arguments:?}: {message}");
    assert!(
        last.starts_with("longhaul: ") && last.contains(right),
        "{caller:?}: {arguments:?}: {message}"
    );
}

#[test]
fn names_the_missing_right_and_exits_with_3() {
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
    for (line, rights) in REFUSALS {
        if line.contains("PRIVILEGED") && first_unprivileged_port() <= 1 {
            continue;
        }
        for (caller, right) in CALLERS.into_iter().zip(rights) {
            if right != PERMITTED {
                assert_refused(caller, &arguments(line, path, &netns.0), right);
            }
        }
    }
    let created: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        created.iter().all(|name| name == "a" || name == "b"),
        "{created:?}"
    );
}

/// Capabilities, and a command that works with these and no others, as in a systemd unit or a container.
const SUFFICIENT_RIGHTS: [(&str, &str); 7] = [
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
        "decp --filter PORT --duration 100ms",
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
    for (rights, line) in SUFFICIENT_RIGHTS {
        let mut command = Command::new("unshare");
        // `timeout` ends a relay.
        let script = "ip link set lo up; exec setpriv --inh-caps=-all --bounding-set=-all,+$0 timeout --preserve-status 2 \"$@\"";
        command.args(["--net", "sh", "-c", script, rights]);
        let (code, message) = run(
            command,
            &arguments(line, directory.path().to_str().unwrap(), ""),
        );
        assert_eq!(code, Some(0), "{rights}: {line}: {message}");
    }
}

#[test]
fn runs_unprivileged_commands_for_every_caller() {
    let directory = tempfile::tempdir().unwrap();
    for line in UNPRIVILEGED {
        let Some(command) = as_caller(Caller::User) else {
            skip::record("no user namespaces here");
            return;
        };
        let arguments = arguments(line, directory.path().to_str().unwrap(), "");
        let (code, message) = run(command, &arguments);
        assert_eq!(code, Some(0), "{line}: {message}");
    }
}

#[test]
fn doctor_checks_without_rights_and_refuses_changes() {
    for line in DOCTOR_CHANGES {
        assert_refused(
            Caller::User,
            &arguments(line, "", ""),
            "needs root: run it with sudo",
        );
    }
    let Some(command) = as_caller(Caller::User) else {
        skip::record("no user namespaces here");
        return;
    };
    let (code, message) = run(command, &["doctor".to_owned()]);
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
