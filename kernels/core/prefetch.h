// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

// Must precede every function that only prefetches. GCC finds that such a function has no effect,
// and deletes all calls that it has not inlined by then.
#define LSM_ONLY_PREFETCHES [[gnu::always_inline]] inline
