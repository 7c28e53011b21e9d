// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of `--decode-as`: a UDP port, and the tunnel to read there.

use longhaul_packet::tunnel::UdpTunnel;
use std::str::FromStr;

/// Tunnel to read at a UDP port, written as for `tshark -d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DecodeAs {
    pub(super) port: u16,
    pub(super) tunnel: UdpTunnel,
}

impl FromStr for DecodeAs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .strip_prefix("udp.port==")
            .and_then(parse_port_and_name);
        parsed.ok_or_else(|| {
            let names = UdpTunnel::ALL.map(UdpTunnel::name).join(", ");
            format!("expected udp.port==PORT,NAME, with a port of 1 to 65535 and one of {names}")
        })
    }
}

fn parse_port_and_name(text: &str) -> Option<DecodeAs> {
    let (port, name) = text.split_once(',')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let tunnel = UdpTunnel::ALL
        .into_iter()
        .find(|tunnel| tunnel.name() == name)?;
    Some(DecodeAs { port, tunnel })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_ports_and_names() {
        for tunnel in UdpTunnel::ALL {
            let text = format!("udp.port==8472,{}", tunnel.name());
            let expected = DecodeAs { port: 8472, tunnel };
            assert_eq!(text.parse(), Ok(expected));
        }
    }

    #[test]
    fn names_what_is_allowed() {
        let expected = "expected udp.port==PORT,NAME, with a port of 1 to 65535 and one of \
                        geneve, gre, gtp, l2tp, vxlan, vxlan_gpe";
        for text in [
            "",
            "8472,vxlan",
            "tcp.port==8472,vxlan",
            "udp.port==8472",
            "udp.port==8472,",
            "udp.port==8472,VXLAN",
            "udp.port==0,vxlan",
            "udp.port==65536,vxlan",
            "udp.port==8472,vxlan,gre",
        ] {
            assert_eq!(text.parse::<DecodeAs>(), Err(expected.to_owned()), "{text}");
        }
    }
}
