// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Decisions of ACK thinning for the host, which src/ack_thin/math.rs calls.
#include "../bpf/ack_packet.h"

void longhaul_ack_begin(struct ack_flow *flow, u64 now_ns, const struct ack_pure *ack)
{
	ack_begin(flow, now_ns, ack);
}

u32 longhaul_ack_offer(struct ack_flow *flow, u64 now_ns, const struct ack_pure *ack,
		       const struct ack_limits *limits)
{
	return ack_offer(flow, now_ns, ack, limits);
}

u32 longhaul_ack_flush(struct ack_flow *flow, u64 now_ns) { return (u32)ack_flush(flow, now_ns); }

u32 longhaul_ack_release(struct ack_flow *flow, u64 now_ns)
{
	return (u32)ack_release(flow, now_ns);
}

u32 longhaul_ack_look_at(const u8 *packet, u32 bytes, struct ack_pure *ack)
{
	return ack_look_at(packet, bytes, ack);
}
