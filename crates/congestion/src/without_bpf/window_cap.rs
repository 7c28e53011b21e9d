// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caps on the windows of other programs' connections.

use crate::Error;
use std::{convert::Infallible, io};

/// The loaded program and its orders.
#[derive(Debug)]
pub struct Caps(Infallible);

/// Returns [`Error::WithoutBpf`].
pub fn permitted() -> Result<(), Error> {
    Err(Error::WithoutBpf)
}

impl Caps {
    /// Returns [`Error::WithoutBpf`].
    pub fn load() -> Result<Self, Error> {
        Err(Error::WithoutBpf)
    }

    /// Unregisters the congestion control for an owner that was killed.
    pub fn unregister(&self) {
        match self.0 {}
    }

    /// Orders a cap of this many segments for the connection with this cookie.
    pub fn order(&self, _cookie: u64, _segments: u32, _fill: bool) -> io::Result<()> {
        match self.0 {}
    }

    /// Orders that a connection's cap be read and left unchanged.
    pub fn order_read(&self, _cookie: u64) -> io::Result<()> {
        match self.0 {}
    }

    /// Removes the order for a connection.
    pub fn remove_order(&self, _cookie: u64) {
        match self.0 {}
    }

    /// Returns the connection's cap after the last walk, in segments.
    pub fn cap_in_force(&self, _cookie: u64) -> Option<u32> {
        match self.0 {}
    }

    /// Returns the cookies of connections with an order.
    pub fn orders_by_cookie(&self) -> Vec<u64> {
        match self.0 {}
    }

    /// Orders that every cap be lifted, and walks until it is done.
    pub fn lift_all(&self, _walks: u32, _pause: impl FnMut()) -> io::Result<usize> {
        match self.0 {}
    }

    /// Executes the orders.
    pub fn carry_out(&self) -> io::Result<()> {
        match self.0 {}
    }
}
