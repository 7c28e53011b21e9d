// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path MTU by probing (RFC 8899), which also works if routers drop packets without ICMP messages.

use super::responder::Responder;
use anyhow::Result;
use longhaul_linux::clock;
use longhaul_units::Time;
use std::time::Duration;

/// Minimum path MTU in bytes, which every path supports (RFC 791; RFC 8200 requires 1,280).
const MTU_MIN: usize = 576;
/// Maximum path MTU that is searched, in bytes.
const MTU_MAX: usize = 9000;
/// Number of attempts with one length before it counts as too long.
const ATTEMPTS_MAX: u32 = 3;

/// Returns the path MTU in bytes; `None` if not even the minimum passes.
pub(super) fn measure(responder: &mut dyn Responder, timeout: Time) -> Result<Option<u32>> {
    let max = (responder.mtu()? as usize).clamp(MTU_MIN, MTU_MAX);
    if length_passes(responder, max, timeout)? {
        return Ok(Some(max as u32));
    }
    let (mut passes, mut fails) = (MTU_MIN, max);
    if !length_passes(responder, passes, timeout)? {
        return Ok(None);
    }
    while fails - passes > 1 {
        let middle = passes.midpoint(fails);
        if length_passes(responder, middle, timeout)? {
            passes = middle;
        } else {
            fails = middle;
        }
    }
    Ok(Some(passes as u32))
}

fn length_passes(responder: &mut dyn Responder, len: usize, timeout: Time) -> Result<bool> {
    for _ in 0..ATTEMPTS_MAX {
        // Longer than the interface's own MTU: EMSGSIZE.
        let Ok(number) = responder.send_request(len) else {
            continue;
        };
        let end = clock::now() + timeout;
        while clock::now() < end {
            let left = Duration::from(end - clock::now()).max(Duration::from_micros(1));
            // ICMP messages of routers arrive as errors of the socket.
            let reply = responder.receive_reply(left).unwrap_or(None);
            if reply.is_some_and(|reply| reply.number == number) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
