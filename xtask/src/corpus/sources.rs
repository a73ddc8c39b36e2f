//! The published sources, and how their hosts compile them.

use std::path::Path;

use anyhow::{Context, Result};

/// Metal sources in a published crate.
pub(super) struct Corpus {
    /// Name of the crate.
    pub name: &'static str,
    /// Its exact version.
    pub version: &'static str,
    /// Folder of its `.metal` files.
    pub folder: &'static str,
    /// Folders that its host searches for `#include`.
    pub include_dirs: &'static [&'static str],
    /// Macros that its host defines.
    pub defines: &'static [(&'static str, &'static str)],
    /// Files that its host does not compile, but includes in others, which define the names they use.
    pub fragments: &'static [&'static str],
}

pub(super) const CORPORA: &[Corpus] = &[
    Corpus {
        name: "candle-metal-kernels",
        version: "0.11.1",
        folder: "src/metal_src",
        include_dirs: &["src/metal_src"],
        defines: &[],
        fragments: &[],
    },
    Corpus {
        name: "llama-cpp-sys-2",
        version: "0.1.161",
        folder: "llama.cpp/ggml/src/ggml-metal/kernels",
        include_dirs: &[
            "llama.cpp/ggml/src/ggml-metal/kernels",
            "llama.cpp/ggml/src/ggml-metal",
            "llama.cpp/ggml/src",
        ],
        defines: &[("GGML_METAL_HAS_BF16", "1")],
        fragments: &["fa_common.metal", "fa_vec_common.metal"],
    },
    Corpus {
        name: "whisper-rs-sys",
        version: "0.15.0",
        folder: "whisper.cpp/ggml/src/ggml-metal",
        include_dirs: &["whisper.cpp/ggml/src/ggml-metal", "whisper.cpp/ggml/src"],
        defines: &[("GGML_METAL_HAS_BF16", "1")],
        fragments: &[],
    },
    Corpus {
        name: "mistralrs-quant",
        version: "0.8.1",
        folder: "src/metal_kernels",
        include_dirs: &["src/metal_kernels"],
        defines: &[],
        fragments: &[],
    },
    Corpus {
        name: "mistralrs-paged-attn",
        version: "0.8.1",
        folder: "src/metal/kernels",
        include_dirs: &["src/metal/kernels"],
        defines: &[],
        fragments: &[],
    },
];

impl Corpus {
    /// Names of its `.metal` files that are compiled, in order.
    pub(super) fn files(&self, fetched: &Path) -> Result<Vec<String>> {
        let folder = fetched.join(self.folder);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".metal") && !self.fragments.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}
