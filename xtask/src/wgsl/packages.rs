//! The packages of crates.io with compute shaders in WGSL, and what their hosts define.

/// A package.
pub(super) struct Package {
    pub name: &'static str,
    pub version: &'static str,
    /// Part of a file's name, word and text: the host puts the text of the first that fits in place of the word. A word that begins with `{` is
    /// replaced wherever it is.
    pub defines: &'static [(&'static str, &'static str, &'static str)],
    /// Suffix of the name, and words that are defined: each file is prepared once for each that differs.
    pub variants: &'static [(&'static str, &'static [&'static str])],
    /// Text that the host writes before each shader.
    pub prelude: &'static str,
}

/// A package whose hosts add nothing.
const PLAIN: Package = Package { name: "", version: "", defines: &[], variants: &[("", &[])], prelude: "" };

pub(super) const PACKAGES: &[Package] = &[
    Package { name: "wgpu", version: "0.13.1", ..PLAIN },
    Package {
        name: "vello_shaders",
        version: "0.11.0",
        variants: &[
            ("", &[]),
            ("_small", &["small"]),
            ("_msaa8", &["msaa", "msaa8"]),
            ("_msaa16", &["msaa", "msaa16"]),
        ],
        ..PLAIN
    },
    Package {
        name: "web-rwkv",
        version: "0.10.20",
        defines: &[
            ("matmul_mat", "BLOCK_SIZE", "8u"),
            ("blend_lora", "BLOCK_SIZE", "8u"),
            ("time_mix", "BLOCK_SIZE", "32u"),
            ("", "BLOCK_SIZE", "128u"),
            ("", "BLOCK_SIZE_X", "16u"),
            ("", "BLOCK_SIZE_Y", "16u"),
            ("", "HEAD_SIZE", "16u"),
            ("", "NF4_BLOCK_SIZE", "64u"),
            ("", "INT8_BLOCK_SIZE", "128u"),
            ("", "EPS", "0.00001"),
            ("", "SCALE", "0.5"),
            ("", "BIAS", "0.25"),
            ("", "ACT", "silu"),
            ("", "ACT_X", "sigmoid"),
            ("", "ACT_Y", "squared_relu"),
            ("", "ACT_OUT", ""),
            ("", "MIN_SUBGROUP_SIZE", "32u"),
            ("", "ACTIVATION_DEFINE", ACTIVATIONS),
        ],
        variants: &[
            ("", &["SUBGROUP_SIZE_32_32"]),
            (
                "_fp16",
                &["FP16", "IN_FP16", "OUT_FP16", "K_FP16", "A_FP16", "FACTOR_FP16", "SUBGROUP_SIZE_32_64"],
            ),
            ("_more", &["SPARSE_INPUT", "STATS", "REVERSED", "GROUP_NORM", "V7", "SUBGROUP_SIZE_64_64"]),
        ],
        ..PLAIN
    },
    Package {
        name: "wgpu_sort",
        version: "0.1.0",
        defines: &[
            ("", "{histogram_wg_size}", "256"),
            ("", "{prefix_wg_size}", "128"),
            ("", "{scatter_wg_size}", "256"),
        ],
        // A subgroup of one thread: its host measures how many threads run in lockstep, which WGSL does not promise.
        prelude: "const histogram_sg_size: u32 = 1u;
const histogram_wg_size: u32 = 256u;
const rs_radix_log2: u32 = 8u;
const rs_radix_size: u32 = 256u;
const rs_keyval_size: u32 = 4u;
const rs_histogram_block_rows: u32 = 15u;
const rs_scatter_block_rows: u32 = 15u;
const rs_mem_dwords: u32 = 4096u;
const rs_mem_sweep_0_offset: u32 = 0u;
const rs_mem_sweep_1_offset: u32 = 256u;
const rs_mem_sweep_2_offset: u32 = 512u;
",
        ..PLAIN
    },
    Package { name: "wgcore", version: "0.2.2", ..PLAIN },
    Package { name: "wgebra", version: "0.2.0", ..PLAIN },
    Package { name: "threecrate-gpu", version: "0.12.1", ..PLAIN },
    Package { name: "wgsl-fft", version: "0.5.1", ..PLAIN },
    Package { name: "amari-gpu", version: "0.24.1", ..PLAIN },
];

/// Functions that the host of web-rwkv adds.
const ACTIVATIONS: &str = "
fn squared_relu(x: vec4<f32>) -> vec4<f32> { let p = max(x, vec4<f32>(0.0)); return p * p; }
fn sigmoid(x: vec4<f32>) -> vec4<f32> { return 1.0 / (1.0 + exp(-x)); }
fn silu(x: vec4<f32>) -> vec4<f32> { return x / (1.0 + exp(-x)); }
";
