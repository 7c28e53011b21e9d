// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings congestion controls to the running kernel, and takes them away.
//!
//! A load is built in a directory of its own (`new-NAME`) and gets its name when it is complete, so
//! that one that was cut short is known as such and is taken away by the next that comes along.
//! Sockets that use a congestion control hold its programs: taking it away only keeps new ones from
//! choosing it.
#![expect(
    unsafe_code,
    reason = "libbpf-rs has no BPF_LINK_UPDATE for struct_ops"
)]

use crate::{
    Error, kernel,
    math::{Algorithm, algorithms, words},
    object, own_parameters,
    pins::{self, Draft, Pins},
};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, MapMut, MapType, Object, ObjectBuilder, OpenObject,
    libbpf_sys,
    query::{LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions},
};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    path::{Path, PathBuf},
    ptr,
    time::{Duration, Instant, SystemTime},
};

/// Pins of a directory.
const LINK: &str = "link";
const OPERATIONS: &str = "operations";
pub(crate) const CONNECTIONS: &str = "connections";
const PARAMETERS: &str = "parameters";
const ACKS: &str = "acks";
const OWN_PARAMETERS: &str = "own-parameters";
/// Facts beside them.
const LAYOUT: &str = "layout";
const LOADED_BY: &str = "loaded-by";
const MAP: &str = "map";
const TRANSIENT: &str = "transient";

/// How long the kernel may take to forget a name: it waits for an RCU grace period.
const PATIENCE: Duration = Duration::from_secs(5);

/// A congestion control that is loaded.
#[derive(Debug, Clone)]
pub struct Loaded {
    algorithm: Algorithm,
    directory: PathBuf,
}

/// What [`load`] did.
#[derive(Debug)]
pub enum Outcome {
    /// It was not there, and is now.
    New(Loaded),
    /// It was there with the same parameters; nothing was touched.
    Same(Loaded),
    /// It took the place of what was there. Whether open connections can still be watched: they can't
    /// if another longhaul had loaded it with another layout.
    Replaced(Loaded, bool),
}

/// A program of a congestion control.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Program {
    /// The first 15 characters of its name.
    pub name: String,
    /// Instructions that the verifier went through; more than there are, if it took several ways.
    pub verified: u32,
    /// Instructions as the kernel runs them, before they are compiled.
    pub instructions: usize,
    /// Bytes of machine code.
    pub machine_code_bytes: usize,
}

impl Loaded {
    /// Which one.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Where its pins are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The map beside its connections. Programs that put parameters of a single socket there reuse
    /// it; its values are [`own_parameters::value`].
    pub fn connections(&self) -> Result<MapHandle, Error> {
        self.map(CONNECTIONS)
    }

    /// Whether ACKs are counted, of connections that began since it is so.
    #[must_use]
    pub fn counts_acks(&self) -> bool {
        self.directory.join(ACKS).exists()
    }

    /// The map of the counts: `struct ack_counts` beside each connection.
    pub(crate) fn acks(&self) -> Result<MapHandle, Error> {
        self.map(ACKS)
    }

    fn request_is(&self, request: Request<'_>) -> Result<bool, Error> {
        let parameters = self.parameters()?;
        Ok(parameters == request.parameters && self.counts_acks() == request.count_acks)
    }

    /// What connections that begin now are told, in the order of [`Algorithm::parameters`].
    pub fn parameters(&self) -> Result<Vec<u32>, Error> {
        if self.algorithm.parameters().next().is_none() {
            return Ok(Vec::new());
        }
        let map = self.map(PARAMETERS)?;
        let found = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let found = found.map_err(|error| kernel::failed("read its parameters", &error))?;
        let count = self.algorithm.parameters().count();
        Ok(words(&found.unwrap_or_default()).take(count).collect())
    }

    /// Whether this build can read what it keeps of its connections.
    #[must_use]
    pub fn is_legible(&self) -> bool {
        pins::noted(&self.directory, LAYOUT) == Some(layout_of(self.algorithm))
    }

    /// The longhaul that loaded it.
    #[must_use]
    pub fn loaded_by(&self) -> String {
        pins::noted(&self.directory, LOADED_BY).unwrap_or_else(|| "?".to_owned())
    }

    /// When that was.
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        fs::symlink_metadata(self.directory.join(LAYOUT))
            .ok()?
            .modified()
            .ok()
    }

    /// Whether it goes when the last program that [`hold`]s it ends.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        pins::noted(&self.directory, TRANSIENT).is_some()
    }

    /// A fact that the caller wants to find again until it is unloaded; names have no dots.
    pub fn note(&self, fact: &str, word: &str) -> Result<(), Error> {
        let noted = pins::note(&self.directory, fact, word);
        noted.map_err(|source| self.error(source))
    }

    /// Such a fact.
    #[must_use]
    pub fn noted(&self, fact: &str) -> Option<String> {
        pins::noted(&self.directory, fact)
    }

    /// Its programs, as the kernel has them: those that share their type information with one that
    /// uses its map.
    pub fn programs(&self) -> Result<Vec<Program>, Error> {
        // The parameters are this load's alone; connections stay through a replacement.
        let map = match self.algorithm.parameters().next() {
            Some(_) => self.map(PARAMETERS)?,
            None => self.connections()?,
        };
        let map = map
            .info()
            .map_err(|error| kernel::failed("ask about its map", &error))?;
        let options = ProgInfoQueryOptions::default()
            .include_map_ids(true)
            .include_xlated_prog_insns(true)
            .include_jited_prog_insns(true);
        let all: Vec<_> = ProgInfoIter::with_query_opts(options).collect();
        let users = all.iter().filter(|p| p.map_ids.contains(&map.info.id));
        let types: Vec<_> = users.map(|program| program.btf_id).collect();
        let ours = all.into_iter().filter(|p| types.contains(&p.btf_id));
        Ok(ours.map(Program::from).collect())
    }

    /// Gives the programs of a cgroup (version 2) the socket option of [`own_parameters`], until it is
    /// unloaded or another cgroup is named.
    pub fn serve(&self, cgroup: BorrowedFd<'_>) -> Result<(), Error> {
        let mut link = own_parameters::attach(self, cgroup)?;
        let forgotten = pins::forget(&self.directory, OWN_PARAMETERS);
        forgotten.map_err(|source| self.error(source))?;
        let pinned = link.pin(self.directory.join(OWN_PARAMETERS));
        pinned.map_err(|error| kernel::failed("pin the socket option", &error))
    }

    /// Whether some cgroup has it.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.directory.join(OWN_PARAMETERS).exists()
    }

    fn map(&self, pin: &str) -> Result<MapHandle, Error> {
        let path = self.directory.join(pin);
        let map = kernel::quietly(|| MapHandle::from_pinned_path(path));
        map.map_err(|error| kernel::failed("open its map", &error))
    }

    fn error(&self, source: io::Error) -> Error {
        Error::Pins {
            path: self.directory.clone(),
            source,
        }
    }
}

impl From<libbpf_rs::query::ProgramInfo> for Program {
    fn from(info: libbpf_rs::query::ProgramInfo) -> Self {
        /// `sizeof(struct bpf_insn)`
        const INSTRUCTION: usize = 8;
        Self {
            name: info.name.to_string_lossy().into_owned(),
            verified: info.verified_insns,
            instructions: info.xlated_prog_insns.len() / INSTRUCTION,
            machine_code_bytes: info.jited_prog_insns.len(),
        }
    }
}

fn layout_of(algorithm: Algorithm) -> String {
    format!("{:016x}", algorithm.layout())
}

/// The one of this algorithm, if it is loaded. Needs root, for whom alone it can be seen.
pub fn loaded(pins: &Pins, algorithm: Algorithm) -> Result<Option<Loaded>, Error> {
    let directory = pins.of(algorithm.name());
    match fs::symlink_metadata(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        outcome => outcome.map_err(|source| pins.error(&directory, source))?,
    };
    let pinned = [LINK, OPERATIONS]
        .iter()
        .any(|pin| directory.join(pin).exists());
    let there = pinned && kernel::is_registered(&algorithm.system_name());
    Ok(there.then_some(Loaded {
        algorithm,
        directory,
    }))
}

/// All that are loaded, in the order of [`algorithms`].
pub fn all_loaded(pins: &Pins) -> Result<Vec<Loaded>, Error> {
    algorithms()
        .filter_map(|algorithm| loaded(pins, algorithm).transpose())
        .collect()
}

/// How it shall be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// In the order of [`Algorithm::parameters`].
    pub parameters: &'a [u32],
    /// Whether to keep [`AckCounts`](crate::ack_counts::AckCounts) of each connection: 96 B, and
    /// some tens of nanoseconds an ACK.
    pub count_acks: bool,
}

impl<'a, P: AsRef<[u32]> + ?Sized> From<&'a P> for Request<'a> {
    fn from(parameters: &'a P) -> Self {
        Self {
            parameters: parameters.as_ref(),
            count_acks: false,
        }
    }
}

/// Loads it as `request` says. `replace` allows to take the place of one that is
/// loaded otherwise; connections that are open keep what they have.
pub fn load(
    pins: &Pins,
    algorithm: Algorithm,
    request: Request<'_>,
    replace: bool,
) -> Result<Outcome, Error> {
    kernel::check()?;
    let lock = pins.lock()?;
    let outcome = under_lock(pins, algorithm, request, replace);
    if let Ok(Outcome::New(it) | Outcome::Same(it) | Outcome::Replaced(it, _)) = &outcome {
        // Whoever asks for it by name wants it to stay.
        pins::forget(&it.directory, TRANSIENT).map_err(|source| it.error(source))?;
    }
    pins.tidy(lock);
    outcome
}

fn under_lock(
    pins: &Pins,
    algorithm: Algorithm,
    request: Request<'_>,
    replace: bool,
) -> Result<Outcome, Error> {
    sweep(pins, algorithm)?;
    let Some(old) = loaded(pins, algorithm)? else {
        return fresh(pins, algorithm, request).map(Outcome::New);
    };
    let same_build = old.is_legible() && old.loaded_by() == VERSION;
    if same_build && old.request_is(request)? {
        return Ok(Outcome::Same(old));
    }
    match replace {
        true => take_over(pins, &old, request),
        false => Err(Error::Loaded(differs(&old, same_build))),
    }
}

/// What `loaded-by` says of this build.
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn differs(old: &Loaded, same_build: bool) -> String {
    let name = old.algorithm.system_name();
    match same_build {
        true => format!(
            "{name} is loaded with other parameters or counts: --replace sets these for connections that \
             begin later"
        ),
        false => format!(
            "{name} is loaded, by another longhaul ({}): --replace puts this one's in its place",
            old.loaded_by()
        ),
    }
}

fn fresh(pins: &Pins, algorithm: Algorithm, request: Request<'_>) -> Result<Loaded, Error> {
    let name = algorithm.system_name();
    if kernel::is_registered(&name) {
        return Err(Error::Taken(name, pins.directory()));
    }
    let directory = pins.of(algorithm.name());
    let draft = draft(pins, algorithm)?;
    kernel::quietly(|| register(algorithm, request, &draft, pins))?;
    let published = draft.publish(&directory);
    published.map_err(|source| pins.error(&directory, source))?;
    Ok(Loaded {
        algorithm,
        directory,
    })
}

fn draft(pins: &Pins, algorithm: Algorithm) -> Result<Draft, Error> {
    let path = in_the_making(pins, algorithm);
    Draft::new(path.clone()).map_err(|source| pins.error(&path, source))
}

fn in_the_making(pins: &Pins, algorithm: Algorithm) -> PathBuf {
    pins.of(&format!("new-{}", algorithm.name()))
}

/// With a link; by its map alone where the kernel is older than Linux 6.4 and has no links of this
/// kind.
fn register(
    algorithm: Algorithm,
    request: Request<'_>,
    draft: &Draft,
    pins: &Pins,
) -> Result<(), Error> {
    let mut object = match prepare(algorithm, request, None, true)?.load() {
        Ok(object) => object,
        Err(first) => {
            let error = kernel::failed("load its programs", &first);
            let plain = prepare(algorithm, request, None, false)?.load();
            return match plain {
                Ok(object) => register_by_map(algorithm, object, draft, pins),
                Err(_) => Err(error),
            };
        }
    };
    write_down(algorithm, &mut object, draft)?;
    let attached = operations(&mut object).attach_struct_ops();
    let mut link = attached.map_err(|error| taken_or(algorithm, pins, &error))?;
    let pinned = link.pin(draft.path.join(LINK));
    pinned.map_err(|error| kernel::failed("pin its link", &error))
}

fn register_by_map(
    algorithm: Algorithm,
    mut object: Object,
    draft: &Draft,
    pins: &Pins,
) -> Result<(), Error> {
    write_down(algorithm, &mut object, draft)?;
    // First the pin: a map that is registered stays so without one, and nobody would find it.
    let pinned = operations(&mut object).pin(draft.path.join(OPERATIONS));
    pinned.map_err(|error| kernel::failed("pin its map", &error))?;
    let attached = operations(&mut object).attach_struct_ops();
    let mut link = attached.map_err(|error| taken_or(algorithm, pins, &error))?;
    link.disconnect();
    Ok(())
}

fn taken_or(algorithm: Algorithm, pins: &Pins, error: &libbpf_rs::Error) -> Error {
    match error.kind() {
        libbpf_rs::ErrorKind::AlreadyExists => {
            Error::Taken(algorithm.system_name(), pins.directory())
        }
        _ => kernel::failed("register it", error),
    }
}

/// The object with its parameters in place, and with the connections of `old`.
fn prepare(
    algorithm: Algorithm,
    request: Request<'_>,
    old: Option<&Loaded>,
    linked: bool,
) -> Result<OpenObject, Error> {
    let bytes = object::of(algorithm).ok_or_else(|| Error::Failed {
        step: "find its program",
        reason: format!("{} has none in this build", algorithm.name()),
    })?;
    let object = ObjectBuilder::default().open_memory(bytes);
    let mut object = object.map_err(|error| kernel::failed("open its program", &error))?;
    set_parameters(algorithm, request.parameters, &mut object)?;
    if !request.count_acks {
        leave_acks_uncounted(&mut object);
    }
    if let Some(old) = old {
        own_parameters::share_connections(old, &mut object)?;
    }
    if !linked {
        unlink(&mut object)?;
    }
    Ok(object)
}

/// `params` is the only variable of an object. That it holds the defaults says that it was found.
fn set_parameters(
    algorithm: Algorithm,
    parameters: &[u32],
    object: &mut OpenObject,
) -> Result<(), Error> {
    let defaults = crate::parameters::defaults(algorithm);
    if defaults.is_empty() {
        return Ok(());
    }
    let mut maps = object.maps_mut();
    let variables = maps.find(|map| is_variables(map.name()));
    let mut variables = variables.ok_or_else(no_parameters)?;
    let bytes = variables.initial_value_mut().ok_or_else(no_parameters)?;
    if !words(bytes).take(defaults.len()).eq(defaults) {
        return Err(no_parameters());
    }
    let told = parameters.iter().flat_map(|value| value.to_ne_bytes());
    bytes.iter_mut().zip(told).for_each(|(to, from)| *to = from);
    Ok(())
}

/// All zero, they would be in `.bss`.
fn is_variables(map: &std::ffi::OsStr) -> bool {
    let name = map.to_string_lossy();
    name.ends_with(".data") || name.ends_with(".bss")
}

fn no_parameters() -> Error {
    Error::Failed {
        step: "set its parameters",
        reason: "its program does not begin its variables with them".to_owned(),
    }
}

/// `in_ack_event` in `struct tcp_congestion_ops` of kernel.h, which libbpf lets us change.
const IN_ACK_EVENT: std::ops::Range<usize> = 32..40;

/// Takes the operation out, its program and the map of counts with it.
fn leave_acks_uncounted(object: &mut OpenObject) {
    for mut map in object.maps_mut() {
        if map.name() == ACKS {
            map.set_autocreate(false).expect("it is not loaded yet");
        } else if map.map_type() == MapType::StructOps {
            let operations = map.initial_value_mut().expect("congestion_ops.h has it");
            operations[IN_ACK_EVENT].fill(0);
        }
    }
}

/// Takes BPF_F_LINK (include/uapi/linux/bpf.h) off the operations.
fn unlink(object: &mut OpenObject) -> Result<(), Error> {
    const BPF_F_LINK: u32 = 1 << 13;
    let mut maps = object.maps_mut();
    let map = maps.find(|map| map.map_type() == MapType::StructOps);
    let mut map = map.expect("congestion_ops.h has it");
    let flags = map.map_flags() & !BPF_F_LINK;
    let set = map.set_map_flags(flags);
    set.map_err(|error| kernel::failed("do without a link", &error))
}

fn operations(object: &mut Object) -> MapMut<'_> {
    let map = object
        .maps_mut()
        .find(|map| map.map_type() == MapType::StructOps);
    map.expect("congestion_ops.h has it")
}

/// Pins the maps and puts down the facts, all but what makes it registered.
fn write_down(algorithm: Algorithm, object: &mut Object, draft: &Draft) -> Result<(), Error> {
    let map = operations(object).info();
    let map = map.map_err(|error| kernel::failed("ask about its map", &error))?;
    for mut map in object.maps_mut() {
        let pin = match map.name() {
            name if name == CONNECTIONS => CONNECTIONS,
            name if name == ACKS && map.autocreate() => ACKS,
            name if is_variables(name) => PARAMETERS,
            _ => continue,
        };
        let pinned = map.pin(draft.path.join(pin));
        pinned.map_err(|error| kernel::failed("pin its maps", &error))?;
    }
    let facts = [
        (LAYOUT, layout_of(algorithm)),
        (LOADED_BY, VERSION.to_owned()),
        (MAP, map.info.id.to_string()),
    ];
    for (fact, word) in facts {
        let noted = pins::note(&draft.path, fact, &word);
        noted.map_err(|source| Error::Pins {
            path: draft.path.join(fact),
            source,
        })?;
    }
    Ok(())
}

/// Puts a new program behind the link that is there, so that the name is never missing.
fn take_over(pins: &Pins, old: &Loaded, request: Request<'_>) -> Result<Outcome, Error> {
    let algorithm = old.algorithm;
    if !old.directory.join(LINK).exists() {
        return Err(Error::Kernel(format!(
            "this kernel cannot replace a congestion control in its place (Linux 6.4): longhaul cc \
             unload {}, then load it anew",
            algorithm.name()
        )));
    }
    let keep = old.is_legible();
    let draft = successor(pins, old, keep, request)?;
    // From here on a kill is put right by `sweep`, forwards.
    let exchanged = pins::exchange(&draft.path, &old.directory);
    exchanged.map_err(|source| old.error(source))?;
    Ok(Outcome::Replaced(old.clone(), keep))
}

/// The directory of one that is at work already, in place of `old`.
fn successor(
    pins: &Pins,
    old: &Loaded,
    same_connections: bool,
    request: Request<'_>,
) -> Result<Draft, Error> {
    let draft = draft(pins, old.algorithm)?;
    kernel::quietly(|| {
        let connections = same_connections.then_some(old);
        let object = prepare(old.algorithm, request, connections, true)?.load();
        let mut object = object.map_err(|error| kernel::failed("load its programs", &error))?;
        write_down(old.algorithm, &mut object, &draft)?;
        let carried = carry_over(old, &draft, same_connections);
        carried.map_err(|source| old.error(source))?;
        update(&open_link(&old.directory)?, &mut object)
    })?;
    Ok(draft)
}

/// One link under two names, so that either directory is complete. Facts of callers stay, and the
/// socket option where it writes to the same map.
fn carry_over(old: &Loaded, draft: &Draft, same_connections: bool) -> io::Result<()> {
    let twice = |pin| fs::hard_link(old.directory.join(pin), draft.path.join(pin));
    twice(LINK)?;
    if same_connections && old.serves() {
        twice(OWN_PARAMETERS)?;
    }
    for entry in fs::read_dir(&old.directory)? {
        let name = entry?.file_name();
        let Some(fact) = name.to_str() else { continue };
        if let (Some(word), None) = (old.noted(fact), pins::noted(&draft.path, fact)) {
            pins::note(&draft.path, fact, &word)?;
        }
    }
    Ok(())
}

fn open_link(directory: &Path) -> Result<Link, Error> {
    let link = Link::open(directory.join(LINK));
    link.map_err(|error| kernel::failed("open its link", &error))
}

/// BPF_LINK_UPDATE, from Linux 6.4 on.
fn update(link: &Link, object: &mut Object) -> Result<(), Error> {
    let mut operations = operations(object);
    // libbpf fills the map in on the way to a registration, which the name, being ours, prevents.
    match operations.attach_struct_ops() {
        Err(error) if error.kind() == libbpf_rs::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(kernel::failed("fill in its operations", &error)),
        Ok(_) => {
            return Err(Error::NotLoaded("it went away meanwhile; it".to_owned()));
        }
    }
    let (link, map) = (link.as_fd().as_raw_fd(), operations.as_fd().as_raw_fd());
    // SAFETY: two open descriptors, and no options.
    match unsafe { libbpf_sys::bpf_link_update(link, map, ptr::null()) } {
        0 => Ok(()),
        error => Err(kernel::failed(
            "replace it",
            &libbpf_rs::Error::from_raw_os_error(-error),
        )),
    }
}

/// Takes it away: nobody can choose it any more; connections that use it go on.
pub fn unload(pins: &Pins, algorithm: Algorithm) -> Result<(), Error> {
    kernel::rights("a congestion control is loaded and unloaded")?;
    if !pins.is_mounted() {
        return Err(Error::NotLoaded(algorithm.system_name()));
    }
    let lock = pins.lock()?;
    let swept = sweep(pins, algorithm)?;
    let found = loaded(pins, algorithm)?;
    let there = found.is_some();
    if let Some(it) = found {
        if is_held(&it.directory) {
            return Err(Error::Loaded(format!(
                "{} is in use by a longhaul run: end that first",
                algorithm.system_name()
            )));
        }
        withdraw(pins, &it.directory)?;
    }
    pins.tidy(lock);
    let name = algorithm.system_name();
    match there || swept {
        true => forgotten(&name),
        false if kernel::is_registered(&name) => Err(Error::Taken(name, pins.directory())),
        false => Err(Error::NotLoaded(name)),
    }
}

/// Removes its directory, and with it what holds it registered.
fn withdraw(pins: &Pins, directory: &Path) -> Result<(), Error> {
    let operations = directory.join(OPERATIONS);
    if operations.exists() {
        let map = kernel::quietly(|| MapHandle::from_pinned_path(&operations));
        let map = map.map_err(|error| kernel::failed("open its map", &error))?;
        // It may not have come to the registration, or have lost it.
        let _ = kernel::quietly(|| map.delete(&0_u32.to_ne_bytes()));
    }
    let removed = pins::remove(directory, LINK);
    removed.map_err(|source| pins.error(directory, source))?;
    Ok(())
}

/// The kernel does it a moment later.
fn forgotten(name: &str) -> Result<(), Error> {
    let start = Instant::now();
    while kernel::is_registered(name) {
        if start.elapsed() > PATIENCE {
            return Err(Error::Failed {
                step: "unload it",
                reason: format!("{name} stays: another program holds its link (bpftool link list)"),
            });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Puts right what a kill left of a load, a replacement or an unload. Whether there was anything.
fn sweep(pins: &Pins, algorithm: Algorithm) -> Result<bool, Error> {
    let (new, old) = (in_the_making(pins, algorithm), pins.of(algorithm.name()));
    let mut found = false;
    if new.exists() {
        found = true;
        if is_the_one_at_work(&new) && old.exists() {
            let exchanged = pins::exchange(&new, &old);
            exchanged.map_err(|source| pins.error(&new, source))?;
        }
        let replacing = old.join(LINK).exists();
        withdraw(pins, &new)?;
        if !replacing {
            forgotten(&algorithm.system_name())?;
        }
    }
    if old.exists() && loaded(pins, algorithm)?.is_none() {
        found = true;
        withdraw(pins, &old)?;
        forgotten(&algorithm.system_name())?;
    }
    Ok(found)
}

/// Whether the link runs the operations that stand beside it, and not those of another directory.
fn is_the_one_at_work(directory: &Path) -> bool {
    let link = kernel::quietly(|| open_link(directory));
    let info = link.ok().and_then(|link| link.info().ok());
    let at_work = info.and_then(|info| match info.info {
        LinkTypeInfo::StructOps(operations) => Some(operations.map_id.to_string()),
        _ => None,
    });
    at_work.is_some() && at_work == pins::noted(directory, MAP)
}

/// Keeps a congestion control loaded for as long as it lives.
#[derive(Debug)]
pub struct Hold {
    pins: Pins,
    loaded: Loaded,
    held: Option<File>,
}

/// Loads it unless it is, and holds it. One that was loaded for this goes with its last holder, if
/// need be (after a kill) at the hands of the next [`load`], [`unload`] or [`clean`]. `parameters`
/// are for the case that it is not loaded; who needs others for sockets of his own gives them
/// [`own_parameters::value`].
pub fn hold(pins: &Pins, algorithm: Algorithm, parameters: &[u32]) -> Result<Hold, Error> {
    kernel::check()?;
    let lock = pins.lock()?;
    let outcome = hold_under_lock(pins, algorithm, parameters);
    pins.tidy(lock);
    outcome
}

fn hold_under_lock(pins: &Pins, algorithm: Algorithm, parameters: &[u32]) -> Result<Hold, Error> {
    sweep(pins, algorithm)?;
    let loaded = match loaded(pins, algorithm)? {
        Some(loaded) if loaded.is_legible() => loaded,
        Some(other) => return Err(Error::Loaded(differs(&other, false))),
        None => {
            let loaded = fresh(pins, algorithm, parameters.into())?;
            loaded.note(TRANSIENT, "1")?;
            loaded
        }
    };
    let held = share(&loaded.directory).map_err(|source| loaded.error(source))?;
    Ok(Hold {
        pins: pins.clone(),
        loaded,
        held: Some(held),
    })
}

fn share(directory: &Path) -> io::Result<File> {
    let file = File::open(directory)?;
    flock(&file, FlockOperation::LockShared)?;
    Ok(file)
}

/// Whether somebody holds it.
fn is_held(directory: &Path) -> bool {
    let file = File::open(directory);
    file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
}

impl Hold {
    /// What is held.
    #[must_use]
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        drop(self.held.take());
        let _ = clean(&self.pins);
    }
}

/// Takes away what killed programs left: loads that were cut short, and what nobody [`hold`]s any
/// more. Names of what it took.
pub fn clean(pins: &Pins) -> Result<Vec<String>, Error> {
    if !pins.is_mounted() {
        return Ok(Vec::new());
    }
    let lock = pins.lock()?;
    let mut gone = Vec::new();
    for algorithm in algorithms() {
        let mut went = sweep(pins, algorithm)?;
        let found = loaded(pins, algorithm)?;
        if let Some(it) = found.filter(|it| it.is_transient() && !is_held(&it.directory)) {
            withdraw(pins, &it.directory)?;
            forgotten(&algorithm.system_name())?;
            went = true;
        }
        if went {
            gone.push(algorithm.system_name());
        }
    }
    pins.tidy(lock);
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_an_object_and_its_parameters_are_found() {
        for algorithm in algorithms() {
            let values = crate::parameters::defaults(algorithm);
            assert!(
                prepare(algorithm, (&values).into(), None, false).is_ok(),
                "{algorithm:?}"
            );
            assert!(
                algorithm.parameters().count() <= own_parameters::MAX,
                "lh_connection has room for seven"
            );
        }
    }

    /// A directory for pins and the right to use the machine's names alone; none without root of
    /// the machine, which a user namespace's is not.
    fn place() -> Option<(File, tempfile::TempDir)> {
        let users = fs::read_to_string("/proc/self/uid_map").unwrap();
        let everyone = users.split_whitespace().eq(["0", "0", "4294967295"]);
        if !everyone || kernel::rights("").is_err() {
            let allowed = std::env::var_os("ALLOW_SKIP").is_some_and(|v| v == "1");
            assert!(!everyone || allowed, "needs root; ALLOW_SKIP=1 skips");
            eprintln!("skipped: eBPF needs root of the machine");
            return None;
        }
        let turn = File::create(std::env::temp_dir().join("longhaul-cc-test.lock")).unwrap();
        flock(&turn, FlockOperation::LockExclusive).unwrap();
        Some((turn, tempfile::tempdir().unwrap()))
    }

    /// Before Linux 6.4.
    #[test]
    fn without_links_the_map_keeps_it_registered_until_it_is_unloaded() {
        let Some((_turn, directory)) = place() else {
            return;
        };
        let pins = Pins::at(directory.path());
        let scalable = crate::math::algorithm("scalable").unwrap();
        let lock = pins.lock().unwrap();
        let cut_short = draft(&pins, scalable).unwrap();
        let register = |draft: &Draft| {
            let object = prepare(scalable, (&[7, 1]).into(), None, false).unwrap();
            register_by_map(scalable, object.load().unwrap(), draft, &pins).unwrap();
        };
        register(&cut_short);
        std::mem::forget(cut_short);
        assert!(kernel::is_registered("lh_scalable"));
        assert!(sweep(&pins, scalable).unwrap());
        assert!(!kernel::is_registered("lh_scalable"));

        let whole = draft(&pins, scalable).unwrap();
        register(&whole);
        whole.publish(&pins.of("scalable")).unwrap();
        let it = loaded(&pins, scalable).unwrap().unwrap();
        assert_eq!(it.parameters().unwrap(), [7, 1]);
        drop(lock);
        let replaced = load(&pins, scalable, (&[8, 1]).into(), true);
        assert!(
            replaced
                .unwrap_err()
                .to_string()
                .contains("unload scalable")
        );
        unload(&pins, scalable).unwrap();
        assert!(!kernel::is_registered("lh_scalable"));
    }

    #[test]
    fn what_is_held_goes_with_its_last_holder() {
        let Some((_turn, directory)) = place() else {
            return;
        };
        let pins = Pins::at(directory.path());
        let scalable = crate::math::algorithm("scalable").unwrap();
        let one = hold(&pins, scalable, &[7, 1]).unwrap();
        let other = hold(&pins, scalable, &[9, 2]).unwrap();
        assert_eq!(other.loaded().parameters().unwrap(), [7, 1]);
        assert!(
            unload(&pins, scalable)
                .unwrap_err()
                .to_string()
                .contains("in use")
        );
        drop(one);
        assert!(kernel::is_registered("lh_scalable"));
        drop(other);
        assert!(!kernel::is_registered("lh_scalable") && !pins.is_mounted());

        // A holder that was killed leaves it to `clean`; who loads it by name keeps it.
        let mut killed = hold(&pins, scalable, &[7, 1]).unwrap();
        killed.held = None;
        std::mem::forget(killed);
        assert_eq!(clean(&pins).unwrap(), ["lh_scalable"]);
        let holder = hold(&pins, scalable, &[7, 1]).unwrap();
        assert!(matches!(
            load(&pins, scalable, (&[7, 1]).into(), false),
            Ok(Outcome::Same(_))
        ));
        drop(holder);
        assert!(kernel::is_registered("lh_scalable"));
        unload(&pins, scalable).unwrap();
    }

    #[test]
    fn a_replacement_that_was_cut_short_is_finished_or_forgotten() {
        let Some((_turn, directory)) = place() else {
            return;
        };
        let pins = Pins::at(directory.path());
        let scalable = crate::math::algorithm("scalable").unwrap();
        load(&pins, scalable, (&[7, 1]).into(), false).unwrap();
        let old = loaded(&pins, scalable).unwrap().unwrap();
        old.note("fact", "word").unwrap();

        // Killed between the link's update and the exchange.
        let lock = pins.lock().unwrap();
        std::mem::forget(successor(&pins, &old, true, (&[8, 1]).into()).unwrap());
        assert_eq!(old.parameters().unwrap(), [7, 1]);
        assert!(sweep(&pins, scalable).unwrap());
        assert_eq!(old.parameters().unwrap(), [8, 1]);
        assert_eq!(old.noted("fact").as_deref(), Some("word"));
        // And right before the update.
        let draft = draft(&pins, scalable).unwrap();
        let mut object = prepare(scalable, (&[9, 1]).into(), Some(&old), true)
            .unwrap()
            .load()
            .unwrap();
        write_down(scalable, &mut object, &draft).unwrap();
        carry_over(&old, &draft, true).unwrap();
        std::mem::forget(draft);
        assert!(sweep(&pins, scalable).unwrap());
        assert_eq!(old.parameters().unwrap(), [8, 1]);
        drop(lock);
        assert!(kernel::is_registered("lh_scalable"));
        unload(&pins, scalable).unwrap();
        assert!(!pins.is_mounted());
    }

    #[test]
    fn acks_are_counted_only_if_asked_for() {
        let Some((_turn, directory)) = place() else {
            return;
        };
        let pins = Pins::at(directory.path());
        let scalable = crate::math::algorithm("scalable").unwrap();
        let counts = |count_acks| {
            let request = Request {
                parameters: &[100, 3],
                count_acks,
            };
            load(&pins, scalable, request, true).unwrap();
            let it = loaded(&pins, scalable).unwrap().unwrap();
            let programs = it.programs().unwrap();
            let has = programs.iter().any(|p| p.name.starts_with("count_ack"));
            assert_eq!(it.counts_acks(), has);
            assert_eq!(it.acks().is_ok(), has);
            has
        };
        assert_eq!(
            [false, true, true, false].map(counts),
            [false, true, true, false]
        );
        unload(&pins, scalable).unwrap();
    }
}
