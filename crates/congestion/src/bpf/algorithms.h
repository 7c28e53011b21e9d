/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* All congestion controls of this directory: A(name, NAME), or PACED(name, NAME) for one with
 * NAME_pacing_rate. */
#ifndef LH_ALGORITHMS_H
#define LH_ALGORITHMS_H

#include "bic_math.h"
#include "fast_math.h"
#include "hstcp_math.h"
#include "htcp_math.h"
#include "scalable_math.h"
#include "trc_math.h"

#define ALGORITHMS(A, PACED)                                                                       \
	A(bic, BIC)                                                                                \
	A(bic_linux, BIC_LINUX)                                                                    \
	A(fast, FAST)                                                                              \
	A(hstcp, HSTCP)                                                                            \
	A(htcp, HTCP)                                                                              \
	A(scalable, SCALABLE)                                                                      \
	PACED(trc, TRC)

#endif
