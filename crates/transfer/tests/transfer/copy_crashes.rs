// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whoever of a copy is killed, and whenever: what was durable is never sent again, what is lost is bounded in bytes,
//! and the end is the same tree with nothing beside it.
//!
//! A moment is a count of bytes on the wire, of blocks in journals or of files that have their names; which, and who is
//! killed then, is drawn by a seed. `COPY_KILLS` says how many kills (default 30), `COPY_SEED` from which seed on.

use crate::copy_testbed::{
    BLOCK, Ground, PATIENCE, SOCKET_LEN, children,
    durable::{lacking, progress},
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

/// Bytes that one kill may cost: what the target may have written and not made durable (`AT_RISK_MAX` in
/// `copy/end/target/state.rs`), and for each stream a block in the target's hands, what both sockets hold, and what lies
/// in buffers around them.
const LOST_MAX: u64 = (128 << 20) + STREAMS * (BLOCK + 2 * SOCKET_LEN + (1 << 20));

/// Headers of packets and of TLS records, as a share of what they carry.
const HEADERS: f64 = 0.01;

/// What a conversation takes beside data: handshakes, and some 300 entries twice.
const TALK_MAX: u64 = 512 << 10;

/// How often a connection of one copy is cut.
const CUTS: u64 = 8;

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Driver,
    Source,
    Target,
    /// What reaches the target, or the source.
    Ssh {
        pull: bool,
    },
}

/// When.
#[derive(Debug, Clone, Copy)]
enum Moment {
    WireBytes(u64),
    Blocks(u64),
    Names(u64),
}

/// A tree to copy, and how much there is of everything that moments count.
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
            bytes: lacking(&path, Path::new("/nowhere")),
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

    /// What is in it, as an argument.
    fn contents(&self) -> PathBuf {
        self.path.join("")
    }

    fn draw(&self, random: &mut impl Rng) -> Moment {
        let mut below = |max: u64| random.next_u64() % (max + 1);
        match below(3) {
            0 => Moment::Blocks(below(self.blocks)),
            1 => Moment::Names(below(self.names)),
            _ => Moment::WireBytes(below(self.bytes)),
        }
    }
}

impl Moment {
    /// `wire` is what went over the wire since the copy began.
    fn has_come(self, wire: u64, to: &Path) -> bool {
        match self {
            Self::WireBytes(bytes) => wire >= bytes,
            Self::Blocks(blocks) => progress(to).0 >= blocks,
            Self::Names(names) => progress(to).1 >= names,
        }
    }
}

/// What stands for ssh: unlike a shell's `exec`, a process between, and the far end lives on without it.
fn ssh(ground: &Ground) -> String {
    let script = ground.path("ssh");
    let text = "#!/bin/sh\nshift 2\n\
                cat | SSH_CONNECTION='127.0.0.1 1 127.0.0.1 2' \"$@\" | cat\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script.to_str().unwrap().to_owned()
}

fn start(ground: &Ground, victim: Victim, from: &Path, to: &Path) -> Child {
    let streams = STREAMS.to_string();
    let mut options = vec!["--streams", &streams];
    let (mut from, mut to) = (from.to_owned(), to.to_owned());
    let script = ssh(ground);
    if let Victim::Ssh { pull } = victim {
        let program = longhaul_testbed::longhaul();
        options.extend(["--ssh", &script, "--remote-program", program]);
        let far = if pull { &mut from } else { &mut to };
        *far = PathBuf::from(format!("far:{}", far.display()));
    }
    ground.start(&options, &from, &to)
}

impl Victim {
    const ALL: [Self; 5] = [
        Self::Driver,
        Self::Source,
        Self::Target,
        Self::Ssh { pull: false },
        Self::Ssh { pull: true },
    ];

    fn kill(self, driver: u32) {
        let ends = children(driver);
        match (self, &ends[..]) {
            (Self::Driver, _) => kill(driver),
            (Self::Source, [source, ..]) => kill(*source),
            (Self::Target, [_, target]) => kill(*target),
            (Self::Ssh { pull: true }, [source, ..]) => kill_ssh(*source),
            (Self::Ssh { pull: false }, [_, target]) => kill_ssh(*target),
            // It is not there yet, or not any more: no kill.
            _ => {}
        }
    }
}

/// With it goes what connects, and what it started stays, as beyond a real ssh.
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

/// Runs a copy, kills at a moment, and waits until nobody of it is left.
fn disturbed(ground: &Ground, victim: Victim, moment: Moment, from: &Path, to: &Path) -> Output {
    let begin = ground.wire_bytes();
    let mut child = start(ground, victim, from, to);
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() && since.elapsed() < PATIENCE {
        if moment.has_come(ground.wire_bytes() - begin, to) {
            victim.kill(child.id());
            break;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    let output = finish(child);
    ground.wait_until_empty();
    output
}

/// Once the driver is alone, it goes on by itself, but for a host that was never reached.
fn may_fail(victim: Victim, said: &str) -> bool {
    match victim {
        Victim::Driver => true,
        Victim::Ssh { .. } => !said.contains("retrying in"),
        _ => false,
    }
}

/// One copy with a kill or two in it; what each cost at most.
fn round(ground: &Ground, original: &Original, seed: u64) -> u64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let to = ground.path(&format!("to-{seed}"));
    let begin = ground.wire_bytes();
    let kills = 1 + random.next_u64() % 2;
    let mut what = format!("seed {seed}:");
    for _ in 0..kills {
        let victim = Victim::ALL[(random.next_u64() % 5) as usize];
        let moment = original.draw(&mut random);
        what += &format!(" {victim:?} at {moment:?}");
        let output = disturbed(ground, victim, moment, &original.contents(), &to);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let fine = output.status.success() || may_fail(victim, &said);
        assert!(fine, "{what}: {said}");
    }
    let lacking = lacking(&original.path, &to);
    let output = finish(start(ground, Victim::Driver, &original.contents(), &to));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{what}: {said}");
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        done["sent_bytes"], lacking,
        "{what}: what was durable went again"
    );
    ground.wait_until_empty();
    tree::assert_same(&original.path, &to, &what);
    assert_eq!(tree::leftovers(&to), Vec::<PathBuf>::new(), "{what}");
    let unknown = tree::not_in_manifest(&to, &original.hashes);
    assert_eq!(
        unknown,
        Vec::<PathBuf>::new(),
        "{what}: not in the manifest"
    );
    let wire = ground.wire_bytes() - begin;
    let needed = original.bytes + (original.bytes as f64 * HEADERS) as u64;
    let lost = wire.saturating_sub(needed + (2 * kills + 1) * TALK_MAX) / kills;
    assert!(
        lost <= LOST_MAX,
        "{what}: {lost} bytes lost, {LOST_MAX} may be"
    );
    fs::set_permissions(to.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::remove_dir_all(&to).unwrap();
    lost
}

/// Cuts one of the connections, whichever the draw says.
fn cut_one(ground: &Ground, draw: u64) {
    let ss = |arguments: &[&str]| {
        let output = ground.within("ss").args(arguments).output().unwrap();
        assert!(output.status.success(), "ss {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = ss(&["-tnH", "state", "established"]);
    let mut ends: Vec<(u16, u16)> = text.lines().map(ports).collect();
    ends.sort_unstable();
    if ends.is_empty() {
        return;
    }
    let (near, far) = ends[draw as usize % ends.len()];
    let [near, far] = [near, far].map(|port| port.to_string());
    ss(&["-K", "-tn", "sport", "=", &near, "and", "dport", "=", &far]);
}

/// Of a line of ss(8): the numbers behind the last colons of both addresses.
fn ports(line: &str) -> (u16, u16) {
    let ports = line.split_whitespace().skip(2).take(2);
    let port = |address: &str| address.rsplit(':').next()?.parse().ok();
    let ports: Option<Vec<u16>> = ports.map(port).collect();
    match ports.as_deref() {
        Some([near, far]) => (*near, *far),
        _ => panic!("not a line of ss: {line}"),
    }
}

/// A copy whose connections are cut one after the other, each at a moment; the wire's bytes that this cost.
fn cut_to_pieces(ground: &Ground, original: &Original, seed: u64) -> u64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let to = ground.path(&format!("cut-{seed}"));
    let begin = ground.wire_bytes();
    let mut moments: Vec<u64> = (0..CUTS)
        .map(|_| random.next_u64() % original.bytes)
        .collect();
    moments.sort_unstable_by(|one, other| other.cmp(one));
    let mut child = start(ground, Victim::Driver, &original.contents(), &to);
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() && since.elapsed() < PATIENCE {
        let wire = ground.wire_bytes() - begin;
        if moments.pop_if(|moment| *moment <= wire).is_some() {
            cut_one(ground, random.next_u64());
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    let output = finish(child);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "seed {seed}: {said}");
    ground.wait_until_empty();
    let what = format!("seed {seed}");
    tree::assert_same(&original.path, &to, &what);
    assert_eq!(tree::leftovers(&to), Vec::<PathBuf>::new(), "{what}");
    (ground.wire_bytes() - begin).saturating_sub(original.bytes)
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap())
}

#[test]
fn a_kill_costs_a_bounded_number_of_bytes_and_nothing_else() {
    let kills = number("COPY_KILLS", 30);
    let first = number("COPY_SEED", 1);
    let originals = Ground::new();
    let small = Original::make(originals.path("small"), 8);
    let large = Original::make(originals.path("large"), 96);
    // A round has one kill or two.
    let last = first + kills * 2 / 3;
    let (next, worst) = (AtomicU64::new(first), AtomicU64::new(0));
    let work = || {
        let ground = Ground::new();
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= last {
                return;
            }
            let original = if seed % 8 == 0 { &large } else { &small };
            let lost = round(&ground, original, seed);
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

/// The first conversation makes the name that the next ones find.
#[test]
fn a_tree_gets_another_name_once_however_often_it_is_begun() {
    let ground = Ground::new();
    let original = Original::make(ground.path("small"), 8);
    let to = ground.path("other name");
    let moments = [2_000_000, 9_000_000].map(Moment::WireBytes);
    for (moment, victim) in moments.into_iter().zip([Victim::Target, Victim::Driver]) {
        disturbed(&ground, victim, moment, &original.path, &to);
    }
    for _ in 0..2 {
        let output = finish(start(&ground, Victim::Driver, &original.path, &to));
        assert!(output.status.success());
        tree::assert_same(&original.path, &to, "renamed");
    }
    // Another source goes into it.
    fs::create_dir(ground.path("x")).unwrap();
    let output = finish(start(&ground, Victim::Driver, &ground.path("x"), &to));
    assert!(output.status.success() && to.join("x").is_dir());
}

/// A stream that breaks is opened anew, and what it had taken to send goes on others.
#[test]
fn a_connection_that_is_cut_costs_no_more_than_was_under_way() {
    let ground = Ground::new();
    let original = Original::make(ground.path("small"), 8);
    for seed in 0..number("COPY_CUTS", 4) {
        let cost = cut_to_pieces(&ground, &original, seed);
        assert!(cost <= CUTS * LOST_MAX, "seed {seed}: {cost}");
    }
}
