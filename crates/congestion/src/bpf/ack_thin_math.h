/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* ACK thinning at the receiver: suppresses a pure ACK if a later one contains all its information.
 * Plain C: it becomes a BPF program at the egress of a host's sockets and a library under
 * simulated time.
 *
 * The latest ACK of a flow is stored; each later one replaces it. It is sent when `count_max` ACKs came
 * or `covered_max` bytes are newly covered since the last one sent, and at the latest `hold_ns` after
 * the first was stored. So the last ACK of a burst is delayed but never lost. A segment other than a
 * pure ACK is sent at once. The rules are those of `longhaul link`; tests/congestion/ack_thin.rs
 * compares the two.
 *
 * Source: RFC 3449 §5.2.1 (ACK filtering) and §5.2.2; serial numbers as RFC 9293 §3.4. */
#ifndef LH_ACK_THIN_MATH_H
#define LH_ACK_THIN_MATH_H

#include "cc.h"

/* Limits of thinning. */
struct ack_limits {
	u64 hold_ns;	 /* longest delay of an ACK */
	u32 count_max;	 /* one ACK of this many is sent; 1: all */
	u32 covered_max; /* bytes; an ACK that newly covers as many is sent */
};

/* A TCP segment with no payload, no flag but ACK, no option but timestamps. */
struct ack_pure {
	u32 ack;
	u16 window; /* as in the header, unscaled */
	u16 padding;
};

/* State of a flow, in one direction. */
struct ack_flow {
	u64 passed_at;
	u64 deadline; /* when the stored ACK must be sent; 0: none stored */
	struct ack_pure last;
	u32 passed_ack;
	u32 suppressed;	 /* since the last one sent */
	u32 interrupted; /* another segment was sent since `last`; the next ACK may repeat it */
	u32 padding;
};

enum ack_verdict {
	ACK_PASS,      /* send it: it supersedes the stored one */
	ACK_PASS_BOTH, /* send it and the stored one, which has its own information */
	ACK_HOLD,      /* store it, in place of the one stored before */
};

/* Whether `ack` supersedes the earlier one. A repeated number is a duplicate or a window update, and a
 * window that closes or opens is new information, too. */
CC_INLINE int ack_supersedes(const struct ack_pure *ack, const struct ack_pure *earlier)
{
	return (s32)(ack->ack - earlier->ack) > 0 && !ack->window == !earlier->window;
}

/* Records that the latest ACK was sent. Returns whether one was stored. */
CC_INLINE int ack_passed(struct ack_flow *flow, u64 now_ns)
{
	int kept = flow->deadline != 0;

	flow->passed_ack = flow->last.ack;
	flow->passed_at = now_ns;
	flow->suppressed = 0;
	flow->deadline = 0;
	return kept;
}

/* The first ACK of a flow is sent. */
CC_INLINE void ack_begin(struct ack_flow *flow, u64 now_ns, const struct ack_pure *ack)
{
	*flow = (struct ack_flow){ .last = *ack };
	ack_passed(flow, now_ns);
}

/* Whether an ACK that supersedes the one before is sent anyway. */
CC_INLINE int ack_is_due(const struct ack_flow *flow, u64 now_ns, const struct ack_pure *ack,
			 const struct ack_limits *limits)
{
	return flow->suppressed + 1 >= limits->count_max ||
	       ack->ack - flow->passed_ack >= limits->covered_max ||
	       now_ns - flow->passed_at >= limits->hold_ns ||
	       (flow->deadline && flow->deadline <= now_ns);
}

/* Decides on a pure ACK of a flow that has begun. */
CC_INLINE enum ack_verdict ack_offer(struct ack_flow *flow, u64 now_ns, const struct ack_pure *ack,
				     const struct ack_limits *limits)
{
	int progress = ack_supersedes(ack, &flow->last) && !flow->interrupted;
	int due = ack_is_due(flow, now_ns, ack, limits);

	flow->last = *ack;
	flow->interrupted = 0;
	if (!progress)
		return ack_passed(flow, now_ns) ? ACK_PASS_BOTH : ACK_PASS;
	if (due) {
		ack_passed(flow, now_ns);
		return ACK_PASS;
	}
	flow->suppressed++;
	if (!flow->deadline)
		flow->deadline = now_ns + limits->hold_ns;
	return ACK_HOLD;
}

/* Another segment of the flow is sent: it acknowledges what the stored ACK does. Returns whether one was
 * stored. */
CC_INLINE int ack_flush(struct ack_flow *flow, u64 now_ns)
{
	flow->interrupted = 1;
	return ack_passed(flow, now_ns);
}

/* Whether the stored ACK must be sent now; if so it counts as sent. */
CC_INLINE int ack_release(struct ack_flow *flow, u64 now_ns)
{
	if (!flow->deadline || flow->deadline > now_ns)
		return 0;
	return ack_passed(flow, now_ns);
}

#endif
