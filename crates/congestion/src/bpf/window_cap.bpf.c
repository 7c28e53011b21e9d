// SPDX-License-Identifier: GPL-2.0-only
/* Caps congestion windows of other programs' connections, for `longhaul decp`.
 *
 * Reading the iterator walks every TCP socket of the reader's network namespace, each under its lock,
 * and executes the orders that user space has stored by socket cookie. No program stays attached: a cap
 * is the socket's own snd_cwnd_clamp.
 *
 * The only way to set snd_cwnd_clamp, TCP_BPF_SNDCWND_CLAMP, sets snd_ssthresh to the same value
 * (net/core/filter.c, bpf_sol_tcp_setsockopt). This limits the possible changes:
 *
 * - Lowering the window: ssthresh = cap < cwnd, so congestion avoidance continues, and the next ACK
 *   reduces cwnd (tcp_cong_avoid_ai), if cwnd limits the sender: one with less data than its window
 *   keeps the wide window until the first flight that fills it.
 * - Ending slow start: ssthresh = cap, where the window, still below, would have grown further.
 * - Raising a cap that binds (cwnd at the clamp): ssthresh = the new cap, so slow start fills the
 *   difference within a round trip and ends at the cap.
 * - Raising one that does not bind would undo the reduction after a loss by slow start: it is left
 *   unchanged, unless that is ordered (`fill`).
 * - Lifting would set ssthresh to infinity, unlimited slow start. Only a congestion control can write
 *   ssthresh: briefly, under the same lock, the socket uses `longhaul_settle`, whose init restores the
 *   old ssthresh, and then its own again, which starts from its present window. BBR does not use
 *   ssthresh, so this is skipped.
 * - In recovery ssthresh is the window at its end: orders wait until recovery is over. */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

#define IPPROTO_TCP 6
#define TCP_CONGESTION 13
#define TCP_BPF_SNDCWND_CLAMP 1002
#define TCP_CA_NAME_MAX 16
/* Largest value of the option; in effect the kernel's own ~0. */
#define UNLIMITED 0x7fffffff
/* Below this a clamp is a cap: HighSpeed TCP sets 0xffffffff/128 for itself. */
#define CAPPED_BELOW 0x01000000
#define KEEP 0xffffffff

struct order {
	/* Segments; 0 lifts, KEEP only reads. */
	u32 cap;
	/* snd_cwnd_clamp after the walk, 0 where it is no cap; unchanged if the socket does not
	 * exist. */
	u32 in_force;
	/* Grow up to the cap by slow start, whatever the window is. */
	u32 fill;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct order);
} orders SEC(".maps");

/* The ssthresh to restore on a socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} settled SEC(".maps");

/* Name of the congestion control below, unique in this kernel: user space adds its process ID. */
char settle_name[TCP_CA_NAME_MAX] = "lh_settle";

extern u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

SEC("struct_ops")
void BPF_PROG(settle_init, struct sock *sk)
{
	u32 *ssthresh = bpf_sk_storage_get(&settled, sk, 0, 0);

	if (ssthresh)
		((struct tcp_sock *)sk)->snd_ssthresh = *ssthresh;
}

/* Reno, for a socket whose own congestion control has been unloaded meanwhile. */
SEC("struct_ops")
u32 BPF_PROG(settle_ssthresh, struct sock *sk) { return tcp_reno_ssthresh(sk); }

SEC("struct_ops")
void BPF_PROG(settle_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SEC("struct_ops")
u32 BPF_PROG(settle_undo_cwnd, struct sock *sk) { return tcp_reno_undo_cwnd(sk); }

SEC(".struct_ops.link")
struct tcp_congestion_ops longhaul_settle = {
	.init = (void *)settle_init,
	.ssthresh = (void *)settle_ssthresh,
	.cong_avoid = (void *)settle_cong_avoid,
	.undo_cwnd = (void *)settle_undo_cwnd,
	.name = "lh_settle",
};

static long clamp_to(struct tcp_sock *tp, int segments)
{
	return bpf_setsockopt(tp, IPPROTO_TCP, TCP_BPF_SNDCWND_CLAMP, &segments, sizeof(segments));
}

static void restore_ssthresh(struct tcp_sock *tp, u32 ssthresh)
{
	char name[TCP_CA_NAME_MAX] = {};
	u32 *storage;

	if (bpf_getsockopt(tp, IPPROTO_TCP, TCP_CONGESTION, name, sizeof(name)))
		return;
	if (name[0] == 'b' && name[1] == 'b' && name[2] == 'r')
		return;
	storage = bpf_sk_storage_get(&settled, tp, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!storage)
		return;
	*storage = ssthresh;
	if (!bpf_setsockopt(tp, IPPROTO_TCP, TCP_CONGESTION, settle_name, sizeof(settle_name)))
		bpf_setsockopt(tp, IPPROTO_TCP, TCP_CONGESTION, name, sizeof(name));
	bpf_sk_storage_delete(&settled, tp);
}

static void lift(struct tcp_sock *tp)
{
	u32 ssthresh = tp->snd_ssthresh;

	if (tp->snd_cwnd_clamp < CAPPED_BELOW && !clamp_to(tp, UNLIMITED))
		restore_ssthresh(tp, ssthresh);
}

static void cap(struct tcp_sock *tp, u32 segments, u32 fill)
{
	u32 cwnd = tp->snd_cwnd, ssthresh = tp->snd_ssthresh, clamp = tp->snd_cwnd_clamp;
	int slow_start = cwnd < ssthresh;
	int lowers = segments < cwnd || (slow_start && segments < ssthresh);
	int raises = clamp < segments && cwnd >= clamp;
	int fills = fill && cwnd < segments && ssthresh < segments;

	if (fills || (segments != clamp && (lowers || raises)))
		clamp_to(tp, segments);
}

SEC("iter/tcp")
int carry_out(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tp;
	struct order *order;
	u64 cookie;

	if (!common)
		return 0;
	tp = bpf_skc_to_tcp_sock(common);
	if (!tp)
		return 0;
	cookie = bpf_get_socket_cookie(tp);
	order = bpf_map_lookup_elem(&orders, &cookie);
	if (!order)
		return 0;
	if (order->cap != KEEP &&
	    BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state) <= TCP_CA_Disorder) {
		if (order->cap) {
			cap(tp, order->cap, order->fill);
			order->fill = 0;
		} else {
			lift(tp);
		}
	}
	order->in_force = tp->snd_cwnd_clamp < CAPPED_BELOW ? tp->snd_cwnd_clamp : 0;
	return 0;
}
