/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Every congestion control that this directory holds: A(name, NAME). */
#ifndef LH_ALGORITHMS_H
#define LH_ALGORITHMS_H

#include "hstcp_math.h"
#include "htcp_math.h"
#include "scalable_math.h"

#define ALGORITHMS(A)                                                                              \
	A(hstcp, HSTCP)                                                                            \
	A(htcp, HTCP)                                                                              \
	A(scalable, SCALABLE)

#endif
