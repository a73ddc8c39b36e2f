//! A kernel compiled for one threadgroup size, and the pipeline that caches one per size.
//!
//! Code that can be stopped in loops is slower. It is a separate pipeline, created on first use. Code for large buffers is slower, too:
//! a dispatch runs the code for the size of its largest memory, rounded up to a [`SizeBound`].

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use elinvar_driver::sync::OnceLock;
use elinvar_driver::{Dim3, Error, Fault, LogKernel, Pipeline, Result, Signature};

use elinvar_code::{Bounds, check_group, max_threads};
use elinvar_native::{BySize, Form, Made, Object, SizeBound, Specialization};

use crate::cooperative;
use crate::crash::Description;
use crate::loader::Code;

/// Machine code for one threadgroup size, with the data for running it.
pub(crate) struct CompiledKernel {
    /// Name in the source.
    pub(crate) name: String,
    /// The threadgroup function.
    pub(crate) code: Code,
    /// Description for crash reports.
    pub(crate) crash: Description,
    /// Size of scratch memory before the dynamic threadgroup memory, in bytes.
    pub(crate) scratch_bytes: u64,
    /// Fault code `n` is described at `n - 1`: message, and `file:line` if known.
    pub(crate) faults: Vec<(String, Option<String>)>,
    /// Decoder of fault records, if the kernel checks bounds.
    pub(crate) bounds: Option<Bounds>,
    /// Whether threadgroups must start in ascending order, because the kernel could observe the order.
    pub(crate) ascending: bool,
    /// Whether each call combines private counters with a buffer at its end.
    pub(crate) private_counters: bool,
    /// Whether it has grid barriers, so that each call runs one threadgroup up to the next one.
    pub(crate) cooperative: bool,
    /// Nanoseconds per threadgroup in the last dispatch; 0 before the first. A hint.
    pub(crate) group_ns: AtomicU64,
}

impl CompiledKernel {
    /// The kernel of this signature, with its code loaded.
    pub(crate) fn new(signature: &Signature, code: Code, object: Object) -> Self {
        let Object { scratch_bytes, ascending, private_counters, cooperative, faults, checks, .. } = object;
        Self {
            name: signature.name.clone(),
            code,
            crash: Description::new(signature, checks.is_some()),
            scratch_bytes,
            faults,
            bounds: checks.map(|checks| Bounds::new(checks, signature.clone())),
            ascending,
            private_counters,
            cooperative,
            group_ns: AtomicU64::new(0),
        }
    }

    /// The error for a fault code of the function.
    pub(crate) fn fault(&self, code: i32) -> Error {
        let index = usize::try_from(code).ok().and_then(|code| code.checked_sub(1));
        let site = index.and_then(|index| self.faults.get(index)).cloned();
        let (message, location) = site.unwrap_or_else(|| (format!("stopped with unknown code {code}"), None));
        Error::Fault(Fault { kernel: self.name.clone(), message, location, launch: None })
    }
}

/// Compiles a kernel; without regard to its tier if the second parameter is true, but optimized.
pub(crate) type Build = Arc<dyn Fn(Form, bool) -> Result<Made<CompiledKernel>> + Send + Sync>;

/// Reads the LLVM IR of one thread.
pub(crate) type ThreadIr = Arc<dyn Fn() -> Result<String> + Send + Sync>;

/// A kernel that can be compiled for any threadgroup size within its limit.
pub(crate) struct CpuPipeline {
    signature: Signature,
    max_threads: u32,
    specialization: Specialization,
    build: Build,
    code: BySize<CompiledKernel>,
    /// Whether its code can be stopped in loops.
    is_stoppable: bool,
    /// The pipeline with stoppable code.
    stoppable: OnceLock<Arc<CpuPipeline>>,
    /// Its log calls, if it has any.
    log: Option<Arc<LogKernel>>,
    ir: Option<ThreadIr>,
}

impl CpuPipeline {
    pub(crate) fn new(
        signature: Signature,
        specialization: Specialization,
        build: Build,
        log: Option<Arc<LogKernel>>,
    ) -> Self {
        Self::with(signature, specialization, build, log, false)
    }

    /// The pipeline with a way to read its code of one thread.
    pub(crate) fn with_ir(self, ir: ThreadIr) -> Self {
        Self { ir: Some(ir), ..self }
    }

    fn with(
        signature: Signature,
        specialization: Specialization,
        build: Build,
        log: Option<Arc<LogKernel>>,
        is_stoppable: bool,
    ) -> Self {
        let max_threads = max_threads(&signature);
        let made = build.clone();
        let code = BySize::new(specialization, move |group, objects, optimize| {
            made(Form { group, stoppable: is_stoppable, objects }, optimize)
        });
        let stoppable = OnceLock::new();
        Self { signature, max_threads, specialization, build, code, is_stoppable, stoppable, log, ir: None }
    }

    /// The kernel for this threadgroup size and largest memory, which [`Pipeline::prepare_for`] has built.
    pub(crate) fn kernel(&self, group: Dim3, largest: u64) -> Result<Arc<CompiledKernel>> {
        let objects = SizeBound::of(largest);
        self.code.get(group, objects).ok_or_else(|| {
            let (name, Dim3 { x, y, z }) = (&self.signature.name, group);
            let memory = match objects {
                SizeBound::DEFAULT => String::new(),
                _ => format!(" and memory of {largest} bytes"),
            };
            Error::invalid(format!(
                "kernel `{name}` has not been prepared for threadgroups of {x}x{y}x{z}{memory}"
            ))
        })
    }
}

impl CpuPipeline {
    /// Reports the processor time of a dispatch.
    pub(crate) fn ran(&self, group: Dim3, largest: u64, ns: u64) {
        self.code.ran(group, SizeBound::of(largest), ns);
    }
}

impl Pipeline for CpuPipeline {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn thread_ir(&self) -> Result<String> {
        let none = || Error::unsupported("the pipeline was made of machine code");
        self.ir.as_ref().ok_or_else(none)?()
    }

    fn max_threads_per_threadgroup(&self) -> u32 {
        self.max_threads
    }

    fn prepare(&self, group: Dim3) -> Result<()> {
        self.prepare_for(group, 0)
    }

    fn prepare_for(&self, group: Dim3, largest: u64) -> Result<()> {
        check_group(&self.signature, group)?;
        self.code.prepare(group, SizeBound::of(largest))
    }

    fn resident_groups(&self, group: Dim3, threadgroup_bytes: u64) -> Result<u64> {
        self.prepare(group)?;
        let bytes = self.kernel(group, 0)?.scratch_bytes.saturating_add(threadgroup_bytes);
        Ok(cooperative::resident_groups(bytes))
    }

    fn optimize(&self, group: Dim3) -> Result<()> {
        check_group(&self.signature, group)?;
        self.code.optimize(group)
    }

    fn is_optimized(&self, group: Dim3) -> Option<bool> {
        self.code.is_optimized(group)
    }

    fn log_kernel(&self) -> Option<&Arc<LogKernel>> {
        self.log.as_ref()
    }

    fn stoppable(&self) -> Option<Arc<dyn Pipeline>> {
        if self.is_stoppable {
            return None;
        }
        let make = || {
            let (signature, log) = (self.signature.clone(), self.log.clone());
            Arc::new(Self::with(signature, self.specialization, self.build.clone(), log, true))
        };
        Some(self.stoppable.get_or_init(make).clone())
    }
}

#[cfg(test)]
mod tests {
    use elinvar_driver::sync::Mutex;

    use super::*;
    use crate::testing;

    #[test]
    fn a_size_that_has_not_been_prepared_is_refused() {
        let pipeline = CpuPipeline::new(
            testing::signature("count"),
            Specialization::ALWAYS,
            testing::build("count", testing::COUNT),
            None,
        );
        pipeline.prepare(Dim3::new(32, 2, 1)).unwrap();
        pipeline.kernel(Dim3::new(32, 2, 1), 0).unwrap();
        assert_eq!(pipeline.is_optimized(Dim3::new(32, 2, 1)), Some(true));
        let error = pipeline.kernel(Dim3::from(64), 2 << 30).err().unwrap();
        assert_eq!(error.to_string(), "kernel `count` has not been prepared for threadgroups of 64x1x1");
    }

    #[test]
    fn the_largest_memory_selects_the_code() {
        let forms = Arc::new(Mutex::new(Vec::new()));
        let (built, kernel) = (forms.clone(), testing::build("count", testing::COUNT));
        let build: Build = Arc::new(move |form, optimize| {
            // In units of 256 MiB.
            built.lock().push(form.objects.bytes() >> 28);
            kernel(form, optimize)
        });
        let pipeline = CpuPipeline::new(testing::signature("count"), Specialization::ALWAYS, build, None);
        let (group, gib) = (Dim3::from(8), 1_u64 << 30);
        for bytes in [0, 1, 2 * gib, 2 * gib + 1, 4 * gib, 4 * gib + 4096, 12 * gib, 3 * gib, u64::MAX] {
            pipeline.prepare_for(group, bytes).unwrap();
            pipeline.kernel(group, bytes).unwrap();
        }
        assert_eq!(*forms.lock(), [8, 15, 16, 30, 60, 1 << 35], "one for each bound");
        pipeline.prepare(group).unwrap();
        let error = pipeline.kernel(group, 20 * gib).err().unwrap().to_string();
        let bytes = 20 * gib;
        assert_eq!(
            error,
            format!(
                "kernel `count` has not been prepared for threadgroups of 8x1x1 and memory of {bytes} bytes"
            )
        );
    }

    #[test]
    fn sizes_over_the_limit_are_refused() {
        let mut signature = testing::signature("count");
        let pipeline = CpuPipeline::new(
            signature.clone(),
            Specialization::ALWAYS,
            testing::build("count", testing::COUNT),
            None,
        );
        assert_eq!(pipeline.max_threads_per_threadgroup(), 1024);
        for group in [
            Dim3::new(1025, 1, 1),
            Dim3::new(32, 33, 1),
            Dim3::new(0, 1, 1),
            Dim3::new(u32::MAX, u32::MAX, 9),
        ] {
            assert!(matches!(pipeline.prepare(group), Err(Error::InvalidArgument(_))), "{group:?}");
        }
        signature.max_threads_per_threadgroup = Some(64);
        let pipeline = CpuPipeline::new(
            signature,
            Specialization::ALWAYS,
            testing::build("count", testing::COUNT),
            None,
        );
        let error = pipeline.prepare(Dim3::new(13, 5, 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "kernel `count` cannot have threadgroups of 13x5x1: 1 to 64 threads are allowed"
        );
    }

    #[test]
    fn faults_name_kernel_message_and_place() {
        let form = Form { group: Some(Dim3::from(1)), stoppable: false, objects: SizeBound::DEFAULT };
        let mut kernel = testing::build("k", testing::COUNT)(form, false).unwrap().code;
        kernel.faults = vec![("first".into(), None), ("second".into(), Some("a.metal:7".into()))];
        assert_eq!(kernel.fault(1).to_string(), "kernel `k`: first");
        assert_eq!(kernel.fault(2).to_string(), "kernel `k` at a.metal:7: second");
        assert_eq!(kernel.fault(-7).to_string(), "kernel `k`: stopped with unknown code -7");
    }
}
