//! The runtime's C functions, as Apple's [Objective-C Runtime](https://developer.apple.com/documentation/objectivec/objective-c-runtime)
//! describes them, as far as objc2 and programs on it call them.
#![allow(clippy::missing_safety_doc)] // each takes what the header of that name says: valid pointers, or null where it is allowed

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::class::{Class, Imp, Ivar, Method, demands, protocol};
use crate::object::{Id, Raw};
use crate::pool;
use crate::selector::Selector;
use crate::watch::fatal;

/// `struct objc_method_description`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct MethodDescription {
    name: Selector,
    types: *const c_char,
}

/// The text that a C function was given.
unsafe fn text<'a>(name: *const c_char) -> &'a CStr {
    // SAFETY: the callers' contract: a string that ends with a zero.
    unsafe { CStr::from_ptr(name) }
}

fn or_null<T>(found: Option<&'static T>) -> *const T {
    found.map_or(std::ptr::null(), std::ptr::from_ref)
}

/// Functions of the C interface. Bodies are unsafe: they trust the pointers that C code passes.
macro_rules! c_functions {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {
        $(
            $(#[$meta])*
            #[unsafe(no_mangle)]
            #[allow(unused_unsafe)]
            pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type),*) $(-> $result)? {
                // SAFETY: the callers' contract, which is that of the C function of this name.
                unsafe { $body }
            }
        )*
    };
}

c_functions! {
    fn sel_registerName(name: *const c_char) -> Selector { Selector::of(text(name)) }
    fn sel_getUid(name: *const c_char) -> Selector { Selector::of(text(name)) }
    fn sel_getName(selector: Selector) -> *const c_char { selector.name().as_ptr() }
    fn sel_isEqual(a: Selector, b: Selector) -> bool { a == b }

    fn objc_getClass(name: *const c_char) -> *const Class { or_null(Class::named(text(name))) }
    fn objc_lookUpClass(name: *const c_char) -> *const Class { or_null(Class::named(text(name))) }
    fn objc_getMetaClass(name: *const c_char) -> *const Class { or_null(Class::named(text(name)).map(Class::meta)) }
    fn objc_getRequiredClass(name: *const c_char) -> *const Class {
        let missing = || fatal(format_args!("there is no class {}", text(name).to_string_lossy()));
        Class::named(text(name)).unwrap_or_else(missing)
    }
    fn objc_getClassList(classes: *mut *const Class, length: c_int) -> c_int {
        let all = Class::all();
        if !classes.is_null() {
            for (at, class) in all.iter().take(usize::try_from(length).unwrap_or(0)).enumerate() {
                classes.add(at).write(*class);
            }
        }
        c_int::try_from(all.len()).unwrap_or(c_int::MAX)
    }
    fn objc_copyClassList(length: *mut c_uint) -> *mut *const Class {
        let all = Class::all();
        let list = libc::calloc(all.len() + 1, size_of::<*const Class>()).cast::<*const Class>();
        if list.is_null() {
            fatal(format_args!("no memory for a list of classes"));
        }
        for (at, class) in all.iter().enumerate() {
            list.add(at).write(*class);
        }
        if !length.is_null() {
            length.write(c_uint::try_from(all.len()).unwrap_or(c_uint::MAX));
        }
        list
    }
    fn objc_allocateClassPair(above: *const Class, name: *const c_char, _extra: usize) -> *const Class {
        or_null(Class::create(text(name), above.as_ref()))
    }
    // A class can be used as soon as it is there.
    fn objc_registerClassPair(_class: *const Class) { }
    fn objc_disposeClassPair(_class: *const Class) { }

    fn object_getClass(object: Id) -> *const Class {
        if object.is_null() { std::ptr::null() } else { Raw::class(object) }
    }
    fn object_isClass(object: Id) -> bool { !object.is_null() && Raw::class(object).is_meta() }
    fn class_getName(class: *const Class) -> *const c_char { class.as_ref().map_or(c"nil", Class::name).as_ptr() }
    fn class_isMetaClass(class: *const Class) -> bool { class.as_ref().is_some_and(Class::is_meta) }
    fn class_getSuperclass(class: *const Class) -> *const Class { or_null(class.as_ref().and_then(Class::superclass)) }
    fn class_getInstanceSize(class: *const Class) -> usize { class.as_ref().map_or(0, Class::instance_size) }
    fn class_getVersion(_class: *const Class) -> c_int { 0 }
    fn class_setVersion(_class: *const Class, _version: c_int) { }
    fn class_respondsToSelector(class: *const Class, selector: Selector) -> i8 {
        i8::from(class.as_ref().is_some_and(|class| class.find(selector).is_some()))
    }
    fn class_getInstanceMethod(class: *const Class, selector: Selector) -> *const Method {
        or_null(class.as_ref().and_then(|class| class.find(selector)))
    }
    fn class_getClassMethod(class: *const Class, selector: Selector) -> *const Method {
        or_null(class.as_ref().and_then(|class| class.meta().find(selector)))
    }
    fn class_getMethodImplementation(class: *const Class, selector: Selector) -> Imp {
        class.as_ref().and_then(|class| class.find(selector)).map_or(std::ptr::null(), |method| method.imp)
    }
    fn class_addMethod(class: *const Class, selector: Selector, imp: Imp, types: *const c_char) -> i8 {
        i8::from(class.as_ref().is_some_and(|class| class.add(selector, imp, text(types))))
    }
    fn class_replaceMethod(class: *const Class, selector: Selector, imp: Imp, types: *const c_char) -> Imp {
        let old = class.as_ref().and_then(|class| class.replace(selector, imp, text(types)));
        old.map_or(std::ptr::null(), |method| method.imp)
    }
    fn class_addIvar(class: *const Class, name: *const c_char, size: usize, align: u8, types: *const c_char) -> i8 {
        if let Some(class) = class.as_ref() {
            class.add_ivar(text(name), size, 1 << align, text(types));
        }
        i8::from(!class.is_null())
    }
    fn class_getInstanceVariable(class: *const Class, name: *const c_char) -> *const Ivar {
        or_null(class.as_ref().and_then(|class| class.ivar(text(name))))
    }
    fn class_addProtocol(class: *const Class, protocol: *const c_char) -> i8 {
        if let Some(class) = class.as_ref() {
            class.add_protocol(text(protocol));
        }
        i8::from(!class.is_null())
    }
    fn class_conformsToProtocol(class: *const Class, protocol: *const c_char) -> i8 {
        i8::from(class.as_ref().is_some_and(|class| class.conforms(text(protocol))))
    }
    fn class_createInstance(class: *const Class, _extra: usize) -> Id { objc_alloc(class) }

    fn ivar_getName(ivar: *const Ivar) -> *const c_char { (*ivar).name.as_ptr() }
    fn ivar_getOffset(ivar: *const Ivar) -> isize { (*ivar).offset }
    fn ivar_getTypeEncoding(ivar: *const Ivar) -> *const c_char { (*ivar).types.as_ptr() }

    fn method_getName(method: *const Method) -> Selector { (*method).selector }
    fn method_getImplementation(method: *const Method) -> Imp { (*method).imp }
    fn method_getTypeEncoding(method: *const Method) -> *const c_char { (*method).types.as_ptr() }

    // A protocol is its name; every protocol that is asked for is there.
    fn objc_getProtocol(name: *const c_char) -> *const c_char { protocol(text(name)).as_ptr() }
    fn protocol_getName(protocol: *const c_char) -> *const c_char { protocol }
    fn protocol_copyMethodDescriptionList(
        protocol: *const c_char, required: bool, instance: bool, count: *mut c_uint,
    ) -> *mut MethodDescription {
        let found: Vec<MethodDescription> = demands(text(protocol))
            .iter()
            .filter(|demand| instance && demand.required == required)
            .map(|demand| MethodDescription { name: Selector::of(demand.selector), types: demand.types.as_ptr() })
            .collect();
        if !count.is_null() {
            count.write(c_uint::try_from(found.len()).unwrap_or(0));
        }
        if found.is_empty() {
            return std::ptr::null_mut();
        }
        // The caller frees it.
        let list = libc::calloc(found.len(), size_of::<MethodDescription>()).cast::<MethodDescription>();
        if list.is_null() {
            fatal(format_args!("no memory for a list of methods"));
        }
        std::ptr::copy_nonoverlapping(found.as_ptr(), list, found.len());
        list
    }
    fn protocol_isEqual(a: *const c_char, b: *const c_char) -> i8 { i8::from(a == b) }

    fn objc_alloc(class: *const Class) -> Id {
        match class.as_ref() {
            Some(class) => Raw::allocate(class),
            None => std::ptr::null_mut(),
        }
    }
    fn objc_allocWithZone(class: *const Class) -> Id { objc_alloc(class) }
    fn objc_alloc_init(class: *const Class) -> Id { send_0(objc_alloc(class), c"init") }
    fn objc_opt_new(class: *const Class) -> Id { objc_alloc_init(class) }
    fn objc_retain(object: Id) -> Id { Raw::retain(object) }
    fn objc_release(object: Id) { Raw::release(object) }
    fn objc_autorelease(object: Id) -> Id {
        if !object.is_null() && !Raw::class(object).is_meta() {
            pool::put_off(object);
        }
        object
    }
    fn objc_retainAutorelease(object: Id) -> Id { objc_autorelease(Raw::retain(object)) }
    // The hand-over without a pool between two functions that Apple's compiler does is left out: the pool is right.
    fn objc_autoreleaseReturnValue(object: Id) -> Id { objc_autorelease(object) }
    fn objc_retainAutoreleaseReturnValue(object: Id) -> Id { objc_autorelease(Raw::retain(object)) }
    fn objc_retainAutoreleasedReturnValue(object: Id) -> Id { Raw::retain(object) }
    fn objc_claimAutoreleasedReturnValue(object: Id) -> Id { Raw::retain(object) }
    fn objc_unsafeClaimAutoreleasedReturnValue(object: Id) -> Id { object }
    fn objc_storeStrong(place: *mut Id, object: Id) {
        let old = place.replace(Raw::retain(object));
        Raw::release(old);
    }
    fn objc_autoreleasePoolPush() -> usize { pool::push() }
    fn objc_autoreleasePoolPop(pool: usize) { pool::pop(pool) }
    fn objc_exception_throw(exception: Id) -> ! {
        let class = if exception.is_null() { c"nil" } else { Raw::class(exception).name() };
        fatal(format_args!("an exception of class {} was thrown", class.to_string_lossy()))
    }
    fn objc_terminate() -> ! { fatal(format_args!("an exception was not caught")) }
}

/// Send a message without arguments that returns an object.
pub(crate) unsafe fn send_0(object: Id, name: &CStr) -> Id {
    let selector = Selector::of(name);
    if object.is_null() {
        return object;
    }
    // SAFETY: the callers' contract: an object.
    let class = unsafe { Raw::class(object) };
    let found = class.find(selector);
    let missing =
        || fatal(format_args!("-[{} {selector}]: unrecognized selector", class.name().to_string_lossy()));
    let imp = found.unwrap_or_else(missing).imp;
    // SAFETY: methods of these names take nothing and return an object.
    unsafe {
        let imp: unsafe extern "C-unwind" fn(Id, Selector) -> Id = std::mem::transmute(imp);
        imp(object, selector)
    }
}

/// The system's version, which objc2 reads by this name of the BSD interface.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sysctlbyname(
    name: *const c_char,
    value: *mut c_void,
    length: *mut usize,
    _new: *const c_void,
    _new_length: usize,
) -> c_int {
    // SAFETY: the callers' contract, which is that of the C function of this name.
    unsafe {
        if text(name) != c"kern.osproductversion" {
            return -1;
        }
        let (major, minor) = crate::foundation::os_version();
        let version = format!("{major}.{minor}\0");
        if !value.is_null() {
            let fits = version.len().min(*length);
            std::ptr::copy_nonoverlapping(version.as_ptr(), value.cast(), fits);
        }
        *length = version.len();
        0
    }
}
