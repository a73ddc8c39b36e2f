//! [Metal Performance Shaders](https://developer.apple.com/documentation/metalperformanceshaders): matrices, products, softmax; images,
//! convolution, pooling and reductions. The host computes them in command buffer order, in double precision with one rounding, so results
//! are at least as accurate as those of hardware, but not identical.

mod convolution;
mod copy;
mod filter;
mod image;
mod matrix;
mod multiplication;
mod pooling;
mod reduce;
mod softmax;

use elinvar_objc::foundation::NsString;
use elinvar_objc::{Argument as _, Declaration, Declared, Id, Property, Ref};

use crate::commands::command_buffer::CommandBuffer;
use crate::commands::pass::{HostWork, Op, Pass};
use crate::device::Device;

/// Common part of all kernels: [`MPSKernel`](https://developer.apple.com/documentation/metalperformanceshaders/mpskernel).
pub struct Kernel {
    device: Ref<Device>,
    label: Property<Option<Ref<NsString>>>,
    options: Property<usize>,
}

elinvar_objc::object!(Kernel, c"MPSKernel");

impl Kernel {
    fn new(device: Ref<Device>) -> Self {
        Self { device, label: Property::default(), options: Property::default() }
    }

    /// Encodes a host function, called in command buffer order.
    fn encode(&self, method: &str, buffer: &Ref<CommandBuffer>, work: HostWork) {
        let label = self.label.get().map(|label| label.as_str().to_owned()).unwrap_or_default();
        buffer.add_pass(method, Pass { label, ops: vec![Op::Host(work)], ..Pass::default() });
    }
}

/// The methods of `MPSKernel`.
fn kernel<T, F>(class: Declaration<T>, of: F) -> Declaration<T>
where
    T: Declared,
    F: Fn(&T) -> &Kernel + Copy + 'static,
{
    class
        .property("label", move |this: &T| &of(this).label)
        .property("options", move |this: &T| &of(this).options)
        .method("device", move |this: &Ref<T>| of(this).device.clone())
}

/// Whether a device is supported. Unsupported devices are no longer documented; that the first Apple family is one is a
/// guess.
#[unsafe(no_mangle)]
extern "C" fn MPSSupportsMTLDevice(device: Id) -> bool {
    // SAFETY: it is a device, or nil.
    !device.is_null() && unsafe { Ref::<Device>::from_raw(device) }.profile.shaders
}

pub fn register() {
    Declaration::<Kernel>::new().register();
    matrix::register();
    multiplication::register();
    softmax::register();
    image::register();
    copy::register();
    filter::register();
    pooling::register();
    reduce::register();
    convolution::register();
}
