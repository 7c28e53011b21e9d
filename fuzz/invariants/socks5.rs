// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks SOCKS5 messages: a message is complete with its last byte and not before, and no longer than the bound. A
//! request reads back after encoding. SOCKS4 requests end at their last byte too.

use longhaul_protocol::{
    destination::Destination,
    socks4,
    socks5::{
        Command, MESSAGE_LEN_MAX, Method, Request, Socks5Error, parse_greeting, parse_request,
    },
};
use std::net::SocketAddr;

pub(crate) fn check(input: &[u8]) {
    for method in [Method::None, Method::Password] {
        check_message_end(input, |input| parse_greeting(input, method));
    }
    check_message_end(input, parse_request);
    if let Ok(Some((request, _))) = parse_request(input) {
        let again = encoded(&request);
        assert_eq!(parse_request(&again), Ok(Some((request, again.len()))));
    }
    if let Ok(Some((_, len))) = socks4::parse_request(input) {
        assert!(len <= input.len().min(socks4::MESSAGE_LEN_MAX));
        assert_eq!(socks4::parse_request(&input[..len - 1]), Ok(None));
    }
}

fn check_message_end<T: PartialEq + std::fmt::Debug>(
    input: &[u8],
    parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, Socks5Error>,
) {
    match parse(input) {
        Ok(Some((message, len))) => {
            assert!(len <= input.len().min(MESSAGE_LEN_MAX));
            assert_eq!(parse(&input[..len]), Ok(Some((message, len))));
            assert_eq!(parse(&input[..len - 1]), Ok(None));
        }
        Ok(None) => assert!(input.len() < MESSAGE_LEN_MAX),
        Err(Socks5Error::Version(version)) => assert!(version == input[0] && version != 5),
        Err(_) => {}
    }
}

fn encoded(request: &Request) -> Vec<u8> {
    let command = match request.command {
        Command::Connect => 1,
        Command::Bind => 2,
        Command::UdpAssociate => 3,
        Command::Unknown(code) => code,
    };
    let mut message = vec![5, command, 0];
    match &request.destination {
        Destination::Address(SocketAddr::V4(v4)) => {
            message.push(1);
            message.extend(v4.ip().octets());
        }
        Destination::Address(SocketAddr::V6(v6)) => {
            message.push(4);
            message.extend(v6.ip().octets());
        }
        Destination::Name(name, _) => {
            message.extend([3, name.as_str().len() as u8]);
            message.extend(name.as_str().as_bytes());
        }
    }
    message.extend(request.destination.port().to_be_bytes());
    message
}
