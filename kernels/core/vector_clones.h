// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Marks a function that is compiled once for each instruction set; the loader picks one. Its loops
// over SIMD lanes are plain C++ that the compiler vectorises.
#pragma once

// Only glibc's loader can pick. It picks before the thread sanitizer's library is ready, which the
// picking would call.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__)
#define LSM_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LSM_VECTOR_CLONES
#endif
