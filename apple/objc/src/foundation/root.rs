//! `NSObject`: what every object answers.

use std::ffi::c_void;

use crate::abi::send_0;
use crate::class::{Class, Demand, describe};
use crate::declare::Declaration;
use crate::foundation::NsString;
use crate::object::{Id, Raw};
use crate::reference::{Object, Ref};
use crate::selector::Selector;

/// What an object of no other class holds: nothing.
struct NsObject;

crate::object!(NsObject, c"NSObject");

pub(super) fn register() {
    const COPYING: [Demand; 1] =
        [Demand { selector: c"copyWithZone:", types: c"@@:^{_NSZone=}", required: true }];
    describe(c"NSCopying", &COPYING);
    Declaration::<NsObject>::new()
        .method("class", |this: &Object| std::ptr::from_ref(this.class()))
        .method("superclass", |this: &Object| {
            this.class().superclass().map_or(std::ptr::null(), std::ptr::from_ref)
        })
        .method("hash", |this: &Object| this.id().addr())
        .method("isEqual:", |this: &Object, other: Option<Object>| other.is_some_and(|o| o.id() == this.id()))
        .method("isKindOfClass:", is_kind_of)
        .method("isMemberOfClass:", |this: &Object, class: *const Class| std::ptr::eq(this.class(), class))
        .method("isProxy", |_: &Object| false)
        .method("respondsToSelector:", |this: &Object, selector: Selector| {
            this.class().find(selector).is_some()
        })
        .method("retainCount", retain_count)
        .method("description", description)
        .method("debugDescription", description)
        .register_below(None);
    unmanaged();
}

/// Methods about references themselves. They take and return pointers as they are: nothing else may count here.
fn unmanaged() {
    extern "C" fn itself(this: Id, _: Selector) -> Id {
        this
    }
    extern "C" fn retain(this: Id, _: Selector) -> Id {
        // SAFETY: messages are sent to objects and classes.
        unsafe { Raw::retain(this) }
    }
    extern "C" fn release(this: Id, _: Selector) {
        // SAFETY: who sends this owns a reference.
        unsafe { Raw::release(this) }
    }
    extern "C" fn autorelease(this: Id, _: Selector) -> Id {
        // SAFETY: as above.
        unsafe { crate::abi::objc_autorelease(this) }
    }
    extern "C" fn dealloc(this: Id, _: Selector) {
        // SAFETY: sent when the last reference has gone.
        unsafe { Raw::free(this) }
    }
    extern "C" fn alloc(this: Id, _: Selector) -> Id {
        // SAFETY: sent to classes.
        unsafe { crate::abi::objc_alloc(this.cast_const().cast()) }
    }
    extern "C" fn alloc_with_zone(this: Id, selector: Selector, _zone: *mut c_void) -> Id {
        alloc(this, selector)
    }
    extern "C" fn new(this: Id, selector: Selector) -> Id {
        // SAFETY: `init` takes nothing and returns an object.
        unsafe { send_0(alloc(this, selector), c"init") }
    }
    extern "C" fn copy(this: Id, _: Selector) -> Id {
        // SAFETY: sent to an object; the zone is ignored by everybody.
        unsafe { send_0(this, c"copyWithZone:") }
    }
    let class = Class::named(c"NSObject").expect("registered just now");
    class.add(Selector::of(c"init"), itself as *const c_void, c"@@:");
    class.add(Selector::of(c"self"), itself as *const c_void, c"@@:");
    class.add(Selector::of(c"retain"), retain as *const c_void, c"@@:");
    class.add(Selector::of(c"release"), release as *const c_void, c"v@:");
    class.add(Selector::of(c"autorelease"), autorelease as *const c_void, c"@@:");
    class.add(Selector::of(c"dealloc"), dealloc as *const c_void, c"v@:");
    class.add(Selector::of(c"copy"), copy as *const c_void, c"@@:");
    class.add(Selector::of(c"mutableCopy"), copy as *const c_void, c"@@:");
    class.meta().add(Selector::of(c"alloc"), alloc as *const c_void, c"@@:");
    class.meta().add(Selector::of(c"allocWithZone:"), alloc_with_zone as *const c_void, c"@@:^v");
    class.meta().add(Selector::of(c"new"), new as *const c_void, c"@@:");
    class.meta().add(Selector::of(c"class"), itself as *const c_void, c"#@:");
}

fn is_kind_of(this: &Object, class: *const Class) -> bool {
    // SAFETY: a class, or null.
    unsafe { class.as_ref() }.is_some_and(|class| this.class().is_below(class))
}

fn retain_count(this: &Object) -> usize {
    // SAFETY: the receiver is an object.
    unsafe { Raw::count(this.id()) }
}

fn description(this: &Object) -> Ref<NsString> {
    NsString::new(&format!("<{}: {:p}>", this.class().name().to_string_lossy(), this.id()))
}
