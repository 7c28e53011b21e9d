/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Classification of packets for ACK thinning and pacing. Plain C, for BPF and for the host. */
#ifndef LH_ACK_PACKET_H
#define LH_ACK_PACKET_H

#include "ack_thin_math.h"

/* IPv6 and TCP headers and timestamps: the longest pure ACK. */
#define ACK_PACKET_MAX 72

enum ack_kind {
	ACK_NOT_TCP,
	ACK_OTHER, /* TCP, and must be sent at once */
	ACK_PURE,
};

CC_INLINE u32 ack_u16(const u8 *at) { return (u32)at[0] << 8 | at[1]; }
CC_INLINE u32 ack_u32(const u8 *at) { return ack_u16(at) << 16 | ack_u16(at + 2); }

/* Classifies the TCP header of a packet without IP options. Any flag but ACK is information: SYN, FIN,
 * RST, URG, and ECE, CWR and AE, which count congestion marks; PSH comes with data. So is any option but
 * timestamps, padded as in Linux (RFC 7323 appendix A): SACK, multipath TCP. */
CC_INLINE enum ack_kind ack_look_at_tcp(const u8 *tcp, u32 bytes, struct ack_pure *ack)
{
	u32 offset_and_flags = ack_u16(tcp + 12);

	*ack = (struct ack_pure){ .ack = ack_u32(tcp + 8), .window = (u16)ack_u16(tcp + 14) };
	if (bytes == 20 && offset_and_flags == 0x5010)
		return ACK_PURE;
	if (bytes == 32 && offset_and_flags == 0x8010 && ack_u32(tcp + 20) == 0x0101080a)
		return ACK_PURE;
	return ACK_OTHER;
}

/* Classifies a packet of `bytes` from its IP header on; `packet` contains the first ACK_PACKET_MAX
 * (zero where it is shorter). */
CC_INLINE enum ack_kind ack_look_at(const u8 *packet, u32 bytes, struct ack_pure *ack)
{
	if (packet[0] >> 4 == 6)
		return packet[6] == 6 ? ack_look_at_tcp(packet + 40, bytes - 40, ack) : ACK_NOT_TCP;
	if (packet[9] != 6)
		return ACK_NOT_TCP;
	/* IP options, or a fragment: of unknown content. */
	if (packet[0] != 0x45 || ack_u16(packet + 6) & 0x3fff)
		return ACK_OTHER;
	return ack_look_at_tcp(packet + 20, bytes - 20, ack);
}

#endif
