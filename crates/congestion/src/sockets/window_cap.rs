// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caps on the congestion windows of connections that know nothing of it (`window_cap.bpf.c`).
//!
//! A cap is the socket's own `snd_cwnd_clamp`, so it stays with the socket until it is lifted, also
//! when this process is gone: [`Caps`] lifts nothing by itself.

use libbpf_rs::{Iter, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use std::{
    io::{self, Read},
    sync::atomic::{AtomicU8, Ordering},
};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/window_cap.bpf.o"));

/// Connections that can have an order at the same time (`orders` in the program): 64 B each.
pub const CONNECTIONS_MAX: usize = 16_384;

/// Why windows can't be capped here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The rights are missing.
    #[error("window caps need CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (run it as root)")]
    Denied(#[source] libbpf_rs::Error),
    /// The kernel is too old or was built without it.
    #[error("window caps need Linux 5.15 with BTF and BPF struct_ops ({0})")]
    Kernel(#[source] libbpf_rs::Error),
}

impl From<libbpf_rs::Error> for Error {
    fn from(error: libbpf_rs::Error) -> Self {
        match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => Self::Denied(error),
            _ => Self::Kernel(error),
        }
    }
}

/// An order to do nothing.
const KEEP: u32 = u32::MAX;

/// What stands for `in_force` until a walk comes across the socket.
const UNSEEN: u32 = u32::MAX;

/// The loaded program and the orders that it carries out.
pub struct Caps {
    orders: MapHandle,
    walk: Link,
    _settle: Link,
    _object: Object,
}

impl Caps {
    /// Loads the program. Its congestion control, which no connection keeps, is listed in
    /// `tcp_available_congestion_control` as `lh_s…` while it is loaded.
    pub fn load() -> Result<Self, Error> {
        libbpf_rs::set_print(None);
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        let name = settle_name();
        for mut map in open.maps_mut() {
            if let Some(value) = map.initial_value_mut() {
                put_name(value, &name);
            }
        }
        let mut object = open.load()?;
        let settle = object
            .maps_mut()
            .find(|map| map.name() == "longhaul_settle")
            .expect("the program has it")
            .attach_struct_ops()?;
        let walk = object
            .progs_mut()
            .find(|program| program.name() == "carry_out")
            .expect("the program has it")
            .attach()?;
        let orders = object
            .maps()
            .find(|map| map.name() == "orders")
            .expect("the program has it");
        Ok(Self {
            orders: MapHandle::try_from(&orders)?,
            walk,
            _settle: settle,
            _object: object,
        })
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
    pub fn forget(&self, cookie: u64) {
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
                    self.forget(cookie);
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

fn put_name(value: &mut [u8], name: &[u8; 16]) {
    let at = value
        .windows(PLACEHOLDER.len())
        .position(|at| at == PLACEHOLDER);
    if let Some(at) = at {
        value[at..at + name.len()].copy_from_slice(name);
    }
}
