//! The published sources, and how their hosts compile them.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

/// Metal sources in a published package.
pub(super) struct Corpus {
    /// Name of the package.
    pub name: &'static str,
    /// Its exact version.
    pub version: &'static str,
    pub registry: Registry,
    /// Folder of its sources, which are in subfolders too.
    pub folder: &'static str,
    /// Folders that its host searches for `#include`.
    pub include_dirs: &'static [&'static str],
    /// Macros that its host defines.
    pub defines: &'static [(&'static str, &'static str)],
    /// Text that its host compiles before each file.
    pub prelude: &'static str,
    /// Placeholders that its host replaces in the text.
    pub replaced: &'static [(&'static str, &'static str)],
    /// Host files, in Python or Rust, whose raw strings are Metal sources: each becomes a file `STEM.N.metal` beside where it was.
    pub strings: &'static [&'static str],
    /// Sources that its host makes of the package's headers, with their text: includes, and instantiations of templates.
    pub composed: &'static [(&'static str, &'static str)],
    /// Files that call functions of a library, which its host compiles from another file.
    pub libraries: &'static [(&'static str, &'static str)],
    /// Files that its host does not compile, but includes in others, which define the names they use. So are all `.h.metal`.
    pub fragments: &'static [&'static str],
    /// Files that do not compile, each with the reason. Compiling one is a failure: the list is then out of date.
    pub refused: &'static [(&'static str, Refusal)],
}

/// Where a package is published.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Registry {
    /// crates.io; cargo compares the checksum with the index's.
    Crates,
    /// PyPI: a wheel with this SHA-256, for these tags.
    PyPi { python: &'static str, platform: &'static str, sha256: &'static str },
}

/// Why a file does not compile.
#[derive(Clone, Copy)]
pub(super) enum Refusal {
    /// It is not valid Metal Shading Language, so that Apple's compiler rejects it as well; with the section of the specification.
    Invalid(&'static str),
    /// It is valid, and needs what Elinvar does not have.
    Unsupported(&'static str),
}

use Refusal::{Invalid, Unsupported};

/// A crate whose sources need no more than the compiler.
const CRATE: Corpus = Corpus {
    name: "",
    version: "",
    registry: Registry::Crates,
    folder: "",
    include_dirs: &[],
    defines: &[],
    prelude: "",
    replaced: &[],
    strings: &[],
    composed: &[],
    libraries: &[],
    fragments: &[],
    refused: &[],
};

pub(super) const CORPORA: &[Corpus] = &[
    Corpus {
        name: "candle-metal-kernels",
        version: "0.11.1",
        folder: "src/metal_src",
        include_dirs: &["src/metal_src"],
        ..CRATE
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
        ..CRATE
    },
    Corpus {
        name: "whisper-rs-sys",
        version: "0.15.0",
        folder: "whisper.cpp/ggml/src/ggml-metal",
        include_dirs: &["whisper.cpp/ggml/src/ggml-metal", "whisper.cpp/ggml/src"],
        defines: &[("GGML_METAL_HAS_BF16", "1")],
        ..CRATE
    },
    Corpus {
        name: "mistralrs-quant",
        version: "0.8.1",
        folder: "src/metal_kernels",
        include_dirs: &["src/metal_kernels"],
        ..CRATE
    },
    Corpus {
        name: "mistralrs-paged-attn",
        version: "0.8.1",
        folder: "src/metal/kernels",
        include_dirs: &["src/metal/kernels"],
        ..CRATE
    },
    Corpus { name: "mlx-native", version: "0.15.16", folder: "src/shaders", ..CRATE },
    Corpus { name: "cera", version: "0.7.3", folder: "src/backend/shaders", ..CRATE },
    Corpus { name: "llama-rs", version: "0.23.1", folder: "src/backend/metal/shaders", ..CRATE },
    Corpus { name: "tract-metal", version: "0.23.9", folder: "src/kernels", ..CRATE },
    Corpus { name: "tessl", version: "0.2.0", folder: "kernels", ..CRATE },
    Corpus {
        name: "ruvllm",
        version: "2.5.0",
        folder: "src/metal/shaders",
        refused: &[(
            "gemm.metal",
            Invalid(
                "elements of a simdgroup_matrix are read with `[row][column]`; section 6.7 has no such operator",
            ),
        )],
        ..CRATE
    },
    Corpus {
        name: "luminal_metal",
        version: "0.2.0",
        folder: "src/kernels",
        include_dirs: &["src/kernels"],
        replaced: &[("KERNEL_PATH/", "")],
        ..CRATE
    },
    Corpus {
        name: "rlx-metal",
        version: "0.2.19",
        folder: "src",
        prelude: "#include <metal_stdlib>\nusing namespace metal;\n",
        fragments: &["splat_conic_bin.msl"],
        ..CRATE
    },
    Corpus { name: "forge-sort", version: "0.2.3", folder: "shaders", ..CRATE },
    Corpus {
        name: "risc0-circuit-rv32im-sys",
        version: "5.0.0-rc.1",
        folder: "cxx/hal/metal/kernels",
        include_dirs: &["cxx/hal/metal/kernels"],
        ..CRATE
    },
    Corpus { name: "ministark-gpu", version: "0.3.0", folder: "src/metal", ..CRATE },
    Corpus { name: "miden-gpu", version: "0.6.0", folder: "src/metal/shaders", ..CRATE },
    Corpus { name: "lambdaworks-math", version: "0.9.0", folder: "src/gpu/metal", ..CRATE },
    Corpus {
        name: "metal",
        version: "0.33.0",
        folder: "examples",
        refused: &[
            ("mps/shaders.metal", Unsupported("Metal Performance Shaders: the types of its ray intersector")),
            (
                "raytracing/shaders.metal",
                Unsupported("ray tracing: the descriptors of instances, which Metal's API declares"),
            ),
        ],
        libraries: &[("shader-dylib/test_shader.metal", "shader-dylib/test_dylib.metal")],
        ..CRATE
    },
    Corpus { name: "gfx-backend-metal", version: "0.9.1", folder: "shaders", ..CRATE },
    Corpus { name: "pathfinder_resources", version: "0.5.0", folder: "shaders/metal", ..CRATE },
    Corpus {
        name: "metalcore",
        version: "0.1.16",
        registry: Registry::PyPi {
            python: "312",
            platform: "macosx_15_0_arm64",
            sha256: "6fff1c94f2c5ea9ec72410893fec2bdc5a907384911c1ed22bf16b29348c1d08",
        },
        folder: "metalcore/native",
        ..CRATE
    },
    Corpus {
        name: "metal-gauss",
        version: "0.2.1",
        registry: Registry::PyPi {
            python: "312",
            platform: "macosx_15_0_arm64",
            sha256: "954ea0673d24456f584eb0425ecc737fdcfe5cf649b9d01dc40ee15f91c7f2d4",
        },
        folder: "metal_gauss/csrc",
        ..CRATE
    },
    Corpus {
        name: "fp4-fp8-for-torch-mps",
        version: "1.0.3",
        registry: Registry::PyPi {
            python: "312",
            platform: "macosx_15_0_arm64",
            sha256: "e3460377560899552abbe79dbf17e4fd408d0e07b91dc30f65c89d3441b7551d",
        },
        folder: "fp4_fp8_for_torch_mps/shaders",
        ..CRATE
    },
    Corpus {
        name: "metal-treeshap",
        version: "0.1.1",
        registry: Registry::PyPi {
            python: "312",
            platform: "macosx_13_0_arm64",
            sha256: "e0bacc22d3068f74f0155bb7d04bd512df3c4ddb06fbe7e90d1a2a028b1d3c0d",
        },
        folder: "metal_treeshap",
        ..CRATE
    },
    Corpus { name: "metal-candle", version: "1.3.0", folder: "src/backend", ..CRATE },
    Corpus {
        name: "actx",
        version: "0.1.1",
        registry: Registry::PyPi {
            python: "312",
            platform: "macosx_14_0_arm64",
            sha256: "c35b231de028bbd9ca5a3d70ceda0334a3b698114be7b2577dbeb4c3ec657dcf",
        },
        folder: "actx/src/kernels",
        ..CRATE
    },
    Corpus {
        name: "metalml",
        version: "0.2.1",
        registry: Registry::PyPi {
            python: "312",
            platform: "any",
            sha256: "bc22b30aa7b605355c74ee52e296af8c8fa51e2c15d0fe3a3357658369614c7b",
        },
        folder: "metalml/_metal",
        ..CRATE
    },
    Corpus {
        name: "mps-pointops",
        version: "1.0.0",
        registry: Registry::PyPi {
            python: "312",
            platform: "any",
            sha256: "52d98037c6b9d9ee864b879e25ac0bbdb29d29a56cbea3fb76a94bbbfaf374e5",
        },
        folder: "mps_pointops/kernels",
        ..CRATE
    },
    Corpus {
        name: "skmetal",
        version: "1.0.0",
        registry: Registry::PyPi {
            python: "312",
            platform: "any",
            sha256: "45dc93ff88b268cd155b05d79baacad75700a4e382e065a555c5a92eec47204c",
        },
        folder: "skmetal/SkMetalBridge_SkMetalBridge.bundle",
        ..CRATE
    },
    Corpus {
        name: "natten-mps",
        version: "0.3.3",
        registry: Registry::PyPi {
            python: "312",
            platform: "any",
            sha256: "d437100f9f13d6372d18017b1f7455fdbde9e9502d6e7969d04be3d9f2bf0ed2",
        },
        folder: "natten_mps",
        strings: &["natten_mps/_core/_metal_shaders.py", "natten_mps/extras/allin1/_metal_shaders.py"],
        ..CRATE
    },
    Corpus {
        name: "mps-spectro",
        version: "0.3.0",
        registry: Registry::PyPi {
            python: "312",
            platform: "any",
            sha256: "15d746f0dab6388039dc07bbd4da9b9b162776f9b13de2a9afeef3bcdf807a31",
        },
        folder: "mps_spectro/metal",
        strings: &["mps_spectro/metal/_shaders.py"],
        ..CRATE
    },
    Corpus {
        name: "curobo-metal",
        version: "1.0.1",
        registry: Registry::PyPi {
            python: "312",
            platform: "any",
            sha256: "cccffc754f05ba4ef07fce80ca9683b67e54bceb6efaecd0cc8a285a21a7e05e",
        },
        folder: "curobo_metal/ops",
        strings: &["curobo_metal/ops/collision/metal/fused.py", "curobo_metal/ops/kinematics/metal/fused.py"],
        ..CRATE
    },
    Corpus {
        name: "mlx-metal",
        version: "0.32.4",
        registry: Registry::PyPi {
            python: "312",
            platform: "macosx_14_0_arm64",
            sha256: "8019b2db622599267d66cc168b2f0dbf5af929790a6c3b3913e00eabc42a7947",
        },
        folder: "mlx/include/mlx/backend/metal/kernels",
        include_dirs: &["mlx/include"],
        composed: &[
            ("attention.metal", include_str!("composed/mlx/attention.metal")),
            ("fp_quantized.metal", include_str!("composed/mlx/fp_quantized.metal")),
            ("gated_delta.metal", include_str!("composed/mlx/gated_delta.metal")),
            ("quantized.metal", include_str!("composed/mlx/quantized.metal")),
            ("rows.metal", include_str!("composed/mlx/rows.metal")),
            ("scan.metal", include_str!("composed/mlx/scan.metal")),
            ("scatter.metal", include_str!("composed/mlx/scatter.metal")),
            ("sdpa_vector.metal", include_str!("composed/mlx/sdpa_vector.metal")),
            ("sort.metal", include_str!("composed/mlx/sort.metal")),
        ],
        ..CRATE
    },
];

impl Corpus {
    /// Names of its sources that are compiled, relative to its folder, in order. A file with the same content as one of `seen` is
    /// left out and counted.
    pub(super) fn files(&self, fetched: &Path, seen: &mut BTreeSet<Vec<u8>>) -> Result<(Vec<String>, usize)> {
        let folder = fetched.join(self.folder);
        let (mut names, mut copies) = (Vec::new(), 0);
        list(&folder, "", &mut names)?;
        names.retain(|name| !name.ends_with(".h.metal") && !self.fragments.contains(&name.as_str()));
        names.sort();
        let mut kept = Vec::new();
        for name in names {
            let path = folder.join(&name);
            if seen.insert(std::fs::read(&path).with_context(|| path.display().to_string())?) {
                kept.push(name);
            } else {
                copies += 1;
            }
        }
        kept.extend(self.composed.iter().map(|(name, _)| (*name).to_owned()));
        Ok((kept, copies))
    }

    /// Text of a file of its folder, or of a composed source.
    pub(super) fn text(&self, fetched: &Path, name: &str) -> Result<String> {
        if let Some((_, text)) = self.composed.iter().find(|(composed, _)| *composed == name) {
            return Ok((*text).to_owned());
        }
        let path = fetched.join(self.folder).join(name);
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    /// Why a file does not compile, if that is known.
    pub(super) fn refusal(&self, name: &str) -> Option<Refusal> {
        self.refused.iter().find(|(file, _)| *file == name).map(|(_, why)| *why)
    }
}

/// Adds the names of the Metal sources below a folder.
fn list(folder: &Path, prefix: &str, names: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &format!("{name}/"), names)?;
        } else if name.ends_with(".metal") || name.ends_with(".msl") {
            names.push(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_listed_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("k/sub")).unwrap();
        for (name, text) in [
            ("k/b.metal", "1"),
            ("k/sub/a.msl", "2"),
            ("k/sub/copy.metal", "1"),
            ("k/x.h", "3"),
            ("k/u.h.metal", "4"),
        ] {
            std::fs::write(root.join(name), text).unwrap();
        }
        let corpus = Corpus { folder: "k", ..CRATE };
        let mut seen = BTreeSet::new();
        let (names, copies) = corpus.files(root, &mut seen).unwrap();
        assert_eq!((names, copies), (vec!["b.metal".to_owned(), "sub/a.msl".to_owned()], 1));
        let part = Corpus { folder: "k", fragments: &["b.metal"], ..CRATE };
        let (names, copies) = part.files(root, &mut BTreeSet::new()).unwrap();
        assert_eq!((names.len(), copies), (2, 0));
        assert_eq!(part.files(root, &mut seen).unwrap().0, [""; 0]);
    }

    #[test]
    fn every_corpus_is_pinned() {
        let names: BTreeSet<&str> = CORPORA.iter().map(|corpus| corpus.name).collect();
        assert_eq!(names.len(), CORPORA.len());
        for corpus in CORPORA {
            assert!(corpus.version.starts_with(|c: char| c.is_ascii_digit()), "{}", corpus.name);
            if let Registry::PyPi { sha256, .. } = corpus.registry {
                assert_eq!(sha256.len(), 64, "{}", corpus.name);
            }
        }
    }
}
