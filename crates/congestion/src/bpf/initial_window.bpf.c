/* SPDX-License-Identifier: GPL-2.0-only */
/* Sets a TCP connection's initial window from the storage of its socket, or of the listener that
 * accepted it, and makes its SYN offer ECN if the storage says so. Other sockets are unchanged.
 *
 * An idle new connection loses its window, half of it each retransmission time-out (RFC 2861,
 * tcp_cwnd_restart in net/ipv4/tcp_output.c, at its first data). So the window is set again before each
 * segment until data has been sent. Later the kernel does not allow it (net/core/filter.c,
 * bpf_sol_tcp_setsockopt). */
#include "contexts.h"

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

/* Segments of each socket, 0 for the kernel's default, and whether ECN is offered. Accepted sockets have
 * their listener's. 4 B a socket. */
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
	u32 *setting, segments;

	if (!sk)
		return;
	setting = bpf_sk_storage_get(&windows, sk, 0, 0);
	segments = setting ? *setting & ~OFFERS_ECN : 0;
	if (!segments)
		return;
	bpf_setsockopt(ctx, SOL_TCP, TCP_BPF_IW, &segments, sizeof(segments));
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

static inline void on_segment_sent(struct bpf_sock_ops *ctx)
{
	u32 flags = ctx->bpf_sock_ops_cb_flags;

	if (ctx->data_segs_out)
		bpf_sock_ops_cb_flags_set(ctx, flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	else
		set_window(ctx);
}

/* net/ipv4/tcp_output.c, tcp_ecn_send_syn. */
static inline void reply_ecn(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	u32 *setting = sk ? bpf_sk_storage_get(&windows, sk, 0, 0) : 0;

	if (setting && *setting & OFFERS_ECN)
		ctx->args[0] = 1; /* the reply (a union member) */
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
		reply_ecn(ctx);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		on_segment_sent(ctx);
		break;
	}
	return 1;
}
