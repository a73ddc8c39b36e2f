//! Declaration of classes from Rust types: [`Declaration`] adds functions as methods and derives their type encodings.
//!
//! A Rust function item is a zero-sized value with its own type. The C function of a method is generated for that type and calls it directly:
//! there is no lookup, and a wrong signature is a compile-time error.

use std::any::Any;
use std::ffi::{CStr, CString, c_void};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::class::{Class, protocol};
use crate::object::{Id, Raw};
use crate::reference::{Receiver, Ref};
use crate::selector::Selector;
use crate::value::{Argument, Encoded, Return};
use crate::watch::fatal;

/// A Rust type that objects of a class hold. Implement it with [`object!`](crate::object!).
pub trait Declared: Any + Send + Sync + Sized {
    /// The class's name.
    const NAME: &'static CStr;

    /// Where the class is cached.
    fn slot() -> &'static OnceLock<&'static Class>;

    /// The class.
    fn class() -> &'static Class {
        let missing = || fatal(format_args!("the class {} is not registered", Self::NAME.to_string_lossy()));
        Self::slot().get().copied().unwrap_or_else(missing)
    }
}

/// Declares a class whose objects hold a type: `object!(Buffer, c"MTLBuffer…")`.
#[macro_export]
macro_rules! object {
    ($type:ty, $name:literal) => {
        impl $crate::Declared for $type {
            const NAME: &'static ::std::ffi::CStr = $name;

            fn slot() -> &'static ::std::sync::OnceLock<&'static $crate::Class> {
                static CLASS: ::std::sync::OnceLock<&'static $crate::Class> = ::std::sync::OnceLock::new();
                &CLASS
            }
        }
    };
}

/// A class under construction.
pub struct Declaration<T> {
    superclass: &'static CStr,
    protocols: Vec<&'static CStr>,
    methods: Vec<MethodDeclaration>,
    type_: PhantomData<T>,
}

struct MethodDeclaration {
    selector: CString,
    imp: *const c_void,
    types: CString,
    of_class: bool,
}

impl<T: Declared> Default for Declaration<T> {
    fn default() -> Self {
        Self { superclass: c"NSObject", protocols: Vec::new(), methods: Vec::new(), type_: PhantomData }
    }
}

impl<T: Declared> Declaration<T> {
    /// A subclass of `NSObject` without methods.
    pub fn new() -> Self {
        Self::default()
    }

    /// A subclass of another class, which must be registered.
    pub fn below(mut self, superclass: &'static CStr) -> Self {
        self.superclass = superclass;
        self
    }

    /// Adds conformance to a protocol.
    pub fn follows(mut self, protocol: &'static CStr) -> Self {
        self.protocols.push(protocol);
        self
    }

    fn add(mut self, selector: &str, imp: *const c_void, types: String, of_class: bool) -> Self {
        let arguments = selector.matches(':').count();
        assert_eq!(
            arguments,
            arguments_in(&types),
            "`{selector}` and its function take different numbers of arguments"
        );
        let text = |text: String| CString::new(text).expect("no zero in it");
        self.methods.push(MethodDeclaration {
            selector: text(selector.to_owned()),
            imp,
            types: text(types),
            of_class,
        });
        self
    }

    /// Adds an instance method: a function of the receiver, `&Ref<T>` or `&Object`, and the arguments.
    pub fn method<S, A, F: Function<S, A>>(self, selector: &str, _function: F) -> Self {
        self.add(selector, F::method(), F::types(), false)
    }

    /// Adds a class method: a function of the arguments only.
    pub fn class_method<A, F: Free<A>>(self, selector: &str, _function: F) -> Self {
        self.add(selector, F::class_method(), F::types(), true)
    }

    /// Adds an initializer: a function from the arguments to the object's contents, or `None` on failure.
    pub fn init<A, F: Init<T, A>>(self, selector: &str, _function: F) -> Self {
        self.add(selector, F::init(), F::types(), false)
    }

    /// Adds methods that exist since some operating system version, if `present`.
    pub fn when(self, present: bool, more: impl FnOnce(Self) -> Self) -> Self {
        if present { more(self) } else { self }
    }

    /// Registers the class.
    pub fn register(self) {
        let superclass = Class::named(self.superclass);
        let superclass = superclass.unwrap_or_else(|| panic!("{:?} is registered first", self.superclass));
        self.register_below(Some(superclass));
    }

    pub(crate) fn register_below(self, superclass: Option<&'static Class>) {
        let class = Class::create(T::NAME, superclass).unwrap_or_else(|| panic!("{:?} twice", T::NAME));
        for name in self.protocols {
            class.add_protocol(protocol(name));
        }
        for method in self.methods {
            let to = if method.of_class { class.meta() } else { class };
            let added = to.add(Selector::of(&method.selector), method.imp, &method.types);
            assert!(added, "{:?} has two methods {:?}", T::NAME, method.selector);
        }
        assert!(T::slot().set(class).is_ok(), "{:?} twice", T::NAME);
    }
}

/// Number of arguments in a method's encoding, without receiver and selector.
fn arguments_in(types: &str) -> usize {
    let (mut depth, mut count, mut pointer) = (0_usize, 0_usize, false);
    for letter in types.chars() {
        match letter {
            '{' | '[' | '(' => {
                count += usize::from(depth == 0);
                depth += 1;
            }
            '}' | ']' | ')' => {
                depth -= 1;
                pointer = false;
            }
            _ if depth > 0 => {}
            '^' => pointer = true,
            '?' => {}
            _ => {
                count += 1;
                pointer = false;
            }
        }
    }
    debug_assert!(!pointer || depth == 0, "a pointer points to something");
    // The result, the receiver and the selector.
    count - 3
}

/// Creates a value of a zero-sized type.
fn conjured<F: Copy>(_evidence: PhantomData<F>) -> F {
    const { assert!(size_of::<F>() == 0, "methods are functions, not closures over values") };
    // SAFETY: no bytes are needed for it, and whoever names the type had a value, which can be copied.
    unsafe { std::ptr::NonNull::<F>::dangling().read() }
}

/// A function that can be an instance method.
pub trait Function<S, A>: Copy + 'static {
    /// The C function.
    fn method() -> *const c_void;
    /// The method's types.
    fn types() -> String;
}

/// A function that can be a class method.
pub trait Free<A>: Copy + 'static {
    /// The C function.
    fn class_method() -> *const c_void;
    /// The method's types.
    fn types() -> String;
}

/// A function that can be an initializer.
pub trait Init<T, A>: Copy + 'static {
    /// The C function.
    fn init() -> *const c_void;
    /// The method's types.
    fn types() -> String;
}

/// Sets the contents of an allocated object and returns it; releases it on failure.
///
/// # Safety
/// `this` is an object to which the caller owns a reference.
unsafe fn initialized<T: Declared>(this: Id, held: Option<T>) -> Id {
    match held {
        Some(held) => {
            // SAFETY: nobody else has it before it is initialized.
            unsafe { Raw::fill(this, Box::new(held)) };
            this
        }
        None => {
            // SAFETY: the caller's promise.
            unsafe { Raw::release(this) };
            std::ptr::null_mut()
        }
    }
}

macro_rules! functions {
    ($($type:ident $name:ident)*) => {
        impl<F, S, R, $($type),*> Function<S, (R, $($type,)*)> for F
        where
            F: Fn(&S, $($type),*) -> R + Copy + 'static,
            S: Receiver,
            R: Return,
            $($type: Argument,)*
        {
            fn method() -> *const c_void {
                extern "C" fn thunk<F, S, R, $($type),*>(this: Id, selector: Selector, $($name: $type::Raw),*) -> R::Raw
                where
                    F: Fn(&S, $($type),*) -> R + Copy + 'static,
                    S: Receiver,
                    R: Return,
                    $($type: Argument,)*
                {
                    // SAFETY: message sending passes an object of a class that has the method.
                    let this: ManuallyDrop<S> = unsafe { S::borrow(this) };
                    // SAFETY: the arguments are what the method's types say.
                    let result = conjured(PhantomData::<F>)(&this, $(unsafe { $type::from_raw($name) }),*);
                    result.into_raw(selector)
                }
                thunk::<F, S, R, $($type),*> as *const c_void
            }

            fn types() -> String {
                [R::Raw::ENCODING, "@", ":", $($type::Raw::ENCODING),*].concat()
            }
        }

        impl<F, R, $($type),*> Free<(R, $($type,)*)> for F
        where
            F: Fn($($type),*) -> R + Copy + 'static,
            R: Return,
            $($type: Argument,)*
        {
            fn class_method() -> *const c_void {
                extern "C" fn thunk<F, R, $($type),*>(_: Id, selector: Selector, $($name: $type::Raw),*) -> R::Raw
                where
                    F: Fn($($type),*) -> R + Copy + 'static,
                    R: Return,
                    $($type: Argument,)*
                {
                    // SAFETY: the arguments are what the method's types say.
                    conjured(PhantomData::<F>)($(unsafe { $type::from_raw($name) }),*).into_raw(selector)
                }
                thunk::<F, R, $($type),*> as *const c_void
            }

            fn types() -> String {
                [R::Raw::ENCODING, "@", ":", $($type::Raw::ENCODING),*].concat()
            }
        }

        impl<F, T, $($type),*> Init<T, ($($type,)*)> for F
        where
            F: Fn($($type),*) -> Option<T> + Copy + 'static,
            T: Declared,
            $($type: Argument,)*
        {
            fn init() -> *const c_void {
                extern "C" fn thunk<F, T, $($type),*>(this: Id, _: Selector, $($name: $type::Raw),*) -> Id
                where
                    F: Fn($($type),*) -> Option<T> + Copy + 'static,
                    T: Declared,
                    $($type: Argument,)*
                {
                    // SAFETY: the arguments are what the method's types say, and methods that initialize
                    // take the receiver over.
                    unsafe { initialized(this, conjured(PhantomData::<F>)($($type::from_raw($name)),*)) }
                }
                thunk::<F, T, $($type),*> as *const c_void
            }

            fn types() -> String {
                ["@", "@", ":", $($type::Raw::ENCODING),*].concat()
            }
        }
    };
}

functions!();
functions!(A a);
functions!(A a B b);
functions!(A a B b C c);
functions!(A a B b C c D d);
functions!(A a B b C c D d E e);
functions!(A a B b C c D d E e G g);
functions!(A a B b C c D d E e G g H h);
functions!(A a B b C c D d E e G g H h I i);
functions!(A a B b C c D d E e G g H h I i J j);
functions!(A a B b C c D d E e G g H h I i J j K k L l M m);
functions!(A a B b C c D d E e G g H h I i J j K k L l M m N n O o P p Q q);

/// A property that the program reads and writes.
#[derive(Default)]
pub struct Property<V>(Mutex<V>);

impl<V> Property<V> {
    /// With an initial value.
    pub fn new(value: V) -> Self {
        Self(Mutex::new(value))
    }

    /// Set it.
    pub fn set(&self, value: V) {
        let _old = std::mem::replace(&mut *self.0.lock(), value);
    }
}

impl<V: Clone> Property<V> {
    /// The value.
    pub fn get(&self) -> V {
        self.0.lock().clone()
    }
}

impl<V: Clone> Clone for Property<V> {
    fn clone(&self) -> Self {
        Self::new(self.get())
    }
}

impl<T: Declared> Declaration<T> {
    /// Adds a property with its setter.
    pub fn property<V, F>(self, name: &str, field: F) -> Self
    where
        V: Argument + Return + Clone + 'static,
        F: Fn(&T) -> &Property<V> + Copy + 'static,
    {
        let setter = format!("set{}{}:", name[..1].to_uppercase(), &name[1..]);
        self.getter(name, field).method(&setter, Setter::<T, V, F>::function(field))
    }

    /// Adds a property whose getter has another name: `isLabel` and `setLabel:`.
    pub fn getter<V, F>(self, name: &str, field: F) -> Self
    where
        V: Argument + Return + Clone + 'static,
        F: Fn(&T) -> &Property<V> + Copy + 'static,
    {
        self.method(name, move |this: &Ref<T>| field(this).get())
    }

    /// `init` and `new` create an object with the default value.
    pub fn makes_default(self) -> Self
    where
        T: Default,
    {
        self.init("init", || Some(T::default()))
    }

    /// `copyWithZone:` creates another object with the same contents.
    pub fn copies(self) -> Self
    where
        T: Clone,
    {
        self.method("copyWithZone:", |this: &Ref<T>, _zone: *mut c_void| Ref::new(T::clone(this)))
    }
}

struct Setter<T, V, F>(PhantomData<(T, V, F)>);

impl<T, V, F> Setter<T, V, F>
where
    T: Declared,
    F: Fn(&T) -> &Property<V> + Copy + 'static,
{
    /// A function without captures but the field's, which has no size.
    fn function(field: F) -> impl Fn(&Ref<T>, V) + Copy + 'static {
        move |this, value| field(this).set(value)
    }
}

/// Classes that are registered together on first use.
pub fn register(classes: &[fn()]) {
    for register in classes {
        register();
    }
}
