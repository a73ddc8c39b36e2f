#include <metal_stdlib>
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/atomic.h"
#include "mlx/backend/metal/kernels/reduction/ops.h"
#include "mlx/backend/metal/kernels/indexing/indexing.h"
#include "mlx/backend/metal/kernels/indexing/scatter_axis.h"

#define instantiate_scatter(name, type, index)                                                        \
  instantiate_kernel("scatter_axis_sum_" name, scatter_axis, type, index, int, Sum<type>, true, true) \
  instantiate_kernel("scatter_axis_max_" name, scatter_axis, type, index, int, Max<type>, true, true) \
  instantiate_kernel("scatter_axis_min_" name, scatter_axis, type, index, int, Min<type>, true, true) \
  instantiate_kernel("scatter_axis_prod_" name, scatter_axis, type, index, int, Prod<type>, true, true)

instantiate_scatter("float32", float, int32_t)
instantiate_scatter("float16", half, int32_t)
instantiate_scatter("bfloat16", bfloat16_t, uint32_t)
instantiate_scatter("int32", int32_t, int64_t)
instantiate_scatter("uint8", uint8_t, uint8_t)
instantiate_scatter("int16", int16_t, int16_t)
