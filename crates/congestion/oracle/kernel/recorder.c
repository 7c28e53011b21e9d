// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records the calls of the TCP stack to a congestion control, and the results.
 *
 * For each congestion control NAME below it registers rec_NAME. Each operation of rec_NAME calls NAME's
 * own and keeps a struct call: arguments, window before and after, private state. A socket with rec_NAME
 * behaves as one with NAME: operations that NAME lacks are optional, and their presence changes nothing.
 * /proc/calls has the calls so far.
 *
 * Only one socket may be recorded at a time, because the socket's lock orders the calls.
 */
#include <linux/init.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/vmalloc.h>
#include <net/tcp.h>

#include "call.h"

/* The limit of recorded calls, 152 bytes each: 640 MB, allocated at boot. Later calls are not recorded. */
#define CAPACITY (1 << 22)

static struct call *calls;
static unsigned int call_count;
static u32 initial_sequence;

struct recorder {
	struct tcp_congestion_ops ops;
	const struct tcp_congestion_ops *real;
	const char *name;
};

static const struct tcp_congestion_ops *real_ops(const struct sock *sk)
{
	return container_of(inet_csk(sk)->icsk_ca_ops, struct recorder, ops)->real;
}

/* Records the state before a call, into a scratch record if the limit is reached. */
static struct call *begin_call(struct sock *sk, enum call_kind kind)
{
	static struct call scratch;
	const struct tcp_sock *tp = tcp_sk(sk);
	struct call *call = call_count < CAPACITY ? &calls[call_count] : &scratch;

	*call = (struct call) {
		.time_ns = ktime_get_ns(),
		.jiffies = tcp_jiffies32,
		.kind = kind,
		.ca_state = inet_csk(sk)->icsk_ca_state,
		.cwnd_limited = tcp_is_cwnd_limited(sk),
		.rtt_us = -1,
		.cwnd_before = tcp_snd_cwnd(tp),
		.cnt_before = tp->snd_cwnd_cnt,
		.ssthresh_before = tp->snd_ssthresh,
	};
	return call;
}

/* Records the state after a call. */
static void end_call(struct sock *sk, struct call *call)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	call->cwnd = tcp_snd_cwnd(tp);
	call->cnt = tp->snd_cwnd_cnt;
	call->ssthresh = tp->snd_ssthresh;
	call->srtt_us = tp->srtt_us >> 3;
	call->packets_out = tp->packets_out;
	call->sacked_out = tp->sacked_out;
	call->lost_out = tp->lost_out;
	call->retrans_out = tp->retrans_out;
	call->delivered = tp->delivered;
	call->una = tp->snd_una - initial_sequence;
	call->nxt = tp->snd_nxt - initial_sequence;
	call->total_retrans = tp->total_retrans;
	memcpy(call->private, inet_csk_ca(sk), sizeof(call->private));
	if (call_count < CAPACITY)
		call_count++;
}

static void record_init(struct sock *sk)
{
	struct call *call = begin_call(sk, CALL_INIT);

	initial_sequence = tcp_sk(sk)->snd_una;
	if (real_ops(sk)->init)
		real_ops(sk)->init(sk);
	end_call(sk, call);
}

static void record_release(struct sock *sk)
{
	struct call *call = begin_call(sk, CALL_RELEASE);

	if (real_ops(sk)->release)
		real_ops(sk)->release(sk);
	end_call(sk, call);
}

static u32 record_ssthresh(struct sock *sk)
{
	struct call *call = begin_call(sk, CALL_SSTHRESH);

	call->arg = real_ops(sk)->ssthresh(sk);
	end_call(sk, call);
	return call->arg;
}

static void record_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct call *call = begin_call(sk, CALL_CONG_AVOID);

	call->arg = acked;
	real_ops(sk)->cong_avoid(sk, ack, acked);
	end_call(sk, call);
}

static void record_set_state(struct sock *sk, u8 new_state)
{
	struct call *call = begin_call(sk, CALL_SET_STATE);

	call->arg = new_state;
	if (real_ops(sk)->set_state)
		real_ops(sk)->set_state(sk, new_state);
	end_call(sk, call);
}

static void record_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	struct call *call = begin_call(sk, CALL_CWND_EVENT);

	call->arg = event;
	if (real_ops(sk)->cwnd_event)
		real_ops(sk)->cwnd_event(sk, event);
	end_call(sk, call);
}

/* In Open an ACK causes other calls, too. In other states this may be its only call, so it is recorded. */
static void record_in_ack_event(struct sock *sk, u32 flags)
{
	struct call *call = begin_call(sk, CALL_ACK);

	call->arg = flags;
	if (real_ops(sk)->in_ack_event)
		real_ops(sk)->in_ack_event(sk, flags);
	if (call->ca_state != TCP_CA_Open)
		end_call(sk, call);
}

static void record_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	struct call *call = begin_call(sk, CALL_PKTS_ACKED);

	call->arg = sample->pkts_acked;
	call->rtt_us = sample->rtt_us;
	call->sample_in_flight = sample->in_flight;
	if (real_ops(sk)->pkts_acked)
		real_ops(sk)->pkts_acked(sk, sample);
	end_call(sk, call);
}

static u32 record_undo_cwnd(struct sock *sk)
{
	struct call *call = begin_call(sk, CALL_UNDO);

	call->arg = real_ops(sk)->undo_cwnd(sk);
	end_call(sk, call);
	return call->arg;
}

static struct recorder recorders[] = {
	{ .name = "reno" },
	{ .name = "cubic" },
	{ .name = "bic" },
	{ .name = "highspeed" },
	{ .name = "scalable" },
	{ .name = "htcp" },
};

static int __init register_recorder(struct recorder *recorder)
{
	struct tcp_congestion_ops *ops = &recorder->ops;

	rcu_read_lock();
	recorder->real = tcp_ca_find(recorder->name);
	rcu_read_unlock();
	if (!recorder->real || recorder->real->cong_control) {
		pr_err("recorder: no congestion control %s, or one with cong_control\n",
		       recorder->name);
		return -ENOENT;
	}
	*ops = (struct tcp_congestion_ops) {
		.init = record_init,
		.release = record_release,
		.ssthresh = record_ssthresh,
		.cong_avoid = record_cong_avoid,
		.set_state = record_set_state,
		.cwnd_event = record_cwnd_event,
		.in_ack_event = record_in_ack_event,
		.pkts_acked = record_pkts_acked,
		.undo_cwnd = record_undo_cwnd,
		.get_info = recorder->real->get_info,
		.flags = recorder->real->flags,
		.owner = THIS_MODULE,
	};
	snprintf(ops->name, sizeof(ops->name), "rec_%s", recorder->name);
	return tcp_register_congestion_control(ops);
}

static ssize_t calls_read(struct file *file, char __user *to, size_t size, loff_t *offset)
{
	return simple_read_from_buffer(to, size, offset, calls, call_count * sizeof(*calls));
}

static const struct proc_ops calls_ops = {
	.proc_read = calls_read,
	.proc_lseek = default_llseek,
};

static int __init recorder_init(void)
{
	int i, error;

	calls = vzalloc(array_size(CAPACITY, sizeof(*calls)));
	if (!calls || !proc_create("calls", 0444, NULL, &calls_ops))
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(recorders); i++) {
		error = register_recorder(&recorders[i]);
		if (error)
			return error;
	}
	return 0;
}
/* Runs after the congestion controls' own device_initcall()s. */
late_initcall(recorder_init);
