//! A kernel that can be dispatched: a compute pipeline state and a signature.

use std::sync::{Arc, OnceLock};

use elinvar_cache::Key;
use elinvar_driver::{ArgKind, CodeFacts, Diagnostic, Dim3, Error, Pipeline, Result, Signature};
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{MTLComputePipelineDescriptor, MTLComputePipelineState, MTLFunction, MTLPipelineOption};

use super::archive;
use super::core::Core;
use super::kernels::State;
use super::reflect::Reflection;
use super::validation;
use crate::split::Split;

/// Attributes with which a kernel cannot observe the division of its grid into threadgroups.
const GRID_ATTRIBUTES: [&str; 2] = ["thread_position_in_grid", "threads_per_grid"];

/// Why a kernel with bounds checks is in no command.
const NO_CHECKED_COMMANDS: &str = "bounds checks of commands in memory: Metal's shader validation checks whole buffers, and the driver cannot replace the addresses in commands by those of copies";

/// Properties of a kernel's code.
pub(super) struct Known {
    pub(super) signature: Signature,
    /// The arguments that it may steer by.
    pub(super) steering: u64,
    /// Whether only Metal's reflection is known.
    pub(super) reflected: bool,
}

pub(super) struct MetalPipeline {
    core: Arc<Core>,
    state: State,
    signature: Signature,
    /// The kernel's name, as Metal's tools show it.
    name: Name,
    steering: u64,
    /// Static threadgroup memory in bytes, according to Metal.
    threadgroup_memory: u64,
    max_threads: u32,
    /// Whether it has shader validation.
    checked: bool,
    /// Whether the kernel can observe the threadgroup size.
    sees_groups: bool,
    own: Own,
    /// The state for commands of indirect command buffers, built with the first.
    for_commands: OnceLock<State>,
}

/// Text that is not changed.
struct Name(Retained<NSString>);

#[allow(unsafe_code)] // the bindings leave it open
// SAFETY: objects that cannot be changed may be used on any thread (Apple, "Thread Safety Summary").
unsafe impl Send for Name {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Name {}

/// What a pipeline is built from, and its archive key.
pub(super) struct Own {
    pub(super) function: Retained<ProtocolObject<dyn MTLFunction>>,
    pub(super) key: Key,
    pub(super) split: Option<States>,
}

/// The states of the threads of a kernel with grid barriers.
pub(super) struct States {
    pub(super) split: Split,
    /// Size of a thread's state.
    pub(super) bytes: u64,
}

/// Builds the pipeline of a function, or reads it from the cache under `key`. Also returns Metal's reflection of its arguments.
///
/// `checked` enables shader validation.
///
/// # Errors
/// `Compile` with the text of Metal's compiler; `Unsupported` if shader validation is not available.
pub(super) fn build(
    core: &Core,
    name: &str,
    function: &ProtocolObject<dyn MTLFunction>,
    key: &Key,
    checked: bool,
) -> Result<(State, Reflection)> {
    let descriptor = MTLComputePipelineDescriptor::new();
    descriptor.setComputeFunction(Some(function));
    descriptor.setLabel(Some(&NSString::from_str(name)));
    if checked {
        validation::ask(&descriptor, name)?;
    }
    let options = MTLPipelineOption::BindingInfo | MTLPipelineOption::BufferTypeInfo;
    let made = archive::pipeline(&core.device, &core.cache, key, &descriptor, options);
    let refused = |text: String| Error::Compile(vec![Diagnostic::error(String::new(), 0, 0, text)]);
    let (state, reflection) = made.map_err(|error| refused(error.localizedDescription().to_string()))?;
    let reflection = reflection.ok_or_else(|| refused("Metal gave no reflection".to_owned()))?;
    if checked {
        validation::expect(&state, name)?;
    }
    Ok((state, Reflection::new(&reflection)))
}

impl MetalPipeline {
    pub(super) fn new(core: &Arc<Core>, state: State, known: Known, checked: bool, own: Own) -> Self {
        let Known { signature, steering, reflected } = known;
        let threadgroup_memory = state.staticThreadgroupMemoryLength() as u64;
        let code = signature.code.map(|code| CodeFacts { threadgroup_memory, ..code });
        let signature = Signature { code, ..signature };
        let max_threads = u32::try_from(state.maxTotalThreadsPerThreadgroup()).unwrap_or(u32::MAX);
        let attributes = signature.builtins.iter().map(|builtin| builtin.attribute.as_str());
        // Assume the worst for unknown code.
        let sees_groups = reflected
            || code.is_none_or(|code| code.barriers > 0 || code.simdgroup)
            || threadgroup_memory > 0
            || attributes.into_iter().any(|attribute| !GRID_ATTRIBUTES.contains(&attribute))
            || signature.args.iter().any(|arg| arg.kind == ArgKind::Threadgroup);
        Self {
            core: core.clone(),
            state,
            name: Name(NSString::from_str(&signature.name)),
            signature,
            steering,
            threadgroup_memory,
            max_threads,
            checked,
            sees_groups,
            own,
            for_commands: OnceLock::new(),
        }
    }

    /// The states of its threads, if it has grid barriers.
    pub(super) fn states(&self) -> Option<&States> {
        self.own.split.as_ref()
    }

    /// The state for commands of indirect command buffers.
    ///
    /// # Errors
    /// `Unsupported` for a kernel with bounds checks; `Environment` with Metal's text.
    pub(super) fn for_commands(&self) -> Result<&State> {
        let name = &self.signature.name;
        if self.checked {
            return Err(Error::unsupported(format!("kernel `{name}`: {NO_CHECKED_COMMANDS}")));
        }
        if let Some(state) = self.for_commands.get() {
            return Ok(state);
        }
        let descriptor = MTLComputePipelineDescriptor::new();
        descriptor.setComputeFunction(Some(&self.own.function));
        descriptor.setLabel(Some(&NSString::from_str(name)));
        descriptor.setSupportIndirectCommandBuffers(true);
        let key = self.core.cache.key("metal pipeline for commands").key(&self.own.key).finish();
        let (device, cache) = (&self.core.device, &self.core.cache);
        let made = archive::pipeline(device, cache, &key, &descriptor, MTLPipelineOption::empty());
        let (state, _) = made.map_err(|error| {
            Error::Environment(format!("kernel `{name}` in a command: {}", error.localizedDescription()))
        })?;
        Ok(self.for_commands.get_or_init(|| state))
    }

    pub(super) fn is_of(&self, core: &Core) -> bool {
        std::ptr::eq(&raw const *self.core, core)
    }

    pub(super) fn name(&self) -> &NSString {
        &self.name.0
    }

    pub(super) fn state(&self) -> &ProtocolObject<dyn MTLComputePipelineState> {
        &self.state
    }

    /// The arguments, as a bit mask, whose contents may affect what the kernel accesses.
    pub(super) fn steering(&self) -> u64 {
        self.steering
    }

    pub(super) fn is_checked(&self) -> bool {
        self.checked
    }

    pub(super) fn sees_groups(&self) -> bool {
        self.sees_groups
    }
}

impl Pipeline for MetalPipeline {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn threadgroup_memory(&self) -> u64 {
        self.threadgroup_memory
    }

    fn max_threads_per_threadgroup(&self) -> u32 {
        self.max_threads
    }

    /// As many as have room for their states in an eighth of the working set, and in a buffer; at most 2²⁰.
    fn resident_groups(&self, group: Dim3, _threadgroup_bytes: u64) -> Result<u64> {
        self.prepare(group)?;
        let limits = &self.core.caps.limits;
        let room = (limits.working_set / 8).min(limits.max_buffer_bytes);
        let bytes = self.states().map_or(1, |states| states.bytes).saturating_mul(group.volume() as u64);
        Ok((room / bytes.max(1)).clamp(1, 1 << 20))
    }

    /// Builds the state for commands of indirect command buffers.
    fn optimize(&self, group: Dim3) -> Result<()> {
        self.prepare(group)?;
        if self.checked || !self.core.features.commands {
            return Ok(());
        }
        autoreleasepool(|_| self.for_commands().map(drop))
    }

    /// Nothing to compile: Metal's code is independent of the threadgroup size.
    fn prepare(&self, group: Dim3) -> Result<()> {
        let most = self.core.caps.limits.max_threadgroup_size.to_array();
        let fits = group.to_array().iter().zip(most).all(|(size, most)| *size <= most);
        if fits && (1..=u128::from(self.max_threads)).contains(&group.volume()) {
            return Ok(());
        }
        let (Dim3 { x, y, z }, name, [w, h, d]) = (group, &self.signature.name, most);
        Err(Error::invalid(format!(
            "kernel `{name}` cannot have threadgroups of {x}x{y}x{z}: 1 to {} threads are allowed, at most {w}x{h}x{d}",
            self.max_threads
        )))
    }
}
