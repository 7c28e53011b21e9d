// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that caps windows, and its orders.

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

/// Order that reads the connection's cap and leaves it unchanged (`KEEP` of window_cap.bpf.c).
const KEEP: u32 = u32::MAX;

/// Value of `in_force` until a walk has visited the socket.
const NOT_VISITED: u32 = u32::MAX;

/// Action that needs rights, for messages.
const CAPPING: &str = "windows are capped";

/// The loaded program and its orders.
pub struct Caps {
    orders: MapHandle,
    walk: Link,
    settle: MapHandle,
    _registered: Link,
    _object: Object,
}

/// Checks whether the caller may load the program.
pub fn permitted() -> Result<(), Error> {
    feature_probe::check_rights(CAPPING)
}

impl Caps {
    /// Loads the program. Its congestion control, which connections use only briefly, is listed in
    /// `tcp_available_congestion_control` as `lh_s…` while it is loaded.
    pub fn load() -> Result<Self, Error> {
        feature_probe::check(CAPPING)?;
        feature_probe::capture_warnings(|| {
            remove_stale();
            let name = unique_name();
            let (object, _) = links::load(|| open(&name))?;
            Self::attach(object)
                .map_err(|error| feature_probe::failed("put the program to work", &error))
        })
    }

    /// Checks that the kernel accepts the programs, without registering or attaching them.
    pub(crate) fn try_load() -> Result<(), Error> {
        feature_probe::check(CAPPING)?;
        feature_probe::capture_warnings(|| links::load(|| open(&unique_name()))).map(drop)
    }

    fn attach(mut object: Object) -> libbpf_rs::Result<Self> {
        let registered = object
            .maps_mut()
            .find(|map| map.name() == SETTLE_MAP)
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
            settle: map(SETTLE_MAP)?,
            walk,
            _registered: registered,
            _object: object,
        })
    }

    /// Unregisters the congestion control for an owner that was killed: before Linux 6.4 it would stay registered.
    pub fn unregister(&self) {
        // Later kernels refuse it, and have unregistered it already.
        let _ = self.settle.delete(&ONLY_KEY);
    }

    /// Orders a cap of this many segments for the connection with this cookie; 0 lifts its cap. With `fill`
    /// its window grows up to the cap by slow start, whatever it is now. [`Self::carry_out`] executes
    /// orders.
    pub fn order(&self, cookie: u64, segments: u32, fill: bool) -> io::Result<()> {
        let value = [segments, NOT_VISITED, fill.into()]
            .map(u32::to_ne_bytes)
            .concat();
        self.orders
            .update(&cookie.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(io::Error::other)
    }

    /// Orders that a connection's cap be read and left unchanged.
    pub fn order_read(&self, cookie: u64) -> io::Result<()> {
        self.order(cookie, KEEP, false)
    }

    /// Removes the order for a connection; its cap is unchanged.
    pub fn remove_order(&self, cookie: u64) {
        // A missing order is no error.
        let _ = self.orders.delete(&cookie.to_ne_bytes());
    }

    /// Returns the connection's cap after the last walk, in segments; 0 is none. `None` if the connection has
    /// no order, or no walk has visited it since the order.
    pub fn cap_in_force(&self, cookie: u64) -> Option<u32> {
        let value = self.orders.lookup(&cookie.to_ne_bytes(), MapFlags::ANY);
        let value = value.ok()??;
        let found = u32::from_ne_bytes(value.get(4..8)?.try_into().ok()?);
        (found != NOT_VISITED).then_some(found)
    }

    /// Returns the cookies of connections with an order.
    pub fn orders_by_cookie(&self) -> Vec<u64> {
        let keys = self.orders.keys();
        keys.filter_map(|key| key.try_into().ok().map(u64::from_ne_bytes))
            .collect()
    }

    /// Orders that every cap be lifted, and walks until it is done, with pauses. Waits for connections in
    /// recovery, for at most `walks` walks. Returns the number of remaining caps.
    pub fn lift_all(&self, walks: u32, mut pause: impl FnMut()) -> io::Result<usize> {
        for cookie in self.orders_by_cookie() {
            self.order(cookie, 0, false)?;
        }
        for _ in 0..walks {
            self.carry_out()?;
            for cookie in self.orders_by_cookie() {
                if self.cap_in_force(cookie).is_none_or(|cap| cap == 0) {
                    self.remove_order(cookie);
                }
            }
            if self.orders_by_cookie().is_empty() {
                break;
            }
            pause();
        }
        Ok(self.orders_by_cookie().len())
    }

    /// Walks the TCP sockets of the calling thread's network namespace and executes their orders. A socket in
    /// recovery waits for a later walk.
    pub fn carry_out(&self) -> io::Result<()> {
        let mut walk = Iter::new(&self.walk).map_err(io::Error::other)?;
        let mut buffer = [0; 64];
        while walk.read(&mut buffer)? > 0 {}
        Ok(())
    }
}

/// Initial value of `settle_name` in the program.
const PLACEHOLDER: &[u8; 10] = b"lh_settle\0";

/// Returns a name that is unique in the kernel: it has the process ID and a counter, in at most 14
/// characters.
fn unique_name() -> [u8; 16] {
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
            replace_placeholder(value, name);
        }
    }
    Ok(object)
}

fn replace_placeholder(value: &mut [u8], name: &[u8; 16]) {
    let offset = value
        .windows(PLACEHOLDER.len())
        .position(|bytes| bytes == PLACEHOLDER);
    if let Some(offset) = offset {
        value[offset..offset + name.len()].copy_from_slice(name);
    }
}

/// Name of the map in the program that has the congestion control's operations.
const SETTLE_MAP: &str = "longhaul_settle";
/// The only key of that map.
const ONLY_KEY: [u8; 4] = [0; 4];

/// Unregisters congestion controls of processes that were killed together with their cleanup process. Since Linux 6.4
/// the kernel does that itself.
fn remove_stale() {
    for info in MapInfoIter::default().filter(|info| info.name == SETTLE_MAP) {
        let Ok(map) = MapHandle::from_map_id(info.id) else {
            continue;
        };
        let value = map.lookup(&ONLY_KEY, MapFlags::ANY).ok().flatten();
        if value
            .and_then(|value| owner(&value))
            .is_some_and(has_exited)
        {
            let _ = map.delete(&ONLY_KEY);
        }
    }
}

fn has_exited(process: u32) -> bool {
    !Path::new(&format!("/proc/{process}")).exists()
}

/// Returns the process ID in a name of [`unique_name`] anywhere in the operations.
fn owner(operations: &[u8]) -> Option<u32> {
    let offset = operations.windows(4).position(|bytes| bytes == b"lh_s")?;
    let name = operations.get(offset + 4..)?;
    let number = name.split(|byte| *byte == b'_').next()?;
    u32::from_str_radix(str::from_utf8(number).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_the_owner_s_process_id() {
        let operations = [&[0; 7][..], &unique_name(), &[0; 9]].concat();
        assert_eq!(owner(&operations), Some(std::process::id()));
        assert_eq!(owner(b"lh_scalable\0"), None);
        assert!(has_exited(u32::MAX) && !has_exited(std::process::id()));
    }
}
