//! [`Pipeline`]: [`MTLComputePipelineState`](https://developer.apple.com/documentation/metal/mtlcomputepipelinestate), and its
//! descriptor.
//!
//! The CPU driver compiles for one threadgroup size at a time, so compilation takes place on the queue's thread, when the pipeline is first
//! dispatched with a size.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use elinvar_driver::{PipelineOptions, Signature};
use elinvar_objc::foundation::{NsArray, NsError, NsString, os_version};
use elinvar_objc::{Block, Declaration, Id, Object, Out, Property, Ref};

use crate::device::Device;
use crate::library::binary_archive::{self, Archive};
use crate::library::function::Function;
use crate::library::reflection::Reflection;
use crate::library::{DOMAIN, error, later};
use crate::require;
use crate::validation::fault_injection::Site;
use crate::validation::shader_validation;
use crate::values::{ResourceId, Size};

/// `MTLPipelineOptionFailOnBinaryArchiveMiss`.
const ONLY_FROM_ARCHIVE: usize = 1 << 2;

/// Number of pipelines compiled in this process, not found in an archive.
static COMPILED: AtomicUsize = AtomicUsize::new(0);

/// Number of pipelines that this process has compiled, rather than taken from an archive.
#[unsafe(no_mangle)]
extern "C" fn elinvar_apple_compiled_pipelines() -> usize {
    COMPILED.load(Ordering::Relaxed)
}

/// Pipelines that support indirect command buffers, by their numbers from 1. A number is the resource ID, which a kernel has as a
/// `compute_pipeline_state`.
static NUMBERED: Mutex<Vec<Option<Weak<dyn elinvar_driver::Pipeline>>>> = Mutex::new(Vec::new());

/// The pipeline with this number, if it exists and supports indirect command buffers.
pub fn by_number(number: u32) -> Option<Arc<dyn elinvar_driver::Pipeline>> {
    let all = NUMBERED.lock().unwrap_or_else(PoisonError::into_inner);
    all.get(number.checked_sub(1)? as usize)?.as_ref()?.upgrade()
}

fn numbered(compiled: &Arc<dyn elinvar_driver::Pipeline>, indirect: bool) -> u64 {
    let mut all = NUMBERED.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(indirect.then(|| Arc::downgrade(compiled)));
    all.len() as u64
}

/// `MTLComputePipelineDescriptor`.
#[derive(Clone, Default)]
pub struct Descriptor {
    label: Property<Option<Ref<NsString>>>,
    function: Property<Option<Ref<Function>>>,
    multiple: Property<bool>,
    max_threads: Property<usize>,
    indirect: Property<bool>,
    archives: Property<Option<Ref<NsArray>>>,
    libraries: Property<Option<Ref<NsArray>>>,
    depth: Property<usize>,
    validation: Property<isize>,
    required: Property<Size>,
}

elinvar_objc::object!(Descriptor, c"MTLComputePipelineDescriptor");

impl Descriptor {
    /// Name of the pipeline in an archive.
    pub fn key(&self) -> Option<String> {
        self.function.get().map(|function| binary_archive::key(&function))
    }

    /// Compiles the described pipeline, for an archive.
    pub fn compile(&self, device: &Ref<Device>) -> Result<(), Ref<NsError>> {
        self.function.get().map_or(Ok(()), |function| Pipeline::make(device, &function, self).map(drop))
    }

    /// Whether one of its archives has the pipeline.
    fn is_archived(&self) -> bool {
        let archives = self.archives.get();
        let mut archives = archives.iter().flat_map(|archives| archives.objects().to_vec());
        let key = self.key().unwrap_or_default();
        archives.any(|archive| archive.downcast::<Archive>().is_some_and(|archive| archive.has(&key)))
    }

    fn reset(this: &Ref<Self>) {
        let fresh = Self::default();
        this.label.set(fresh.label.get());
        this.function.set(None);
        this.multiple.set(false);
        this.max_threads.set(0);
        this.indirect.set(false);
        this.archives.set(None);
        this.libraries.set(None);
        this.validation.set(0);
        this.required.set(Size::default());
    }
}

/// A kernel that can be dispatched.
pub struct Pipeline {
    device: Ref<Device>,
    pub compiled: Arc<dyn elinvar_driver::Pipeline>,
    /// The pipeline with shader validation, if it is enabled.
    pub validated: Option<Arc<dyn elinvar_driver::Pipeline>>,
    label: Option<Ref<NsString>>,
    max_threads: usize,
    /// Whether the descriptor promises that threadgroup sizes are multiples of the simdgroup width.
    pub multiple: bool,
    pub indirect: bool,
    number: u64,
    required: Size,
}

elinvar_objc::object!(Pipeline, c"ElinvarMTLComputePipelineState");

type PipelineResult = Result<Ref<Pipeline>, Ref<NsError>>;

impl Pipeline {
    fn make(device: &Ref<Device>, function: &Function, descriptor: &Descriptor) -> PipelineResult {
        let failure = |message: &str| NsError::new(DOMAIN, error::INTERNAL, message);
        if Device::fails(device, Site::Pipeline) {
            return Err(failure("the compiler failed (injected by a test)"));
        }
        let compiled = function.library.compiled.pipeline(&function.name, &function.options);
        let compiled = compiled.map_err(|error| failure(&error.to_string()))?;
        let checked = PipelineOptions { checked: true, ..function.options.clone() };
        let validated = shader_validation::is_for(descriptor.validation.get())
            .then(|| function.library.compiled.pipeline(&function.name, &checked).ok())
            .flatten();
        if !descriptor.is_archived() {
            COMPILED.fetch_add(1, Ordering::Relaxed);
        }
        let own = (compiled.max_threads_per_threadgroup() as usize).min(device.profile.threads);
        let max_threads = match descriptor.max_threads.get() {
            0 => own,
            asked => own.min(asked),
        };
        let number = numbered(&compiled, descriptor.indirect.get());
        Ok(Ref::new(Self {
            device: device.clone(),
            number,
            compiled,
            validated,
            label: descriptor.label.get(),
            max_threads,
            multiple: descriptor.multiple.get(),
            indirect: descriptor.indirect.get(),
            required: descriptor.required.get(),
        }))
    }

    /// `newComputePipelineStateWithFunction:error:`.
    pub fn with_function(device: &Ref<Device>, function: Ref<Function>, error: Out) -> Option<Ref<Self>> {
        error.catch(Self::make(device, &function, &Descriptor::default()))
    }

    /// `newComputePipelineStateWithFunction:completionHandler:`.
    pub fn with_function_later(device: &Ref<Device>, function: Ref<Function>, done: Option<Block<(Id, Id)>>) {
        let device = device.clone();
        later(done, move || Self::make(&device, &function, &Descriptor::default()));
    }

    /// `newComputePipelineStateWithDescriptor:options:reflection:error:`.
    pub fn with_descriptor(
        device: &Ref<Device>,
        descriptor: Ref<Descriptor>,
        options: usize,
        reflection: Out,
        error: Out,
    ) -> Option<Ref<Self>> {
        const METHOD: &str = "newComputePipelineStateWithDescriptor:options:reflection:error:";
        let function = descriptor.function.get();
        require!(function.is_some(), "{METHOD} the descriptor has no compute function");
        if options & ONLY_FROM_ARCHIVE != 0 && !descriptor.is_archived() {
            let message = format!("no archive has the pipeline of {}", function?.name);
            return error.catch(Err(NsError::new(DOMAIN, error::INTERNAL, &message)));
        }
        let made = error.catch(Self::make(device, &*function?, &descriptor))?;
        if options & 3 != 0 {
            reflection.lend(Reflection::of(made.signature()));
        }
        Some(made)
    }

    /// The kernel's arguments.
    pub fn signature(&self) -> &Signature {
        self.compiled.signature()
    }

    fn validation(this: &Ref<Self>) -> isize {
        if this.validated.is_some() { shader_validation::ENABLED } else { shader_validation::DISABLED }
    }

    /// Maximum number of threads per threadgroup.
    pub fn max_threads(&self) -> usize {
        self.max_threads
    }

    /// Static threadgroup memory in bytes.
    pub fn threadgroup_memory(&self) -> usize {
        let declared = self.signature().code.map_or(0, |code| code.threadgroup_memory);
        usize::try_from(declared).unwrap_or(usize::MAX)
    }
}

/// `newComputePipelineStateWithFunction:options:reflection:error:`.
pub fn with_reflection(
    device: &Ref<Device>,
    function: Ref<Function>,
    options: usize,
    reflection: Out,
    error: Out,
) -> Option<Ref<Pipeline>> {
    let made = error.catch(Pipeline::make(device, &function, &Descriptor::default()))?;
    if options & 3 != 0 {
        reflection.lend(Reflection::of(made.signature()));
    }
    Some(made)
}

pub fn register() {
    let descriptor = Declaration::<Descriptor>::new()
        .makes_default()
        .copies()
        .property("label", |d: &Descriptor| &d.label)
        .property("computeFunction", |d: &Descriptor| &d.function)
        .property("threadGroupSizeIsMultipleOfThreadExecutionWidth", |d: &Descriptor| &d.multiple)
        .property("maxTotalThreadsPerThreadgroup", |d: &Descriptor| &d.max_threads)
        .property("supportIndirectCommandBuffers", |d: &Descriptor| &d.indirect)
        .property("binaryArchives", |d: &Descriptor| &d.archives)
        .property("preloadedLibraries", |d: &Descriptor| &d.libraries)
        .property("maxCallStackDepth", |d: &Descriptor| &d.depth)
        .method("reset", Descriptor::reset);
    descriptor
        .when(os_version() >= (15, 0), |d| d.property("shaderValidation", |d: &Descriptor| &d.validation))
        .when(os_version() >= (26, 0), |d| {
            d.property("requiredThreadsPerThreadgroup", |d: &Descriptor| &d.required)
        })
        .register();
    Declaration::<Pipeline>::new()
        .follows(c"MTLComputePipelineState")
        .follows(c"MTLAllocation")
        .method("label", |this: &Ref<Pipeline>| this.label.clone())
        .method("device", |this: &Ref<Pipeline>| this.device.clone())
        .method("maxTotalThreadsPerThreadgroup", |this: &Ref<Pipeline>| this.max_threads)
        .method("threadExecutionWidth", |this: &Ref<Pipeline>| {
            this.device.cpu.caps().limits.simdgroup_width as usize
        })
        .method("staticThreadgroupMemoryLength", |this: &Ref<Pipeline>| this.threadgroup_memory())
        .method("supportIndirectCommandBuffers", |this: &Ref<Pipeline>| this.indirect)
        .method("gpuResourceID", |this: &Ref<Pipeline>| ResourceId(this.number))
        .method("allocatedSize", |_: &Ref<Pipeline>| 0_usize)
        .when(os_version() >= (15, 0), |p| p.method("shaderValidation", Pipeline::validation))
        .when(os_version() >= (26, 0), |p| {
            p.method("requiredThreadsPerThreadgroup", |this: &Ref<Pipeline>| this.required)
                .method("reflection", |this: &Ref<Pipeline>| Reflection::of(this.signature()))
        })
        .method("functionHandleWithFunction:", |_: &Ref<Pipeline>, _: Ref<Function>| None::<Object>)
        .register();
}
