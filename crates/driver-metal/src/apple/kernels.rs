//! The driver's own kernels, for fills and copies that blits do not support.

use elinvar_cache::Cache;
use elinvar_driver::{Error, Result};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSError, NSString};
use objc2_metal::{
    MTLComputePipelineDescriptor, MTLComputePipelineState, MTLDevice, MTLLibrary, MTLPipelineOption,
};

use super::archive;

const SOURCE: &str = include_str!("kernels.metal");

pub(super) type State = Retained<ProtocolObject<dyn MTLComputePipelineState>>;

pub(super) struct Kernels {
    pub(super) fill_words: State,
    pub(super) fill_bytes: State,
    pub(super) copy_bytes: State,
}

/// Builds the kernels of a source of the driver's own.
pub(super) fn build<const N: usize>(
    device: &ProtocolObject<dyn MTLDevice>,
    cache: &Cache,
    source: &str,
    names: [&str; N],
) -> Result<[State; N]> {
    let failed = |error: Retained<NSError>| {
        let (device, text) = (device.name(), error.localizedDescription());
        Error::Environment(format!("Metal device `{device}` cannot compile the driver's own kernels: {text}"))
    };
    let library =
        device.newLibraryWithSource_options_error(&NSString::from_str(source), None).map_err(failed)?;
    let state = |name: &str| {
        let function = library.newFunctionWithName(&NSString::from_str(name));
        let function = function.ok_or_else(|| {
            Error::Environment(format!("Metal device `{}` has no function `{name}`", device.name()))
        })?;
        let descriptor = MTLComputePipelineDescriptor::new();
        descriptor.setComputeFunction(Some(&function));
        let key = archive::key(device, cache).text(source).text(name).finish();
        let made = archive::pipeline(device, cache, &key, &descriptor, MTLPipelineOption::empty());
        made.map(|(state, _)| state).map_err(failed)
    };
    let mut states = Vec::with_capacity(N);
    for name in names {
        states.push(state(name)?);
    }
    let none = |_| Error::Environment("one state for each name".into());
    states.try_into().map_err(none)
}

impl Kernels {
    pub(super) fn compile(device: &ProtocolObject<dyn MTLDevice>, cache: &Cache) -> Result<Self> {
        let names = ["fill_words", "fill_bytes", "copy_bytes"];
        let [fill_words, fill_bytes, copy_bytes] = build(device, cache, SOURCE, names)?;
        Ok(Self { fill_words, fill_bytes, copy_bytes })
    }

    /// A minimal kernel.
    pub(super) fn plain(&self) -> &ProtocolObject<dyn MTLComputePipelineState> {
        &self.fill_words
    }
}
