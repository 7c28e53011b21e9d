// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Table of every congestion control's arithmetic for the host, which src/math/mod.rs calls.
#include "../bpf/algorithms.h"

struct cc_parameter {
	const char *name, *unit, *about;
	u32 initial, least, most;
};

struct cc_field {
	const char *name, *unit, *about;
	u32 divisor;
};

struct cc_algorithm {
	const char *name;
	const struct cc_parameter *parameters; /* the last has no name */
	const struct cc_field *fields;	       /* the last has no name */
	void (*read)(const void *ca, s64 *values);
	void (*init)(void *ca, struct cc_connection *c);
	u32 (*ssthresh)(void *ca, const struct cc_connection *c);
	void (*cong_avoid)(void *ca, struct cc_connection *c, u32 acked);
	void (*pkts_acked)(void *ca, const struct cc_connection *c, const struct cc_sample *sample);
	void (*set_state)(void *ca, const struct cc_connection *c, u8 state);
	u32 (*undo_cwnd)(void *ca, const struct cc_connection *c);
	u64 (*pacing_rate)(const void *ca, const struct cc_connection *c); /* bytes/s; 0: none */
};

#define PARAMETER(field, unit, initial, least, most, about) { #field, unit, about, initial, least, most },
#define FIELD(field, unit, divisor, about) { #field, unit, about, divisor },
#define READ(field, unit, divisor, about) *values++ = ca->field;

#define DEFINE_OPS(NAME, LISTS)                                                                    \
	_Static_assert(sizeof(struct NAME) <= CC_STATE_BYTES, "too large for icsk_ca_priv");       \
	_Static_assert(__builtin_offsetof(struct NAME, params) == 0, "params come first");         \
	static void read_##NAME(const void *state, s64 *values)                                    \
	{                                                                                          \
		const struct NAME *ca = state;                                                     \
                                                                                                   \
		(void)ca, (void)values;                                                            \
		LISTS##_STATE(READ)                                                                \
	}                                                                                          \
	static void init_##NAME(void *ca, struct cc_connection *c) { NAME##_init(ca, c); }         \
	static u32 ssthresh_##NAME(void *ca, const struct cc_connection *c)                        \
	{                                                                                          \
		return NAME##_ssthresh(ca, c);                                                     \
	}                                                                                          \
	static void cong_avoid_##NAME(void *ca, struct cc_connection *c, u32 acked)                \
	{                                                                                          \
		NAME##_cong_avoid(ca, c, acked);                                                   \
	}                                                                                          \
	static void pkts_acked_##NAME(void *ca, const struct cc_connection *c,                     \
				      const struct cc_sample *sample)                              \
	{                                                                                          \
		NAME##_pkts_acked(ca, c, sample);                                                  \
	}                                                                                          \
	static void set_state_##NAME(void *ca, const struct cc_connection *c, u8 state)            \
	{                                                                                          \
		NAME##_set_state(ca, c, state);                                                    \
	}                                                                                          \
	static u32 undo_cwnd_##NAME(void *ca, const struct cc_connection *c)                       \
	{                                                                                          \
		return NAME##_undo_cwnd(ca, c);                                                    \
	}                                                                                          \
	static const struct cc_parameter NAME##_parameters[] = { LISTS##_PARAMS(PARAMETER) { 0 } }; \
	static const struct cc_field NAME##_fields[] = { LISTS##_STATE(FIELD) { 0 } };

#define DEFINE(NAME, LISTS)                                                                        \
	DEFINE_OPS(NAME, LISTS)                                                                    \
	static u64 pacing_rate_##NAME(const void *ca, const struct cc_connection *c)               \
	{                                                                                          \
		(void)ca, (void)c;                                                                 \
		return 0;                                                                          \
	}

#define DEFINE_PACED(NAME, LISTS)                                                                  \
	DEFINE_OPS(NAME, LISTS)                                                                    \
	static u64 pacing_rate_##NAME(const void *ca, const struct cc_connection *c)               \
	{                                                                                          \
		return NAME##_pacing_rate(ca, c);                                                  \
	}

#define ENTRY(NAME, LISTS)                                                                         \
	{ #NAME,	   NAME##_parameters,  NAME##_fields,	 read_##NAME,	   init_##NAME,    \
	  ssthresh_##NAME, cong_avoid_##NAME, pkts_acked_##NAME, set_state_##NAME, undo_cwnd_##NAME, \
	  pacing_rate_##NAME },

ALGORITHMS(DEFINE, DEFINE_PACED)

const struct cc_algorithm longhaul_cc_algorithms[] = { ALGORITHMS(ENTRY, ENTRY) { 0 } };
