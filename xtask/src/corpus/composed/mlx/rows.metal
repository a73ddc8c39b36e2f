#include <metal_stdlib>
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/softmax.h"
#include "mlx/backend/metal/kernels/logsumexp.h"

#define instantiate_rows(name, type)                                                                  \
  instantiate_kernel("block_softmax_precise_" name, softmax_single_row, type, float)                  \
  instantiate_kernel("looped_softmax_precise_" name, softmax_looped, type, float)                     \
  instantiate_kernel("block_logsumexp_" name, logsumexp, type)                                        \
  instantiate_kernel("looped_logsumexp_" name, logsumexp_looped, type)

instantiate_rows("float32", float)
instantiate_rows("float16", half)
instantiate_rows("bfloat16", bfloat16_t)
