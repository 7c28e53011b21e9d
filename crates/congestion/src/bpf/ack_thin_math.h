/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* ACK thinning at the receiver: which pure ACK may stay behind because a later one says all that it
 * says. Plain C: it becomes a BPF program at the egress of a host's sockets and a library under
 * simulated time.
 *
 * Kept behind is always the latest ACK of a flow; each later one takes its place. It goes when
 * `count_max` ACKs came or `covered_max` bytes are newly covered since the last that went, and by
 * itself `hold_ns` after the first was kept, so that the last ACK of a burst is late but never lost.
 * What is not a pure ACK goes at once. The rules are those of `longhaul link`
 * (model::link::ack::Thinner); tests/ack_thin.rs holds the two together.
 *
 * Source: RFC 3449 §5.2.1 (ACK filtering) and §5.2.2; serial numbers as RFC 9293 §3.4. */
#ifndef LH_ACK_THIN_MATH_H
#define LH_ACK_THIN_MATH_H

#include "cc.h"

/* How far thinning may go. */
struct ack_limits {
	u64 hold_ns;	 /* the longest that an ACK is kept */
	u32 count_max;	 /* of so many ACKs the last goes; 1: all go */
	u32 covered_max; /* bytes; an ACK that newly covers as much goes */
};

/* A TCP segment with no payload, no flag but ACK, no option but timestamps. */
struct ack_pure {
	u32 ack;
	u16 window; /* as in the header, unscaled */
	u16 padding;
};

/* What is known of a flow, in one direction. */
struct ack_flow {
	u64 passed_at;
	u64 deadline; /* when what is kept must go; 0: nothing is kept */
	struct ack_pure last;
	u32 passed_ack;
	u32 suppressed;	 /* since the last that went */
	u32 interrupted; /* something else went since `last`, which the next ACK may repeat */
	u32 padding;
};

enum ack_verdict {
	ACK_PASS,      /* it goes, and says all that the kept one said */
	ACK_PASS_BOTH, /* it goes, and the kept one said something of its own */
	ACK_HOLD,      /* it is kept, in place of the one kept before */
};

/* Whether `ack` says all that the earlier one said. A repeated number is a duplicate or a window
 * update, and a window that closes or opens is news too. */
CC_INLINE int ack_supersedes(const struct ack_pure *ack, const struct ack_pure *earlier)
{
	return (s32)(ack->ack - earlier->ack) > 0 && !ack->window == !earlier->window;
}

/* Notes that the latest ACK went. Returns whether one was kept. */
CC_INLINE int ack_passed(struct ack_flow *flow, u64 now_ns)
{
	int kept = flow->deadline != 0;

	flow->passed_ack = flow->last.ack;
	flow->passed_at = now_ns;
	flow->suppressed = 0;
	flow->deadline = 0;
	return kept;
}

/* The first ACK of a flow goes. */
CC_INLINE void ack_begin(struct ack_flow *flow, u64 now_ns, const struct ack_pure *ack)
{
	*flow = (struct ack_flow){ .last = *ack };
	ack_passed(flow, now_ns);
}

/* Whether an ACK that supersedes the one before goes anyway. */
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

/* Another segment of the flow goes: it acknowledges what the kept ACK does. Returns whether one was
 * kept. */
CC_INLINE int ack_flush(struct ack_flow *flow, u64 now_ns)
{
	flow->interrupted = 1;
	return ack_passed(flow, now_ns);
}

/* Whether what is kept must go by itself now; then it counts as gone. */
CC_INLINE int ack_release(struct ack_flow *flow, u64 now_ns)
{
	if (!flow->deadline || flow->deadline > now_ns)
		return 0;
	return ack_passed(flow, now_ns);
}

#endif
