//! [`Fence`]: [`MTLFence`](https://developer.apple.com/documentation/metal/mtlfence). Passes of a queue run in order, so a wait has no effect;
//! waiting for a fence that no earlier pass updates is nevertheless reported as an error.

use std::sync::atomic::{AtomicBool, Ordering};

use elinvar_objc::foundation::NsString;
use elinvar_objc::{Declaration, Property, Ref};

use crate::device::Device;
use crate::validation::fault_injection::Site;

/// A fence between passes.
pub struct Fence {
    device: Ref<Device>,
    updated: AtomicBool,
    label: Property<Option<Ref<NsString>>>,
}

elinvar_objc::object!(Fence, c"ElinvarMTLFence");

impl Fence {
    /// `newFence`.
    pub fn new(device: &Ref<Device>) -> Option<Ref<Self>> {
        let made = device.faults.now(Site::Object).is_none();
        let (device, updated) = (device.clone(), AtomicBool::new(false));
        made.then(|| Ref::new(Self { device, updated, label: Property::default() }))
    }

    /// Marks it as updated by a pass.
    pub fn update(&self) {
        self.updated.store(true, Ordering::Release);
    }

    /// Whether a pass has updated it.
    pub fn is_updated(&self) -> bool {
        self.updated.load(Ordering::Acquire)
    }
}

pub fn register() {
    Declaration::<Fence>::new()
        .follows(c"MTLFence")
        .property("label", |fence: &Fence| &fence.label)
        .method("device", |this: &Ref<Fence>| this.device.clone())
        .register();
}
