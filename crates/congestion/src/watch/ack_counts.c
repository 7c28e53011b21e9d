// SPDX-License-Identifier: MIT OR GPL-2.0-only
// ACK counting for the host, which src/watch/ack_counts.rs calls.
#include "../bpf/ack_counts.h"

void longhaul_ack_count(struct ack_counts *counts, u32 una, u32 mss, u64 now_us)
{
	ack_count(counts, una, mss, now_us);
}
