// Operations on windows of images with up to three spatial axes: convolution, its unfolding to a matrix product, and pooling.
//
// The tensors are [n, channels, depth, height, width] with any strides; fewer axes are axes of size 1. A transposed convolution gathers,
// too: an element of the result adds the inputs whose windows it is in.

constant uint TYPE_X [[function_constant(0)]];
constant uint TYPE_OUT [[function_constant(1)]];
constant uint TYPE_WEIGHTS [[function_constant(2)]];
constant uint TYPE_BIAS [[function_constant(3)]];
constant bool HAS_BIAS [[function_constant(4)]];
constant uint ACTIVATION [[function_constant(5)]];
constant bool TRANSPOSED [[function_constant(6)]];
// Whether neighbors along the width of the result read neighbors in memory.
constant bool DENSE [[function_constant(7)]];
// Pooling: 0 maximum, 1 mean of the elements within the image, 2 mean of the whole window.
constant uint POOLING [[function_constant(8)]];

struct Images {
    ulong n, channel, space[3];
};

struct Window {
    int in[3], out[3], size[3], stride[3], padding[3], dilation[3];
    // Channels of a group, and groups.
    uint in_channels, out_channels, groups;
    // Elements of a pooling window.
    float elements;
    Images x, result;
    // Strides of the weights.
    ulong weight_group, weight_out, weight_in, weight_space[3];
    ulong bias;
    // The unfolded matrix: strides of images with their groups, of panels of 32 columns, and of rows.
    ulong matrix, panel, row;
    uint first_image;
};

// Position in the input of place `at` of the window at `out` of the result; negative if it is outside.
inline int source(int out, int at, uint axis, constant Window& w)
{
    if (TRANSPOSED) {
        int reached = out + w.padding[axis] - at * w.dilation[axis];
        int position = reached / w.stride[axis];
        return reached >= 0 && position * w.stride[axis] == reached && position < w.in[axis] ? position : -1;
    }
    int stride = DENSE && axis == 2 ? 1 : w.stride[axis];
    int position = out * stride - w.padding[axis] + at * w.dilation[axis];
    return position >= 0 && position < w.in[axis] ? position : -1;
}

inline ulong width_stride(constant Window& w) { return DENSE ? 1 : w.x.space[2]; }

// Channels of the result that a thread computes.
constant constexpr uint BLOCK = 4;

[[kernel]] void convolve(device const uchar* x [[buffer(0)]], device const uchar* weights [[buffer(1)]],
                         device const uchar* bias [[buffer(2)]], device uchar* result [[buffer(3)]],
                         constant Window& w [[buffer(4)]], uint3 at [[thread_position_in_grid]])
{
    uint blocks = (w.out_channels + BLOCK - 1) / BLOCK;
    uint first = at.z % blocks * BLOCK, group = at.z / blocks % w.groups, n = at.z / blocks / w.groups;
    int ow = int(at.x), oh = int(at.y) % w.out[1], od = int(at.y) / w.out[1];
    ulong weight_at[BLOCK];
    float sums[BLOCK];
    for (uint c = 0; c < BLOCK; ++c) {
        weight_at[c] = group * w.weight_group + min(first + c, w.out_channels - 1) * w.weight_out;
        sums[c] = 0.0f;
    }
    for (uint channel = 0; channel < w.in_channels; ++channel) {
        ulong image = n * w.x.n + ulong(group * w.in_channels + channel) * w.x.channel;
        for (int kd = 0; kd < w.size[0]; ++kd) {
            int id = source(od, kd, 0, w);
            if (id < 0) {
                continue;
            }
            for (int kh = 0; kh < w.size[1]; ++kh) {
                int ih = source(oh, kh, 1, w);
                if (ih < 0) {
                    continue;
                }
                ulong line = image + ulong(id) * w.x.space[0] + ulong(ih) * w.x.space[1];
                ulong tap = channel * w.weight_in + ulong(kd) * w.weight_space[0] + ulong(kh) * w.weight_space[1];
                for (int kw = 0; kw < w.size[2]; ++kw) {
                    int iw = source(ow, kw, 2, w);
                    float value = iw >= 0 ? load<float>(x, line + ulong(iw) * width_stride(w), TYPE_X) : 0.0f;
                    for (uint c = 0; c < BLOCK; ++c) {
                        ulong place = weight_at[c] + tap + ulong(kw) * w.weight_space[2];
                        sums[c] = fma(load<float>(weights, place, TYPE_WEIGHTS), value, sums[c]);
                    }
                }
            }
        }
    }
    ulong place = n * w.result.n + ulong(od) * w.result.space[0] + ulong(oh) * w.result.space[1] +
                  ulong(ow) * w.result.space[2];
    for (uint c = 0; c < BLOCK; ++c) {
        if (first + c < w.out_channels) {
            ulong channel = group * w.out_channels + first + c;
            float value = sums[c] + (HAS_BIAS ? load<float>(bias, channel * w.bias, TYPE_BIAS) : 0.0f);
            store(result, place + channel * w.result.channel, TYPE_OUT, activate(value, ACTIVATION));
        }
    }
}

// The elements that each place of a window reads, as a matrix with a row for each place of the window in each channel, and a column for
// each element of the result (im2col).
[[kernel]] void unfold(device const uchar* x [[buffer(0)]], device uchar* matrix [[buffer(1)]],
                       constant Window& w [[buffer(2)]], uint3 at [[thread_position_in_grid]])
{
    uint taps = uint(w.size[0] * w.size[1] * w.size[2]), rows = w.in_channels * taps;
    uint row = at.z % rows, image = at.z / rows, group = image % w.groups, n = w.first_image + image / w.groups;
    int kw = int(row) % w.size[2], kh = int(row) / w.size[2] % w.size[1], kd = int(row % taps) / (w.size[2] * w.size[1]);
    int ow = int(at.x), oh = int(at.y) % w.out[1], od = int(at.y) / w.out[1];
    int id = source(od, kd, 0, w), ih = source(oh, kh, 1, w), iw = source(ow, kw, 2, w);
    float value = 0.0f;
    if (id >= 0 && ih >= 0 && iw >= 0) {
        ulong channel = group * w.in_channels + row / taps;
        ulong place = n * w.x.n + channel * w.x.channel + ulong(id) * w.x.space[0] + ulong(ih) * w.x.space[1] +
                      ulong(iw) * width_stride(w);
        value = load<float>(x, place, TYPE_X);
    }
    ulong column = ulong(at.y) * ulong(w.out[2]) + at.x;
    store(matrix, image * w.matrix + column / 32 * w.panel + row * w.row + column % 32, TYPE_OUT, value);
}

[[kernel]] void pool(device const uchar* x [[buffer(0)]], device uchar* result [[buffer(1)]],
                     constant Window& w [[buffer(2)]], uint3 at [[thread_position_in_grid]])
{
    uint channel = at.z % w.in_channels, n = at.z / w.in_channels;
    int ow = int(at.x), oh = int(at.y) % w.out[1], od = int(at.y) / w.out[1];
    float value = POOLING == 0 ? -INFINITY : 0.0f, count = 0.0f;
    ulong image = n * w.x.n + channel * w.x.channel;
    for (int kd = 0; kd < w.size[0]; ++kd) {
        for (int kh = 0; kh < w.size[1]; ++kh) {
            int id = source(od, kd, 0, w), ih = source(oh, kh, 1, w);
            if (id < 0 || ih < 0) {
                continue;
            }
            ulong line = image + ulong(id) * w.x.space[0] + ulong(ih) * w.x.space[1];
            for (int kw = 0; kw < w.size[2]; ++kw) {
                int iw = source(ow, kw, 2, w);
                if (iw >= 0) {
                    float next = load<float>(x, line + ulong(iw) * width_stride(w), TYPE_X);
                    value = POOLING == 0 ? Larger()(value, next) : value + next;
                    count += 1.0f;
                }
            }
        }
    }
    if (POOLING == 1) {
        value /= max(count, 1.0f);
    } else if (POOLING == 2) {
        value /= w.elements;
    }
    ulong place = n * w.result.n + channel * w.result.channel + ulong(od) * w.result.space[0] +
                  ulong(oh) * w.result.space[1] + ulong(ow) * w.result.space[2];
    store(result, place, TYPE_OUT, value);
}
