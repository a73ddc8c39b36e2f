//! [`ResidencySet`]: [`MTLResidencySet`](https://developer.apple.com/documentation/metal/mtlresidencyset). All memory is resident; the set
//! only tracks its members, and changes take effect on commit.

use elinvar_objc::foundation::{NsArray, NsError, NsString, os_version};
use elinvar_objc::{Declaration, Id, Object, Out, Property, Ref};
use parking_lot::Mutex;

use crate::device::Device;
use crate::memory::buffer::Buffer;
use crate::validation::fault_injection::Site;

/// How a set is to be.
#[derive(Clone, Default)]
pub struct ResidencyDescriptor {
    label: Property<Option<Ref<NsString>>>,
    capacity: Property<usize>,
}

elinvar_objc::object!(ResidencyDescriptor, c"MTLResidencySetDescriptor");

#[derive(Default)]
struct Allocations {
    /// Committed members.
    committed: Vec<Object>,
    /// Members after the next commit.
    next: Vec<Object>,
}

/// A set of allocations.
pub struct ResidencySet {
    device: Ref<Device>,
    label: Option<Ref<NsString>>,
    allocations: Mutex<Allocations>,
}

elinvar_objc::object!(ResidencySet, c"ElinvarMTLResidencySet");

impl ResidencySet {
    /// `newResidencySetWithDescriptor:error:`.
    pub fn with_descriptor(
        device: &Ref<Device>,
        descriptor: Ref<ResidencyDescriptor>,
        error: Out,
    ) -> Option<Ref<Self>> {
        if device.faults.now(Site::Object).is_some() {
            return error.catch(Err(NsError::new(
                "MTLResidencySetErrorDomain",
                1,
                "no set (injected by a test)",
            )));
        }
        let (device, label) = (device.clone(), descriptor.label.get());
        Some(Ref::new(Self { device, label, allocations: Mutex::default() }))
    }

    /// The sets of a C list.
    pub fn list(sets: *const Id, count: usize) -> Vec<Ref<Self>> {
        // SAFETY: the program passes so many sets.
        let set = |at| unsafe { Object::from_lent(*sets.add(at)) };
        (0..count).filter_map(set).filter_map(|set| set.downcast()).collect()
    }

    fn add(&self, allocation: Object) {
        let mut allocations = self.allocations.lock();
        if !allocations.next.iter().any(|own| own.id() == allocation.id()) {
            allocations.next.push(allocation);
        }
    }

    fn remove(&self, allocation: &Object) {
        self.allocations.lock().next.retain(|own| own.id() != allocation.id());
    }

    fn each(list: *const Id, count: usize, mut act: impl FnMut(Object)) {
        for at in 0..count {
            // SAFETY: the program passes so many allocations.
            if let Some(allocation) = unsafe { Object::from_lent(*list.add(at)) } {
                act(allocation);
            }
        }
    }

    fn commit(this: &Ref<Self>) {
        let mut allocations = this.allocations.lock();
        allocations.committed = allocations.next.clone();
    }

    fn size(this: &Ref<Self>) -> u64 {
        let allocations = this.allocations.lock();
        let size = |object: &Object| object.downcast::<Buffer>().map_or(0, |buffer| buffer.store().length());
        allocations.committed.iter().map(|object| size(object) as u64).sum()
    }
}

pub fn register() {
    if os_version() < (15, 0) {
        return;
    }
    Declaration::<ResidencyDescriptor>::new()
        .makes_default()
        .copies()
        .property("label", |d: &ResidencyDescriptor| &d.label)
        .property("initialCapacity", |d: &ResidencyDescriptor| &d.capacity)
        .register();
    Declaration::<ResidencySet>::new()
        .follows(c"MTLResidencySet")
        .method("device", |this: &Ref<ResidencySet>| this.device.clone())
        .method("label", |this: &Ref<ResidencySet>| this.label.clone())
        .method("requestResidency", |_: &Ref<ResidencySet>| {})
        .method("endResidency", |_: &Ref<ResidencySet>| {})
        .method("commit", ResidencySet::commit)
        .method("allocatedSize", ResidencySet::size)
        .method("addAllocation:", |this: &Ref<ResidencySet>, allocation: Object| this.add(allocation))
        .method("addAllocations:count:", |this: &Ref<ResidencySet>, list: *const Id, count: usize| {
            ResidencySet::each(list, count, |allocation| this.add(allocation));
        })
        .method("removeAllocation:", |this: &Ref<ResidencySet>, allocation: Object| this.remove(&allocation))
        .method("removeAllocations:count:", |this: &Ref<ResidencySet>, list: *const Id, count: usize| {
            ResidencySet::each(list, count, |allocation| this.remove(&allocation));
        })
        .method("removeAllAllocations", |this: &Ref<ResidencySet>| this.allocations.lock().next.clear())
        .method("containsAllocation:", |this: &Ref<ResidencySet>, allocation: Object| {
            this.allocations.lock().next.iter().any(|own| own.id() == allocation.id())
        })
        .method("allAllocations", |this: &Ref<ResidencySet>| {
            NsArray::new(this.allocations.lock().next.clone())
        })
        .method("allocationCount", |this: &Ref<ResidencySet>| this.allocations.lock().next.len())
        .register();
}
