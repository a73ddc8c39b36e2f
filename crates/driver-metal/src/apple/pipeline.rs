//! A kernel that can be dispatched: a compute pipeline state with the kernel's signature.

use std::sync::Arc;

use elinvar_driver::{ArgKind, CodeFacts, Dim3, Error, Pipeline, Result, Signature};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLComputePipelineDescriptor, MTLComputePipelineState, MTLDevice as _, MTLFunction, MTLPipelineOption,
};

use super::core::Core;
use super::kernels::State;
use super::reflect::Reflection;

/// Attributes by which a kernel cannot tell how its grid is divided into threadgroups.
const GRID_ATTRIBUTES: [&str; 2] = ["thread_position_in_grid", "threads_per_grid"];

pub(super) struct MetalPipeline {
    core: Arc<Core>,
    state: State,
    signature: Signature,
    max_threads: u32,
    /// Whether the kernel could tell threadgroups of another size from those asked for.
    sees_groups: bool,
}

/// Build a function; gives what Metal says of its arguments as well.
///
/// # Errors
/// The text of Metal's compiler.
pub(super) fn build(
    core: &Core,
    name: &str,
    function: &ProtocolObject<dyn MTLFunction>,
) -> Result<(State, Reflection), String> {
    let descriptor = MTLComputePipelineDescriptor::new();
    descriptor.setComputeFunction(Some(function));
    descriptor.setLabel(Some(&NSString::from_str(name)));
    let options = MTLPipelineOption::BindingInfo | MTLPipelineOption::BufferTypeInfo;
    let mut reflection = None;
    let state = core.device.newComputePipelineStateWithDescriptor_options_reflection_error(
        &descriptor,
        options,
        Some(&mut reflection),
    );
    let state = state.map_err(|error: Retained<_>| error.localizedDescription().to_string())?;
    let reflection = reflection.ok_or_else(|| "Metal gave no reflection".to_owned())?;
    Ok((state, Reflection::new(&reflection)))
}

impl MetalPipeline {
    /// Of a signature from the front end, or from the reflection, of which less is known.
    pub(super) fn new(core: &Arc<Core>, state: State, signature: Signature, reflected: bool) -> Self {
        let own = state.staticThreadgroupMemoryLength() as u64;
        // What is not known is taken to be there.
        let cautious = CodeFacts { barriers: 1, atomics: 1, simdgroup: true, ..CodeFacts::default() };
        let known = signature.code.unwrap_or(cautious);
        let signature = Signature { code: Some(CodeFacts { threadgroup_memory: own, ..known }), ..signature };
        let max_threads = u32::try_from(state.maxTotalThreadsPerThreadgroup()).unwrap_or(u32::MAX);
        let attributes = signature.builtins.iter().map(|builtin| builtin.attribute.as_str());
        let sees_groups = reflected
            || known.barriers > 0
            || known.simdgroup
            || own > 0
            || attributes.into_iter().any(|attribute| !GRID_ATTRIBUTES.contains(&attribute))
            || signature.args.iter().any(|arg| arg.kind == ArgKind::Threadgroup);
        Self { core: core.clone(), state, signature, max_threads, sees_groups }
    }

    pub(super) fn is_of(&self, core: &Core) -> bool {
        std::ptr::eq(&raw const *self.core, core)
    }

    pub(super) fn state(&self) -> &ProtocolObject<dyn MTLComputePipelineState> {
        &self.state
    }

    pub(super) fn sees_groups(&self) -> bool {
        self.sees_groups
    }
}

impl Pipeline for MetalPipeline {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn max_threads_per_threadgroup(&self) -> u32 {
        self.max_threads
    }

    /// Nothing is compiled: Metal's code is for any size.
    fn prepare(&self, group: Dim3) -> Result<()> {
        let most = self.core.caps.max_threadgroup_size.to_array();
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
