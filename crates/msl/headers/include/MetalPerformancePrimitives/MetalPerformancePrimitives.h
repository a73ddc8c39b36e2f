// Metal Performance Primitives: tensor operations of Metal 4.
#include <metal_tensor>
#ifndef ELINVAR_TENSOR_OPS
#define ELINVAR_TENSOR_OPS

namespace mpp {
namespace tensor_ops {
using namespace elinvar::tensor_ops_names;
}
} // namespace mpp

#endif
