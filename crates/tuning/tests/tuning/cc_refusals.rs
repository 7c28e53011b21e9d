// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refusals of `longhaul cc`: one line that names the reason, and an exit code.

use std::{
    fs,
    process::{Command, Output},
};

/// Returns the exit code and the only line on standard error.
fn exit_code_and_line(output: &Output) -> (i32, String) {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    (output.status.code().expect("no signal"), text)
}

fn cc(args: &[&str]) -> (i32, String) {
    let output = Command::new(longhaul_testprograms::longhaul())
        .arg("cc")
        .args(args)
        .output();
    exit_code_and_line(&output.unwrap())
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let refused = |args: &[&str], named: &str| {
        let (code, message) = cc(args);
        assert_eq!(code, 2, "{args:?}: {message}");
        assert!(message.contains(named), "{args:?}: {message}");
    };
    refused(&["load", "vegas"], "scalable, trc");
    refused(&["unload", "vegas"], "scalable, trc");
    refused(&["show", "vegas"], "scalable, trc");
    refused(&["watch", "vegas"], "scalable, trc");
    refused(
        &["load", "scalable", "--param", "alpha=3"],
        "it has ai, md_shift",
    );
    refused(&["load", "scalable", "--param", "ai"], "NAME=VALUE");
    refused(
        &["load", "scalable", "--param", "ai=0"],
        "1 to 10000 packets",
    );
    refused(
        &["load", "scalable", "--param", "ai=-1"],
        "1 to 10000 packets",
    );
    refused(
        &["load", "scalable", "scalable", "--param", "ai=5"],
        "one congestion control at a time",
    );
    refused(
        &["load", "scalable", "--per-socket", "/proc"],
        "cgroup of version 2",
    );
    refused(
        &["load", "scalable", "--per-socket", "/no/such"],
        "cgroup of version 2",
    );
    refused(&["watch", "--filter", "dport"], "'sport N'");
    refused(&["watch", "--interval", "1ms"], "10ms");
    refused(&["show", "cubic"], "cubic is the kernel's own");
    refused(
        &["list", "--bpffs", "/nonexist"],
        "--bpffs /nonexist: No such file",
    );
    refused(
        &["load", "scalable", "--bpffs", "/etc/passwd"],
        "--bpffs /etc/passwd: not a directory",
    );
}

#[test]
fn names_missing_rights() {
    // A user's process; as root, one without capabilities.
    let without = |args: &[&str]| {
        let mut command = if rustix::process::geteuid().is_root() {
            let mut setpriv = Command::new("setpriv");
            setpriv.args([
                "--bounding-set=-all",
                "--inh-caps=-all",
                longhaul_testprograms::longhaul(),
            ]);
            setpriv
        } else {
            Command::new(longhaul_testprograms::longhaul())
        };
        command.arg("cc").args(args).output().unwrap()
    };
    for args in [
        &["load", "scalable"][..],
        &["unload", "scalable"],
        &["watch", "--once"],
    ] {
        let (code, message) = exit_code_and_line(&without(args));
        assert_eq!(code, 3, "{args:?}: {message}");
        assert!(message.contains("root (CAP_BPF"), "{args:?}: {message}");
    }
    let list = without(&["list"]);
    assert!(list.status.success());
    assert!(String::from_utf8_lossy(&list.stdout).contains("lh_scalable"));
    assert!(without(&["show", "scalable"]).status.success());
}

#[test]
fn names_missing_kernel_feature() {
    if !rustix::process::geteuid().is_root() {
        longhaul_testprograms::skip::record("needs root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (code, message) = over_types(directory.path());
    if message.contains("not permitted") {
        longhaul_testprograms::skip::record(&message);
        return;
    }
    assert_eq!(code, 3, "{message}");
    assert!(message.contains("CONFIG_DEBUG_INFO_BTF"), "{message}");

    fs::write(directory.path().join("vmlinux"), types_without_struct_ops()).unwrap();
    let (code, message) = over_types(directory.path());
    assert_eq!(code, 3, "{message}");
    assert!(message.contains("struct_ops"), "{message}");
}

/// Runs `cc load` with this directory mounted over the kernel's BTF, in a mount namespace.
fn over_types(directory: &std::path::Path) -> (i32, String) {
    let script = r#"mount --bind "$1" /sys/kernel/btf && exec "$2" cc load scalable"#;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script, "sh"]);
    exit_code_and_line(
        &unshare
            .arg(directory)
            .arg(longhaul_testprograms::longhaul())
            .output()
            .unwrap(),
    )
}

/// BTF with one type, a 32-bit integer (Documentation/bpf/btf.rst).
fn types_without_struct_ops() -> Vec<u8> {
    let words: [u32; 10] = [
        u32::from_ne_bytes([
            0xeb9f_u16.to_ne_bytes()[0],
            0xeb9f_u16.to_ne_bytes()[1],
            1,
            0,
        ]),
        24,
        0,
        16,
        16,
        5,
        1,
        1 << 24,
        4,
        1 << 24 | 32,
    ];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(b"\0int\0");
    bytes
}
