#include <metal_stdlib>
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/sort.h"

#define instantiate_sort(name, type)                                                                  \
  instantiate_kernel("block_sort_" name, block_sort, type, type, false, 128, 8)                       \
  instantiate_kernel("block_argsort_" name, block_sort, type, uint, true, 128, 8)                     \
  instantiate_kernel("block_sort_nc_" name, block_sort_nc, type, type, false, 64, 8)                  \
  instantiate_kernel("mb_block_sort_" name, mb_block_sort, type, uint, true, 64, 8)

instantiate_sort("float32", float)
instantiate_sort("float16", half)
instantiate_sort("bfloat16", bfloat16_t)
instantiate_sort("int32", int32_t)
instantiate_sort("uint8", uint8_t)
instantiate_sort("int64", int64_t)
