// SPDX-License-Identifier: GPL-2.0-only
/* eBPF programs that only call the kernel's cubic, so that kernel.bpf_stats_enabled measures it as it
 * measures longhaul's controls. */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

extern void cubictcp_init(struct sock *sk) __ksym;
extern u32 cubictcp_recalc_ssthresh(struct sock *sk) __ksym;
extern void cubictcp_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym;
extern void cubictcp_state(struct sock *sk, u8 new_state) __ksym;
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

SEC("struct_ops/cubic_by_call_init")
void BPF_PROG(cubic_by_call_init, struct sock *sk) { cubictcp_init(sk); }

SEC("struct_ops/cubic_by_call_ssthresh")
u32 BPF_PROG(cubic_by_call_ssthresh, struct sock *sk) { return cubictcp_recalc_ssthresh(sk); }

SEC("struct_ops/cubic_by_call_cong_avoid")
void BPF_PROG(cubic_by_call_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	cubictcp_cong_avoid(sk, ack, acked);
}

SEC("struct_ops/cubic_by_call_set_state")
void BPF_PROG(cubic_by_call_set_state, struct sock *sk, u8 state) { cubictcp_state(sk, state); }

SEC("struct_ops/cubic_by_call_pkts_acked")
void BPF_PROG(cubic_by_call_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	cubictcp_acked(sk, sample);
}

SEC("struct_ops/cubic_by_call_undo_cwnd")
u32 BPF_PROG(cubic_by_call_undo_cwnd, struct sock *sk) { return tcp_reno_undo_cwnd(sk); }

SEC(".struct_ops")
struct tcp_congestion_ops cubic_by_call = {
	.init = (void *)cubic_by_call_init,
	.ssthresh = (void *)cubic_by_call_ssthresh,
	.cong_avoid = (void *)cubic_by_call_cong_avoid,
	.set_state = (void *)cubic_by_call_set_state,
	.pkts_acked = (void *)cubic_by_call_pkts_acked,
	.undo_cwnd = (void *)cubic_by_call_undo_cwnd,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "cubic_by_call",
};
