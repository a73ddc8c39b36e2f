//! Packed products against sums in `f64`. All numbers are multiples of 1/8, so that sums are exact and are rounded once.

use elinvar_driver::Storage;
use elinvar_driver::primitive::{Images, Layout, Matrix, Padding, Window};
use half::{bf16, f16};

use super::*;
use crate::encode::address;
use crate::memory::{Account, HostMemory};
use crate::pool::Pool;

#[test]
fn products_are_divided_for_all_workers() {
    assert_eq!(lines_of_block(256, 12, wanted_blocks(1), 8), 96);
    assert_eq!(lines_of_block(256, 12, wanted_blocks(2), 8), 48);
    assert_eq!(lines_of_block(7, 12, wanted_blocks(64), 8), 12);
    assert_eq!(lines_of_block(100_000, 8, wanted_blocks(4), 12), 96);
}

/// An operand with its values; between and behind its rows are elements that must not change.
struct Stored {
    memory: MemorySlice,
    shape: Matrix,
    element: Element,
    values: Vec<f64>,
}

const GAP: f32 = 77.0;

#[allow(unsafe_code)] // addresses of the memory that this creates
impl Stored {
    fn new(
        data_type: DataType,
        matrices: usize,
        [rows, columns]: [usize; 2],
        gap: usize,
        seed: usize,
    ) -> Self {
        let element = element(data_type).unwrap();
        let row_bytes = ((columns + gap) * element.size()) as u64;
        let shape = Matrix::strided(rows as u32, columns as u32, row_bytes);
        let count = matrices * rows * (columns + gap);
        let bytes = (count * element.size()) as u64;
        let memory = HostMemory::new(bytes, Storage::Shared, Arc::new(Account::new(u64::MAX))).unwrap();
        let first = memory.at(0, bytes).unwrap();
        let value = |n: usize| ((n * 7919 + seed * 104_729) % 17) as f32 / 8.0 - 1.0;
        for n in 0..count {
            let number = if n % (columns + gap) < columns { value(n) } else { GAP };
            // SAFETY: the memory has so many elements.
            unsafe { element.write(first, n as isize, number) };
        }
        let memory = MemorySlice { memory: Arc::new(memory), offset: 0, len: bytes };
        let mut stored = Self { memory, shape, element, values: Vec::new() };
        stored.values = stored.read();
        stored
    }

    fn read(&self) -> Vec<f64> {
        let first = address(&self.memory).unwrap();
        let count = self.memory.len as usize / self.element.size();
        // SAFETY: the memory has so many elements.
        (0..count).map(|n| f64::from(unsafe { self.element.read(first, n as isize) })).collect()
    }

    fn at(&self, matrix: usize, row: usize, column: usize) -> usize {
        let row_elements = self.shape.row_bytes as usize / self.element.size();
        (matrix * self.shape.rows as usize + row) * row_elements + column
    }
}

/// Multiplies, and compares every element of the result's memory.
fn check(sizes: [usize; 3], matrices: usize, room: usize, how: usize, worker: &mut Worker) {
    let [rows, columns, terms] = sizes;
    let bit = |n: usize| how >> n & 1 == 1;
    let data_type = [DataType::F32, DataType::F16, DataType::BF16][how % 3];
    let (transpose_left, transpose_right, bias, shared) = (bit(0), bit(1), bit(2), bit(3));
    let bias_of = if bit(4) { BiasOf::Rows } else { BiasOf::Columns };
    let activation = [Activation::None, Activation::Relu, Activation::Gelu][how / 3 % 3];
    let beta = if bit(1) { 0.5 } else { 0.0 };
    let turned = |size: [usize; 2], turn: bool| if turn { [size[1], size[0]] } else { size };
    let gap = how % 4;
    let left = Stored::new(data_type, matrices, turned([rows, terms], transpose_left), gap, 1);
    let of_right = if shared { 1 } else { matrices };
    let mut right = Stored::new(data_type, of_right, turned([terms, columns], transpose_right), gap, 2);
    if shared {
        right.shape.matrix_bytes = 0;
    }
    let added = Stored::new(data_type, 1, [1, rows.max(columns)], 0, 3);
    let result = Stored::new(data_type, matrices, [rows, columns], gap, 4);
    let p = MatMul {
        data_type,
        matrices: matrices as u32,
        left: left.shape,
        transpose_left,
        right: right.shape,
        transpose_right,
        result: result.shape,
        alpha: 0.25,
        beta,
        bias,
        activation,
    };
    let mut operands = vec![left.memory.clone(), right.memory.clone()];
    operands.extend(bias.then(|| added.memory.clone()));
    operands.push(result.memory.clone());
    packed::multiply(&p, &operands, bias_of, room, &Arc::default(), worker).unwrap();
    let mut wanted = result.values.clone();
    for (matrix, row, column) in (0..matrices)
        .flat_map(|m| (0..rows).flat_map(move |row| (0..columns).map(move |column| (m, row, column))))
    {
        let of_right = if shared { 0 } else { matrix };
        let sum: f64 = (0..terms)
            .map(|k| {
                let [a, b] = turned([row, k], transpose_left);
                let [c, d] = turned([k, column], transpose_right);
                left.values[left.at(matrix, a, b)] * right.values[right.at(of_right, c, d)]
            })
            .sum();
        let place = result.at(matrix, row, column);
        let bias_at = if bias_of == BiasOf::Rows { row } else { column };
        let held = f64::from(beta) * result.values[place];
        let value = 0.25 * sum + held + if bias { added.values[bias_at] } else { 0.0 };
        let value = super::activation(activation).of(value as f32);
        wanted[place] = match data_type {
            DataType::F16 => f16::from_f32(value).to_f64(),
            DataType::BF16 => bf16::from_f32(value).to_f64(),
            _ => f64::from(value),
        };
    }
    for (n, (got, wanted)) in result.read().into_iter().zip(wanted).enumerate() {
        assert_eq!(got, wanted, "element {n} of {p:?}");
    }
}

#[test]
fn packed_products_in_blocks_and_in_parts() {
    let pools = [1, 2].map(|workers| Pool::new(workers).unwrap());
    // Several blocks of terms; parts of the columns; several matrices at a time, and one; several parts of the rows.
    let shapes = [
        ([13, 70, 3], 1),
        ([8, 33, 1100], 1),
        ([29, 100, 40], 3),
        ([1, 1, 1], 2),
        ([97, 9, 513], 2),
        ([150, 40, 8], 1),
    ];
    for (sizes, matrices) in shapes {
        for (number, room) in [1, 64 * sizes[2], 1 << 20].into_iter().enumerate() {
            for how in 0..16 {
                let mut worker = pools[how % 2].guest();
                check(sizes, matrices, room, how * 3 + number + how / 4, &mut worker);
                check(sizes, matrices, room, how * 12, &mut worker);
            }
        }
    }
}

#[test]
fn a_stopped_product_fails() {
    let [left, right, result] = [1, 2, 3].map(|seed| Stored::new(DataType::F32, 1, [64, 64], 0, seed));
    let stop = Arc::<Stop>::default();
    stop.set(Error::Cancelled);
    let operands = [&left, &right, &result].map(|stored| stored.memory.clone());
    let p = MatMul::packed(DataType::F32, 64, 64, 64);
    for pool in [Pool::new(1).unwrap(), Pool::new(2).unwrap()] {
        let ended = packed::multiply(&p, &operands, BiasOf::Columns, PANELS, &stop, &mut pool.guest());
        assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
        assert_eq!(result.read(), result.values);
    }
}

#[test]
fn images_one_by_one_and_together() {
    let pool = Pool::new(2).unwrap();
    let mut worker = pool.guest();
    let source = Images { count: 3, channels: 6, height: 9, width: 8 };
    let window = Window { stride: [1, 2], padding: Padding::all(1), ..Window::new(3, 2) };
    let of_points = Window::new(1, 1);
    for (layout, window, groups) in [
        (Layout::ChannelsFirst, window, 1),
        (Layout::ChannelsFirst, window, 3),
        (Layout::ChannelsLast, window, 2),
        (Layout::ChannelsFirst, of_points, 1),
        (Layout::ChannelsLast, of_points, 1),
    ] {
        let new = Convolution::new(DataType::F32, layout, source, 12, window);
        let p = Convolution { groups, bias: true, ..new };
        let vector = |count: u128, seed| Stored::new(DataType::F32, 1, [1, count as usize], 0, seed);
        let (images, weights, bias) =
            (vector(3 * source.elements(), 1), vector(p.weights(), 2), vector(12, 3));
        let of_result = p.result();
        let [one, all] = [1, PANELS].map(|room| {
            let result = vector(u128::from(of_result.count) * of_result.elements(), 4);
            let operands = [&images, &weights, &bias, &result].map(|stored| stored.memory.clone());
            convolution::convolve(&p, &operands, room, &Arc::default(), &mut worker).unwrap();
            assert_ne!(result.read(), result.values);
            result.read()
        });
        assert_eq!(one, all, "{p:?}");
    }
}
