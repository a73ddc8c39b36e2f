//! [`ProfileWork`]: what a launch computes and touches, by the analysis of its kernel.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use elinvar_analysis::{Analysis, Effort, Launch};
use elinvar_driver::sync::Mutex;
use elinvar_driver::{Dim3, Pipeline, Result};
use serde::{Deserialize, Serialize};

use crate::identity::identity;
use crate::observe::trace::InlineArguments;

/// Launches of a kernel, by sizes and inline arguments, whose work is computed. Each takes milliseconds.
const LAUNCHES: usize = 64;
/// Number of kernels that are kept.
const KERNELS: usize = 1024;

/// Work of a launch, computed from its kernel's code, sizes and inline arguments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileWork {
    /// Floating-point operations; a fused multiply-add is two.
    pub flops: f64,
    /// Bytes of device and constant memory that it touches, each once.
    pub bytes: f64,
}

/// Work that has been computed.
#[derive(Default)]
pub(super) struct Works(Mutex<HashMap<usize, OfKernel>>);

struct OfKernel {
    pipeline: Weak<dyn Pipeline>,
    /// `None` for a kernel that cannot be analyzed.
    analysis: Option<Analysis>,
    launches: HashMap<(Dim3, Dim3, InlineArguments), Option<ProfileWork>>,
}

impl Works {
    /// The work of a launch. `None` if it depends on the contents of memory, the kernel cannot be analyzed on its device, or it has been
    /// launched in too many ways.
    pub(super) fn of(
        &self,
        pipeline: &Arc<dyn Pipeline>,
        (threads, group): (Dim3, Dim3),
        arguments: &InlineArguments,
    ) -> Option<ProfileWork> {
        let mut kernels = self.0.lock();
        if kernels.len() >= KERNELS {
            kernels.retain(|_, kernel| kernel.pipeline.strong_count() > 0);
        }
        // A pipeline is kept allocated while it is known, so no other can have its address.
        let kernel = kernels.entry(identity(pipeline)).or_insert_with(|| OfKernel {
            pipeline: Arc::downgrade(pipeline),
            analysis: analysis(pipeline).ok(),
            launches: HashMap::new(),
        });
        let analysis = kernel.analysis.as_ref()?;
        let key = (threads, group, arguments.clone());
        if kernel.launches.len() >= LAUNCHES && !kernel.launches.contains_key(&key) {
            return None;
        }
        *kernel.launches.entry(key).or_insert_with(|| work(analysis, threads, group, arguments))
    }
}

/// The analysis of a kernel.
///
/// # Errors
/// `Unsupported` if the device has no IR of it.
pub(crate) fn analysis(pipeline: &Arc<dyn Pipeline>) -> Result<Analysis> {
    let name = &pipeline.signature().name;
    let module = elinvar_ir::Module::parse(&pipeline.thread_ir()?);
    let module =
        module.map_err(|error| elinvar_driver::Error::unsupported(format!("kernel `{name}`: {error}")))?;
    elinvar_analysis::analyze(Arc::new(module), pipeline.signature())
}

fn work(analysis: &Analysis, threads: Dim3, group: Dim3, arguments: &InlineArguments) -> Option<ProfileWork> {
    let constants = arguments.iter().map(|(at, bytes)| (*at, bytes.to_vec())).collect();
    let launch = Launch { grid: threads.to_array(), group: group.to_array(), constants };
    let totals = analysis.launch(&launch, Effort::default()).ok()?;
    (!totals.is_estimate)
        .then(|| ProfileWork { flops: totals.operations.flops(), bytes: totals.footprint_bytes })
}
