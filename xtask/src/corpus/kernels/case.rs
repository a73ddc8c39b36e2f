//! A kernel with the arguments of a launch and the expected results.
//!
//! A [`Case`] is plain data made by its family's file; [`crate::corpus::run`] launches it. The reference is computed from the kernel's
//! definition, in f64 or in integers, and never by running the kernel's source. An output is a buffer with [`GUARD`] more elements, filled
//! with [`UNTOUCHED`] before the launch: the guard, and elements without a reference, must not change.

use elinvar::{Constants, Extent, Scalar};

use super::element::Element;

/// Number of elements after every output, which no kernel may write; a multiple of the number of words of many elements.
pub const GUARD: usize = 24;

/// Value of each byte of an output before the launch.
pub const UNTOUCHED: u8 = 0x5a;

/// A launch of one kernel, and its reference.
pub struct Case {
    /// Name of the corpus.
    pub corpus: &'static str,
    /// File in the corpus's folder.
    pub file: &'static str,
    /// Name of the kernel, the `host_name` if it has one.
    pub kernel: String,
    /// In the order of the kernel's parameters.
    pub arguments: Vec<Argument>,
    pub constants: Constants,
    /// Size of the grid and of its threadgroups in threads.
    pub threads: [u32; 3],
    pub group: [u32; 3],
    /// The permitted error, and its reason.
    pub tolerance: &'static str,
}

/// Argument of a kernel.
pub enum Argument {
    /// Bytes of one or a few values that the kernel only reads.
    Bytes(Vec<u8>),
    /// A buffer. Without a type it is untyped memory, which the kernel casts.
    Buffer { scalar: Option<Scalar>, before: Vec<u8>, after: Option<Check> },
    /// Bytes of threadgroup memory.
    Threadgroup(usize),
}

/// Verifies the content of a buffer after the launch.
pub struct Check {
    /// Number of compared elements, without the guard.
    pub elements: usize,
    /// Reports the first wrong element, and the number of wrong elements.
    pub compare: Compare,
}

type Compare = Box<dyn Fn(&[u8]) -> Result<(), String> + Send + Sync>;

/// A value and the permitted error. An error of zero requires the nearest value of the result's type.
pub type Near = (f64, f64);

pub const EXACT: &str = "exact";

impl Case {
    pub fn new(corpus: &'static str, file: &'static str, kernel: impl Into<String>) -> Self {
        Self {
            corpus,
            file,
            kernel: kernel.into(),
            arguments: Vec::new(),
            constants: Constants::new(),
            threads: [0; 3],
            group: [1; 3],
            tolerance: EXACT,
        }
    }

    /// The same kernel in another corpus.
    pub fn of(mut self, corpus: &'static str, file: &'static str) -> Self {
        (self.corpus, self.file) = (corpus, file);
        self
    }

    /// Adds one or a few values for a parameter that is only read.
    pub fn value<T: Element>(mut self, values: impl AsRef<[T]>) -> Self {
        self.arguments.push(Argument::Bytes(bytemuck::cast_slice(values.as_ref()).to_vec()));
        self
    }

    /// Adds a struct, laid out by [`super::element::packed`].
    pub fn bytes(mut self, bytes: Vec<u8>) -> Self {
        self.arguments.push(Argument::Bytes(bytes));
        self
    }

    /// Adds a buffer that the kernel only reads.
    pub fn input<T: Element>(self, elements: &[T]) -> Self {
        self.buffer(elements, None)
    }

    /// Adds a buffer that must be exactly `want`; elements with `None` must not be written.
    pub fn output<T: Element>(self, want: &[Option<T>]) -> Self {
        let before: Vec<T> = vec![T::untouched(); want.len() + GUARD];
        self.updated(&before, want)
    }

    /// [`Case::output`] for a kernel that writes every element.
    pub fn full_output<T: Element>(self, want: impl IntoIterator<Item = T>) -> Self {
        let want: Vec<Option<T>> = want.into_iter().map(Some).collect();
        self.output(&want)
    }

    /// Adds a buffer with content `before`, which must then be exactly `want`; elements with `None` must not change.
    pub fn updated<T: Element>(self, before: &[T], want: &[Option<T>]) -> Self {
        let elements = want.len();
        let expected: Vec<T> = before
            .iter()
            .enumerate()
            .map(|(i, old)| want.get(i).copied().flatten().unwrap_or(*old))
            .collect();
        let compare = move |bytes: &[u8]| {
            report(
                T::read(bytes)
                    .iter()
                    .zip(&expected)
                    .map(|(got, want)| (!got.same(*want)).then(|| format!("{got:?} instead of {want:?}"))),
            )
        };
        self.buffer(before, Some(Check { elements, compare: Box::new(compare) }))
    }

    /// Adds a buffer of floats that must be within the permitted error.
    pub fn near<T: Element>(self, want: Vec<Near>, tolerance: &'static str) -> Self {
        let before: Vec<T> = vec![T::untouched(); want.len() + GUARD];
        self.updated_near(&before, want, tolerance)
    }

    /// Adds a buffer with content `before`, whose floats must then be within the permitted error.
    pub fn updated_near<T: Element>(
        mut self,
        before: &[T],
        want: Vec<Near>,
        tolerance: &'static str,
    ) -> Self {
        self.tolerance = tolerance;
        let (elements, rest) = (want.len(), before[want.len()..].to_vec());
        let compare = move |bytes: &[u8]| {
            let got = T::read(bytes);
            let near = got.iter().zip(&want).map(|(got, (value, error))| {
                let value_is_met = got.same(T::of(*value)) || (got.value() - value).abs() <= *error;
                (!value_is_met).then(|| format!("{got:?}, more than {error:e} from {value:e}"))
            });
            let behind = got[want.len()..]
                .iter()
                .zip(&rest)
                .map(|(got, old)| (!got.same(*old)).then(|| format!("{old:?} overwritten with {got:?}")));
            report(near.chain(behind))
        };
        self.buffer(before, Some(Check { elements, compare: Box::new(compare) }))
    }

    /// Marks the last buffer as untyped, because the kernel casts it from the type that it declares.
    pub fn cast(mut self) -> Self {
        if let Some(Argument::Buffer { scalar, .. }) = self.arguments.last_mut() {
            *scalar = None;
        }
        self
    }

    /// Adds threadgroup memory.
    pub fn threadgroup(mut self, bytes: usize) -> Self {
        self.arguments.push(Argument::Threadgroup(bytes));
        self
    }

    /// Sets the function constants.
    pub fn constants(mut self, constants: Constants) -> Self {
        self.constants = constants;
        self
    }

    /// Sets the size of the grid and of a threadgroup in threads.
    pub fn threads(mut self, count: impl Extent, group: impl Extent) -> Self {
        (self.threads, self.group) = (count.sizes().map(|n| n as u32), group.sizes().map(|n| n as u32));
        self
    }

    /// Sets the size of the grid in threadgroups, and of a threadgroup in threads.
    pub fn groups(self, count: impl Extent, group: impl Extent) -> Self {
        let mut case = self.threads(count, group);
        for (threads, group) in case.threads.iter_mut().zip(case.group) {
            *threads *= group;
        }
        case
    }

    /// Number of compared elements.
    pub fn elements(&self) -> usize {
        self.arguments
            .iter()
            .map(|argument| match argument {
                Argument::Buffer { after: Some(check), .. } => check.elements,
                _ => 0,
            })
            .sum()
    }

    fn buffer<T: Element>(mut self, elements: &[T], after: Option<Check>) -> Self {
        let before = bytemuck::cast_slice(elements).to_vec();
        self.arguments.push(Argument::Buffer { scalar: Some(T::SCALAR), before, after });
        self
    }
}

/// The elements, and those behind them, which must not change.
pub fn guarded<T: Element>(elements: &[T]) -> Vec<T> {
    [elements, &[T::untouched(); GUARD]].concat()
}

/// Reports the first wrong element and the number of wrong elements.
fn report(elements: impl Iterator<Item = Option<String>>) -> Result<(), String> {
    let mut wrong = elements.enumerate().filter_map(|(i, what)| Some((i, what?)));
    match wrong.next() {
        None => Ok(()),
        Some((i, what)) => Err(format!("element {i} is {what}; {} more are wrong", wrong.count())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(case: &Case, bytes: &[u8]) -> Result<(), String> {
        let Some(Argument::Buffer { after: Some(check), .. }) = case.arguments.last() else {
            panic!("no output");
        };
        (check.compare)(bytes)
    }

    fn bytes_of<T: Element>(start: &[T]) -> Vec<u8> {
        let mut all = start.to_vec();
        all.extend([T::untouched(); GUARD]);
        bytemuck::cast_slice(&all).to_vec()
    }

    #[test]
    fn exact_outputs() {
        let case = Case::new("c", "f", "k").output(&[Some(1_u32), None, Some(3)]);
        assert_eq!(case.elements(), 3);
        let untouched = u32::untouched();
        assert_eq!(compare(&case, &bytes_of(&[1, untouched, 3])), Ok(()));
        let wrong = compare(&case, &bytes_of(&[1, 2, 4]));
        assert_eq!(wrong.unwrap_err(), format!("element 1 is 2 instead of {untouched}; 1 more are wrong"));
        let mut behind = bytes_of(&[1, untouched, 3]);
        behind[3 * 4 + 1] = 0;
        assert!(compare(&case, &behind).unwrap_err().starts_with("element 3 "));
    }

    #[test]
    fn near_outputs() {
        let case = Case::new("c", "f", "k").near::<f32>(vec![(1.0, 0.25), (0.1, 0.0)], "a quarter");
        assert_eq!((case.elements(), case.tolerance), (2, "a quarter"));
        assert_eq!(compare(&case, &bytes_of(&[1.25_f32, 0.1])), Ok(()));
        assert!(compare(&case, &bytes_of(&[1.26_f32, 0.1])).is_err());
        assert!(compare(&case, &bytes_of(&[1.0, 0.1_f32.next_up()])).is_err());
        assert!(compare(&case, &bytes_of(&[f32::NAN, 0.1])).is_err());
        let mut behind = bytes_of(&[1.0_f32, 0.1]);
        behind[8] = 0;
        assert!(compare(&case, &behind).unwrap_err().contains("overwritten"));
    }
}
