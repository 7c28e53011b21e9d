// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tree that is spread over hosts, each with a disk of its own, moved on from there to others, and gathered: the end is the same tree.
//! Whoever dies meanwhile, the same command goes on. `COPY_APART_KILLS` says how many rounds of random kills (default 2),
//! `COPY_SEED` from which seed on.

use crate::copy_testbed::{
    BLOCK, finish,
    hosts::{Hosts, kept},
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

/// Bytes of a stripe: the smallest that may be asked for, and three blocks.
const STRIPE: u64 = 16_000_000;

/// Blocks of the large file: six stripes.
const BLOCKS: u64 = 17;

/// Two that have the source in common, three that keep shares, three more, and where all comes together.
const ALL: [&str; 9] = ["s1", "s2", "d1", "d2", "d3", "e1", "e2", "e3", "t1"];

struct Site {
    hosts: Hosts,
    folder: tempfile::TempDir,
    ssh: String,
}

impl Site {
    fn new() -> Self {
        let hosts = Hosts::new(&ALL, "1gbit");
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

    /// What a host has on its disk.
    fn on(&self, host: &str, path: &str) -> PathBuf {
        self.path("disks").join(host).join(path)
    }

    fn start(&self, arguments: &[&str], from: (&str, &str), to: (&str, &str)) -> Child {
        let program = longhaul_testbed::longhaul();
        let place = |(hosts, path): (&str, &str)| format!("{hosts}:{}", self.path(path).display());
        let mut command = self.hosts.on("t1", program);
        command.args(["copy", "--json", "--streams", "2", "--silence", "3s"]);
        command.args(["--ssh", &self.ssh, "--remote-program", program]);
        command.args(arguments).args([place(from), place(to)]);
        kept(&mut command).spawn().unwrap()
    }

    fn spread(&self, arguments: &[&str], hosts: &str) -> Child {
        let stripe = STRIPE.to_string();
        let apart = ["--apart", "target", "--stripe", &stripe];
        self.start(
            &[&apart, arguments].concat(),
            ("s1,s2", "from/tree"),
            (hosts, "disk"),
        )
    }

    fn gather(&self, hosts: &str) -> Child {
        self.start(&["--apart", "source"], (hosts, "disk/tree"), ("t1", "disk"))
    }

    fn bytes(&self) -> u64 {
        crate::copy_testbed::durable::lacking(&self.path("from"), Path::new("/nowhere"))
    }

    fn is_gathered(&self, what: &str) {
        self.hosts.wait_until_empty(&ALL[..8]);
        let to = self.on("t1", "");
        tree::assert_same(&self.path("from/tree"), &to.join("tree"), what);
        assert_eq!(tree::leftovers(&to), Vec::<PathBuf>::new(), "{what}");
    }

    fn forget(&self, hosts: &[&str]) {
        for host in hosts {
            let top = self.on(host, "");
            make_removable(&top);
            fs::remove_dir_all(&top).unwrap();
            fs::create_dir(&top).unwrap();
        }
    }
}

/// Directories of the tree are closed to all but root, who this may not be.
fn make_removable(top: &Path) {
    for path in tree::walk(top).into_iter().map(|path| top.join(path)) {
        if path.is_dir() && !path.is_symlink() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn record(command: Child, what: &str) -> serde_json::Value {
    let output = finish(command);
    assert!(output.status.success(), "{what}: {}", said(&output));
    assert_eq!(said(&output), "", "{what}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What of a directory's files is on the disk.
fn occupied(top: &Path) -> u64 {
    let files = tree::walk(top).into_iter().map(|path| top.join(path));
    let files = files.filter(|path| path.is_file() && !path.is_symlink());
    files
        .map(|path| fs::metadata(path).unwrap().blocks() * 512)
        .sum()
}

fn pieces(top: &Path) -> Vec<PathBuf> {
    let is_piece = |path: &PathBuf| path.extension().is_some_and(|end| end == "piece");
    tree::walk(top).into_iter().filter(is_piece).collect()
}

const THREE: &str = "d1,d2,d3";
const EACH: [&str; 3] = ["d1", "d2", "d3"];

#[test]
fn what_three_hosts_keep_comes_together_again() {
    let site = Site::new();
    let done = record(site.spread(&[], THREE), "spread");
    assert_eq!(done["sent_bytes"], site.bytes(), "all, and nothing twice");
    for host in EACH {
        let share = occupied(&site.on(host, "tree"));
        assert!(
            share > site.bytes() / 5 && share < site.bytes() / 2,
            "{host} has {share}"
        );
        assert!(
            !site.on(host, "tree/large").exists(),
            "no half of a file passes for it"
        );
        assert!(!pieces(&site.on(host, "tree")).is_empty(), "{host}");
    }
    let again = record(site.spread(&[], "d3,d1,d2"), "spread again");
    assert_eq!(
        (&again["sent_bytes"], &again["made"]),
        (&0.into(), &0.into())
    );
    // Metadata alone are no reason to send data, and each piece has them.
    let large = site.path("from/tree/large");
    fs::set_permissions(&large, fs::Permissions::from_mode(0o751)).unwrap();
    let third = record(site.spread(&[], THREE), "with another mode");
    assert_eq!(
        (&third["sent_bytes"], &third["made"]),
        (&0.into(), &3.into())
    );

    let gathered = record(site.gather(THREE), "gather");
    assert_eq!(gathered["sent_bytes"], site.bytes());
    site.is_gathered("gathered");
    let again = record(site.gather("d2,d3,d1"), "gather again");
    assert_eq!(
        (&again["sent_bytes"], &again["made"]),
        (&0.into(), &0.into())
    );
    site.is_gathered("gathered again");
}

/// From each to its counterpart, pieces as pieces.
#[test]
fn shares_move_on_as_they_are() {
    let site = Site::new();
    record(site.spread(&[], THREE), "spread");
    let both = |what| {
        let moved = site.start(
            &["--apart", "both", "--delete"],
            (THREE, "disk/tree"),
            ("e1,e2,e3", "disk"),
        );
        record(moved, what)
    };
    assert_eq!(both("moved")["sent_bytes"], site.bytes());
    assert_eq!(both("moved again")["sent_bytes"], 0);
    site.forget(&EACH);
    record(site.gather("e1,e2,e3"), "gathered");
    site.is_gathered("gathered from the others");
}

/// One can't be reached, one has a file where the copy should go.
#[test]
fn who_can_not_have_a_share_keeps_nobody_from_theirs() {
    let site = Site::new();
    let stripe = STRIPE.to_string();
    let spread = |hosts| {
        let arguments = ["--apart", "target", "--stripe", &stripe];
        site.start(&arguments, ("s1,s2", "from/tree"), (hosts, "disk/below"))
    };
    let partly = |hosts, named: &str| {
        let output = finish(spread(hosts));
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(named), "{}", said(&output));
    };
    // In the order of d1, d2 and d3.
    partly("d1,d2,nobody", "nobody");
    make_removable(&site.on("d2", ""));
    fs::remove_dir_all(site.on("d2", "below")).unwrap();
    fs::write(site.on("d2", "below"), "a file").unwrap();
    partly("d1,d2,d3", "d2");
    fs::remove_file(site.on("d2", "below")).unwrap();
    let last = record(spread("d1,d2,d3"), "the one that had a file there");
    let sent = last["sent_bytes"].as_u64().unwrap();
    assert!((1..site.bytes() / 2).contains(&sent), "{sent}");
    let from = ("d1,d2,d3", "disk/below/tree");
    record(
        site.start(&["--apart", "source"], from, ("t1", "disk")),
        "gathered",
    );
    site.is_gathered("all are there");
}

#[test]
fn without_one_of_them_files_are_named_that_can_not_be_whole_and_the_rest_comes() {
    let site = Site::new();
    record(site.spread(&[], THREE), "spread");
    let two = finish(site.gather("d1,d3"));
    assert_eq!(two.status.code(), Some(1), "{}", said(&two));
    assert!(
        said(&two).contains("tree/large: 6 of its 18 blocks are on none of these hosts"),
        "{}",
        said(&two)
    );
    assert!(!site.on("t1", "tree/large").exists());
    assert!(site.on("t1", "tree/sizes").is_dir());
    let rest = record(site.gather(THREE), "all three");
    let sent = rest["sent_bytes"].as_u64().unwrap();
    assert!(sent < site.bytes() / 2, "{sent}");
    site.is_gathered("all three");
}

/// Small files leave no trace on the hosts that have others.
#[test]
fn names_the_share_of_small_files_that_is_missing() {
    let site = Site::new();
    let small = site.path("from/small");
    fs::create_dir(&small).unwrap();
    for number in 0..30 {
        fs::write(small.join(number.to_string()), "x").unwrap();
    }
    let copy = |side: &str, from: (&str, &str), to: (&str, &str)| {
        finish(site.start(&["--apart", side], from, to))
    };
    let spread = copy("target", ("s1", "from/small"), (THREE, "disk"));
    assert!(spread.status.success(), "{}", said(&spread));
    let lacks = |hosts: &str, path: &str| {
        let output = copy("source", (hosts, path), ("t1", "disk/some"));
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{hosts}:{path}: {said}");
        assert!(said.contains("the share of d2 is missing"), "{said}");
        assert!(said.contains("over 3 hosts, d1, d2, d3"), "{said}");
    };
    lacks("d1,d3", "disk/small");
    lacks("d1,d3", "disk/small/");
    lacks("d3,d1", "disk");
    // Also where the shares moved on, and with another name.
    let moved = copy("both", ("d1,d3", "disk/small/"), ("e1,e3", "disk/else"));
    assert!(moved.status.success(), "{}", said(&moved));
    lacks("e1,e3", "disk/else");
    let all = copy("source", (THREE, "disk/small"), ("t1", "disk"));
    assert!(all.status.success(), "{}", said(&all));
    assert_eq!(said(&all), "");
    assert_eq!(fs::read_dir(site.on("t1", "small")).unwrap().count(), 30);
    // One share alone is not the tree, whoever asks for it, and what it lacks is not too much.
    for (arguments, from) in [(&[][..], "disk/small"), (&["--delete"], "disk/small/")] {
        let output = finish(site.start(arguments, ("d1", from), ("t1", "disk/small")));
        assert_eq!(output.status.code(), Some(1), "{from}: {}", said(&output));
        let lacking = "only one host's share of it is here: it was spread over d1, d2, d3";
        assert!(said(&output).contains(lacking), "{}", said(&output));
        let (all, copied_into_it) = (30, 1);
        assert_eq!(names(&site.on("t1", "small")).len(), all + copied_into_it);
    }
    // Also below what is copied, where a gathering does not count shares.
    for host in ["d1", "d2", "d3"] {
        fs::create_dir_all(site.on(host, "around/it")).unwrap();
    }
    let deep = copy("target", ("s1", "from/small"), (THREE, "disk/around/it"));
    assert!(deep.status.success(), "{}", said(&deep));
    for (arguments, hosts, lacking) in [
        (&[][..], "d1", "only one host's share of it is here"),
        (
            &["--apart", "source"],
            THREE,
            "it was spread over d1, d2, d3; ",
        ),
    ] {
        let output = finish(site.start(arguments, (hosts, "disk/around"), ("t1", "disk")));
        assert_eq!(output.status.code(), Some(1), "{hosts}: {}", said(&output));
        let lacking = format!("around/it/small: {lacking}");
        assert!(said(&output).contains(&lacking), "{}", said(&output));
    }
    // What was never one has no shares.
    for host in ["e1", "e2"] {
        fs::create_dir_all(site.on(host, "own")).unwrap();
        fs::write(site.on(host, "own").join(host), host).unwrap();
    }
    let own = copy("source", ("e1,e2", "disk/own"), ("t1", "disk"));
    assert!(own.status.success(), "{}", said(&own));
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| !name.starts_with(".longhaul-"))
        .collect()
}

/// Each would bring some of its own, and nobody would hear of the rest.
#[test]
fn source_hosts_that_have_other_things_are_refused() {
    let site = Site::new();
    for host in ["s1", "s2"] {
        fs::create_dir_all(site.on(host, "own")).unwrap();
        fs::write(site.on(host, "own").join(host), host).unwrap();
    }
    let output = finish(site.start(
        &["--apart", "target"],
        ("s1,s2", "disk/own"),
        ("d1,d2", "disk"),
    ));
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let why = "disk/own on s2 is not the same as on s1";
    assert!(said(&output).contains(why), "{}", said(&output));
    assert!(names(&site.on("d1", "")).is_empty() && names(&site.on("d2", "")).is_empty());
}

/// Without it nobody hears of a share that is missing: it is named at once, with its host.
#[test]
fn a_note_of_shares_that_is_damaged_is_named() {
    let site = Site::new();
    fs::create_dir(site.path("from/small")).unwrap();
    fs::write(site.path("from/small/file"), "x").unwrap();
    let spread = || {
        finish(site.start(
            &["--apart", "target"],
            ("s1", "from/small/"),
            ("d1,d2", "disk/small"),
        ))
    };
    assert!(spread().status.success());
    fs::write(site.on("d1", "small/.longhaul-spread"), "damaged").unwrap();
    let gather = finish(site.start(
        &["--apart", "source"],
        ("d1,d2", "disk/small"),
        ("t1", "disk"),
    ));
    for (output, code) in [(spread(), 1), (gather, 2)] {
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        let damaged = said.lines().find(|line| line.contains("damaged"));
        assert!(damaged.is_some_and(|line| line.contains("d1: ")), "{said}");
        assert!(!said.contains("retrying in"), "{said}");
    }
    fs::remove_file(site.on("d1", "small/.longhaul-spread")).unwrap();
    assert!(spread().status.success());
}

/// Users are told that what ends with .part may be removed.
#[test]
fn calls_nothing_that_is_kept_a_part() {
    let site = Site::new();
    record(site.spread(&[], THREE), "spread");
    for host in EACH {
        let all = tree::walk(&site.on(host, ""));
        let parts = all
            .iter()
            .filter(|path| path.extension().is_some_and(|end| end == "part"));
        assert_eq!(parts.count(), 0, "{host}: {all:?}");
    }
}

#[test]
fn what_changes_or_goes_at_the_source_changes_or_goes_everywhere() {
    let site = Site::new();
    record(site.spread(&[], THREE), "spread");
    let from = site.path("from/tree");
    fs::write(from.join("large"), tree::bytes(99, 12 * BLOCK + 1)).unwrap();
    // It was divided, and is too small for that now; and the other way round.
    fs::write(from.join("sparse"), tree::bytes(98, BLOCK)).unwrap();
    let grown = format!("sizes/{}", 3 * BLOCK + 17);
    fs::write(from.join(&grown), tree::bytes(97, 8 * BLOCK)).unwrap();
    for gone in ["many/deep/er/7", "dangling"] {
        fs::remove_file(from.join(gone)).unwrap();
    }
    record(site.spread(&["--delete"], THREE), "again");
    for host in EACH {
        assert!(
            !site.on(host, "tree").join(&grown).exists(),
            "what it was on {host}"
        );
    }
    record(site.gather(THREE), "gathered");
    let sparse = site.path("from/tree/sparse");
    fs::remove_file(&sparse).unwrap();
    fs::remove_file(site.on("t1", "tree/sparse")).unwrap();
    let (wanted, got) = (tree::listing(&from), tree::listing(&site.on("t1", "tree")));
    let names =
        |of: &std::collections::BTreeMap<PathBuf, String>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&wanted), names(&got));
    for path in ["large", &grown, "many/deep/er/8"] {
        let same = fs::read(from.join(path)).unwrap()
            == fs::read(site.on("t1", "tree").join(path)).unwrap();
        assert!(same, "{path}");
    }
    // A large file that is gone leaves no piece.
    fs::remove_file(from.join("large")).unwrap();
    record(site.spread(&["--delete"], THREE), "without it");
    for host in EACH {
        assert_eq!(
            pieces(&site.on(host, "tree")).len(),
            1,
            "{host} has that of the one that grew"
        );
    }
}

#[test]
fn a_piece_that_was_damaged_on_its_disk_is_found_and_brought_again() {
    let site = Site::new();
    record(site.spread(&[], THREE), "spread");
    let verified = || {
        let mut verify = std::process::Command::new(longhaul_testbed::longhaul());
        verify
            .args(["copy", "verify"])
            .arg(site.on("d2", ""))
            .output()
            .unwrap()
    };
    let good = verified();
    assert!(good.status.success(), "{good:?}");
    let part = largest_part(&site.on("d2", "tree"));
    damage(&part);

    let found = verified();
    let own = part.file_name().unwrap().to_str().unwrap();
    let why = format!("differs tree/large: its piece here is damaged: remove {own} beside it");
    assert_eq!(found.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&found.stdout).contains(&why),
        "{found:?}"
    );
    let output = finish(site.gather(THREE));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let why = format!("there: remove {own} beside it");
    assert!(said(&output).contains(&why), "{}", said(&output));
    assert!(!site.on("t1", "tree/large").exists());

    fs::remove_file(part).unwrap();
    let again = record(site.spread(&[], THREE), "what is missing");
    let sent = again["sent_bytes"].as_u64().unwrap();
    assert!(sent > 0 && sent < site.bytes() / 2, "{sent}");
    assert!(verified().status.success());
    // Pieces have hashes of their own, also where nothing else came.
    fs::remove_file(site.on("d2", ".longhaul-manifest")).unwrap();
    assert!(verified().status.success());
    // Who does not ask for pieces hears that there is one.
    let plain = finish(site.start(&[], ("d2", "disk/tree"), ("t1", "disk")));
    assert_eq!(plain.status.code(), Some(1), "{}", said(&plain));
    assert!(
        said(&plain).contains("tree/large: only a piece of it is here"),
        "{}",
        said(&plain)
    );
    site.forget(&["t1"]);
    record(site.gather(THREE), "gathered");
    site.is_gathered("gathered");
}

fn largest_part(top: &Path) -> PathBuf {
    let parts = tree::walk(top).into_iter().map(|path| top.join(path));
    let parts = parts.filter(|path| path.extension().is_some_and(|end| end == "piece-data"));
    parts
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap()
}

/// Where it has data.
fn damage(part: &Path) {
    let file = File::options().read(true).write(true).open(part).unwrap();
    let at = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

#[test]
fn what_can_not_be_meant_is_refused_before_anything_is_touched() {
    let site = Site::new();
    for host in ["d1", "d2"] {
        fs::create_dir(site.on(host, "tree")).unwrap();
        fs::write(site.on(host, "tree/a"), host).unwrap();
        let then = std::time::SystemTime::UNIX_EPOCH
            + Duration::from_secs(if host == "d1" { 1 } else { 2 });
        File::open(site.on(host, "tree/a"))
            .unwrap()
            .set_modified(then)
            .unwrap();
    }
    let refused = |command: Child, why: &str| {
        let output = finish(command);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
        assert!(!site.on("t1", "tree").exists() && !site.path("shared/tree").exists());
    };
    refused(
        site.gather("d1,d2"),
        "tree/a: d1 and d2 have different entries of this name",
    );
    fs::create_dir(site.path("shared")).unwrap();
    let shared = site.start(
        &["--apart", "target"],
        ("s1", "from/tree"),
        ("d1,d2", "shared"),
    );
    refused(shared, "d2 sees what is in the target's directory on d1");
    let apart = |side, from, to| site.start(&["--apart", side], (from, "from/tree"), (to, "disk"));
    refused(
        apart("target", "s1", "t1"),
        "--apart target wants several hosts to copy to",
    );
    refused(
        apart("source", "s1", "t1"),
        "--apart source wants several hosts to copy from",
    );
    refused(
        apart("both", "s1,s2", "t1"),
        "--apart both wants the same number of hosts on both sides",
    );
    let delete = site.start(
        &["--apart", "source", "--delete"],
        ("d1,d2", "disk/tree"),
        ("t1", "disk"),
    );
    refused(delete, "leave --delete out");
}

/// A host, or the command: gone, at any moment, on either way.
#[test]
fn whoever_dies_and_whenever_the_same_command_goes_on() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (rounds, first) = (number("COPY_APART_KILLS", 2), number("COPY_SEED", 1));
    let site = Site::new();
    for seed in first..first + rounds {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        survive(
            &mut random,
            |what| {
                (
                    site.spread(&[], THREE),
                    format!("seed {seed}, spread {what}"),
                )
            },
            &site,
        );
        survive(
            &mut random,
            |what| (site.gather(THREE), format!("seed {seed}, gather {what}")),
            &site,
        );
        site.is_gathered(&format!("seed {seed}"));
        site.forget(&["d1", "d2", "d3", "t1"]);
    }
}

fn survive(random: &mut Xoshiro256PlusPlus, start: impl Fn(&str) -> (Child, String), site: &Site) {
    let mut below = |bound: u64| random.next_u64() % bound;
    for _ in 0..1 + below(2) {
        let (command, _) = start("killed");
        std::thread::sleep(Duration::from_millis(below(2500)));
        match ["command", "s1", "d1", "d2", "d3", "t1"][below(6) as usize] {
            "command" | "t1" => kill(command.id()),
            host => site.hosts.kill_all(host),
        }
        let output = finish(command);
        site.hosts.wait_until_empty(&ALL[..8]);
        if output.status.success() {
            break;
        }
    }
    let (command, what) = start("at last");
    let output = finish(command);
    assert!(output.status.success(), "{what}: {}", said(&output));
}
