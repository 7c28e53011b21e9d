// SPDX-License-Identifier: MIT OR Apache-2.0
//! Environment, signals and exit code of a program under `longhaul run` are as without it.

use crate::run_program::{RunningProgram, command, may_attach_bpf, output, stdout_of};
use rustix::process::Signal;
use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
};

#[test]
fn passes_on_the_exit_code() {
    if !may_attach_bpf() {
        return;
    }
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        assert_eq!(
            output(&[], &["sh", "-c", script]).status.code(),
            Some(code),
            "{script}"
        );
    }
}

#[test]
fn passes_on_signals() {
    if !may_attach_bpf() {
        return;
    }
    for (signal, name, code) in [
        (Signal::TERM, "TERM", 41),
        (Signal::INT, "INT", 42),
        (Signal::HUP, "HUP", 43),
        (Signal::USR1, "USR1", 44),
    ] {
        let mut running = RunningProgram::start(&[], &format!("trap 'exit {code}' {name}"));
        running.signal(signal);
        assert_eq!(running.wait(), Some(code), "{name}");
    }
}

#[test]
fn exits_with_128_plus_signal_number() {
    if !may_attach_bpf() {
        return;
    }
    let mut running = RunningProgram::start(&[], "");
    running.signal(Signal::TERM);
    assert_eq!(running.wait(), Some(143));
}

#[test]
fn passes_through_input_output_and_arguments() {
    if !may_attach_bpf() {
        return;
    }
    let script = r#"printf '%s|' "$0" "$@"; cat; echo said >&2"#;
    let mut child = command(&[], &["sh", "-c", script, "-x", "a b", "--", ""])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"from stdin")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "-x|a b|--||from stdin"
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "said\n");
}

#[test]
fn inherits_environment_directory_group_and_signal_mask() {
    if !may_attach_bpf() {
        return;
    }
    let looks = "env | grep -v '^_=' | sort; pwd; umask; ulimit -n; ps -o pgid= -p $$ | tr -d ' '; \
                 exec grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let mut plain = std::process::Command::new("sh");
    let plain = plain.args(["-c", looks]).output().unwrap();
    assert!(plain.status.success());
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert_eq!(
        stdout_of(&["--pacing-rate", "1gbit"], &["sh", "-c", looks]),
        plain
    );
}

#[test]
fn sets_ids_groups_and_environment_of_another_user() {
    if !may_attach_bpf() {
        return;
    }
    let nobody = longhaul_linux::account::Account::of("nobody")
        .unwrap()
        .unwrap();
    let looks = "id -u; id -g; id -G; echo $HOME $USER $LOGNAME; \
                 grep -E '^Cap(Prm|Eff)' /proc/self/status | tr -d '\\t'";
    let groups: Vec<_> = nobody.groups.iter().map(u32::to_string).collect();
    let expected = format!(
        "{}\n{}\n{}\n{} nobody nobody\nCapPrm:{none}\nCapEff:{none}\n",
        nobody.uid,
        nobody.gid,
        groups.join(" "),
        nobody.home.to_string_lossy(),
        none = "0".repeat(16),
    );
    assert_eq!(
        stdout_of(&["--user", "nobody"], &["sh", "-c", looks]),
        expected
    );
}

/// A terminal signals the whole process group: a signal passed on too would be delivered twice.
#[test]
fn delivers_terminal_signals_once() {
    if !may_attach_bpf() {
        return;
    }
    let longhaul = longhaul_testprograms::longhaul();
    let program = r#"n=0; trap 'n=$((n + 1)); echo "<$n>"' INT; trap 'exit 5' QUIT; echo ready
                     while :; do sleep 0.05; done"#;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("program");
    std::fs::write(&file, program).unwrap();
    // Without exec a shell in between would receive SIGQUIT too, and end.
    let line = format!("exec {longhaul} run -- sh {}", file.display());
    // A command started with & ignores both signals, and a shell cannot trap signals that were ignored at its start.
    let mut child = std::process::Command::new("env")
        .args([
            "--default-signal=INT,QUIT",
            "script",
            "-qefc",
            &line,
            "/dev/null",
        ])
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut screen = BufReader::new(child.stdout.take().unwrap());
    let mut until = |word: &str| {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert!(screen.read_line(&mut line).unwrap() > 0, "no {word}");
        }
        line
    };
    until("ready");
    for times in 1..=3 {
        keys.write_all(b"\x03").unwrap();
        assert!(until("<").contains(&format!("<{times}>")));
    }
    keys.write_all(b"\x1c").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
}
