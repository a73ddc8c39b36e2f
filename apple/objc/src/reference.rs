//! Strong references: [`Ref`] to an object of one of the stand-in's classes, [`Object`] to any object.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::class::Class;
use crate::declare::Declared;
use crate::object::{Id, Raw};
use crate::pool;
use crate::selector::Selector;
use crate::watch::fatal;

/// A reference to an object of any class.
pub struct Object(NonNull<Raw>);

// SAFETY: counts are atomic, and our own objects are shared between threads as frameworks do. A program that hands an
// object of its own to a framework promises the same.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    /// Takes ownership of a reference; `None` for nil.
    ///
    /// # Safety
    /// `id` is nil or an object to which the caller owns a reference.
    pub unsafe fn from_owned(id: Id) -> Option<Self> {
        NonNull::new(id).map(Self)
    }

    /// Retains an object; `None` for nil.
    ///
    /// # Safety
    /// `id` is nil or an object.
    pub unsafe fn from_lent(id: Id) -> Option<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::from_owned(Raw::retain(id)) }
    }

    /// The pointer for C code, unowned.
    pub fn id(&self) -> Id {
        self.0.as_ptr()
    }

    /// Passes ownership of the reference to C code.
    pub fn into_owned(self) -> Id {
        ManuallyDrop::new(self).id()
    }

    /// Autoreleases the reference.
    pub fn into_lent(self) -> Id {
        let id = self.into_owned();
        pool::put_off(id);
        id
    }

    /// Its class.
    pub fn class(&self) -> &'static Class {
        // SAFETY: an object, since we own a reference.
        unsafe { Raw::class(self.id()) }
    }

    /// The implementation of a message, if the object responds to it.
    pub fn implementation(&self, selector: Selector) -> Option<*const c_void> {
        self.class().find(selector).map(|method| method.imp)
    }

    /// Downcast to one of the stand-in's classes.
    pub fn downcast<T: Declared>(&self) -> Option<Ref<T>> {
        if self.class().is_meta() {
            return None;
        }
        // SAFETY: a counted object, which stays as long as the reference that is made of it.
        let held = unsafe { Raw::payload(self.id()) }?.downcast_ref::<T>()?;
        Some(Ref { held: NonNull::from(held), object: self.clone() })
    }
}

impl Clone for Object {
    fn clone(&self) -> Self {
        // SAFETY: an object, since we own a reference.
        unsafe { Raw::retain(self.id()) };
        Self(self.0)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: we own a reference.
        unsafe { Raw::release(self.id()) };
    }
}

/// A reference to an object that holds a `T`.
pub struct Ref<T> {
    object: Object,
    held: NonNull<T>,
}

// SAFETY: what is held is shared only if it may be.
unsafe impl<T: Send + Sync> Send for Ref<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Ref<T> {}

impl<T: Declared> Ref<T> {
    /// Allocates an object of `T`'s class.
    pub fn new(held: T) -> Self {
        Self::of_class(T::class(), held)
    }

    /// Allocates an object of a subclass of `T`'s class.
    pub fn of_class(class: &'static Class, held: T) -> Self {
        let object = Raw::allocate(class);
        // SAFETY: it is new, and nobody else has it.
        let object = unsafe {
            Raw::fill(object, Box::new(held));
            Object::from_owned(object)
        };
        let made = object.as_ref().and_then(Object::downcast);
        made.unwrap_or_else(|| {
            fatal(format_args!("an object of {} has nothing in it", class.name().to_string_lossy()))
        })
    }
}

impl<T> Ref<T> {
    /// Upcast.
    pub fn into_object(self) -> Object {
        self.object
    }

    /// Upcast.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The pointer for C code, unowned.
    pub fn id(&self) -> Id {
        self.object.id()
    }

    /// Whether both are the same object.
    pub fn is(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl<T: Declared + Default> Default for Ref<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        Self { object: self.object.clone(), held: self.held }
    }
}

impl<T> Deref for Ref<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the object holds it as long as it lives, and we own a reference.
        unsafe { self.held.as_ref() }
    }
}

/// Receiver of a method.
pub trait Receiver: Sized {
    /// # Safety
    /// `id` is an object or a class that lives while the result is used.
    unsafe fn borrow(id: Id) -> ManuallyDrop<Self>;
}

impl Receiver for Object {
    unsafe fn borrow(id: Id) -> ManuallyDrop<Self> {
        // SAFETY: the caller passes no nil.
        ManuallyDrop::new(Self(unsafe { NonNull::new_unchecked(id) }))
    }
}

impl<T: Declared> Receiver for Ref<T> {
    unsafe fn borrow(id: Id) -> ManuallyDrop<Self> {
        // SAFETY: the caller's promise.
        let object = ManuallyDrop::into_inner(unsafe { Object::borrow(id) });
        // SAFETY: as above.
        let held = unsafe { Raw::payload(id) }.and_then(|held| held.downcast_ref::<T>());
        match held {
            Some(held) => ManuallyDrop::new(Self { held: NonNull::from(held), object }),
            None => fatal(format_args!(
                "an object of class {} was used before it was initialized",
                object.class().name().to_string_lossy()
            )),
        }
    }
}
