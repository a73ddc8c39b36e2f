// The Metal standard library for stock clang: what the compiler reads before a rewritten source.
//
// The rewriter has removed address spaces and attributes, so that one C++17 class or template here
// stands for Metal's four or more. Functions that depend on the other threads of a launch end in
// `__elinvar_` intrinsics, which later passes replace. Macros of these files begin with ELINVAR_.
#pragma once
#pragma clang system_header

#define ELINVAR_INLINE inline __attribute__((always_inline))
#define ELINVAR_PURE inline __attribute__((always_inline)) constexpr
#define ELINVAR_MEMBER __attribute__((always_inline))
#define ELINVAR_CONVERGENT __attribute__((convergent))
#define ELINVAR_UNROLL _Pragma("clang loop unroll(full)")

#include "types.h"
#include "limits.h"
#include "vectors.h"
#include "operators.h"
#include "matrices.h"
#include "integer.h"
#include "common.h"
#include "math.h"
#include "relational.h"
#include "geometric.h"
#include "pack.h"
#include "synchronization.h"
#include "atomics.h"
#include "simdgroup.h"
#include "function_table.h"
#include "textures.h"
#include "commands.h"
#include "uniform.h"
#include "names.h"
#include "entry.h"
#include "logging.h"
#include "async_copy.h"
#include "simdgroup_matrix.h"
#include "tensor.h"
#include "cooperative_tensor.h"
#include "matmul2d.h"
#include "internal.h"
#include "grid.h"
#include "resident.h"
#include "launch.h"
#include "graphics.h"
