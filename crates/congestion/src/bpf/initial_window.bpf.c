/* SPDX-License-Identifier: GPL-2.0-only */
/* Gives a TCP connection the initial window that is put down beside its socket, or beside the listener
 * that accepted it, and has its SYN offer ECN if that is put down, too. Other sockets are left alone.
 *
 * A connection that stays silent at first loses its window again, half of it each retransmission
 * time-out (RFC 2861, tcp_cwnd_restart in net/ipv4/tcp_output.c, at its first data). So the window is
 * set anew right before each segment until data has left. Later the kernel lets nobody set it
 * (net/core/filter.c, bpf_sol_tcp_setsockopt). */
#include "contexts.h"

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

/* Segments by socket, 0 for the kernel's choice, and whether ECN is offered. Accepted sockets have their
 * listener's. 4 B a socket. */
#define OFFERS_ECN (1u << 31)

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, u32);
} windows SEC(".maps");

static inline void set_window(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	u32 *written, segments;

	if (!sk)
		return;
	written = bpf_sk_storage_get(&windows, sk, 0, 0);
	segments = written ? *written & ~OFFERS_ECN : 0;
	if (!segments)
		return;
	bpf_setsockopt(ctx, SOL_TCP, TCP_BPF_IW, &segments, sizeof(segments));
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

static inline void segment_leaves(struct bpf_sock_ops *ctx)
{
	u32 flags = ctx->bpf_sock_ops_cb_flags;

	if (ctx->data_segs_out)
		bpf_sock_ops_cb_flags_set(ctx, flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	else
		set_window(ctx);
}

/* net/ipv4/tcp_output.c, tcp_ecn_send_syn. */
static inline void answer_whether_ecn(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	u32 *written = sk ? bpf_sk_storage_get(&windows, sk, 0, 0) : 0;

	if (written && *written & OFFERS_ECN)
		ctx->args[0] = 1; /* the reply, by its other name */
}

SEC("sockops")
int set_initial_window(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		set_window(ctx);
		break;
	case BPF_SOCK_OPS_NEEDS_ECN:
		answer_whether_ecn(ctx);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		segment_leaves(ctx);
		break;
	}
	return 1;
}
