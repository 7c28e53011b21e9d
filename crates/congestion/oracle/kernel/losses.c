// SPDX-License-Identifier: GPL-2.0-only
/*
 * Losses that are the same in every run. Forwarded IPv4 packets that arrive on an interface lossy0 are
 * counted from 1 since boot; those with the ordinals in `at` are dropped. Of the pure ACKs without SACK
 * that leave there, only every `keep_one_ack_in`th passes.
 */
#include <linux/init.h>
#include <linux/ip.h>
#include <linux/module.h>
#include <linux/netfilter_ipv4.h>
#include <linux/tcp.h>
#include <net/net_namespace.h>

static unsigned int at[1024];
static unsigned int losses;
module_param_array(at, uint, &losses, 0644);
MODULE_PARM_DESC(at, "ordinals of the packets that are lost, ascending");

static unsigned int keep_one_ack_in = 1;
module_param(keep_one_ack_in, uint, 0644);
MODULE_PARM_DESC(keep_one_ack_in, "filtering of pure ACKs; 1 keeps all");

static unsigned int data_packets;
module_param(data_packets, uint, 0444);
MODULE_PARM_DESC(data_packets, "number of packets received on lossy0");

static bool is_lossy(const struct net_device *device)
{
	return !strcmp(device->name, "lossy0");
}

static bool should_drop(unsigned int ordinal)
{
	static unsigned int next;

	if (next >= losses || at[next] != ordinal)
		return false;
	next++;
	return true;
}

/* A packet with only the ACK flag and the timestamp option: 20 bytes of IPv4 and 32 of TCP. */
static bool is_pure_ack(const struct sk_buff *skb)
{
	const struct tcphdr *tcp = (const struct tcphdr *)(skb->data + sizeof(struct iphdr));

	return ip_hdr(skb)->protocol == IPPROTO_TCP && skb->len == 52 && tcp->doff == 8 &&
	       (tcp_flag_word(tcp) & htonl(0x00ff0000)) == TCP_FLAG_ACK;
}

static unsigned int drop_packet(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	static unsigned int acks;

	if (is_lossy(state->in))
		return should_drop(++data_packets) ? NF_DROP : NF_ACCEPT;
	if (is_lossy(state->out) && is_pure_ack(skb))
		return ++acks % keep_one_ack_in ? NF_DROP : NF_ACCEPT;
	return NF_ACCEPT;
}

static const struct nf_hook_ops hook = {
	.hook = drop_packet,
	.pf = NFPROTO_IPV4,
	.hooknum = NF_INET_FORWARD,
	.priority = NF_IP_PRI_FIRST,
};

static int __net_init register_hook(struct net *net)
{
	return nf_register_net_hook(net, &hook);
}

static void __net_exit unregister_hook(struct net *net)
{
	nf_unregister_net_hook(net, &hook);
}

static struct pernet_operations namespaces = {
	.init = register_hook,
	.exit = unregister_hook,
};

static int __init losses_init(void)
{
	return register_pernet_subsys(&namespaces);
}
late_initcall(losses_init);
