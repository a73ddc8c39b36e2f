//! [`Class`]: methods by selector, instance variables, the class above; and the registry of all classes.
//!
//! Classes are never freed. Each begins with what `send` reads: the class of the class, the class above, the method cache.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::selector::Selector;
use crate::send::{ANY, Cache, EMPTY};

/// A method's code. What it takes is said by its types.
pub(crate) type Imp = *const c_void;

/// A method of a class.
pub(crate) struct Method {
    pub(crate) selector: Selector,
    pub(crate) imp: Imp,
    pub(crate) types: CString,
}

// SAFETY: nothing of it changes, and code may be called from any thread.
unsafe impl Send for Method {}
// SAFETY: as above.
unsafe impl Sync for Method {}

/// An instance variable.
pub(crate) struct Ivar {
    pub(crate) name: CString,
    pub(crate) types: CString,
    pub(crate) offset: isize,
}

/// A class, or the class of a class.
#[repr(C)]
pub struct Class {
    isa: AtomicPtr<Class>,
    superclass: *const Class,
    pub(crate) cache: AtomicPtr<Cache>,
    name: CString,
    is_meta: bool,
    /// Bytes of an instance, with the pointer to its class.
    size: AtomicUsize,
    /// Instances that are not freed yet.
    pub(crate) live: AtomicUsize,
    methods: RwLock<HashMap<Selector, &'static Method>>,
    ivars: Mutex<Vec<&'static Ivar>>,
    protocols: Mutex<Vec<&'static CStr>>,
}

// SAFETY: pointers to classes, which stay; what changes is atomic or behind a lock.
unsafe impl Send for Class {}
// SAFETY: as above.
unsafe impl Sync for Class {}

#[derive(Default)]
struct Registry {
    classes: HashMap<&'static CStr, &'static Class>,
    protocols: HashMap<CString, &'static CStr>,
    /// What protocols demand of objects, as far as it was said.
    demands: HashMap<&'static CStr, &'static [Demand]>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

impl Class {
    /// A new class with its metaclass; `None` if there is one of that name.
    pub(crate) fn create(name: &CStr, superclass: Option<&'static Class>) -> Option<&'static Class> {
        let mut registry = REGISTRY.write();
        if registry.classes.contains_key(name) {
            return None;
        }
        let meta = Self::leak(name, true, superclass.map(Class::meta));
        let class = Self::leak(name, false, superclass);
        class.isa.store(std::ptr::from_ref(meta).cast_mut(), Ordering::Release);
        // The class of every metaclass is the root's; the root's metaclass is below the root itself.
        let root = superclass.map_or(meta, |superclass| superclass.meta().meta());
        meta.isa.store(std::ptr::from_ref(root).cast_mut(), Ordering::Release);
        registry.classes.insert(&class.name, class);
        Some(class)
    }

    fn leak(name: &CStr, is_meta: bool, superclass: Option<&'static Class>) -> &'static Class {
        let size = superclass.map_or(8, Class::instance_size);
        Box::leak(Box::new(Self {
            isa: AtomicPtr::default(),
            superclass: superclass.map_or(std::ptr::null(), std::ptr::from_ref),
            cache: AtomicPtr::new((&raw const EMPTY).cast_mut()),
            name: name.to_owned(),
            is_meta,
            size: AtomicUsize::new(size),
            live: AtomicUsize::new(0),
            methods: RwLock::default(),
            ivars: Mutex::default(),
            protocols: Mutex::default(),
        }))
    }

    /// The class of that name.
    pub fn named(name: &CStr) -> Option<&'static Class> {
        REGISTRY.read().classes.get(name).copied()
    }

    /// All classes.
    pub(crate) fn all() -> Vec<&'static Class> {
        REGISTRY.read().classes.values().copied().collect()
    }

    /// Its name.
    pub fn name(&self) -> &CStr {
        &self.name
    }

    pub(crate) fn is_meta(&self) -> bool {
        self.is_meta
    }

    pub(crate) fn superclass(&self) -> Option<&'static Class> {
        // SAFETY: null or a class, which stays.
        unsafe { self.superclass.as_ref() }
    }

    /// The class that answers messages to this one.
    pub(crate) fn meta(&self) -> &'static Class {
        // SAFETY: set when the class was made, to one that stays.
        unsafe { &*self.isa.load(Ordering::Acquire) }
    }

    /// This class and those above it.
    pub(crate) fn line(&self) -> impl Iterator<Item = &Class> {
        std::iter::successors(Some(self), |class| class.superclass())
    }

    pub(crate) fn is_below(&self, other: &Class) -> bool {
        self.line().any(|class| std::ptr::eq(class, other))
    }

    pub(crate) fn instance_size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    /// Add a method; `false` if the class itself has one of that name.
    pub(crate) fn add(&self, selector: Selector, imp: Imp, types: &CStr) -> bool {
        let mut methods = self.methods.write();
        if methods.contains_key(&selector) {
            return false;
        }
        methods.insert(selector, Box::leak(Box::new(Method { selector, imp, types: types.to_owned() })));
        drop(methods);
        self.forget_cached();
        true
    }

    pub(crate) fn replace(&self, selector: Selector, imp: Imp, types: &CStr) -> Option<&'static Method> {
        let method = Box::leak(Box::new(Method { selector, imp, types: types.to_owned() }));
        let old = self.methods.write().insert(selector, method);
        self.forget_cached();
        old
    }

    /// Let this class, those below it and their metaclasses look methods up anew.
    fn forget_cached(&self) {
        if !ANY.load(Ordering::Acquire) {
            return;
        }
        for class in Self::all() {
            for class in [class, class.meta()] {
                if class.is_below(self) {
                    // What another thread reads of the old one stays readable: caches are never freed.
                    class.cache.store((&raw const EMPTY).cast_mut(), Ordering::Release);
                }
            }
        }
    }

    /// The method that answers a selector, here or above.
    pub(crate) fn find(&self, selector: Selector) -> Option<&'static Method> {
        self.line().find_map(|class| class.methods.read().get(&selector).copied())
    }

    /// Add an instance variable behind those there are.
    pub(crate) fn add_ivar(&self, name: &CStr, size: usize, align: usize, types: &CStr) {
        let offset = self.size.load(Ordering::Relaxed).next_multiple_of(align);
        self.size.store(offset + size, Ordering::Relaxed);
        let offset = isize::try_from(offset).expect("instances are small");
        let ivar = Ivar { name: name.to_owned(), types: types.to_owned(), offset };
        self.ivars.lock().push(Box::leak(Box::new(ivar)));
    }

    pub(crate) fn ivar(&self, name: &CStr) -> Option<&'static Ivar> {
        self.line().find_map(|class| class.ivars.lock().iter().copied().find(|ivar| *ivar.name == *name))
    }

    pub(crate) fn add_protocol(&self, name: &'static CStr) {
        self.protocols.lock().push(name);
    }

    /// Whether it, or a class above it, follows the protocol of that name.
    pub(crate) fn conforms(&self, protocol: &CStr) -> bool {
        self.line().any(|class| class.protocols.lock().contains(&protocol))
    }
}

/// A method of objects that a protocol speaks of.
#[derive(Clone, Copy)]
pub struct Demand {
    /// Its name.
    pub selector: &'static CStr,
    /// Its types.
    pub types: &'static CStr,
    /// Whether what follows the protocol has to have it.
    pub required: bool,
}

/// Say what a protocol demands. objc2 looks for the methods of a class that a program declares among these.
pub fn describe(protocol_name: &CStr, demands: &'static [Demand]) {
    let protocol = protocol(protocol_name);
    REGISTRY.write().demands.insert(protocol, demands);
}

/// What a protocol demands; nothing where that was not said.
pub(crate) fn demands(protocol: &CStr) -> &'static [Demand] {
    REGISTRY.read().demands.get(protocol).copied().unwrap_or_default()
}

/// The protocol of that name: its name, once in memory.
pub(crate) fn protocol(name: &CStr) -> &'static CStr {
    let mut registry = REGISTRY.write();
    if let Some(known) = registry.protocols.get(name) {
        return known;
    }
    let own: &'static CStr = Box::leak(name.to_owned().into_boxed_c_str());
    registry.protocols.insert(name.to_owned(), own);
    own
}
