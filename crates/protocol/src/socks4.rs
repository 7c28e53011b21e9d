// SPDX-License-Identifier: MIT OR Apache-2.0
//! SOCKS4 and 4a (openssh's `PROTOCOL`, curl's `socks.c` and the memos by Ying-Da Lee, for want of an RFC), the
//! server's side. No I/O.
//!
//! A request is SOCKS5's in another form, and has the name of a user, which nobody checks.

use crate::{
    destination::{Destination, HostName},
    socks5::{Command, Reply, Request},
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The first byte of a request.
pub const VERSION: u8 = 4;

/// The longest user, which is no part of what the request means.
const USER_LEN_MAX: usize = 255;
/// Version, command, port and address.
const FIXED_LEN: usize = 8;
/// The longest request, with a name in it (SOCKS4a), and both ends.
pub const MESSAGE_LEN_MAX: usize = FIXED_LEN + USER_LEN_MAX + 1 + HostName::LEN_MAX + 1;

/// A request that can't be one. The answer is [`reply`]'s to a failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a SOCKS4 request with a user or name that does not end, or a name that is none")]
pub struct Socks4Error;

/// Reads a request; also returns its length. None while it is incomplete.
pub fn parse_request(input: &[u8]) -> Result<Option<(Request, usize)>, Socks4Error> {
    let Some((fixed, rest)) = input.split_first_chunk::<FIXED_LEN>() else {
        return Ok(None);
    };
    let [_, command, high, low, a, b, c, d] = *fixed;
    let Some((_, user_len)) = text(rest, USER_LEN_MAX)? else {
        return Ok(None);
    };
    let (port, ip) = (u16::from_be_bytes([high, low]), Ipv4Addr::new(a, b, c, d));
    let (destination, len) = match ip.octets() {
        // SOCKS4a: behind the user comes a name.
        [0, 0, 0, last] if last > 0 => {
            let Some((name, name_len)) = text(&rest[user_len..], HostName::LEN_MAX)? else {
                return Ok(None);
            };
            let name = String::from_utf8_lossy(name);
            let named = Destination::from_host(&name, port).map_err(|_| Socks4Error)?;
            (named, user_len + name_len)
        }
        _ => (Destination::from_ip(IpAddr::V4(ip), port), user_len),
    };
    let command = match command {
        1 => Command::Connect,
        2 => Command::Bind,
        other => Command::Unknown(other),
    };
    let request = Request {
        command,
        destination,
    };
    Ok(Some((request, FIXED_LEN + len)))
}

/// Bytes before a zero, and their number with it.
fn text(input: &[u8], len_max: usize) -> Result<Option<(&[u8], usize)>, Socks4Error> {
    match input.iter().position(|byte| *byte == 0) {
        Some(end) if end <= len_max => Ok(Some((&input[..end], end + 1))),
        None if input.len() <= len_max => Ok(None),
        _ => Err(Socks4Error),
    }
}

/// The answer: 90, or 91 for whatever went wrong. `bound` is as in [`Reply::encode`]; there is no room for an address
/// of IPv6, and zeroes mean the address that the client has reached.
#[must_use]
pub fn reply(reply: Reply, bound: Option<SocketAddr>) -> Vec<u8> {
    const GRANTED: u8 = 90;
    const REJECTED: u8 = 91;
    let code = match reply {
        Reply::Succeeded => GRANTED,
        _ => REJECTED,
    };
    let ip = match bound.map(|bound| bound.ip().to_canonical()) {
        Some(IpAddr::V4(ip)) => ip,
        _ => Ipv4Addr::UNSPECIFIED,
    };
    let [high, low] = bound.map_or(0, |bound| bound.port()).to_be_bytes();
    [&[0, code, high, low], &ip.octets()[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(input: &[u8]) -> (Command, String, usize) {
        let (request, len) = parse_request(input).unwrap().unwrap();
        (request.command, request.destination.to_string(), len)
    }

    #[test]
    fn parses_a_request_up_to_its_user_or_name() {
        let with_address = b"\x04\x01\x01\xbb\x0a\x00\x00\x01me\0";
        let with_name = b"\x04\x02\x00\x50\x00\x00\x00\x01\0h.test\0";
        for whole in [&with_address[..], with_name] {
            for end in 0..whole.len() {
                assert_eq!(parse_request(&whole[..end]), Ok(None), "{end}");
            }
        }
        let found = parsed(&[with_address, &b"early"[..]].concat());
        assert_eq!(
            found,
            (Command::Connect, "10.0.0.1:443".into(), with_address.len())
        );
        assert_eq!(
            parsed(with_name),
            (Command::Bind, "h.test:80".into(), with_name.len())
        );
        // Not a name: the first three bytes only are zero in 4a, and nobody is 0.0.0.0.
        assert_eq!(parsed(b"\x04\x02\0\0\0\0\0\0\0").1, "0.0.0.0:0");
    }

    #[test]
    fn bounds_users_and_names() {
        let user = |len: usize| [&b"\x04\x01\0\x50\x0a\0\0\x01"[..], &vec![b'u'; len]].concat();
        assert_eq!(parse_request(&user(255)), Ok(None));
        assert_eq!(parse_request(&user(256)), Err(Socks4Error));
        let name = |len: usize| [&b"\x04\x01\0\x50\0\0\0\x01\0"[..], &vec![b'n'; len]].concat();
        assert_eq!(parse_request(&name(255)), Ok(None));
        assert_eq!(parse_request(&name(256)), Err(Socks4Error));
        assert_eq!(
            parse_request(b"\x04\x01\0\x50\0\0\0\x01\0a b\0"),
            Err(Socks4Error)
        );
    }

    #[test]
    fn encodes_answers_with_ipv4() {
        let bound = |text: &str| Some(text.parse().unwrap());
        let granted = reply(Reply::Succeeded, bound("[::ffff:192.0.2.7]:258"));
        assert_eq!(granted, [0, 90, 1, 2, 192, 0, 2, 7]);
        assert_eq!(
            reply(Reply::Succeeded, bound("[::1]:1")),
            [0, 90, 0, 1, 0, 0, 0, 0]
        );
        assert_eq!(
            reply(Reply::HostUnreachable, None),
            [0, 91, 0, 0, 0, 0, 0, 0]
        );
    }

    proptest! {
        #[test]
        fn no_input_panics_and_none_is_longer_than_the_longest(
            tail in proptest::collection::vec(any::<u8>(), 0..600),
            name in any::<bool>(),
        ) {
            let _ = parse_request(&tail);
            let ip = if name { [0, 0, 0, 1] } else { [10, 0, 0, 1] };
            let shaped = [&[VERSION, 1, 0, 80], &ip[..], &tail].concat();
            match parse_request(&shaped) {
                Ok(Some((_, len))) => prop_assert!(len <= shaped.len() && len <= MESSAGE_LEN_MAX),
                Ok(None) => prop_assert!(shaped.len() < MESSAGE_LEN_MAX),
                Err(_) => {}
            }
        }
    }
}
