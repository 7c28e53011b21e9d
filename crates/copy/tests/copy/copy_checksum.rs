// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul copy --checksum`: compares files by contents, independently of times.

use serde_json::Value;
use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    time::{Duration, SystemTime},
};

const LARGE: usize = (9 << 20) + 5;

fn copy(arguments: &[&str], from: &Path, to: &Path) -> Value {
    let mut command = Command::new("timeout");
    command.args(["120", longhaul_testprograms::longhaul(), "copy", "--json"]);
    let output = command.args(arguments).args([from, to]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn set_time(path: &Path, time: SystemTime) {
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(time)
        .unwrap();
}

fn time(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn compares_contents_and_corrects_times() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir(&from).unwrap();
    let names = ["small", "large", "touched", "same", "empty"];
    for (name, length) in names.into_iter().zip([10, LARGE, LARGE, 20, 0]) {
        fs::write(from.join(name), vec![7; length]).unwrap();
    }
    copy(&[], &from.join(""), &to);
    // Damages files without a change of size and time.
    for (name, at) in [("small", 3), ("large", LARGE - 1)] {
        let mut bytes = fs::read(to.join(name)).unwrap();
        bytes[at] = 8;
        let before = time(&to.join(name));
        fs::write(to.join(name), bytes).unwrap();
        set_time(&to.join(name), before);
    }
    let earlier = time(&from.join("touched")) - Duration::from_secs(1000);
    set_time(&from.join("touched"), earlier);
    let planned = copy(&["--dry-run", "--checksum"], &from.join(""), &to);
    assert_eq!(
        (&planned["plan"]["change"], &planned["plan"]["create"]),
        (&3.into(), &0.into())
    );
    assert_eq!(planned["plan"]["bytes"], 10 + LARGE);
    assert_ne!(time(&to.join("touched")), earlier);
    let done = copy(&["--checksum"], &from.join(""), &to);
    assert_eq!(done["copied"], 3, "{done}");
    assert_eq!(
        done["sent_bytes"],
        10 + LARGE,
        "files that differ only in time are not sent"
    );
    for name in names {
        assert!(
            fs::read(from.join(name)).unwrap() == fs::read(to.join(name)).unwrap(),
            "{name}"
        );
        assert_eq!(time(&from.join(name)), time(&to.join(name)), "{name}");
    }
    let again = copy(&["--checksum"], &from.join(""), &to);
    assert_eq!(
        (&again["copied"], &again["sent_bytes"]),
        (&0.into(), &0.into())
    );
}
