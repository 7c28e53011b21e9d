// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kills of any process of a copy at any time. Durable data is never retransmitted, the lost bytes are bounded, and the
//! result is the same tree without leftover files.
//!
//! The time of a kill is a number of bytes on the wire, of blocks in journals or of finished files. A seed determines the
//! time and the process. `COPY_KILLS` is the number of kills (default 30), `COPY_SEED` the first seed.

use crate::copy_testbed::{
    BLOCK, LoopbackTestbed, SOCKET_LEN, WAIT_LIMIT, children,
    durable::{missing_bytes, progress},
    finish, kill, tree,
};
use longhaul_store::blocks::FileHash;
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Output},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

const STREAMS: u64 = 3;

/// Maximum number of bytes that one kill may lose. The target may have written `AT_RISK_MAX` bytes (in its `state.rs`)
/// that are not durable. Each stream adds a block that the target processes, the buffers of both sockets, and 1 MiB of
/// other buffers.
const LOST_MAX: u64 = (128 << 20) + STREAMS * (BLOCK + 2 * SOCKET_LEN + (1 << 20));

/// Overhead of the headers of packets and TLS records, as a fraction of the data.
const HEADER_OVERHEAD: f64 = 0.01;

/// Maximum number of bytes of a session beside the data: handshakes, and some 300 entries twice.
const SESSION_OVERHEAD_MAX: u64 = 512 << 10;

/// Number of connections that are cut in one copy.
const CUTS: u64 = 8;

/// Process that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Coordinator,
    Source,
    Target,
    /// The ssh process that connects to the target, or to the source with `pull`.
    Ssh {
        pull: bool,
    },
}

/// Time of a kill.
#[derive(Debug, Clone, Copy)]
enum Moment {
    WireBytes(u64),
    Blocks(u64),
    Names(u64),
}

/// Tree to copy, with the totals of the quantities that determine the time of a kill.
struct Original {
    path: PathBuf,
    bytes: u64,
    blocks: u64,
    names: u64,
    hashes: BTreeMap<PathBuf, FileHash>,
}

impl Original {
    fn make(path: PathBuf, large_blocks: u64) -> Self {
        tree::make(&path, large_blocks);
        let all = tree::walk(&path);
        let files = all.iter().filter_map(|name| {
            let meta = fs::symlink_metadata(path.join(name)).unwrap();
            meta.is_file().then_some(meta.len())
        });
        let lens: Vec<u64> = files.collect();
        Self {
            bytes: missing_bytes(&path, Path::new("/nowhere")),
            blocks: lens
                .iter()
                .filter(|len| **len > BLOCK)
                .map(|len| len.div_ceil(BLOCK))
                .sum(),
            names: lens.len() as u64,
            hashes: tree::hashes(&path),
            path,
        }
    }

    /// Returns the path with a trailing slash, which copies the contents.
    fn contents(&self) -> PathBuf {
        self.path.join("")
    }

    fn random_moment(&self, random: &mut impl Rng) -> Moment {
        let mut below = |max: u64| random.next_u64() % (max + 1);
        match below(3) {
            0 => Moment::Blocks(below(self.blocks)),
            1 => Moment::Names(below(self.names)),
            _ => Moment::WireBytes(below(self.bytes)),
        }
    }
}

impl Moment {
    /// Whether the time has come. `wire` is the number of bytes on the wire since the start of the copy.
    fn is_reached(self, wire: u64, to: &Path) -> bool {
        match self {
            Self::WireBytes(bytes) => wire >= bytes,
            Self::Blocks(blocks) => progress(to).0 >= blocks,
            Self::Names(names) => progress(to).1 >= names,
        }
    }
}

/// Creates a script in place of ssh. It runs the remote program as a separate process, which survives the script, unlike
/// with `exec`.
fn ssh(testbed: &LoopbackTestbed) -> String {
    let script = testbed.path("ssh");
    let text = "#!/bin/sh\nshift 2\n\
                cat | SSH_CONNECTION='127.0.0.1 1 127.0.0.1 2' \"$@\" | cat\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script.to_str().unwrap().to_owned()
}

fn start(testbed: &LoopbackTestbed, victim: Victim, from: &Path, to: &Path) -> Child {
    let streams = STREAMS.to_string();
    let mut options = vec!["--streams", &streams];
    let (mut from, mut to) = (from.to_owned(), to.to_owned());
    let script = ssh(testbed);
    if let Victim::Ssh { pull } = victim {
        let program = longhaul_testprograms::longhaul();
        options.extend(["--ssh", &script, "--remote-program", program]);
        let far = if pull { &mut from } else { &mut to };
        *far = PathBuf::from(format!("far:{}", far.display()));
    }
    testbed.start(&options, &from, &to)
}

impl Victim {
    const ALL: [Self; 5] = [
        Self::Coordinator,
        Self::Source,
        Self::Target,
        Self::Ssh { pull: false },
        Self::Ssh { pull: true },
    ];

    fn kill(self, coordinator: u32) {
        let ends = children(coordinator);
        match (self, &ends[..]) {
            (Self::Coordinator, _) => kill(coordinator),
            (Self::Source, [source, ..]) => kill(*source),
            (Self::Target, [_, target]) => kill(*target),
            (Self::Ssh { pull: true }, [source, ..]) => kill_ssh(*source),
            (Self::Ssh { pull: false }, [_, target]) => kill_ssh(*target),
            // The process has not started yet, or has exited: no kill.
            _ => {}
        }
    }
}

/// Kills the script and its pipes. The remote program survives, as with a real ssh.
fn kill_ssh(script: u32) {
    let cats: Vec<u32> = children(script)
        .into_iter()
        .filter(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "cat")
        })
        .collect();
    kill(script);
    cats.into_iter().for_each(kill);
}

/// Runs a copy, kills a process at a given time, and waits until all processes of the copy have exited.
fn copy_with_kill(
    testbed: &LoopbackTestbed,
    victim: Victim,
    moment: Moment,
    from: &Path,
    to: &Path,
) -> Output {
    let begin = testbed.wire_bytes();
    let mut child = start(testbed, victim, from, to);
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() && since.elapsed() < WAIT_LIMIT {
        if moment.is_reached(testbed.wire_bytes() - begin, to) {
            victim.kill(child.id());
            break;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    let output = finish(child);
    testbed.netns.wait_until_empty();
    output
}

/// Whether the command may fail. A copy resumes by itself, unless the coordinator is killed or a host was never reached.
fn failure_is_allowed(victim: Victim, stderr: &str) -> bool {
    match victim {
        Victim::Coordinator => true,
        Victim::Ssh { .. } => !stderr.contains("retrying in"),
        _ => false,
    }
}

/// Runs one copy with one or two kills, and returns the bytes lost per kill.
fn round(testbed: &LoopbackTestbed, original: &Original, seed: u64) -> u64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let to = testbed.path(&format!("to-{seed}"));
    let begin = testbed.wire_bytes();
    let kills = 1 + random.next_u64() % 2;
    let mut context = format!("seed {seed}:");
    for _ in 0..kills {
        let victim = Victim::ALL[(random.next_u64() % 5) as usize];
        let moment = original.random_moment(&mut random);
        context += &format!(" {victim:?} at {moment:?}");
        let output = copy_with_kill(testbed, victim, moment, &original.contents(), &to);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let fine = output.status.success() || failure_is_allowed(victim, &stderr);
        assert!(fine, "{context}: {stderr}");
    }
    let missing_bytes = missing_bytes(&original.path, &to);
    let output = finish(start(
        testbed,
        Victim::Coordinator,
        &original.contents(),
        &to,
    ));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stderr.is_empty(),
        "{context}: {stderr}"
    );
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        done["sent_bytes"], missing_bytes,
        "{context}: durable data was retransmitted"
    );
    testbed.netns.wait_until_empty();
    tree::assert_same(&original.path, &to, &context);
    assert_eq!(
        tree::remaining_internal_files(&to),
        Vec::<PathBuf>::new(),
        "{context}"
    );
    let unknown = tree::not_in_manifest(&to, &original.hashes);
    assert_eq!(
        unknown,
        Vec::<PathBuf>::new(),
        "{context}: not in the manifest"
    );
    let wire = testbed.wire_bytes() - begin;
    let needed = original.bytes + (original.bytes as f64 * HEADER_OVERHEAD) as u64;
    let lost = wire.saturating_sub(needed + (2 * kills + 1) * SESSION_OVERHEAD_MAX) / kills;
    assert!(
        lost <= LOST_MAX,
        "{context}: {lost} bytes lost, {LOST_MAX} may be"
    );
    fs::set_permissions(to.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::remove_dir_all(&to).unwrap();
    lost
}

/// Cuts one of the connections, chosen by a random number.
fn cut_one(testbed: &LoopbackTestbed, number: u64) {
    let ss = |arguments: &[&str]| {
        let output = testbed.within("ss").args(arguments).output().unwrap();
        assert!(output.status.success(), "ss {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = ss(&["-tnH", "state", "established"]);
    let mut connections: Vec<(u16, u16)> = text.lines().map(ports).collect();
    connections.sort_unstable();
    if connections.is_empty() {
        return;
    }
    let (near, far) = connections[number as usize % connections.len()];
    let [near, far] = [near, far].map(|port| port.to_string());
    ss(&["-K", "-tn", "sport", "=", &near, "and", "dport", "=", &far]);
}

/// Returns the ports of both addresses in a line of ss(8).
fn ports(line: &str) -> (u16, u16) {
    let ports = line.split_whitespace().skip(2).take(2);
    let port = |address: &str| address.rsplit(':').next()?.parse().ok();
    let ports: Option<Vec<u16>> = ports.map(port).collect();
    match ports.as_deref() {
        Some([near, far]) => (*near, *far),
        _ => panic!("not a line of ss: {line}"),
    }
}

/// Runs a copy and cuts connections at random times, and returns the extra bytes on the wire.
fn copy_with_cuts(testbed: &LoopbackTestbed, original: &Original, seed: u64) -> u64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let to = testbed.path(&format!("cut-{seed}"));
    let begin = testbed.wire_bytes();
    let mut moments: Vec<u64> = (0..CUTS)
        .map(|_| random.next_u64() % original.bytes)
        .collect();
    moments.sort_unstable_by(|one, other| other.cmp(one));
    let mut child = start(testbed, Victim::Coordinator, &original.contents(), &to);
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() && since.elapsed() < WAIT_LIMIT {
        let wire = testbed.wire_bytes() - begin;
        if moments.pop_if(|moment| *moment <= wire).is_some() {
            cut_one(testbed, random.next_u64());
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    let output = finish(child);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "seed {seed}: {stderr}");
    testbed.netns.wait_until_empty();
    let context = format!("seed {seed}");
    tree::assert_same(&original.path, &to, &context);
    assert_eq!(
        tree::remaining_internal_files(&to),
        Vec::<PathBuf>::new(),
        "{context}"
    );
    (testbed.wire_bytes() - begin).saturating_sub(original.bytes)
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap())
}

#[test]
fn kills_lose_a_bounded_number_of_bytes() {
    let kills = number("COPY_KILLS", 30);
    let first = number("COPY_SEED", 1);
    let originals = LoopbackTestbed::new();
    let small = Original::make(originals.path("small"), 8);
    let large = Original::make(originals.path("large"), 96);
    // A round has 1.5 kills on average.
    let last = first + kills * 2 / 3;
    let (next, worst) = (AtomicU64::new(first), AtomicU64::new(0));
    let work = || {
        let testbed = LoopbackTestbed::new();
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= last {
                return;
            }
            let original = if seed % 8 == 0 { &large } else { &small };
            let lost = round(&testbed, original, seed);
            worst.fetch_max(lost, Relaxed);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let worst = worst.into_inner();
    eprintln!("seeds {first} to {last}: at most {worst} bytes lost by a kill, {LOST_MAX} may be");
}

/// The first session creates the directory under the new name, and later sessions find it.
#[test]
fn renames_a_tree_once_over_several_sessions() {
    let testbed = LoopbackTestbed::new();
    let original = Original::make(testbed.path("small"), 8);
    let to = testbed.path("other name");
    let moments = [2_000_000, 9_000_000].map(Moment::WireBytes);
    for (moment, victim) in moments
        .into_iter()
        .zip([Victim::Target, Victim::Coordinator])
    {
        copy_with_kill(&testbed, victim, moment, &original.path, &to);
    }
    for _ in 0..2 {
        let output = finish(start(&testbed, Victim::Coordinator, &original.path, &to));
        assert!(output.status.success());
        tree::assert_same(&original.path, &to, "renamed");
    }
    // A different source goes into the directory.
    fs::create_dir(testbed.path("x")).unwrap();
    let output = finish(start(
        &testbed,
        Victim::Coordinator,
        &testbed.path("x"),
        &to,
    ));
    assert!(output.status.success() && to.join("x").is_dir());
}

/// A stream that breaks is opened again, and its unsent blocks go to other streams.
#[test]
fn cut_connections_lose_only_data_in_flight() {
    let testbed = LoopbackTestbed::new();
    let original = Original::make(testbed.path("small"), 8);
    for seed in 0..number("COPY_CUTS", 4) {
        let cost = copy_with_cuts(&testbed, &original, seed);
        assert!(cost <= CUTS * LOST_MAX, "seed {seed}: {cost}");
    }
}

/// Files of the tree for kills while entries are removed or replaced.
const REPLACED_FILES: usize = 600;

/// Makes directories of a third of the files, and removes another third.
fn replace_and_remove(from: &Path) {
    for number in 0..REPLACED_FILES {
        let file = from.join(format!("{}/{number}", number % 7));
        if number % 3 > 0 {
            fs::remove_file(&file).unwrap();
        }
        if number % 3 == 1 {
            fs::create_dir(&file).unwrap();
            fs::write(file.join("new"), format!("new {number}")).unwrap();
        }
    }
}

/// Returns how many of the files that are removed or replaced the target still has.
fn old_files(to: &Path) -> usize {
    let old = (0..REPLACED_FILES).filter(|number| number % 3 > 0);
    old.filter(|number| to.join(format!("{}/{number}", number % 7)).is_file())
        .count()
}

fn wait_until(mut child: Child, is_time: impl Fn() -> bool) {
    while child.try_wait().unwrap().is_none() && !is_time() {
        std::thread::sleep(Duration::from_micros(300));
    }
    if child.try_wait().unwrap().is_none() {
        kill(child.id());
    }
    child.wait().unwrap();
}

#[test]
fn kills_while_entries_are_removed_or_replaced_leave_no_hash_without_a_file() {
    let testbed = LoopbackTestbed::new();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(number("COPY_SEED", 1));
    let mut hit = 0;
    for round in 0..4 {
        let (from, to) = (testbed.path("from"), testbed.path("to"));
        for number in 0..REPLACED_FILES {
            let dir = from.join((number % 7).to_string());
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(number.to_string()), format!("{number}")).unwrap();
        }
        let copy = |options: &[&str]| testbed.start(options, &from.join(""), &to);
        assert!(finish(copy(&[])).status.success());
        replace_and_remove(&from);
        let options = ["--delete", "--max-delete", "100%"];
        let trash = [&options[..], &["--trash", "7d"]].concat();
        let options = if round % 2 == 0 { &options[..] } else { &trash };
        let old = REPLACED_FILES / 3 * 2;
        let left = random.next_u64() as usize % old;
        wait_until(copy(options), || old_files(&to) <= left);
        hit += u32::from((1..old).contains(&old_files(&to)));
        testbed.netns.wait_until_empty();

        let output = finish(copy(options));
        assert!(output.status.success(), "{round}: {output:?}");
        testbed.netns.wait_until_empty();
        let mut verify = testbed.within(longhaul_testprograms::longhaul());
        let verified = verify.args(["copy", "verify"]).arg(&to).output().unwrap();
        let text = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert!(verified.status.success(), "{round}: {text}");
        assert!(!text.contains("unknown"), "{round}: {text}");
        for path in [&from, &to] {
            fs::remove_dir_all(path).unwrap();
        }
    }
    assert!(hit > 0, "no kill came while entries were replaced");
}
