//! [`Heap`]: [`MTLHeap`](https://developer.apple.com/documentation/metal/mtlheap): memory for buffers placed automatically or by the
//! program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use elinvar_objc::foundation::NsString;
use elinvar_objc::{Declaration, Property, Ref};
use parking_lot::Mutex;

use crate::device::Device;
use crate::memory::buffer::Buffer;
use crate::memory::store::{PAGE, Store};
use crate::require;
use crate::validation::fault_injection::Site;
use crate::values::{SizeAndAlign, Storage};

/// Alignment of buffers in a heap, in bytes.
const ALIGN: usize = 256;

/// `MTLHeapTypeAutomatic`.
const AUTOMATIC: isize = 0;
/// `MTLHeapTypePlacement`.
const PLACEMENT: isize = 1;

/// `MTLHeapDescriptor`.
#[derive(Clone)]
pub struct HeapDescriptor {
    size: Property<usize>,
    storage: Property<usize>,
    cache: Property<usize>,
    hazards: Property<usize>,
    kind: Property<isize>,
}

elinvar_objc::object!(HeapDescriptor, c"MTLHeapDescriptor");

impl Default for HeapDescriptor {
    /// Private memory, the documented default of `storageMode`.
    fn default() -> Self {
        let storage = Property::new(Storage::Private as usize);
        let [size, cache, hazards] = [const { 0 }; 3].map(Property::new);
        Self { size, storage, cache, hazards, kind: Property::new(AUTOMATIC) }
    }
}

/// Allocated ranges of a heap, in order: start and end.
type Used = Mutex<Vec<(usize, usize)>>;

/// Memory in which buffers are placed.
pub struct Heap {
    pub device: Ref<Device>,
    store: Arc<Store>,
    options: usize,
    kind: isize,
    used: Arc<Used>,
    label: Property<Option<Ref<NsString>>>,
    purgeable: Mutex<usize>,
}

elinvar_objc::object!(Heap, c"ElinvarMTLHeap");

/// Location of a buffer in its heap.
pub struct Place {
    pub heap: Ref<Heap>,
    pub offset: usize,
    length: usize,
    aliasable: AtomicBool,
}

impl Place {
    /// Makes the memory aliasable.
    pub fn make_aliasable(&self) {
        if !self.aliasable.swap(true, Ordering::AcqRel) && self.heap.kind == AUTOMATIC {
            self.heap.used.lock().retain(|part| part.0 != self.offset);
        }
    }

    /// Whether the memory is aliasable.
    pub fn is_aliasable(&self) -> bool {
        self.aliasable.load(Ordering::Acquire)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let end = self.offset + self.length;
        if !self.is_aliasable() {
            let mut used = self.heap.used.lock();
            if let Some(at) = used.iter().position(|part| *part == (self.offset, end)) {
                used.remove(at);
            }
        }
    }
}

fn size_and_align(length: usize) -> SizeAndAlign {
    SizeAndAlign { size: length.next_multiple_of(ALIGN), align: ALIGN }
}

impl Heap {
    /// `newHeapWithDescriptor:`.
    pub fn with_descriptor(device: &Ref<Device>, descriptor: Ref<HeapDescriptor>) -> Option<Ref<Self>> {
        let (size, kind) = (descriptor.size.get(), descriptor.kind.get());
        require!(size > 0, "newHeapWithDescriptor: the size is 0");
        require!(
            matches!(kind, AUTOMATIC | PLACEMENT),
            "newHeapWithDescriptor: heaps of type {kind} are not supported"
        );
        let storage = Storage::of(descriptor.storage.get());
        require!(
            matches!(storage, Some(Storage::Shared | Storage::Private)),
            "newHeapWithDescriptor: heaps are shared or private, not of storage mode {}",
            descriptor.storage.get()
        );
        if Device::fails(device, Site::Allocation) || device.is_lost() {
            return None;
        }
        let charge = device.account.charge(size.next_multiple_of(PAGE), device.profile.memory)?;
        let store = Store::allocate(&*device.cpu, size, storage?, false, charge)?;
        let options = descriptor.cache.get() | storage?.options() | descriptor.hazards.get() << 8;
        Some(Ref::new(Self {
            device: device.clone(),
            store: Arc::new(store),
            options,
            kind,
            used: Arc::default(),
            label: Property::default(),
            purgeable: Mutex::new(2),
        }))
    }

    /// First-fit: a free range of that length and alignment.
    fn find(used: &[(usize, usize)], size: usize, length: usize, align: usize) -> Option<usize> {
        let ends = std::iter::once(0).chain(used.iter().map(|part| part.1));
        let starts = used.iter().map(|part| part.0).chain([size]);
        ends.zip(starts).find_map(|(end, start)| {
            let at = end.next_multiple_of(align);
            (at.checked_add(length)? <= start).then_some(at)
        })
    }

    fn place(this: &Ref<Self>, length: usize, options: usize) -> Option<Ref<Buffer>> {
        const METHOD: &str = "-[MTLHeap newBufferWithLength:options:]:";
        require!(this.kind == AUTOMATIC, "{METHOD} the program places buffers in a heap of type placement");
        require!(length > 0, "{METHOD} the length is 0");
        this.check_options(METHOD, options)?;
        let mut used = this.used.lock();
        let offset = Self::find(&used, this.store.length(), size_and_align(length).size, ALIGN)?;
        let end = offset + size_and_align(length).size;
        let at = used.partition_point(|part| part.0 < offset);
        used.insert(at, (offset, end));
        drop(used);
        Some(Self::part(this, offset, length))
    }

    fn place_at(this: &Ref<Self>, length: usize, options: usize, offset: usize) -> Option<Ref<Buffer>> {
        const METHOD: &str = "-[MTLHeap newBufferWithLength:options:offset:]:";
        require!(this.kind == PLACEMENT, "{METHOD} the heap places buffers itself");
        require!(length > 0, "{METHOD} the length is 0");
        require!(offset.is_multiple_of(ALIGN), "{METHOD} the offset {offset} is not a multiple of {ALIGN}");
        this.check_options(METHOD, options)?;
        let size = this.store.length();
        let fits = offset.checked_add(length).is_some_and(|end| end <= size);
        require!(fits, "{METHOD} {length} bytes from {offset} on are not within {size} bytes");
        Some(Self::part(this, offset, length))
    }

    fn check_options(&self, method: &str, options: usize) -> Option<()> {
        let (own, given) = (Storage::of_options(self.options), Storage::of_options(options));
        require!(own == given, "{method} the storage mode is {given:?}, the heap's {own:?}");
        Some(())
    }

    fn part(this: &Ref<Self>, offset: usize, length: usize) -> Ref<Buffer> {
        let size = size_and_align(length).size;
        let place = Place { heap: this.clone(), offset, length: size, aliasable: AtomicBool::new(false) };
        Buffer::in_heap(this, this.store.part(offset, length), this.options, place)
    }

    fn used(&self) -> usize {
        self.used.lock().iter().map(|part| part.1 - part.0).sum()
    }

    fn available(this: &Ref<Self>, align: usize) -> usize {
        let (used, size) = (this.used.lock(), this.store.length());
        let ends = std::iter::once(0).chain(used.iter().map(|part| part.1));
        let starts = used.iter().map(|part| part.0).chain([size]);
        let gaps =
            ends.zip(starts).map(|(end, start)| start.saturating_sub(end.next_multiple_of(align.max(1))));
        gaps.max().unwrap_or(0)
    }
}

pub fn register() {
    Declaration::<HeapDescriptor>::new()
        .makes_default()
        .copies()
        .property("size", |d: &HeapDescriptor| &d.size)
        .property("storageMode", |d: &HeapDescriptor| &d.storage)
        .property("cpuCacheMode", |d: &HeapDescriptor| &d.cache)
        .property("hazardTrackingMode", |d: &HeapDescriptor| &d.hazards)
        .property("type", |d: &HeapDescriptor| &d.kind)
        .method("resourceOptions", |this: &Ref<HeapDescriptor>| {
            this.cache.get() | this.storage.get() << 4 | this.hazards.get() << 8
        })
        .method("setResourceOptions:", |this: &Ref<HeapDescriptor>, options: usize| {
            this.cache.set(options & 0xf);
            this.storage.set(options >> 4 & 0xf);
            this.hazards.set(options >> 8 & 3);
        })
        .register();
    Declaration::<Heap>::new()
        .follows(c"MTLHeap")
        .follows(c"MTLAllocation")
        .property("label", |heap: &Heap| &heap.label)
        .method("device", |this: &Ref<Heap>| this.device.clone())
        .method("size", |this: &Ref<Heap>| this.store.length())
        .method("usedSize", |this: &Ref<Heap>| this.used())
        .method("currentAllocatedSize", |this: &Ref<Heap>| this.store.length().next_multiple_of(PAGE))
        .method("allocatedSize", |this: &Ref<Heap>| this.store.length().next_multiple_of(PAGE))
        .method("maxAvailableSizeWithAlignment:", Heap::available)
        .method("storageMode", |this: &Ref<Heap>| this.store.storage() as usize)
        .method("cpuCacheMode", |this: &Ref<Heap>| this.options & 0xf)
        .method("hazardTrackingMode", |this: &Ref<Heap>| this.options >> 8 & 3)
        .method("resourceOptions", |this: &Ref<Heap>| this.options)
        .method("type", |this: &Ref<Heap>| this.kind)
        .method("newBufferWithLength:options:", Heap::place)
        .method("newBufferWithLength:options:offset:", Heap::place_at)
        .method("setPurgeableState:", |this: &Ref<Heap>, state: usize| {
            let mut own = this.purgeable.lock();
            if state == 1 { *own } else { std::mem::replace(&mut *own, state) }
        })
        .register();
}

/// `heapBufferSizeAndAlignWithLength:options:`.
pub fn buffer_size_and_align(_device: &Ref<Device>, length: usize, _options: usize) -> SizeAndAlign {
    size_and_align(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_gap_that_is_large_enough_is_taken() {
        let used = [(0, 256), (512, 768)];
        assert_eq!(Heap::find(&used, 2048, 256, 256), Some(256));
        assert_eq!(Heap::find(&used, 2048, 300, 256), Some(768));
        assert_eq!(Heap::find(&used, 1024, 300, 256), None);
        assert_eq!(Heap::find(&[], 256, 256, 256), Some(0));
    }
}
