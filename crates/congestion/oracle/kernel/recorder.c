// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes down what the TCP stack asks of a congestion control and what it answers.
 *
 * For each congestion control NAME below it registers rec_NAME, whose every operation calls NAME's own
 * and keeps a struct call: arguments, window before and after, private state. A socket that chooses
 * rec_NAME behaves as one with NAME does; the operations that NAME lacks are optional, and the stack
 * does nothing else for their being there. /proc/calls gives the calls so far.
 *
 * One recorded socket at a time: the socket's lock is what orders the calls.
 */
#include <linux/init.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/vmalloc.h>
#include <net/tcp.h>

#include "call.h"

/* Calls that are kept, 152 bytes each: 640 MB that are taken at boot; later ones are not. */
#define CAPACITY (1 << 22)

static struct call *calls;
static unsigned int recorded;
static u32 initial_sequence;

struct witness {
	struct tcp_congestion_ops ops;
	const struct tcp_congestion_ops *real;
	const char *name;
};

static const struct tcp_congestion_ops *real_ops(const struct sock *sk)
{
	return container_of(inet_csk(sk)->icsk_ca_ops, struct witness, ops)->real;
}

/* What is known before the call. Where there is no room, a scratch record takes it. */
static struct call *begin(struct sock *sk, enum call_kind kind)
{
	static struct call scratch;
	const struct tcp_sock *tp = tcp_sk(sk);
	struct call *call = recorded < CAPACITY ? &calls[recorded] : &scratch;

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

/* What is known after it. */
static void end(struct sock *sk, struct call *call)
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
	if (recorded < CAPACITY)
		recorded++;
}

static void witness_init(struct sock *sk)
{
	struct call *call = begin(sk, CALL_INIT);

	initial_sequence = tcp_sk(sk)->snd_una;
	if (real_ops(sk)->init)
		real_ops(sk)->init(sk);
	end(sk, call);
}

static void witness_release(struct sock *sk)
{
	struct call *call = begin(sk, CALL_RELEASE);

	if (real_ops(sk)->release)
		real_ops(sk)->release(sk);
	end(sk, call);
}

static u32 witness_ssthresh(struct sock *sk)
{
	struct call *call = begin(sk, CALL_SSTHRESH);

	call->arg = real_ops(sk)->ssthresh(sk);
	end(sk, call);
	return call->arg;
}

static void witness_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct call *call = begin(sk, CALL_CONG_AVOID);

	call->arg = acked;
	real_ops(sk)->cong_avoid(sk, ack, acked);
	end(sk, call);
}

static void witness_set_state(struct sock *sk, u8 new_state)
{
	struct call *call = begin(sk, CALL_SET_STATE);

	call->arg = new_state;
	if (real_ops(sk)->set_state)
		real_ops(sk)->set_state(sk, new_state);
	end(sk, call);
}

static void witness_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	struct call *call = begin(sk, CALL_CWND_EVENT);

	call->arg = event;
	if (real_ops(sk)->cwnd_event)
		real_ops(sk)->cwnd_event(sk, event);
	end(sk, call);
}

/* In Open an ACK leads to other calls; elsewhere it may be all that is to be seen of it. */
static void witness_in_ack_event(struct sock *sk, u32 flags)
{
	struct call *call = begin(sk, CALL_ACK);

	call->arg = flags;
	if (real_ops(sk)->in_ack_event)
		real_ops(sk)->in_ack_event(sk, flags);
	if (call->ca_state != TCP_CA_Open)
		end(sk, call);
}

static void witness_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	struct call *call = begin(sk, CALL_PKTS_ACKED);

	call->arg = sample->pkts_acked;
	call->rtt_us = sample->rtt_us;
	call->sample_in_flight = sample->in_flight;
	if (real_ops(sk)->pkts_acked)
		real_ops(sk)->pkts_acked(sk, sample);
	end(sk, call);
}

static u32 witness_undo_cwnd(struct sock *sk)
{
	struct call *call = begin(sk, CALL_UNDO);

	call->arg = real_ops(sk)->undo_cwnd(sk);
	end(sk, call);
	return call->arg;
}

static struct witness witnesses[] = {
	{ .name = "reno" },
	{ .name = "cubic" },
	{ .name = "bic" },
	{ .name = "highspeed" },
	{ .name = "scalable" },
	{ .name = "htcp" },
};

static int __init register_witness(struct witness *witness)
{
	struct tcp_congestion_ops *ops = &witness->ops;

	rcu_read_lock();
	witness->real = tcp_ca_find(witness->name);
	rcu_read_unlock();
	if (!witness->real || witness->real->cong_control) {
		pr_err("recorder: no congestion control %s of the kind that is recorded\n",
		       witness->name);
		return -ENOENT;
	}
	*ops = (struct tcp_congestion_ops) {
		.init = witness_init,
		.release = witness_release,
		.ssthresh = witness_ssthresh,
		.cong_avoid = witness_cong_avoid,
		.set_state = witness_set_state,
		.cwnd_event = witness_cwnd_event,
		.in_ack_event = witness_in_ack_event,
		.pkts_acked = witness_pkts_acked,
		.undo_cwnd = witness_undo_cwnd,
		.get_info = witness->real->get_info,
		.flags = witness->real->flags,
		.owner = THIS_MODULE,
	};
	snprintf(ops->name, sizeof(ops->name), "rec_%s", witness->name);
	return tcp_register_congestion_control(ops);
}

static ssize_t calls_read(struct file *file, char __user *to, size_t size, loff_t *offset)
{
	return simple_read_from_buffer(to, size, offset, calls, recorded * sizeof(*calls));
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
	for (i = 0; i < ARRAY_SIZE(witnesses); i++) {
		error = register_witness(&witnesses[i]);
		if (error)
			return error;
	}
	return 0;
}
/* After the congestion controls themselves, which are device_initcall()s. */
late_initcall(recorder_init);
