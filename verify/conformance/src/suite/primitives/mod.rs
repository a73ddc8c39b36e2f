//! Primitives of a vendor's library compared with the same sums in `f64` on the host. A device without a library refuses them with that
//! reason.
//!
//! Operands are multiples of 1/16 up to 2, which are exact in 16 bits. The permitted error of a result is two units in the last place of
//! its type, plus the possible loss of summing its terms in `f32` in any order, plus [`Number::LEAST`].

mod errors;
mod images;
mod matrices;
mod order;

use elinvar::driver::primitive::{DataType, Matrix};
use elinvar::{Args, Buffer, Device, Error, Primitive, Stream, bf16, f16};

use super::{Case, CaseResult, kernel, launch};

/// All cases of the chapter.
pub(super) fn all() -> Vec<Case> {
    [matrices::CASES, images::CASES, order::CASES, errors::CASES].concat()
}

/// Initial content of results.
const BEFORE: f64 = 7.5;

/// Element type of a primitive.
trait Number: elinvar::Pod + std::fmt::Debug {
    const DATA_TYPE: DataType;
    /// One unit in the last place of 1.
    const UNIT: f64;
    /// Results below this may be 0. Metal may flush subnormal 32-bit numbers.
    const LEAST: f64;
    fn of(value: f64) -> Self;
    fn get(self) -> f64;
}

impl Number for f32 {
    const DATA_TYPE: DataType = DataType::F32;
    const UNIT: f64 = f32::EPSILON as f64;
    const LEAST: f64 = f32::MIN_POSITIVE as f64;

    fn of(value: f64) -> Self {
        value as Self
    }

    fn get(self) -> f64 {
        self.into()
    }
}

impl Number for f16 {
    const DATA_TYPE: DataType = DataType::F16;
    const UNIT: f64 = 1.0 / (1 << 10) as f64;
    const LEAST: f64 = 1.0 / (1 << 24) as f64;

    fn of(value: f64) -> Self {
        Self::from_f64(value)
    }

    fn get(self) -> f64 {
        self.to_f64()
    }
}

impl Number for bf16 {
    const DATA_TYPE: DataType = DataType::BF16;
    const UNIT: f64 = 1.0 / (1 << 7) as f64;
    const LEAST: f64 = f32::MIN_POSITIVE as f64;

    fn of(value: f64) -> Self {
        Self::from_f64(value)
    }

    fn get(self) -> f64 {
        self.to_f64()
    }
}

/// Pseudorandom numbers, determined by `seed`.
fn numbers(count: usize, seed: u32) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f64::from((state >> 8) % 65) / 16.0 - 2.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn typed<T: Number>(values: &[f64]) -> Vec<T> {
    values.iter().map(|value| T::of(*value)).collect()
}

/// Exact value of an element, the sum of the magnitudes of its terms, and their number.
#[derive(Clone, Copy, Default)]
struct Exact {
    value: f64,
    size: f64,
    terms: f64,
}

impl Exact {
    fn of(terms: impl IntoIterator<Item = f64>) -> Self {
        terms.into_iter().fold(Self::default(), |sum, term| Self {
            value: sum.value + term,
            size: sum.size + term.abs(),
            terms: sum.terms + 1.0,
        })
    }

    fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, size: self.size * factor.abs(), ..self }
    }

    /// Adds a number to a sum that may have been rounded to a type with this unit.
    fn plus(self, number: f64, unit: f64) -> Self {
        let terms = self.terms + 1.0;
        let rounded = self.value.abs() * unit / f64::from(f32::EPSILON) / terms;
        Self { value: self.value + number, size: self.size + number.abs() + rounded, terms }
    }

    #[track_caller]
    fn expect<T: Number>(self, got: T, place: impl std::fmt::Display) {
        let Self { value, size, terms } = self;
        let allowed = 2.0 * T::UNIT * value.abs() + terms * f64::from(f32::EPSILON) * size + T::LEAST;
        let got = got.get();
        assert!(
            (got - value).abs() <= allowed,
            "{place}: {got}, expected {value} with an error of {allowed} at most"
        );
    }
}

/// A matrix in a buffer: rows with padding, after some other elements.
struct Stored<T> {
    buffer: Buffer<T>,
    skip: usize,
    shape: Matrix,
    count: usize,
}

impl<T: Number> Stored<T> {
    /// `count` matrices with `gap` padding elements between rows and `gap` padding rows between matrices, `skip` elements into a buffer.
    /// All elements around them must stay unchanged.
    fn new(
        device: &Device,
        [rows, columns]: [u32; 2],
        [skip, gap]: [usize; 2],
        count: usize,
        seed: u32,
    ) -> elinvar::Result<Self> {
        let row_bytes = (u64::from(columns) + gap as u64) * T::DATA_TYPE.size();
        let matrix_bytes = row_bytes * (u64::from(rows) + gap as u64);
        let shape = Matrix { matrix_bytes, ..Matrix::strided(rows, columns, row_bytes) };
        let per_matrix = (matrix_bytes / T::DATA_TYPE.size()) as usize;
        let values = match seed {
            0 => vec![BEFORE; skip + count * per_matrix + 3],
            seed => numbers(skip + count * per_matrix + 3, seed),
        };
        Ok(Self { buffer: device.buffer_with_data(&typed::<T>(&values))?, skip, shape, count })
    }

    /// Range of the operand: from its first element to the end of its last one.
    fn range(&self) -> std::ops::Range<usize> {
        let Matrix { rows, columns, .. } = self.shape;
        self.skip..self.at(self.count - 1, rows as usize - 1, columns as usize - 1) + 1
    }

    /// Index of an element in the buffer.
    fn at(&self, matrix: usize, row: usize, column: usize) -> usize {
        let size = T::DATA_TYPE.size();
        let Matrix { row_bytes, matrix_bytes, .. } = self.shape;
        let (row_bytes, matrix_bytes) = ((row_bytes / size) as usize, (matrix_bytes / size) as usize);
        self.skip + matrix * matrix_bytes + row * row_bytes + column
    }

    fn values(&self) -> elinvar::Result<Vec<f64>> {
        Ok(self.buffer.to_vec()?.into_iter().map(T::get).collect())
    }

    /// Compares every element of the buffer: those of the matrices with `exact`, all others with their previous content.
    #[track_caller]
    fn expect(
        &self,
        what: &str,
        before: &[f64],
        exact: impl Fn(usize, usize, usize) -> Exact,
    ) -> elinvar::Result<()> {
        let got = self.buffer.to_vec()?;
        let mut own = vec![false; got.len()];
        let Matrix { rows, columns, .. } = self.shape;
        for matrix in 0..self.count {
            for (row, column) in points(rows as usize, columns as usize) {
                let at = self.at(matrix, row, column);
                own[at] = true;
                let place = format_args!("{what}: matrix {matrix}, row {row}, column {column}");
                exact(matrix, row, column).expect(got[at], place);
            }
        }
        for (at, value) in got.iter().enumerate().filter(|(at, _)| !own[*at]) {
            assert_eq!(value.get(), before[at], "{what}: element {at} of the buffer is not the result's");
        }
        Ok(())
    }
}

fn points(rows: usize, columns: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column)))
}

/// Checks a result: the device must accept the primitive if its caps list it, and refuse it with the reason otherwise.
#[track_caller]
fn taken<T>(device: &Device, primitive: &Primitive, result: elinvar::Result<T>) -> elinvar::Result<T> {
    let caps = device.caps();
    let listed = caps.features.primitives.expect(primitive, &[], &caps.name);
    match (&result, listed) {
        (Ok(_), listed) => assert!(listed.is_ok(), "{primitive:?}: taken, and not among the caps"),
        (Err(Error::Unsupported(text)), Err(Error::Unsupported(reason))) => assert_eq!(*text, reason),
        _ => {}
    }
    result
}

/// The results of the parts of a case, of which a device may refuse some.
#[derive(Default)]
struct Parts {
    computed: usize,
    refused: Option<Error>,
}

impl Parts {
    fn add(&mut self, part: CaseResult) -> CaseResult {
        match part {
            Ok(()) => self.computed += 1,
            Err(error) => match error.downcast::<Error>() {
                Ok(refused) if matches!(*refused, Error::Unsupported(_)) => self.refused = Some(*refused),
                Ok(other) => return Err(other),
                Err(other) => return Err(other),
            },
        }
        Ok(())
    }

    /// The result of the case: unsupported if all parts are.
    fn end(self) -> CaseResult {
        match self.refused {
            Some(refused) if self.computed == 0 => Err(refused.into()),
            _ => Ok(()),
        }
    }
}

/// Computes the primitive and waits.
#[track_caller]
fn computed(stream: &Stream, primitive: &Primitive, operands: impl Args) -> elinvar::Result<()> {
    let done = stream.primitive(primitive, operands).and_then(|done| done.wait());
    taken(stream.device(), primitive, done).map(drop)
}
