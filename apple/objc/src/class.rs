//! [`Class`]: methods by selector, instance variables, superclass; and the registry of all classes.
//!
//! Classes are never freed. The first fields are those that `send` reads: metaclass, superclass, method cache.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::selector::Selector;
use crate::send::{ANY, Cache, EMPTY};

/// Implementation of a method, whose type is given by its encoding.
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

/// A class or metaclass.
#[repr(C)]
pub struct Class {
    isa: AtomicPtr<Class>,
    superclass: *const Class,
    pub(crate) cache: AtomicPtr<Cache>,
    name: CString,
    is_meta: bool,
    /// Size of an instance in bytes, including the class pointer.
    size: AtomicUsize,
    /// Number of live instances.
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
    /// Method declarations of protocols, as far as registered.
    demands: HashMap<&'static CStr, &'static [Demand]>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

impl Class {
    /// Creates a class and its metaclass; `None` if the name is taken.
    pub(crate) fn create(name: &CStr, superclass: Option<&'static Class>) -> Option<&'static Class> {
        let mut registry = REGISTRY.write();
        if registry.classes.contains_key(name) {
            return None;
        }
        let meta = Self::leak(name, true, superclass.map(Class::meta));
        let class = Self::leak(name, false, superclass);
        class.isa.store(std::ptr::from_ref(meta).cast_mut(), Ordering::Release);
        // The class of every metaclass is the root metaclass; the superclass of the root metaclass is the root class.
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

    /// Looks up a class by name.
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

    /// The metaclass.
    pub(crate) fn meta(&self) -> &'static Class {
        // SAFETY: set when the class was made, to one that stays.
        unsafe { &*self.isa.load(Ordering::Acquire) }
    }

    /// This class and its superclasses.
    pub(crate) fn line(&self) -> impl Iterator<Item = &Class> {
        std::iter::successors(Some(self), |class| class.superclass())
    }

    pub(crate) fn is_below(&self, other: &Class) -> bool {
        self.line().any(|class| std::ptr::eq(class, other))
    }

    pub(crate) fn instance_size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    /// Adds a method; `false` if the class itself already has one with that name.
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

    /// Invalidates the method caches of this class, its subclasses and their metaclasses.
    fn forget_cached(&self) {
        if !ANY.load(Ordering::Acquire) {
            return;
        }
        for class in Self::all() {
            for class in [class, class.meta()] {
                if class.is_below(self) {
                    // Old caches stay readable for other threads: caches are never freed.
                    class.cache.store((&raw const EMPTY).cast_mut(), Ordering::Release);
                }
            }
        }
    }

    /// Looks up the method for a selector, including superclasses.
    pub(crate) fn find(&self, selector: Selector) -> Option<&'static Method> {
        self.line().find_map(|class| class.methods.read().get(&selector).copied())
    }

    /// Appends an instance variable.
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

    /// Whether it or a superclass conforms to the protocol with that name.
    pub(crate) fn conforms(&self, protocol: &CStr) -> bool {
        self.line().any(|class| class.protocols.lock().contains(&protocol))
    }
}

/// A method declaration of a protocol.
#[derive(Clone, Copy)]
pub struct Demand {
    /// Selector name.
    pub selector: &'static CStr,
    /// Type encoding.
    pub types: &'static CStr,
    /// Whether it is required.
    pub required: bool,
}

/// Registers a protocol's methods, in which objc2 looks up those of a class that a program declares.
pub fn describe(protocol_name: &CStr, demands: &'static [Demand]) {
    let protocol = protocol(protocol_name);
    REGISTRY.write().demands.insert(protocol, demands);
}

/// The methods of a protocol; empty if not registered.
pub(crate) fn demands(protocol: &CStr) -> &'static [Demand] {
    REGISTRY.read().demands.get(protocol).copied().unwrap_or_default()
}

/// The protocol with that name: a unique pointer per name.
pub(crate) fn protocol(name: &CStr) -> &'static CStr {
    let mut registry = REGISTRY.write();
    if let Some(known) = registry.protocols.get(name) {
        return known;
    }
    let own: &'static CStr = Box::leak(name.to_owned().into_boxed_c_str());
    registry.protocols.insert(name.to_owned(), own);
    own
}
