// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PROXY protocol, versions 1 and 2 (HAProxy, doc/proxy-protocol.txt): a header that names the client, before the
//! first byte of a connection. No I/O.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// The length of the longest line of version 1, its CR LF included (§2.1).
pub const V1_LEN_MAX: usize = 107;
/// The length of the longest header of version 2 that is accepted. The format allows 64 KiB. The TLVs that senders put
/// after the addresses (§2.2.7: names, TLS versions, checksums) take a few hundred bytes.
pub const V2_LEN_MAX: usize = 4096;

const V1_PREFIX: &[u8] = b"PROXY ";
const V1_END: &[u8] = b"\r\n";
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED_LEN: usize = 16;
/// The length of `PROXY UNKNOWN` and its CR LF; no header of either version is shorter.
const LEN_MIN: usize = 15;

// §2.2.
const VERSION_2: u8 = 0x20;
const LOCAL: u8 = 0;
const PROXY: u8 = 1;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// Contents of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// The sender speaks for itself or does not know the client: the connection's own addresses are valid. LOCAL,
    /// UNKNOWN and UNSPEC mean this, and so does every family but TCP over IPv4 or IPv6.
    Local,
    /// The connection is on behalf of this client.
    Proxied {
        /// The client.
        source: SocketAddr,
        /// Address that the client connected to.
        destination: SocketAddr,
    },
}

/// Reason why the bytes are not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// The first bytes begin a header of neither version.
    #[error("no PROXY protocol header")]
    Signature,
    /// A line of version 1 that does not end, or does not have the form of §2.1.
    #[error("malformed PROXY protocol line")]
    Line,
    /// A version other than 2, or an unknown command.
    #[error("unknown PROXY protocol version or command {0:#04x}")]
    Command(u8),
    /// Too long, or too short for the addresses it should have.
    #[error("PROXY protocol header of a wrong length")]
    Length,
}

/// Returns how many bytes can be read without reading beyond the header; 0 once it is whole.
pub fn bytes_missing(input: &[u8]) -> Result<usize, ProxyError> {
    let binary = is_binary(input)?;
    if input.len() < LEN_MIN {
        return Ok(LEN_MIN - input.len());
    }
    match (binary, input.ends_with(V1_END), input.ends_with(b"\r")) {
        (true, ..) => Ok(v2_len(input)?.saturating_sub(input.len())),
        (false, true, _) => Ok(0),
        (false, ..) if input.len() >= V1_LEN_MAX => Err(ProxyError::Line),
        (false, false, true) => Ok(1),
        (false, false, false) => Ok(2),
    }
}

/// Parses a header, and returns it with its length; `Ok(None)` while it is incomplete.
pub fn parse(input: &[u8]) -> Result<Option<(Header, usize)>, ProxyError> {
    if is_binary(input)? {
        parse_v2(input)
    } else {
        parse_v1(input)
    }
}

/// Returns whether the bytes begin a header of version 2; false if they are too few to exclude version 1.
fn is_binary(input: &[u8]) -> Result<bool, ProxyError> {
    let begins = |with: &[u8]| input.iter().zip(with).all(|(a, b)| a == b);
    match (begins(V1_PREFIX), begins(&SIGNATURE)) {
        (true, _) => Ok(false),
        (false, true) => Ok(true),
        (false, false) => Err(ProxyError::Signature),
    }
}

fn parse_v1(input: &[u8]) -> Result<Option<(Header, usize)>, ProxyError> {
    let head = &input[..input.len().min(V1_LEN_MAX)];
    let Some(end) = head.windows(V1_END.len()).position(|at| at == V1_END) else {
        return if input.len() < V1_LEN_MAX {
            Ok(None)
        } else {
            Err(ProxyError::Line)
        };
    };
    let line = std::str::from_utf8(&input[..end]).map_err(|_| ProxyError::Line)?;
    let header = parse_line(line).ok_or(ProxyError::Line)?;
    Ok(Some((header, end + V1_END.len())))
}

fn parse_line(line: &str) -> Option<Header> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["PROXY", "UNKNOWN", ..] => Some(Header::Local),
        ["PROXY", "TCP4", from, to, from_port, to_port] => {
            proxied::<Ipv4Addr>([from, to], [from_port, to_port])
        }
        ["PROXY", "TCP6", from, to, from_port, to_port] => {
            proxied::<Ipv6Addr>([from, to], [from_port, to_port])
        }
        _ => None,
    }
}

fn proxied<Ip: FromStr + Into<IpAddr>>(ips: [&str; 2], ports: [&str; 2]) -> Option<Header> {
    let address = |ip: &str, port: &str| {
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = digits.then(|| port.parse::<u16>())?.ok()?;
        Some(canonical(ip.parse::<Ip>().ok()?.into(), port))
    };
    Some(Header::Proxied {
        source: address(ips[0], ports[0])?,
        destination: address(ips[1], ports[1])?,
    })
}

fn canonical(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip.to_canonical(), port)
}

/// Returns the length of the whole header, or of its fixed part while that part is incomplete.
fn v2_len(input: &[u8]) -> Result<usize, ProxyError> {
    let Some(&[high, low]) = input.get(14..V2_FIXED_LEN) else {
        return Ok(V2_FIXED_LEN);
    };
    let len = V2_FIXED_LEN + usize::from(u16::from_be_bytes([high, low]));
    if len <= V2_LEN_MAX {
        Ok(len)
    } else {
        Err(ProxyError::Length)
    }
}

fn parse_v2(input: &[u8]) -> Result<Option<(Header, usize)>, ProxyError> {
    let len = v2_len(input)?;
    if input.len() < len.max(V2_FIXED_LEN) {
        return Ok(None);
    }
    let (command, family) = (input[12], input[13]);
    let addresses = &input[V2_FIXED_LEN..len];
    let header = match (command ^ VERSION_2, family) {
        (LOCAL, _) => Header::Local,
        (PROXY, TCP_OVER_IPV4) => v2_addresses::<4>(addresses)?,
        (PROXY, TCP_OVER_IPV6) => v2_addresses::<16>(addresses)?,
        (PROXY, _) => Header::Local,
        _ => return Err(ProxyError::Command(command)),
    };
    Ok(Some((header, len)))
}

/// Parses two addresses and two ports. The TLVs after them are ignored (§2.2).
fn v2_addresses<const N: usize>(bytes: &[u8]) -> Result<Header, ProxyError>
where
    [u8; N]: Into<IpAddr>,
{
    let ip = |at: usize| array::<N>(bytes, at).map(Into::into);
    let port = |at: usize| array::<2>(bytes, at).map(u16::from_be_bytes);
    let ends = (ip(0), ip(N), port(2 * N), port(2 * N + 2));
    let (Some(from), Some(to), Some(from_port), Some(to_port)) = ends else {
        return Err(ProxyError::Length);
    };
    Ok(Header::Proxied {
        source: canonical(from, from_port),
        destination: canonical(to, to_port),
    })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// Encodes a header of version 1 (§2.1). If the families differ, both addresses are written as IPv6.
#[must_use]
pub fn encode_v1(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let (family, from, to) = match one_family(source, destination) {
        Family::V4(from, to) => ("TCP4", from.to_string(), to.to_string()),
        Family::V6(from, to) => ("TCP6", from.to_string(), to.to_string()),
    };
    let (from_port, to_port) = (source.port(), destination.port());
    format!("PROXY {family} {from} {to} {from_port} {to_port}\r\n").into_bytes()
}

/// Encodes a header of version 2 (§2.2). If the families differ, both addresses are written as IPv6.
#[must_use]
pub fn encode_v2(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let (family, mut addresses) = match one_family(source, destination) {
        Family::V4(from, to) => (TCP_OVER_IPV4, [from.octets(), to.octets()].concat()),
        Family::V6(from, to) => (TCP_OVER_IPV6, [from.octets(), to.octets()].concat()),
    };
    addresses.extend(source.port().to_be_bytes());
    addresses.extend(destination.port().to_be_bytes());
    let mut header = SIGNATURE.to_vec();
    header.extend([VERSION_2 | PROXY, family]);
    header.extend((addresses.len() as u16).to_be_bytes());
    header.extend(addresses);
    header
}

enum Family {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

fn one_family(source: SocketAddr, destination: SocketAddr) -> Family {
    let wide = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    match (source.ip().to_canonical(), destination.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Family::V4(from, to),
        (from, to) => Family::V6(wide(from), wide(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn line(text: &str) -> Result<Header, ProxyError> {
        let line = format!("{text}\r\n");
        parse(line.as_bytes()).map(|found| found.unwrap().0)
    }

    #[test]
    fn parses_the_specification_s_lines() {
        let source = address("255.255.255.255:65535");
        let header = Header::Proxied {
            source,
            destination: source,
        };
        let text = "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535";
        assert_eq!(line(text), Ok(header));
        for local in ["PROXY UNKNOWN", "PROXY UNKNOWN ffff:f...f:ffff 65535 65535"] {
            assert_eq!(line(local), Ok(Header::Local), "{local}");
        }
        for bad in [
            "PROXY TCP4 10.0.0.1 10.0.0.2 1",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1 2 3",
            "PROXY TCP4 10.0.0.1  10.0.0.2 1 2",
            "PROXY TCP4 ::1 ::1 1 2",
            "PROXY TCP6 10.0.0.1 10.0.0.2 1 2",
            "PROXY TCP4 10.0.0.1 10.0.0.2 +1 2",
            "PROXY TCP4 10.0.0.1 10.0.0.2 1 65536",
            "PROXY UDP4 10.0.0.1 10.0.0.2 1 2",
            "PROXY ",
        ] {
            assert_eq!(line(bad), Err(ProxyError::Line), "{bad}");
        }
    }

    #[test]
    fn ignores_local_unspec_and_other_families() {
        let header = |command: u8, family: u8, rest: &[u8]| {
            let len = (rest.len() as u16).to_be_bytes();
            [&SIGNATURE[..], &[command, family], &len, rest].concat()
        };
        for (command, family) in [
            (0x20, 0),
            (0x20, 0x11),
            (0x21, 0),
            (0x21, 0x12),
            (0x21, 0x31),
        ] {
            let bytes = header(command, family, b"anything");
            assert_eq!(parse(&bytes), Ok(Some((Header::Local, bytes.len()))));
        }
        assert_eq!(
            parse(&header(0x22, 0x11, b"")),
            Err(ProxyError::Command(0x22))
        );
        assert_eq!(
            parse(&header(0x11, 0x11, b"")),
            Err(ProxyError::Command(0x11))
        );
        assert_eq!(
            parse(&header(0x21, 0x11, &[0; 11])),
            Err(ProxyError::Length)
        );
        assert_eq!(
            parse(&header(0x21, 0x21, &[0; 35])),
            Err(ProxyError::Length)
        );
        assert_eq!(
            parse(&header(0x21, 0x11, &[0; 4081])),
            Err(ProxyError::Length)
        );
        assert!(parse(&header(0x21, 0x11, &[0; 4080])).unwrap().is_some());
    }

    #[test]
    fn rejects_other_protocols_at_once() {
        for first in [&b"GET / HTTP/1.1"[..], b"PROXI", b"\x05\x01", b"\r\n\r\nx"] {
            assert_eq!(parse(first), Err(ProxyError::Signature));
            assert_eq!(bytes_missing(first), Err(ProxyError::Signature));
        }
        let endless = [V1_PREFIX, &[b'x'; 200]].concat();
        assert_eq!(parse(&endless), Err(ProxyError::Line));
        assert_eq!(parse(&endless[..106]), Ok(None));
    }

    /// Reads as a server does: never a byte beyond the header.
    fn read(stream: &[u8]) -> Result<(Header, usize), ProxyError> {
        let mut end = 0;
        loop {
            match bytes_missing(&stream[..end])? {
                0 => return parse(&stream[..end]).map(Option::unwrap),
                more => end += more,
            }
        }
    }

    proptest! {
        #[test]
        fn reads_what_it_writes_and_nothing_behind_it(
            a: u128, b: u128, four: [bool; 2], ports: [u16; 2],
        ) {
            let ip = |bits: u128, four| if four { IpAddr::V4((bits as u32).into()) } else { IpAddr::V6(bits.into()) };
            let source = canonical(ip(a, four[0]), ports[0]);
            let destination = canonical(ip(b, four[1]), ports[1]);
            for header in [encode_v1(source, destination), encode_v2(source, destination)] {
                let stream = [&header[..], b"PROXY \r\n\r\nbehind it, much more than is read"].concat();
                let want = Header::Proxied { source, destination };
                prop_assert_eq!(read(&stream), Ok((want, header.len())));
                for end in 0..header.len() {
                    prop_assert_eq!(parse(&header[..end]), Ok(None));
                }
            }
        }

        #[test]
        fn no_input_panics(tail in proptest::collection::vec(any::<u8>(), 0..300), kind in 0u8..4) {
            let mut shaped = match kind {
                0 => Vec::new(),
                1 => V1_PREFIX.to_vec(),
                2 => b"PROXY TCP4 ".to_vec(),
                _ => [&SIGNATURE[..], &[0x21, 0x11, 0]].concat(),
            };
            shaped.extend(&tail);
            let _ = bytes_missing(&shaped);
            if let Ok(Some((_, len))) = parse(&shaped) {
                prop_assert!(len <= shaped.len());
            }
        }
    }
}
