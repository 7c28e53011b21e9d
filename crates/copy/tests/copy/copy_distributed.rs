// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distributed copies: a tree is distributed over hosts with disks of their own, copied to other hosts, and gathered. The
//! result is the same tree. After a kill of any process, the same command resumes. `COPY_DISTRIBUTED_KILLS` is the number of
//! rounds of random kills (default 2), `COPY_SEED` the first seed.

use crate::copy_testbed::{
    BLOCK, finish,
    hosts::{Hosts, capture_output},
    kill, tree,
};
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Output},
    time::Duration,
};

/// Length of a stripe in bytes: the minimum. longhaul rounds it to three blocks.
const STRIPE: u64 = 16_000_000;

/// Number of blocks of the large file: six stripes.
const BLOCKS: u64 = 17;

/// Host names: two that share the source, two times three that store shares, and the one that gathers.
const ALL_HOSTS: [&str; 9] = ["s1", "s2", "d1", "d2", "d3", "e1", "e2", "e3", "t1"];

/// Hosts with separate disks, and a tree to copy.
struct DistributedTestbed {
    hosts: Hosts,
    folder: tempfile::TempDir,
    ssh: String,
}

impl DistributedTestbed {
    fn new() -> Self {
        let hosts = Hosts::new(&ALL_HOSTS, "1gbit");
        let folder = tempfile::tempdir().unwrap();
        tree::make(&folder.path().join("from/tree"), BLOCKS);
        Self {
            ssh: hosts.ssh_to_own_disks(folder.path()),
            hosts,
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of a file on the disk of a host.
    fn on_disk(&self, host: &str, path: &str) -> PathBuf {
        self.path("disks").join(host).join(path)
    }

    fn start(&self, arguments: &[&str], from: (&str, &str), to: (&str, &str)) -> Child {
        let program = longhaul_testprograms::longhaul();
        let location =
            |(hosts, path): (&str, &str)| format!("{hosts}:{}", self.path(path).display());
        let mut command = self.hosts.on("t1", program);
        command.args(["copy", "--json", "--streams", "2", "--idle-timeout", "3s"]);
        command.args(["--ssh", &self.ssh, "--remote-program", program]);
        command.args(arguments).args([location(from), location(to)]);
        capture_output(&mut command).spawn().unwrap()
    }

    fn spread(&self, arguments: &[&str], hosts: &str) -> Child {
        let stripe = STRIPE.to_string();
        let distribute = ["--distributed", "target", "--stripe", &stripe];
        self.start(
            &[&distribute, arguments].concat(),
            ("s1,s2", "from/tree"),
            (hosts, "disk"),
        )
    }

    fn gather(&self, hosts: &str) -> Child {
        self.start(
            &["--distributed", "source"],
            (hosts, "disk/tree"),
            ("t1", "disk"),
        )
    }

    fn bytes(&self) -> u64 {
        crate::copy_testbed::durable::missing_bytes(&self.path("from"), Path::new("/nowhere"))
    }

    fn assert_gathered(&self, context: &str) {
        self.hosts.wait_until_empty(&ALL_HOSTS[..8]);
        let to = self.on_disk("t1", "");
        tree::assert_same(&self.path("from/tree"), &to.join("tree"), context);
        assert_eq!(
            tree::remaining_internal_files(&to),
            Vec::<PathBuf>::new(),
            "{context}"
        );
    }

    fn erase_disks(&self, hosts: &[&str]) {
        for host in hosts {
            let top = self.on_disk(host, "");
            make_removable(&top);
            fs::remove_dir_all(&top).unwrap();
            fs::create_dir(&top).unwrap();
        }
    }
}

/// Sets a mode on the directories of the tree with which this user can remove them.
fn make_removable(top: &Path) {
    for path in tree::walk(top).into_iter().map(|path| top.join(path)) {
        if path.is_dir() && !path.is_symlink() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        }
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn record(command: Child, context: &str) -> serde_json::Value {
    let output = finish(command);
    assert!(output.status.success(), "{context}: {}", stderr(&output));
    assert_eq!(stderr(&output), "", "{context}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the disk space of a directory's files, in bytes.
fn disk_usage(top: &Path) -> u64 {
    let files = tree::walk(top).into_iter().map(|path| top.join(path));
    let files = files.filter(|path| path.is_file() && !path.is_symlink());
    files
        .map(|path| fs::metadata(path).unwrap().blocks() * 512)
        .sum()
}

fn piece_files(top: &Path) -> Vec<PathBuf> {
    let is_piece = |path: &PathBuf| path.extension().is_some_and(|end| end == "piece");
    tree::walk(top).into_iter().filter(is_piece).collect()
}

const TARGET_LIST: &str = "d1,d2,d3";
const TARGETS: [&str; 3] = ["d1", "d2", "d3"];

#[test]
fn gathers_a_tree_distributed_over_three_hosts() {
    let testbed = DistributedTestbed::new();
    let done = record(testbed.spread(&[], TARGET_LIST), "spread");
    assert_eq!(
        done["sent_bytes"],
        testbed.bytes(),
        "all, and nothing twice"
    );
    for host in TARGETS {
        let share = disk_usage(&testbed.on_disk(host, "tree"));
        assert!(
            share > testbed.bytes() / 5 && share < testbed.bytes() / 2,
            "{host} has {share}"
        );
        assert!(
            !testbed.on_disk(host, "tree/large").exists(),
            "a partial file must not have the final name"
        );
        assert!(
            !piece_files(&testbed.on_disk(host, "tree")).is_empty(),
            "{host}"
        );
    }
    let again = record(testbed.spread(&[], "d3,d1,d2"), "spread again");
    assert_eq!(
        (&again["sent_bytes"], &again["copied"]),
        (&0.into(), &0.into())
    );
    // A change of metadata alone sends no data, and is applied to each piece.
    let large = testbed.path("from/tree/large");
    fs::set_permissions(&large, fs::Permissions::from_mode(0o751)).unwrap();
    let third = record(testbed.spread(&[], TARGET_LIST), "with another mode");
    assert_eq!(
        (&third["sent_bytes"], &third["copied"]),
        (&0.into(), &3.into())
    );

    let gathered = record(testbed.gather(TARGET_LIST), "gather");
    assert_eq!(gathered["sent_bytes"], testbed.bytes());
    testbed.assert_gathered("gathered");
    let again = record(testbed.gather("d2,d3,d1"), "gather again");
    assert_eq!(
        (&again["sent_bytes"], &again["copied"]),
        (&0.into(), &0.into())
    );
    testbed.assert_gathered("gathered again");
}

/// Each host copies to its counterpart, and pieces stay pieces.
#[test]
fn copies_shares_to_other_hosts() {
    let testbed = DistributedTestbed::new();
    record(testbed.spread(&[], TARGET_LIST), "spread");
    let both = |context| {
        let moved = testbed.start(
            &["--distributed", "both", "--delete"],
            (TARGET_LIST, "disk/tree"),
            ("e1,e2,e3", "disk"),
        );
        record(moved, context)
    };
    assert_eq!(both("moved")["sent_bytes"], testbed.bytes());
    assert_eq!(both("moved again")["sent_bytes"], 0);
    testbed.erase_disks(&TARGETS);
    record(testbed.gather("e1,e2,e3"), "gathered");
    testbed.assert_gathered("gathered from the others");
}

/// One host cannot be reached, and another has a file in place of the target directory.
#[test]
fn failed_hosts_do_not_stop_the_others() {
    let testbed = DistributedTestbed::new();
    let stripe = STRIPE.to_string();
    let spread = |hosts| {
        let arguments = ["--distributed", "target", "--stripe", &stripe];
        testbed.start(&arguments, ("s1,s2", "from/tree"), (hosts, "disk/below"))
    };
    let assert_fails_at = |hosts, named: &str| {
        let output = finish(spread(hosts));
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(named), "{}", stderr(&output));
    };
    // `nobody` sorts after d2, as d3 does, so that the order of hosts and thus the shares stay the same.
    assert_fails_at("d1,d2,nobody", "nobody");
    make_removable(&testbed.on_disk("d2", ""));
    fs::remove_dir_all(testbed.on_disk("d2", "below")).unwrap();
    fs::write(testbed.on_disk("d2", "below"), "a file").unwrap();
    assert_fails_at("d1,d2,d3", "d2");
    fs::remove_file(testbed.on_disk("d2", "below")).unwrap();
    let last = record(spread("d1,d2,d3"), "the host that had a file there");
    let sent = last["sent_bytes"].as_u64().unwrap();
    assert!((1..testbed.bytes() / 2).contains(&sent), "{sent}");
    let from = ("d1,d2,d3", "disk/below/tree");
    record(
        testbed.start(&["--distributed", "source"], from, ("t1", "disk")),
        "gathered",
    );
    testbed.assert_gathered("all are there");
}

#[test]
fn names_incomplete_files_and_copies_the_rest() {
    let testbed = DistributedTestbed::new();
    record(testbed.spread(&[], TARGET_LIST), "spread");
    let two = finish(testbed.gather("d1,d3"));
    assert_eq!(two.status.code(), Some(1), "{}", stderr(&two));
    assert!(
        stderr(&two).contains("tree/large: 6 of its 18 blocks are on none of these hosts"),
        "{}",
        stderr(&two)
    );
    assert!(!testbed.on_disk("t1", "tree/large").exists());
    assert!(testbed.on_disk("t1", "tree/sizes").is_dir());
    let rest = record(testbed.gather(TARGET_LIST), "all three");
    let sent = rest["sent_bytes"].as_u64().unwrap();
    assert!(sent < testbed.bytes() / 2, "{sent}");
    testbed.assert_gathered("all three");
}

/// Nothing at one host shows which small files the other hosts have.
#[test]
fn names_a_missing_share_of_small_files() {
    let testbed = DistributedTestbed::new();
    let small = testbed.path("from/small");
    fs::create_dir(&small).unwrap();
    for number in 0..30 {
        fs::write(small.join(number.to_string()), "x").unwrap();
    }
    let copy = |side: &str, from: (&str, &str), to: (&str, &str)| {
        finish(testbed.start(&["--distributed", side], from, to))
    };
    let spread = copy("target", ("s1", "from/small"), (TARGET_LIST, "disk"));
    assert!(spread.status.success(), "{}", stderr(&spread));
    let assert_d2_is_missing = |hosts: &str, path: &str| {
        let output = copy("source", (hosts, path), ("t1", "disk/some"));
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{hosts}:{path}: {stderr}");
        assert!(stderr.contains("the share of d2 is missing"), "{stderr}");
        assert!(stderr.contains("over 3 hosts, d1, d2, d3"), "{stderr}");
    };
    assert_d2_is_missing("d1,d3", "disk/small");
    assert_d2_is_missing("d1,d3", "disk/small/");
    assert_d2_is_missing("d3,d1", "disk");
    // The missing share is also named after the shares were copied to other hosts under another name.
    let moved = copy("both", ("d1,d3", "disk/small/"), ("e1,e3", "disk/else"));
    assert!(moved.status.success(), "{}", stderr(&moved));
    assert_d2_is_missing("e1,e3", "disk/else");
    let all = copy("source", (TARGET_LIST, "disk/small"), ("t1", "disk"));
    assert!(all.status.success(), "{}", stderr(&all));
    assert_eq!(stderr(&all), "");
    assert_eq!(
        fs::read_dir(testbed.on_disk("t1", "small"))
            .unwrap()
            .count(),
        30
    );
    // A single share is not the tree in an ordinary copy, and with --delete the entries that it lacks are not removed.
    for (arguments, from) in [(&[][..], "disk/small"), (&["--delete"], "disk/small/")] {
        let output = finish(testbed.start(arguments, ("d1", from), ("t1", "disk/small")));
        assert_eq!(output.status.code(), Some(1), "{from}: {}", stderr(&output));
        let lacking = "only one host's share of it is here: it was distributed over d1, d2, d3";
        assert!(stderr(&output).contains(lacking), "{}", stderr(&output));
        let (all, copied_into_it) = (30, 1);
        assert_eq!(
            names(&testbed.on_disk("t1", "small")).len(),
            all + copied_into_it
        );
    }
    // The same holds for a distributed tree below the source directory, where gathering does not count shares.
    for host in ["d1", "d2", "d3"] {
        fs::create_dir_all(testbed.on_disk(host, "around/it")).unwrap();
    }
    let deep = copy(
        "target",
        ("s1", "from/small"),
        (TARGET_LIST, "disk/around/it"),
    );
    assert!(deep.status.success(), "{}", stderr(&deep));
    for (arguments, hosts, lacking) in [
        (&[][..], "d1", "only one host's share of it is here"),
        (
            &["--distributed", "source"],
            TARGET_LIST,
            "it was distributed over d1, d2, d3; ",
        ),
    ] {
        let output = finish(testbed.start(arguments, (hosts, "disk/around"), ("t1", "disk")));
        assert_eq!(
            output.status.code(),
            Some(1),
            "{hosts}: {}",
            stderr(&output)
        );
        let lacking = format!("around/it/small: {lacking}");
        assert!(stderr(&output).contains(&lacking), "{}", stderr(&output));
    }
    // Directories that were never distributed have no shares.
    for host in ["e1", "e2"] {
        fs::create_dir_all(testbed.on_disk(host, "own")).unwrap();
        fs::write(testbed.on_disk(host, "own").join(host), host).unwrap();
    }
    let own = copy("source", ("e1,e2", "disk/own"), ("t1", "disk"));
    assert!(own.status.success(), "{}", stderr(&own));
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| !name.starts_with(".longhaul-"))
        .collect()
}

/// Source hosts must see the same files. If they did not, each would send some of its own entries, and the rest would be
/// missing without a message.
#[test]
fn refuses_source_hosts_with_different_entries() {
    let testbed = DistributedTestbed::new();
    for host in ["s1", "s2"] {
        fs::create_dir_all(testbed.on_disk(host, "own")).unwrap();
        fs::write(testbed.on_disk(host, "own").join(host), host).unwrap();
    }
    let output = finish(testbed.start(
        &["--distributed", "target"],
        ("s1,s2", "disk/own"),
        ("d1,d2", "disk"),
    ));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let why = "disk/own on s2 is not the same as on s1";
    assert!(stderr(&output).contains(why), "{}", stderr(&output));
    assert!(
        names(&testbed.on_disk("d1", "")).is_empty()
            && names(&testbed.on_disk("d2", "")).is_empty()
    );
}

/// Without the record nobody would notice a missing share. So the message names the record and its host.
#[test]
fn names_a_damaged_share_record() {
    let testbed = DistributedTestbed::new();
    fs::create_dir(testbed.path("from/small")).unwrap();
    fs::write(testbed.path("from/small/file"), "x").unwrap();
    let spread = || {
        finish(testbed.start(
            &["--distributed", "target"],
            ("s1", "from/small/"),
            ("d1,d2", "disk/small"),
        ))
    };
    assert!(spread().status.success());
    fs::write(testbed.on_disk("d1", "small/.longhaul-spread"), "damaged").unwrap();
    let gather = finish(testbed.start(
        &["--distributed", "source"],
        ("d1,d2", "disk/small"),
        ("t1", "disk"),
    ));
    for (output, code) in [(spread(), 1), (gather, 2)] {
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        let damaged = stderr.lines().find(|line| line.contains("damaged"));
        assert!(
            damaged.is_some_and(|line| line.contains("d1: ")),
            "{stderr}"
        );
        assert!(!stderr.contains("retrying in"), "{stderr}");
    }
    fs::remove_file(testbed.on_disk("d1", "small/.longhaul-spread")).unwrap();
    assert!(spread().status.success());
}

/// The documentation says that files that end with .part may be removed.
#[test]
fn stored_pieces_do_not_end_with_part() {
    let testbed = DistributedTestbed::new();
    record(testbed.spread(&[], TARGET_LIST), "spread");
    for host in TARGETS {
        let all = tree::walk(&testbed.on_disk(host, ""));
        let parts = all
            .iter()
            .filter(|path| path.extension().is_some_and(|end| end == "part"));
        assert_eq!(parts.count(), 0, "{host}: {all:?}");
    }
}

#[test]
fn copies_changes_and_deletions_to_all_hosts() {
    let testbed = DistributedTestbed::new();
    record(testbed.spread(&[], TARGET_LIST), "spread");
    let from = testbed.path("from/tree");
    fs::write(from.join("large"), tree::bytes(99, 12 * BLOCK + 1)).unwrap();
    // This file had pieces, and is too small for them now.
    fs::write(from.join("sparse"), tree::bytes(98, BLOCK)).unwrap();
    // This file was too small for pieces, and has them now.
    let grown = format!("sizes/{}", 3 * BLOCK + 17);
    fs::write(from.join(&grown), tree::bytes(97, 8 * BLOCK)).unwrap();
    for gone in ["many/deep/er/7", "dangling"] {
        fs::remove_file(from.join(gone)).unwrap();
    }
    record(testbed.spread(&["--delete"], TARGET_LIST), "again");
    for host in TARGETS {
        assert!(
            !testbed.on_disk(host, "tree").join(&grown).exists(),
            "its old piece on {host}"
        );
    }
    record(testbed.gather(TARGET_LIST), "gathered");
    let sparse = testbed.path("from/tree/sparse");
    fs::remove_file(&sparse).unwrap();
    fs::remove_file(testbed.on_disk("t1", "tree/sparse")).unwrap();
    let (wanted, got) = (
        tree::listing(&from),
        tree::listing(&testbed.on_disk("t1", "tree")),
    );
    let names =
        |of: &std::collections::BTreeMap<PathBuf, String>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&wanted), names(&got));
    for path in ["large", &grown, "many/deep/er/8"] {
        let same = fs::read(from.join(path)).unwrap()
            == fs::read(testbed.on_disk("t1", "tree").join(path)).unwrap();
        assert!(same, "{path}");
    }
    // A large file that was removed leaves no piece.
    fs::remove_file(from.join("large")).unwrap();
    record(testbed.spread(&["--delete"], TARGET_LIST), "without it");
    for host in TARGETS {
        assert_eq!(
            piece_files(&testbed.on_disk(host, "tree")).len(),
            1,
            "{host} has the piece of the file that grew"
        );
    }
}

#[test]
fn detects_and_replaces_a_damaged_piece() {
    let testbed = DistributedTestbed::new();
    record(testbed.spread(&[], TARGET_LIST), "spread");
    let verified = || {
        let mut verify = std::process::Command::new(longhaul_testprograms::longhaul());
        verify
            .args(["copy", "verify"])
            .arg(testbed.on_disk("d2", ""))
            .output()
            .unwrap()
    };
    let good = verified();
    assert!(good.status.success(), "{good:?}");
    let part = largest_part(&testbed.on_disk("d2", "tree"));
    damage(&part);

    let found = verified();
    let part_name = part.file_name().unwrap().to_str().unwrap();
    let why =
        format!("differs tree/large: its piece here is damaged: remove {part_name} beside it");
    assert_eq!(found.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&found.stdout).contains(&why),
        "{found:?}"
    );
    let output = finish(testbed.gather(TARGET_LIST));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let why = format!("there: remove {part_name} beside it");
    assert!(stderr(&output).contains(&why), "{}", stderr(&output));
    assert!(!testbed.on_disk("t1", "tree/large").exists());

    fs::remove_file(part).unwrap();
    let again = record(testbed.spread(&[], TARGET_LIST), "what is missing");
    let sent = again["sent_bytes"].as_u64().unwrap();
    assert!(sent > 0 && sent < testbed.bytes() / 2, "{sent}");
    assert!(verified().status.success());
    // Pieces have their own hashes, also without a manifest.
    fs::remove_file(testbed.on_disk("d2", ".longhaul-manifest")).unwrap();
    assert!(verified().status.success());
    // An ordinary copy names the piece.
    let plain = finish(testbed.start(&[], ("d2", "disk/tree"), ("t1", "disk")));
    assert_eq!(plain.status.code(), Some(1), "{}", stderr(&plain));
    assert!(
        stderr(&plain).contains("tree/large: only a piece of it is here"),
        "{}",
        stderr(&plain)
    );
    testbed.erase_disks(&["t1"]);
    record(testbed.gather(TARGET_LIST), "gathered");
    testbed.assert_gathered("gathered");
}

fn largest_part(top: &Path) -> PathBuf {
    let parts = tree::walk(top).into_iter().map(|path| top.join(path));
    let parts = parts.filter(|path| path.extension().is_some_and(|end| end == "piece-data"));
    parts
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap()
}

/// Inverts the first byte of data.
fn damage(part: &Path) {
    let file = File::options().read(true).write(true).open(part).unwrap();
    let at = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

#[test]
fn refuses_invalid_distributions_before_any_change() {
    let testbed = DistributedTestbed::new();
    for host in ["d1", "d2"] {
        fs::create_dir(testbed.on_disk(host, "tree")).unwrap();
        fs::write(testbed.on_disk(host, "tree/a"), host).unwrap();
        let then = std::time::SystemTime::UNIX_EPOCH
            + Duration::from_secs(if host == "d1" { 1 } else { 2 });
        File::open(testbed.on_disk(host, "tree/a"))
            .unwrap()
            .set_modified(then)
            .unwrap();
    }
    let refused = |command: Child, why: &str| {
        let output = finish(command);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
        assert!(!testbed.on_disk("t1", "tree").exists() && !testbed.path("shared/tree").exists());
    };
    refused(
        testbed.gather("d1,d2"),
        "tree/a: d1 and d2 have different entries of this name",
    );
    fs::create_dir(testbed.path("shared")).unwrap();
    let shared = testbed.start(
        &["--distributed", "target"],
        ("s1", "from/tree"),
        ("d1,d2", "shared"),
    );
    refused(shared, "d2 sees what is in the target's directory on d1");
    let shared = testbed.start(
        &["--distributed", "target"],
        ("s1", "from/tree"),
        ("d1,d2", "shared/new/deep"),
    );
    refused(shared, "d2 sees what is in the target's directory on d1");
    assert!(!testbed.path("shared/new").exists());
    let distribute =
        |side, from, to| testbed.start(&["--distributed", side], (from, "from/tree"), (to, "disk"));
    refused(
        distribute("target", "s1", "t1"),
        "--distributed target needs several hosts to copy to",
    );
    refused(
        distribute("source", "s1", "t1"),
        "--distributed source needs several hosts to copy from",
    );
    refused(
        distribute("both", "s1,s2", "t1"),
        "--distributed both needs the same number of hosts on both sides",
    );
    let delete = testbed.start(
        &["--distributed", "source", "--delete"],
        ("d1,d2", "disk/tree"),
        ("t1", "disk"),
    );
    refused(delete, "leave --delete out");
}

/// Kills the processes of a host, or the command, at random times, while distributing and while gathering.
#[test]
fn resumes_distributed_copies_after_random_kills() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (rounds, first) = (number("COPY_DISTRIBUTED_KILLS", 2), number("COPY_SEED", 1));
    let testbed = DistributedTestbed::new();
    for seed in first..first + rounds {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        kill_and_resume(
            &mut random,
            |context| {
                (
                    testbed.spread(&[], TARGET_LIST),
                    format!("seed {seed}, spread {context}"),
                )
            },
            &testbed,
        );
        kill_and_resume(
            &mut random,
            |context| {
                (
                    testbed.gather(TARGET_LIST),
                    format!("seed {seed}, gather {context}"),
                )
            },
            &testbed,
        );
        testbed.assert_gathered(&format!("seed {seed}"));
        testbed.erase_disks(&["d1", "d2", "d3", "t1"]);
    }
}

fn kill_and_resume(
    random: &mut Xoshiro256PlusPlus,
    start: impl Fn(&str) -> (Child, String),
    testbed: &DistributedTestbed,
) {
    let mut below = |bound: u64| random.next_u64() % bound;
    for _ in 0..1 + below(2) {
        let (command, _) = start("killed");
        std::thread::sleep(Duration::from_millis(below(2500)));
        match ["command", "s1", "d1", "d2", "d3", "t1"][below(6) as usize] {
            "command" | "t1" => kill(command.id()),
            host => testbed.hosts.kill_all(host),
        }
        let output = finish(command);
        testbed.hosts.wait_until_empty(&ALL_HOSTS[..8]);
        if output.status.success() {
            break;
        }
    }
    let (command, context) = start("at last");
    let output = finish(command);
    assert!(output.status.success(), "{context}: {}", stderr(&output));
}
