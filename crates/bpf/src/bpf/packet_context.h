/* SPDX-License-Identifier: GPL-2.0-only */
/* A packet as programs at a cgroup's egress see it (include/uapi/linux/bpf.h: stable offsets, the
 * names of what we use). */
#ifndef LH_PACKET_CONTEXT_H
#define LH_PACKET_CONTEXT_H

struct bpf_sock;

struct __sk_buff {
	u32 len;
	u32 until_priority[7];
	u32 priority;
	u32 until_sk[33];
	struct bpf_sock *sk;
};

_Static_assert(__builtin_offsetof(struct __sk_buff, priority) == 32, "include/uapi/linux/bpf.h");
_Static_assert(__builtin_offsetof(struct __sk_buff, sk) == 168, "include/uapi/linux/bpf.h");

enum {
	PACKET_STAYS = 0, /* with -EPERM to whoever sends */
	PACKET_GOES = 1,
};

#define CLOCK_MONOTONIC 1

struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_spin_lock {
	u32 val;
};

#endif
