//! The reference table: the kernels of the corpora that are run, with arguments and expected results.
//!
//! One file per family. To add a kernel, add a [`Case`] to its family's list: the arguments in the order of the kernel's parameters, the
//! grid, and the reference. A kernel that the driver does not support yet may be in the table: it runs in the reference interpreter and
//! counts as unsupported until the driver runs it.

mod actx;
mod candle;
mod case;
mod cera;
mod element;
mod forge_sort;
mod fp8_torch;
mod gauss;
mod ggml;
mod llama_rs;
mod luminal;
mod metalcore;
mod metalml;
mod mistral_bits;
mod mistral_quant;
mod mlx;
mod mlx_native;
mod natten;
mod paged;
mod pointops;
mod provers;
mod reference;
mod ruvllm;
mod simdgroups;
mod skmetal;
mod spectro;
mod tensor;
mod tract;
mod treeshap;
mod varied;
mod whisper;

pub(super) use case::{Argument, Case, GUARD};

/// All cases. Cases of the same file are adjacent.
pub(super) fn all() -> Vec<Case> {
    let mut cases: Vec<Case> = [
        actx::cases(),
        candle::cases(),
        cera::cases(),
        forge_sort::cases(),
        fp8_torch::cases(),
        gauss::cases(),
        ggml::cases(),
        llama_rs::cases(),
        luminal::cases(),
        metalcore::cases(),
        metalml::cases(),
        mistral_bits::cases(),
        mistral_quant::cases(),
        mlx::cases(),
        mlx_native::cases(),
        natten::cases(),
        paged::cases(),
        pointops::cases(),
        provers::cases(),
        spectro::cases(),
        tract::cases(),
        treeshap::cases(),
        varied::cases(),
        whisper::cases(),
        ruvllm::cases(),
        simdgroups::cases(),
        skmetal::cases(),
    ]
    .into_iter()
    .flatten()
    .collect();
    cases.sort_by_key(|case| (case.corpus, case.file));
    cases
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::corpus::sources::CORPORA;

    #[test]
    fn every_case_compares_something_of_a_corpus_that_there_is() {
        for case in all() {
            let name = format!("{} `{}`", case.file, case.kernel);
            assert!(CORPORA.iter().any(|corpus| corpus.name == case.corpus), "{name}: {}", case.corpus);
            assert!(case.file.ends_with(".metal") || case.file.ends_with(".msl"), "{name}");
            assert!(case.elements() > 0, "{name} compares nothing");
            assert!(!case.tolerance.is_empty(), "{name} says nothing of its tolerance");
        }
    }

    #[test]
    fn no_kernel_counts_twice() {
        let cases = all();
        let names: BTreeSet<_> = cases.iter().map(|case| (case.corpus, case.file, &case.kernel)).collect();
        assert_eq!(names.len(), cases.len());
    }

    #[test]
    fn corpora_have_kernels_and_every_output_can_be_wrong() {
        let cases = all();
        let with_kernels =
            CORPORA.iter().filter(|corpus| cases.iter().any(|case| case.corpus == corpus.name));
        assert!(with_kernels.count() >= 6);
        for case in &cases {
            let outputs = case.arguments.iter().filter_map(|argument| match argument {
                Argument::Buffer { before, after: Some(check), .. } => Some((before, check)),
                _ => None,
            });
            // Unchanged outputs must not satisfy a case.
            assert!(
                outputs.into_iter().any(|(before, check)| (check.compare)(before).is_err()),
                "{} `{}` is right before it has run",
                case.file,
                case.kernel
            );
        }
    }
}
