/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Counts of the ACKs that a connection's sender receives. Plain C, for BPF and for the host.
 *
 * AckDiff is the difference between the acknowledgement numbers of one ACK and the next, from which
 * Tamatsukuri and others ("Influence of TCP/IP Acknowledge Packet receiving on Long Fat-pipe
 * Network", 2007, figure 3) read the rate of the data; their figure 4 is the number of ACKs alone. */
#ifndef LH_ACK_COUNTS_H
#define LH_ACK_COUNTS_H

#include "cc.h"

/* ACKs of 1, 2…3, 4…7 … packets; the last entry counts all larger ones. */
#define ACK_SIZES 12

/* src/watch/ack_counts.rs has the same members. */
struct ack_counts {
	u64 acks;	/* received, the first one included */
	u64 bytes;	/* sum of AckDiff */
	u64 first_us;
	u64 last_us;
	u32 gap_us_min;
	u32 diff_max;	/* bytes */
	u32 repeated;	/* AckDiff of 0: duplicates, window updates, ACKs with data */
	u32 una;
	u32 sizes[ACK_SIZES];
};

/* Returns the index in ACK_SIZES of a number of packets; 0 has none. */
CC_INLINE u32 ack_size(u32 packets)
{
	u32 size = 0;

	for (int shift = 8; shift; shift >>= 1)
		if (packets >> shift) {
			packets >>= shift;
			size += shift;
		}
	return cc_min(size, ACK_SIZES - 1);
}

/* Counts an ACK after which `una` is the first byte that is not acknowledged. */
CC_INLINE void ack_count(struct ack_counts *counts, u32 una, u32 mss, u64 now_us)
{
	u32 diff = una - counts->una, gap_us = (u32)(now_us - counts->last_us);
	u32 packets = (diff + mss - 1) / cc_max(mss, 1);

	if (counts->acks == 0) {
		counts->first_us = now_us;
		counts->gap_us_min = ~0u;
		diff = 0;
	} else {
		counts->gap_us_min = cc_min(counts->gap_us_min, gap_us);
		if (diff)
			counts->sizes[ack_size(packets)]++;
		else
			counts->repeated++;
	}
	counts->acks++;
	counts->bytes += diff;
	counts->diff_max = cc_max(counts->diff_max, diff);
	counts->una = una;
	counts->last_us = now_us;
}

#endif
