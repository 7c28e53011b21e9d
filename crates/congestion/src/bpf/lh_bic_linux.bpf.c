// SPDX-License-Identifier: GPL-2.0-only
#include "congestion_ops.h"
#include "bic_math.h"

CONGESTION_OPS(bic_linux, BIC_LINUX_PARAMS)
