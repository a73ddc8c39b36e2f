//! [`Buffer`]: [`MTLBuffer`](https://developer.apple.com/documentation/metal/mtlbuffer), including
//! [`MTLResource`](https://developer.apple.com/documentation/metal/mtlresource).

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use elinvar_objc::foundation::NsString;
use elinvar_objc::{Block, Declaration, NsRange, Property, Ref};
use parking_lot::Mutex;

use crate::device::Device;
use crate::memory::heap::{Heap, Place};
use crate::memory::store::{PAGE, Store};
use crate::require;
use crate::validation::fault_injection::Site;
use crate::values::{Storage, within};

/// `MTLBuffer`.
pub struct Buffer {
    device: Ref<Device>,
    store: Arc<Store>,
    options: usize,
    label: Property<Option<Ref<NsString>>>,
    purgeable: Mutex<usize>,
    place: Option<Place>,
    /// The buffer of another device, if this is a remote view.
    remote: Option<Ref<Buffer>>,
}

elinvar_objc::object!(Buffer, c"ElinvarMTLBuffer");

/// `MTLPurgeableStateNonVolatile`.
const NON_VOLATILE: usize = 2;

impl Buffer {
    fn new(device: &Ref<Device>, store: Store, options: usize, place: Option<Place>) -> Ref<Self> {
        Ref::new(Self {
            device: device.clone(),
            store: Arc::new(store),
            options,
            label: Property::default(),
            purgeable: Mutex::new(NON_VOLATILE),
            place,
            remote: None,
        })
    }

    /// Creates a buffer in a heap.
    pub fn in_heap(heap: &Ref<Heap>, store: Store, options: usize, place: Place) -> Ref<Self> {
        Self::new(&heap.device, store, options, Some(place))
    }

    /// `newBufferWithLength:options:`.
    pub fn with_length(device: &Ref<Device>, length: usize, options: usize) -> Option<Ref<Self>> {
        require!(length > 0, "newBufferWithLength:options: the length is 0");
        let storage = Storage::of_options(options);
        require!(
            matches!(storage, Some(Storage::Shared | Storage::Managed | Storage::Private)),
            "newBufferWithLength:options: buffers have no storage mode {options:#x}"
        );
        let limit = device.profile.buffer;
        require!(length <= limit, "newBufferWithLength:options: {length} bytes: the limit is {limit}");
        if Device::fails(device, Site::Allocation) || device.is_lost() {
            return None;
        }
        let charge = device.account.charge(length.next_multiple_of(PAGE), device.profile.memory)?;
        let store = Store::allocate(&*device.cpu, length, storage?, !device.profile.unified, charge)?;
        Some(Self::new(device, store, options, None))
    }

    /// `newBufferWithBytes:length:options:`.
    pub fn with_bytes(
        device: &Ref<Device>,
        bytes: *const c_void,
        length: usize,
        options: usize,
    ) -> Option<Ref<Self>> {
        require!(!bytes.is_null(), "newBufferWithBytes:length:options: the bytes are null");
        let private = Storage::of_options(options) == Some(Storage::Private);
        require!(!private, "newBufferWithBytes:length:options: the host cannot write to a private buffer");
        let buffer = Self::with_length(device, length, options)?;
        // SAFETY: the program passes so many bytes.
        unsafe { buffer.store.fill(bytes.cast(), length) };
        Some(buffer)
    }

    /// `newBufferWithBytesNoCopy:length:options:deallocator:`: whole pages.
    pub fn without_copy(
        device: &Ref<Device>,
        bytes: *mut c_void,
        length: usize,
        options: usize,
        deallocator: Option<Block<(*mut c_void, usize)>>,
    ) -> Option<Ref<Self>> {
        const METHOD: &str = "newBufferWithBytesNoCopy:length:options:deallocator:";
        // The host system's page size counts, which is smaller than Apple's.
        let page = usize::try_from(device.cpu.caps().limits.wrap_granule.unwrap_or(1)).unwrap_or(1);
        let address = NonNull::new(bytes.cast::<u8>());
        let is_aligned = bytes.addr().is_multiple_of(page);
        require!(address.is_some() && is_aligned, "{METHOD} the address {bytes:p} is not a page's");
        require!(
            length > 0 && length.is_multiple_of(page),
            "{METHOD} {length} bytes are not a whole number of pages"
        );
        let shared = Storage::of_options(options) == Some(Storage::Shared);
        require!(shared, "{METHOD} the storage mode {options:#x} is not the shared one");
        if Device::fails(device, Site::Allocation) {
            return None;
        }
        // SAFETY: the program guarantees that the memory stays valid until the deallocator is called.
        let store = unsafe { Store::borrow(&*device.cpu, address?, length, Storage::Shared, deallocator) }?;
        Some(Self::new(device, store, options, None))
    }

    /// The device that owns the memory.
    pub fn device(&self) -> &Ref<Device> {
        &self.device
    }

    /// The bytes.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Whether it is a remote view.
    pub fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// A remote view for another device of the peer group, which can only copy from it.
    /// [The buffer must be private](https://developer.apple.com/documentation/metal/mtlbuffer/makeremotebufferview(_:)).
    fn remote_view(this: &Ref<Self>, device: Ref<Device>) -> Option<Ref<Self>> {
        const METHOD: &str = "newRemoteBufferViewForDevice:";
        let private = this.store.storage() == Storage::Private;
        require!(private, "{METHOD} the buffer is not private");
        let (own, other) = (this.device.peer_group(), device.peer_group());
        require!(own != 0 && own == other, "{METHOD} the devices are not in the same peer group");
        Some(Ref::new(Self {
            device,
            store: this.store.clone(),
            options: this.options,
            label: Property::default(),
            purgeable: Mutex::new(NON_VOLATILE),
            place: None,
            remote: Some(this.clone()),
        }))
    }

    fn did_modify(this: &Ref<Self>, range: NsRange) {
        let length = this.store.length();
        require!(within(range, length), "didModifyRange: {range:?} is not within {length} bytes");
        let managed = this.store.storage() == Storage::Managed;
        require!(managed, "didModifyRange: the buffer is not managed");
        this.store.push(range.location, range.length);
    }

    fn set_purgeable(this: &Ref<Self>, state: usize) -> usize {
        let mut own = this.purgeable.lock();
        // 1 keeps the state.
        if state == 1 { *own } else { std::mem::replace(&mut own, state) }
    }
}

/// How a command buffer refers to a buffer: retained or not.
#[derive(Clone)]
pub enum Held {
    /// Retained, the default.
    Alive(Ref<Buffer>),
    /// Unretained references.
    Trusting(Weak<Store>),
}

impl Held {
    /// Refers to a buffer, retained or not.
    pub fn new(buffer: &Ref<Buffer>, alive: bool) -> Self {
        if alive { Self::Alive(buffer.clone()) } else { Self::Trusting(Arc::downgrade(&buffer.store)) }
    }

    /// The bytes; `None` if the program has freed the buffer.
    pub fn store(&self) -> Option<Arc<Store>> {
        match self {
            Self::Alive(buffer) => Some(buffer.store.clone()),
            Self::Trusting(store) => store.upgrade(),
        }
    }
}

pub fn register() {
    let buffer = Declaration::<Buffer>::new()
        .follows(c"MTLBuffer")
        .follows(c"MTLResource")
        .follows(c"MTLAllocation")
        .method("length", |this: &Ref<Buffer>| this.store.length())
        .method("contents", |this: &Ref<Buffer>| this.store.contents().cast::<c_void>())
        .method("gpuAddress", |this: &Ref<Buffer>| this.store.gpu_address())
        .method("didModifyRange:", Buffer::did_modify)
        .method("addDebugMarker:range:", |_: &Ref<Buffer>, _marker: Ref<NsString>, _range: NsRange| {})
        .method("newRemoteBufferViewForDevice:", Buffer::remote_view)
        .method("remoteStorageBuffer", |this: &Ref<Buffer>| this.remote.clone())
        .method("removeAllDebugMarkers", |_: &Ref<Buffer>| {});
    buffer
        .property("label", |buffer: &Buffer| &buffer.label)
        .method("device", |this: &Ref<Buffer>| this.device.clone())
        .method("resourceOptions", |this: &Ref<Buffer>| this.options)
        .method("storageMode", |this: &Ref<Buffer>| this.store.storage() as usize)
        .method("cpuCacheMode", |this: &Ref<Buffer>| this.options & 0xf)
        .method("hazardTrackingMode", |this: &Ref<Buffer>| this.options >> 8 & 3)
        .method("allocatedSize", |this: &Ref<Buffer>| this.store.length().next_multiple_of(PAGE))
        .method("setPurgeableState:", Buffer::set_purgeable)
        .method("heap", |this: &Ref<Buffer>| this.place.as_ref().map(|place| place.heap.clone()))
        .method("heapOffset", |this: &Ref<Buffer>| this.place.as_ref().map_or(0, |place| place.offset))
        .method("makeAliasable", |this: &Ref<Buffer>| {
            if let Some(place) = &this.place {
                place.make_aliasable();
            }
        })
        .method("isAliasable", |this: &Ref<Buffer>| this.place.as_ref().is_some_and(Place::is_aliasable))
        .register();
}
