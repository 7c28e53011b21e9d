/* SPDX-License-Identifier: GPL-2.0-only */
/* Gives the TCP sockets of a cgroup a profile, at three events of each:
 *
 *   before it connects or listens   settings needed before the handshake; accepted sockets inherit them
 *   when it is established          settings that need its segment size, or are not inherited
 *   when it begins to close         no settings: its traffic is counted
 *
 * A setting that the kernel refuses is counted with its error; the socket continues without it. */
#include "connections.h"
#include "contexts.h"

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

#define INLINE static inline __attribute__((always_inline))

/* Zero (-1 for tos): the kernel's default. Set before loading, so that the verifier removes the code of
 * unused settings. src/sockets/profile.rs has the same members. */
struct profile {
	u64 gap_ns;
	u64 cwnd_cap_bytes;
	u32 pacing_bytes_per_s;
	u32 initial_window;
	u32 notsent_lowat;
	u32 keepalive_s;
	u32 user_timeout_ms;
	u32 mss;
	s32 tos;
	u32 send_buffer;
	u32 receive_buffer;
	struct lh_connection own;
	char congestion_control[16];
};

const volatile struct profile profile = { .tos = -1 };

enum option {
	CONGESTION_CONTROL,
	PARAMETERS,
	PACING,
	CWND_CAP,
	INITIAL_WINDOW,
	KEEPALIVE,
	USER_TIMEOUT,
	NOTSENT_LOWAT,
	MSS,
	DSCP,
	SEND_BUFFER,
	RECEIVE_BUFFER,
	OPTIONS,
};

/* All sums. src/sockets/profile.rs has the same members. */
struct counts {
	u64 connected;
	u64 accepted;
	u64 listening;
	u64 closed;
	u64 bytes_acked;
	u64 bytes_received;
	u64 segments_out;
	u64 retransmitted;
	/* Number of refusals of each setting. */
	u64 refused[OPTIONS];
	/* Last error of each setting. */
	s64 error[OPTIONS];
};

struct counts counts;

/* Part of each connection that is in the counts already. 24 B a connection. */
struct seen {
	u64 bytes_acked;
	u64 bytes_received;
	u32 segments_out;
	u32 retransmitted;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct seen);
} accounts SEC(".maps");

/* Notifies user space when a socket is about to connect or to be bound. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} doorbell SEC(".maps");

INLINE void count(u64 *counter, u64 more) { __sync_fetch_and_add(counter, more); }

INLINE void count_refusal(enum option option, long outcome)
{
	if (!outcome)
		return;
	count(&counts.refused[option], 1);
	counts.error[option] = outcome;
}

INLINE long set(struct bpf_sock_ops *ctx, int level, int name, u32 value)
{
	return bpf_setsockopt(ctx, level, name, &value, sizeof(value));
}

INLINE long keep_alive(struct bpf_sock_ops *ctx)
{
	/* As in the relay: four probes, at a quarter of the idle time. */
	const u32 probes = 4;
	u32 interval = profile.keepalive_s / probes;

	return set(ctx, SOL_SOCKET, SO_KEEPALIVE, 1) ?:
	       set(ctx, SOL_TCP, TCP_KEEPIDLE, profile.keepalive_s) ?:
	       set(ctx, SOL_TCP, TCP_KEEPINTVL, interval ? interval : 1) ?:
	       set(ctx, SOL_TCP, TCP_KEEPCNT, probes);
}

INLINE long set_parameters(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct lh_connection *own;

	if (!sk)
		return -1;
	own = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!own)
		return -1;
	own->given = profile.own.given;
	for (int i = 0; i < OWN_MAX; i++)
		own->params[i] = profile.own.params[i];
	return 0;
}

INLINE long set_congestion_control(struct bpf_sock_ops *ctx)
{
	char name[sizeof(profile.congestion_control)];

	for (u32 i = 0; i < sizeof(name); i++)
		name[i] = profile.congestion_control[i];
	return bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, name, sizeof(name));
}

INLINE long set_tos(struct bpf_sock_ops *ctx)
{
	if (ctx->family == AF_INET6)
		return set(ctx, SOL_IPV6, IPV6_TCLASS, profile.tos);
	return set(ctx, SOL_IP, IP_TOS, profile.tos);
}

INLINE void set_before_handshake(struct bpf_sock_ops *ctx)
{
	if (profile.own.given)
		count_refusal(PARAMETERS, set_parameters(ctx));
	if (profile.congestion_control[0])
		count_refusal(CONGESTION_CONTROL, set_congestion_control(ctx));
	if (profile.pacing_bytes_per_s)
		count_refusal(PACING, set(ctx, SOL_SOCKET, SO_MAX_PACING_RATE, profile.pacing_bytes_per_s));
	if (profile.notsent_lowat)
		count_refusal(NOTSENT_LOWAT, set(ctx, SOL_TCP, TCP_NOTSENT_LOWAT, profile.notsent_lowat));
	if (profile.keepalive_s)
		count_refusal(KEEPALIVE, keep_alive(ctx));
	if (profile.user_timeout_ms)
		count_refusal(USER_TIMEOUT, set(ctx, SOL_TCP, TCP_USER_TIMEOUT, profile.user_timeout_ms));
	if (profile.mss)
		count_refusal(MSS, set(ctx, SOL_TCP, TCP_MAXSEG, profile.mss));
	if (profile.tos >= 0)
		count_refusal(DSCP, set_tos(ctx));
	if (profile.send_buffer)
		count_refusal(SEND_BUFFER, set(ctx, SOL_SOCKET, SO_SNDBUF, profile.send_buffer));
	if (profile.receive_buffer)
		count_refusal(RECEIVE_BUFFER, set(ctx, SOL_SOCKET, SO_RCVBUF, profile.receive_buffer));
}

/* TCP paces payload (tcp_update_skb_after_send, net/ipv4/tcp_output.c), so a full segment every gap_ns
 * is this rate. ~0 would be no limit. */
INLINE u32 rate_of_gap(u32 mss)
{
	u64 rate = (u64)mss * 1000000000 / profile.gap_ns;

	return rate < 1 ? 1 : rate < 0xfffffffe ? rate : 0xfffffffe;
}

INLINE u32 segments_of_cap(u32 mss)
{
	u64 segments = profile.cwnd_cap_bytes / mss;

	return segments < 2 ? 2 : segments < 0x7fffffff ? segments : 0x7fffffff;
}

INLINE void request_events(struct bpf_sock_ops *ctx, u32 flags)
{
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | flags);
}

/* The requested window, else the kernel's default; never above the cap. */
INLINE u32 first_window(struct bpf_sock_ops *ctx)
{
	u32 window = profile.initial_window ? profile.initial_window : ctx->snd_cwnd;
	u32 mss = ctx->mss_cache;

	if (profile.cwnd_cap_bytes && mss && window > segments_of_cap(mss))
		return segments_of_cap(mss);
	return window;
}

INLINE void set_first_window(struct bpf_sock_ops *ctx)
{
	u32 window = first_window(ctx);

	if (window != ctx->snd_cwnd)
		count_refusal(INITIAL_WINDOW, set(ctx, SOL_TCP, TCP_BPF_IW, window));
	if (profile.initial_window)
		request_events(ctx, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

/* The first pacing rate follows from the window at the SYN's acknowledgement, before the connection
 * is established: with the kernel's own, a larger initial window would be sent at a tenth of its rate. */
INLINE void set_window_before_syn_ack(struct bpf_sock_ops *ctx)
{
	if (profile.initial_window)
		set(ctx, SOL_TCP, TCP_BPF_IW, profile.initial_window);
}

INLINE void on_established(struct bpf_sock_ops *ctx)
{
	u32 mss = ctx->mss_cache;

	/* This also sets ssthresh, to the window where slow start would end anyway. */
	if (profile.cwnd_cap_bytes && mss)
		count_refusal(CWND_CAP, set(ctx, SOL_TCP, TCP_BPF_SNDCWND_CLAMP, segments_of_cap(mss)));
	if (profile.gap_ns && mss)
		count_refusal(PACING, set(ctx, SOL_SOCKET, SO_MAX_PACING_RATE, rate_of_gap(mss)));
	if (profile.initial_window || profile.cwnd_cap_bytes)
		set_first_window(ctx);
	request_events(ctx, BPF_SOCK_OPS_STATE_CB_FLAG);
}

/* Idle time reduces an unused window (RFC 2861), so it is set again until data has been sent. */
INLINE void on_segment_sent(struct bpf_sock_ops *ctx)
{
	u32 flags = ctx->bpf_sock_ops_cb_flags;

	if (!profile.initial_window)
		return;
	if (ctx->data_segs_out)
		bpf_sock_ops_cb_flags_set(ctx, flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	else
		set(ctx, SOL_TCP, TCP_BPF_IW, first_window(ctx));
}

/* Adds the increase since the last call. It is called at each change of state, since connections of a
 * program that has ended close without this program. */
INLINE void count_traffic(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct seen *seen;

	if (!sk)
		return;
	seen = bpf_sk_storage_get(&accounts, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!seen)
		return;
	count(&counts.bytes_acked, ctx->bytes_acked - seen->bytes_acked);
	count(&counts.bytes_received, ctx->bytes_received - seen->bytes_received);
	count(&counts.segments_out, (u32)(ctx->segs_out - seen->segments_out));
	count(&counts.retransmitted, (u32)(ctx->total_retrans - seen->retransmitted));
	seen->bytes_acked = ctx->bytes_acked;
	seen->bytes_received = ctx->bytes_received;
	seen->segments_out = ctx->segs_out;
	seen->retransmitted = ctx->total_retrans;
}

INLINE void on_state_change(struct bpf_sock_ops *ctx)
{
	count_traffic(ctx);
	if (ctx->args[1] == TCP_CLOSE)
		count(&counts.closed, 1);
}

SEC("sockops")
int profile_sockets(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		count(&counts.listening, 1);
		set_before_handshake(ctx);
		break;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		set_before_handshake(ctx);
		set_window_before_syn_ack(ctx);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		count(&counts.connected, 1);
		on_established(ctx);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		count(&counts.accepted, 1);
		on_established(ctx);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		on_segment_sent(ctx);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		on_state_change(ctx);
		break;
	}
	return 1;
}

INLINE int notify(u32 type)
{
	u32 event = 1;

	if (type == SOCK_STREAM)
		bpf_ringbuf_output(&doorbell, &event, sizeof(event), 0);
	return 1;
}

SEC("cgroup/connect4")
int profile_connect4(struct bpf_sock_addr *ctx) { return notify(ctx->type); }

SEC("cgroup/connect6")
int profile_connect6(struct bpf_sock_addr *ctx) { return notify(ctx->type); }

SEC("cgroup/post_bind4")
int profile_bind4(struct bpf_sock *ctx) { return notify(ctx->type); }

SEC("cgroup/post_bind6")
int profile_bind6(struct bpf_sock *ctx) { return notify(ctx->type); }
