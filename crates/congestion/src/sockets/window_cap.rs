// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caps on the congestion windows of connections that know nothing of it (`window_cap.bpf.c`).
//!
//! A cap is the socket's own `snd_cwnd_clamp`, so it stays with the socket until it is lifted, also
//! when this process is gone: [`Caps`] lifts nothing by itself.

use crate::{Error, feature_probe, links};
use libbpf_rs::{
    Iter, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, query::MapInfoIter,
};
use std::{
    io::{self, Read},
    path::Path,
    sync::atomic::{AtomicU8, Ordering},
};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/window_cap.bpf.o"));

/// Connections that can have an order at the same time (`orders` in the program): 64 B each.
pub const CONNECTIONS_MAX: usize = 16_384;

/// An order to do nothing.
const KEEP: u32 = u32::MAX;

/// What stands for `in_force` until a walk comes across the socket.
const UNSEEN: u32 = u32::MAX;

/// What takes rights, in words.
const CAPPING: &str = "windows are capped";

/// The loaded program and the orders that it carries out.
pub struct Caps {
    orders: MapHandle,
    walk: Link,
    settle: MapHandle,
    _registered: Link,
    _object: Object,
}

/// Whether the caller may load it.
pub fn permitted() -> Result<(), Error> {
    feature_probe::check_rights(CAPPING)
}

impl Caps {
    /// Loads the program. Its congestion control, which no connection keeps, is listed in
    /// `tcp_available_congestion_control` as `lh_s…` while it is loaded.
    pub fn load() -> Result<Self, Error> {
        feature_probe::check(CAPPING)?;
        feature_probe::capture_warnings(|| {
            remove_stale();
            let name = settle_name();
            let (object, _) = links::load(|| open(&name))?;
            Self::attach(object)
                .map_err(|error| feature_probe::failed("put the program to work", &error))
        })
    }

    /// Whether the kernel takes the programs: nothing is registered or attached.
    pub(crate) fn try_load() -> Result<(), Error> {
        feature_probe::check(CAPPING)?;
        feature_probe::capture_warnings(|| links::load(|| open(&settle_name()))).map(drop)
    }

    fn attach(mut object: Object) -> libbpf_rs::Result<Self> {
        let registered = object
            .maps_mut()
            .find(|map| map.name() == SETTLE)
            .expect("the program has it")
            .attach_struct_ops()?;
        let walk = object
            .progs_mut()
            .find(|program| program.name() == "carry_out")
            .expect("the program has it")
            .attach()?;
        let map = |name: &str| {
            let found = object.maps().find(|map| map.name() == name);
            MapHandle::try_from(&found.expect("the program has it"))
        };
        Ok(Self {
            orders: map("orders")?,
            settle: map(SETTLE)?,
            walk,
            _registered: registered,
            _object: object,
        })
    }

    /// Takes the congestion control away in the name of an owner that was killed: before Linux 6.4 it would stay.
    pub fn retire(&self) {
        // Later kernels refuse, and did it themselves.
        let _ = self.settle.delete(&ONLY);
    }

    /// Orders a cap of so many segments for the connection with this cookie, or, with 0, that its
    /// cap be lifted. With `fill` its window grows up to the cap by slow start, wherever it is.
    /// Nothing happens before [`Self::carry_out`].
    pub fn order(&self, cookie: u64, segments: u32, fill: bool) -> io::Result<()> {
        let value = [segments, UNSEEN, fill.into()]
            .map(u32::to_ne_bytes)
            .concat();
        self.orders
            .update(&cookie.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(io::Error::other)
    }

    /// Orders that a connection be looked at and left as it is.
    pub fn ask(&self, cookie: u64) -> io::Result<()> {
        self.order(cookie, KEEP, false)
    }

    /// Forgets the order for a connection; its cap stays as it is.
    pub fn remove_order(&self, cookie: u64) {
        // What is not there is forgotten.
        let _ = self.orders.delete(&cookie.to_ne_bytes());
    }

    /// The cap that the last walk left the connection with, segments; 0 is none. `None` is a
    /// connection without an order, or that no walk has come across since it was given.
    pub fn in_force(&self, cookie: u64) -> Option<u32> {
        let value = self.orders.lookup(&cookie.to_ne_bytes(), MapFlags::ANY);
        let value = value.ok()??;
        let found = u32::from_ne_bytes(value.get(4..8)?.try_into().ok()?);
        (found != UNSEEN).then_some(found)
    }

    /// Every connection that has an order.
    pub fn ordered(&self) -> Vec<u64> {
        let keys = self.orders.keys();
        keys.filter_map(|key| key.try_into().ok().map(u64::from_ne_bytes))
            .collect()
    }

    /// Orders that every cap be lifted, and walks until that is done, pausing in between. Connections
    /// in recovery have to be waited for: at most for `walks`. Returns how many caps are left.
    pub fn lift_all(&self, walks: u32, mut pause: impl FnMut()) -> io::Result<usize> {
        for cookie in self.ordered() {
            self.order(cookie, 0, false)?;
        }
        for _ in 0..walks {
            self.carry_out()?;
            for cookie in self.ordered() {
                if self.in_force(cookie).is_none_or(|cap| cap == 0) {
                    self.remove_order(cookie);
                }
            }
            if self.ordered().is_empty() {
                break;
            }
            pause();
        }
        Ok(self.ordered().len())
    }

    /// Walks the TCP sockets of the calling thread's network namespace and does to each what is
    /// ordered. One that is in recovery is left for a later walk.
    pub fn carry_out(&self) -> io::Result<()> {
        let mut walk = Iter::new(&self.walk).map_err(io::Error::other)?;
        let mut nothing = [0; 64];
        while walk.read(&mut nothing)? > 0 {}
        Ok(())
    }
}

/// As `settle_name` in the program has it before it is told another.
const PLACEHOLDER: &[u8; 10] = b"lh_settle\0";

/// Names of congestion controls are the whole kernel's: this has the process's number and a running
/// one, and with them at most 14 characters.
fn settle_name() -> [u8; 16] {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    let mut name = [0; 16];
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let text = format!("lh_s{:x}_{count:x}", std::process::id());
    name[..text.len()].copy_from_slice(text.as_bytes());
    name
}

fn open(name: &[u8; 16]) -> Result<OpenObject, Error> {
    let object = ObjectBuilder::default().open_memory(OBJECT);
    let mut object = object.map_err(|error| feature_probe::failed("open the program", &error))?;
    for mut map in object.maps_mut() {
        if let Some(value) = map.initial_value_mut() {
            put_name(value, name);
        }
    }
    Ok(object)
}

fn put_name(value: &mut [u8], name: &[u8; 16]) {
    let at = value
        .windows(PLACEHOLDER.len())
        .position(|at| at == PLACEHOLDER);
    if let Some(at) = at {
        value[at..at + name.len()].copy_from_slice(name);
    }
}

/// The map of operations in the program, and its only key.
const SETTLE: &str = "longhaul_settle";
const ONLY: [u8; 4] = [0; 4];

/// Takes away what a process left that was killed together with its executor, before Linux 6.4.
fn remove_stale() {
    for info in MapInfoIter::default().filter(|info| info.name == SETTLE) {
        let Ok(map) = MapHandle::from_map_id(info.id) else {
            continue;
        };
        let value = map.lookup(&ONLY, MapFlags::ANY).ok().flatten();
        if value
            .and_then(|value| owner(&value))
            .is_some_and(has_exited)
        {
            let _ = map.delete(&ONLY);
        }
    }
}

fn has_exited(process: u32) -> bool {
    !Path::new(&format!("/proc/{process}")).exists()
}

/// The process in a name of [`settle_name`], wherever that stands in the operations.
fn owner(operations: &[u8]) -> Option<u32> {
    let at = operations.windows(4).position(|at| at == b"lh_s")?;
    let name = operations.get(at + 4..)?;
    let number = name.split(|byte| *byte == b'_').next()?;
    u32::from_str_radix(str::from_utf8(number).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_operations_tells_whose_they_are() {
        let operations = [&[0; 7][..], &settle_name(), &[0; 9]].concat();
        assert_eq!(owner(&operations), Some(std::process::id()));
        assert_eq!(owner(b"lh_scalable\0"), None);
        assert!(has_exited(u32::MAX) && !has_exited(std::process::id()));
    }
}
