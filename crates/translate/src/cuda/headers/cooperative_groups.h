// Cooperative groups, by what the other headers declare.
#ifndef ELINVAR_COOPERATIVE_GROUPS
#define ELINVAR_COOPERATIVE_GROUPS
#pragma clang force_cuda_host_device begin
namespace cooperative_groups {
struct thread_block {
    void sync() const { __syncthreads(); }
    unsigned int thread_rank() const { return __elinvar_thread; }
    unsigned int size() const { return blockDim.x * blockDim.y * blockDim.z; }
    unsigned int num_threads() const { return blockDim.x * blockDim.y * blockDim.z; }
    dim3 group_index() const { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
    dim3 thread_index() const { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
    dim3 dim_threads() const { return dim3(blockDim.x, blockDim.y, blockDim.z); }
    dim3 group_dim() const { return dim3(blockDim.x, blockDim.y, blockDim.z); }
};
inline thread_block this_thread_block() { return thread_block{}; }

struct grid_group {
    void sync() const { __elinvar_grid_barrier(); }
    bool is_valid() const { return true; }
    unsigned long long size() const { return (unsigned long long)(gridDim.x * gridDim.y * gridDim.z) * (blockDim.x * blockDim.y * blockDim.z); }
    unsigned long long num_threads() const { return (unsigned long long)(gridDim.x * gridDim.y * gridDim.z) * (blockDim.x * blockDim.y * blockDim.z); }
    unsigned long long thread_rank() const {
        unsigned int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        return (unsigned long long)block * (blockDim.x * blockDim.y * blockDim.z) + __elinvar_thread;
    }
    unsigned long long num_blocks() const { return gridDim.x * gridDim.y * gridDim.z; }
    unsigned long long block_rank() const { return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }
};
inline grid_group this_grid() { return grid_group{}; }

template <unsigned int N, class Parent = void> struct thread_block_tile {
    void sync() const { __syncwarp(); }
    unsigned int thread_rank() const { return __elinvar_lane & (N - 1); }
    static constexpr unsigned int size() { return N; }
    static constexpr unsigned int num_threads() { return N; }
    unsigned int meta_group_rank() const { return __elinvar_thread / N; }
    unsigned int meta_group_size() const { return (blockDim.x * blockDim.y * blockDim.z + N - 1) / N; }
    template <class T> T shfl(T value, int source) const { return __shfl_sync(0xffffffffu, value, source, N); }
    template <class T> T shfl_up(T value, unsigned int delta) const { return __shfl_up_sync(0xffffffffu, value, delta, N); }
    template <class T> T shfl_down(T value, unsigned int delta) const { return __shfl_down_sync(0xffffffffu, value, delta, N); }
    template <class T> T shfl_xor(T value, unsigned int mask) const { return __shfl_xor_sync(0xffffffffu, value, (int)mask, N); }
    unsigned int ballot(int predicate) const {
        unsigned int all = __elinvar_ballot(predicate != 0);
        return N == 32 ? all : (all >> (__elinvar_lane & ~(N - 1))) & ((1u << (N & 31)) - 1);
    }
    int any(int predicate) const { return ballot(predicate) != 0; }
    int all(int predicate) const { return ballot(!predicate) == 0; }
};
template <unsigned int N, class Parent> inline thread_block_tile<N, Parent> tiled_partition(const Parent&) { return thread_block_tile<N, Parent>{}; }

struct coalesced_group {
    unsigned int mask;
    void sync() const { __syncwarp(); }
    unsigned int size() const { return (unsigned int)__popc(mask); }
    unsigned int num_threads() const { return (unsigned int)__popc(mask); }
    unsigned int thread_rank() const { return (unsigned int)__popc(mask & ((1u << __elinvar_lane) - 1)); }
    // The lane that has a rank.
    unsigned int lane_of(unsigned int rank) const {
        unsigned int rest = mask;
        for (unsigned int k = 0; k < rank; ++k) rest &= rest - 1;
        return (unsigned int)__elinvar_ctz(rest);
    }
    template <class T> T shfl(T value, int source) const { return __elinvar_shuffle(value, lane_of((unsigned int)source)); }
    int any(int predicate) const { return __elinvar_ballot(predicate != 0) != 0; }
    int all(int predicate) const { return __elinvar_ballot(predicate == 0) == 0; }
};
inline coalesced_group coalesced_threads() { return coalesced_group{ __activemask() }; }

template <class Group> inline void sync(const Group& group) { group.sync(); }

template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };
template <unsigned int N, class Parent, class T, class Op> inline T reduce(const thread_block_tile<N, Parent>& tile, T value, Op op) {
    for (unsigned int step = N / 2; step > 0; step /= 2) value = op(value, tile.shfl_xor(value, step));
    return value;
}
template <unsigned int N, class Parent, class T, class Op> inline T inclusive_scan(const thread_block_tile<N, Parent>& tile, T value, Op op) {
    for (unsigned int step = 1; step < N; step *= 2) {
        T before = tile.shfl_up(value, step);
        if (tile.thread_rank() >= step) value = op(before, value);
    }
    return value;
}
}
#pragma clang force_cuda_host_device end
#endif
