// SPDX-License-Identifier: MIT OR Apache-2.0
//! The longest packet that comes through whole, by trying (RFC 8899): routers that say nothing of what
//! they drop don't matter.

use super::echo::Echo;
use anyhow::Result;
use longhaul_linux::clock;
use longhaul_units::Time;
use std::time::Duration;

/// Every path carries this (RFC 791; RFC 8200 asks for 1,280).
const LEAST: usize = 576;
const MOST: usize = 9000;
/// Packets of one length before it counts as too long.
const TRIES: u32 = 3;

/// Bytes from the IP header on; `None` if not even the least comes through.
pub(super) fn measure(far: &mut dyn Echo, patience: Time) -> Result<Option<u32>> {
    let most = (far.mtu()? as usize).clamp(LEAST, MOST);
    if comes_through(far, most, patience)? {
        return Ok(Some(most as u32));
    }
    let (mut passes, mut fails) = (LEAST, most);
    if !comes_through(far, passes, patience)? {
        return Ok(None);
    }
    while fails - passes > 1 {
        let middle = passes.midpoint(fails);
        match comes_through(far, middle, patience)? {
            true => passes = middle,
            false => fails = middle,
        }
    }
    Ok(Some(passes as u32))
}

fn comes_through(far: &mut dyn Echo, len: usize, patience: Time) -> Result<bool> {
    for _ in 0..TRIES {
        // Longer than the interface's own MTU: EMSGSIZE.
        let Ok(number) = far.ask(len) else {
            continue;
        };
        let end = clock::now() + patience;
        while clock::now() < end {
            let left = Duration::from(end - clock::now()).max(Duration::from_micros(1));
            // What a router says of a packet comes as an error of the socket.
            let answer = far.answer(left).unwrap_or(None);
            if answer.is_some_and(|answer| answer.number == number) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
