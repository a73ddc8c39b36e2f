//! `NSData`: bytes; and `dispatch_data_t`, which is the same object here, as Apple says that the two are
//! [interchangeable](https://developer.apple.com/documentation/dispatch/dispatch-data).

use std::ffi::c_void;

use crate::block::Block;
use crate::declare::Declaration;
use crate::object::Id;
use crate::reference::Ref;
use crate::value::{Argument, NsRange, bytes_of};
use crate::watch::fatal;

/// Bytes that do not change.
#[derive(Clone, Default)]
pub struct NsData(Box<[u8]>);

crate::object!(NsData, c"NSData");

impl NsData {
    /// A new data object.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Ref<Self> {
        Ref::new(Self(bytes.into()))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn from_c(bytes: *const c_void, length: usize) -> Option<Self> {
        // SAFETY: the caller passes so many bytes.
        let bytes = unsafe { bytes_of(bytes, length) };
        Some(Self(bytes.into()))
    }

    fn copy_range(this: &Ref<Self>, to: *mut c_void, range: NsRange) {
        let Some(bytes) = range.end().and_then(|end| this.0.get(range.location..end)) else {
            fatal(format_args!("-[NSData getBytes:range:]: {range:?} of {} bytes", this.0.len()));
        };
        // SAFETY: the caller passes room for the range.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
    }
}

pub(super) fn register() {
    Declaration::<NsData>::new()
        .follows(c"OS_dispatch_data")
        .makes_default()
        .init("initWithBytes:length:", NsData::from_c)
        .class_method("data", || NsData::new([]))
        .class_method("dataWithBytes:length:", |bytes: *const c_void, length: usize| {
            NsData::from_c(bytes, length).map(Ref::new)
        })
        .method("length", |this: &Ref<NsData>| this.0.len())
        .method("bytes", |this: &Ref<NsData>| this.0.as_ptr().cast::<c_void>())
        .method("getBytes:range:", NsData::copy_range)
        .method("getBytes:length:", |this: &Ref<NsData>, to: *mut c_void, length: usize| {
            NsData::copy_range(this, to, NsRange { location: 0, length: length.min(this.0.len()) });
        })
        .method("isEqualToData:", |this: &Ref<NsData>, other: Ref<NsData>| this.0 == other.0)
        .method("copyWithZone:", |this: &Ref<NsData>, _: *mut c_void| this.clone())
        .register();
}

/// The default destructor says to copy the bytes. Others would be called when the data goes; here they are copied at
/// once, and the destructor is called at once.
///
/// # Safety
/// `bytes` has so many; `destructor` is a block that takes nothing, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn dispatch_data_create(
    bytes: *const c_void,
    length: usize,
    _queue: Id,
    destructor: <Option<Block<()>> as Argument>::Raw,
) -> Id {
    let data = NsData::from_c(bytes, length).map(Ref::new);
    // SAFETY: the caller's promise.
    if let Some(destructor) = unsafe { Option::<Block<()>>::from_raw(destructor) } {
        destructor.call();
    }
    data.map_or(std::ptr::null_mut(), |data| data.into_object().into_owned())
}

/// # Safety
/// `data` is a data object.
#[unsafe(no_mangle)]
unsafe extern "C" fn dispatch_data_get_size(data: Id) -> usize {
    // SAFETY: the caller's promise.
    unsafe { Ref::<NsData>::from_raw(data) }.0.len()
}
